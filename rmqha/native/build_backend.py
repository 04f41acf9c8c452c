"""The build backend: it builds the project with setuptools and, where a C compiler is available, an extension of each C
source in this folder.

It is named in pyproject.toml and imported only by pip. Extensions can't be declared in setup.cfg. All of them are
optional: if one can't be compiled, setuptools reports that, and the project is installed without it.

Spark finds formats in top-level modules named `pyspark_*` in the folders on its path. This module puts those of
rmqha/pipeline into the wheel, and also into that of an editable install, because Spark's search does not use import
hooks. The import hook of an editable install is editable_hook.py instead of setuptools' own.

The wheel contains the checkout's conf/ as rmqha/conf: templates, which `rmqha config init` copies. The source
distribution contains everything that a checkout has.
"""
import base64
import functools
import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import setuptools
from setuptools import build_meta
from setuptools.command.sdist import sdist

_Settings = dict[str, str | list[str]] | None  # the settings passed by the front end

_setup = setuptools.setup
_FOLDER = Path("rmqha/native")  # of the checkout: build backends run in its root
# Parts of the source distribution that setuptools does not include.
_SOURCES = (".ci", "bin", "conf", "docs", "tests", "CHANGELOG.md")
_MADE = {".pyc", ".so", ".pyd"}
# The names of the two files of setuptools' import hook begin with this.
_THEIR_HOOK = "__editable__"


def _extensions() -> list[setuptools.Extension]:
    flags = [] if sys.platform == "win32" else ["-O2", "-std=c11"]
    headers = [str(header) for header in _FOLDER.glob("*.h")]
    return [setuptools.Extension(".".join(source.with_suffix("").parts), [str(source)], depends=headers,
                                 extra_compile_args=flags, optional=True)
            for source in sorted(_FOLDER.glob("*.c"))]


def _files(name: str) -> Iterator[Path]:
    """Yield a file, or all files below a folder, without those that Python generates."""
    path = Path(name)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.suffix not in _MADE:
            yield file


class _WholeSdist(sdist):
    """The source distribution, from which everything can be built and tested."""

    def make_distribution(self) -> None:
        """Add the folders to the list of files, which saves a MANIFEST.in in the project's root."""
        self.filelist.extend([str(file) for name in _SOURCES for file in _files(name)])
        super().make_distribution()


@functools.wraps(_setup)
def _setup_with_extensions(**attributes: Any) -> Any:
    return _setup(ext_modules=_extensions(), cmdclass={"sdist": _WholeSdist}, **attributes)


# The project has no setup.py, so build_meta runs a bare `setuptools.setup()`.
setuptools.setup = _setup_with_extensions


def _formats() -> dict[str, Path]:
    """Return the modules for Spark: name in the wheel -> file."""
    return {module.name: module for module in sorted(Path("rmqha/pipeline").glob("pyspark_*.py"))}


def _templates() -> dict[str, Path]:
    """Return the files of conf/: name in the wheel -> file."""
    return {f"rmqha/{file.as_posix()}": file for file in _files("conf")}


def _hook() -> dict[str, Path | bytes]:
    """Return the import hook for the checkout's package: name in the wheel -> file, or its bytes."""
    start = f"import _rmqha_hook; _rmqha_hook.install({ascii(os.getcwd())})\n"
    return {"_rmqha_hook.py": _FOLDER / "editable_hook.py", "_rmqha_hook.pth": start.encode()}


def _with(files: Mapping[str, Path | bytes], folder: str, wheel: str) -> str:
    """Add files to a wheel, and remove setuptools' hook of an editable install."""
    path, rows = Path(folder, wheel), []
    with zipfile.ZipFile(path) as old:
        there = {item: old.read(item) for item in old.infolist() if not item.filename.startswith(_THEIR_HOOK)}
    record = next(item for item in there if item.filename.endswith(".dist-info/RECORD"))
    kept = [row for row in there[record].splitlines(keepends=True) if not row.startswith(_THEIR_HOOK.encode())]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for item, data in there.items():
            if item is not record:
                new.writestr(item, data)
        for name, file in files.items():
            data = file if isinstance(file, bytes) else file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            new.writestr(name, data)
            rows.append(f"{name},sha256={digest},{len(data)}\n".encode())
        new.writestr(record, b"".join(kept + rows))
    return wheel


def build_wheel(wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None) -> str:
    """Build the wheel."""
    wheel = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _with(_formats() | _templates(), wheel_directory, wheel)


def build_editable(wheel_directory: str, config_settings: _Settings = None,
                   metadata_directory: str | None = None) -> str:
    """Build the wheel of an editable install, which uses the templates of the checkout."""
    wheel = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return _with({**_formats(), **_hook()}, wheel_directory, wheel)


build_sdist = build_meta.build_sdist
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
