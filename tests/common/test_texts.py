"""Data chosen by senders uses bounded memory: JSON, cached texts, compressed bodies, and the bodies of one answer."""
import ast
import importlib.util
import json
import math
import pickle
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.broker.processor import send_codec
from rmqha.client.impl.consumer.pulling import PullAPIWrapper
from rmqha.client.impl.mq_admin_impl import MQAdminImpl
from rmqha.client.results import PullResultExt, PullStatus
from rmqha.common import compression, filesystem, java, sys_flags
from rmqha.common.compression import BodyBudget, CompressionError, MissingBody, TooLargeError
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.message.message_decoder import BodyDecodeError, BodyTooLargeError
from rmqha.common.protocol import cluster_bodies
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBodyError, _Reader
from rmqha.common.subscriptions import SubscriptionData
from rmqha.common.sys_flags import CompressionType
from rmqha.common.texts import MOST_DIGITS, JsonTextError, parse_json
from rmqha.controller import etcd_client, etcd_leadership, local_store
from rmqha.controller.replicas_info_manager import ReplicaSet, ReplicaSetError
from rmqha.filter import selector_parser
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store import store_marks
from rmqha.store import store_path_config_helper as paths
from rmqha.store.ha.log_comparison import Divergence
from rmqha.store.ha.scrub_state import ScrubState
from rmqha.store.index import index_layout
from rmqha.store.store_path_config_helper import read_deleted_topics
from rmqha.tools.local_cluster import layout, processes
from rmqha.tools.local_cluster.layout import ClusterError
from rmqha.tools.messages import produce
from rmqha.tools.messages.produce import as_object
from rmqha.tools.view.questions import message_json
from tests.support.sources import nodes
from tests.support.tiers import of_sources

# JSON from outside is read by one function, which raises only its own error for any input.

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

# Each use of a JSON or YAML reader other than `parse_json`: how many there are, and why. Only remove entries.
OTHER_READERS = {
    "rmqha/acl/acl_files.py": (1, "YAML, with a loader and an error of its own"),
    "rmqha/common/texts.py": (1, "parse_json itself"),
    "rmqha/remoting/protocol/fastjson.py": (1, "the wire's dialect, with FastjsonError"),
    "rmqha/remoting/protocol/remoting_command.py": (2, "headers, with RemotingCommandError"),
    "rmqha/native/build_backend.py": (1, "the project's own file, without the package"),
    "rmqha/tools/terminal.py": (1, "text that the line before has made"),
    "rmqha/tools/command/sub_command.py": (1, "text that the line before has made"),
}
_READERS = {"json": {"load", "loads", "JSONDecoder"}, "orjson": {"loads"},
            "yaml": {"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load"},
            "tomllib": {"load", "loads"}, "simplejson": {"load", "loads"}, "ujson": {"load", "loads"}}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_json_raises_one_kind_of_error(name):
    for text in (HOSTILE[name], HOSTILE[name].encode()):
        with pytest.raises(JsonTextError, match=r"^the file x is not valid JSON: .{3,150}$") as caught:
            parse_json(text, "the file x")
        assert caught.value.what == "the file x" and str(caught.value).endswith(caught.value.reason)


@pytest.mark.parametrize("text, reason", [
    (DEEP, "brackets are nested too deeply"), ("[NaN]", "NaN is not a value of JSON"),
    ("[-Infinity]", "-Infinity is not a value of JSON"), ("[1e400]", "1e400 is beyond the range of numbers"),
    ("1" * 4301, "a number of 4301 digits"), ("-" + "1" * 21, "a number of 21 digits"),
    (b"[1,\xff]", "not UTF-8 at byte 3"), ("[1,}", "line 1 column 4"), (b"\xef\xbb\xbf[]", "BOM")])
def test_error_names_the_reason(text, reason):
    with pytest.raises(JsonTextError) as caught:
        parse_json(text, "x")
    assert reason in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20)


@given(values)
@example([(1 << 64) - 1, -(1 << 63), 1e308])
def test_json_written_by_programs_is_read_back(value):
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
    """Yield calls (and names passed on) that read JSON or YAML, also under another name."""
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


@of_sources
def test_json_from_outside_is_read_by_one_function():
    found = {path: sorted(_readers_in(tree)) for path, tree in nodes().items()}
    found = {path: places for path, places in found.items() if places}
    assert {path: len(places) for path, places in found.items()} \
        == {path: count for path, (count, _) in OTHER_READERS.items()}, found


@pytest.mark.parametrize("source", ["import json\njson.loads(x)", "import json as j\nj.load(x)",
                                    "from json import loads as l\nmap(l, x)", "import yaml\nyaml.safe_load(x)"])
def test_search_finds_readers(source):
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
    with pytest.raises(ClusterError, match="was not written by `rmqha up`, or is damaged"):
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
def test_every_reader_survives_any_content(name, tmp_path, monkeypatch):
    """Each raises its own error, or returns its answer for unusable content."""
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


# Caches of texts chosen by senders keep only short ones, so that no cache holds an untrusted peer's megabytes.

LONG = "x" * 30_000


@pytest.mark.parametrize("cache, use", [
    (java._cached_hash_code, java.string_hash_code),
    (java._cached_hash_map_order, lambda text: java.hash_map_order([text, "TAGS"])),
    (message_decoder._kept_order, lambda text: message_decoder.property_order((text, "TAGS"))),
    (index_layout._cached_hash, index_layout.index_key_hash_method),
    (selector_parser._kept, lambda text: selector_parser.parse(f"{text} > 3")),
    (send_codec._kept_order,
     lambda text: send_codec._stored_properties(f"{text}\x01v\x02".encode(), b"CLUSTER\x01c")),
], ids=lambda one: getattr(one, "__name__", ""))
def test_long_texts_are_processed_but_not_cached(cache, use):
    cache.cache_clear()
    expected = use("y" * 40)
    kept = cache.cache_info().currsize
    assert kept > 0
    assert type(use(LONG)) is type(expected)
    held = cache.cache_info().currsize
    # The short pieces of a key.
    assert held - kept <= 3
    assert use("y" * 40) == expected or cache is selector_parser._kept


# Compressors: round trips, damage, and bodies that grow too much.

LIBRARIES = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstandard"}
INSTALLED = [kind for kind in CompressionType
             if kind not in LIBRARIES or importlib.util.find_spec(LIBRARIES[kind]) is not None]


@pytest.fixture(params=INSTALLED, ids=lambda kind: kind.name)
def compressor(request):
    return compression.get_compressor(request.param)


@pytest.mark.parametrize("plain", [b"", b"x", b"word " * 1000, bytes(range(256)) * 5])
def test_bodies_survive_a_round_trip(compressor, plain):
    assert compressor.decompress(compressor.compress(plain, 5)) == plain


def test_truncated_bodies_are_errors(compressor):
    packed = compressor.compress(bytes(range(256)) * 20, 5)
    for length in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError):
            compressor.decompress(packed[:length])


def test_bodies_that_expand_beyond_the_limit_are_errors(compressor):
    packed = compressor.compress(bytes(100_000), 9)
    assert len(compressor.decompress(packed, 100_000)) == 100_000
    with pytest.raises(CompressionError):
        compressor.decompress(packed, 99_999)


def test_other_bytes_are_errors(compressor):
    with pytest.raises(CompressionError):
        compressor.decompress(b"no compressed body")


@given(st.binary(max_size=100))
def test_any_bytes_are_a_zlib_stream_or_an_error(data):
    try:
        compression.get_compressor(CompressionType.ZLIB).decompress(data, 1000)
    except CompressionError:
        assert True


@pytest.mark.parametrize(("flag", "kind"), [(0, "ZLIB"), (1, "ZLIB"), (0x300, "ZLIB"), (0x100, "LZ4"), (0x200, "ZSTD")])
def test_type_is_in_the_system_flag(flag, kind):
    assert sys_flags.get_compression_type(flag) is CompressionType[kind]


def test_types_have_names_and_flags():
    assert CompressionType.of(" zlib ") is CompressionType.ZLIB
    assert CompressionType.ZSTD.compression_flag == 0x200
    with pytest.raises(ValueError, match="gzip"):
        CompressionType.of("gzip")
    with pytest.raises(ValueError, match="4"):
        CompressionType.find_by_value(4)


# The bodies of one answer share bounded memory, and a body that is too large is an error in its row.

MIB = 1 << 20
TOPIC, KEY = "T", "key"
PACKED = sys_flags.COMPRESSED_FLAG


def record(offset, size, kind=CompressionType.ZLIB, damage=False):
    """Return a record whose body of `size` zeros is compressed."""
    message = MessageExt(TOPIC)
    message.body = compression.get_compressor(kind).compress(bytes(size), 9)
    if damage:
        message.body = b"\xff" + message.body[1:]
    message.sys_flag = PACKED | kind.compression_flag
    message.queue_offset, message.commit_log_offset = offset, offset * 1000
    message.born_host = message.store_host = ("127.0.0.1", 1)
    message.properties = {"KEYS": KEY, "UNIQ_KEY": f"{offset:032X}"}
    return message_decoder.encode(message)


def peak(work):
    """Return the result of `work` and its peak memory."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", INSTALLED, ids=lambda kind: kind.name)
def test_all_bodies_share_the_budget_and_one_that_is_too_large_leaves_memory_for_the_others(kind):
    budget, flag = BodyBudget(1000, 500), PACKED | kind.compression_flag
    pack = compression.get_compressor(kind).compress
    assert budget.plain(pack(bytes(300), 5), flag) == bytes(300) and budget.left == 700
    with pytest.raises(TooLargeError, match="more than 500 bytes"):
        budget.plain(pack(bytes(100_000), 5), flag)
    assert budget.left == 200, "the work of a failed decompression counts"
    assert budget.plain(pack(bytes(150), 5), flag) == bytes(150)
    with pytest.raises(TooLargeError, match="one answer"):
        budget.plain(pack(bytes(51), 5), flag)
    with pytest.raises(TooLargeError, match="one answer"):
        budget.plain(pack(b"x", 5), flag)
    assert budget.plain(b"as it is" * 1000, 0) == b"as it is" * 1000, "an uncompressed body needs no budget"


@pytest.mark.parametrize("kind", INSTALLED, ids=lambda kind: kind.name)
def test_damaged_body_is_not_reported_as_too_large(kind):
    packed = compression.get_compressor(kind).compress(bytes(range(256)) * 20, 5)
    with pytest.raises(CompressionError) as caught:
        BodyBudget().plain(packed[:-1], PACKED | kind.compression_flag)
    assert not isinstance(caught.value, TooLargeError)


def test_missing_body_is_empty_bytes_with_a_reason():
    body = MissingBody("too large")
    assert body == b"" and isinstance(body, bytes) and body.reason == "too large" and "too large" in repr(body)
    assert pickle.loads(pickle.dumps(body)).reason == "too large"


def test_decodes_has_one_limit_for_all_messages(monkeypatch):
    monkeypatch.setattr(message_decoder, "_alone", lambda: BodyBudget(4 * MIB, 4 * MIB))
    answer = b"".join(record(number, MIB) for number in range(32))

    def decode():
        with pytest.raises(BodyTooLargeError, match="one answer"):
            message_decoder.decodes(answer)
    assert peak(decode)[1] < 8 * MIB


def test_keep_bad_makes_one_row_an_error_and_returns_the_rest():
    answer = record(0, 100) + record(1, 10 * MIB) + record(2, 200, damage=True) + record(3, 300)
    found = message_decoder.decodes(answer, budget=BodyBudget(8 * MIB, 2 * MIB), keep_bad=True)
    assert [len(message.body) for message in found] == [100, 0, 0, 300]
    assert [isinstance(message.body, MissingBody) for message in found] == [False, True, True, False]
    assert "more than 2097152 bytes" in found[1].body.reason and "zlib" in found[2].body.reason
    assert [message.queue_offset for message in found] == [0, 1, 2, 3] and found[1].keys == KEY
    with pytest.raises(BodyDecodeError):
        message_decoder.decodes(record(2, 200, damage=True))


# Pulls


def pulled(wrapper, answer, begin, end, topic=TOPIC):
    result = PullResultExt(PullStatus.FOUND, end, 0, end, message_binary=answer)
    return wrapper.process_pull_result(MessageQueue(topic, "b", 0), result, SubscriptionData(topic, "*"))


@pytest.fixture
def wrapper(monkeypatch):
    monkeypatch.setattr("rmqha.client.impl.consumer.pulling.BodyBudget",
                        lambda most_each: BodyBudget(3 * MIB, 3 * MIB))
    monkeypatch.setattr(message_decoder, "_alone", lambda: BodyBudget(3 * MIB, 3 * MIB))
    return PullAPIWrapper(None, None, "g", False)


def test_pull_continues_at_the_first_message_beyond_the_budget(wrapper):
    records = [record(number, MIB) for number in range(10)]
    at, seen = 0, []

    def pull_all():
        nonlocal at
        while at < 10:
            result = pulled(wrapper, b"".join(records[at:]), at, 10)
            assert 0 < len(result.msg_found_list) <= 3
            seen.extend(message.queue_offset for message in result.msg_found_list)
            at = result.next_begin_offset
            assert at == seen[-1] + 1
    assert peak(pull_all)[1] < 9 * MIB
    assert seen == list(range(10))


def test_message_too_large_on_its_own_is_an_error_or_with_keep_bad_bodies_a_row(wrapper):
    answer = record(7, 10 * MIB) + record(8, 10) + record(9, 10, damage=True)
    with pytest.raises(BodyTooLargeError):
        pulled(wrapper, answer, 7, 10)
    wrapper.keep_bad_bodies = True
    result = pulled(wrapper, answer, 7, 10)
    assert [message.queue_offset for message in result.msg_found_list] == [7] and result.next_begin_offset == 8
    row = as_object(result.msg_found_list[0])
    assert "bytes" in row["bodyError"] and "body" not in row and "bodyBase64" not in row
    rest = pulled(wrapper, answer[int.from_bytes(answer[:4], "big"):], 8, 10)
    assert [bytes(message.body) for message in rest.msg_found_list] == [bytes(10), b""]
    assert isinstance(rest.msg_found_list[1].body, MissingBody) and rest.next_begin_offset == 10


def test_pull_of_a_light_queue_never_continues_at_offsets_of_the_original_queue(wrapper):
    answer = b"".join(record(number, MIB) for number in range(5))
    with pytest.raises(BodyTooLargeError):
        pulled(wrapper, answer, 100, 105, "%LMQ%light")
    wrapper.keep_bad_bodies = True
    result = pulled(wrapper, answer, 100, 105, "%LMQ%light")
    assert len(result.msg_found_list) == 5 and result.next_begin_offset == 105


# Queries by key


class Api:
    """Answers each query with the same records."""

    def __init__(self, body):
        self.body = body

    def query_message(self, _addr, _header, _timeout, _is_uniq_key):
        response = RemotingCommand.create_response_command(0, None)
        response.ext_fields = {"indexLastUpdateTimestamp": "1", "indexLastUpdatePhyoffset": "1"}
        response.body = self.body
        return response


class Routes:
    """Two brokers that know the topic."""

    def get_an_exist_topic_route_data(self, _topic):
        class Data:
            def select_broker_addr(self):
                return "127.0.0.1:1"

        class Route:
            brokerDatas = [Data(), Data()]
        return Route()


def test_query_by_key_has_one_limit_for_all_brokers(monkeypatch):
    monkeypatch.setattr("rmqha.client.impl.mq_admin_impl.BodyBudget", lambda: BodyBudget(8 * MIB, 2 * MIB))
    admin = MQAdminImpl(Api(b"".join(record(number, MIB) for number in range(32))), Routes())
    found, most = peak(lambda: admin.query_message(TOPIC, KEY, 64, 0, 1 << 62).message_list)
    assert len(found) == 64 and most < 14 * MIB
    assert sum(len(message.body) for message in found) == 8 * MIB
    rows = [message_json(message, 256)["body"] for message in found]
    assert [bool(row["error"]) for row in rows] == [False] * 8 + [True] * 56
    assert "request it alone" in rows[-1]["error"] and rows[-1]["text"] is None


def test_default_budget_allows_the_largest_single_message():
    assert BodyBudget().most == compression.MOST_IN_ALL == compression.MAX_DECOMPRESSED_SIZE
