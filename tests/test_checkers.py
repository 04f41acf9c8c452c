"""ruff (set up in pyproject.toml) and mypy (in setup.cfg) have nothing to say; exemptions say why."""
import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.support.sources import ROOT
from tests.support.tiers import in_all

pytestmark = in_all


def complaints(tool: str, *arguments: str) -> str:
    """What `tool` prints; empty when it finds nothing. `bin/test` installs the tools, a bare pytest may lack them."""
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


def without_reason(text: str) -> list[str]:
    """The lines with an exemption from a check that does not say of what, and why."""
    return [line.strip() for line in text.splitlines() if EXEMPTION.search(line) and not WITH_REASON.search(line)]


def test_exemptions_say_why():
    files = sorted((ROOT / "rmqha").rglob("*.py"))
    assert {str(path): lines for path in files if (lines := without_reason(path.read_text("utf-8")))} == {}


def test_exemptions_without_a_reason_are_seen():
    bare = ["x = 1  # noqa", "x = 1  # noqa: F401", "x = y  # type: ignore", "x = y  # type: ignore[misc]"]
    good = ["x = 1  # noqa: F401, for others", "x = y  # type: ignore[misc]  # an int"]
    assert without_reason("\n".join(bare + good)) == bare


def test_complaints_are_seen(tmp_path):
    (tmp_path / "unused.py").write_text("import os\n")
    assert "F401" in complaints("ruff", "check", "--output-format=concise", str(tmp_path))
    (tmp_path / "wrong.py").write_text("def text() -> str:\n    return 1\n")
    assert "[return-value]" in complaints("mypy", "--cache-dir", os.devnull, "--strict", str(tmp_path / "wrong.py"))
