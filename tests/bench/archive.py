"""Benchmark of an archive of many topics over some days: files, size, seconds to write, read and restore it.

    python -m tests.bench.archive [--topics 2000 50000] [--days 3] [--mib 1024] [--layout 2] [--folder FOLDER]

`--layout 1` measures the earlier layout by topic and day with today's readers: the log is written as Parquet
partitioned by topic and day, as it was then. Bodies are JSON events of about 300 bytes, in which the names repeat and
the numbers do not. Some topics are busier than others, as in practice. Figures are of warm caches.
"""
import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rmqha.common.message import message_layout as layout

_HOST = layout.host_to_bytes(("10.20.30.40", 10911))
_FILE = 1 << 30
_DAY_MS = 86_400_000
_BEGIN_MS = 1_767_225_600_000  # 2026-01-01
_V1_COLUMNS = ("topic", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp", "tags", "keys", "uniqKey",
               "physicalOffset", "storeSize", "sysFlag", "bodyCrc", "crcOk", "storedBody", "envelope")


def write_log(root: Path, size: int, topics: int, days: int) -> int:
    """Write a log of about `size` bytes and return its number of messages."""
    (root / "commitlog").mkdir(parents=True)
    chance = random.Random(topics)
    names = [layout.encode_topic(f"{number:05d}" if number % 50 == 7 else f"shop_events_{number}")
             for number in range(topics)]
    offsets = [[0] * 4 for _ in names]
    offset = number = 0
    parts: list[bytes] = []
    while offset < size:
        topic = min(int(chance.paretovariate(0.6) * topics / 400) - topics // 400, topics - 1) if number >= topics \
            else number
        topic = max(topic, 0) if chance.random() < 0.5 else chance.randrange(topics)
        queue = chance.randrange(4)
        stored = _BEGIN_MS + days * _DAY_MS * offset // size
        body = json.dumps({
            "event": chance.choice(("order_created", "order_paid", "order_shipped", "order_cancelled")),
            "orderId": number * 7 + 100_000, "customer": {"id": chance.randrange(1_000_000), "tier": "standard",
                                                          "country": chance.choice(("DE", "FR", "IT", "US", "CN"))},
            "amount": chance.randrange(100, 99_999) / 100, "currency": "EUR", "warehouse": f"wh-{topic % 12:02d}",
            "source": "checkout-service", "schemaVersion": 3, "tags": ["web", "returning"], "retry": False}).encode()
        properties = (f"KEYS\x01order-{number * 7 + 100_000}\x02UNIQ_KEY\x010A141E28{os.getpid() & 0xFFFF:08X}18B4AAC2"
                      f"{number:012X}\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02TAGS\x01tag{topic % 5}").encode()
        length = layout.cal_msg_length(0, len(body), len(names[topic]) - 1, len(properties))
        if offset % _FILE + length + 8 > _FILE:
            break
        parts.append(layout.encode_record(
            layout.body_crc32(body), queue, 0, offsets[topic][queue], offset, 0, stored - 2, _HOST, stored, _HOST, 0,
            0, body, names[topic], properties))
        offsets[topic][queue] += 1
        offset += length
        number += 1
    with open(root / "commitlog" / f"{0:020d}", "wb") as file:
        file.writelines(parts)
        file.truncate(_FILE)
    return number


def timed(work: Callable[[], object], rounds: int = 1) -> tuple[float, object]:
    """Return (seconds of the best round, its result)."""
    best, result = float("inf"), None
    for _ in range(rounds):
        begin = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - begin)
    return best, result


def size_of(folder: Path) -> tuple[int, int]:
    """Return (number of Parquet files, their bytes)."""
    files = [path for path in folder.rglob("*.parquet")]
    return len(files), sum(path.stat().st_size for path in files)


def write_v1(spark, root: Path, target: Path) -> None:
    """Write an archive of version 1, which has no manifests."""
    frame = (spark.read.format("rocketmq-commitlog").option("columns", ",".join(_V1_COLUMNS))
             .option("decompress", "false").load(str(root)))
    (frame.withColumn("day", frame.storeTimestamp.cast("date"))
     .sortWithinPartitions("topic", "day", "queueId", "queueOffset")
     .write.partitionBy("topic", "day").option("compression", "zstd").parquet(str(target / "range=0")))


def measure(spark, folder: Path, root: Path, version: int, topics: int) -> dict[str, object]:
    """Return the figures of one layout."""
    from rmqha.pipeline.archive.archive import archive
    from rmqha.pipeline.archive.restore import restore, verify
    target = folder / f"archive-{version}"
    log = sum(path.stat().st_blocks * 512 for path in (root / "commitlog").iterdir())
    found: dict[str, object] = {"layout": version, "topics": topics, "logMB": round(log / 1e6)}
    if version == 1:
        found["write_s"], _ = timed(lambda: write_v1(spark, root, target))
    else:
        found["write_s"], _ = timed(lambda: archive(spark, str(root), str(target)))
    data = target if version == 1 else target / "data"
    found["files"], size = size_of(target)
    found["MB"], found["share"] = round(size / 1e6), round(size / log, 3)

    def read_all() -> object:
        frame = spark.read.parquet(str(data))
        return frame.selectExpr("sum(length(storedBody))", "max(keys)", "count(distinct topic)").first()
    found["read_all_s"], _ = timed(read_all, 2)
    name = f"shop_events_{topics // 2 + 1}"
    found["read_one_s"], rows = timed(lambda: len(
        spark.read.parquet(str(data)).where(f"topic = '{name}'").select("keys", "storedBody", "queueOffset").collect()),
        3)
    found["rows_of_one"] = rows
    if version > 1:
        found["verify_s"], verified = timed(lambda: verify(spark, str(target)))
        assert not verified.problems
        found["restore_s"], _ = timed(lambda: restore(spark, str(target), str(folder / "out")))
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in found.items()}


def main() -> None:
    """Measure, and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, nargs="*", default=[2000, 50_000])
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--mib", type=int, default=950)
    parser.add_argument("--layout", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    from rmqha.pipeline.session import spark_session
    spark = spark_session(f"local[{args.cores}]", **{"spark.driver.memory": "4g", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    for topics in args.topics:
        with tempfile.TemporaryDirectory(dir=args.folder) as temporary:
            folder = Path(temporary)
            messages = write_log(folder / "store", args.mib << 20, topics, args.days)
            print(f"{messages:,} messages of {topics:,} topics", file=sys.stderr, flush=True)
            for version in args.layout:
                print(json.dumps(measure(spark, folder, folder / "store", version, topics)), flush=True)
                shutil.rmtree(folder / f"archive-{version}", ignore_errors=True)
    spark.stop()


if __name__ == "__main__":
    main()
