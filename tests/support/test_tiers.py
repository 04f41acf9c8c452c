"""Which tests run in which tier."""
import os
import subprocess
import sys

import pytest

from tests.support import tiers
from tests.support.sources import ROOT

JAVA, SPARK, TIMEOUT = (getattr(pytest.mark, name).mark for name in ("java", "spark", "timeout"))


@pytest.mark.parametrize("path, marks, fixtures, tier", [
    ("tests/a.py", [], ["tmp_path", "make_broker"], "basic"), ("tests/a.py", [TIMEOUT], [], "basic"),
    ("tests/a.py", [TIMEOUT, JAVA], [], "all"), ("tests/a.py", [SPARK], [], "all"),
    ("tests/a.py", [], ["java_driver"], "all"), ("tests/pipeline/a.py", [], [], "all"),
    ("tests/pipelines.py", [], [], "basic"), ("tests/a.py", [tiers.in_all.mark], [], "all"),
    ("tests/a.py", [tiers.in_long.mark], [], "long"), ("tests/pipeline/a.py", [tiers.in_long.mark, JAVA], [], "long")])
def test_the_highest_tier_that_anything_names_counts(path, marks, fixtures, tier):
    assert tiers.tier_of(path, marks, fixtures) == tier


@pytest.mark.parametrize("chosen, least, run", [
    ("basic", "basic", ["basic"]), ("all", "basic", ["basic", "all"]), ("long", "basic", ["basic", "all", "long"]),
    ("all", "all", ["all"]), ("long", "all", ["all", "long"])])
def test_tiers_below_run_too_unless_they_have_run(monkeypatch, chosen, least, run):
    monkeypatch.setenv(tiers.VARIABLE, chosen)
    monkeypatch.setenv(tiers.LEAST_VARIABLE, least)
    assert [tier for tier in tiers.TIERS if tiers.runs(tier)] == run


def test_a_tier_without_a_size_has_that_of_the_one_below(monkeypatch):
    for chosen, sizes in (("basic", (1, 1, 1)), ("all", (1, 2, 1)), ("long", (1, 2, 3))):
        monkeypatch.setenv(tiers.VARIABLE, chosen)
        assert (tiers.pick(1), tiers.pick(1, all=2), tiers.pick(1, long=3)) == sizes


def test_a_wrong_name_of_a_tier_is_told(monkeypatch):
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
    """A project with a test file of each kind."""
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


def test_a_run_collects_the_tier_and_loads_nothing_in_vain(folder):
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
