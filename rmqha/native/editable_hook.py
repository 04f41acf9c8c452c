"""Finds the package of an editable install where a folder of the same name would hide it.

    somewhere/rmqha/         a checkout: no __init__.py, so a namespace package for `python somewhere/script.py`
    somewhere/rmqha/rmqha/   the package, which setuptools' hook finds; but that is asked when nothing else was found

Installed by build_backend.py, as `_rmqha_hook`, and imported at each start of that Python. A package on the path (with
an `__init__.py`) still comes first, such as that of PYTHONPATH.

PYTEST_DONT_REWRITE: pytest looks at all modules of a distribution with a plugin, and would warn in each run that this
one is imported already.
"""
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_PACKAGE = "rmqha"


class PackageFinder:
    """Answers for the package alone, not for its modules."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> (
            ModuleSpec | None):
        """Where the package is; None to let the others look."""
        if name != _PACKAGE:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is None or found.origin is not None:  # nothing, or a package
            return found
        for finder in sys.meta_path:
            if getattr(finder, "__module__", "").startswith(f"__editable___{_PACKAGE}_"):
                return finder.find_spec(name, path, target) or found
        return found


sys.meta_path.insert(0, PackageFinder)
