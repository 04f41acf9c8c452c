"""Custom headers to and from extFields: a plan per header class, made once.

Java puts a header's fields into a HashMap by reflection; the plan knows the order in which that map is iterated over,
so that the bytes are Java's.
"""
import logging
import re
import typing
from collections.abc import Callable
from dataclasses import fields
from enum import Enum

from rmqha.common.java import hash_map_order, uncached_hash_code
from rmqha.common.protocol.client_headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqha.common.protocol.command_custom_header import LONG, CommandCustomHeader, HeaderFieldError
from rmqha.common.texts import cached
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.fastjson_writer import SPECIAL, java_double, quote

log = logging.getLogger("RocketmqRemoting")

FAST_CODES = (SendMessageRequestHeaderV2, SendMessageResponseHeader, PullMessageRequestHeader,
              PullMessageResponseHeader)
"""Headers that Java writes by hand: in a ROCKETMQ header their fields stand in declared order.

Java: org.apache.rocketmq.remoting.protocol.FastCodesHeader (4.9.8)
"""
_JAVA_NAME = re.compile(r"^ *Java: (\S+)", re.MULTILINE)
_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)


def java_text(value: object) -> str:
    """A field's value as Java's String.valueOf writes it."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name
    return java_double(value) if isinstance(value, float) else str(value)


class HeaderPlan:
    """How the fields of one header class are read and written."""

    def __init__(self, cls: type[CommandCustomHeader]) -> None:
        self.cls = cls
        hints = typing.get_type_hints(cls)
        declared = {item.name: item for item in fields(cls)}
        self.defaults = {name: item.default for name, item in declared.items()}
        self.converters = [(name, _converter(hints[name], item.metadata.get("bits") or LONG))
                           for name, item in declared.items()]
        strict = {name for name, item in declared.items() if item.metadata.get("lax") is False}
        needed = {name for name in strict if declared[name].metadata["not_null"] and self.defaults[name] is None}
        # What must be right if it is there: no lax field, and all of a header that Java reads by hand.
        self._checked = set(declared) if cls in FAST_CODES else strict
        self._readers = [(name, None if convert is str else convert, name in needed)
                         for name, convert in self.converters]
        names = self._put_order = _reflection_order(cls, list(declared))
        # By the number of values: HashMap's table has 16, 32, 64 ... places.
        self._orders = [self._prefixed(_table_order(names, 16 << step)) for step in range(4)]
        own = [name for name in declared if name in cls.__annotations__]
        inherited = [name for name in declared if name not in own] if cls is PullMessageRequestHeader else []
        self.fast_names = (own + inherited) if cls in FAST_CODES else None

    @staticmethod
    def _prefixed(names: list[str]) -> list[tuple[str, str]]:
        return [(name, f'"{name}":"') for name in names]

    def decode(self, ext_fields: dict[str, str]) -> CommandCustomHeader:
        """A header of the texts in `ext_fields`.

        Raises RemotingCommandException for a missing field that the receiver needs, for one of these whose text is no
        number of the field's width, and when the header's own check fails.
        """
        # Differs: 4.9 logs a missing or malformed field, and goes on with null. Where that ends in a
        # NullPointerException, or changes what nobody named, SYSTEM_ERROR with the field's name is the answer here.
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
        """A malformed field that the receiver does without keeps its default, as in 4.9."""
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
                    raise RemotingCommandException(f"the custom field <{name}> is wrong: {error}") from None
                log.error("Failed field [%s] decoding: %s", name, error)

    def texts(self, header: CommandCustomHeader) -> dict[str, str]:
        """Name to text of the fields that are not None, in the order in which Java puts them into its map."""
        values = header.__dict__
        return {name: java_text(values[name]) for name in self._put_order if values[name] is not None}

    def json(self, header: CommandCustomHeader) -> str:
        """The inside of extFields: `"queueId":"0","queueOffset":"7"`."""
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
    """The plan of a header class."""
    return HeaderPlan(cls)


def ordered(texts: dict[str, str]) -> list[tuple[str, str]]:
    """The pairs in the order of a Java HashMap into which they were put in this order."""
    return [(name, texts[name]) for name in hash_map_order(texts)]


def _converter(annotation: object, bits: int) -> Callable[[str], object]:
    for kind, convert in ((bool, _boolean), (int, _long if bits == LONG else _integer), (float, float), (str, str)):
        if annotation is kind or kind in typing.get_args(annotation):
            return convert
    raise TypeError(f"{annotation} is no type of a header's field")


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
    """The order of Java's HashSet of the class's and its superclasses' fields.

    Field.hashCode is the declaring class's name's hash xor the field name's; the Java name stands in the docstring.
    Without docstrings the declared order: fields that share a place of the map may then swap.
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
