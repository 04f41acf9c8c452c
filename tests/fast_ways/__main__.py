"""Print the table of fast ways, or compare many drawn cases; 1 when two ways differ or a plant stays hidden."""
import argparse
import logging
import sys
import time

from tests.fast_ways.way import FAST, PLAIN, Way, all_ways, leave_all
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "fast-ways.md"
_HEAD = """# Fast ways and plain ones

Where speed matters, rmqha does the same thing in two ways: a plain one, which takes any input, and a fast one, for what
is common. Each fast way is compared with the plain one over drawn cases: sizes from 0 to 4 MiB, many of them around the
thresholds; input cut at any byte; calls in any legal order; a change of way in the middle. Faults that are planted into
the fast way have to be found by the same cases, so a comparison that can't fail is noticed.

`tests/fast_ways/test_fast_ways.py` runs the usual number of cases. More, of all ways or of one:

    python -m tests.fast_ways --seeds 2000 [--way "lone record"]

A line for each way says how many cases were equal and how often each way was taken, a line for each planted fault which
case found it. This page is made by `python -m tests.fast_ways --page`.
"""


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
    parser.add_argument("--page", action="store_true", help="write docs/reference/fast-ways.md, and run nothing")
    options = parser.parse_args()
    logging.lastResort = None  # what the servers say of odd cases
    ways = [way for way in all_ways() if options.way in way.name]
    if options.page:
        PAGE.write_text(page(), "utf-8")
        return 0
    try:
        return 0 if all([try_way(way, range(options.first, options.first + (options.seeds or way.seeds)))
                         for way in ways]) else 1
    finally:
        leave_all()


def page() -> str:
    """The page with all ways."""
    lines = [_HEAD, "| way | where | taken when | plain way | planted faults, each found | cases in a usual run |",
             "|---|---|---|---|---|---|"]
    for way in all_ways():
        plants = "; ".join(plant.name for plant in way.plants)
        cells = (way.name, f"`{way.where}`", way.condition, way.plain, plants, str(way.seeds))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
