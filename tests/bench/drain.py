"""Benchmark of one push consumer of the official Java client that drains a backlog: rmqha beside the real broker.

    python -m tests.bench.drain [--count 100000] [--sizes 128 1024] [--pull-batches 32] [--queues 4] [--rounds 5]
                                [--json F]

A topic of each kind is filled once for each size. In each round a new group reads it from its start, as fast as the
listener, which only counts, allows. The output has the median round's rate, the broker's and the client's CPU time per
message, and the ratio of the rates, round by round. Brokers and client share the machine.
"""
import argparse
import os
import platform
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psutil

from tests.bench import KINDS, OTHER
from tests.bench.results import Results, add_json
from tests.bench.send import LARGE_STORE, _running, say
from tests.support import real_rocketmq
from tests.support.java_driver import JavaDriver, Workload
from tests.support.nodes import BrokerNode, NamesrvNode


class Backlog:
    """A name server and a master of one kind, with a topic of `count` messages for each size."""

    def __init__(self, kind: str, arguments: argparse.Namespace, folder: Path, driver: JavaDriver,
                 stack: ExitStack) -> None:
        self.driver, self.count = driver, arguments.count
        self.namesrv = stack.enter_context(_running(NamesrvNode(kind, folder / "n")))
        self.master = stack.enter_context(_running(
            BrokerNode(kind, folder / "m", self.namesrv.address, **LARGE_STORE, brokerRole="ASYNC_MASTER")))
        for size in arguments.sizes:
            driver.create_topic(self.namesrv.address, self.master.address, f"backlog-{size}", arguments.queues)
            timing = driver.produce_timed(self.namesrv.address, Workload(f"backlog-{size}", self.count, [size]), 16)
            assert timing.acknowledged == self.count, f"only {timing.acknowledged} of {self.count} acknowledged"
        self._groups = 0

    def drain(self, size: int, pull_batch: int) -> tuple[float, float, float]:
        """Return (messages per second, CPU microseconds per message of the broker, the same of the client)."""
        self._groups += 1
        pids = self.master.pid, self.driver.pid
        before = [_cpu_us(pid) for pid in pids]
        seconds = self.driver.drain(self.namesrv.address, f"backlog-{size}", f"drain-{self._groups}", self.count,
                                    pull_batch)
        used = [(_cpu_us(pid) - begin) / self.count for pid, begin in zip(pids, before, strict=True)]
        return self.count / seconds, used[0], used[1]


def _cpu_us(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return (times.user + times.system) * 1e6


def compare(arguments: argparse.Namespace, driver: JavaDriver, folder: Path, results: Results) -> None:
    """Alternate between the kinds; print the medians and the median ratio."""
    with ExitStack() as stack:
        backlogs = {kind: Backlog(kind, arguments, folder / kind, driver, stack) for kind in KINDS}
        for backlog in backlogs.values():
            for _ in range(2):
                backlog.drain(arguments.sizes[0], arguments.pull_batches[0])  # warm up
        for size in arguments.sizes:
            for batch in arguments.pull_batches:
                seen: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
                for number in range(arguments.rounds):
                    for kind in KINDS if number % 2 else KINDS[::-1]:
                        seen[kind].append(backlogs[kind].drain(size, batch))
                report(f"{size} B, {batch} a pull", seen)
                for kind, rounds in seen.items():
                    case = {"size": size, "pull_batch": batch}
                    results.row(kind, "rate", "msg/s", [one[0] for one in rounds], **case)
                    results.row(kind, "CPU of the broker per message", "us", [one[1] for one in rounds], **case)
                    results.row(kind, "CPU of the client per message", "us", [one[2] for one in rounds], **case)


def report(name: str, seen: dict[str, list[tuple[float, float, float]]]) -> None:
    """Print the medians of each kind, and of the ratios."""
    for kind, rounds in seen.items():
        rate, broker, client = (statistics.median(column) for column in zip(*rounds, strict=True))
        say(f"{name} {kind:6} {rate:9,.0f} msg/s  (min {min(rounds)[0]:,.0f}, max {max(rounds)[0]:,.0f})  "
            f"CPU us/msg: broker {broker:.1f}, client {client:.1f}")
    ratios = [ours[0] / real[0] for ours, real in zip(seen["rmqha"], seen[OTHER], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    say(f"{name} rmqha / {OTHER}: rate {middle:.2f} (quartiles {low:.2f}, {high:.2f})")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--pull-batches", type=int, nargs="+", default=[32])
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    results = Results("drain", arguments)
    say(f"Python {platform.python_version()}, {os.path.realpath(sys.executable)}")
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as folder:
        driver = JavaDriver(Path(folder) / "driver")
        driver.start()
        try:
            compare(arguments, driver, Path(folder), results)
        finally:
            driver.shutdown()


if __name__ == "__main__":
    main()
