"""All fast ways, in the order of the table."""
import importlib
import pkgutil

import tests.fast_ways
from tests.fast_ways.way import Way


def all_ways() -> list[Way]:
    """The WAYS of each module `compare_*` of this package, in the order of their names."""
    ways: list[Way] = []
    for module in sorted(pkgutil.iter_modules(tests.fast_ways.__path__), key=lambda each: each.name):
        if module.name.startswith("compare_"):
            ways += importlib.import_module(f"tests.fast_ways.{module.name}").WAYS
    return ways
