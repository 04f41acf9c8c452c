"""The compiled parts are an optional part of the installation: with and without a C compiler."""
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.sources import ROOT
from tests.support.tiers import in_all

NATIVE = Path("rmqha", "native")
EXTENSIONS = sorted(source.stem for source in (ROOT / NATIVE).glob("*.c"))
HEADERS = sorted(header.name for header in (ROOT / NATIVE).glob("*.h"))
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


@pytest.fixture
def checkout(tmp_path):
    """A copy of what is needed to build, without what was built."""
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
    """Run a hook of the build backend as pip does; what it made."""
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
    """The extensions among files, by name."""
    return sorted(Path(file).name.split(".")[0] for file in files
                  if Path(file).parts[-3:-1] == NATIVE.parts and str(file).endswith((".so", ".pyd")))


def test_extensions_are_those_that_there_are():
    assert EXTENSIONS == ["_bulk", "_express_send", "_message_rows", "_properties"]


@in_all
def test_wheel_without_a_compiler_has_the_twins_alone(checkout):
    files = names(build(checkout, "build_wheel", "/bin/false"))
    assert "rmqha/py.typed" in files  # who uses rmqha has its types
    assert "rmqha/native/__init__.py" in files and not compiled(files)


@in_all
@needs_compiler
def test_wheel_has_the_extensions_and_the_headers(checkout):
    files = names(build(checkout, "build_wheel"))
    assert compiled(files) == EXTENSIONS
    assert sorted(Path(file).name for file in files if file.endswith(".h")) == HEADERS


@in_all
@needs_compiler
def test_another_source_needs_no_other_change(checkout):
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
    """Where a Python that has `site_folder`, and `path` before it, imports rmqha from."""
    code = ("import site, sys; site.addsitedir(sys.argv[1]); sys.path[:0] = sys.argv[2:]; import rmqha, rmqha.native; "
            "print(rmqha.__file__, rmqha.native.__file__)")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, site_folder, *path], capture_output=True, text=True,
                          timeout=600, check=False)
    return done.stdout.split() or done.stderr.splitlines()[-1]


@in_all
def test_script_beside_a_folder_of_that_name_imports_the_editable_install(checkout, tmp_path):
    installed, beside = tmp_path / "site-packages", tmp_path / "beside"
    with zipfile.ZipFile(build(checkout, "build_editable", "/bin/false")) as wheel:
        wheel.extractall(installed)
    for folder in ("docs", "rmqha"):  # a clone of the project, as it lies beside a script
        (beside / "rmqha" / folder).mkdir(parents=True)
    (beside / "rmqha" / "rmqha" / "__init__.py").write_text("")
    package = checkout / "rmqha"
    found = [str(package / "__init__.py"), str(package / "native" / "__init__.py")]
    assert imported_from(installed) == imported_from(installed, beside) == found
    # what is a package comes first, as PYTHONPATH has to
    other = tmp_path / "other"
    shutil.copytree(package, other / "rmqha")
    assert imported_from(installed, beside, other)[0] == str(other / "rmqha" / "__init__.py")
    (installed / "_rmqha_hook.pth").unlink()
    assert imported_from(installed, beside) != found  # what the hook is for


@in_all
def test_source_distribution_has_what_it_is_built_from(checkout):
    shutil.unpack_archive(build(checkout, "build_sdist"), checkout / "unpacked")
    unpacked = next((checkout / "unpacked").iterdir()) / NATIVE
    sources = {f"{extension}.c" for extension in EXTENSIONS}
    assert {file.name for file in unpacked.iterdir()} >= {"build_backend.py", "editable_hook.py", *sources, *HEADERS}
