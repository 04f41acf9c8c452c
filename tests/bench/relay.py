"""The cost of a hop: the official Java client sends to the master, and through a replica that relays to it.

    python -m tests.bench.relay [--count 20000] [--size 1024] [--threads 16 1] [--rounds 5]

Three clusters on this machine take turns: two of rmqha with two replicas under a controller, and a SYNC pair of
RocketMQ 4.9. In one of rmqha's, the master registers the other replica's address (masterAddress), so the client's
route leads there. Each line has the median rate and the latency of one send; the ratios are medians of the rounds' own.
"""
import argparse
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.bench.send import LARGE_STORE, Cluster, rate, say
from tests.support import real_rocketmq
from tests.support.java_driver import JavaDriver, Timing, Workload
from tests.support.nodes import BrokerNode, ControllerNode, NamesrvNode, broker_keys, sync_state
from tests.support.wait import wait_until

_WAIT_MS = 60_000


class Replicas:
    """Two replicas under a controller. `through_relay`: clients reach the master through the other one."""

    def __init__(self, through_relay: bool, folder: Path, driver: JavaDriver, stack: ExitStack) -> None:
        self._driver, self._sent = driver, 0
        self.namesrv = NamesrvNode("rmqha", folder / "n").start()
        stack.callback(self.namesrv.stop)
        controller = ControllerNode("rmqha", folder / "c").start()
        stack.callback(controller.stop)
        nodes: list[BrokerNode] = []
        for number in range(2):
            home = folder / f"b{number}"
            nodes.append(BrokerNode("rmqha", home, self.namesrv.address, **{
                **LARGE_STORE, **broker_keys(home / "store", [controller.address], minInSyncReplicas=1)}))
        master, slave = nodes
        if through_relay:
            # Another name for the same address: a name server keeps each address under one id only.
            master.properties["masterAddress"] = f"localhost:{slave.port}"
            master.become("rmqha")
        for node in nodes:
            node.start()
            stack.callback(node.stop)
            wait_until(lambda: (sync_state([controller.address], "broker-a") or {}).get("masterAddress")
                       == master.address, _WAIT_MS, "the first broker is the master")
        wait_until(lambda: len(sync_state([controller.address], "broker-a")["inSyncReplicas"]) == 2, _WAIT_MS,
                   "two replicas in sync")
        driver.create_topic(self.namesrv.address, master.address, "bench")

    def send(self, count: int, size: int, threads: int) -> Timing:
        """Send `count` messages of `size` bytes."""
        load = Workload("bench", count, [size], first=self._sent)
        self._sent += count
        timing = self._driver.produce_timed(self.namesrv.address, load, threads)
        assert timing.acknowledged == count, f"only {timing.acknowledged} of {count} are acknowledged"
        return timing


def report(name: str, seen: dict[str, list[Timing]]) -> None:
    """Print each cluster's median, and what the hop takes."""
    for kind, timings in seen.items():
        middle = sorted(timings, key=rate)[len(timings) // 2]
        say(f"{name} {kind:8} {rate(middle):9,.0f} msg/s  latency {middle.median_us / 1000:.2f} ms, "
            f"p99 {middle.p99_us / 1000:.2f} ms")
    for other in ("direct", "java"):
        rates = [rate(one) / rate(two) for one, two in zip(seen["relayed"], seen[other], strict=True)]
        added = [one.median_us - two.median_us for one, two in zip(seen["relayed"], seen[other], strict=True)]
        say(f"{name} relayed / {other}: rate {statistics.median(rates):.2f}, median latency "
            f"{statistics.median(added) / 1000:+.2f} ms")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--threads", type=int, nargs="+", default=[16, 1])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as folder, ExitStack() as stack:
        driver = JavaDriver(Path(folder) / "driver")
        driver.start()
        stack.callback(driver.shutdown)
        clusters = {"direct": Replicas(False, Path(folder) / "direct", driver, stack),
                    "relayed": Replicas(True, Path(folder) / "relayed", driver, stack),
                    "java": Cluster("java", "SYNC_MASTER", Path(folder) / "java", driver, stack)}
        for cluster in clusters.values():
            for threads in arguments.threads:
                cluster.send(max(4000, arguments.count // 2), arguments.size, threads)  # warm up
        for threads in arguments.threads:
            seen: dict[str, list[Timing]] = {kind: [] for kind in clusters}
            count = arguments.count if threads > 1 else arguments.count // 4
            for number in range(arguments.rounds):
                for kind in list(clusters) if number % 2 else list(clusters)[::-1]:
                    seen[kind].append(clusters[kind].send(count, arguments.size, threads))
            report(f"{arguments.size} B {threads:2} threads", seen)


if __name__ == "__main__":
    main()
