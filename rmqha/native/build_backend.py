"""Builds the project with setuptools and, where a C compiler is, an extension of each C source beside this file.

Named in pyproject.toml; imported by pip alone. An extension in setup.cfg is not possible, and all are optional:
when one can't be compiled, setuptools says so and the project is installed without it.

Spark finds formats in top-level modules named `pyspark_*` of a folder on its path. Those of rmqha/pipeline get into the
wheel here, also into that of an editable install, whose import hook Spark's search does not see. That hook is
editable_hook.py instead of setuptools' own.

The wheel has the checkout's conf/ as rmqha/conf: templates, which `rmqha config init` copies. The source distribution
has all that a checkout has.
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

_Settings = dict[str, str | list[str]] | None  # as the front end was told

_setup = setuptools.setup
_FOLDER = Path("rmqha/native")  # of the checkout: build backends run in its root
_SOURCES = (".ci", "bin", "conf", "docs", "tests", "CHANGELOG.md")  # what setuptools does not know of
_MADE = {".pyc", ".so", ".pyd"}
_THEIR_HOOK = "__editable__"  # how the names of setuptools' two files begin


def _extensions() -> list[setuptools.Extension]:
    flags = [] if sys.platform == "win32" else ["-O2", "-std=c11"]
    headers = [str(header) for header in _FOLDER.glob("*.h")]
    return [setuptools.Extension(".".join(source.with_suffix("").parts), [str(source)], depends=headers,
                                 extra_compile_args=flags, optional=True)
            for source in sorted(_FOLDER.glob("*.c"))]


def _files(name: str) -> Iterator[Path]:
    """A file, or all below a folder, without what Python makes."""
    path = Path(name)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.suffix not in _MADE:
            yield file


class _WholeSdist(sdist):
    """The source distribution, from which all can be built and tested."""

    def make_distribution(self) -> None:
        """Add the folders to the list of files; a MANIFEST.in would be one more file at the top."""
        self.filelist.extend([str(file) for name in _SOURCES for file in _files(name)])
        super().make_distribution()


@functools.wraps(_setup)
def _setup_with_extensions(**attributes: Any) -> Any:
    return _setup(ext_modules=_extensions(), cmdclass={"sdist": _WholeSdist}, **attributes)


# There is no setup.py: build_meta runs a bare `setuptools.setup()`.
setuptools.setup = _setup_with_extensions


def _formats() -> dict[str, Path]:
    """Spark's modules: name in the wheel -> file."""
    return {module.name: module for module in sorted(Path("rmqha/pipeline").glob("pyspark_*.py"))}


def _templates() -> dict[str, Path]:
    """The files of conf/: name in the wheel -> file."""
    return {f"rmqha/{file.as_posix()}": file for file in _files("conf")}


def _hook() -> dict[str, Path | bytes]:
    """What finds the checkout's package: name in the wheel -> file, or its bytes."""
    start = f"import _rmqha_hook; _rmqha_hook.install({ascii(os.getcwd())})\n"
    return {"_rmqha_hook.py": _FOLDER / "editable_hook.py", "_rmqha_hook.pth": start.encode()}


def _with(files: Mapping[str, Path | bytes], folder: str, wheel: str) -> str:
    """Add files to a wheel, and leave out setuptools' hook of an editable install."""
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
    """The wheel."""
    wheel = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _with(_formats() | _templates(), wheel_directory, wheel)


def build_editable(wheel_directory: str, config_settings: _Settings = None,
                   metadata_directory: str | None = None) -> str:
    """The wheel of an editable install: its templates are those of the checkout."""
    wheel = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return _with({**_formats(), **_hook()}, wheel_directory, wheel)


build_sdist = build_meta.build_sdist
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
