"""Each C source as this Python's headers have it: without a warning, and, built for debugging, right in `-X dev`.

In that mode each block of memory has borders that are looked at when it is freed, and a wrong use of the interpreter's
functions ends the process.
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
def test_debug_build_gives_what_its_twin_gives(source, tmp_path):
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
