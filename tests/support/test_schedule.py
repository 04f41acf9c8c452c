"""The order of the test files."""
import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import schedule
from tests.support.schedule import Took
from tests.support.sources import ROOT


@pytest.fixture
def some_noted(monkeypatch):
    """Two files of a folder that stays together, one between them in length."""
    took = {"tests/b.py": Took(9, 9), "tests/pipeline/x.py": Took(5, 1), "tests/pipeline/y.py": Took(6, 4)}
    monkeypatch.setattr(schedule, "noted", lambda: took)


def test_every_noted_file_is_there():
    assert schedule.noted() and [path for path in schedule.noted() if not (ROOT / path).is_file()] == []


def test_the_longest_unit_comes_first_and_stays_in_order(some_noted):
    names = ["tests/a.py::one", "tests/b.py::one", "tests/b.py::two", "tests/c.py::one", "tests/pipeline/x.py::one",
             "tests/pipeline/y.py::one"]
    ordered = [item.nodeid for item in schedule.longest_first([SimpleNamespace(nodeid=name) for name in names])]
    assert ordered == [*names[4:], *names[1:3], names[0], names[3]]


def test_files_that_wait_are_spread_among_those_that_compute(monkeypatch):
    """The longest of both first; where a quarter of the one kind has come, about a quarter of the other has."""
    waiting = {f"tests/w{number}.py": Took(40 - number, 3) for number in range(4)}
    computing = {f"tests/c{number:02}.py": Took(20 - number, 19) for number in range(12)}
    monkeypatch.setattr(schedule, "noted", lambda: dict(sorted((waiting | computing).items())))
    items = [SimpleNamespace(nodeid=f"{path}::one") for path in (*computing, "tests/short.py", *waiting)]
    order = [Path(item.nodeid.partition("::")[0]).stem for item in schedule.longest_first(items)]
    assert [name for name in order if name[0] == "w"] == ["w0", "w1", "w2", "w3"]
    assert [name for name in order if name[0] == "c"] == [f"c{number:02}" for number in range(12)]
    assert [order.index(name) for name in ("w0", "w1", "w2", "w3", "short")] == [0, 4, 7, 12, 16]


def test_a_seed_draws_an_order_of_units_and_of_the_tests_in_each(some_noted):
    items = [SimpleNamespace(nodeid=f"tests/{file}.py::{name}") for file in ("a", "b", "pipeline/x", "pipeline/y")
             for name in ("one", "two", "three")]
    orders = [[item.nodeid for item in schedule.shuffled(items[::step], seed)]
              for seed in map(str, range(40)) for step in (1, -1)]
    assert orders[::2] == orders[1::2], "the order of the collection is no part of it"
    for order in orders:
        units = [schedule.unit(schedule.path_of(name)) for name in order]
        assert sorted(order) == sorted(item.nodeid for item in items)
        assert [unit for unit, _ in itertools.groupby(units)] == list(dict.fromkeys(units)), "units stay together"
    assert len({tuple(order) for order in orders}) > 30


def test_what_is_noted_is_read_again(monkeypatch, tmp_path):
    monkeypatch.setattr(schedule, "FILE", tmp_path / "durations.txt")
    seconds = {"tests/a.py": 5.2, "tests/b.py": schedule.LEAST_S - 0.1, "tests/c.py": 70.0}
    schedule.write(seconds, Counter({"tests/c.py": 9}))
    assert list(schedule.noted.__wrapped__().items()) == [
        ("tests/c.py", Took(70.0, 9.0)), ("tests/a.py", Took(5.0, 0.0))]
