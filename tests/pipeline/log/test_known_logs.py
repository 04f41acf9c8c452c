"""A stream knows a log by its bytes: remounted, swapped, copied, replaced, cut off, vanished."""
import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_layout import BODY_CRC_POSITION
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log import log_ends
from rmqha.pipeline.log.log_scan import find_logs
from tests.pipeline.log.driven_stream import DrivenStream
from tests.store import support


def put(root, first: int, count: int, mark: str = "") -> list[str]:
    """Add messages to a store; their keys."""
    keys = [f"{mark}{number}" for number in range(first, first + count)]
    with support.open_store(root) as store:
        for key in keys:
            support.put(store, support.message("T", 0, b"x" * 100, KEYS=key))
    return keys


def files(root) -> list:
    return sorted((root / "commitlog").iterdir())


@pytest.fixture
def mounts(tmp_path):
    """A folder under which stores are mounted, and a store in it with 200 messages in four files."""
    put(tmp_path / "mnt" / "a", 0, 200, "a")
    return tmp_path / "mnt"


def stream_of(mounts, **options: str) -> DrivenStream:
    return DrivenStream(mounts / "*", **{"startingOffsets": "earliest", **options})


def test_a_remounted_store_goes_on_where_it_was(mounts):
    stream = stream_of(mounts)
    assert len(stream.rest()) == 200
    (mounts / "a").rename(mounts / "z")
    new = put(mounts / "z", 200, 30, "a")
    assert stream.rest() == new
    stream.start()
    assert stream.rest() == []
    (mounts / "z").rename(mounts / "y")
    stream.start()
    assert stream.rest() == []
    assert [each["path"] for each in json.loads(stream.offset)["logs"].values()] == [str(mounts / "y" / "commitlog")]


def test_swapped_mounts_go_on_each_where_it_was(mounts):
    put(mounts / "b", 0, 20, "b")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 220
    (mounts / "a").rename(mounts / "c")
    (mounts / "b").rename(mounts / "a")
    (mounts / "c").rename(mounts / "b")
    new = put(mounts / "a", 20, 3, "b") + put(mounts / "b", 200, 3, "a")
    assert sorted(stream.rest()) == sorted(new)


def test_a_master_and_its_slave_with_the_same_bytes_are_two_logs(mounts):
    shutil.copytree(mounts / "a", mounts / "slave")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 400
    new = put(mounts / "a", 200, 3, "a")
    assert stream.rest() == new
    (mounts / "slave").rename(mounts / "other")
    shutil.rmtree(mounts / "a")
    shutil.copytree(mounts / "other", mounts / "a")  # as if a slave had lost what only its master had
    stream.start()
    with pytest.raises(PipelineError, match="cut off and written anew|is not there any more|is another log"):
        put(mounts / "a", 200, 5, "other")
        stream.rest()


@pytest.mark.parametrize("starting, expected", [("earliest", 25), ("latest", 5)])
def test_an_unknown_store_begins_as_starting_offsets_says(mounts, starting, expected):
    stream = stream_of(mounts, startingOffsets=starting)
    stream.rest()
    put(mounts / "b", 0, 20, "b")
    before = stream.rest()
    put(mounts / "b", 20, 5, "b")
    assert len(before + stream.rest()) == expected


def test_a_store_without_messages_is_known_from_then_on(mounts):
    with support.open_store(mounts / "b"):
        pass
    stream = stream_of(mounts, startingOffsets="latest")
    assert stream.rest() == []
    keys = put(mounts / "b", 0, 20, "b")
    assert stream.rest() == keys
    (mounts / "b").rename(mounts / "c")
    keys = put(mounts / "c", 20, 2, "b")
    assert stream.rest() == keys


def test_a_vanished_store_is_an_error_or_goes_on_when_it_is_back(mounts, tmp_path):
    put(mounts / "b", 0, 20, "b")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 220
    (mounts / "b").rename(tmp_path / "unmounted")
    for _ in range(2):
        with pytest.raises(PipelineError, match="b/commitlog: the log of which the stream has taken all up to offset"):
            stream.batch()
        stream.start()
    stream.options["failOnDataLoss"] = "false"
    stream.start()
    new = put(mounts / "a", 200, 3, "a")
    assert stream.rest() == new
    (mounts / "b").mkdir()  # where it is mounted, empty
    assert stream.rest() == []
    (mounts / "b").rmdir()
    (tmp_path / "unmounted").rename(mounts / "b")
    new = put(mounts / "b", 20, 3, "b")
    assert stream.rest() == new


def test_another_log_in_its_place_is_an_error_or_begins_anew(mounts):
    stream = stream_of(mounts)
    stream.rest()
    shutil.rmtree(mounts / "a")
    keys = put(mounts / "a", 0, 250, "new")  # longer than the other was
    with pytest.raises(PipelineError, match="what lies there now is another log"):
        stream.batch()
    stream.options["failOnDataLoss"] = "false"
    stream.start()
    assert stream.rest() == keys
    assert stream.rest() == [] and len(json.loads(stream.offset)["logs"]) == 1


def test_a_log_that_was_cut_off_and_written_anew_is_an_error(mounts):
    put(mounts / "a", 200, 10, "a")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 210
    path = files(mounts / "a")[-1]
    end = json.loads(stream.offset)["logs"].popitem()[1]["offset"] - int(path.name)
    data = bytearray(path.read_bytes())
    assert end > 600
    data[end - 100:] = bytes(len(data) - end + 100)  # as if power had failed, and the last was never flushed
    path.write_bytes(data)
    keys = put(mounts / "a", 300, 20, "a")
    for again in (False, True):
        with pytest.raises(PipelineError, match="was cut off and written anew before offset"):
            stream.batch()
        if not again:
            stream.start()
    stream.options["failOnDataLoss"] = "false"
    stream.start()
    found = stream.rest()
    assert found == keys[-len(found):] and len(found) >= 18


def test_the_first_batch_is_the_same_when_it_is_repeated(mounts):
    stream = stream_of(mounts, startingOffsets="latest")
    begin = json.dumps(stream.reader.initialOffset())
    keys = put(mounts / "a", 200, 10, "a")
    end = json.dumps(stream.reader.latestOffset(json.loads(begin), stream.reader.getDefaultReadLimit()))
    stream.start()  # Spark asks again for the first offset, which is another one now
    again = json.dumps(stream.reader.initialOffset())
    assert again != begin
    assert [key for key, *_ in stream.rows(again, end)] == keys


def test_offsets_of_the_first_version_go_on(mounts):
    stream = stream_of(mounts)
    keys = stream.rest()
    place, size = {}, 0
    for each in json.loads(stream.offset)["logs"].values():
        place[each["path"]] = size = each["offset"]
    stream.offset = json.dumps({"version": 1, "logs": place})
    new = put(mounts / "a", 200, 7, "a")
    assert stream.rest() == new
    assert json.loads(stream.offset)["version"] == 2
    assert len(keys) == 200 and size


def test_what_is_kept_of_a_log_is_never_more_than_was_taken(mounts):
    log = find_logs([str(mounts / "a")])[0]
    for offset in range(0, log.files_end, 997):
        head, tail = log_ends.head_of(log, offset), log_ends.tail_of(log, offset)
        assert head is not None and (offset == 0 or head.offset + head.size <= offset)
        assert tail is None or tail.offset + tail.size == offset
        assert all(anchor is None or log_ends.has(log, anchor) for anchor in (head, tail))
    path = files(mounts / "a")[0]
    head = log_ends.head_of(log, 500)
    data = bytearray(path.read_bytes())
    data[BODY_CRC_POSITION] ^= 1
    path.write_bytes(data)
    assert log_ends.has(log, head) is False
    path.unlink()
    assert log_ends.has(find_logs([str(mounts / "a")])[0], log_ends.Anchor(0, 88, "0")) is None


_VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                       lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
                           st.sampled_from(["version", "logs", "path", "begin", "offset", "head", "tail", "x"]), inner,
                           max_size=6), max_leaves=20)


@settings(max_examples=50, deadline=None)
@given(_VALUES)
def test_a_damaged_offset_is_an_error_and_nothing_else(value):
    for offset in (value, {"version": 2, "logs": value}, {"version": 2, "logs": {"x": value}},
                   {"version": 1, "logs": value}):
        try:
            logs = log_ends.decode(offset)
        except PipelineError:
            continue
        again = log_ends.decode(json.loads(json.dumps(log_ends.encode(logs))))
        assert again == logs
