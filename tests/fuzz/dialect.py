"""The cost per byte of parsing fastjson's dialect: `python -m tests.fuzz.dialect --inputs 200000 --seed 1`.

Each text is read as a header or a body of some of the classes that servers read. The measure is CPU time of this
process, without the time of the same reader for `{a:0}`, which is a cost of the request, not of its bytes. The
reference is the median of all accepted readings of about that length that used rmqha's own parser: the standard library
is many times faster, and has to stay below the same limit. A reading that seems to cost more than `--times` the median
is repeated, and the minimum of five counts. The exit code is 1 if one remains.
"""
import argparse
import dataclasses
import functools
import importlib
import logging
import math
import pkgutil
import random
import statistics
import struct
import sys
import time
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmqha.common import protocol as headers
from rmqha.common.data_version import DataVersion
from rmqha.common.protocol.client_bodies import (
    CheckClientRequestBody,
    GetConsumerStatusBody,
    LockBatchRequestBody,
    ResetOffsetBody,
    UnlockBatchRequestBody,
)
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody, SyncStateSet
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.common.subscriptions import HeartbeatData
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand

# Integers that probe the same places in CPython's dicts and sets.
#
# An integer hashes to itself. If its place is taken, the next one is 5 * place + 1 + the rest of the hash, and the rest
# loses five bits each time. So most of the numbers here take the places that follow one another when the rest is 0. The
# other numbers, which walk, find only taken places until then, and walk along half of these. Pure; written from
# CPython's algorithm, without code of rmqha.

# The additional bits of a walking number besides those of its place: few steps, and enough numbers.
MORE_BITS = 10


@functools.cache
def colliding(places: int, walkers: int | None = None) -> list[int]:
    """Return as many integers as fit into a dict of `places` (a power of two); `walkers` of them walk, or a quarter."""
    count = places * 2 // 3
    walkers = count // 4 if walkers is None else min(walkers, count // 4)
    rng, mask, bits = random.Random(places), places - 1, places.bit_length() + MORE_BITS
    # Place -> the number of places before it on the walk.
    order: dict[int, int] = {}
    place = 1
    for number in range(count - walkers):
        order[place] = number
        place = (5 * place + 1) & mask
    found, last = dict.fromkeys(order), len(order) // 2
    while len(found) < count:
        number = left = rng.getrandbits(bits)
        place = number & mask
        while place in order and left >> 5:
            left >>= 5
            place = (5 * place + left + 1) & mask
        place = (5 * place + 1) & mask
        if order.get(place, last) < last:
            found[number] = None
    return list(found)


# Texts of fastjson's dialect: each production within each other one, deep, wide and long.
#
# A production is a text around a hole, which has a leaf or another production. Pure; written from fastjson's grammar,
# without code of rmqha. `python -m tests.fuzz.dialect` measures the reading of many texts, as each header and body that
# a server reads.

FEW = 1024  # colliding keys, which rmqha accepts
HOLE = "@"
# A different number at each place.
NUMBER = "#"
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
# Or beyond a limit; in each production, but in no other text.
BROKEN = {
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
    """A kind of text. `make(size)` returns one of about `size` characters."""

    name: str
    make: Callable[[int], str]


def _doubled(text: str) -> bool:
    return text.count(HOLE) > 1


def _filled(production: str, inner: str) -> str:
    """Return the production with `inner` in its hole; a second hole gets a number, or the text would double."""
    if _doubled(production) and len(inner) > 64:
        first, _, rest = production.partition(HOLE)
        return first + inner + rest.replace(HOLE, "#")
    return production.replace(HOLE, inner)


def _numbered(text: str) -> str:
    """Replace each `#` by a different number."""
    pieces = text.split(NUMBER)
    return "".join(f"{piece}{number}" for number, piece in enumerate(pieces[:-1])) + pieces[-1]


def deep(outer: str, inner: str, leaf: str, size: int) -> str:
    """Return texts with `outer` around `inner`, nested repeatedly."""
    step = len(_filled(outer, _filled(inner, "")))
    text = leaf
    for _ in range(min(240, max(1, size // step))):
        text = _filled(outer, _filled(inner, text))
    return _numbered(text)


def wide(outer: str, inner: str, leaf: str, size: int) -> str:
    """Return texts with many of `inner` in `outer`: as values, and as keys of one object."""
    one = _filled(inner, leaf)
    count = max(1, size // (2 * len(one) + 8))
    values, keys = ",".join([one] * count), ",".join([f"{one}:#"] * count)
    return _numbered(_filled(outer, f"[[{values}],{{{keys}}}]"))


def both(outer: str, inner: str, leaf: str, size: int) -> str:
    """Return texts with many deep and mostly equal keys."""
    key = deep(outer, inner, leaf, int(size ** 0.5))
    return "{" + ",".join([f"{key}:1"] * max(1, size // (len(key) + 3))) + "}"


def texts() -> Iterator[Text]:
    """Yield all texts: each pair of productions in each shape, each leaf in each production, and long texts."""
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
    """Draw (name, text)."""
    one = rng.choice(ALL)
    return one.name, one.make(size)


def costly(costs: dict[str, float], times: float) -> list[str]:
    """Return the readings that cost more than `times` the median, the costliest first."""
    median = statistics.median(costs.values())
    return [f"{name}: {cost:.2f} a byte, the median is {median:.2f}"
            for name, cost in sorted(costs.items(), key=lambda pair: -pair[1]) if cost > times * median]


# The readers of strangers' JSON: headers of all classes, and bodies of all classes with the text at each place.

Reader = Callable[[bytes], object]
READERS_HOLE = b"@"
# The bodies that name server, broker and controller decode. The last two are answers to a broker and to other servers,
# from any peer that claims to be a client or a name server. A test compares the list with the sources.
BODIES = [HeartbeatData, CheckClientRequestBody, LockBatchRequestBody, UnlockBatchRequestBody, SubscriptionGroupConfig,
          DataVersion, TopicConfigSerializeWrapper, RegisterBrokerBody, SyncStateSet, list[str], GetConsumerStatusBody,
          ResetOffsetBody, TopicRouteData]


def _framed(header: bytes, kind: int = 0) -> RemotingCommand:
    try:
        return RemotingCommand.decode(struct.pack(">I", kind << 24 | len(header)) + header)
    except RemotingCommandException as error:
        raise ValueError from error


def _header(before: bytes, after: bytes) -> Reader:
    return lambda text: _framed(before + text + after)


def _body(cls: type, before: bytes, after: bytes) -> Reader:
    return lambda text: remoting_serializable.decode(cls, before + text + after)


READERS: dict[str, Reader] = {
    "any value": fastjson.loads,
    "remark": _header(b'{"code":34,"remark":', b"}"),
    "field": _header(b'{"code":34,"extFields":{"a":', b"}}"),
    "unknown field": _header(b'{code:34,"x":', b"}"),
    "heartbeat": _body(HeartbeatData, b'{"clientID":', b"}"),
    "offsets": _body(ResetOffsetBody, b'{"offsetTable":', b"}"),
}


def header_classes() -> list[type[CommandCustomHeader]]:
    """Return all header classes."""
    for module in pkgutil.walk_packages(headers.__path__, headers.__name__ + "."):
        importlib.import_module(module.name)
    found, waiting = [], [CommandCustomHeader]
    while waiting:
        below = waiting.pop().__subclasses__()
        found += below
        waiting += below
    return sorted(set(found), key=lambda cls: cls.__name__)


def _custom_header(cls: type[CommandCustomHeader], field: str) -> Reader:
    """Return a reader with the text as one field's value, alternately as it is and in quotes; the others are `1`."""
    names = [item.name for item in dataclasses.fields(cls)]
    before = '{"code":34,"extFields":{%s"%s":' % ("".join(f'"{name}":"1",' for name in names if name != field), field)

    def read(text: bytes) -> object:
        if len(text) % 2 == 0:
            text = b'"%b"' % text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        command = _framed(b"%b%b}}" % (before.encode(), text))
        try:
            return command.decode_command_custom_header(cls)
        except RemotingCommandException as error:
            raise ValueError from error
    return read


def _binary_remark(text: bytes) -> object:
    return _framed(struct.pack(">hbhiii", 34, 0, 409, 1, 0, len(text)) + text + struct.pack(">i", 0), 1)


def _binary_fields(length: int) -> Reader:
    """Return a reader with pieces of the text as alternate names and values, each of `length` bytes."""
    def read(text: bytes) -> object:
        pieces = [text[at:at + length] for at in range(0, len(text), length)]
        pairs = b"".join(struct.pack(">i" if number % 2 else ">h", len(piece)) + piece
                         for number, piece in enumerate(pieces[:len(pieces) & ~1]))
        return _framed(struct.pack(">hbhiii", 34, 0, 409, 1, 0, 0) + struct.pack(">i", len(pairs)) + pairs, 1)
    return read


def places(annotation: object, levels: int = 7) -> Iterator[tuple[str, bytes]]:
    """Yield (name, JSON with HOLE) of each place of a value of this type: itself, elements, values, keys, fields."""
    yield "", READERS_HOLE
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if levels == 0:
        return
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        for item in dataclasses.fields(annotation):
            for name, inner in places(hints[item.name], levels - 1):
                yield f".{item.name}{name}", b'{"%b":%b}' % (item.name.encode(), inner)
    elif origin is dict:
        yield "{key}", b"{@:1}"
        for name, inner in places(args[1], levels - 1):
            yield f"{{}}{name}", b'{"k":%b}' % inner
    elif origin in (list, set):
        for name, inner in places(args[0], levels - 1):
            yield f"[]{name}", b"[%b]" % inner
    else:
        for arg in args:  # of an optional type
            yield from (one for one in places(arg, levels) if one[0])


def all_readers() -> dict[str, Reader]:
    """Return READERS, and a reader for each field of each header class and each place of each body class."""
    readers = dict(READERS)
    readers |= {f"header {cls.__name__}.{item.name}": _custom_header(cls, item.name)
                for cls in header_classes() for item in dataclasses.fields(cls)}
    readers |= {"binary remark": _binary_remark, "binary fields": _binary_fields(8), "binary names": _binary_fields(64)}
    for cls in BODIES:
        for name, text in places(cls):
            before, _, after = text.partition(READERS_HOLE)
            readers[f"body {getattr(cls, '__name__', cls)}{name}"] = _body(cls, before, after)
    return readers


# Approximate size in characters -> share of the inputs.
SHARES = {64: 0.12, 250: 0.23, 1000: 0.30, 4000: 0.24, 14_000: 0.10, 60_000: 0.008, 300_000: 0.002}
AGAIN = 5
# With fewer readings of a size, the median of all sizes counts.
CAMPAIGN_FEW = 200


@dataclass(frozen=True)
class Reading:
    """One text, read once. `asked`: its requested size; `cost`: microseconds of CPU time per byte, without the fixed
    part."""

    reader: str
    text: Text
    asked: int
    length: int
    cost: float
    is_read: bool
    # by `fastjson.parse`: token by token, the slow path
    is_parsed: bool

    @property
    def size(self) -> int:
        """The size in SHARES that is nearest to its length."""
        return min(SHARES, key=lambda size: abs(math.log(size / max(1, self.length))))

    def __str__(self) -> str:
        return (f"{self.cost:.3f} us a byte: {self.text.name}; {self.length} bytes, made for {self.asked}, as "
                f"{self.reader}, {'read' if self.is_read else 'refused'}")


class _ParserCalls:
    """A context whose `seen` is True if the parser was called within the block."""

    def __enter__(self) -> "_ParserCalls":
        self.seen = False
        self._parse = fastjson.parse
        fastjson.parse = self._noted
        return self

    def __exit__(self, *_: object) -> None:
        fastjson.parse = self._parse

    def _noted(self, text: str, most_wide: int | None = None) -> object:
        self.seen = True
        return self._parse(text, most_wide)


def cpu_us(read: Reader, data: bytes, runs: int = 1) -> tuple[float, bool]:
    """Return (the minimum CPU time, whether the text is accepted)."""
    best, is_read = float("inf"), True
    for _ in range(runs):
        begin = time.process_time_ns()
        try:
            read(data)
        except ValueError:
            is_read = False
        best = min(best, (time.process_time_ns() - begin) / 1000)
    return best, is_read


class Campaign:
    """A campaign. `run` reads texts; `readings` are those so far, `worst` returns those that cost too much."""

    def __init__(self, seed: int, readers: dict[str, Reader] | None = None):
        self.readers = all_readers() if readers is None else readers
        self.readings: list[Reading] = []
        self._rng = random.Random(seed)
        self._fixed = {name: cpu_us(read, b"{a:0}", 25)[0] for name, read in self.readers.items()}

    def run(self, inputs: int, seconds_max: float = float("inf"), texts: list[Text] = ALL,
            shares: dict[int, float] | None = None) -> None:
        """Do `inputs` readings, with each size's share, or fewer if the time is over. A text is made once for all its
        readers."""
        deadline = time.monotonic() + seconds_max
        names = list(self.readers)
        for size, share in (SHARES if shares is None else shares).items():
            count = round(inputs * share)
            each = max(2, -(-count // len(texts)))
            for text in self._rng.sample(texts, len(texts)):
                if count <= 0 or time.monotonic() > deadline:
                    break
                data = text.make(size).encode("utf-8", "replace")
                for name in self._rng.sample(names, min(each, len(names), count)):
                    self.readings.append(self._read(name, text, size, data))
                    count -= 1

    def _read(self, name: str, text: Text, asked: int, data: bytes, runs: int = 1) -> Reading:
        with _ParserCalls() as parser:
            took, is_read = cpu_us(self.readers[name], data, runs)
        cost = max(0.0, took - self._fixed[name]) / max(1, len(data))
        return Reading(name, text, asked, len(data), cost, is_read, parser.seen)

    def medians(self) -> dict[int, float]:
        """Return size -> median of the parsed and accepted readings."""
        costs: dict[int, list[float]] = {}
        for one in self.readings:
            if one.is_read and one.is_parsed:
                costs.setdefault(one.size, []).append(one.cost)
        together = statistics.median(cost for some in costs.values() for cost in some)
        return {size: statistics.median(costs[size]) if len(costs.get(size, ())) >= CAMPAIGN_FEW else together
                for size in {one.size for one in self.readings}}

    def worst(self, times: float) -> list[Reading]:
        """Return those that cost more than `times` the median of their size in several runs, the costliest first."""
        medians, found = self.medians(), []
        for one in self.readings:
            if one.cost > times * medians[one.size]:
                data = one.text.make(one.asked).encode("utf-8", "replace")
                # The fixed cost is that of now, on a machine that may be slower now.
                self._fixed[one.reader] = cpu_us(self.readers[one.reader], b"{a:0}", AGAIN)[0]
                again = self._read(one.reader, one.text, one.asked, data, AGAIN)
                if again.cost > times * medians[one.size]:
                    found.append(again)
        return sorted(found, key=lambda one: -one.cost / medians[one.size])


def report(campaign: Campaign, times: float, shown: int = 5) -> list[str]:
    """Return a line per size, with its costliest reading as a multiple of the median."""
    medians, lines = campaign.medians(), []
    for size, median in sorted(medians.items()):
        own = sorted((one for one in campaign.readings if one.size == size), key=lambda one: -one.cost)
        refused = sum(not one.is_read for one in own)
        lines.append(f"size {size}: {len(own)} readings, {refused} refused, {median:.3f} us a byte in the median of "
                     f"those that were parsed, {statistics.median(one.cost for one in own):.3f} of all")
        lines += [f"    {one.cost / median:.1f} times it, once: {one}" for one in own[:shown]]
    return lines + [f"a fault costs more than {times:g} times the median of its size, the least of {AGAIN} runs"]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.dialect", description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--times", type=float, default=10, help="of the median, that a byte may cost")
    parser.add_argument("--seconds-max", type=float, default=float("inf"), help="per run; what is left is not read")
    asked = parser.parse_args()
    # Else every wrong field logs a line.
    logging.getLogger("RocketmqRemoting").addHandler(logging.NullHandler())
    logging.getLogger("RocketmqRemoting").propagate = False
    begin = time.monotonic()
    campaign = Campaign(asked.seed)
    campaign.run(asked.inputs, asked.seconds_max)
    found = campaign.worst(asked.times)
    sys.stdout.writelines(f"{line}\n" for line in report(campaign, asked.times))
    medians = campaign.medians()
    sys.stdout.writelines(f"FAULT {one.cost / medians[one.size]:.1f} times the median, {one}\n" for one in found)
    sys.stdout.write(f"{len(campaign.readings)} of {asked.inputs} readings of seed {asked.seed} by "
                     f"{len(campaign.readers)} readers in {time.monotonic() - begin:.0f} s, {len(found)} too costly\n")
    return 1 if found or len(campaign.readings) < asked.inputs else 0


if __name__ == "__main__":

    sys.exit(main())
