"""Benchmark of scanning commit logs with Spark, beside one thread without Spark, and the same rows as Parquet.

    python -m tests.bench.pipeline [--store usual batch ...] [--mib 2048] [--body 1024 ...] [--cores 0 1 2] [--rounds 3]
                                   [--keep FOLDER] [--jobs]

Prints a table for each store and each size of bodies. Figures are of warm caches, the best of the rounds, in which all
queries take turns. `core s` are seconds of CPU that the query took in all processes, per GB of log and per million
messages; they suffer less than wall time from other work on the machine. Cores 0: one thread without Spark, which adds
one step after another, and so shows where the time goes. With --cores and no number, the logs and their Parquet files
are only written (to FOLDER).

Stores: `usual` has four properties, as after a send; `batch` is as Java's batch sends write it, with WAIT and CLUSTER
twice; `two` and `twenty` have that number of properties. --jobs: also compares audit and rebuild at local[2] and
local[1], after the scans.
"""
import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_decoder import message_properties2string

_HOST = layout.host_to_bytes(("127.0.0.1", 10911))
_FILE = 1 << 30
_TOPICS = [layout.encode_topic(f"Topic{number}") for number in range(4)]
_TICKS = os.sysconf("SC_CLK_TCK")


def _own(number: int) -> dict[str, str]:
    return {"UNIQ_KEY": f"7F000001{number:024X}", "WAIT": "true", "TAGS": f"Tag{number % 5}", "KEYS": f"order-{number}"}


def _batch(number: int) -> str:
    batch = {"WAIT": "true", "CLUSTER": "DefaultCluster"}
    return "\2".join(map(message_properties2string, (_own(number) | batch, batch)))


def _twenty(number: int) -> str:
    return message_properties2string(_own(number) | {f"header-{which}": f"value {which} of {number % 1000}"
                                                     for which in range(16)})


STORES: dict[str, Callable[[int], str]] = {
    "usual": lambda number: message_properties2string(_own(number)),
    "batch": _batch,
    "two": lambda number: message_properties2string({"UNIQ_KEY": f"7F000001{number:024X}", "WAIT": "true"}),
    "twenty": _twenty,
}
"""By name: the properties of a message."""


def write_log(root: Path, size: int, body_size: int, store: str) -> int:
    """Write a log of about `size` bytes in files of 1 GiB, with 4 topics of 4 queues; return its number of messages."""
    (root / "commitlog").mkdir(parents=True)
    text = os.urandom(8 << 20).hex().encode()  # compresses to half, like text
    offset = number = 0
    file = None
    while offset < size:
        properties = STORES[store](number).encode()
        topic = _TOPICS[number % 4]
        length = layout.cal_msg_length(0, body_size, len(topic) - 1, len(properties))
        if file is not None and offset % _FILE + length + 8 > _FILE:
            file.write(layout.encode_blank(_FILE - offset % _FILE))
            file.truncate(_FILE)
            file.close()
            offset, file = -(-offset // _FILE) * _FILE, None
        if file is None:
            file = open(root / "commitlog" / f"{offset:020d}", "wb", buffering=1 << 20)
        at = number * 7919 % (len(text) - body_size)
        body = text[at:at + body_size]
        born = 1_700_000_000_000 + number
        file.write(layout.encode_record(layout.body_crc32(body), number // 4 % 4, 0, number // 16, offset, 0, born,
                                        _HOST, born + 1, _HOST, 0, 0, body, topic, properties))
        offset += length
        number += 1
    file.truncate(_FILE)
    file.close()
    return number


class Clock:
    """Runs queries in turns and prints the best time of each. `size`: bytes of the log."""

    def __init__(self, size: int, rounds: int) -> None:
        self._size, self._rounds = size, rounds

    def run(self, queries: dict[str, Callable[[], int]]) -> dict[str, tuple[float, float]]:
        """Run the queries, each of which returns its rows, or 0; return the best seconds and core seconds of each."""
        best = dict.fromkeys(queries, (1e9, 1e9))
        rows = dict.fromkeys(queries, 0)
        for number in range(self._rounds + 1):
            for name, query in queries.items():
                cores, begun = cpu_seconds(), time.perf_counter()
                rows[name] = query()
                took = time.perf_counter() - begun, cpu_seconds() - cores
                if number:  # the first one warms up
                    best[name] = tuple(map(min, best[name], took))
        for name, (seconds, cores) in best.items():
            gb = self._size / 1e9
            counted = f"{rows[name] / seconds:12,.0f} rows/s" if rows[name] else " " * 19
            print(f"{name:34} {seconds:8.2f} s {counted} {gb / seconds * 1e3:8.0f} MB/s {cores / gb:8.2f} core s/GB"
                  + (f" {cores / rows[name] * 1e6:8.2f} core s/million" if rows[name] else ""), flush=True)
        return best


def cpu_seconds() -> float:
    """Return the CPU seconds used by this process and its descendants."""
    parents, taken = {}, {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:  # ended in the meantime; its parent counts it
                continue
            parents[int(path.name)], taken[int(path.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS
    own, more = set(), {os.getpid()}
    while more:
        own |= more
        more = {child for child, parent in parents.items() if parent in more} - own
    return sum(taken[process] for process in own)


def without_spark(root: Path, clock: Clock) -> None:
    """Measure one thread; each step does the work of the earlier ones and more."""
    from rmqha.common.filesystem import pread
    from rmqha.pipeline.format_options import Options
    from rmqha.pipeline.log.columns import BlockColumns
    from rmqha.pipeline.log.log_ends import log_end
    from rmqha.pipeline.log.log_scan import BLOCK, find_logs, open_file, scan_range
    from rmqha.pipeline.log.ranges import ranges_of
    from rmqha.pipeline.table import arrow_schema, table_schema
    schema = arrow_schema(table_schema(Options({}, ("schema", "columns"), "benchmark")))
    log = find_logs([str(root)])[0]
    spans = ranges_of(log, 0, log_end(log), _FILE, True)

    def read() -> int:
        for span in spans:
            with open(open_file(span.path, span.begin), "rb") as file:
                for position in range(0, span.end - span.file_start, BLOCK):
                    pread(file.fileno(), BLOCK, position)
        return 0

    def scan(verify_crc: bool) -> int:
        return sum(len(block.rows) for span in spans for block in scan_range(span, verify_crc))

    def batches() -> Iterator[pa.RecordBatch]:
        return (BlockColumns(block, None, "store", True).batch(schema)
                for span in spans for block in scan_range(span, True))

    def stream() -> int:
        rows = 0
        with pa.OSFile(os.devnull, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches():
                writer.write_batch(batch)
                rows += len(batch)
        return rows

    clock.run({"one thread: read": read, "+ find the records": lambda: scan(False), "+ CRC": lambda: scan(True),
               "+ all columns (the plain scan)": lambda: sum(map(len, batches())),
               "+ as a stream of Arrow batches": stream})


def with_spark(root: Path, clock: Clock, cores: int, parquet: Path) -> None:
    """Measure the queries at local[cores]."""
    spark = _session(cores)

    def load(**options):
        return spark.read.format("rocketmq-commitlog").options(**options).load(str(root))

    def count(frame) -> int:
        frame.write.format("noop").mode("overwrite").save()
        return rows

    rows = load(columns="queueId").count()
    name = f"local[{cores}]"
    best = clock.run({
        f"{name} all columns": lambda: count(load()),
        f"{name} Parquet, all columns": lambda: count(spark.read.parquet(str(parquet))),
        f"{name} schema=kafka": lambda: count(load(schema="kafka")),
        f"{name} topic, queue, offset, body": lambda: count(load(columns="topic,queueId,queueOffset,body")),
        f"{name} without bodies": lambda: count(load(columns="topic,queueId,queueOffset,tags,keys")),
        f"{name} one topic of four": lambda: count(load(subscribe="Topic1")),
        f"{name} without CRC": lambda: count(load(verifyCrc="false"))})
    ours, parquets = best[f"{name} all columns"], best[f"{name} Parquet, all columns"]
    print(f"{name} all columns: {parquets[0] / ours[0]:.2f} of Parquet's speed, {parquets[1] / ours[1]:.2f} by core "
          "seconds", flush=True)
    spark.stop()


def _session(cores: int):
    from rmqha.pipeline.session import spark_session
    spark = spark_session(f"local[{cores}]", "benchmark", **{"spark.driver.memory": "2g", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_parquet(root: Path, parquet: Path) -> None:
    """Write the same rows as Parquet."""
    spark = _session(2)
    spark.read.format("rocketmq-commitlog").load(str(root)).write.option("compression", "zstd").parquet(str(parquet))
    spark.stop()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--body", type=int, nargs="+", default=[1024])
    parser.add_argument("--store", choices=STORES, nargs="+", default=["usual"])
    parser.add_argument("--cores", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--jobs", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as temporary:
        for store, body in [(store, body) for store in args.store for body in args.body]:
            folder = (args.keep or Path(temporary)) / f"{store}-{body}"
            print(f"-- store {store}, bodies of {body} bytes", flush=True)
            if not (folder / "parquet").exists():
                print(f"{write_log(folder / 'store', args.mib << 20, body, store):,} messages written", flush=True)
                write_parquet(folder / "store", folder / "parquet")
            clock = Clock(args.mib << 20, args.rounds)
            for cores in args.cores:
                if cores:
                    with_spark(folder / "store", clock, cores, folder / "parquet")
                else:
                    without_spark(folder / "store", clock)
        if args.jobs:
            from tests.bench.pipeline_jobs import compare
            compare(args.mib, args.body[0], args.rounds, (args.keep or Path(temporary)) / "jobs")


if __name__ == "__main__":
    main()
