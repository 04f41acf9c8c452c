"""The order of the test files, and what is quick."""
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.support import schedule
from tests.support.sources import ROOT


@pytest.fixture
def some_noted(monkeypatch):
    """Two files of a folder that stays together, one between them in length."""
    took = {"tests/b.py": 9, "tests/pipeline/x.py": 5, "tests/pipeline/y.py": 6}
    monkeypatch.setattr(schedule, "noted", lambda: took)


def test_every_noted_file_is_there():
    assert schedule.noted() and [path for path in schedule.noted() if not (ROOT / path).is_file()] == []


def test_the_longest_unit_comes_first_and_stays_in_order(some_noted):
    names = ["tests/a.py::one", "tests/b.py::one", "tests/b.py::two", "tests/c.py::one", "tests/pipeline/x.py::one",
             "tests/pipeline/y.py::one"]
    ordered = [item.nodeid for item in schedule.longest_first([SimpleNamespace(nodeid=name) for name in names])]
    assert ordered == [*names[4:], *names[1:3], names[0], names[3]]


@pytest.mark.parametrize("path, fixtures, marks, quick", [
    ("tests/a.py", ["tmp_path"], ["timeout"], True), ("tests/b.py", [], [], False),
    ("tests/pipeline/z.py", [], [], False), ("tests/a.py", ["make_broker", "nodes"], [], False),
    ("tests/a.py", [], ["java"], False)])
def test_what_starts_nothing_and_is_short_is_quick(some_noted, path, fixtures, marks, quick):
    assert schedule.is_quick(path, fixtures, marks) is quick


def test_what_is_noted_is_read_again(monkeypatch, tmp_path):
    monkeypatch.setattr(schedule, "FILE", tmp_path / "durations.txt")
    seconds = {"tests/a.py": 5.2, "tests/b.py": schedule.LEAST_S - 0.1, "tests/c.py": 70.0}
    schedule.write(seconds, Counter({"tests/c.py": 9}))
    assert list(schedule.noted.__wrapped__().items()) == [("tests/c.py", 70.0), ("tests/a.py", 5.0)]
