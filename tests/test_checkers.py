"""What reads the sources without running them has nothing to say: ruff and mypy, set up in pyproject.toml."""
import importlib.util
import os
import subprocess
import sys

import pytest

from tests.support.sources import ROOT


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


def test_complaints_are_seen(tmp_path):
    (tmp_path / "unused.py").write_text("import os\n")
    assert "F401" in complaints("ruff", "check", "--output-format=concise", str(tmp_path))
    (tmp_path / "wrong.py").write_text("def text() -> str:\n    return 1\n")
    assert "[return-value]" in complaints("mypy", "--cache-dir", os.devnull, "--strict", str(tmp_path / "wrong.py"))
