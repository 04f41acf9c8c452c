"""The format rocketmq-commitlog as a stream: each record once, across restarts, rolling files and deletion.

RMQHA_STREAM_RESTARTS sets how often the query is started again.
"""
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.pipeline.queries import run_to_end
from tests.store import support

FORMAT = "rocketmq-commitlog"
RESTARTS = int(os.environ.get("RMQHA_STREAM_RESTARTS", "4"))


class Sink:
    """Runs a query until it has taken what is there, and keeps what each batch brought."""

    def __init__(self, spark, root: Path, checkpoint: Path, **options) -> None:
        self.spark, self.root, self.checkpoint, self.options = spark, root, checkpoint, options
        self.batches: list[list[str]] = []

    def run(self, fail_in_batch: int | None = None) -> None:
        """One start of the query with Trigger.AvailableNow; it dies within batch `fail_in_batch` of this start."""
        begun = len(self.batches)

        def take(frame, _number):
            if fail_in_batch is not None and len(self.batches) - begun == fail_in_batch:
                raise RuntimeError("killed here")
            self.batches.append([row.keys for row in frame.select("keys", "physicalOffset").orderBy("physicalOffset")
                                 .collect()])
        stream = self.spark.readStream.format(FORMAT).options(**self.options).load(str(self.root))
        run_to_end(stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
                   .trigger(availableNow=True).start)

    @property
    def keys(self) -> list[str]:
        return [key for batch in self.batches for key in batch]


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
        for start in range(RESTARTS):
            count = chance.randrange(20, 120)  # files of 16 KiB: they roll at each start
            put(store, written, count)
            written += count
            if start % 2:
                with pytest.raises(Exception, match="killed here"):
                    sink.run(fail_in_batch=0)
            sink.run()
            assert sink.keys == numbers(0, written)
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 3
    assert max(map(len, sink.batches)) == 40


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
    with pytest.raises(Exception, match="it is another log, or was cut off"):
        sink.run()


def test_a_record_counts_once_it_is_whole(tmp_path):
    from rmqha.pipeline.log_files import find_logs
    from rmqha.pipeline.log_scan import log_end
    with support.open_store(tmp_path / "store") as store:
        put(store, 0, 10)
        results = support.put(store, support.message(body=b"last" * 20, KEYS="k" * 40))
    path = sorted((tmp_path / "store" / "commitlog").iterdir())[0]
    whole, begin, size = path.read_bytes(), results[0].wrote_offset, results[0].wrote_bytes
    for seen in range(0, size):
        path.write_bytes(whole[:begin + seen] + bytes(len(whole) - begin - seen))
        assert log_end(find_logs([str(tmp_path / "store")])[0]) == begin, seen
    path.write_bytes(whole)
    assert log_end(find_logs([str(tmp_path / "store")])[0]) == begin + size
