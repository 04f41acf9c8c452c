"""Benchmark of a broker's start over a large store: the real one, rmqha, and the ratio of their rates.

    python -m tests.bench.startup [--count 3000000] [--body 100] [--segments 10] [--rounds 3] [--folder F]
                                  [--only rebuild|clean] [--json F]

`rebuild`: consume queues and index are deleted, and are built from the log before the broker prints "boot success".

`clean`: everything is there, and the broker was stopped cleanly; there are `--segments` files of 1 GiB.

Both kinds start on the same files, one after the other, from the page cache; the median of each kind is printed. A
start over an empty store is measured beside them, to show the cost of the store itself. After a rebuild the consume
queues of both kinds are compared; the index has its 4.9 default size (5,000,000 slots, 20,000,000 entries per file).
"""
import argparse
import hashlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rmqha.native import kernels
from tests.bench import KINDS, OTHER
from tests.bench.made_store import make_commit_log
from tests.bench.results import Results, add_json
from tests.support import real_rocketmq
from tests.support.nodes import BrokerNode

GIB = 1 << 30
# The broker's defaults.
DEFAULT_STORE = {"mappedFileSizeCommitLog": GIB, "mappedFileSizeConsumeQueue": 300_000 * 20,
                 "maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000, "diskMaxUsedSpaceRatio": 95}
_START_LIMIT_MS = 1_800_000


def start_seconds(kind: str, folder: Path) -> float:
    """Return the seconds from the start of the process to its "boot success"; then stop the broker cleanly."""
    broker = BrokerNode(kind, folder, None, **DEFAULT_STORE)
    begin = time.monotonic()
    try:
        broker.start(_START_LIMIT_MS)
        elapsed = time.monotonic() - begin
    finally:
        broker.stop(300)
    return elapsed


def forget_built(store: Path) -> None:
    """Delete everything that a broker can build from the log."""
    for name in ("consumequeue", "index", "checkpoint", "config"):
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def digest_of_queues(store: Path) -> str:
    """Return one hash over all consume queue files and their places."""
    digest = hashlib.sha256()
    for file in sorted((store / "consumequeue").rglob("*")):
        if file.is_file():
            digest.update(str(file.relative_to(store)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def say(text: str) -> None:
    """Print one line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report(name: str, count: int, seconds: dict[str, list[float]], unit: str) -> None:
    """Print the medians and the ratio of the rates."""
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    for kind in KINDS:
        times = ", ".join(f"{value:.2f}" for value in seconds[kind])
        say(f"{name:8} {kind:6} {medians[kind]:7.2f} s  {count / medians[kind]:12,.0f} {unit}/s   (rounds: {times})")
    say(f"{name:8} rmqha / {OTHER}, rate: {medians[OTHER] / medians['rmqha']:.2f}")


def note(results: Results, seconds: dict[str, list[float]], **case: str | int) -> None:
    """Record all rounds."""
    for kind, values in seconds.items():
        results.row(kind, "start", "s", values, **case)


def measure_empty(folder: Path, rounds: int, results: Results) -> None:
    """Measure starts over a store that does not exist yet."""
    seconds = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS:
            seconds[kind].append(start_seconds(kind, folder / f"empty-{kind}-{number}"))
    report("empty", 1, seconds, "starts")
    note(results, seconds, store="empty")


def measure_rebuild(folder: Path, count: int, body: int, rounds: int, results: Results) -> None:
    """Measure starts that build consume queues and index."""
    node, begin = folder / "rebuild", time.monotonic()
    made = make_commit_log(node / "store" / "commitlog", count, body, GIB)
    say(f"rebuild  {made.count:,} messages, {made.size / GIB:.2f} GiB, made in {time.monotonic() - begin:.0f} s")
    seconds, queues = {kind: [] for kind in KINDS}, {}
    for _ in range(rounds):
        for kind in KINDS:
            forget_built(node / "store")
            seconds[kind].append(start_seconds(kind, node))
            queues[kind] = digest_of_queues(node / "store")
    assert len(set(queues.values())) == 1, f"the consume queues differ: {queues}"
    report("rebuild", count, seconds, "msg")
    note(results, seconds, store="queues and index deleted", messages=count)
    say(f"rebuild  consume queues of both kinds equal: yes ({queues['rmqha']})")
    shutil.rmtree(node)


def measure_clean(folder: Path, segments: int, rounds: int, results: Results) -> None:
    """Measure starts over a store with nothing to do."""
    node = folder / "clean"
    body = 4096
    made = make_commit_log(node / "store" / "commitlog", segments * GIB // (body + 300), body, GIB)
    files = len(list((node / "store" / "commitlog").iterdir()))
    start_seconds("rmqha", node)  # builds the rest
    say(f"clean    {made.count:,} messages, {made.size / GIB:.2f} GiB in {files} files")
    seconds = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            seconds[kind].append(start_seconds(kind, node))
    report("clean", files, seconds, "files")
    note(results, seconds, store="stopped well", segments=files)
    shutil.rmtree(node)


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3_000_000)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="folder for the stores (default: the system's temporary folder)")
    parser.add_argument("--only", choices=("rebuild", "clean"))
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    results = Results("startup", arguments)
    say(f"{kernels.told()}; java options: {os.environ['RMQHA_JAVA_OPTIONS']}")
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-", dir=arguments.folder) as folder:
        measure_empty(Path(folder), arguments.rounds, results)
        if arguments.only != "clean":
            measure_rebuild(Path(folder), arguments.count, arguments.body, arguments.rounds, results)
        if arguments.only != "rebuild":
            measure_clean(Path(folder), arguments.segments, arguments.rounds, results)


if __name__ == "__main__":
    main()
