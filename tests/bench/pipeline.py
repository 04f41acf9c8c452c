"""Scanning a commit log with Spark, beside one thread without Spark and the same rows as Parquet.

    python -m tests.bench.pipeline [--mib 2048] [--body 1024] [--cores 0 1 2] [--keep FOLDER]

Prints a table; figures are of warm caches, the second run of each. `core s/GB` is what a GB of log costs: seconds of
all cores that the query has. Cores 0: one thread without Spark, with each step added to those before it, which tells
where the time goes. With --cores and nothing behind it the log and its Parquet files are only written (to FOLDER).
"""
import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from rmqha.common.message import message_layout as layout

_HOST = layout.host_to_bytes(("127.0.0.1", 10911))
_FILE = 1 << 30
_TOPICS = [layout.encode_topic(f"Topic{number}") for number in range(4)]


def write_log(root: Path, size: int, body_size: int) -> int:
    """A log of about `size` bytes in files of 1 GiB: 4 topics of 4 queues, tags, keys, unique keys. Its messages."""
    (root / "commitlog").mkdir(parents=True)
    text = os.urandom(8 << 20).hex().encode()  # compresses to half, as text does
    offset = number = 0
    file = None
    while offset < size:
        properties = (f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02TAGS\x01Tag{number % 5}\x02KEYS\x01order-"
                      f"{number}").encode()
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


def without_spark(root: Path, size: int) -> None:
    """One thread: each step does what the ones before it do, and more."""
    from rmqha.common.segment_files import pread
    from rmqha.pipeline.columns import BlockColumns
    from rmqha.pipeline.log_files import find_logs
    from rmqha.pipeline.log_scan import BLOCK, log_end, open_file, scan_range
    from rmqha.pipeline.options import Options
    from rmqha.pipeline.ranges import ranges_of
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

    timed("one thread: read", size, 1, read)
    timed("+ find the records", size, 1, lambda: scan(False))
    timed("+ CRC", size, 1, lambda: scan(True))
    timed("+ all columns (the plain scan)", size, 1, lambda: sum(map(len, batches())))
    timed("+ as a stream of Arrow batches", size, 1, stream)


def timed(name: str, size: int, cores: int, run) -> None:
    """Run twice, print the second."""
    for _ in range(2):
        begun = time.perf_counter()
        rows = run()
        seconds = time.perf_counter() - begun
    print(f"{name:34} {seconds:8.2f} s {rows / seconds:12,.0f} rows/s {size / seconds / 1e6:8.0f} MB/s "
          f"{cores * seconds / size * 1e9:8.2f} core s/GB", flush=True)


def with_spark(root: Path, size: int, cores: int, parquet: Path) -> None:
    """The queries at local[cores]."""
    from rmqha.pipeline.session import spark_session
    spark = spark_session(f"local[{cores}]", "benchmark", **{"spark.driver.memory": "2g", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")

    def load(**options):
        return spark.read.format("rocketmq-commitlog").options(**options).load(str(root))

    def count(frame) -> int:
        frame.write.format("noop").mode("overwrite").save()
        return rows

    rows = load(columns="queueId").count()
    name = f"local[{cores}]"
    timed(f"{name} all columns", size, cores, lambda: count(load()))
    timed(f"{name} topic, queue, offset, body", size, cores,
          lambda: count(load(columns="topic,queueId,queueOffset,body")))
    timed(f"{name} without bodies", size, cores, lambda: count(load(columns="topic,queueId,queueOffset,tags,keys")))
    timed(f"{name} one topic of four", size, cores, lambda: count(load(subscribe="Topic1")))
    timed(f"{name} without CRC", size, cores, lambda: count(load(verifyCrc="false")))
    timed(f"{name} Parquet, all columns", size, cores, lambda: count(spark.read.parquet(str(parquet))))
    spark.stop()


def write_parquet(root: Path, parquet: Path) -> None:
    """The same rows as Parquet."""
    from rmqha.pipeline.session import spark_session
    spark = spark_session("local[2]", "benchmark", **{"spark.driver.memory": "2g", "spark.ui.enabled": "false"})
    spark.read.format("rocketmq-commitlog").load(str(root)).write.option("compression", "zstd").parquet(str(parquet))
    spark.stop()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--cores", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        if not (folder / "store").exists():
            print(f"{write_log(folder / 'store', args.mib << 20, args.body):,} messages written", flush=True)
            write_parquet(folder / "store", folder / "parquet")
        size = args.mib << 20
        for cores in args.cores:
            if cores:
                with_spark(folder / "store", size, cores, folder / "parquet")
            else:
                without_spark(folder / "store", size)


if __name__ == "__main__":
    main()
