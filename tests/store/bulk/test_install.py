"""The kernel is an optional part of the installation: with and without a C compiler."""
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.support.sources import ROOT

BUILT = ("_bulk.c", "build_backend.py")


@pytest.fixture
def checkout(tmp_path):
    """A copy of what is needed to build, without what was built."""
    pytest.importorskip("setuptools", reason="building needs setuptools and wheel")
    pytest.importorskip("wheel", reason="building needs setuptools and wheel")
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "rmqha" / "store" / "bulk", copy / "rmqha" / "store" / "bulk",
                    ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    for package in ("rmqha", "rmqha/store"):
        shutil.copy(ROOT / package / "__init__.py", copy / package)
    return copy


def build(checkout, hook, compiler=None):
    """Run a hook of the build backend as pip does; the wheel."""
    environment = dict(os.environ, PYTHONPATH=str(checkout / "rmqha" / "store" / "bulk"))
    if compiler is not None:
        environment["CC"] = compiler
    (checkout / "out").mkdir()
    done = subprocess.run([sys.executable, "-c", f"import build_backend; build_backend.{hook}('out')"], cwd=checkout,
                          env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return next((checkout / "out").glob("*.whl"))


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def compiled(files):
    return [name for name in map(str, files) if "/bulk/_bulk." in name and name.endswith((".so", ".pyd"))]


def test_wheel_without_a_compiler_has_the_plain_kernel_alone(checkout):
    files = names(build(checkout, "build_wheel", "/bin/false"))
    assert "rmqha/store/bulk/bulk_plain.py" in files and not compiled(files)


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
def test_wheel_has_the_compiled_kernel(checkout):
    assert len(compiled(names(build(checkout, "build_wheel")))) == 1


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")
def test_editable_install_puts_the_compiled_kernel_beside_its_source(checkout):
    build(checkout, "build_editable")
    assert len(compiled((checkout / "rmqha").rglob("*"))) == 1
    left = {path.name for path in checkout.iterdir()}
    assert left <= {"setup.cfg", "pyproject.toml", "README.md", "rmqha", "rmqha.egg-info", "build", "out"}


def test_editable_install_without_a_compiler_works(checkout):
    build(checkout, "build_editable", "/bin/false")
    assert not compiled((checkout / "rmqha").rglob("*"))


def test_source_distribution_has_the_source_of_the_kernel(checkout):
    environment = dict(os.environ, PYTHONPATH=str(checkout / "rmqha" / "store" / "bulk"))
    subprocess.run([sys.executable, "-c", "import build_backend; build_backend.build_sdist('out')"], cwd=checkout,
                   env=environment, capture_output=True, timeout=100, check=True)
    archive = next((checkout / "out").glob("*.tar.gz"))
    shutil.unpack_archive(archive, checkout / "unpacked")
    unpacked = next((checkout / "unpacked").iterdir()) / "rmqha" / "store" / "bulk"
    assert all((unpacked / name).is_file() for name in BUILT)
