"""Builds the project with setuptools and, where a C compiler is, the bulk kernel with it.

Named in pyproject.toml; imported by pip alone. An extension in setup.cfg is not possible, and the kernel is optional:
when it can't be compiled, setuptools says so and the project is installed without it.
"""
import functools
import sys

import setuptools
from setuptools import build_meta

_setup = setuptools.setup


def _kernel() -> setuptools.Extension:
    flags = [] if sys.platform == "win32" else ["-O2", "-std=c11"]
    return setuptools.Extension("rmqha.store.bulk._bulk", ["rmqha/store/bulk/_bulk.c"], extra_compile_args=flags,
                                optional=True)


@functools.wraps(_setup)
def _setup_with_kernel(**attributes):
    return _setup(ext_modules=[_kernel()], **attributes)


# There is no setup.py: build_meta runs a plain `setuptools.setup()`.
setuptools.setup = _setup_with_kernel

build_wheel = build_meta.build_wheel
build_sdist = build_meta.build_sdist
build_editable = build_meta.build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
