"""The compiled parts are optional, and bin/ensure-venv installs again when necessary."""
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rmqha import launch
from tests.support.sources import ROOT
from tests.support.tiers import in_all

# The compiled parts are an optional part of the installation, which works with and without a C compiler.

NATIVE = Path("rmqha", "native")
EXTENSIONS = sorted(source.stem for source in (ROOT / NATIVE).glob("*.c"))
HEADERS = sorted(header.name for header in (ROOT / NATIVE).glob("*.h"))
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


@pytest.fixture
def checkout(tmp_path):
    """A copy of the files that a build needs, without built files."""
    pytest.importorskip("setuptools", reason="building needs setuptools and wheel")
    pytest.importorskip("wheel", reason="building needs setuptools and wheel")
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / NATIVE, copy / NATIVE, ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    for name in ("__init__.py", "py.typed"):
        shutil.copy(ROOT / "rmqha" / name, copy / "rmqha")
    return copy


def build(checkout, hook, compiler=None):
    """Run a hook of the build backend as pip does, and return the files that it made."""
    environment = dict(os.environ, PYTHONPATH=str(checkout / NATIVE))
    if compiler is not None:
        environment["CC"] = compiler
    (checkout / "out").mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", f"import build_backend; print(build_backend.{hook}('out'))"],
                          cwd=checkout, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return checkout / "out" / done.stdout.splitlines()[-1]


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def compiled(files):
    """Return the extensions among files, by name."""
    return sorted(Path(file).name.split(".")[0] for file in files
                  if Path(file).parts[-3:-1] == NATIVE.parts and str(file).endswith((".so", ".pyd")))


def test_list_of_extensions_is_complete():
    assert EXTENSIONS == ["_bulk", "_express_send", "_message_rows", "_properties"]


@in_all
def test_wheel_without_a_compiler_has_only_the_python_twins(checkout):
    files = names(build(checkout, "build_wheel", "/bin/false"))
    # Users of rmqha get its types.
    assert "rmqha/py.typed" in files
    assert "rmqha/native/__init__.py" in files and not compiled(files)


@in_all
@needs_compiler
def test_wheel_has_the_extensions_and_the_headers(checkout):
    files = names(build(checkout, "build_wheel"))
    assert compiled(files) == EXTENSIONS
    assert sorted(Path(file).name for file in files if file.endswith(".h")) == HEADERS


@in_all
@needs_compiler
def test_another_source_is_built_without_any_other_change(checkout):
    source = (checkout / NATIVE / "_message_rows.c").read_text("utf-8")
    (checkout / NATIVE / "_another.c").write_text(source.replace("_message_rows", "_another"), "utf-8")
    assert compiled(names(build(checkout, "build_wheel"))) == sorted([*EXTENSIONS, "_another"])


@in_all
@needs_compiler
def test_editable_install_puts_extensions_beside_their_sources(checkout):
    build(checkout, "build_editable")
    assert compiled((checkout / "rmqha").rglob("*")) == EXTENSIONS
    left = {path.name for path in checkout.iterdir()}
    assert left <= {"setup.cfg", "pyproject.toml", "README.md", "rmqha", "rmqha.egg-info", "build", "out"}


@in_all
def test_editable_install_without_a_compiler_works(checkout):
    build(checkout, "build_editable", "/bin/false")
    assert not compiled((checkout / "rmqha").rglob("*"))


def imported_from(site_folder, *path):
    """Return the place from which a Python with `site_folder`, and `path` before it, imports rmqha."""
    code = ("import site, sys; site.addsitedir(sys.argv[1]); sys.path[:0] = sys.argv[2:]; import rmqha, rmqha.native; "
            "print(rmqha.__file__, rmqha.native.__file__)")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, site_folder, *path], capture_output=True, text=True,
                          timeout=600, check=False)
    return done.stdout.split() or done.stderr.splitlines()[-1]


@in_all
def test_script_beside_a_folder_named_rmqha_imports_the_editable_install(checkout, tmp_path):
    installed, beside = tmp_path / "site-packages", tmp_path / "beside"
    with zipfile.ZipFile(build(checkout, "build_editable", "/bin/false")) as wheel:
        wheel.extractall(installed)
    listed = next(installed.glob("*.dist-info")).joinpath("RECORD").read_text()
    assert not list(installed.glob("__editable__*")) and "__editable__" not in listed  # setuptools' hook
    assert "_rmqha_hook.py,sha256=" in listed
    # A clone of the project, beside the script.
    for folder in ("docs", "rmqha"):
        (beside / "rmqha" / folder).mkdir(parents=True)
    (beside / "rmqha" / "rmqha" / "__init__.py").write_text("")
    package = checkout / "rmqha"
    found = [str(package / "__init__.py"), str(package / "native" / "__init__.py")]
    assert imported_from(installed) == imported_from(installed, beside) == found
    # A real package comes first, as PYTHONPATH requires.
    other = tmp_path / "other"
    shutil.copytree(package, other / "rmqha")
    assert imported_from(installed, beside, other)[0] == str(other / "rmqha" / "__init__.py")
    (installed / "_rmqha_hook.pth").unlink()
    # The problem that the hook solves.
    assert imported_from(installed, beside) != found


@in_all
def test_source_distribution_has_all_sources_of_the_build(checkout):
    shutil.unpack_archive(build(checkout, "build_sdist"), checkout / "unpacked")
    unpacked = next((checkout / "unpacked").iterdir()) / NATIVE
    sources = {f"{extension}.c" for extension in EXTENSIONS}
    assert {file.name for file in unpacked.iterdir()} >= {"build_backend.py", "editable_hook.py", *sources, *HEADERS}


# The conditions for bin/ensure-venv to install again, and its callers, the programs of bin/. A script stands in for
# Python and records its arguments.

SOURCES = ("setup.cfg", "pyproject.toml", "rmqha/native/build_backend.py", "rmqha/native/_one.c",
           "rmqha/native/one.h", "rmqha/pipeline/pyspark_one.py")
OTHERS = ("rmqha/native/kernels.py", "rmqha/store/one.py", "rmqha/native/_one.cpython-311-any.so")


@pytest.fixture
def ensure_venv(tmp_path):
    """ensure_venv() runs it in a checkout of a few files and returns how often it has installed."""
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


def test_installs_again_when_a_source_is_added(tmp_path, ensure_venv):
    assert ensure_venv() == 1
    (tmp_path / "rmqha" / "native" / "_two.c").touch()
    os.utime(tmp_path / "rmqha" / "native" / "_two.c", (4_000_000_000, 4_000_000_000))
    assert ensure_venv() == 2


@pytest.mark.parametrize("other", OTHERS)
def test_files_outside_the_build_are_ignored(tmp_path, ensure_venv, other):
    assert ensure_venv() == 1
    os.utime(tmp_path / other, (4_000_000_000, 4_000_000_000))
    assert ensure_venv() == 1


def test_choice_is_printed_after_an_install(tmp_path, ensure_venv):
    ensure_venv()
    assert "kernels.are_all_compiled()" in (tmp_path / "calls").read_text("utf-8")


@pytest.fixture
def fresh_clone(tmp_path):
    """A clone without .venv, and a stand-in for Python (its `python`) that creates a venv of itself and installs its
    arguments, unless there is a file `offline`."""
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
def test_program_of_a_fresh_clone_creates_the_venv_once(fresh_clone, name):
    for begins in ("creating .venv with Python 3.11.0", ""):
        out, err = (program := start_program(fresh_clone, name, "-c", "a b")).communicate(timeout=600)
        assert (program.returncode, out) == (0, f"{fresh_clone}: {name} -c a b\n")
        assert err.startswith(begins) and bool(err) == bool(begins)
    assert (fresh_clone / "calls").read_text() == "pip\n"


def test_concurrent_programs_wait_for_the_one_that_creates_the_venv(fresh_clone):
    programs = [start_program(fresh_clone, name) for name in ("mqnamesrv", "mqbroker", "mqbroker")]
    assert [program.communicate(timeout=600)[0] for program in programs] == [
        f"{fresh_clone}: {name}\n" for name in ("mqnamesrv", "mqbroker", "mqbroker")]
    assert (fresh_clone / "calls").read_text() == "pip\n"


def test_program_without_an_index_or_a_python_fails_with_the_reason(fresh_clone):
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
