"""Cost of planning at the size of many brokers: 1,000 stores of 100 files of 1 GiB, 107 TB, nearly all of it holes.

    python -m tests.bench.planning FOLDER [--stores 1000] [--files 100] [--spark] [--count] [--keep]

Each file of a store except the last one has its first record and then a blank up to its end. The last one is the same
file in all stores, half full of records of 1 KiB. So everything that is planned, listed and checked is real, but there
is little to read. --spark plans with a Spark session, too, and prints the memory of its JVM; --count also counts all
messages with it, which runs every task.
"""
import argparse
import json
import os
import pickle
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqha.common.message import message_layout as layout
from rmqha.store.index.index_layout import HEADER
from tests.bench.made_store import make_commit_log

GIB = 1 << 30
_BODY = 1024
_HOST = layout.host_to_bytes(("10.0.0.1", 10911))


def make_stores(folder: Path, stores: int, files: int, has_index: bool) -> None:
    """Create the stores, named s0, s1 and so on."""
    last = folder / "last"
    if not last.exists():
        made = make_commit_log(folder / "made", GIB // 2 // (_BODY + 260), _BODY, GIB)
        shutil.move(folder / "made" / f"{0:020d}", last)
        shutil.rmtree(folder / "made")
        _move_records(last, (files - 1) * GIB, made.size)
    for number in range(stores):
        if not (folder / f"s{number}").exists():
            _make_store(folder / f"s{number}", number, files, last, has_index)


def _move_records(path: Path, start: int, size: int) -> None:
    """Move the records of a file made for offset 0 to the file that begins at `start`."""
    with open(path, "r+b") as file:
        data = bytearray(file.read(size))
        position = 0
        while position < size:
            layout.LONG.pack_into(data, position + layout.PHYSICAL_OFFSET_POSITION, start + position)
            position += layout.BLANK.unpack_from(data, position)[0]
        file.seek(0)
        file.write(data)


def _make_store(root: Path, number: int, files: int, last: Path, has_index: bool) -> None:
    (root / "commitlog").mkdir(parents=True)
    now = int(time.time() * 1000)
    for each in range(files - 1):
        body = b"%d.%d" % (number, each)
        stored = now - (files - each) * 600_000
        record = layout.encode_record(layout.body_crc32(body), 0, 0, each, each * GIB, 0, stored, _HOST, stored, _HOST,
                                      0, 0, body, layout.encode_topic("T"), b"KEYS\1%d" % each)
        with open(root / "commitlog" / f"{each * GIB:020d}", "wb") as file:
            file.write(record + layout.encode_blank(GIB - len(record)))
            file.truncate(GIB)
    os.link(last, root / "commitlog" / f"{(files - 1) * GIB:020d}")
    if has_index:
        (root / "index").mkdir()
        with open(last, "rb") as file:
            end = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        (root / "index" / f"{now:017d}").write_bytes(HEADER.pack(now, now, 0, _last_record(last, end), 1, 2))


_LAST: dict[Path, int] = {}


def _last_record(path: Path, end: int) -> int:
    """Return where the last record of a file begins, as an offset of the log."""
    if path not in _LAST:
        data, position, last = path.read_bytes()[:end], 0, 0
        while position + 8 < len(data) and (size := layout.BLANK.unpack_from(data, position)[0]) > 0:
            last, position = position, position + size
        _LAST[path] = layout.LONG.unpack_from(data, last + layout.PHYSICAL_OFFSET_POSITION)[0]
    return _LAST[path]


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long the block took, and the peak memory of this process."""
    begin, cpu = time.perf_counter(), time.process_time()
    yield
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:60} {time.perf_counter() - begin:8.2f} s, {time.process_time() - cpu:8.2f} s of a core, "
          f"at most {most:6.0f} MiB", flush=True)


def in_a_process(work: Callable[..., None], *args: Any) -> None:
    """Run `work` in a separate process, as Spark does for the driver's Python of a query."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(work, *args).result()


def plan_a_table(folder: str, **options: str) -> None:
    """Compute the partitions of a table."""
    from rmqha.pipeline.log.commit_log_source import CommitLogDataSource
    source = CommitLogDataSource({"path": f"{folder}/s*", **options})
    with timed("nothing, but all is imported"):
        schema = source.schema()
    with timed(f"a table's partitions {options or ''}"):
        partitions = source.reader(schema).partitions()
    with timed("pickled, one by one, as Spark takes them"):
        size = sum(len(pickle.dumps(partition)) for partition in partitions)
    print(f"    {len(partitions):,} partitions, {size / 1e6:.1f} MB", flush=True)


def plan_a_stream(folder: str, **options: str) -> None:
    """Ask the reader of a stream what Spark asks it in the first batches, and when nothing is new."""
    from rmqha.pipeline.log.commit_log_source import CommitLogDataSource
    source = CommitLogDataSource({"path": f"{folder}/s*", **options})
    reader = source.streamReader(source.schema())
    with timed(f"a stream's first offset {options or ''}"):
        start = reader.initialOffset()
    for batch in ("first", "second", "third"):
        with timed(f"its {batch} batch: how far it goes"):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
        with timed("    and what is left behind"):
            reader.reportLatestOffset()
        with timed("    and its partitions"):
            partitions = reader.partitions(start, end)
        print(f"    {len(partitions):,} partitions, an offset of {len(json.dumps(end)) / 1e6:.2f} MB", flush=True)
        start = end


def plan_with_spark(folder: str, count: bool) -> None:
    """Do the same through a session, in which the JVM holds the partitions."""
    from rmqha.pipeline.session import spark_session
    spark = spark_session("local[2]", "planning", **{"spark.driver.memory": "1g", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.read.format("rocketmq-commitlog").option("columns", "topic,queueId").load(f"{folder}/s*")
    with timed("a table planned by Spark"):
        partitions = frame.rdd.getNumPartitions()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    used = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
    print(f"    {partitions:,} partitions, the JVM's heap has {used:.0f} MB in use, of {runtime.maxMemory() / 1e6:.0f}",
          flush=True)
    if count:
        with timed("all messages counted"):
            rows = frame.count()
        print(f"    {rows:,} messages", flush=True)
    spark.stop()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--no-index", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--only-spark", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if not (given.folder / f"s{given.stores - 1}").exists():
        with timed(f"{given.stores:,} stores of {given.files:,} files made"):
            make_stores(given.folder, given.stores, given.files, not given.no_index)
    folder = str(given.folder.absolute())
    if not given.only_spark:
        _plan_all(folder)
    if given.spark or given.only_spark or given.count:
        plan_with_spark(folder, given.count)
    if not given.keep:
        shutil.rmtree(given.folder)


def _plan_all(folder: str) -> None:
    for work in (plan_a_table, _plan_a_table_by_time, plan_a_stream, _plan_a_limited_stream):
        in_a_process(work, folder)


def _plan_a_table_by_time(folder: str) -> None:
    plan_a_table(folder, startingTimestamp=str(int(time.time() * 1000) - 6_000_000))


def _plan_a_limited_stream(folder: str) -> None:
    plan_a_stream(folder, startingOffsets="earliest", maxBytesPerTrigger="1000g", maxOffsetsPerTrigger="1000000")


if __name__ == "__main__":
    main()
