"""JSON from outside: one function reads it, and whatever is sent, nothing but its error comes out."""
import ast
import json
import math
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.common import filesystem
from rmqha.common.protocol import cluster_bodies
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBodyError, _Reader
from rmqha.common.texts import MOST_DIGITS, JsonTextError, parse_json
from rmqha.controller import etcd_client, etcd_leadership, local_store
from rmqha.controller.replicas_info_manager import ReplicaSet, ReplicaSetError
from rmqha.store import store_marks
from rmqha.store import store_path_config_helper as paths
from rmqha.store.ha.log_comparison import Divergence
from rmqha.store.ha.scrub_state import ScrubState
from rmqha.store.store_path_config_helper import read_deleted_topics
from rmqha.tools.local_cluster import layout, processes
from rmqha.tools.local_cluster.layout import ClusterError
from rmqha.tools.messages import produce
from tests.support.sources import nodes

DEEP = "[" * 200_000
HOSTILE = {
    "nothing": "", "no JSON": "{", "too deep": DEEP, "too deep, closed": DEEP + "]" * len(DEEP),
    "objects too deep": '{"a":' * 200_000 + "1" + "}" * 200_000,
    "thousands of digits": '{"a": %s}' % ("9" * 5000), "many digits": "-" + "9" * (MOST_DIGITS + 1),
    "NaN": '{"a": NaN}', "infinity": "[-Infinity]", "beyond a double": '{"a": 1e999}',
    "a list": "[]", "a number": "1", "null": "null", "a text": '"x"', "a list of numbers": "[1, [2]]",
    "an empty object": "{}", "an object of objects": '{"result": [1], "offset": {}, "deletedTopics": {"T": [1]}}',
}
REFUSED = [name for name in HOSTILE if not name.startswith(("a ", "an ", "null"))]

# Where JSON or YAML is read without `parse_json`: how often, and why. Only remove from it.
OTHER_READERS = {
    "rmqha/acl/acl_files.py": (1, "YAML, with a loader and an error of its own"),
    "rmqha/common/texts.py": (1, "parse_json itself"),
    "rmqha/remoting/protocol/fastjson.py": (1, "the wire's dialect, with FastjsonError"),
    "rmqha/remoting/protocol/remoting_command.py": (2, "headers, with RemotingCommandError"),
    "rmqha/tools/terminal.py": (1, "text that the line before has made"),
    "rmqha/tools/command/sub_command.py": (1, "text that the line before has made"),
}
_READERS = {"json": {"load", "loads", "JSONDecoder"}, "orjson": {"loads"},
            "yaml": {"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load"},
            "tomllib": {"load", "loads"}, "simplejson": {"load", "loads"}, "ujson": {"load", "loads"}}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_json_has_one_kind_of_error(name):
    for text in (HOSTILE[name], HOSTILE[name].encode()):
        with pytest.raises(JsonTextError, match=r"^the file x is not valid JSON: .{3,150}$") as caught:
            parse_json(text, "the file x")
        assert caught.value.what == "the file x" and str(caught.value).endswith(caught.value.reason)


@pytest.mark.parametrize("text, reason", [
    (DEEP, "brackets are nested too deeply"), ("[NaN]", "NaN is not a value of JSON"),
    ("[-Infinity]", "-Infinity is not a value of JSON"), ("[1e400]", "1e400 is beyond the range of numbers"),
    ("1" * 4301, "a number of 4301 digits"), ("-" + "1" * 21, "a number of 21 digits"),
    (b"[1,\xff]", "not UTF-8 at byte 3"), ("[1,}", "line 1 column 4"), (b"\xef\xbb\xbf[]", "BOM")])
def test_the_error_says_what_is_wrong(text, reason):
    with pytest.raises(JsonTextError) as caught:
        parse_json(text, "x")
    assert reason in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20)


@given(values)
@example([(1 << 64) - 1, -(1 << 63), 1e308])
def test_what_programs_write_is_read_as_it_was(value):
    assert parse_json(json.dumps(value), "x") == value
    assert parse_json(json.dumps(value, ensure_ascii=True).encode(), "x") == value


@given(st.text("[]{}:,\"0123456789.eE+-NaInfity tru\\") | st.binary(max_size=40))
def test_any_text_is_a_finite_value_or_that_error(text):
    try:
        value = parse_json(text, "x")
    except JsonTextError:
        return
    assert value == json.loads(text)
    assert all(math.isfinite(leaf) for leaf in _leaves(value) if isinstance(leaf, float))


def _leaves(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _leaves(each)
    yield value


def _readers_in(tree):
    """Calls (and names handed on) that read JSON or YAML, also under another name."""
    names: dict[str, str] = {}
    functions: set[str] = set()
    for node in tree:
        if isinstance(node, ast.Import):
            names |= {each.asname or each.name: each.name for each in node.names if each.name in _READERS}
        elif isinstance(node, ast.ImportFrom) and node.module in _READERS:
            functions |= {each.asname or each.name for each in node.names if each.name in _READERS[node.module]}
    for node in tree:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in _READERS.get(names.get(node.value.id, ""), ()):
                yield node.lineno
        elif isinstance(node, ast.Name) and node.id in functions and isinstance(node.ctx, ast.Load):
            yield node.lineno


def test_json_from_outside_is_read_by_one_function():
    found = {path: sorted(_readers_in(tree)) for path, tree in nodes().items()}
    found = {path: places for path, places in found.items() if places}
    assert {path: len(places) for path, places in found.items()} \
        == {path: count for path, (count, _) in OTHER_READERS.items()}, found


@pytest.mark.parametrize("source", ["import json\njson.loads(x)", "import json as j\nj.load(x)",
                                    "from json import loads as l\nmap(l, x)", "import yaml\nyaml.safe_load(x)"])
def test_the_search_finds_readers(source):
    assert list(_readers_in(tuple(ast.walk(ast.parse(source))))) == [2]


def _registered(text):
    data = text.encode()
    return _Reader(len(data).to_bytes(4, "big") + data).json()


def _pid_file(folder, text):
    file = folder / "pid"
    file.write_text(text)
    return processes.find(SimpleNamespace(pid_file=file, name="n", config_file=folder / "c"))


def _cluster(folder, text):
    (folder / layout.DESCRIPTION).write_text(text)
    with pytest.raises(ClusterError, match="is none of `rmqha up`'s, or was damaged"):
        layout.complete_configs(folder, layout.Layout((), "1g"))
    layout.read(folder)


def _deleted(folder, text):
    path = Path(paths.get_deleted_topics_path(str(folder)))
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return read_deleted_topics(str(folder))


def _found_before(folder, text):
    (folder / "d.json").write_text(text)
    Divergence(str(folder / "d.json")).load()


def _scrubbed(folder, text):
    (folder / "s.json").write_text(text)
    ScrubState(str(folder / "s.json")).load()


def _installed_from(folder, text, monkeypatch):
    (folder / "direct_url.json").write_text(text)
    monkeypatch.setattr(filesystem, "checkout", lambda: None)
    monkeypatch.setattr(filesystem, "_dist_info", lambda: folder)
    assert filesystem._wanted("acl") == ["rmqha[acl]"]


@pytest.mark.parametrize("name", HOSTILE)
def test_each_reader_survives_whatever_stands_there(name, tmp_path, monkeypatch):
    """With its own error or its answer for nothing that it can use."""
    text = HOSTILE[name]
    data = text.encode()
    for read, errors in (
            (lambda: ReplicaSet.decode(data), ReplicaSetError),
            (lambda: local_store.decode_table(f'{{"crc32": {zlib.crc32(data)},\n"replicaSets":\n{text}}}\n'),
             ReplicaSetError),
            (lambda: local_store.decode_table(f'{text},\n"replicaSets":\n[]}}\n'), ReplicaSetError),
            (lambda: store_marks.decode(b"%d\n%b\n" % (zlib.crc32(data), data)), store_marks.WrongQueueEndsError),
            (lambda: cluster_bodies.decode_departed(text), ValueError),
            (lambda: _registered(text), RegisterBrokerBodyError),
            (lambda: produce.parsed(data), ValueError),
            (lambda: _deleted(tmp_path, text), ValueError),
            (lambda: _cluster(tmp_path, text), ClusterError),
            (lambda: etcd_client._has_event(SimpleNamespace(iter_lines=lambda: iter([data]))),
             (ValueError, AttributeError))):
        try:
            read()
        except errors as error:
            assert len(str(error)) < 2000
    assert etcd_leadership.Leader.decode(data) is None
    assert etcd_leadership.held_seconds(data, 7) == 7
    assert etcd_client._told(SimpleNamespace(detail_text=text))[0] is None
    assert _pid_file(tmp_path, text) is None
    _found_before(tmp_path, text)
    _scrubbed(tmp_path, text)
    _installed_from(tmp_path, text, monkeypatch)
