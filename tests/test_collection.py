"""A test has the same name on every day and in every process: processes that run tests side by side compare them."""
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support import schedule
from tests.support.sources import ROOT
from tests.support.tiers import in_all

pytestmark = in_all

LATER = ("-p", "tests.support.other_day")
PLANTED = '''
import time
import pytest

@pytest.mark.parametrize("value", [str(time.time_ns() // 10 ** 9)])
def test_of_the_clock(value): ...

@pytest.mark.parametrize("value", [" ".join({str(number) for number in range(9)})])
def test_of_the_order_of_a_set(value): ...

@pytest.mark.parametrize("value", ["a"])
def test_of_neither(value): ...
'''


def collected(files: Iterable[str], folder: Path, *options: str, seed: int = 12345) -> set[str]:
    """The names of the tests in files of a folder, in a process of its own with other hashes."""
    run = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-o",
                          "addopts=", f"--rootdir={folder}", *options, *files], cwd=folder, capture_output=True,
                         text=True, check=False, env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ROOT})
    assert run.returncode == 0, (run.stdout + run.stderr)[-2000:]
    return {line for line in run.stdout.splitlines() if "::" in line}


@pytest.mark.timeout(900)
def test_names_do_not_depend_on_clock_or_hashes(request):
    """Of those in this run."""
    names = [item.nodeid for item in request.session.items]
    elsewhere = collected(sorted({schedule.path_of(name) for name in names}), ROOT, *LATER)
    assert [name for name in names if name not in elsewhere] == []


def test_names_that_do_are_found(tmp_path):
    (tmp_path / "test_planted.py").write_text(PLANTED, "utf-8")
    first, second = collected(["test_planted.py"], tmp_path), collected(["test_planted.py"], tmp_path, *LATER, seed=2)
    assert {schedule.path_of(name) for name in first} == {"test_planted.py"}
    assert sorted(name.partition("[")[0] for name in second - first) == [
        "test_planted.py::test_of_the_clock", "test_planted.py::test_of_the_order_of_a_set"]
    assert "test_planted.py::test_of_neither[a]" in first & second
