"""When bin/ensure-venv installs again. A script stands for its Python, and notes what it is told to do."""
import os
import shutil
import subprocess

import pytest

from tests.support.sources import ROOT

SOURCES = ("setup.cfg", "pyproject.toml", "rmqha/native/build_backend.py", "rmqha/native/_one.c",
           "rmqha/native/one.h", "rmqha/pipeline/pyspark_one.py")
OTHERS = ("rmqha/native/kernels.py", "rmqha/store/one.py", "rmqha/native/_one.cpython-311-any.so")


@pytest.fixture
def ensure_venv(tmp_path):
    """ensure_venv() runs it in a checkout of a few files -> how often it installed."""
    for name in ("bin/ensure-venv", ".venv/bin/python", *SOURCES, *OTHERS):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1_000_000, 1_000_000))
    shutil.copy(ROOT / "bin" / "ensure-venv", tmp_path / "bin")
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho "$2" >> {tmp_path}/calls\n')
    python.chmod(0o755)

    def run():
        subprocess.run([tmp_path / "bin" / "ensure-venv", "test"], check=True, capture_output=True, timeout=60)
        return (tmp_path / "calls").read_text("utf-8").split("\n").count("pip")
    return run


@pytest.mark.parametrize("source", SOURCES)
def test_installs_again_when_a_source_changed(tmp_path, ensure_venv, source):
    assert [ensure_venv(), ensure_venv()] == [1, 1]
    os.utime(tmp_path / source, (4_000_000_000, 4_000_000_000))
    assert ensure_venv() == 2


def test_installs_again_when_there_is_another_source(tmp_path, ensure_venv):
    assert ensure_venv() == 1
    (tmp_path / "rmqha" / "native" / "_two.c").touch()
    os.utime(tmp_path / "rmqha" / "native" / "_two.c", (4_000_000_000, 4_000_000_000))
    assert ensure_venv() == 2


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_not_built_from_is_left_alone(tmp_path, ensure_venv, other):
    assert ensure_venv() == 1
    os.utime(tmp_path / other, (4_000_000_000, 4_000_000_000))
    assert ensure_venv() == 1


def test_choice_is_told_behind_an_install(tmp_path, ensure_venv):
    ensure_venv()
    assert "kernels.are_all_compiled()" in (tmp_path / "calls").read_text("utf-8")
