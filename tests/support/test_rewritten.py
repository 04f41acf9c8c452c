"""Test files are compiled once for all processes that load them."""
import os
import sys

import pytest

from tests.support import rewritten
from tests.support.rewritten import rewrite


@pytest.mark.skipif(sys.dont_write_bytecode, reason="nothing is kept of what is compiled")
def test_files_are_rewritten_once_and_again_when_they_change(tmp_path, monkeypatch):
    monkeypatch.setattr(rewritten, "_FEW", 2)
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


def test_without_bytecode_nothing_is_done_in_advance(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rewrite(tmp_path, [tmp_path / f"test_{number}.py" for number in range(30)], 2) == 0
