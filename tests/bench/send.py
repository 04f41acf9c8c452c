"""How many messages per second the official Java client gets acknowledged: rmqha's servers against the real ones.

    python -m tests.bench.send [--count 20000] [--size 1024] [--threads 16] [--rounds 3]

Servers and client share the machine, so the figures are of this machine and load; the ratio is what counts. Rounds of
the two kinds alternate; the median of each kind is printed, with the least and the most.
"""
import argparse
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.java_driver import JavaDriver, Workload
from tests.support.nodes import BrokerNode, NamesrvNode

LARGE_STORE = {"mappedFileSizeCommitLog": 256 << 20, "mappedFileSizeConsumeQueue": 6_000_000,
               "maxHashSlotNum": 1_000_000, "maxIndexNum": 4_000_000}
ROLES = ("ASYNC_MASTER", "SYNC_MASTER")


class Cluster:
    """Name server, master and slave of one kind, with one topic."""

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

    def rate(self, count: int, size: int, threads: int) -> float:
        """Send `count` messages of `size` bytes; acknowledged messages per second."""
        load = Workload("bench", count, [size], first=self.sent)
        self.sent += count
        begin = time.monotonic()
        results = self.driver.produce(self.namesrv.address, load, threads)
        elapsed = time.monotonic() - begin
        acknowledged = sum(one.ok for one in results)
        if acknowledged < count:
            sys.stdout.write(f"  only {acknowledged} of {count} acknowledged\n")
        return acknowledged / elapsed


class _running:  # noqa: N801 - used like a function
    """Start a server, and end it."""

    def __init__(self, node) -> None:
        self.node = node

    def __enter__(self):
        self.node.start()
        return self.node

    def __exit__(self, *_exc) -> None:
        self.node.stop()


def compare(role: str, arguments: argparse.Namespace, driver: JavaDriver, folder: Path) -> None:
    """Alternate between the kinds and print the medians and their ratio."""
    rates: dict[str, list[float]] = {"java": [], "rmqha": []}
    with ExitStack() as stack:
        clusters = {kind: Cluster(kind, role, folder / f"{role}-{kind}", driver, stack) for kind in rates}
        for cluster in clusters.values():
            cluster.rate(max(2000, arguments.count // 4), arguments.size, arguments.threads)  # warm up
        for _ in range(arguments.rounds):
            for kind, cluster in clusters.items():
                rates[kind].append(cluster.rate(arguments.count, arguments.size, arguments.threads))
    for kind, seen in rates.items():
        sys.stdout.write(f"{role:13} {kind:6} {statistics.median(seen):9,.0f} msg/s  (min {min(seen):,.0f}, "
                         f"max {max(seen):,.0f})\n")
    ratio = statistics.median(rates["rmqha"]) / statistics.median(rates["java"])
    sys.stdout.write(f"{role:13} rmqha / java: {ratio:.2f}\n")


def main() -> None:
    """Measure both roles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as folder:
        driver = JavaDriver(Path(folder) / "driver")
        driver.start()
        try:
            for role in ROLES:
                compare(role, arguments, driver, Path(folder))
        finally:
            driver.shutdown()


if __name__ == "__main__":
    main()
