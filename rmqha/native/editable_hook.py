"""The import hook that finds the package of an editable install.

    somewhere/rmqha/         a checkout: without __init__.py, so a namespace package for `python somewhere/script.py`
    somewhere/rmqha/rmqha/   the package

build_backend.py installs it as `_rmqha_hook`, in place of setuptools' hook. That one is consulted only if nothing else
was found, so a checkout beside a script would hide the package, and the modules that it imports take 8 ms of every
start of that Python. A package on the path (with an `__init__.py`), such as one in PYTHONPATH, still takes precedence.

PYTEST_DONT_REWRITE: pytest inspects all modules of a distribution with a plugin, and would warn in every run that this
one is already imported.
"""
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_PACKAGE = "rmqha"


class PackageFinder:
    """A finder for the package itself, not for its modules. `checkout` is the folder that contains the package."""

    def __init__(self, checkout: str) -> None:
        self._checkout = checkout

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> (
            ModuleSpec | None):
        """Return the package's location; None leaves other names to the other finders."""
        if name != _PACKAGE:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.origin is not None:  # a package, not a namespace package
            return found
        return PathFinder.find_spec(name, [self._checkout], target) or found


def install(checkout: str) -> None:
    """Put the finder first in sys.meta_path. Called by `_rmqha_hook.pth`."""
    sys.meta_path.insert(0, PackageFinder(checkout))
