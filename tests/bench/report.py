"""Benchmark of the job `report` over a log that looks like days of traffic: seconds, and the memory of its processes.

    python -m tests.bench.report [--mib 8192] [--topics 2000] [--days 3] [--memory 1g] [--keep FOLDER] [--page PAGE]

The log is written first: topics of very different sizes, days with busy hours, latencies with a long tail and a bad
hour, two masters, groups of which some are behind, one hot key. It consists of files of 128 MiB. The first is written
record by record; each later one is a copy of it with later times, offsets and indices. Prints one line; memory is the
peak of the process, Spark's JVM and its Python workers together (PSS).
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from rmqha.common.message import message_layout as layout

_FILE = 128 << 20
_AT_INDEX, _AT_OFFSET, _AT_BORN = 20, 28, layout.BORN_TIMESTAMP_POSITION
_AT_STORED = _AT_BORN + 16  # after the birth host
_DAY = 86_400_000
_BEGIN = 1_763_942_400_000  # Mon 24 Nov 2025 00:00 UTC
_NAMES = ("orders-created", "payments", "clicks", "shipments", "inventory-changes", "mail-outbox", "audit-trail",
          "search-index", "prices", "sessions", "refunds", "coupons")


def _busy(ms: int) -> float:
    """Return how much is sent at a time of day, 0 to 1."""
    hour = ms % _DAY / 3_600_000
    return 0.15 + 0.85 * max(0.0, math.sin((hour - 5) / 19 * math.pi)) ** 2


def _clock(rng: random.Random, count: int, days: float) -> list[int]:
    """Return `count` times within the days, in order, with more of them in busy hours."""
    slots = [_BEGIN + slot * 60_000 for slot in range(int(days * 1440))]
    weights = [_busy(ms) for ms in slots]
    total, times, left = sum(weights), [], 0.0
    for ms, weight in zip(slots, weights):
        left += count * weight / total
        whole = int(left)
        left -= whole
        times += sorted(ms + int(rng.random() * 60_000) for _ in range(whole))
    return times


def write_days(root: Path, size: int, topics: int, days: float, body_size: int = 1024) -> int:
    """Write a log of about `size` bytes over some days, and consumerOffset.json; return its number of messages."""
    (root / "commitlog").mkdir(parents=True)
    files = max(size // _FILE, 1)
    span = days / files
    first, starts, next_index = _first_file(min(size, _FILE), topics, span, body_size)
    for number in range(files):
        later = first.copy()
        for position, more in ((_AT_INDEX, number * max(next_index.values())), (_AT_OFFSET, number * _FILE),
                               (_AT_BORN, number * int(span * _DAY)), (_AT_STORED, number * int(span * _DAY))):
            view = np.ndarray((len(later) - 7,), ">i8", later.data, strides=(1,))
            view[starts + position] += more
        later.tofile(root / "commitlog" / f"{number * _FILE:020d}")
    repeats = (files - 1) * max(next_index.values())
    _write_offsets(root, topics, {key: last + repeats for key, last in next_index.items()})
    return len(starts) * files


def _first_file(size: int, topics: int, days: float, body_size: int) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return the bytes of a file that ends with a blank, where its records begin, and the last index of each queue."""
    rng = random.Random(11)
    encoded = [layout.encode_topic(_topic(number)) for number in range(topics)]
    text = os.urandom(1 << 20).hex().encode()
    hosts = [layout.host_to_bytes((f"10.0.0.{number}", 10911)) for number in (11, 12)]
    client = layout.host_to_bytes(("10.0.3.7", 40112))
    next_index: dict[tuple[int, int], int] = {}
    data, starts = bytearray(), []
    times = _clock(rng, max(size // (body_size + 250), 1), days)
    for number, stored in enumerate(times):
        topic = int(topics ** rng.random()) - 1  # a few topics have most messages
        queue = number % 4
        bad = 30 < (stored - _BEGIN) / 3_600_000 % 72 < 31.5
        latency = int(rng.lognormvariate(1.0, 0.8) * (40 if bad else 1)) + (rng.random() < 0.002) * 900
        key = "customer-1" if topic == 2 and number % 9 == 0 else f"k-{number}"
        properties = f"UNIQ_KEY\x017F{number:030X}\x02WAIT\x01true\x02TAGS\x01t{number % 5}\x02KEYS\x01{key}".encode()
        body = text[number * 7919 % (1 << 20):][:int(body_size * (0.2 + 1.6 * rng.random()))]
        if len(data) + len(body) + 1000 > size:
            break
        index = next_index[topic, queue] = next_index.get((topic, queue), -1) + 1
        master = hosts[stored > _BEGIN + days * _DAY * 0.6]
        starts.append(len(data))
        data += layout.encode_record(layout.body_crc32(body), queue, 0, index, len(data), 0, stored - latency, client,
                                     stored, master, 0, 0, body, encoded[topic], properties)
    data += layout.encode_blank(size - len(data))
    return np.frombuffer(data.ljust(size, b"\0"), np.uint8).copy(), np.array(starts), next_index


def _topic(number: int) -> str:
    return _NAMES[number] if number < len(_NAMES) else f"tenant-{number:05d}-events"


def _write_offsets(root: Path, topics: int, next_index: dict[tuple[int, int], int]) -> None:
    table: dict[str, dict[str, int]] = {}
    for (topic, queue), last in next_index.items():
        late = 0.7 + topic % 3 * 0.15
        for group, share in (("billing", 1.0), ("warehouse", 1.0 if topic else 0.93), ("analytics", late)):
            if topic < min(topics, 200):
                table.setdefault(f"{_topic(topic)}@{group}", {})[str(queue)] = int((last + 1) * share)
    (root / "config").mkdir()
    text = json.dumps({"offsetTable": table})
    for queue in range(4):
        # Unquoted numbers as keys, as brokers write them.
        text = text.replace(f'"{queue}": ', f"{queue}:")
    (root / "config" / "consumerOffset.json").write_text(text)


def measured(command: list[str]) -> tuple[float, float, str]:
    """Return the seconds, the peak MB (PSS) of a process and its descendants, and its output."""
    begin, most = time.monotonic(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None:
        total = 0
        try:
            own = psutil.Process(process.pid)
            for each in (own, *own.children(recursive=True)):
                total += each.memory_full_info().pss
        except psutil.NoSuchProcess:
            total = 0  # one has ended in the meantime; the next sample counts
        most = max(most, total)
        time.sleep(0.5)
    assert process.stdout is not None
    return time.monotonic() - begin, most / 1e6, process.stdout.read()


def main() -> None:
    """Write the log, run the job, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=8192)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--days", type=float, default=3)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--memory", default="1g")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = options.keep or Path(folder) / "store"
        if not (root / "commitlog").is_dir():
            write_days(root, options.mib << 20, options.topics, options.days, options.body)
        page = options.page or Path(folder) / "page.html"
        seconds, most, said = measured([sys.executable, "-m", "rmqha.launch", "rmqha", "pipeline", "report", str(root),
                                        str(page), "--master", options.master, "--memory", options.memory])
        size = page.stat().st_size
    sys.stdout.write(f"{said.strip()}: {options.mib} MiB of log, {seconds:.1f} s, at most {most:.0f} MB, a page of "
                     f"{size / 1024:.0f} KiB\n")


if __name__ == "__main__":
    main()
