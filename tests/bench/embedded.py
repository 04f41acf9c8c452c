"""Benchmark of RocketMQ in a test's own process: a start, a reset, and the sample project of 30 tests.

    python -m tests.bench.embedded [--rounds 20]

Prints the milliseconds of the fastest, the median and the slowest round for each topology; then the seconds that pytest
reports for `docs/examples/testing`, in one process and with two workers.
"""
import argparse
import re
import statistics
import subprocess
import sys
import time

from rmqha.testing import EmbeddedRocketMQ
from tests.bench.send import say
from tests.support.sources import ROOT

_SAMPLE = ROOT / "docs" / "examples" / "testing"
_SECONDS = re.compile(r"passed.* in ([\d.]+)s")
TOPOLOGIES = ("1m", "1m-1s", "2m-2s")


def measure(topology: str, rounds: int) -> None:
    """Measure starts and resets of one topology."""
    ready, reset = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        with EmbeddedRocketMQ(topology) as mq:
            ready.append((time.perf_counter() - begin) * 1000)
            begin = time.perf_counter()
            mq.reset()
            reset.append((time.perf_counter() - begin) * 1000)
    for name, values in (("ready", ready), ("reset", reset)):
        say(f"{topology:6} {name}: {min(values):6.1f} ms  median {statistics.median(values):6.1f}  "
            f"slowest {max(values):6.1f}")


def sample(*options: str) -> None:
    """Run the sample project once."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options], cwd=_SAMPLE,
                          capture_output=True, text=True, check=True)
    say(f"sample project {' '.join(options):6} {_SECONDS.findall(done.stdout)[-1]} s")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    for topology in TOPOLOGIES:
        measure(topology, arguments.rounds)
    for options in ((), (), ("-n", "2"), ("-n", "2")):
        sample(*options)


if __name__ == "__main__":
    main()
