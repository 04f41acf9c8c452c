"""Streams over logs that grow, and that are remounted, swapped, replaced, or vanish."""
import json
import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_layout import BODY_CRC_POSITION
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log import log_ends
from rmqha.pipeline.log.log_scan import find_logs
from tests.pipeline.support import DrivenStream, run_to_end, run_until
from tests.store import support
from tests.support.wait import wait_until

# The format rocketmq-commitlog as a stream: each record once, across restarts, rolling files and deletion.
# RMQHA_STREAM_RESTARTS sets how often the query fails and is started again; `python -m tests.faults.streams` kills it.

FORMAT = "rocketmq-commitlog"
RESTARTS = int(os.environ.get("RMQHA_STREAM_RESTARTS", "4"))


class Sink:
    """Runs a query and keeps the contents of each batch; a repeated batch must have the same contents."""

    def __init__(self, spark, root: Path, checkpoint: Path, **options) -> None:
        self.spark, self.root, self.checkpoint, self.options = spark, root, checkpoint, options
        self._taken: dict[int, list[str]] = {}
        self._now: list[int] = []  # batches of this start of the query
        self.kill: Kill | None = None
        self.then = lambda last_offset: None  # called within each batch

    def run(self, kill: "Kill | None" = None) -> None:
        """Start the query once with Trigger.AvailableNow."""
        self._now, self.kill = [], kill
        run_to_end(self._writer().trigger(availableNow=True).start)

    def run_until(self, done) -> None:
        """Start the query without an end; stop it when `done`."""
        self._now, self.kill = [], None
        run_until(self._writer().start, done)

    def _writer(self):
        stream = self.spark.readStream.format(FORMAT).options(**self.options).load(str(self.root))
        return stream.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))

    def _take(self, frame, number: int) -> None:
        self._now.append(number)
        self._die(before=True)
        rows = frame.select("keys", "physicalOffset").orderBy("physicalOffset").collect()
        keys = [row.keys for row in rows]
        assert self._taken.setdefault(number, keys) == keys
        self._die(before=False)
        if rows:
            self.then(rows[-1].physicalOffset)

    def _die(self, before: bool) -> None:
        if self.kill is not None and self.kill == Kill(len(self._now), before):
            raise RuntimeError("killed here")

    @property
    def batches(self) -> list[list[str]]:
        return [keys for _, keys in sorted(self._taken.items())]

    @property
    def keys(self) -> list[str]:
        return [key for batch in self.batches for key in batch]


class Kill(NamedTuple):
    """The moment when a query fails: in the `batch`th batch after its start, before or after the sink has stored it."""

    batch: int
    before: bool


def put(store, first: int, count: int) -> None:
    for number in range(first, first + count):
        support.put(store, support.message(f"T{number % 3}", 0, b"x" * (number * 37 % 500), KEYS=str(number)))


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_restarts_lose_nothing_and_repeat_nothing(spark, tmp_path):
    chance = random.Random(7)
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint", startingOffsets="earliest",
                maxOffsetsPerTrigger="40")
    written = 0
    with support.open_store(tmp_path / "store") as store:
        for _ in range(RESTARTS):
            count = chance.randrange(20, 120)  # files of 16 KiB: they roll at each start
            put(store, written, count)
            written += count
            with pytest.raises(Exception, match="killed here"):
                sink.run(Kill(chance.randint(1, -(-count // 40)), chance.random() < 0.5))
        sink.run()
    assert sink.keys == numbers(0, written)
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 3
    assert max(map(len, sink.batches)) == 40


def test_files_roll_and_are_deleted_while_the_stream_runs(spark, tmp_path):
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint", startingOffsets="earliest",
                maxOffsetsPerTrigger="150")
    deleted: list[Path] = []
    with support.open_store(tmp_path / "store") as store:
        def write_and_delete(last_offset: int) -> None:
            files = sorted((tmp_path / "store" / "commitlog").iterdir())
            for path in files:
                if int(path.name) + support.FILE_SIZE <= last_offset:
                    path.unlink()
                    deleted.append(path)
            if len(sink.keys) < 600:
                put(store, len(sink.keys), 100)
        put(store, 0, 100)
        sink.then = write_and_delete
        sink.run_until(lambda: len(sink.keys) >= 600)
    assert sink.keys == numbers(0, 600)
    assert len(deleted) > 3 and len(sink.batches) >= 6


def test_available_now_ends_where_the_log_ended_when_it_began(spark, tmp_path):
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint", startingOffsets="earliest",
                maxOffsetsPerTrigger="30")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 100)
        sink.then = lambda last_offset: put(store, 100 + 10 * len(sink.batches) - 10, 10)
        sink.run()
        assert sink.keys == numbers(0, 100) and len(sink.batches) == 4
        sink.then = lambda last_offset: None
        sink.run()
    assert sink.keys == numbers(0, 140)


def test_new_query_begins_at_the_end(spark, tmp_path):
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 30)
        sink.run()
        put(store, 30, 10)
        sink.run()
    assert sink.keys == numbers(30, 40)


def test_deleted_files_fail_the_query_unless_data_loss_is_allowed(spark, tmp_path):
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint", startingOffsets="earliest")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 40)
        sink.run()
        put(store, 40, 200)
    first = sorted((tmp_path / "store" / "commitlog").iterdir())
    for path in first[:3]:
        path.unlink()
    with pytest.raises(Exception, match=f"begins at offset {int(first[3].name)}, the stream has read up to"):
        sink.run()
    assert sink.keys == numbers(0, 40)
    sink.options["failOnDataLoss"] = "false"
    sink.run()
    left = sink.keys[40:]
    assert left == numbers(240 - len(left), 240) and 0 < len(left) < 200


def test_another_log_in_its_place_is_noticed(spark, tmp_path):
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint", startingOffsets="earliest")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 100)
        sink.run()
    shutil.rmtree(tmp_path / "store")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 5)
    with pytest.raises(Exception, match="a different log is there now, or this one was truncated"):
        sink.run()


def test_remounted_store_continues_and_progress_reports_the_lag(spark, tmp_path):
    from rmqha.pipeline.streams import lag_of
    sink = Sink(spark, tmp_path / "mnt" / "*", tmp_path / "checkpoint", startingOffsets="earliest",
                maxOffsetsPerTrigger="60", maxBytesPerTrigger="1g")
    with support.open_store(tmp_path / "mnt" / "a") as store:
        put(store, 0, 100)
    sink.run()
    (tmp_path / "mnt" / "a").rename(tmp_path / "mnt" / "b")
    with support.open_store(tmp_path / "mnt" / "b") as store:
        put(store, 100, 80)
    lags = []
    run_to_end(lambda: lags.append(sink._writer().trigger(availableNow=True).start()) or lags[-1])
    assert sink.keys == numbers(0, 180)
    (first, _) = [lag for progress in lags[-1].recentProgress for lag in lag_of(json.loads(progress.json))]
    assert (first.average, first.largest, first.smallest, first.is_estimated) == (20.0, 20, 20, False)
    assert 20 * 300 < first.size < 20 * 900


def test_second_query_on_the_same_checkpoint_ends_the_first_or_is_refused(spark, tmp_path):
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint", startingOffsets="earliest",
                maxOffsetsPerTrigger="20")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 100)
        first = sink._writer().start()
        wait_until(lambda: len(sink.keys) >= 20 or not first.isActive, 300_000, "a batch")
        spark.conf.set("spark.sql.streaming.stopActiveRunOnRestart", "false")
        try:
            with pytest.raises(Exception, match="(?i)already active|concurrent"):
                sink._writer().start()
        finally:
            spark.conf.unset("spark.sql.streaming.stopActiveRunOnRestart")
        sink.run()  # Spark stops the first one
        assert not first.isActive
    assert sink.keys == numbers(0, 100)


def test_record_counts_when_it_is_complete(tmp_path):
    from rmqha.pipeline.log.log_ends import log_end
    from rmqha.pipeline.log.log_scan import find_logs
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 10)
        results = support.put(store, support.message(body=b"last" * 20, KEYS="k" * 40))
    path = sorted((tmp_path / "store" / "commitlog").iterdir())[0]
    whole, begin, size = path.read_bytes(), results[0].wrote_offset, results[0].wrote_bytes
    for seen in range(size):
        path.write_bytes(whole[:begin + seen] + bytes(len(whole) - begin - seen))
        assert log_end(find_logs([str(tmp_path / "store")])[0]) == begin, seen
    path.write_bytes(whole)
    assert log_end(find_logs([str(tmp_path / "store")])[0]) == begin + size


# A stream identifies a log by its bytes: remounted, swapped, copied, replaced, truncated, vanished.


def put_known(root, first: int, count: int, mark: str = "") -> list[str]:
    """Add messages to a store; return their keys."""
    keys = [f"{mark}{number}" for number in range(first, first + count)]
    with support.open_store(root) as store:
        for key in keys:
            support.put(store, support.message("T", 0, b"x" * 100, KEYS=key))
    return keys


def files(root) -> list:
    return sorted((root / "commitlog").iterdir())


@pytest.fixture
def mounts(tmp_path):
    """Return a folder under which stores are mounted, and a store in it with 200 messages in four files."""
    put_known(tmp_path / "mnt" / "a", 0, 200, "a")
    return tmp_path / "mnt"


def stream_of(mounts, **options: str) -> DrivenStream:
    return DrivenStream(mounts / "*", **{"startingOffsets": "earliest", **options})


def test_remounted_store_continues_from_its_place(mounts):
    stream = stream_of(mounts)
    assert len(stream.rest()) == 200
    (mounts / "a").rename(mounts / "z")
    new = put_known(mounts / "z", 200, 30, "a")
    assert stream.rest() == new
    stream.start()
    assert stream.rest() == []
    (mounts / "z").rename(mounts / "y")
    stream.start()
    assert stream.rest() == []
    assert [each["path"] for each in json.loads(stream.offset)["logs"].values()] == [str(mounts / "y" / "commitlog")]


def test_swapped_mounts_continue_each_from_its_place(mounts):
    put_known(mounts / "b", 0, 20, "b")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 220
    (mounts / "a").rename(mounts / "c")
    (mounts / "b").rename(mounts / "a")
    (mounts / "c").rename(mounts / "b")
    new = put_known(mounts / "a", 20, 3, "b") + put_known(mounts / "b", 200, 3, "a")
    assert sorted(stream.rest()) == sorted(new)


def test_master_and_slave_with_the_same_bytes_are_two_logs(mounts):
    shutil.copytree(mounts / "a", mounts / "slave")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 400
    new = put_known(mounts / "a", 200, 3, "a")
    assert stream.rest() == new
    (mounts / "slave").rename(mounts / "other")
    shutil.rmtree(mounts / "a")
    # As if a slave had lost bytes that only its master had.
    shutil.copytree(mounts / "other", mounts / "a")
    stream.start()
    with pytest.raises(PipelineError, match="truncated and rewritten|no longer exists there|is another log"):
        put_known(mounts / "a", 200, 5, "other")
        stream.rest()


@pytest.mark.parametrize("starting, expected", [("earliest", 25), ("latest", 5)])
def test_unknown_store_begins_at_starting_offsets(mounts, starting, expected):
    stream = stream_of(mounts, startingOffsets=starting)
    stream.rest()
    put_known(mounts / "b", 0, 20, "b")
    before = stream.rest()
    put_known(mounts / "b", 20, 5, "b")
    assert len(before + stream.rest()) == expected


def test_store_without_messages_is_identified_from_then_on(mounts):
    with support.open_store(mounts / "b"):
        pass
    stream = stream_of(mounts, startingOffsets="latest")
    assert stream.rest() == []
    keys = put_known(mounts / "b", 0, 20, "b")
    assert stream.rest() == keys
    (mounts / "b").rename(mounts / "c")
    keys = put_known(mounts / "c", 20, 2, "b")
    assert stream.rest() == keys


def test_vanished_store_is_an_error_or_continues_after_its_return(mounts, tmp_path):
    put_known(mounts / "b", 0, 20, "b")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 220
    (mounts / "b").rename(tmp_path / "unmounted")
    for _ in range(2):
        with pytest.raises(PipelineError, match="b/commitlog: the log that the stream has read up to offset"):
            stream.batch()
        stream.start()
    stream.options["failOnDataLoss"] = "false"
    stream.start()
    new = put_known(mounts / "a", 200, 3, "a")
    assert stream.rest() == new
    (mounts / "b").mkdir()  # an empty mount point
    assert stream.rest() == []
    (mounts / "b").rmdir()
    (tmp_path / "unmounted").rename(mounts / "b")
    new = put_known(mounts / "b", 20, 3, "b")
    assert stream.rest() == new


def test_another_log_in_its_place_is_an_error_or_begins_from_scratch(mounts):
    stream = stream_of(mounts)
    stream.rest()
    shutil.rmtree(mounts / "a")
    keys = put_known(mounts / "a", 0, 250, "new")  # longer than the other was
    with pytest.raises(PipelineError, match="a different log is there now"):
        stream.batch()
    stream.options["failOnDataLoss"] = "false"
    stream.start()
    assert stream.rest() == keys
    assert stream.rest() == [] and len(json.loads(stream.offset)["logs"]) == 1


def test_log_that_was_truncated_and_rewritten_is_an_error(mounts):
    put_known(mounts / "a", 200, 10, "a")
    stream = stream_of(mounts)
    assert len(stream.rest()) == 210
    path = files(mounts / "a")[-1]
    end = json.loads(stream.offset)["logs"].popitem()[1]["offset"] - int(path.name)
    data = bytearray(path.read_bytes())
    assert end > 600
    # As if power had failed, and the last bytes were never flushed.
    data[end - 100:] = bytes(len(data) - end + 100)
    path.write_bytes(data)
    keys = put_known(mounts / "a", 300, 20, "a")
    for again in (False, True):
        with pytest.raises(PipelineError, match="was truncated and rewritten before offset"):
            stream.batch()
        if not again:
            stream.start()
    stream.options["failOnDataLoss"] = "false"
    stream.start()
    found = stream.rest()
    assert found == keys[-len(found):] and len(found) >= 18


def test_first_batch_is_the_same_when_it_is_repeated(mounts):
    stream = stream_of(mounts, startingOffsets="latest")
    begin = json.dumps(stream.reader.initialOffset())
    keys = put_known(mounts / "a", 200, 10, "a")
    end = json.dumps(stream.reader.latestOffset(json.loads(begin), stream.reader.getDefaultReadLimit()))
    # Spark requests the first offset again, which is a different one now.
    stream.start()
    again = json.dumps(stream.reader.initialOffset())
    assert again != begin
    assert [key for key, *_ in stream.rows(again, end)] == keys


def test_offsets_of_the_first_version_can_be_continued(mounts):
    stream = stream_of(mounts)
    keys = stream.rest()
    place, size = {}, 0
    for each in json.loads(stream.offset)["logs"].values():
        place[each["path"]] = size = each["offset"]
    stream.offset = json.dumps({"version": 1, "logs": place})
    new = put_known(mounts / "a", 200, 7, "a")
    assert stream.rest() == new
    assert json.loads(stream.offset)["version"] == 2
    assert len(keys) == 200 and size


def test_kept_anchors_never_lie_beyond_the_offset(mounts):
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
def test_damaged_offset_is_an_error_and_has_no_other_effect(value):
    for offset in (value, {"version": 2, "logs": value}, {"version": 2, "logs": {"x": value}},
                   {"version": 1, "logs": value}):
        try:
            logs = log_ends.decode(offset)
        except PipelineError:
            continue
        again = log_ends.decode(json.loads(json.dumps(log_ends.encode(logs))))
        assert again == logs
