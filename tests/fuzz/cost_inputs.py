"""Requests that may be costly for a server: valid calls of each code with one enlarged part, from a seed.

Each input depends only on the seed and its number, so that it can be sent again without earlier ones. Pure; written
from the wire format, without code of rmqha.
"""
import copy
import json
import random
import struct
import zlib
from collections.abc import Callable

from rmqha.common.lazy_dataclasses import dataclass
from tests.fuzz import dialect
from tests.fuzz.remoting import FIRST_OPAQUE, GROWN, MAX_FRAME, Call, Fuzzer, framed

KIB, MIB = 1 << 10, 1 << 20
MERSENNE = (1 << 61) - 1  # CPython's integers hash modulo this
MAX_HEADER = (1 << 24) - 1  # the maximum of 24 bits
# The part of a frame for everything that is not enlarged.
ROOM = 64 * KIB
# The cumulative share of the inputs, and their largest size.
SIZES = ((0.60, 8 * KIB), (0.90, 64 * KIB), (0.985, MIB), (1.0, 16 * MIB))
# The share of inputs from the fuzzer of broken frames.
BROKEN = 0.15
# The share of inputs with a signature, with access control.
SIGNED = 0.6
TRIES = 400  # calls tried for one growth
NUMBERS = ["-1", "0", "1", "32", "1000000", str(2**31 - 1), str(2**62), str(2**63 - 1), str(-2**63)]
BATCH_CODE, REGISTER_CODE = 320, 103


@dataclass(frozen=True)
class CostInput:
    """One frame. `what`: the enlarged part; `opaque` identifies its answer; `is_whole`: it ends with a complete
    frame."""

    number: int
    code: int
    what: str
    data: bytes
    opaque: int
    is_whole: bool = True


class CostInputs:
    """The inputs of one server, by number. `calls` are valid calls of all codes; `sign` adds a signature to one."""

    def __init__(self, calls: list[Call], seed: int, sign: Callable[[Call], None] | None = None):
        self._calls = calls
        self._seed = seed
        self._sign = sign
        self._growths: list[Callable[[random.Random, Call, int], str | None]] = [
            _list_of_many, _list_of_many, _list_of_equals, _references, _collisions, _deep, _wide, _empties,
            _long_number, _long_text, _cut_body, _properties_text, _batch, _compressed, _extra_fields, _long_value,
            _expression, _expression, _numbers, _numbers, _names, _names, _noise, _dialect, _dialect, _dialect]

    def input(self, number: int) -> CostInput:
        """Return input `number`."""
        rng = random.Random(f"{self._seed}/{number}")
        if rng.random() < BROKEN:
            broken = Fuzzer(self._calls, rng.getrandbits(48)).next()
            return CostInput(number, 0, "broken: " + ", ".join(broken.mutations), broken.data, broken.opaque,
                             broken.is_complete)
        return self._grown(rng, number)

    def _grown(self, rng: random.Random, number: int) -> CostInput:
        size = self._size(rng)
        opaque = FIRST_OPAQUE + number
        growth = rng.choice(self._growths)
        for _ in range(TRIES):
            source = rng.choice(self._calls)
            fields = dict(source.header["extFields"])
            call = Call({**source.header, "opaque": opaque, "extFields": fields}, source.body, rng.random() < 0.4)
            what = growth(rng, call, size)
            if what is None:
                continue
            if self._sign is not None and rng.random() < SIGNED:
                self._sign(call)
                what += ", signed"
            data = framed(call)
            if len(data) <= MAX_FRAME:
                return CostInput(number, int(source.header["code"]), what, data, opaque)
        # No code of the server can have this growth.
        return self._grown(rng, number)

    def _size(self, rng: random.Random) -> int:
        """Draw the size of the enlarged part: n, 2n or 4n for many values of n, mostly small ones."""
        share = rng.random()
        largest = next(size for limit, size in SIZES if share <= limit)
        base = max(64, int(largest * 8 ** -rng.random()) // 4)
        return min(base * rng.choice((1, 2, 4)), MAX_FRAME - ROOM)


def _json(call: Call) -> object | None:
    """Return the body as JSON, or None if it is not JSON."""
    if call.body[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(call.body)
    except ValueError:
        return None


def _dumped(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _paths(value: object, kinds: type | tuple[type, ...], path: tuple = ()) -> list[tuple]:
    """Return the paths of values of these types."""
    found = [path] if isinstance(value, kinds) and path else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in pairs:
        found += _paths(one, kinds, (*path, key))
    return found


def _at(value: object, path: tuple) -> object:
    for key in path:
        value = value[key]
    return value


def _put(value: object, path: tuple, one: object) -> None:
    _at(value, path[:-1])[path[-1]] = one


def _renamed(value: object, number: int) -> object:
    """Return a copy with other names."""
    if isinstance(value, dict):
        return {key: _renamed(one, number) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, number) for one in value]
    return f"{value}-{number}" if isinstance(value, str) and value[:1].islower() else value


def _list_of_many(rng: random.Random, call: Call, size: int) -> str | None:
    return _grow_list(rng, call, size, _renamed, "different elements")


def _list_of_equals(rng: random.Random, call: Call, size: int) -> str | None:
    return _grow_list(rng, call, size, lambda one, _number: one, "equal elements")


def _grow_list(rng: random.Random, call: Call, size: int, make: Callable[[object, int], object],
               what: str) -> str | None:
    body = _json(call)
    paths = _paths(body, list)
    if not paths:
        return None
    path = rng.choice(paths)
    element = (_at(body, path) or ["codes-a"])[0]
    count = max(1, size // (len(_dumped(element)) + 6))
    _put(body, path, [make(element, number) for number in range(count)])
    call.body = _dumped(body)
    return f"{count} {what} in {path}"


def _references(rng: random.Random, call: Call, size: int) -> str | None:
    """Make half of the body a value, and the other half references to it, or to references."""
    body = _json(call)
    paths = _paths(body, list)
    if not paths:
        return None
    path = rng.choice(paths)
    element = copy.deepcopy((_at(body, path) or ["codes-a"])[0])
    texts = _paths(element, str)
    if isinstance(element, dict):
        inner = _paths(element, list)
        if inner:
            where = rng.choice(inner)
            one = (_at(element, where) or ["codes-a"])[0]
            _put(element, where, [_renamed(one, number) for number in range(size // 2 // (len(_dumped(one)) + 6))])
        elif texts:
            _put(element, rng.choice(texts), "r" * (size // 2))
    place = "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path) + "[0]"
    target = rng.choice((place, "$", "..", "@", place + ".subscriptionDataSet[0]", place + "[" * 50))
    reference = {"$ref": target}
    count = max(1, size // 2 // (len(target) + 12))
    _put(body, path, [element, *([reference] * count)])
    call.body = _dumped(body)
    return f"{count} references to {target} in {path}"


def _collisions(rng: random.Random, call: Call, size: int) -> str | None:
    """Make keys and elements that collide in the hashes of many implementations."""
    body = _json(call)
    paths = _paths(body, (dict, list))
    if not paths:
        return None
    path = rng.choice(paths)
    kind = rng.randrange(3)
    if kind == 0:
        count = size // 26
        text = "{" + ",".join(f"{number * MERSENNE}:0" for number in range(1, count + 1)) + "}"
    elif kind == 1:  # Java's String.hashCode: "Aa" and "BB"
        bits = max(1, (size // 40).bit_length())
        count = min(size // (2 * bits + 6), 1 << bits)
        text = "{" + ",".join('"' + "".join("BB" if number >> bit & 1 else "Aa" for bit in range(bits)) + '":0'
                              for number in range(count)) + "}"
    else:
        element = _at(body, path)
        while isinstance(element, list) and element:
            element = element[0]
        if not isinstance(element, dict):
            return None
        one = {**element, "subVersion": "@"}
        count = max(1, size // (len(_dumped(one)) + 12))
        pieces = _dumped(one).decode().split('"@"')
        text = "[" + ",".join(str(number * MERSENNE if number < 4 else number).join(pieces)
                              for number in range(count)) + "]"
    _put(body, path, "@grown@")
    call.body = _dumped(body).replace(b'"@grown@"', text.encode())
    return f"{count} collisions of kind {kind} in {path}"


def _deep(rng: random.Random, call: Call, size: int) -> str | None:
    body = _json(call)
    paths = _paths(body, object)
    if not paths:
        return None
    path = rng.choice(paths)
    begin, end = rng.choice((("[", "]"), ('{"a":', "}"), ('[{"a":', "}]"), ('{"$ref":', "}"), ("{{", "}")))
    depth = rng.choice((50, 500, max(1, size // (len(begin) + len(end)))))
    _put(body, path, "@grown@")
    text = begin * depth + rng.choice(("0", "[]", "")) + end * rng.choice((depth, 0))
    call.body = _dumped(body).replace(b'"@grown@"', text.encode())
    return f"depth {depth} of {begin} in {path}"


def _dialect(rng: random.Random, call: Call, size: int) -> str | None:
    """Make a text of fastjson's dialect, in the body or the header, often the longest that a header may have."""
    body = _json(call)
    if body is None or rng.random() < 0.5:
        what, text = dialect.drawn(rng, min(size, rng.choice((1000, 4000, 14_000, size))))
        call.binary, call.grown = False, text.encode("utf-8", "surrogatepass")
        place = rng.choice(("remark", "unknown", "extFields"))
        if place == "extFields":
            call.header["extFields"]["unknown"] = GROWN
        else:
            call.header[place] = GROWN
        return f"the dialect in {place}, {len(text)} characters, {what}"
    what, text = dialect.drawn(rng, size)
    paths = _paths(body, object)
    if not paths:
        return None
    path = rng.choice(paths)
    _put(body, path, GROWN)
    call.body = _dumped(body).replace(b'"%b"' % GROWN.encode(), text.encode("utf-8", "surrogatepass"))
    return f"the dialect in {path}, {len(text)} characters, {what}"


def _wide(rng: random.Random, call: Call, size: int) -> str | None:
    body = _json(call)
    if not isinstance(body, dict):
        return None
    paths = [*_paths(body, dict), ()]
    path = rng.choice(paths)
    count = size // 16
    _at(body, path).update((f"{rng.choice('xyz')}{number}", number) for number in range(count))
    call.body = _dumped(body)
    return f"{count} more keys in {path}"


def _empties(rng: random.Random, call: Call, size: int) -> str | None:
    one = rng.choice(("[]", "{}", '""', "null", "[[]]", '{"a":[]}', "0", "-"))
    count = size // (len(one) + 1)
    text = "[" + ",".join([one] * count) + "]"
    body = _json(call)
    if isinstance(body, dict):
        _put(body, rng.choice([*_paths(body, object), ("unknown",)]), "@grown@")
        call.body = _dumped(body).replace(b'"@grown@"', text.encode())
    else:
        call.body = text.encode()
    return f"{count} times {one}"


_DIGITS: list[Callable[[int], str]] = [
    lambda size: "9" * size, lambda size: "0." + "1" * size, lambda size: "1e" + "9" * min(size, 400),
    lambda size: "-" + "1" * size, lambda size: "1" + "0" * size, lambda size: "1e400",
    lambda size: '"' + "9" * size + '"', lambda size: "[" + ",".join(["9" * 4000] * (size // 4001 + 1)) + "]"]


def _long_number(rng: random.Random, call: Call, size: int) -> str | None:
    body = _json(call)
    paths = _paths(body, (int, str, list)) if body is not None else []
    if not paths:
        return None
    path = rng.choice(paths)
    text = rng.choice(_DIGITS)(size)
    _put(body, path, "@grown@")
    call.body = _dumped(body).replace(b'"@grown@"', text.encode())
    return f"a number of {len(text)} digits in {path}"


def _long_text(rng: random.Random, call: Call, size: int) -> str | None:
    body = _json(call)
    paths = _paths(body, str) if body is not None else []
    if not paths:
        return None
    path = rng.choice(paths)
    one = rng.choice(("x", "\\u0000", "\\\\", '\\"', "\u00e9", "\\ud800", "a||", "(", "\\x41", "a@b"))
    _put(body, path, "@grown@")
    text = '"' + one * (size // len(one)) + '"'
    call.body = _dumped(body).replace(b'"@grown@"', text.encode())
    return f"{len(text)} characters of {one} in {path}"


def _cut_body(rng: random.Random, call: Call, size: int) -> str | None:
    what = _grow_list(rng, call, size, _renamed, "different elements")
    if what is None:
        return None
    call.body = call.body[:-rng.choice((1, 2, 3, len(call.body) // 2))]
    return f"{what}, cut"


def _properties_text(rng: random.Random, call: Call, size: int) -> str | None:
    """Make a body of properties, `key=value` lines."""
    if call.header["code"] not in (25, 318):
        return None
    kind = rng.randrange(4)
    lines: list[Callable[[int], str]] = [
        lambda n: f"nobody{n}={n}\n", lambda n: "a\\\n", lambda n: "=\n", lambda n: "#\\u0041\\\n"]
    call.body = "".join(lines[kind](number) for number in range(size // 12)).encode()
    return f"{size // 12} lines of kind {kind}"


def _batch(rng: random.Random, call: Call, size: int) -> str | None:
    """Make a batch of the smallest messages, of messages with many properties, or with wrong sizes."""
    if call.header["code"] not in (10, 310, BATCH_CODE):
        return None
    fields = call.header["extFields"]
    fields["m" if "m" in fields else "batch"] = "true"
    properties = rng.choice((b"", b"", b"a\x01b\x02" * 8, b"\x02" * 30))
    one = struct.pack(">iiiii", 22 + len(properties), 0, 0, 0, 0) + struct.pack(">h", len(properties)) + properties
    count = max(1, min(size, 4 * MIB) // len(one))
    call.body = one * count
    if rng.random() < 0.2:
        call.body += struct.pack(">iiiii", 2**31 - 1, 0, 0, 0, 5)
    return f"a batch of {count} messages of {len(one)} bytes"


def _compressed(rng: random.Random, call: Call, size: int) -> str | None:
    """Make a compressed registration: many topics, a hundredfold inflation, or wrong counts."""
    if call.header["code"] != REGISTER_CODE:
        return None
    call.header["extFields"] |= {"compressed": "true", "bodyCrc32": "0", "brokerName": f"broker-{rng.randrange(9)}"}
    kind = rng.randrange(4)
    version, servers = b'{"counter":1,"timestamp":1}', b"[]"
    topics = [b"T%d 4 4 6 SINGLE_TAG" % number for number in range(size // 24)]
    count = len(topics)
    if kind == 1:
        topics, servers = [], b"[" + b"[]," * (size * 8) + b"[]]"
    elif kind == 2:
        topics = [b"T 4 4 6 SINGLE_TAG"] * (size // 2)
        count = len(topics)
    elif kind == 3:
        count = 2**31 - 1
    plain = b"".join([struct.pack(">i", len(version)), version, struct.pack(">i", count),
                      *(struct.pack(">i", len(topic)) + topic for topic in topics),
                      struct.pack(">i", len(servers)), servers])
    call.body = zlib.compress(plain, 6)
    return f"a compressed registration of kind {kind}, {len(plain)} bytes inflated"


def _extra_fields(rng: random.Random, call: Call, size: int) -> str | None:
    count = min(size, MAX_HEADER // 2) // 24
    prefix = rng.choice(("f", "", "Aa", "\u00e9"))
    call.header["extFields"].update((f"{prefix}{number}", str(number)) for number in range(count))
    return f"{count} more fields"


def _long_value(rng: random.Random, call: Call, size: int) -> str | None:
    fields = call.header["extFields"]
    if not fields:
        return None
    name = rng.choice(list(fields))
    one = rng.choice(("x", "a||", "\u00e9", "\\", "k\x01v\x02", "9", "a,", "%RETRY%", "../", " ", "a@b"))
    fields[name] = one * (min(size, MAX_HEADER // 3) // len(one))
    return f"{name} of {len(fields[name])} characters of {one!r}"


_SQL: list[Callable[[int], str]] = [
    lambda size: " OR ".join(["a > 1"] * (size // 9)), lambda size: "(" * (size // 2) + "a>1" + ")" * (size // 2),
    lambda size: "NOT " * (size // 4) + "a > 1", lambda size: "a IN (" + ",".join(["'x'"] * (size // 4)) + ")",
    lambda size: "a BETWEEN 1 AND 2 AND " * (size // 22) + "b=1", lambda size: "a = " + "9" * size,
    lambda size: "a = '" + "''" * (size // 2) + "'", lambda size: " " * size + "a > 1",
    lambda size: "a>" + "-" * size + "1", lambda size: "/*" + "*" * size, lambda size: "a" * size,
    lambda size: "a IS NOT NULL AND " * (size // 18) + "TRUE", lambda size: "a = 1." + "0" * size]
_TAGS: list[Callable[[int], str]] = [
    lambda size: "||".join(f"t{number}" for number in range(size // 8)), lambda size: "|" * size,
    lambda size: "t||" * (size // 3)]
_PROPERTIES: list[Callable[[int], str]] = [
    lambda size: "k\x01v\x02" * (size // 4), lambda size: "\x02" * size, lambda size: "\x01" * size,
    lambda size: "KEYS\x01" + "k " * (size // 2), lambda size: "TAGS\x01" + "t" * size,
    lambda size: "".join(f"k{number}\x01v\x02" for number in range(size // 8)),
    lambda size: "DELAY\x01" + "9" * min(size, 100), lambda size: "INNER_MULTI_DISPATCH\x01" + "a," * (size // 2)]


def _subscription(rng: random.Random, size: int) -> tuple[str, str]:
    """Return an expression as (text, type)."""
    return (rng.choice(_SQL)(size), "SQL92") if rng.random() < 0.6 else (rng.choice(_TAGS)(size), "TAG")


def _expression(rng: random.Random, call: Call, size: int) -> str | None:
    """Make tags, SQL expressions or properties."""
    fields, limit = call.header["extFields"], min(size, MAX_HEADER // 3)
    body = _json(call)
    if "subscription" in fields:
        text, kind = _subscription(rng, limit)
        fields.update(subscription=text, expressionType=kind, sysFlag=rng.choice(("4", "0", "6")))
    elif body is not None and (paths := [path for path in _paths(body, str) if path[-1] == "subString"]):
        text, kind = _subscription(rng, limit)
        for path in paths:
            _put(body, path, text)
            _put(body, (*path[:-1], "expressionType"), kind)
        call.body = _dumped(body)
    elif "properties" in fields or "i" in fields:
        name, kind = ("properties" if "properties" in fields else "i"), "properties"
        text = rng.choice(_PROPERTIES)(limit)
        fields[name] = text
    else:
        return None
    return f"{kind} of {len(text)} characters: {text[:30]!r}"


def _numbers(rng: random.Random, call: Call, _size: int) -> str | None:
    """Make counts, offsets and times for which a server may loop or search far."""
    fields = call.header["extFields"]
    names = [name for name, value in fields.items() if str(value).lstrip("-").isdecimal() or value == ""]
    if not names:
        return None
    changed = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3))))
    for name in changed:
        fields[name] = rng.choice(NUMBERS)
    return ", ".join(f"{name}={fields[name]}" for name in changed)


def _names(rng: random.Random, call: Call, _size: int) -> str | None:
    """Make new names, which a server may keep."""
    fields = call.header["extFields"]
    suffix = f"-{rng.getrandbits(40):x}"
    names = [name for name, value in fields.items() if str(value)[:1].isalpha() and value not in ("true", "false")]
    for name in names:
        fields[name] = f"{fields[name]}{suffix}"[-120:]
    body = _json(call)
    if body is not None:
        call.body = _dumped(_renamed(body, rng.getrandbits(30)))
    return f"new names {suffix}" if names or body is not None else None


_NOISE: list[Callable[[int], bytes]] = [
    lambda size: random.Random(size).randbytes(min(size, MIB)), lambda size: b"\x00" * size, lambda size: b"{" * size,
    lambda size: b"[" * size, lambda size: b'{"a":' * (size // 5), lambda size: b'"' + b"\\" * size,
    lambda size: zlib.compress(b"\x00" * (size * 20), 1)]


def _noise(rng: random.Random, call: Call, size: int) -> str | None:
    call.body = rng.choice(_NOISE)(size)
    return f"{len(call.body)} bytes of noise"
