"""The test files as pytest compiles them, made once before processes load them side by side.

Each process loads all test files. Those whose asserts pytest has yet to rewrite cost it 9 s together, and six processes
that begin at the same time would all do the same.
"""
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_FEW = 20  # which any process rewrites in less time than it takes to start one


def _is_rewritten(file: Path) -> bool:
    """Whether pytest finds what it has made of the file as it is now."""
    compiled = Path(importlib.util.cache_from_source(str(file)))
    made = file.stat().st_mtime
    return any(each.stat().st_mtime >= made
               for each in compiled.parent.glob(f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc"))


def rewrite(root: Path, files: Sequence[Path], processes: int) -> int:
    """Rewrite those of `files` that are not, in so many processes; how many there were."""
    missing = [] if sys.dont_write_bytecode else sorted(
        (file for file in files if not _is_rewritten(file)), key=lambda file: -file.stat().st_size)
    if len(missing) < _FEW:
        return 0
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "RMQHA_TEST_"))}
    running = [subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-qq", *missing[part::processes]],
        cwd=root, env={**env, "RMQHA_TEST_TIER": "all"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for part in range(processes)]
    for process in running:
        process.wait()  # a file that can't be loaded is found, and reported, by all who load it again
    return len(missing)
