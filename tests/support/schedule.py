"""The order in which test files run, the files that `-k` selects, and their compiled form, made once for all
processes."""
import heapq
import importlib.util
import itertools
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pytest

# The order of the test files: by durations.txt, which a whole run rewrites, or drawn by a seed.
#
# A long file that begins late leaves all other processes idle at the end, so the longest files are first. Files that
# wait most of their time are spread among those that compute, because the cores are idle when all processes wait.

FILE = Path(__file__).with_name("durations.txt")
LEAST_S = 4  # shorter files are not noted
_COMPUTING = 0.3  # of its time, with three processes per core
# Folders whose files run in one process, because each process that runs one of them would start Spark.
TOGETHER = ("tests/pipeline",)


class Took(NamedTuple):
    """Seconds that a file or a unit took, and its CPU seconds."""

    seconds: float
    cpu: float


@cache
def noted() -> dict[str, Took]:
    """Return test file, relative to the root -> its times."""
    rows = (line.split() for line in FILE.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {path: Took(float(seconds), float(cpu)) for seconds, cpu, path in rows}


def write(seconds: Mapping[str, float], cpu: Mapping[str, float]) -> None:
    """Note the times of the files of a whole run, the longest first."""
    noted = [(path, took) for path, took in Counter(seconds).most_common() if took >= LEAST_S]
    rows = [f"{took:5.0f} {cpu[path]:5.0f} {path}\n" for path, took in noted]
    head = (f"# seconds, CPU in seconds, test file; `RMQHA_NOTE_DURATIONS=1 bin/test` writes it again\n"
            f"# all files, the short ones too: {sum(seconds.values()):.0f} s, CPU {sum(cpu.values()):.0f} s\n")
    FILE.write_text(head + "".join(rows), "utf-8")


_SHORT = Took(0.5, 0.5)  # files that are not noted


def unit(path: str) -> str:
    """Return the unit that one process runs as a whole: a test file, or its folder."""
    return next((folder for folder in TOGETHER if path.startswith(folder + "/")), path)


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Put the units of noted files first: the longest of those that wait and of those that compute, interleaved so
    that both kinds last equally long. The others stay in their order."""
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
    """Merge the names of all kinds, each in its order: the next name is of the kind with the smallest finished
    share."""
    def begins(kind: list[tuple[str, float]]) -> Iterator[tuple[float, str]]:
        ends = [0.0, *itertools.accumulate(seconds for _name, seconds in kind)]
        return ((begin / ends[-1], name) for begin, (name, _seconds) in zip(ends, kind, strict=False))
    return [name for _begin, name in heapq.merge(*map(begins, kinds), key=itemgetter(0))]


def path_of(nodeid: str) -> str:
    """Return the test file of a test."""
    return nodeid.partition("::")[0]


def shuffled(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Put units in the order that a seed draws, and the tests of each unit, too."""
    def drawn(text: str) -> float:
        return random.Random(f"{seed} {text}").random()
    return sorted(items, key=lambda item: (drawn(unit(path_of(item.nodeid))), unit(path_of(item.nodeid)),
                                           drawn(item.nodeid)))


# Words of `-k`: only files that may contain one of them are loaded, so that the first test runs within a second.

_WORD = re.compile(r"[^\s()]+")
_OPERATORS = {"and", "or", "not"}


def words(expression: str) -> list[str]:
    """Return the words of a -k expression whose presence decides; [] if no file can be left out (it has a `not`)."""
    found = [word.lower() for word in _WORD.findall(expression)]
    return [] if "not" in found else [word for word in found if word not in _OPERATORS]


def is_met(word: str, path: str, text: str) -> bool:
    """Return whether a test of a file may have the word in its name, its parameters or its path.

    Parameters may be combined from several texts, so it is enough if a file has parts of a word, of at least three
    letters.
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", word) if len(part) > 2]
    return word in path.lower() or word in text or bool(parts) and parts != [word] and all(
        part in text for part in parts)


def may_match(expression: str, path: str, text: str) -> bool:
    """Return whether a file, by its path and contents, may have a test that a -k expression selects."""
    wanted, text = words(expression), text.lower()
    return not wanted or any(is_met(word, path, text) for word in wanted)


@cache
def is_met_anywhere(expression: str, root: Path) -> bool:
    """Return whether any test file may match. If none does, all are loaded, because code creates parameters."""
    return any(may_match(expression, file.relative_to(root).as_posix(), file.read_text("utf-8"))
               for file in test_files(root))


def test_files(root: Path) -> Iterable[Path]:
    """Yield all test files."""
    return (root / "tests").rglob("test_*.py")


test_files.__test__ = False


def is_left_out(expression: str, file: Path, root: Path) -> bool:
    """Return whether a file need not be loaded."""
    if not words(expression) or not file.name.startswith("test_") or not is_met_anywhere(expression, root):
        return False
    return not may_match(expression, file.relative_to(root).as_posix(), file.read_text("utf-8"))


# The test files as pytest compiles them, made once before several processes load them.
#
# Each process loads all test files. If pytest has yet to rewrite their asserts, that takes 9 s, and six processes that
# begin at the same time would all do the same work.

_FEW = 20  # any process rewrites these in less time than it takes to start one


def _is_rewritten(file: Path) -> bool:
    """Return whether pytest finds its compiled form of the file's current contents."""
    compiled = Path(importlib.util.cache_from_source(str(file)))
    made = file.stat().st_mtime
    return any(each.stat().st_mtime >= made
               for each in compiled.parent.glob(f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc"))


def rewrite(root: Path, files: Sequence[Path], processes: int) -> int:
    """Rewrite those of `files` that are not rewritten, in `processes` processes; return their number."""
    missing = [] if sys.dont_write_bytecode else sorted(
        (file for file in files if not _is_rewritten(file)), key=lambda file: -file.stat().st_size)
    if len(missing) < _FEW:
        return 0
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "RMQHA_TEST_"))}
    running = [subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-qq", *missing[part::processes]],
        cwd=root, env={**env, "RMQHA_TEST_TIER": "all"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for part in range(processes)]
    for process in running:
        process.wait()  # a broken file is found and reported when it is loaded
    return len(missing)
