"""Which test files run first: by durations.txt, which a whole run writes again, or as a seed draws.

A long file that begins late leaves all processes but one idle at the end: the longest come first. Files that wait most
of their time are spread among those that compute: when all processes run such ones, the cores have nothing to do.
"""
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pytest

FILE = Path(__file__).with_name("durations.txt")
LEAST_S = 4  # files below it are not noted
_COMPUTING = 0.3  # of its time, where as many processes as three for each core run side by side
# Folders whose files one process runs: each process that runs one of them would start Spark.
TOGETHER = ("tests/pipeline",)


class Took(NamedTuple):
    """Seconds that a file, or all of a unit, took, and seconds of CPU."""

    seconds: float
    cpu: float


@cache
def noted() -> dict[str, Took]:
    """Test file, relative to the root -> what it took."""
    rows = (line.split() for line in FILE.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {path: Took(float(seconds), float(cpu)) for seconds, cpu, path in rows}


def write(seconds: Mapping[str, float], cpu: Mapping[str, float]) -> None:
    """Note what the files of a whole run took, the longest first."""
    noted = [(path, took) for path, took in Counter(seconds).most_common() if took >= LEAST_S]
    rows = [f"{took:5.0f} {cpu[path]:5.0f} {path}\n" for path, took in noted]
    head = (f"# seconds, CPU in seconds, test file; `RMQHA_NOTE_DURATIONS=1 bin/test` writes it again\n"
            f"# all files, the short ones too: {sum(seconds.values()):.0f} s, CPU {sum(cpu.values()):.0f} s\n")
    FILE.write_text(head + "".join(rows), "utf-8")


_SHORT = Took(0.5, 0.5)  # what is not noted


def unit(path: str) -> str:
    """What one process runs as a whole: a test file, or its folder."""
    return next((folder for folder in TOGETHER if path.startswith(folder + "/")), path)


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The units whose files are noted come first, of those that wait and of those that compute the longest each, so
    that both kinds last as long; the others stay in their order."""
    took: dict[str, Took] = {}
    for path, (seconds, cpu) in noted().items():
        before = took.get(unit(path), Took(0, 0))
        took[unit(path)] = Took(before.seconds + seconds, before.cpu + cpu)
    units = dict.fromkeys(unit(path_of(item.nodeid)) for item in items)
    waiting, computing = [], []
    for name in sorted(units, key=lambda name: -took.get(name, _SHORT).seconds):
        seconds, cpu = took.get(name, _SHORT)
        (waiting if cpu < _COMPUTING * seconds else computing).append((name, seconds))
    place = {name: number for number, name in enumerate(_merged(waiting, computing))}
    return sorted(items, key=lambda item: place[unit(path_of(item.nodeid))])


def _merged(*kinds: list[tuple[str, float]]) -> list[str]:
    """The names of all kinds, each in its order: next comes of the kind of which the smallest part has come."""
    def begins(kind: list[tuple[str, float]]) -> Iterator[tuple[float, str]]:
        ends = [0.0, *itertools.accumulate(seconds for _name, seconds in kind)]
        return ((begin / ends[-1], name) for begin, (name, _seconds) in zip(ends, kind, strict=False))
    return [name for _begin, name in heapq.merge(*map(begins, kinds), key=itemgetter(0))]


def path_of(nodeid: str) -> str:
    """The test file of a test."""
    return nodeid.partition("::")[0]


def shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Units in the order that a seed draws, and the tests of each in such an order."""
    def drawn(text: str) -> float:
        return random.Random(f"{seed} {text}").random()
    return sorted(items, key=lambda item: (drawn(unit(path_of(item.nodeid))), unit(path_of(item.nodeid)),
                                           drawn(item.nodeid)))
