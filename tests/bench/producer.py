"""RocketMQ's own benchmark producer against the real broker and rmqha: rate, CPU and memory, and the ratios.

    python -m tests.bench.producer --git <bare repository of apache/rocketmq> [--sizes 128 1024] [--threads 1 16 64]
        [--seconds 12.5] [--rounds 3] [--roles ASYNC_MASTER] [--json F]

org.apache.rocketmq.example.benchmark.Producer is published as source only, so it is taken from the tag of the jars and
compiled. It runs for `--seconds` in each round and prints its rate every 10 s; the last rate counts. Both brokers run
all the time, and the rounds alternate between them, because machines drift. A first run with all threads lets the
compilers do their work. Each figure is the median of its rounds, each ratio the median of the rounds' ratios. CPU is
that of the broker over the whole round, per million stored messages. There is no slave. Servers and producer share the
machine, so only the ratio counts.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import MessageQueue
from tests.bench import KINDS, OTHER
from tests.bench.results import Results, add_json
from tests.bench.send import LARGE_STORE, _running, say
from tests.support import real_rocketmq
from tests.support.java_driver import JavaDriver
from tests.support.nodes import BrokerNode, NamesrvNode

_PACKAGE = "example/src/main/java/org/apache/rocketmq/example/benchmark"
_CLASS = "org.apache.rocketmq.example.benchmark.Producer"
_RATE = re.compile(r"Send TPS: (\d+) .*?Average RT\(ms\): +([\d.]+) Send Failed: (\d+) Response Failed: (\d+)")
_TOPIC, _QUEUES = "bench", 4


class Run(NamedTuple):
    """One run of the producer."""

    rate: int  # messages per second
    latency_ms: float  # average
    failed: int
    cpu_per_million: float  # seconds of the broker
    resident_mib: float


def producer_classes(git: str, folder: Path) -> Path:
    """Return the folder of the compiled producer."""
    sources = []
    for name in ("Producer.java", "AclClient.java"):
        path = f"rocketmq-all-{real_rocketmq.VERSION}:{_PACKAGE}/{name}"
        text = subprocess.run(["git", "--git-dir", git, "show", path], capture_output=True, check=True).stdout
        sources.append(folder / name)
        sources[-1].write_bytes(text)
    return real_rocketmq.compiled(real_rocketmq.jars(), sources)


def stored(namesrv: str) -> int:
    """Return the number of messages in the topic."""
    with DefaultMQProducer("bench_admin", namesrv) as client:
        return sum(client.admin.max_offset(MessageQueue(_TOPIC, "broker-a", queue)) for queue in range(_QUEUES))


def produce(namesrv: str, master: BrokerNode, classes: Path, threads: int, size: int, seconds: float) -> Run:
    """Run the producer once."""
    command = ["java", *real_rocketmq.FULL_SPEED.split(), "-cp", f"{real_rocketmq.jars()}/*:{classes}", _CLASS,
               "-n", namesrv, "-t", _TOPIC, "-w", str(threads), "-s", str(size)]
    broker = psutil.Process(master.pid)
    before, cpu = stored(namesrv), sum(broker.cpu_times()[:2])
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        time.sleep(seconds)
        process.kill()
        process.wait()
        output.seek(0)
        text = output.read()
    found = _RATE.findall(text)
    if not found:
        raise SystemExit(f"the producer printed no rate:\n{text[-2000:]}")
    used, count = sum(broker.cpu_times()[:2]) - cpu, stored(namesrv) - before
    rate, latency, *failed = found[-1]
    return Run(int(rate), float(latency), sum(map(int, failed)), used / count * 1e6, broker.memory_info().rss / 2**20)


class Side:
    """A name server and a master of one kind, which run until the stack is closed."""

    def __init__(self, kind: str, role: str, folder: Path, driver: JavaDriver, stack: ExitStack) -> None:
        self.namesrv = stack.enter_context(_running(NamesrvNode(kind, folder / "n"))).address
        self.master = stack.enter_context(_running(BrokerNode(
            kind, folder / "m", self.namesrv, **LARGE_STORE, brokerRole=role)))
        driver.create_topic(self.namesrv, self.master.address, _TOPIC, _QUEUES)


def compare(role: str, arguments: argparse.Namespace, classes: Path, folder: Path, driver: JavaDriver,
            results: Results) -> None:
    """Alternate between the kinds, for each size and number of threads; print medians and ratios."""
    with ExitStack() as stack:
        sides = {kind: Side(kind, role, folder / f"{role}-{kind}", driver, stack) for kind in KINDS}
        for side in sides.values():
            produce(side.namesrv, side.master, classes, max(arguments.threads), max(arguments.sizes),
                    arguments.seconds)
        for size in arguments.sizes:
            for threads in arguments.threads:
                runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
                for _ in range(arguments.rounds):
                    for kind, side in sides.items():
                        runs[kind].append(produce(side.namesrv, side.master, classes, threads, size,
                                                  arguments.seconds))
                report(f"{role} {size:5} B {threads:2} threads", runs)
                note(results, runs, role=role, size=size, threads=threads)


def report(name: str, runs: dict[str, list[Run]]) -> None:
    """Print the medians of each kind, and of the rounds' ratios."""
    for kind, of_kind in runs.items():
        rates = [run.rate for run in of_kind]
        rate, latency_ms, _failed, cpu, resident = (statistics.median(values) for values in zip(*of_kind, strict=True))
        say(f"{name} {kind:6} {rate:8,.0f} msg/s (min {min(rates):,}, max {max(rates):,})  "
            f"average {latency_ms:.3f} ms  {cpu:6.1f} CPU s per million  {resident:5.0f} MiB resident  "
            f"{sum(run.failed for run in of_kind)} failed")

    def ratio(field: str) -> float:
        return statistics.median(getattr(ours, field) / getattr(other, field)
                                 for other, ours in zip(runs[OTHER], runs["rmqha"], strict=True))
    say(f"{name} rmqha / {OTHER}: rate {ratio('rate'):.2f}, CPU {ratio('cpu_per_million'):.2f}, "
        f"resident {ratio('resident_mib'):.2f}")


def note(results: Results, runs: dict[str, list[Run]], **case: str | int) -> None:
    """Record all rounds."""
    for kind, of_kind in runs.items():
        results.row(kind, "rate", "msg/s", [run.rate for run in of_kind], **case)
        results.row(kind, "average latency", "ms", [run.latency_ms for run in of_kind], **case)
        results.row(kind, "CPU per million messages", "s", [run.cpu_per_million for run in of_kind], **case)
        results.row(kind, "resident memory", "MiB", [run.resident_mib for run in of_kind], **case)


def main() -> None:
    """Measure both kinds, alternating."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--git", required=True, help="a (bare) repository of apache/rocketmq with its tags")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=12.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roles", nargs="+", default=["ASYNC_MASTER"])
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    results = Results("producer", arguments)
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as name:
        folder = Path(name)
        driver = JavaDriver(folder / "driver")
        driver.start()
        try:
            classes = producer_classes(arguments.git, folder)
            for role in arguments.roles:
                compare(role, arguments, classes, folder, driver, results)
        finally:
            driver.shutdown()


if __name__ == "__main__":
    sys.exit(main())
