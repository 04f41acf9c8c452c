"""Headers of commands: fast reading and writing beside reading and writing piece by piece."""
from __future__ import annotations

import contextlib
import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields

from rmqha.common.java import hash_map_order
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import fastjson, header_codec, remoting_command
from rmqha.remoting.protocol.fastjson import FastjsonError, quote
from rmqha.remoting.protocol.header_codec import HEADER_FIXED, LENGTH, LanguageCode, SerializeType, plan_of
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.remoting.protocol.test_remoting_command import CLASSES

LONGEST = 300_000  # bytes of a drawn header; the limit for a header is 1 MiB
PIECES = ("a", "topic", "é", "日本", "😀", "\x01", "\x02", "\n", "\x7f", "\u2028", '"', "\\", "/", " ", "0", "'")
ESCAPED = ("\\u0041", "\\u0001", "\\ud83d\\ude00", "\\ud800", "\\udc00x", "\\/", "\\n", "\\\"", "\\\\", "\\u00e9")
NUMBERS = ("0", "7", "-1", "-0", "310", "2147483647", "-2147483648", "2147483648", "1.0", "1.5", "-0.0", "1e3", "1E-7",
           "123456789.25", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615",
           "18446744073709551616", "123456789012345678901234567890", "-9223372036854775809", "1e400", "0.1")


def seen(decode: Callable[[bytes], RemotingCommand], frame: bytes) -> tuple[object, ...]:
    """Return all that a frame is read as, or that it is refused."""
    try:
        command = decode(frame)
    except RemotingCommandException:
        return ("refused",)
    return (command.code, command.language, command.version, command.opaque, command.flag, command.remark,
            command.ext_fields, command.body, command.serialize_type, command.header_length)


# -- JSON --

def _text(rng: random.Random, dialect: bool, largest: int = 200) -> bytes:
    """Return a JSON string."""
    size = some_size(rng, largest=largest)
    kind = rng.random()
    if kind < 0.5:
        inside = "x" * size
    else:
        pieces = PIECES[:3] if kind < 0.7 else tuple(
            json.dumps(each, ensure_ascii=rng.random() < 0.5)[1:-1] for each in PIECES) + ESCAPED
        inside = "".join(rng.choice(pieces) for _ in range(min(size, 40)))
        if kind > 0.95:
            inside += rng.choice(["\x01", "\n", "\t"])  # raw
    mark = "'" if dialect and rng.random() < 0.2 and "'" not in inside and "\\" not in inside else '"'
    data = f"{mark}{inside}{mark}".encode()
    return data[:-1] + b"\xff\xc3" + data[-1:] if rng.random() < 0.02 else data


def _value(rng: random.Random, dialect: bool, depth: int = 0) -> bytes:
    """Return any JSON value."""
    kind = rng.random()
    if kind < 0.4:
        return _text(rng, dialect)
    if kind < 0.7:
        return rng.choice(NUMBERS).encode()
    if kind < 0.85 or depth > 2:
        return rng.choice([b"true", b"false", b"null"])
    inside = [_value(rng, dialect, depth + 1) for _ in range(rng.randint(0, 3))]
    if rng.random() < 0.5:
        return b"[" + b",".join(inside) + b"]"
    return b"{" + b",".join(b'"k%d":%b' % (index % 2, each) for index, each in enumerate(inside)) + b"}"


def _json_header(rng: random.Random) -> bytes:
    """Return a header as clients write it, or an odd one; the longer it is, the more of it is standard JSON."""
    large = rng.random() < 0.1
    odd = not large and rng.random() < 0.5
    dialect = odd and rng.random() < 0.4
    longest = LONGEST if large else 200
    ext = []
    for index in range(rng.choice([0, 1, 3, 12, 14])):
        name = rng.choice([b"a", b"topic", b"queueId", b"x%d" % index])
        value = _value(rng, dialect) if odd and rng.random() < 0.5 else _text(rng, dialect, longest)
        ext.append(b'"%b":%b' % (name, value))
    numbers = [b"0", b"310", b"7", b'"12"', b"null", b'""', b"2147483648", b"1.5", b"true", b"1e3"]

    def number() -> bytes:
        return rng.choice(numbers) if odd else b"%d" % rng.choice([0, 1, 310, 2**31 - 1])
    parts = [b'"code":' + number(), b'"flag":' + number(), b'"opaque":' + number(), b'"version":' + number(),
             b'"language":' + (rng.choice([b'"JAVA"', b'"CPP"', b'"ELF"', b"null", b"3", b"77", b"[]", b"1.5", b"true"])
                               if odd else b'"JAVA"'),
             b'"extFields":' + (rng.choice([b"null", b"[]", b"3", b'"x"']) if odd and rng.random() < 0.1
                                else b"{" + b",".join(ext) + b"}"),
             b'"remark":' + (_value(rng, dialect) if odd else _text(rng, dialect, longest)),
             b'"serializeTypeCurrentRPC":"JSON"', b'"unknown":' + _value(rng, dialect)]
    parts = rng.sample(parts, rng.randint(3, len(parts))) if odd else parts[:8]
    space = rng.choice([b"", b"", b" ", b"\n\t"])
    header = b"{" + space + (b"," + space).join(parts) + space + b"}"
    if dialect and rng.random() < 0.3:
        header = header.replace(b'"code"', b"code").replace(b'"flag"', b"'flag'")
        header = header.replace(b"}", b",}", rng.randint(0, 1))
    edges = rng.random()
    if edges < 0.1:
        header = rng.choice([b" ", b"\n", b""]) + header + rng.choice([b" ", b"\r\n", b"\t", b"x", b"\x00", b"}"])
    elif edges < 0.13:
        header = header[:rng.randrange(len(header))]
    return header


def _plain_header(header: remoting_command.Buffer) -> object:
    """Return the result of `_loads_header`, computed only by the dialect's parser, which goes from character to
    character."""
    text = str(header, "utf-8", "replace")
    try:
        value = fastjson.parse(fastjson.encodable(text))
    except RecursionError:
        raise FastjsonError("too deep") from None
    ext = value.get("extFields") if isinstance(value, dict) else None
    if isinstance(ext, dict) and not all(isinstance(name, str) for name in ext):
        raise FastjsonError("illegal identifier in extFields")
    return value


def _compare_json(rng: random.Random, is_fast: Callable[[bytes], bool]) -> Counter[str]:
    taken: Counter[str] = Counter()
    for _ in range(20):
        header = _json_header(rng)
        body = rng.randbytes(some_size(rng, largest=100_000)) if rng.random() < 0.3 else b""
        frame = struct.pack(">I", len(header)) + header + body
        taken[FAST if is_fast(header) else PLAIN] += 1
        quick = seen(RemotingCommand.decode, frame)
        with lowered(remoting_command, _loads_header=_plain_header, MAX_DIALECT_LENGTH=1 << 20):
            slow = seen(RemotingCommand.decode, frame)
        assert quick == slow, f"{header[:3000]!r}: {str(quick)[:1500]}, {str(slow)[:1500]}"
    return taken


def _is_read_by_library(header: bytes) -> bool:
    text = str(header, "utf-8", "replace")
    try:
        return remoting_command._scan_json(text, 0)[1] == len(text)
    except (StopIteration, ValueError, RecursionError):
        return False


def compare_json(rng: random.Random) -> Counter[str]:
    """Compare the standard library's reader with the dialect's parser."""
    with lowered(remoting_command, orjson=None):
        return _compare_json(rng, _is_read_by_library)


def compare_orjson(rng: random.Random) -> Counter[str]:
    """Compare orjson with the dialect's parser."""
    orjson = remoting_command.orjson
    assert orjson is not None

    def is_read(header: bytes) -> bool:
        try:
            orjson.loads(header)
        except orjson.JSONDecodeError:
            return False
        return True
    return _compare_json(rng, is_read)


def _end_not_looked_at(header: remoting_command.Buffer) -> object:
    """Do not check the bytes after the object."""
    text = str(header, "utf-8", "replace")
    try:
        return remoting_command._scan_json(fastjson.encodable(text), 0)[0]
    except (StopIteration, ValueError, RecursionError):
        return _loads(header)


def _wrong_utf8_left_out(header: remoting_command.Buffer) -> object:
    """Leave out invalid sequences instead of replacing them."""
    return _loads(str(header, "utf-8", "ignore").encode())


def _nothing_but_orjson(header: remoting_command.Buffer) -> object:
    """Refuse everything that orjson refuses."""
    try:
        return remoting_command.orjson.loads(header)
    except remoting_command.orjson.JSONDecodeError as error:
        raise FastjsonError(str(error)) from None


_loads = remoting_command._loads_header


# -- the binary header --

def _plain_binary(header: bytes) -> tuple[object, ...]:
    """Read the binary header field by field, as its table defines; an empty name or value is not a field."""
    def take(size: int) -> bytes:
        nonlocal position
        if size < 0 or size > len(header) - position:
            raise RemotingCommandException("short")
        position += size
        return header[position - size:position]
    position = 0
    code, language, version, opaque, flag, remark_length = struct.unpack(">hbhiii", take(17))
    remark = take(remark_length).decode("utf-8", "replace") if remark_length else None
    (length,) = struct.unpack(">i", take(4))
    if length > len(header) - position:
        raise RemotingCommandException("short")
    end, found = position + length, {}
    header = header[:end] if length > 0 else header
    while position < end:
        name = take(int.from_bytes(take(2)))
        value = take(int.from_bytes(take(4)))
        if name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return code, language, version, opaque, flag, remark, found if length > 0 else None


def compare_binary(rng: random.Random) -> Counter[str]:
    """Compare readings of the binary header, with names and values in valid and invalid UTF-8."""
    taken: Counter[str] = Counter()

    def counted(real: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
        def deserialize(data: bytes, position: int, end: int, errors: str = "strict") -> dict[str, str]:
            taken[FAST if errors == "strict" else PLAIN] += 1
            return real(data, position, end, errors)
        return deserialize
    for _ in range(20):
        pairs = []
        for index in range(rng.choice([0, 1, 5, 20])):
            value = b"v" * some_size(rng, [32_767, 65_535], LONGEST if index == 0 else 300)
            if rng.random() < 0.2:
                value += rng.choice([b"\xff", "é".encode(), b"\xc3", b"\xed\xa0\x80"])
            name = rng.choice([b"a", b"topic", b"", b"\xff", b"n%d" % index])
            pairs.append(len(name).to_bytes(2) + name + len(value).to_bytes(4) + value)
        ext, remark = b"".join(pairs), rng.choice([b"", b"why", b"\xff", "é".encode()])
        header = HEADER_FIXED.pack(rng.randrange(1 << 16), rng.choice([0, 9, 77, -1]), rng.randrange(1 << 16), 5, 1,
                                   len(remark)) + remark + LENGTH.pack(len(ext)) + ext
        damage = rng.random()
        if damage < 0.1:
            header = header[:rng.randrange(len(header))]
        elif damage < 0.25:
            position = rng.randrange(len(header))
            header = header[:position] + rng.randbytes(1) + header[position + 1:]
        elif damage < 0.3:
            header += b"behind"
        frame = struct.pack(">I", 1 << 24 | len(header)) + header
        with replaced(header_codec, "map_deserialize", counted(header_codec.map_deserialize))():
            quick = seen(RemotingCommand.decode, frame)
        try:
            code, language, version, opaque, flag, text, found = _plain_binary(header)
            known = LanguageCode(language) if language in list(LanguageCode) else None
            slow: tuple[object, ...] = (code, known, version, opaque, flag, text, found, None, SerializeType.ROCKETMQ,
                                        len(header))
        except RemotingCommandException:
            slow = ("refused",)
        assert quick == slow, f"{header[:2000]!r}: {str(quick)[:1000]}, {str(slow)[:1000]}"
    return taken


def _rest_behind_wrong_utf8(data: bytes, position: int, end: int, errors: str = "strict") -> dict[str, str]:
    """Stop reading at invalid UTF-8."""
    try:
        return _deserialize(data, position, end, "strict" if errors == "strict" else "ignore")
    except UnicodeDecodeError:
        return {}


_deserialize = header_codec.map_deserialize


# -- custom headers --

HEADERS = sorted(CLASSES.items())


def _field_value(rng: random.Random, name: str, cls: type[CommandCustomHeader]) -> object:
    kind = dict(plan_of(cls).converters)[name]
    if kind is header_codec._boolean:
        return rng.random() < 0.5
    if kind is float:
        return rng.choice([0.0, 1.5, 1e10, -1e-7])
    if kind is str:
        return "".join(rng.choice(PIECES) for _ in range(rng.choice([0, 1, 3, 9]))) \
            if rng.random() < 0.4 else "x" * some_size(rng, largest=300)
    return rng.choice([0, 1, -1, 2**31 - 1, 12345])


def _plain_json(command: RemotingCommand) -> str:
    """Write field by field, in the order of a HashMap that was filled in the order of Java's reflection."""
    header = command.custom_header
    texts = dict(command.ext_fields or {})
    if header is not None:
        plan = plan_of(type(header))
        texts |= {name: header_codec.java_text(getattr(header, name)) for name in plan._put_order
                  if getattr(header, name) is not None}
    pairs = ",".join(f"{quote(name)}:{quote(texts[name])}" for name in hash_map_order(texts))
    ext = f'"extFields":{{{pairs}}},' if header is not None or command.ext_fields is not None else ""
    language = "" if command.language is None else f'"language":"{command.language.name}",'
    remark = "" if command.remark is None else f'"remark":{quote(command.remark)},'
    return (f'{{"code":{command.code},{ext}"flag":{command.flag},{language}"opaque":{command.opaque},{remark}'
            f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}')


def compare_written(rng: random.Random) -> Counter[str]:
    """Compare the output of a plan with writing field by field; then read it again, by the plan and one by one."""
    taken: Counter[str] = Counter()
    for _ in range(30):
        _, cls = rng.choice(HEADERS)
        command = RemotingCommand(rng.randrange(400), rng.randrange(4), rng.choice([None, "", "why", "é\n"]), 77)
        command.language = rng.choice([LanguageCode.JAVA, LanguageCode.CPP, None])
        if rng.random() < 0.9:
            header = command.custom_header = cls.__new__(cls)
            for field in fields(cls):
                value = _field_value(rng, field.name, cls)
                header.__dict__[field.name] = None if rng.random() < 0.2 else value
        if rng.random() < 0.3:
            command.ext_fields = {name: rng.choice(["", "v", 'q"'])
                                  for name in rng.sample(["x", "traceOn", "é", "a b"], rng.randint(1, 3))}
        taken[PLAIN if command.ext_fields or command.custom_header is None else FAST] += 1
        written = command._header_json()
        assert written == _plain_json(command), f"{written}, {_plain_json(command)}"
        texts = {} if command.custom_header is None else plan_of(cls).texts(command.custom_header)
        lax = [name for name in texts if name not in plan_of(cls)._checked and dict(plan_of(cls).converters)[name] in (
            header_codec._integer, header_codec._long)]
        if rng.random() < 0.3 and lax:
            texts[rng.choice(lax)] = rng.choice(["x", "", "1.5", "9" * 30])
            taken[PLAIN] += 1
        assert _read(cls, texts) == _read_plainly(cls, texts), f"{cls.__name__}: {texts}"
    return taken


def _read(cls: type[CommandCustomHeader], texts: dict[str, str]) -> object:
    try:
        return dict(plan_of(cls).decode(texts).__dict__)
    except RemotingCommandException as error:
        return str(error)


def _read_plainly(cls: type[CommandCustomHeader], texts: dict[str, str]) -> object:
    """Read the fields one by one."""
    def decode(self: header_codec.HeaderPlan, ext_fields: dict[str, str]) -> CommandCustomHeader:
        header = cls.__new__(cls)
        header.__dict__.update(self.defaults)
        self._decode_one_by_one(ext_fields, header.__dict__)
        try:
            header.check_fields()
        except ValueError as error:
            raise RemotingCommandException(str(error)) from None
        return header
    with replaced(header_codec.HeaderPlan, "decode", decode)():
        return _read(cls, texts)


def _first_order(self: header_codec.HeaderPlan, values: dict[str, object]) -> list[tuple[str, str]]:
    """Use the order of a small map, however many fields there are."""
    return self._orders[0]


def _ascii_needs_no_escape(pairs: list[tuple[str, str]]) -> str:
    """Write ASCII without escapes."""
    if "".join(text for pair in pairs for text in pair).isascii():
        return ",".join(f'"{name}":"{value}"' for name, value in pairs)
    return _json_pairs(pairs)


_json_pairs = remoting_command._json_pairs


def _escaped_too_late() -> Iterator[None]:
    with replaced(header_codec, "SPECIAL", header_codec.re.compile('["\\\\]'))():
        yield


WAYS = [
    Way("JSON headers", "rmqha/remoting/protocol/remoting_command.py::_loads_header",
        "a header in standard JSON", "fastjson's dialect, character by character", compare_json,
        (Plant("bytes after the object are not checked",
               replaced(remoting_command, "_loads_header", _end_not_looked_at)),
         Plant("invalid UTF-8 is left out", replaced(remoting_command, "_loads_header", _wrong_utf8_left_out))),
        seeds=15),
    Way("JSON headers by orjson", "rmqha/remoting/protocol/remoting_command.py::_loads_header",
        "orjson is installed (the extra `fast`), and accepts the header", "the standard library, or the dialect",
        compare_orjson,
        (Plant("a header that orjson refuses is refused",
               replaced(remoting_command, "_loads_header", _nothing_but_orjson)),), seeds=30, needs=("orjson",)),
    Way("binary headers", "rmqha/remoting/protocol/header_codec.py::map_deserialize",
        "all names and values are UTF-8", "invalid sequences are replaced, from the first one on", compare_binary,
        (Plant("bytes after invalid UTF-8 are lost",
               replaced(header_codec, "map_deserialize", _rest_behind_wrong_utf8)),), seeds=15),
    Way("headers by plan", "rmqha/remoting/protocol/header_codec.py::HeaderPlan",
        "only a custom header, with well-formed fields", "field by field, in the order of a HashMap", compare_written,
        (Plant("more than 12 fields come in the order of a HashMap of 16 buckets",
               replaced(header_codec.HeaderPlan, "_order", _first_order)),
         Plant("control characters are not escaped", contextlib.contextmanager(_escaped_too_late)),
         Plant("a text in ASCII is never escaped",
               replaced(remoting_command, "_json_pairs", _ascii_needs_no_escape))), seeds=15),
]
