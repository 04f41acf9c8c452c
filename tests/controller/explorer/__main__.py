"""Explore more states than the tests do.

    python -m tests.controller.explorer [--long]            all states within the bounds of the tests
    python -m tests.controller.explorer --walks 1000 --seed 7 [--steps 400]    long random walks without bounds
    python -m tests.controller.explorer --planted [TEXT]    the planted faults, each with the path to its violation

The exit code is 1 if an invariant was violated, if not all states within the bounds were reached, or if a planted fault
was not found.
"""
import argparse
import sys

from tests.controller.explorer.model import Model
from tests.controller.explorer.planted import PLANTED
from tests.controller.explorer.rules import Rules
from tests.controller.explorer.search import LONG_SPACES, SPACES, WALKS, Found, exhaust, walk


def _show(what: str, found: Found) -> Found:
    print(f"{what}: {found}", flush=True)
    if found.violation:
        print("\n".join(found.trace), flush=True)
    return found


def main() -> int:
    """Run the requested searches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--planted", nargs="?", const="", default=None)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    if options.planted is not None:
        planted = [each for each in PLANTED if options.planted in each.what]
        return int(not all([_show(each.what, exhaust(Model(each.rules(), each.bounds))).violation for each in planted]))
    if options.walks:
        return int(any([_show(f"walks, {name}", walk(Model(Rules(), bounds), options.seed, options.walks,
                                                     options.steps)).violation for name, bounds in WALKS.items()]))
    spaces = SPACES | LONG_SPACES if options.long else SPACES
    return int(not all([_show(name, exhaust(Model(Rules(), bounds))).is_exhausted for name, bounds in spaces.items()]))


if __name__ == "__main__":
    sys.exit(main())
