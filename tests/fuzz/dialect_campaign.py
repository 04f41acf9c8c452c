"""What reading texts of fastjson's dialect costs for a byte: `python -m tests.fuzz.dialect --inputs 200000 --seed 1`.

Each text is read as a header or a body of some of the classes that servers read. What is compared is CPU time of this
process, without what the same reader takes for `{a:0}`: that is paid for a request, not for its bytes. The yardstick is
the median of all readings of about that length for which rmqha's own parser was called and that were not refused: what
the standard library reads is read many times quicker, and has to stay below the same limit. A reading that
seems to cost more than `--times` of it is made again, and the least of five counts. Exit code 1 when one is left.
"""
import argparse
import logging
import math
import random
import statistics
import sys
import time
from dataclasses import dataclass

from rmqha.remoting.protocol import fastjson
from tests.fuzz.dialect import ALL, Text
from tests.fuzz.dialect_readers import Reader, all_readers

# Share of the inputs, by size: characters, about.
SHARES = {64: 0.12, 250: 0.23, 1000: 0.30, 4000: 0.24, 14_000: 0.10, 60_000: 0.008, 300_000: 0.002}
AGAIN = 5
FEW = 200  # readings of a size that are too few for a median of their own; it is then that of all sizes


@dataclass(frozen=True)
class Reading:
    """One text, read once. `asked`: the size it was made for; `cost`: microseconds of CPU time for a byte, without the
    fixed part."""

    reader: str
    text: Text
    asked: int
    length: int
    cost: float
    is_read: bool
    is_parsed: bool  # by `fastjson.parse`: token by token, the slow way

    @property
    def size(self) -> int:
        """The size of SHARES that its length is next to."""
        return min(SHARES, key=lambda size: abs(math.log(size / max(1, self.length))))

    def __str__(self) -> str:
        return (f"{self.cost:.3f} us a byte: {self.text.name}; {self.length} bytes, made for {self.asked}, as "
                f"{self.reader}, {'read' if self.is_read else 'refused'}")


class _ParserCalls:
    """Whether the parser was called within the block: `seen`."""

    def __enter__(self) -> "_ParserCalls":
        self.seen = False
        self._parse = fastjson.parse
        fastjson.parse = self._noted
        return self

    def __exit__(self, *_: object) -> None:
        fastjson.parse = self._parse

    def _noted(self, text: str, most_wide: int | None = None) -> object:
        self.seen = True
        return self._parse(text, most_wide)


def cpu_us(read: Reader, data: bytes, runs: int = 1) -> tuple[float, bool]:
    """(the least CPU time, whether it is read and not refused)."""
    best, is_read = float("inf"), True
    for _ in range(runs):
        begin = time.process_time_ns()
        try:
            read(data)
        except ValueError:
            is_read = False
        best = min(best, (time.process_time_ns() - begin) / 1000)
    return best, is_read


class Campaign:
    """`run` reads; `readings` are those so far, `worst` those that cost too much."""

    def __init__(self, seed: int, readers: dict[str, Reader] | None = None):
        self.readers = all_readers() if readers is None else readers
        self.readings: list[Reading] = []
        self._rng = random.Random(seed)
        self._fixed = {name: cpu_us(read, b"{a:0}", 25)[0] for name, read in self.readers.items()}

    def run(self, inputs: int, seconds_max: float = float("inf"), texts: list[Text] = ALL,
            shares: dict[int, float] | None = None) -> None:
        """Read so many, of each size its share, or fewer when the time is over. A text is made once for all its
        readers."""
        deadline = time.monotonic() + seconds_max
        names = list(self.readers)
        for size, share in (SHARES if shares is None else shares).items():
            count = round(inputs * share)
            each = max(2, -(-count // len(texts)))
            for text in self._rng.sample(texts, len(texts)):
                if count <= 0 or time.monotonic() > deadline:
                    break
                data = text.make(size).encode("utf-8", "replace")
                for name in self._rng.sample(names, min(each, len(names), count)):
                    self.readings.append(self._read(name, text, size, data))
                    count -= 1

    def _read(self, name: str, text: Text, asked: int, data: bytes, runs: int = 1) -> Reading:
        with _ParserCalls() as parser:
            took, is_read = cpu_us(self.readers[name], data, runs)
        cost = max(0.0, took - self._fixed[name]) / max(1, len(data))
        return Reading(name, text, asked, len(data), cost, is_read, parser.seen)

    def medians(self) -> dict[int, float]:
        """By size, of those that are parsed and not refused."""
        costs: dict[int, list[float]] = {}
        for one in self.readings:
            if one.is_read and one.is_parsed:
                costs.setdefault(one.size, []).append(one.cost)
        together = statistics.median(cost for some in costs.values() for cost in some)
        return {size: statistics.median(costs[size]) if len(costs.get(size, ())) >= FEW else together
                for size in {one.size for one in self.readings}}

    def worst(self, times: float) -> list[Reading]:
        """Those that cost more than `times` the median of their size, in each of some runs; the costliest first."""
        medians, found = self.medians(), []
        for one in self.readings:
            if one.cost > times * medians[one.size]:
                data = one.text.make(one.asked).encode("utf-8", "replace")
                again = self._read(one.reader, one.text, one.asked, data, AGAIN)
                if again.cost > times * medians[one.size]:
                    found.append(again)
        return sorted(found, key=lambda one: -one.cost / medians[one.size])


def report(campaign: Campaign, times: float, shown: int = 5) -> list[str]:
    """Lines: a size each, and the costliest of it as a multiple of the median."""
    medians, lines = campaign.medians(), []
    for size, median in sorted(medians.items()):
        own = sorted((one for one in campaign.readings if one.size == size), key=lambda one: -one.cost)
        refused = sum(not one.is_read for one in own)
        lines.append(f"size {size}: {len(own)} readings, {refused} refused, {median:.3f} us a byte in the median of "
                     f"those that were parsed, {statistics.median(one.cost for one in own):.3f} of all")
        lines += [f"    {one.cost / median:.1f} times it, once: {one}" for one in own[:shown]]
    return lines + [f"a fault costs more than {times:g} times the median of its size, the least of {AGAIN} runs"]


def main() -> int:
    """Read, and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.dialect", description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--times", type=float, default=10, help="of the median, that a byte may cost")
    parser.add_argument("--seconds-max", type=float, default=float("inf"), help="per run; what is left is not read")
    asked = parser.parse_args()
    logging.getLogger("RocketmqRemoting").addHandler(logging.NullHandler())  # a line for each field that is wrong
    logging.getLogger("RocketmqRemoting").propagate = False
    begin = time.monotonic()
    campaign = Campaign(asked.seed)
    campaign.run(asked.inputs, asked.seconds_max)
    found = campaign.worst(asked.times)
    sys.stdout.writelines(f"{line}\n" for line in report(campaign, asked.times))
    medians = campaign.medians()
    sys.stdout.writelines(f"FAULT {one.cost / medians[one.size]:.1f} times the median, {one}\n" for one in found)
    sys.stdout.write(f"{len(campaign.readings)} of {asked.inputs} readings of seed {asked.seed} by "
                     f"{len(campaign.readers)} readers in {time.monotonic() - begin:.0f} s, {len(found)} too costly\n")
    return 1 if found or len(campaign.readings) < asked.inputs else 0
