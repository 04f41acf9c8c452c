"""Whatever stands in the file of an export: an error with its line, within bounded memory."""
import gzip
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.tools.messages import export_file
from rmqha.tools.messages.export_file import ExportReader
from rmqha.tools.terminal import CannotAnswerError, WorkFailedError

HEADER = {"rmqhaExport": 1, "topics": {"T": {"b": 2}}}
LINE = {"topic": "T", "broker": "b", "queue": 1, "body": "x", "flag": 0, "keys": None, "tags": "a",
        "properties": {"p": "1"}, "system": {"UNIQ_KEY": "U"}}
END = {"end": True, "messages": 1}
ODD = [None, True, -1, 0, 1 << 31, 1 << 70, 1e30, float("inf"), 0.5, "", "x", [], [1], {}, {"a": 1}, {"a": "\x01"},
       "\x02"]
_JSON = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
                     lambda inner: st.one_of(st.lists(inner, max_size=3),
                                             st.dictionaries(st.text(max_size=5), inner, max_size=3)), max_leaves=6)


def written(path, *lines):
    """A file of these lines; packed when its name says so."""
    data = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def messages(path):
    """All messages of a file."""
    with ExportReader(path) as reader:
        return list(reader.messages())


def test_the_file_that_the_others_are_made_of_is_good(tmp_path):
    found = messages(written(tmp_path / "e.gz", HEADER, LINE, END))
    assert [(each.queue, each.message.body, each.message.tags) for each in found] == [(("b", 1), b"x", "a")]


@pytest.mark.parametrize("topics", [
    5, [], "T", None, {"T": None}, {"T": {}}, {"T": {"b": 0}}, {"T": {"b": -1}}, {"T": {"b": 1e30}}, {"T": {"b": True}},
    {"T": {"b": 10 ** 9}}, {"T": {"b": "2"}}, {"../T": {"b": 1}}, {"": {"b": 1}}, {"n" * 200: {"b": 1}},
    {f"T{number}": {"b": 65_536} for number in range(20)}])
def test_odd_topics_of_the_first_line_are_refused(tmp_path, topics):
    path = written(tmp_path / "e", {**HEADER, "topics": topics}, END)
    with pytest.raises(CannotAnswerError, match=":1: "):
        messages(path)


@pytest.mark.parametrize("name", sorted(LINE))
def test_odd_fields_are_refused_or_harmless(tmp_path, name):
    for value in ODD:
        path = written(tmp_path / "e", HEADER, {**LINE, name: value}, END)
        try:
            (found,) = messages(path)
        except WorkFailedError as error:
            assert error.message.startswith(f"{path}:2: "), value
            continue
        message = found.message
        assert isinstance(message.body, bytes) and -(1 << 31) <= message.flag < 1 << 31 and type(found.queue[1]) is int
        assert all("\x01" not in property_name and "\x02" not in property_name + text
                   for property_name, text in message.properties.items())


@settings(max_examples=60)
@given(_JSON, st.sampled_from(["header", "line", "topics"]))
def test_any_json_is_an_error_with_its_line(tmp_path_factory, value, place):
    path = tmp_path_factory.mktemp("e") / "e"
    lines = {"header": [value], "line": [HEADER, value, END], "topics": [{**HEADER, "topics": value}, END]}[place]
    try:
        messages(written(path, *lines))
    except (CannotAnswerError, WorkFailedError) as error:
        assert error.message.startswith(f"{path}:")
    else:
        assert place == "topics" and value == {}


@pytest.mark.parametrize("line", ["[" * 200_000, "{" * 9, "9" * 9000, '"\ud800', "\0"])
def test_odd_json_is_an_error_with_its_line(tmp_path, line):
    path = tmp_path / "e"
    path.write_bytes(json.dumps(HEADER).encode() + b"\n" + line.encode("utf-8", "replace") + b"\n")
    with pytest.raises(WorkFailedError, match=":2: "):
        messages(str(path))


@pytest.mark.parametrize("at", range(2, 60, 3))
def test_damaged_packed_files_are_told(tmp_path, at):
    path = tmp_path / "e.gz"
    data = bytearray(gzip.compress(("\n".join(map(json.dumps, (HEADER, LINE, END))) + "\n").encode(), mtime=0))
    data[at] ^= 0xFF
    path.write_bytes(data)
    try:
        messages(str(path))
    except (CannotAnswerError, WorkFailedError) as error:
        assert error.message.startswith(str(path))


@pytest.mark.parametrize("where", ["header", "line"])
def test_a_line_that_unpacks_to_very_much_is_refused_in_bounded_memory(tmp_path, monkeypatch, where):
    monkeypatch.setattr(export_file, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(export_file, "_LONGEST_HEADER", 1 << 20)
    path = tmp_path / "e.gz"
    with gzip.open(path, "wb") as file:
        file.write(json.dumps(HEADER).encode() + b"\n" if where == "line" else b"")
        for _ in range(64):
            file.write(b" " * (1 << 20))
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        number = 1 if where == "header" else 2
        with pytest.raises((CannotAnswerError, WorkFailedError), match=f":{number}: .*longer than"):
            messages(str(path))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
