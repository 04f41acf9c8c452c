"""Messages per second that the official Java client gets acknowledged: rmqha's servers against the real ones.

    python -m tests.bench.send [--count 20000] [--sizes 1024] [--threads 16] [--rounds 3] [--roles SYNC_MASTER]
                               [--json F]

Servers and client share the machine, so the figures hold for this machine and load only; the ratio is what counts.
Rounds of the two kinds alternate, and so does which kind goes first. The output has the median of each kind, with
minimum and maximum, and the latency of one send (median and p99 of the median round). The ratio is the median of the
rounds' own ratios, with its quartiles: a machine that is slow for a minute is slow for both kinds. One thread sends a
quarter of the count.
"""
import argparse
import os
import platform
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench import KINDS, OTHER
from tests.bench.results import Results, add_json
from tests.support import real_rocketmq
from tests.support.java_driver import JavaDriver, Timing, Workload
from tests.support.nodes import BrokerNode, NamesrvNode

LARGE_STORE = {"mappedFileSizeCommitLog": 256 << 20, "mappedFileSizeConsumeQueue": 6_000_000,
               "maxHashSlotNum": 1_000_000, "maxIndexNum": 4_000_000}
ROLES = ("ASYNC_MASTER", "SYNC_MASTER")


class Cluster:
    """A name server, a master and a slave of one kind, with one topic."""

    def __init__(self, kind: str, role: str, folder: Path, driver: JavaDriver, stack: ExitStack) -> None:
        self.driver = driver
        self.namesrv = stack.enter_context(_running(NamesrvNode(kind, folder / "n")))
        options = dict(LARGE_STORE, brokerRole=role)
        self.master = stack.enter_context(_running(BrokerNode(kind, folder / "m", self.namesrv.address, **options)))
        options.update(brokerRole="SLAVE", brokerId=1, haMasterAddress=self.master.ha_address)
        stack.enter_context(_running(BrokerNode(kind, folder / "s", self.namesrv.address, **options)))
        driver.create_topic(self.namesrv.address, self.master.address, "bench")
        self.master.wait_for_slave()
        self.sent = 0

    def send(self, count: int, size: int, threads: int) -> Timing:
        """Send `count` messages of `size` bytes."""
        load = Workload("bench", count, [size], first=self.sent)
        self.sent += count
        timing = self.driver.produce_timed(self.namesrv.address, load, threads)
        if timing.acknowledged < count:
            say(f"  only {timing.acknowledged} of {count} acknowledged")
        return timing


class _running:  # used like a function
    """Start a server, and stop it at the end."""

    def __init__(self, node) -> None:
        self.node = node

    def __enter__(self):
        self.node.start()
        return self.node

    def __exit__(self, *_exc) -> None:
        self.node.stop()


def compare(role: str, arguments: argparse.Namespace, driver: JavaDriver, folder: Path, results: Results) -> None:
    """Alternate between the kinds, for each number of threads and size; print the medians and their ratios."""
    with ExitStack() as stack:
        clusters = {kind: Cluster(kind, role, folder / f"{role}-{kind}", driver, stack) for kind in KINDS}
        for cluster in clusters.values():
            for threads in (16, 1):
                cluster.send(max(4000, arguments.count // 2), 1024, threads)  # warm up
        for size in arguments.sizes:
            for threads in arguments.threads:
                seen: dict[str, list[Timing]] = {kind: [] for kind in KINDS}
                count = arguments.count if threads > 1 else arguments.count // 4
                for number in range(arguments.rounds):
                    for kind in KINDS if number % 2 else KINDS[::-1]:
                        seen[kind].append(clusters[kind].send(count, size, threads))
                report(f"{role} {size} B {threads:2} threads", seen)
                note(results, seen, role=role, size=size, threads=threads)


def rate(timing: Timing) -> float:
    """Return acknowledged messages per second."""
    return timing.acknowledged / timing.seconds


def report(name: str, seen: dict[str, list[Timing]]) -> None:
    """Print the median round of each kind, and the ratio of the rates, round by round."""
    medians = {}
    for kind, timings in seen.items():
        ordered = sorted(timings, key=rate)
        medians[kind] = middle = ordered[len(ordered) // 2]
        say(f"{name} {kind:6} {rate(middle):9,.0f} msg/s  (min {rate(ordered[0]):,.0f}, max {rate(ordered[-1]):,.0f})"
            f"  latency {middle.median_us / 1000:.2f} ms, p99 {middle.p99_us / 1000:.2f} ms")
    ratios = [rate(ours) / rate(real) for ours, real in zip(seen["rmqha"], seen[OTHER], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    say(f"{name} rmqha / {OTHER}: rate {middle:.2f} (quartiles {low:.2f}, {high:.2f}; by the medians "
        f"{rate(medians['rmqha']) / rate(medians[OTHER]):.2f}), "
        f"p99 {medians['rmqha'].p99_us / max(1, medians[OTHER].p99_us):.2f}")


def note(results: Results, seen: dict[str, list[Timing]], **case: str | int) -> None:
    """Record rates and latencies of all rounds. Shares of latencies for which there are too few sends are left out,
    except the slowest."""
    for kind, timings in seen.items():
        results.row(kind, "rate", "msg/s", map(rate, timings), **case)
        results.row(kind, "latency", "ms", [
            [(share, us / 1000) for share, us in timing.latency_us.items()
             if share == 1 or timing.acknowledged * (1 - share) >= 1] for timing in timings], **case)


def say(text: str) -> None:
    """Print one line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure both roles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roles", nargs="+", default=list(ROLES), choices=ROLES)
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    results = Results("send", arguments)
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
