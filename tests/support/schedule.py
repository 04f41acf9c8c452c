"""Which test files run first: by durations.txt, which a whole run writes again, or as a seed draws.

A long file that begins late leaves all processes but one idle at the end: the longest come first.
"""
import random
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.txt")
LEAST_S = 4  # files below it are not noted
# Folders whose files one process runs: each process that runs one of them would start Spark.
TOGETHER = ("tests/pipeline",)


@cache
def noted() -> dict[str, float]:
    """Test file, relative to the root -> the seconds it took."""
    rows = (line.split() for line in FILE.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {path: float(seconds) for seconds, _cpu, path in rows}


def write(seconds: Mapping[str, float], cpu: Mapping[str, float]) -> None:
    """Note what the files of a whole run took, the longest first."""
    noted = [(path, took) for path, took in Counter(seconds).most_common() if took >= LEAST_S]
    rows = [f"{took:5.0f} {cpu[path]:5.0f} {path}\n" for path, took in noted]
    head = (f"# seconds, CPU in seconds, test file; `RMQHA_NOTE_DURATIONS=1 bin/test` writes it again\n"
            f"# all files, the short ones too: {sum(seconds.values()):.0f} s, CPU {sum(cpu.values()):.0f} s\n")
    FILE.write_text(head + "".join(rows), "utf-8")


def unit(path: str) -> str:
    """What one process runs as a whole: a test file, or its folder."""
    return next((folder for folder in TOGETHER if path.startswith(folder + "/")), path)


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests whose files are noted come first, the longest unit at the front; the others stay in their order."""
    seconds: Counter[str] = Counter()
    for path, took in noted().items():
        seconds[unit(path)] += took
    return sorted(items, key=lambda item: -seconds[unit(path_of(item.nodeid))])


def path_of(nodeid: str) -> str:
    """The test file of a test."""
    return nodeid.partition("::")[0]



def shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Units in the order that a seed draws, and the tests of each in such an order."""
    def drawn(text: str) -> float:
        return random.Random(f"{seed} {text}").random()
    return sorted(items, key=lambda item: (drawn(unit(path_of(item.nodeid))), unit(path_of(item.nodeid)),
                                           drawn(item.nodeid)))
