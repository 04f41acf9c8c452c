"""Frames that are wrong in one to three ways: mutations of the calls of each request code, from a seed.

Pure; written from the wire format, and sharing no code with rmqha.
"""
import copy
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

MAX_FRAME = 16 * 1024 * 1024
GROWN = "@grown@"
FIRST_OPAQUE = 2_000_000
NUMBERS = [0, -1, 1, 7, 127, 128, 255, 32_767, 32_768, 65_535, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**32, 2**63 - 1,
           2**63, -2**63, 10**40]
TEXTS = ["", " ", "null", "true", "-", "0x1", "1e9", "NaN", "a\u0000b", "\u00e9", "\ud83d\ude00", "\ud800", "../../etc",
         "a/b", "%s%n", "t" * 300, "k\x01v\x02", "\x01\x02\x01", "{}", "[]", "\"",
         "\\", "Codes", "CodesSend", "codes-group", "TBW102",
         "%RETRY%codes-group", "RMQ_SYS_TRANS_HALF_TOPIC", "\u0661\u0662"]
VALUES = [None, True, False, 1.5, [], {}, [[]], {"a": {"b": []}}, *NUMBERS[:8], *TEXTS[:6]]
HEADER_KEYS = ["code", "flag", "opaque", "version", "language", "remark", "extFields", "serializeTypeCurrentRPC"]
BODIES = [b"", b"{", b"[]", b"null", b"{}", b"\x00" * 64, b"\xff" * 64, b"[" * 2000, b'{"a":' * 500, b'{"a":1,"a":2}',
          b"\x78\x9c" + b"\x00" * 40, struct.pack(">i", 2**31 - 1) * 20, struct.pack(">i", -1) * 20, b"a=b\nc", b"=\n"]


@dataclass
class Call:
    """A request before it is bytes; `header` as in JSON, `extFields` within; `grown` stands where it has GROWN."""

    header: dict[str, object]
    body: bytes
    binary: bool = False
    grown: bytes = b""


@dataclass
class Input:
    """Bytes to send, what was done to them, and the opaque of the request if they still hold it."""

    data: bytes
    mutations: list[str]
    opaque: int

    @property
    def is_complete(self) -> bool:
        """Whether these bytes end with a frame; else the server waits for more. Lengths that close count as an end."""
        at = 0
        while len(self.data) - at >= 4:
            (length,) = struct.unpack_from(">i", self.data, at)
            if not 0 <= length <= MAX_FRAME - 4:
                return True
            at += 4 + length
        return at == len(self.data)


def encoded(call: Call) -> tuple[int, bytes]:
    """(serialize type, header)."""
    if not call.binary:
        header = json.dumps(call.header).encode("utf-8", "surrogatepass")
        return 0, header.replace(b'"%b"' % GROWN.encode(), call.grown) if call.grown else header
    head = call.header
    parts = []
    fields = head.get("extFields")
    for name, value in (fields.items() if isinstance(fields, dict) else ()):
        key, text = _bytes(name), _bytes(value)
        parts += (struct.pack(">H", len(key) & 0xFFFF), key, struct.pack(">i", len(text)), text)
    pairs = b"".join(parts)
    remark = _bytes(head["remark"]) if head.get("remark") is not None else b""
    fixed = struct.pack(">hbhiii", _number(head.get("code"), 16), 0, _number(head.get("version"), 16),
                        _number(head.get("opaque"), 32), _number(head.get("flag"), 32), len(remark))
    return 1, fixed + remark + struct.pack(">i", len(pairs)) + pairs


def _bytes(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "surrogatepass")


def _number(value: object, bits: int) -> int:
    number = value if isinstance(value, int) else 0
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


class Fuzzer:
    """Inputs made of `calls`, the same for the same seed."""

    def __init__(self, calls: list[Call], seed: int):
        self._calls = calls
        self._rng = random.Random(seed)
        self._count = 0
        self._of_calls: list[Callable[[Call], str]] = [
            self._change_value, self._change_value, self._drop_field, self._add_field, self._change_header,
            self._change_code, self._change_flag, self._change_body, self._change_body, self._swap_kind]
        self._of_bytes: list[Callable[[bytearray], str]] = [
            self._flip, self._flip, self._insert, self._delete, self._lie_about_length, self._lie_about_header,
            self._change_kind, self._cut, self._splice]

    def next(self) -> Input:
        """The next input: one in ten is right, most are changed before or after they are bytes."""
        rng = self._rng
        self._count += 1
        opaque = FIRST_OPAQUE + self._count
        source = rng.choice(self._calls)
        head = {**source.header, "opaque": opaque, "extFields": dict(source.header["extFields"])}
        call = Call(head, source.body, rng.random() < 0.4)
        kind = rng.random()
        mutations = [rng.choice(self._of_calls)(call) for _ in range(rng.randint(1, 3))] if 0.1 < kind < 0.75 else []
        data = bytearray(framed(call))
        if kind > 0.6:
            mutations += [rng.choice(self._of_bytes)(data) for _ in range(rng.randint(1, 2)) if data]
        return Input(bytes(data), mutations, opaque)

    def pieces(self, data: bytes) -> list[bytes]:
        """`data` as one write, or cut at odd places."""
        rng = self._rng
        if len(data) < 2 or rng.random() < 0.9:
            return [data]
        cuts = sorted({rng.randrange(1, len(data)) for _ in range(rng.randint(1, 4))})
        return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _fields(self, call: Call) -> dict[str, object] | None:
        fields = call.header.get("extFields")
        return fields if isinstance(fields, dict) else None

    def _value(self) -> object:
        rng = self._rng
        which = rng.random()
        if which < 0.4:
            return str(rng.choice(NUMBERS))
        if which < 0.8:
            return rng.choice(TEXTS)
        return copy.deepcopy(rng.choice(VALUES))

    def _change_value(self, call: Call) -> str:
        fields = self._fields(call)
        if not fields:
            return "nothing"
        name = self._rng.choice(list(fields))
        fields[name] = self._value()
        return f"{name}={fields[name]!r:.30}"

    def _drop_field(self, call: Call) -> str:
        fields = self._fields(call)
        if not fields:
            return "nothing"
        name = self._rng.choice(list(fields))
        del fields[name]
        return f"without {name}"

    def _add_field(self, call: Call) -> str:
        fields = self._fields(call)
        if fields is None:
            return "nothing"
        for _ in range(self._rng.choice((1, 1, 5, 300))):
            fields[f"{self._rng.choice(TEXTS)}{len(fields)}"] = self._value()
        return "more fields"

    def _change_header(self, call: Call) -> str:
        name = self._rng.choice(HEADER_KEYS)
        if self._rng.random() < 0.3:
            call.header.pop(name, None)
            return f"header without {name}"
        call.header[name] = copy.deepcopy(self._rng.choice(VALUES))
        return f"header {name}={call.header[name]!r:.30}"

    def _change_code(self, call: Call) -> str:
        known = self._rng.choice(self._calls).header["code"]
        call.header["code"] = self._rng.choice((known, self._rng.randrange(1100)))
        return f"code {call.header['code']}"

    def _change_flag(self, call: Call) -> str:
        call.header["flag"] = self._rng.choice((1, 2, 3, -1, 1 << 30))
        return f"flag {call.header['flag']}"

    def _change_body(self, call: Call) -> str:
        rng = self._rng
        which = rng.randrange(4)
        if which == 0 or not call.body:
            call.body = rng.choice(BODIES)
        elif which == 1:
            call.body = call.body[:rng.randrange(len(call.body))]
        elif which == 2:
            at = rng.randrange(len(call.body))
            call.body = call.body[:at] + rng.randbytes(rng.choice((1, 1, 4))) + call.body[at + 1:]
        else:
            call.body = rng.randbytes(rng.choice((1, 10, 1000, 70_000)))
        return f"body of {len(call.body)}"

    def _swap_kind(self, call: Call) -> str:
        call.binary = not call.binary
        return "binary" if call.binary else "JSON"

    def _flip(self, data: bytearray) -> str:
        at = self._place(data)
        data[at] ^= 1 << self._rng.randrange(8)
        return f"bit of {at}"

    def _insert(self, data: bytearray) -> str:
        at = self._place(data)
        data[at:at] = self._rng.randbytes(self._rng.choice((1, 2, 4, 100)))
        return f"bytes at {at}"

    def _delete(self, data: bytearray) -> str:
        at = self._place(data)
        del data[at:at + self._rng.choice((1, 2, 4, 50))]
        return f"without bytes at {at}"

    def _place(self, data: bytearray) -> int:
        """Half of them within the first bytes, where the lengths are."""
        return self._rng.randrange(min(len(data), 40) if self._rng.random() < 0.5 else len(data))

    def _lie_about_length(self, data: bytearray) -> str:
        length = self._rng.choice((0, 1, 3, 4, len(data) - 5, len(data) - 3, len(data) + 40, -1, MAX_FRAME - 4,
                                   MAX_FRAME - 3, 2**31 - 1, -2**31))
        data[:4] = struct.pack(">i", length)
        return f"length {length}"

    def _lie_about_header(self, data: bytearray) -> str:
        length = self._rng.choice((0, 1, 16, 21, len(data), len(data) - 9, 0xFFFFFF, self._rng.randrange(200)))
        if len(data) >= 8:
            data[5:8] = (length & 0xFFFFFF).to_bytes(3, "big")
        return f"header length {length}"

    def _change_kind(self, data: bytearray) -> str:
        if len(data) >= 8:
            data[4] = self._rng.choice((0, 1, 2, 5, 127, 255))
        return "serialize type"

    def _cut(self, data: bytearray) -> str:
        at = self._rng.randrange(len(data))
        del data[at:]
        return f"cut at {at}"

    def _splice(self, data: bytearray) -> str:
        other = framed(self._rng.choice(self._calls))
        at = self._place(data)
        data[at:] = other[self._rng.randrange(len(other)):]
        return f"another call from {at}"


def framed(call: Call) -> bytes:
    """The frame of a call."""
    kind, head = encoded(call)
    return struct.pack(">iI", 4 + len(head) + len(call.body), kind << 24 | len(head) & 0xFFFFFF) + head + call.body
