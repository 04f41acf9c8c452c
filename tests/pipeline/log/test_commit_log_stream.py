"""The format rocketmq-commitlog as a stream: each record once, across restarts, rolling files and deletion.

RMQHA_STREAM_RESTARTS sets how often the query fails and is started again; `python -m tests.faults.streams` kills it.
"""
import json
import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pipeline.queries import run_to_end, run_until
from tests.store import support
from tests.support.wait import wait_until

FORMAT = "rocketmq-commitlog"
RESTARTS = int(os.environ.get("RMQHA_STREAM_RESTARTS", "4"))


class Sink:
    """Runs a query and keeps what each batch brought; a batch that comes again must bring the same."""

    def __init__(self, spark, root: Path, checkpoint: Path, **options) -> None:
        self.spark, self.root, self.checkpoint, self.options = spark, root, checkpoint, options
        self._taken: dict[int, list[str]] = {}
        self._now: list[int] = []  # batches of this start of the query
        self.kill: Kill | None = None
        self.then = lambda last_offset: None  # is called within each batch

    def run(self, kill: "Kill | None" = None) -> None:
        """One start of the query with Trigger.AvailableNow."""
        self._now, self.kill = [], kill
        run_to_end(self._writer().trigger(availableNow=True).start)

    def run_until(self, done) -> None:
        """A start without an end, stopped when `done`."""
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
    """Where a query dies: in the `batch`th batch after its start, before or after the sink took it."""

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


def test_a_new_query_begins_at_the_end(spark, tmp_path):
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
    with pytest.raises(Exception, match=f"begins at offset {int(first[3].name)}, the stream has come to"):
        sink.run()
    assert sink.keys == numbers(0, 40)
    sink.options["failOnDataLoss"] = "false"
    sink.run()
    left = sink.keys[40:]
    assert left == numbers(240 - len(left), 240) and 0 < len(left) < 200


def test_another_log_in_the_place_of_the_one_is_noticed(spark, tmp_path):
    sink = Sink(spark, tmp_path / "store", tmp_path / "checkpoint", startingOffsets="earliest")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 100)
        sink.run()
    shutil.rmtree(tmp_path / "store")
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 5)
    with pytest.raises(Exception, match="what lies there now is another log, or was cut off"):
        sink.run()


def test_a_remounted_store_goes_on_and_progress_tells_how_far_behind(spark, tmp_path):
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


def test_a_second_query_on_the_same_checkpoint_ends_the_first_or_is_refused(spark, tmp_path):
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


def test_a_record_counts_once_it_is_whole(tmp_path):
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
