"""When bin/ensure-venv installs again, and when the programs of bin/ call it. A script stands for its Python, and notes
what it is told to do."""
import os
import shutil
import subprocess

import pytest

from rmqha import launch
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
        subprocess.run([tmp_path / "bin" / "ensure-venv", "test"], check=True, capture_output=True, timeout=600)
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


@pytest.fixture
def fresh_clone(tmp_path):
    """A clone without .venv, and a Python (its `python`) that makes a venv of itself and installs what it is told to,
    unless there is a file `offline`."""
    (tmp_path / "rmqha" / "native").mkdir(parents=True)
    shutil.copytree(ROOT / "bin", tmp_path / "bin")
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
case "$1 $2" in
    --version*) echo Python 3.11.0 ;;
    "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip") sleep 0.2; echo pip >> {tmp_path}/calls; test ! -e {tmp_path}/offline ;;
    "-m rmqha.launch") shift 2; echo "$ROCKETMQ_HOME: $*" ;;
    -c*) case "$2" in *timeit*) echo 0 1 "$0" ;; esac ;;
esac
""")
    python.chmod(0o755)
    return tmp_path


def start_program(clone, name, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "ROCKETMQ_HOME"}
    return subprocess.Popen([clone / "bin" / name, *arguments], env={**environment, "PYTHON": str(clone / "python")},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", launch.PROGRAMS)
def test_program_of_a_fresh_clone_makes_the_venv_once(fresh_clone, name):
    for begins in ("making .venv with Python 3.11.0", ""):
        out, err = (program := start_program(fresh_clone, name, "-c", "a b")).communicate(timeout=600)
        assert (program.returncode, out) == (0, f"{fresh_clone}: {name} -c a b\n")
        assert err.startswith(begins) and bool(err) == bool(begins)
    assert (fresh_clone / "calls").read_text() == "pip\n"


def test_programs_that_start_side_by_side_wait_for_the_one_that_makes_the_venv(fresh_clone):
    programs = [start_program(fresh_clone, name) for name in ("mqnamesrv", "mqbroker", "mqbroker")]
    assert [program.communicate(timeout=600)[0] for program in programs] == [
        f"{fresh_clone}: {name}\n" for name in ("mqnamesrv", "mqbroker", "mqbroker")]
    assert (fresh_clone / "calls").read_text() == "pip\n"


def test_program_without_an_index_or_a_python_says_so_and_fails(fresh_clone):
    (fresh_clone / "offline").touch()
    out, err = (program := start_program(fresh_clone, "mqbroker")).communicate(timeout=600)
    assert (program.returncode, out) == (1, "") and "needs a package index" in err.splitlines()[-1]
    (fresh_clone / "offline").unlink()  # the next one installs again
    assert start_program(fresh_clone, "mqbroker").communicate(timeout=600)[0] == f"{fresh_clone}: mqbroker\n"
    shutil.rmtree(fresh_clone / ".venv")
    (fresh_clone / "python").write_text("#!/bin/sh\nexit 1\n")
    out, err = (program := start_program(fresh_clone, "mqbroker")).communicate(timeout=600)
    assert (program.returncode, out) == (1, "") and err.startswith("rmqha needs Python 3.11 or later")
    assert len(err.splitlines()) == 1
