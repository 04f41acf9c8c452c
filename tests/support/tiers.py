"""The tests that run: those of the chosen tier and of the tiers below it.

    basic  bin/test       no Java, no Spark, no etcd, no walks through pages; real servers of ours included
    all    bin/test all   the real RocketMQ, Spark, etcd, the pages, small campaigns
    long   bin/test long  large campaigns, minutes' timers of the real servers

A test is basic unless its marks, its fixtures or its folder name a higher tier. If tests are named (a file, a folder, a
word after -k), tiers up to `all` run.
"""
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

TIERS = ("basic", "all", "long")
VARIABLE, LEAST_VARIABLE = "RMQHA_TEST_TIER", "RMQHA_TEST_LEAST_TIER"
MARKS = {"java": "all", "spark": "all", "etcd": "all"}
FIXTURES = {"java_driver": "all", "spark": "all", "etcd": "all", "make_hosts": "all"}
FOLDERS = {"tests/pipeline": "all"}  # its extras are several hundred megabytes
in_all = pytest.mark.tier("all")
in_long = pytest.mark.tier("long")
# Scans of all sources: their result is the same on every Python.
of_sources = in_all

_Size = TypeVar("_Size")
# The marks of a whole file, if they are all on one line.
_FILE_MARKS = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)
_MARK = re.compile(r"pytest\.mark\.(\w+)|\b(in_all|in_long)\b")


def chosen() -> str:
    """Return the tier that runs; "all" if none is chosen, in a process that helps a test."""
    return _valid(os.environ.get(VARIABLE, "all"), VARIABLE)


def least() -> str:
    """Return the lowest tier that runs; the tiers below it have already run."""
    return _valid(os.environ.get(LEAST_VARIABLE, "basic"), LEAST_VARIABLE)


def choose(names_tests: bool) -> None:
    """Choose the tier of this process and its children by whether tests were named, unless the environment chooses
    it."""
    os.environ.setdefault(VARIABLE, "all" if names_tests else "basic")
    chosen(), least()


def pick(basic: _Size, all: _Size | None = None, long: _Size | None = None) -> _Size:
    """Return the size of a test in the chosen tier; a tier without its own size has that of the next lower one."""
    sizes = [basic]
    for size in (all, long):
        sizes.append(sizes[-1] if size is None else size)
    return sizes[TIERS.index(chosen())]


def drawn(examples: int) -> int:
    """Return the number of examples of a property: half in the basic tier, which draws the same ones each time."""
    return pick(max(examples // 2, min(examples, 50)), all=examples)


def tier_of(path: str, marks: Iterable[pytest.Mark] = (), fixtures: Iterable[str] = ()) -> str:
    """Return the tier of a test of the file `path` (relative to the root): the highest that anything about it names."""
    named = [FOLDERS[folder] for folder in FOLDERS if path.startswith(folder + "/")]
    named += [mark.args[0] if mark.name == "tier" else MARKS.get(mark.name, "basic") for mark in marks]
    named += [FIXTURES[name] for name in FIXTURES.keys() & set(fixtures)]
    return max(named, key=TIERS.index, default="basic")


def runs(tier: str) -> bool:
    """Return whether tests of a tier run."""
    return TIERS.index(least()) <= TIERS.index(tier) <= TIERS.index(chosen())


@cache
def runs_none_of(path: Path, name: str) -> bool:
    """Return whether no test of the file `path`, called `name` from the root, runs, as far as that is known without
    loading it."""
    line = _FILE_MARKS.search(path.read_text("utf-8"))
    words = [mark or short for mark, short in _MARK.findall(line[1])] if line else []
    tier = tier_of(name, [*(getattr(pytest.mark, word).mark for word in words if word in MARKS),
                          *({"in_all": in_all, "in_long": in_long}[word].mark for word in words if word in
                            ("in_all", "in_long"))])
    return TIERS.index(tier) > TIERS.index(chosen())


def _valid(tier: str, variable: str) -> str:
    if tier not in TIERS:
        raise pytest.UsageError(f"{variable}={tier}: one of {', '.join(TIERS)}")
    return tier
