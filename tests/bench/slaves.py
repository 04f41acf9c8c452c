"""Cost of a second, a fourth and an eighth slave to a master: the same sends, rmqha's master beside the real one.

    python -m tests.bench.slaves [--slaves 1 4 8] [--threads 16] [--count 20000] [--rounds 3] [--roles SYNC_MASTER]
                                 [--json F]

The slaves are raw sockets in one process (`tests/support/raw_remoting.py`), which discard what they receive and report
its end. Master, senders and slaves share the machine; the master is what is measured. Each kind has one master. In each
round each number of slaves is connected to it in turn, and the Java client sends. The output has the median round's
rate and latency, the CPU time per message of the master, of the slaves' process and of the client, and the rate
relative to that with the first number of slaves, round by round.
"""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench import KINDS
from tests.bench.ha import runtime
from tests.bench.results import Results, add_json
from tests.bench.send import LARGE_STORE, ROLES, _running, rate, say
from tests.support import real_rocketmq
from tests.support.java_driver import JavaDriver, Timing, Workload
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

_READY_MS = 30_000


@dataclass(frozen=True)
class Seen:
    """One round with one number of slaves; CPU is in microseconds per message."""

    timing: Timing
    master_us: float
    slaves_us: float
    client_us: float


class Master:
    """A name server and a master of one kind, without slaves."""

    def __init__(self, kind: str, role: str, folder: Path, driver: JavaDriver, stack: ExitStack) -> None:
        self.driver = driver
        self.namesrv = stack.enter_context(_running(NamesrvNode(kind, folder / "n")))
        self.node = stack.enter_context(_running(
            BrokerNode(kind, folder / "m", self.namesrv.address, **LARGE_STORE, brokerRole=role)))
        driver.create_topic(self.namesrv.address, self.node.address, "bench")
        self.sent = 0

    def measure(self, slaves: int, count: int, size: int, threads: int) -> Seen:
        """Send `count` messages of `size` bytes while that number of slaves is connected."""
        with self._slaves(slaves) as process:
            load = Workload("bench", count, [size], first=self.sent)
            self.sent += count
            pids = self.node.pid, process.pid, self.driver.pid
            before = [_cpu_us(pid) for pid in pids]
            timing = self.driver.produce_timed(self.namesrv.address, load, threads)
            used = [(_cpu_us(pid) - begin) / count for pid, begin in zip(pids, before, strict=True)]
            if timing.acknowledged < count or process.poll() is not None:
                say(f"  only {timing.acknowledged} of {count} acknowledged; the slaves: {process.poll()}")
        return Seen(timing, *used)

    @contextmanager
    def _slaves(self, count: int) -> Iterator[subprocess.Popen]:
        wait_until(lambda: not self.node.slaves_connected(), _READY_MS, "the previous slaves are gone")
        with RawClient(self.node.address) as client:
            wait_until(lambda: runtime(client)[0] >= 0, _READY_MS, "the master reports its offset")
            end = runtime(client)[0]
        command = [sys.executable, "-m", "tests.support.raw_remoting", str(self.node.ha_port), str(count), str(end)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout.readline() == "ready\n", f"the slaves ended: {process.wait(_READY_MS / 1000)}"
                yield process
            finally:
                process.stdin.close()


def _cpu_us(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return (times.user + times.system) * 1e6


def compare(role: str, arguments: argparse.Namespace, driver: JavaDriver, folder: Path, results: Results) -> None:
    """Alternate between the kinds and the numbers of slaves; print the median round of each number."""
    with ExitStack() as stack:
        masters = {kind: Master(kind, role, folder / f"{role}-{kind}", driver, stack) for kind in KINDS}
        for master in masters.values():
            for threads in (arguments.threads, 1):
                master.measure(1, max(4000, arguments.count // 2), arguments.size, threads)  # warm up
        seen: dict[tuple[str, int], list[Seen]] = {
            (kind, slaves): [] for kind in KINDS for slaves in arguments.slaves}
        for number in range(arguments.rounds):
            for slaves in arguments.slaves if number % 2 else arguments.slaves[::-1]:
                for kind in KINDS if number % 2 else KINDS[::-1]:
                    seen[kind, slaves].append(
                        masters[kind].measure(slaves, arguments.count, arguments.size, arguments.threads))
    for kind in KINDS:
        for slaves in arguments.slaves:
            report(f"{role} {arguments.size} B {arguments.threads:2} threads {kind:6} {slaves:2} slaves",
                   seen[kind, slaves], seen[kind, arguments.slaves[0]])
            note(results, kind, seen[kind, slaves], role=role, size=arguments.size, threads=arguments.threads,
                 slaves=slaves)


def report(name: str, seen: list[Seen], least: list[Seen]) -> None:
    """Print the median round, and its rate as a part of that with the fewest slaves."""
    ordered = sorted(seen, key=lambda one: rate(one.timing))
    middle = ordered[len(ordered) // 2].timing
    parts = [rate(one.timing) / rate(first.timing) for one, first in zip(seen, least, strict=True)]

    def median(field: str) -> float:
        return statistics.median(getattr(one, field) for one in seen)

    say(f"{name} {rate(middle):7,.0f} msg/s  (min {rate(ordered[0].timing):,.0f}, max {rate(ordered[-1].timing):,.0f})"
        f"  latency {middle.median_us / 1000:.2f} ms, p99 {middle.p99_us / 1000:.2f} ms"
        f"  CPU us/msg: master {median('master_us'):.0f}, slaves {median('slaves_us'):.0f}, "
        f"client {median('client_us'):.0f}  rate {statistics.median(parts):.2f} of the first")


def note(results: Results, kind: str, seen: list[Seen], **case: str | int) -> None:
    """Record the rates of all rounds, and the CPU of each part per message."""
    results.row(kind, "rate", "msg/s", [rate(one.timing) for one in seen], **case)
    for part in ("master", "slaves", "client"):
        results.row(kind, f"CPU of the {part} per message", "us", [getattr(one, f"{part}_us") for one in seen], **case)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slaves", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roles", nargs="+", default=["SYNC_MASTER"], choices=ROLES)
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    results = Results("slaves", arguments)
    say(f"Python {platform.python_version()}, {os.path.realpath(sys.executable)}")
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as folder:
        driver = JavaDriver(Path(folder) / "driver")
        driver.start()
        try:
            for role in arguments.roles:
                compare(role, arguments, driver, Path(folder), results)
        finally:
            driver.shutdown()


if __name__ == "__main__":
    main()
