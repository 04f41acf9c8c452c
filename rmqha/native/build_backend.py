"""Builds the project with setuptools and, where a C compiler is, an extension of each C source beside this file.

Named in pyproject.toml; imported by pip alone. An extension in setup.cfg is not possible, and all are optional:
when one can't be compiled, setuptools says so and the project is installed without it.

Spark finds formats in top-level modules named `pyspark_*` of a folder on its path. Those of rmqha/pipeline get into the
wheel here, also into that of an editable install, whose import hook Spark's search does not see.
"""
import base64
import functools
import hashlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import setuptools
from setuptools import build_meta

_Settings = dict[str, str | list[str]] | None  # as the front end was told

_setup = setuptools.setup
_FOLDER = Path("rmqha/native")  # of the checkout: build backends run in its root


def _extensions() -> list[setuptools.Extension]:
    flags = [] if sys.platform == "win32" else ["-O2", "-std=c11"]
    headers = [str(header) for header in _FOLDER.glob("*.h")]
    return [setuptools.Extension(".".join(source.with_suffix("").parts), [str(source)], depends=headers,
                                 extra_compile_args=flags, optional=True)
            for source in sorted(_FOLDER.glob("*.c"))]


@functools.wraps(_setup)
def _setup_with_extensions(**attributes: Any) -> Any:
    return _setup(ext_modules=_extensions(), **attributes)


# There is no setup.py: build_meta runs a bare `setuptools.setup()`.
setuptools.setup = _setup_with_extensions


def _with_formats(folder: str, wheel: str) -> str:
    """Add the modules to a wheel."""
    path, rows = Path(folder, wheel), []
    with zipfile.ZipFile(path) as old:
        files = {item: old.read(item) for item in old.infolist()}
    record = next(item for item in files if item.filename.endswith(".dist-info/RECORD"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for item, data in files.items():
            if item is not record:
                new.writestr(item, data)
        for module in sorted(Path("rmqha/pipeline").glob("pyspark_*.py")):
            data = module.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            new.writestr(module.name, data)
            rows.append(f"{module.name},sha256={digest},{len(data)}\n".encode())
        new.writestr(record, files[record] + b"".join(rows))
    return wheel


def build_wheel(wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None) -> str:
    """The wheel."""
    return _with_formats(wheel_directory, build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: _Settings = None,
                   metadata_directory: str | None = None) -> str:
    """The wheel of an editable install."""
    return _with_formats(wheel_directory,
                         build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


build_sdist = build_meta.build_sdist
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
