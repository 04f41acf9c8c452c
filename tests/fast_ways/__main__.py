"""Write the page of fast paths, or compare many drawn cases; exit code 1 if two ways differ or a plant is not found."""
import argparse
import logging
import sys
import textwrap
import time

from tests.fast_ways.way import FAST, PLAIN, Way, all_ways, leave_all
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "reference" / "fast-ways.md"
_HEAD = """# Fast paths and plain ones

This page is for people who change the code where speed matters. There rmqha does the same thing in two ways: a plain
one, which accepts any input, and a fast one for common input. The page lists each fast path, when it is taken, and the
faults that its test has to find.

Each fast path is compared with the plain one over drawn cases:

- sizes from 0 to 4 MiB, many of them around the thresholds;
- input cut at any byte;
- calls in any legal order;
- a change of way in the middle.

Faults that are planted into the fast path have to be found by the same cases. So a comparison that can't fail is
noticed.

`tests/fast_ways/test_fast_ways.py` runs the usual number of cases. To run more, of all ways or of one:

    python -m tests.fast_ways --seeds 2000 [--way "lone record"]

It prints a line for each way: how many cases were equal, and how often each way was taken. A line for each planted
fault names the case that found it.
"""
_TAIL = """
This page is made by `python -m tests.fast_ways --page`.
"""
_SECTIONS = {"Replication": ("rmqha/store/ha/",), "Requests and answers": ("rmqha/remoting/",),
             "Broker": ("rmqha/broker/", "rmqha/store/message_reader.py"),
             "Spark": ("rmqha/pipeline/", "rmqha/store/bulk/"), "Store": ("rmqha/",)}


# What a section's entries take for granted.
_TERMS = {"Replication": """\
A slave's decoder reads into one buffer, its `view`; `writable` is the free part of it. Contiguous log bytes are a
*run*: the plain way makes one by moving the bodies of frames together. On a fast link the decoder predicts the size of
the frames. The socket then puts headers and bodies to *places* of their own, and nothing has to be moved.
"""}


def try_way(way: Way, seeds: range) -> bool:
    """Print a line for the comparison, and one for each plant; return whether all results are as expected."""
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
    # Odd cases make the servers log errors.
    logging.lastResort = None
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
    """Return the page with all ways."""
    ways, parts = all_ways(), [_HEAD]
    for section, folders in _SECTIONS.items():
        here = [way for way in ways if way.where.startswith(folders)]
        ways = [way for way in ways if way not in here]
        parts += [f"## {section}\n", *([_TERMS[section]] if section in _TERMS else []), *map(_entry, here)]
    return "\n".join(parts) + _TAIL


def _entry(way: Way) -> str:
    """Return the part of the page about one way."""
    name = way.name.removeprefix("store: ")
    lines = [f"### {name[0].upper()}{name[1:]}\n", f"`{way.where}`, {way.seeds} cases in a usual run\n"]
    for word, text in (("Fast path when", way.condition), ("Plain way", way.plain)):
        lines.append(textwrap.fill(f"- **{word}**: {text}.", 120, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join([*lines, "- **Planted faults**:", *(f"  - {plant.name}" for plant in way.plants)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
