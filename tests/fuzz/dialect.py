"""Texts of fastjson's dialect: each production within each other one, deep, wide and long.

A production is a text around a hole; what stands in the hole is a leaf or another production. Pure; written from what
fastjson reads, and sharing no code with rmqha. `python -m tests.fuzz.dialect` times the reading of many texts.
"""
import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

HOLE = "@"
NUMBER = "#"  # is another number at each place
PRODUCTIONS = {
    "list": "[@]", "list that ends with a comma": "[@,]", "second of a list": "[0,@]", "list of two": "[@,@]",
    "value of a text": '{"a":@}', "value of a text in single quotes": "{'a':@}", "value of a name": "{a:@}",
    "value of a number": "{#:@}", "value that ends with a comma": "{a:@,}", "second value": "{a:0,b:@}",
    "value of an object": "{{a:#}:@}", "value of a list": "{[#]:@}", "value of an empty object": "{{}:@}",
    "key": "{@:1}", "key and value": "{@:@}", "second key": "{a:1,@:2}", "key twice": "{@:1,@:2}",
    "key in a value": "{a:{@:1}}", "value in a key": "{{a:@}:1}", "list in a key": "{[@]:1}",
    "key in a list": "[{@:1}]",
    "value of a reference's name": '{"$ref":@}', "value beside a reference": '{"a":@,"b":{"$ref":"$.a"}}',
}
LEAVES = {
    "number": "#", "text": '"a"', "text in single quotes": "'a'", "name": "null", "float": "1.5e3", "flag": "true",
    "escapes": '"\\n\\u0041\\/"', "escapes of the dialect": "'\\x41\\v\\0'", "half of a pair": '"\\ud800"',
    "empty object": "{}", "empty list": "[]", "object": "{a:#,b:'#'}", "list of numbers": "[#,'#']",
    "reference": '{"$ref":"$"}', "blanks": " \t\n1 ", "cut": "", "wrong": "?", "raw control": '"\x01\n"',
}
LONG = {"digits": "9", "text": "x", "escape": "\\n", "quote": "\\'", "half of a pair": "\\ud800", "blank": " ",
        "brackets": "[", "braces": "{", "keys": "{{", "commas": "[1,"}


@dataclass(frozen=True)
class Text:
    """`make(size)` is a text of about so many characters."""

    name: str
    make: Callable[[int], str]


def _doubled(text: str) -> bool:
    return text.count(HOLE) > 1


def _filled(production: str, inner: str) -> str:
    """The production with `inner` in its hole; in the second of two holes stands a number, or it would double."""
    if _doubled(production) and len(inner) > 64:
        first, _, rest = production.partition(HOLE)
        return first + inner + rest.replace(HOLE, "#")
    return production.replace(HOLE, inner)


def _numbered(text: str) -> str:
    """Each `#` becomes another number."""
    pieces = text.split(NUMBER)
    return "".join(f"{piece}{number}" for number, piece in enumerate(pieces[:-1])) + pieces[-1]


def deep(outer: str, inner: str, leaf: str, size: int) -> str:
    """`outer` around `inner`, again and again."""
    step = len(_filled(outer, _filled(inner, "")))
    text = leaf
    for _ in range(min(240, max(1, size // step))):
        text = _filled(outer, _filled(inner, text))
    return _numbered(text)


def wide(outer: str, inner: str, leaf: str, size: int) -> str:
    """Many of `inner` side by side, in `outer`: as values, and as keys of one object."""
    one = _filled(inner, leaf)
    count = max(1, size // (2 * len(one) + 8))
    values, keys = ",".join([one] * count), ",".join([f"{one}:#"] * count)
    return _numbered(_filled(outer, f"[[{values}],{{{keys}}}]"))


def both(outer: str, inner: str, leaf: str, size: int) -> str:
    """Many keys that are deep, and mostly equal."""
    key = deep(outer, inner, leaf, int(size ** 0.5))
    return "{" + ",".join([f"{key}:1"] * max(1, size // (len(key) + 3))) + "}"


def texts() -> Iterator[Text]:
    """All: each pair of productions in each shape, each leaf in each production, and what is long."""
    leaves = list(LEAVES.items())
    for number, (name, outer) in enumerate(PRODUCTIONS.items()):
        for again, (other, inner) in enumerate(PRODUCTIONS.items()):
            what, leaf = leaves[(number + again) % len(leaves)]
            for shape in (deep, wide, both):
                yield Text(f"{shape.__name__}: {other} as {name}, of {what}",
                           lambda size, a=(shape, outer, inner, leaf): a[0](*a[1:], size))
        for what, leaf in leaves:
            yield Text(f"wide: {what} as {name}", lambda size, a=(outer, leaf): wide(a[0], HOLE, a[1], size))
    for what, one in LONG.items():
        for begin, end in (("", ""), ('{a:"', '"}'), ("{a:'", "'}"), ("{'", "':1}"), ("{a:", "}"), ("{", ":1}")):
            yield Text(f"long: {begin}{what}",
                       lambda size, a=(begin, one, end): f"{a[0]}{a[1] * (size // len(a[1]))}{a[2]}")


ALL = list(texts())


def drawn(rng: random.Random, size: int) -> tuple[str, str]:
    """(what it is, a text) by chance."""
    one = rng.choice(ALL)
    return one.name, one.make(size)


def costly(costs: dict[str, float], times: float) -> list[str]:
    """Those that cost more than `times` the median, the costliest first."""
    median = statistics.median(costs.values())
    return [f"{name}: {cost:.2f} a byte, the median is {median:.2f}"
            for name, cost in sorted(costs.items(), key=lambda pair: -pair[1]) if cost > times * median]


def cpu_per_byte(read: Callable[[bytes], object], data: bytes) -> float:
    """Microseconds of CPU time for a byte, the least of three runs; what is raised as a refusal has its cost, too."""
    best = float("inf")
    for _ in range(3):
        begin = time.thread_time_ns()
        try:
            read(data)
        except ValueError as refused:
            del refused
        best = min(best, (time.thread_time_ns() - begin) / 1000 / len(data))
    return best


def main() -> int:
    """Time all texts, at several sizes, as headers and as bodies."""
    from tests.fuzz.dialect_readers import READERS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.dialect", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000, 14_000, 60_000])
    parser.add_argument("--times", type=float, default=10, help="of the median, that a text may cost")
    asked = parser.parse_args()
    found = []
    for name, read in READERS.items():
        costs = {f"{name}, {size}, {one.name}": cpu_per_byte(read, one.make(size).encode("utf-8", "replace"))
                 for size in asked.sizes for one in ALL}
        sys.stdout.write(f"{name}: {len(costs)} texts, {statistics.median(costs.values()):.3f} us a byte as a rule\n")
        found += costly(costs, asked.times)
    sys.stdout.writelines(f"FAULT {line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
