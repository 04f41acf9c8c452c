"""Encoding of command headers: custom header fields, the binary header, and the codes used in them.

`HeaderPlan` converts custom headers to and from extFields; it is created once per header class. Java puts a header's
fields into a HashMap by reflection. The plan follows the iteration order of that map, so the bytes equal Java's.

The binary header, serialize type ROCKETMQ:

| field     | type                                                                     |
|-----------|--------------------------------------------------------------------------|
| code      | int16                                                                    |
| language  | int8                                                                     |
| version   | int16                                                                    |
| opaque    | int32                                                                    |
| flag      | int32                                                                    |
| remark    | int32 length, UTF-8; length 0 means None                                 |
| extFields | int32 length in bytes, then pairs: int16 length, key, int32 length, value |

`KeptEntries` caches the text of a table's entries, so that a file of a hundred thousand entries is rewritten without
encoding the unchanged ones again. `LanguageCode` is the language that a peer is written in, `SerializeType` the
encoding of a header. SUCCESS to TRANSACTION_FAILED are the response codes of the transport itself.

Java: org.apache.rocketmq.remoting.protocol.RemotingSysResponseCode (4.9.8)
"""
from __future__ import annotations

import logging
import re
import struct
import threading
import typing
from collections.abc import Callable, Iterable
from enum import Enum, IntEnum

from rmqha.common.data_version import ChangeLog
from rmqha.common.java import hash_map_order, uncached_hash_code
from rmqha.common.lazy_dataclasses import fields
from rmqha.common.protocol.client_headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqha.common.protocol.command_custom_header import LONG, CommandCustomHeader, HeaderFieldError
from rmqha.common.texts import cached
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.fastjson import SPECIAL, WrittenEntries, entry_text, java_double, quote

log = logging.getLogger("RocketmqRemoting")

FAST_CODES = (SendMessageRequestHeaderV2, SendMessageResponseHeader, PullMessageRequestHeader,
              PullMessageResponseHeader)
"""Headers that Java encodes by hand-written code: in a ROCKETMQ header their fields are in declared order.

Java: org.apache.rocketmq.remoting.protocol.FastCodesHeader (4.9.8)
"""
_JAVA_NAME = re.compile(r"^ *Java: (\S+)", re.MULTILINE)
_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)


def java_text(value: object) -> str:
    """Return a field's value as Java's String.valueOf writes it."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name
    return java_double(value) if isinstance(value, float) else str(value)


class HeaderPlan:
    """The plan by which the fields of one header class are read and written."""

    def __init__(self, cls: type[CommandCustomHeader]) -> None:
        self.cls = cls
        hints = typing.get_type_hints(cls)
        declared = {item.name: item for item in fields(cls)}
        self.defaults = {name: item.default for name, item in declared.items()}
        self.converters = [(name, _converter(hints[name], item.metadata.get("bits") or LONG))
                           for name, item in declared.items()]
        strict = {name for name, item in declared.items() if item.metadata.get("lax") is False}
        needed = {name for name in strict if declared[name].metadata["not_null"] and self.defaults[name] is None}
        # The fields that must be valid if they are present: those that are not lax, and all fields of a header that
        # Java decodes by hand-written code.
        self._checked = set(declared) if cls in FAST_CODES else strict
        self._readers = [(name, None if convert is str else convert, name in needed)
                         for name, convert in self.converters]
        names = self._put_order = _reflection_order(cls, list(declared))
        # By the number of values: a HashMap's table has 16, 32, 64 ... places.
        self._orders = [self._prefixed(_table_order(names, 16 << step)) for step in range(4)]
        own = [name for name in declared if name in cls.__annotations__]
        inherited = [name for name in declared if name not in own] if cls is PullMessageRequestHeader else []
        self.fast_names = (own + inherited) if cls in FAST_CODES else None

    @staticmethod
    def _prefixed(names: list[str]) -> list[tuple[str, str]]:
        return [(name, f'"{name}":"') for name in names]

    def decode(self, ext_fields: dict[str, str]) -> CommandCustomHeader:
        """Return a header with the values of the texts in `ext_fields`.

        Raises RemotingCommandException if a field that the receiver needs is missing or is not a number of the field's
        width, and if the header's own check fails.
        """
        # Differs: 4.9 logs a missing or malformed field and continues with null. Where that ends in a
        # NullPointerException, or changes something that the request did not name, the answer here is SYSTEM_ERROR with
        # the field's name.
        header = self.cls.__new__(self.cls)
        values = header.__dict__
        values.update(self.defaults)
        get = ext_fields.get
        try:
            for name, convert, needed in self._readers:
                text = get(name)
                if text is not None:
                    values[name] = text if convert is None else convert(text)
                elif needed:
                    raise RemotingCommandException(f"the custom field <{name}> is null")
        except ValueError:
            self._decode_one_by_one(ext_fields, values)
        try:
            header.check_fields()
        except HeaderFieldError as error:
            raise RemotingCommandException(str(error)) from None
        return header

    def _decode_one_by_one(self, ext_fields: dict[str, str], values: dict[str, object]) -> None:
        """Decode after an error. A malformed field that the receiver does not need keeps its default, as in 4.9."""
        for name, convert, needed in self._readers:
            text = ext_fields.get(name)
            if text is None:
                if needed:
                    raise RemotingCommandException(f"the custom field <{name}> is null")
                continue
            try:
                values[name] = text if convert is None else convert(text)
            except ValueError as error:
                if name in self._checked:
                    raise RemotingCommandException(f"the custom field <{name}> is invalid: {error}") from None
                log.error("Failed field [%s] decoding: %s", name, error)

    def texts(self, header: CommandCustomHeader) -> dict[str, str]:
        """Return name to text of the fields that are not None, in the order in which Java puts them into its map."""
        values = header.__dict__
        return {name: java_text(values[name]) for name in self._put_order if values[name] is not None}

    def json(self, header: CommandCustomHeader) -> str:
        """Return the text inside the braces of extFields, such as `"queueId":"0","queueOffset":"7"`."""
        values = header.__dict__
        parts = []
        for name, prefix in self._order(values):
            value = values[name]
            if type(value) is int:
                parts.append(f'{prefix}{value}"')
            elif value is not None:
                text = java_text(value)
                parts.append(f'{prefix}{text}"' if SPECIAL.search(text) is None else prefix[:-1] + quote(text))
        return ",".join(parts)

    def _order(self, values: dict[str, object]) -> list[tuple[str, str]]:
        if len(self.defaults) <= 12:
            return self._orders[0]
        count = len(values) - list(values.values()).count(None)
        return self._orders[(count > 12) + (count > 24) + (count > 48)]


@cached
def plan_of(cls: type[CommandCustomHeader]) -> HeaderPlan:
    """Return the plan of a header class."""
    return HeaderPlan(cls)


def ordered(texts: dict[str, str]) -> list[tuple[str, str]]:
    """Return the pairs in the order in which a Java HashMap iterates after they were put into it in this order."""
    return [(name, texts[name]) for name in hash_map_order(texts)]


def _converter(annotation: object, bits: int) -> Callable[[str], object]:
    for kind, convert in ((bool, _boolean), (int, _long if bits == LONG else _integer), (float, float), (str, str)):
        if annotation is kind or kind in typing.get_args(annotation):
            return convert
    raise TypeError(f"{annotation} is not a supported type of a header's field")


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _integer(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else _number(text, _INT)


def _long(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 19 else _number(text, _LONG)


def _number(text: str, limits: tuple[int, int]) -> int:
    if not (text.isdigit() or text[:1] in ("-", "+") and text[1:].isdigit()) or len(text) > 40:
        raise ValueError(f'For input string: "{text:.40}"')
    number = int(text)
    if limits[0] <= number <= limits[1]:
        return number
    raise ValueError(f'For input string: "{text}"')


def _reflection_order(cls: type, names: list[str]) -> list[str]:
    """Return the names in the order of Java's HashSet of the fields of the class and its superclasses.

    Field.hashCode is the hash of the declaring class's name xor that of the field's name. The Java name is read from
    the docstring. If docstrings are stripped, the order is the declared one; fields that share a place of the map may
    then be swapped.
    """
    places: dict[str, int] = {}
    for owner in cls.__mro__:
        java_name = _JAVA_NAME.search(owner.__doc__ or "")
        for name in owner.__dict__.get("__annotations__", {}):
            if name in names and name not in places:
                java_hash = uncached_hash_code(java_name[1]) ^ uncached_hash_code(name) if java_name else 0
                places[name] = java_hash & 0xFFFF_FFFF
    capacity = 16
    while len(places) > capacity * 3 // 4:
        capacity *= 2
    return sorted(places, key=lambda name: _place(places[name], capacity))


def _table_order(names: list[str], capacity: int) -> list[str]:
    return sorted(names, key=lambda name: _place(uncached_hash_code(name) & 0xFFFF_FFFF, capacity))


def _place(unsigned_hash: int, capacity: int) -> int:
    return (unsigned_hash ^ unsigned_hash >> 16) & (capacity - 1)


HEADER_FIXED = struct.Struct(">HbHiii")
assert HEADER_FIXED.size == 17
LENGTH = struct.Struct(">i")
MAX_KEY_LENGTH = 0x7FFF
MAX_EXT_FIELDS = 8192  # the most that a header may have to be read

Fixed = tuple[int, int, int, int, int]


def rocketmq_protocol_encode(code: int, language: int, version: int, opaque: int, flag: int, remark: str | None,
                             pairs: list[tuple[str, str]]) -> bytes:
    """Return the header's bytes. `pairs` are the extFields in the order in which they are to be written.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#rocketMQProtocolEncode (4.9.8)
    """
    remark_bytes = _utf8(remark) if remark else b""
    ext_bytes = map_serialize(pairs)
    fixed = HEADER_FIXED.pack(code & 0xFFFF, language, version & 0xFFFF, opaque, flag, len(remark_bytes))
    return b"".join((fixed, remark_bytes, LENGTH.pack(len(ext_bytes)), ext_bytes))


def map_serialize(pairs: list[tuple[str, str]]) -> bytes:
    """Return the bytes of keys and values, each preceded by its length.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#mapSerialize (4.9.8)
    """
    parts: list[bytes] = []
    for key, value in pairs:
        key_bytes, value_bytes = _utf8(key), _utf8(value)
        if len(key_bytes) > MAX_KEY_LENGTH:
            raise RemotingCommandException(f"extFields key is too long: {len(key_bytes)} bytes")
        parts += (len(key_bytes).to_bytes(2, "big"), key_bytes, len(value_bytes).to_bytes(4, "big"), value_bytes)
    return b"".join(parts)


def rocketmq_protocol_decode(header: bytes) -> tuple[Fixed, str | None, dict[str, str] | None]:
    """Return ((code, language, version, opaque, flag), remark, extFields). RemotingCommandException for wrong lengths.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#rocketMQProtocolDecode (4.9.8)
    """
    if len(header) < HEADER_FIXED.size + LENGTH.size:
        raise RemotingCommandException(f"header of {len(header)} bytes")
    code, language, version, opaque, flag, remark_length = HEADER_FIXED.unpack_from(header)
    end = HEADER_FIXED.size + remark_length
    if not 0 <= remark_length <= len(header) - HEADER_FIXED.size - LENGTH.size:
        raise RemotingCommandException(f"string length exceed limit:{len(header)}")
    remark = header[HEADER_FIXED.size:end].decode("utf-8", "replace") if remark_length else None
    (ext_length,) = LENGTH.unpack_from(header, end)
    start = end + LENGTH.size
    if ext_length > len(header) - start:
        raise RemotingCommandException(
            f"RocketMQ protocol decoding failed, extFields length: {ext_length}, but header length: {len(header)}")
    ext_fields = map_deserialize(header, start, start + ext_length) if ext_length > 0 else None
    fixed = (_int16(code), language, _int16(version), opaque, flag)
    return fixed, remark, ext_fields


def map_deserialize(data: bytes, position: int, end: int, errors: str = "strict") -> dict[str, str]:
    """Return the pairs between two positions. A pair with an empty key or value, which is null in Java, is left out.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#mapDeserialize (4.9.8)
    """
    result: dict[str, str] = {}
    try:
        for _ in range(MAX_EXT_FIELDS + 1):
            if position >= end:
                return result
            key = position + 2
            key_end = key + (data[position] << 8 | data[position + 1])
            value = key_end + 4
            if value > end:
                raise RemotingCommandException(f"string length exceed limit:{end}")
            value_end = value + int.from_bytes(data[key_end:value], "big")
            if value_end > end:
                raise RemotingCommandException(f"string length exceed limit:{end}")
            if value_end > value and key_end > key:
                result[str(data[key:key_end], "utf-8", errors)] = str(data[value:value_end], "utf-8", errors)
            position = value_end
    except IndexError:
        raise RemotingCommandException(f"string length exceed limit:{end}") from None
    except UnicodeDecodeError:
        return {**result, **map_deserialize(data, position, end, "replace")}
    raise RemotingCommandException(f"more than {MAX_EXT_FIELDS} extFields")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _int16(value: int) -> int:
    return value - 0x1_0000 if value & 0x8000 else value


# The number of tabs before the entries of a map that is a field of the file's object.
_IN_A_FIELD = 2


class KeptEntries:
    """A cache of one table's entries as pretty JSON, for a map that is a field of the object in the table's file.

    `changes` records all changes of the table, `names` returns the names of all entries, `value` an entry or None. For
    any thread.
    """

    def __init__(self, changes: ChangeLog, names: Callable[[], Iterable[str]],
                 value: Callable[[str], object | None]) -> None:
        self._changes = changes
        self._names = names
        self._value = value
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}  # guarded by _lock
        # The table's state that the texts represent; guarded by _lock.
        self._state = ""

    def written(self) -> WrittenEntries:
        """Return all entries, new ones in the order of their last changes.

        A change that is made meanwhile is included in this result or in the next one.
        """
        with self._lock:
            state = self._changes.mark()
            changed = self._changes.since(self._state)
            if changed is None:
                self._texts.clear()
                changed = list(self._names())[::-1]
            for name in reversed(changed):
                value = self._value(name)
                if value is None:
                    self._texts.pop(name, None)
                else:
                    self._texts[name] = entry_text(name, value, _IN_A_FIELD)
            self._state = state
            return WrittenEntries(list(self._texts.values()))


class LanguageCode(IntEnum):
    """The language of a peer. The value is the byte in ROCKETMQ headers, the name is the text in JSON headers.

    Java: org.apache.rocketmq.remoting.protocol.LanguageCode (4.9.8)
    """

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12


class SerializeType(IntEnum):
    """The encoding of a header. The value is the top byte of a frame's header mark.

    Java: org.apache.rocketmq.remoting.protocol.SerializeType (4.9.8)
    """

    JSON = 0
    ROCKETMQ = 1


SUCCESS = 0
SYSTEM_ERROR = 1
SYSTEM_BUSY = 2
REQUEST_CODE_NOT_SUPPORTED = 3
TRANSACTION_FAILED = 4
