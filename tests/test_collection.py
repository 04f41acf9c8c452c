"""Test names are the same every day and in every process; ruff and mypy find nothing in the tree."""
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support import schedule
from tests.support.sources import ROOT
from tests.support.tiers import in_all

pytestmark = in_all


# Test names must not depend on the day or the process: processes that run tests in parallel compare them.

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
    """Return the names of the tests in files of a folder, collected by another process with a different hash seed."""
    run = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-o",
                          "addopts=", f"--rootdir={folder}", *options, *files], cwd=folder, capture_output=True,
                         text=True, check=False, env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ROOT})
    assert run.returncode == 0, (run.stdout + run.stderr)[-2000:]
    return {line for line in run.stdout.splitlines() if "::" in line}


@pytest.mark.timeout(900)
def test_names_do_not_depend_on_clock_or_hashes(request):
    """Check the files of this test run."""
    names = [item.nodeid for item in request.session.items]
    elsewhere = collected(sorted({schedule.path_of(name) for name in names}), ROOT, *LATER)
    assert [name for name in names if name not in elsewhere] == []


def test_names_that_depend_on_them_are_found(tmp_path):
    (tmp_path / "test_planted.py").write_text(PLANTED, "utf-8")
    first, second = collected(["test_planted.py"], tmp_path), collected(["test_planted.py"], tmp_path, *LATER, seed=2)
    assert {schedule.path_of(name) for name in first} == {"test_planted.py"}
    assert sorted(name.partition("[")[0] for name in second - first) == [
        "test_planted.py::test_of_the_clock", "test_planted.py::test_of_the_order_of_a_set"]
    assert "test_planted.py::test_of_neither[a]" in first & second


# ruff (configured in pyproject.toml) and mypy (in setup.cfg) find nothing; exemptions give a reason.


def complaints(tool: str, *arguments: str) -> str:
    """Return the output of `tool`, empty when it finds nothing. `bin/test` installs the tools; a bare pytest may
    lack them."""
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"needs the extra `dev`: {tool} is not installed")
    done = subprocess.run([sys.executable, "-m", tool, *arguments], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-4000:]


def test_ruff_finds_nothing():
    assert complaints("ruff", "check", "--quiet", "--output-format=concise", "rmqha", "tests", "bin") == ""


def test_mypy_finds_nothing():
    assert complaints("mypy", "--no-error-summary") == ""


EXEMPTION = re.compile(r"#\s*(?:type:\s*ignore|noqa|pragma|mypy:)")
WITH_REASON = re.compile(r"# type: ignore\[[a-z, -]+\]  # [\w`]|# noqa: [A-Z]+\d+(, [A-Z]+\d+)*, [a-zA-Z]")


REASON_ABOVE = re.compile(r"# (?:type: ignore\[[a-z, -]+\]|noqa: [A-Z]+\d+(, [A-Z]+\d+)*)$")


def without_reason(text: str) -> list[str]:
    """Return the lines with an exemption from a check that does not name the check and a reason, there or above."""
    lines = text.splitlines()
    return [line.strip() for above, line in zip(["", *lines], lines) if EXEMPTION.search(line)
            and not WITH_REASON.search(line)
            and not (REASON_ABOVE.search(line) and above.lstrip().startswith("# "))]


def test_exemptions_give_a_reason():
    files = sorted((ROOT / "rmqha").rglob("*.py"))
    assert {str(path): lines for path in files if (lines := without_reason(path.read_text("utf-8")))} == {}


def test_exemptions_without_a_reason_are_found():
    bare = ["x = 1  # noqa", "x = 1  # noqa: F401", "x = y  # type: ignore", "x = y  # type: ignore[misc]"]
    good = ["x = 1  # noqa: F401, for others", "x = y  # type: ignore[misc]  # an int",
            "# An int.", "x = y  # type: ignore[misc]"]
    assert without_reason("\n".join(bare + good)) == bare


def test_complaints_are_found(tmp_path):
    (tmp_path / "unused.py").write_text("import os\n")
    assert "F401" in complaints("ruff", "check", "--output-format=concise", str(tmp_path))
    (tmp_path / "wrong.py").write_text("def text() -> str:\n    return 1\n")
    assert "[return-value]" in complaints("mypy", "--cache-dir", os.devnull, "--strict", str(tmp_path / "wrong.py"))
