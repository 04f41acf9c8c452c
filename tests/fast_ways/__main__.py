"""Print the table of fast ways, or compare many drawn cases; 1 when two ways differ or a plant stays hidden."""
import argparse
import logging
import sys
import time

from tests.fast_ways.kept import leave_all
from tests.fast_ways.way import FAST, PLAIN, Way
from tests.fast_ways.ways import all_ways


def try_way(way: Way, seeds: range) -> bool:
    """Print a line for the comparison, and one for each plant; whether all is as it should be."""
    if way.missing():
        print(f"{way.name}: skipped, not installed: {', '.join(way.missing())}", flush=True)
        return True
    begin = time.monotonic()
    try:
        taken = way.run(seeds)
    except AssertionError as failure:
        print(f"{way.name}: DIFFERS: {failure}", flush=True)
        return False
    print(f"{way.name}: {len(seeds)} cases equal, fast {taken[FAST]}, plain {taken[PLAIN]} "
          f"({time.monotonic() - begin:.1f} s)", flush=True)
    good = bool(taken[FAST])
    for plant in way.plants:
        seed = way.found_at(plant, seeds)
        print(f"    {plant.name}: " + ("NOT FOUND" if seed is None else f"found at seed {seed}"), flush=True)
        good &= seed is not None
    return good


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fast_ways", description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="cases of each way; default: as many as each usually has")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--way", default="", help="only ways whose name contains this")
    parser.add_argument("--table", action="store_true", help="print the table as Markdown, and run nothing")
    options = parser.parse_args()
    logging.lastResort = None  # what the servers say of odd cases
    ways = [way for way in all_ways() if options.way in way.name]
    if options.table:
        print("\n".join(table(ways)))
        return 0
    try:
        return 0 if all([try_way(way, range(options.first, options.first + (options.seeds or way.seeds)))
                         for way in ways]) else 1
    finally:
        leave_all()


def table(ways: list[Way]) -> list[str]:
    """The lines of the Markdown table."""
    lines = ["| way | where | taken when | plain way | planted faults, each found |", "|---|---|---|---|---|"]
    for way in ways:
        plants = "; ".join(plant.name for plant in way.plants)
        lines.append(f"| {way.name} | `{way.where}` | {way.condition} | {way.plain} | {plants} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
