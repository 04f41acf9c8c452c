"""All points with many seeds: python -m tests.faults --seeds 20 [--jobs 2] [--point TEXT]

Prints a table, and the first lines of each failure; the stores that failed stay. Exit code 1 when something failed.
"""
import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.harness import Nursery, Outcome, Rounds
from tests.faults.points import POINTS


def run_seed(seed: int, names: list[str], folder: Path) -> list[Outcome]:
    """All points with one seed."""
    nursery = Nursery()
    try:
        rounds = Rounds(nursery, folder / f"seed{seed}", seed)
        outcomes = [rounds.run(POINTS[name], seed) for name in names]
    finally:
        nursery.close()
    held = sum(not outcome.failure for outcome in outcomes)
    print(f"seed {seed}: {held} of {len(outcomes)} hold", file=sys.stderr, flush=True)
    return outcomes


def main() -> int:
    """Run, print, and say by the exit code whether all holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="kill a store at each named point")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--point", default="", help="only points whose name contains this")
    parser.add_argument("--folder", type=Path, default=None, help="where the stores go")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    names = [name for name in POINTS if options.point in name]
    seeds = range(options.first, options.first + options.seeds)
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [outcome for each in pool.map(lambda seed: run_seed(seed, names, folder), seeds) for outcome in each]
    for name in names:
        of_point = [outcome for outcome in outcomes if outcome.point == name]
        held = sum(not outcome.failure for outcome in of_point)
        print(f"{name:55} {held:4} of {len(of_point)} hold")
    failures = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failures:
        print(f"\n{outcome.point!r} seed {outcome.seed} passage {outcome.passage}:\n{outcome.failure}")
    print(f"\n{len(outcomes) - len(failures)} of {len(outcomes)} rounds hold; stores: {folder}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
