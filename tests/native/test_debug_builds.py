"""Each C source compiles without a warning against this Python's headers, and its debug build works in `-X dev`.

In that mode every memory block has guard bytes that are checked when it is freed, and a wrong use of the interpreter's
API aborts the process.
"""
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.fuzz.native_sanitizers import TARGETS, WARNINGS
from tests.support.sources import ROOT

INPUTS = 2000
pytestmark = pytest.mark.skipif(
    not shutil.which("gcc") or not Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
    reason="no gcc, or no headers of this Python")


@pytest.mark.parametrize("source", sorted(TARGETS))
def test_debug_build_agrees_with_its_twin(source, tmp_path):
    made = tmp_path / f"{TARGETS[source][0].rpartition('.')[2]}{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(["gcc", "-std=c11", "-O0", "-g", "-UNDEBUG", "-fPIC", "-shared", *WARNINGS, "-Werror",
                    f"-I{sysconfig.get_paths()['include']}", str(ROOT / source), "-o", str(made)], check=True)
    child = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.fuzz.native_sanitizers", "--child", source,
         str(made), "--inputs", str(INPUTS), "--seed", "1"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    assert f"{INPUTS} inputs" in child.stdout


def test_every_source_is_built():
    assert set(TARGETS) == {f"rmqha/native/{file.name}" for file in (ROOT / "rmqha/native").glob("*.c")}
