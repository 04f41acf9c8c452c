"""Finds the package of an editable install.

    somewhere/rmqha/         a checkout: no __init__.py, so a namespace package for `python somewhere/script.py`
    somewhere/rmqha/rmqha/   the package

Installed by build_backend.py, as `_rmqha_hook`, in place of setuptools' hook: that one is asked when nothing else was
found, so a checkout beside a script hides the package, and the modules that it imports take 8 ms of each start of that
Python. A package on the path (with an `__init__.py`) still comes first, such as that of PYTHONPATH.

PYTEST_DONT_REWRITE: pytest looks at all modules of a distribution with a plugin, and would warn in each run that this
one is imported already.
"""
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_PACKAGE = "rmqha"


class PackageFinder:
    """Answers for the package alone, not for its modules. `checkout`: the folder that the package lies in."""

    def __init__(self, checkout: str) -> None:
        self._checkout = checkout

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> (
            ModuleSpec | None):
        """Where the package is; None to let the others look."""
        if name != _PACKAGE:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.origin is not None:  # a package
            return found
        return PathFinder.find_spec(name, [self._checkout], target) or found


def install(checkout: str) -> None:
    """Be asked first from now on; called by `_rmqha_hook.pth`."""
    sys.meta_path.insert(0, PackageFinder(checkout))
