"""The order in which test files run, the files that are loaded, their tiers and their compiled form."""
import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import schedule, tiers
from tests.support.schedule import Took, rewrite
from tests.support.sources import ROOT

# The order of the test files.


@pytest.fixture
def some_noted(monkeypatch):
    """Note two files of a folder that stays together, and one with a length between theirs."""
    took = {"tests/b.py": Took(9, 9), "tests/pipeline/x.py": Took(5, 1), "tests/pipeline/y.py": Took(6, 4)}
    monkeypatch.setattr(schedule, "noted", lambda: took)


def test_every_noted_file_exists():
    assert schedule.noted() and [path for path in schedule.noted() if not (ROOT / path).is_file()] == []


def test_longest_unit_is_first_and_keeps_its_order(some_noted):
    names = ["tests/a.py::one", "tests/b.py::one", "tests/b.py::two", "tests/c.py::one", "tests/pipeline/x.py::one",
             "tests/pipeline/y.py::one"]
    ordered = [item.nodeid for item in schedule.longest_first([SimpleNamespace(nodeid=name) for name in names])]
    assert ordered == [*names[4:], *names[1:3], names[0], names[3]]


def test_waiting_files_are_spread_among_computing_ones(monkeypatch):
    """The longest of both kinds are first; after a quarter of one kind, about a quarter of the other has run."""
    waiting = {f"tests/w{number}.py": Took(40 - number, 3) for number in range(4)}
    computing = {f"tests/c{number:02}.py": Took(20 - number, 19) for number in range(12)}
    monkeypatch.setattr(schedule, "noted", lambda: dict(sorted((waiting | computing).items())))
    items = [SimpleNamespace(nodeid=f"{path}::one") for path in (*computing, "tests/short.py", *waiting)]
    order = [Path(item.nodeid.partition("::")[0]).stem for item in schedule.longest_first(items)]
    assert [name for name in order if name[0] == "w"] == ["w0", "w1", "w2", "w3"]
    assert [name for name in order if name[0] == "c"] == [f"c{number:02}" for number in range(12)]
    assert [order.index(name) for name in ("w0", "w1", "w2", "w3", "short")] == [0, 4, 7, 12, 16]


def test_seed_draws_an_order_of_units_and_of_the_tests_in_each(some_noted):
    items = [SimpleNamespace(nodeid=f"tests/{file}.py::{name}") for file in ("a", "b", "pipeline/x", "pipeline/y")
             for name in ("one", "two", "three")]
    orders = [[item.nodeid for item in schedule.shuffled(items[::step], seed)]
              for seed in map(str, range(40)) for step in (1, -1)]
    assert orders[::2] == orders[1::2], "the order depends on the collection"
    for order in orders:
        units = [schedule.unit(schedule.path_of(name)) for name in order]
        assert sorted(order) == sorted(item.nodeid for item in items)
        assert [unit for unit, _ in itertools.groupby(units)] == list(dict.fromkeys(units)), "a unit is split"
    assert len({tuple(order) for order in orders}) > 30


def test_noted_times_are_read_again(monkeypatch, tmp_path):
    monkeypatch.setattr(schedule, "FILE", tmp_path / "durations.txt")
    seconds = {"tests/a.py": 5.2, "tests/b.py": schedule.LEAST_S - 0.1, "tests/c.py": 70.0}
    schedule.write(seconds, Counter({"tests/c.py": 9}))
    assert list(schedule.noted.__wrapped__().items()) == [
        ("tests/c.py", Took(70.0, 9.0)), ("tests/a.py", Took(5.0, 0.0))]


# The files that a -k expression loads.


@pytest.mark.parametrize("expression, path, text, may", [
    ("commit", "tests/store/test_commit_log.py", "", True), ("Commit", "tests/a.py", "def test_COMMIT", True),
    ("commit", "tests/a.py", "nothing", False), ("a_b or other", "tests/x.py", "an other", True),
    ("one and two", "tests/x.py", "two", True), ("not one", "tests/x.py", "", True),
    ("(one or not two)", "tests/x.py", "", True), ("", "tests/x.py", "", True),
    ("rmqha-java5", "tests/x.py", '("rmqha", "java5")', True), ("rmqha-java5", "tests/x.py", '("rmqha",)', False)])
def test_file_is_loaded_when_a_word_may_match(expression, path, text, may):
    assert schedule.may_match(expression, path, text) is may


def test_word_that_no_file_has_leaves_nothing_out():
    files = [ROOT / "tests" / "support" / "test_schedule.py", ROOT / "tests" / "test_tidy.py"]
    nowhere = "nobody" + "writes" + "this"
    assert not any(schedule.is_left_out(nowhere, file, ROOT) for file in files)
    assert [schedule.is_left_out("leaves_nothing_out", file, ROOT) for file in files] == [False, True]


# Test files are compiled once for all processes that load them.


@pytest.mark.skipif(sys.dont_write_bytecode, reason="bytecode is not written")
def test_files_are_rewritten_once_and_again_when_they_change(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "_FEW", 2)
    files = [tmp_path / f"test_{name}.py" for name in ("one", "two", "three", "wrong")]
    for file in files:
        file.write_text("def test_it(): assert 1 + 1 == 2\n" if file.stem != "test_wrong" else "import nothing\n")
    assert rewrite(tmp_path, files, 2) == 4
    assert rewrite(tmp_path, files, 2) == 0
    for file in files[:2]:
        later = file.stat().st_mtime + 10
        file.write_text("def test_it(): assert 2 + 2 == 4\n")
        os.utime(file, (later, later))
    assert rewrite(tmp_path, files, 2) == 2


def test_nothing_is_compiled_in_advance_without_bytecode(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rewrite(tmp_path, [tmp_path / f"test_{number}.py" for number in range(30)], 2) == 0


# The tests that run in each tier.

JAVA, SPARK, TIMEOUT = (getattr(pytest.mark, name).mark for name in ("java", "spark", "timeout"))


@pytest.mark.parametrize("path, marks, fixtures, tier", [
    ("tests/a.py", [], ["tmp_path", "make_broker"], "basic"), ("tests/a.py", [TIMEOUT], [], "basic"),
    ("tests/a.py", [TIMEOUT, JAVA], [], "all"), ("tests/a.py", [SPARK], [], "all"),
    ("tests/a.py", [], ["java_driver"], "all"), ("tests/pipeline/a.py", [], [], "all"),
    ("tests/pipelines.py", [], [], "basic"), ("tests/a.py", [tiers.in_all.mark], [], "all"),
    ("tests/a.py", [tiers.in_long.mark], [], "long"), ("tests/pipeline/a.py", [tiers.in_long.mark, JAVA], [], "long")])
def test_highest_named_tier_counts(path, marks, fixtures, tier):
    assert tiers.tier_of(path, marks, fixtures) == tier


@pytest.mark.parametrize("chosen, least, run", [
    ("basic", "basic", ["basic"]), ("all", "basic", ["basic", "all"]), ("long", "basic", ["basic", "all", "long"]),
    ("all", "all", ["all"]), ("long", "all", ["all", "long"])])
def test_lower_tiers_run_too_unless_they_have_run(monkeypatch, chosen, least, run):
    monkeypatch.setenv(tiers.VARIABLE, chosen)
    monkeypatch.setenv(tiers.LEAST_VARIABLE, least)
    assert [tier for tier in tiers.TIERS if tiers.runs(tier)] == run


def test_tier_without_a_size_has_that_of_the_next_lower_one(monkeypatch):
    for chosen, sizes in (("basic", (1, 1, 1)), ("all", (1, 2, 1)), ("long", (1, 2, 3))):
        monkeypatch.setenv(tiers.VARIABLE, chosen)
        assert (tiers.pick(1), tiers.pick(1, all=2), tiers.pick(1, long=3)) == sizes


def test_invalid_name_of_a_tier_is_reported(monkeypatch):
    monkeypatch.setenv(tiers.VARIABLE, "quick")
    with pytest.raises(pytest.UsageError, match="RMQHA_TEST_TIER=quick: one of basic, all, long"):
        tiers.choose(False)


FILES = {
    "basic": "def test_basic(): pass\n",
    "mixed": "import pytest\n\n@pytest.mark.java\ndef test_java(): pass\n\ndef test_beside(): pass\n\n"
             "@pytest.mark.tier('long')\ndef test_long(): pass\n",
    "java": "import pytest\npytestmark = [pytest.mark.java, pytest.mark.timeout(9)]\n"
            "raise SystemExit('nobody loads this')\n",
    "long": "from tests.support.tiers import in_long\npytestmark = in_long\nraise SystemExit('nobody loads this')\n",
}
PLUGIN = "from tests.conftest import pytest_collection_modifyitems, pytest_configure, pytest_ignore_collect\n"


@pytest.fixture
def folder(tmp_path):
    """Create a project with a test file of each kind."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\ntestpaths = tests\nmarkers =\n    java\n    tier(name)\n")
    (tmp_path / "tests" / "conftest.py").write_text(PLUGIN)
    for name, text in FILES.items():
        (tmp_path / "tests" / f"test_{name}.py").write_text(text)
    return tmp_path


def collected(folder, *arguments, **variables):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RMQHA_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments], cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), **variables}, capture_output=True, text=True, check=False)
    return {line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line}, done


def test_run_collects_its_tier_and_loads_only_the_files_that_it_needs(folder):
    names, done = collected(folder)
    assert names == {"test_basic", "test_beside"} and done.returncode == 0, done.stdout
    for file in ("java", "long"):
        text = (folder / "tests" / f"test_{file}.py").read_text()
        (folder / "tests" / f"test_{file}.py").write_text(text.replace("raise SystemExit('nobody loads this')",
                                                                       f"def test_{file}_file(): pass"))
    assert collected(folder, RMQHA_TEST_TIER="all")[0] == {"test_basic", "test_beside", "test_java", "test_java_file"}
    assert collected(folder, RMQHA_TEST_TIER="all", RMQHA_TEST_LEAST_TIER="all")[0] == {"test_java", "test_java_file"}
    assert len(collected(folder, RMQHA_TEST_TIER="long")[0]) == 6
    assert collected(folder, "tests/test_mixed.py")[0] == {"test_java", "test_beside"}
    assert collected(folder, "-k", "java_file")[0] == {"test_java_file"}
    assert "one of basic, all, long" in collected(folder, RMQHA_TEST_TIER="x")[1].stderr
