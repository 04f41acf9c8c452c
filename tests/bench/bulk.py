"""Records per second of the bulk kernel, compiled and plain, with and without CRC, and of building an index file.

    python -m tests.bench.bulk [--count 1000000] [--body 100] [--plain-count 100000] [--rounds 3]

The records have a tag, two keys and a unique key, and are in 8 queues of 4 topics. The best of the rounds is printed.
"""
import argparse
import sys
import time
import zlib

from rmqha.common.message import message_layout as layout
from rmqha.native import kernels
from rmqha.store.bulk import bulk, bulk_python
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters, Stop
from rmqha.store.index.index_layout import file_size

QUEUES = 8
TOPICS = 4
HOST = layout.host_to_bytes(("10.0.0.1", 10911))


def make_log(count: int, body_length: int) -> bytearray:
    """Return `count` adjacent records."""
    log = bytearray()
    topics = [layout.encode_topic(f"bench_topic_{number}") for number in range(TOPICS)]
    for number in range(count):
        body = (b"%020d" % number * (body_length // 20 + 1))[:body_length]
        properties = (b"KEYS\x01order%012d user%07d\x02UNIQ_KEY\x010A000001%024X\x02CLUSTER\x01DefaultCluster"
                      b"\x02TAGS\x01Tag%d" % (number, number % 100_000, number, number % 5))
        log += layout.encode_record(zlib.crc32(body) & 0x7FFF_FFFF, number % QUEUES, 0, number // (QUEUES * TOPICS),
                                    len(log), 0, 1, HOST, 1_700_000_000_000 + number, HOST, 0, 0, body,
                                    topics[number // QUEUES % TOPICS], properties)
    return log


def scan_all(log: bytearray, count: int, check_crc: bool) -> list[bytes]:
    """Return the keys of all records, collected scan by scan."""
    position, keys = 0, []
    for_all, end = 0, len(log)
    while position < end and for_all < count:
        span = bulk.scan(log, position, end, 0, check_crc, limit=min(1 << 16, count - for_all))
        assert span.stop in (Stop.END, Stop.LIMIT), span[:4]
        position, for_all = span.position, for_all + span.count
        keys.append(span.keys)
    return keys


def walk_all(log: bytearray, end: int, check_crc: bool) -> None:
    """Step over all records."""
    walk = bulk.walk(log, 0, end, check_crc)
    assert walk.stop is Stop.END, walk


def index_all(keys: list[bytes], slots: int) -> None:
    """Put all keys into one index file in memory."""
    total = sum(map(len, keys)) // KEY.size
    file = memoryview(bytearray(file_size(slots, total + 2)))
    counters = IndexCounters(0, 0, 0, 0, 0, 1)
    for rows in keys:
        done, counters = bulk.put_keys(file, slots, total + 2, counters, rows)
        assert done == len(rows) // KEY.size


def best(rounds: int, work, *arguments) -> float:
    """Seconds of the fastest of some rounds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work(*arguments)
        times.append(time.perf_counter() - begin)
    return min(times)


def report(name: str, log: bytearray, count: int, rounds: int) -> None:
    """Print one line for each kind of work."""
    end = bulk.scan(log, 0, len(log), 0, limit=count).position if count < 1 << 16 else None
    if end is None:
        end, left = 0, count
        while left:
            span = bulk.scan(log, end, len(log), 0, limit=min(left, 1 << 16))
            end, left = span.position, left - span.count
    keys = scan_all(log, count, False)
    slots = max(count, 1000)
    for what, seconds in (
            ("walk", best(rounds, walk_all, log, end, False)),
            ("walk with CRC", best(rounds, walk_all, log, end, True)),
            ("scan", best(rounds, scan_all, log, count, False)),
            ("scan with CRC", best(rounds, scan_all, log, count, True)),
            ("index entries of them", best(rounds, index_all, keys, slots))):
        sys.stdout.write(f"{name:9} {what:22} {count / seconds / 1e6:8.3f} M msg/s  {seconds / count * 1e9:7.0f} ns\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--plain-count", type=int, default=100_000)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    log = make_log(options.count, options.body)
    sys.stdout.write(f"{options.count} records, {len(log) / options.count:.0f} bytes each; installed: "
                     f"{kernels.BULK.told()}\n")
    if bulk._kernel is not bulk_python:
        report("compiled", log, options.count, options.rounds)
        bulk._kernel = bulk_python
    report("plain", log, min(options.plain_count, options.count), 1)


if __name__ == "__main__":
    main()
