"""Texts of fastjson's dialect: each production within each other one, deep, wide and long.

A production is a text around a hole; what stands in the hole is a leaf or another production. Pure; written from what
fastjson reads, and sharing no code with rmqha. `python -m tests.fuzz.dialect` times the reading of many texts, as each
header and body that a server reads; see `tests/fuzz/dialect_campaign.py`.
"""
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.fuzz.collisions import colliding

FEW = 1024  # colliding keys, which rmqha takes
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
    "behind references by name": '{"b":@,"a":{"$ref":"$.b"},"c":{"$ref":"$.a"}}',
    "behind references by number": '[{"$ref":"$[1].a"},{"a":@,"b":[0]}]',
    "value of a reference's name": '{"$ref":@}', "value beside a reference": '{"a":@,"b":{"$ref":"$.a"}}',
}
LEAVES = {
    "number": "#", "text": '"a"', "text in single quotes": "'a'", "name": "null", "float": "1.5e3", "flag": "true",
    "escapes": '"\\n\\u0041\\/"', "escapes of the dialect": "'\\x41\\v\\0'", "half of a pair": '"\\ud800"',
    "empty object": "{}", "empty list": "[]", "object": "{a:#,b:'#'}", "list of numbers": "[#,'#']",
    "reference": '{"$ref":"$"}', "blanks": " \t\n1 ", "cut": "", "wrong": "?", "raw control": '"\x01\n"',
}
BROKEN = {  # or beyond a limit; each stands in each production, but in no other text
    "end of an object": "}", "end of a list": "]", "comma": ",", "colon": ":", "two values": "1 1", "two names": "a b",
    "no such name": "undefined", "no number": "NaN", "infinity": "-Infinity", "sign alone": "-", "plus": "+1",
    "point without digits": "1.", "no digits before the point": ".5", "exponent without digits": "1e",
    "number with letters": "1L", "hexadecimal number": "0x1F", "long number": "9" * 4301, "number of 65 bits": "9" * 20,
    "no such escape": "'\\q'", "half of an escape": "'\\u00'", "open text": '"a', "open text in single quotes": "'a",
    "reference to nowhere": '{"$ref":"$.nobody"}', "reference that is no text": '{"$ref":1}',
    "reference to itself": '{"$ref":"@"}', "reference and more": '{"$ref":"$","a":1}', "comment": "/*a*/1",
    "type": '{"@type":"java.lang.Class","val":"a"}', "set": "Set[1]", "tree set": "TreeSet[1]", "bytes": "x'0a'",
    "new date": "new Date(1)", "number as text": "'7'", "large float": "1e999", "digits of another script": "\u0661",
}
REFERENCE = '{"$ref":"$.a"}'
STATES = {"in place of a value": "[", "after a value": "[1", "in place of a key": "{", "after a key": "{a"}
TOKENS = ["{", "}", "[", "]", ",", ":", '"b"', "'b'", "7", "7.5", "b"]
LONG = {"digits": "9", "fraction": "0.1234567890", "escape by number": "\\x41", "pair": "\\ud83d\\ude00",
        "letters of another script": "\u00e9", "plus": "+", "single quotes": "''", "opened lists in keys": "{[",
 "text": "x", "escape": "\\n", "quote": "\\'", "half of a pair": "\\ud800", "blank": " ",
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
        for what, leaf in (*leaves, *BROKEN.items()):
            yield Text(f"wide: {what} as {name}", lambda size, a=(outer, leaf): wide(a[0], HOLE, a[1], size))
    for what, one in LONG.items():
        for begin, end in (("", ""), ('{a:"', '"}'), ("{a:'", "'}"), ("{'", "':1}"), ("{a:", "}"), ("{", ":1}")):
            yield Text(f"long: {begin}{what}",
                       lambda size, a=(begin, one, end): f"{a[0]}{a[1] * (size // len(a[1]))}{a[2]}")
    yield Text("long: lists in lists, closed", lambda size: ("[" * min(700, size // 2) + "]" * min(700, size // 2)))
    yield Text("long: references to much", lambda size: (
        f'{{"a":[{"1," * (size // 4)}1],"b":[{",".join([REFERENCE] * (size // 2 // len(REFERENCE)))}]}}'))
    for where, begin in STATES.items():
        for token in TOKENS:
            yield Text(f"token: {token} {where}", lambda size, a=(begin, token): f"[{'1,' * (size // 2)}{a[0]} {a[1]}")
    for quote in ("", "'", '"'):
        for walkers in (None, FEW):
            yield Text(f"colliding: {walkers or 'many'} keys within {quote or 'nothing'}", lambda size, a=(
                quote, walkers): "{" + ",".join(f"{a[0]}{key}{a[0]}:0" for key in _colliding(size, a[1])) + "}")
    yield Text("colliding: numbers of a list", lambda size: str(_colliding(size, None)))


def _colliding(size: int, walkers: int | None) -> list[int]:
    places = 16
    while places * 22 // 3 < size:
        places *= 2
    return colliding(places, walkers)


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


if __name__ == "__main__":
    from tests.fuzz.dialect_campaign import main

    sys.exit(main())
