"""What reads a stranger's JSON: headers of all classes, and bodies of all classes with the text at each place."""
import dataclasses
import importlib
import pkgutil
import struct
import typing
from collections.abc import Callable, Iterator

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

Reader = Callable[[bytes], object]
HOLE = b"@"
# What name server, broker and controller decode of a request; the last two are what a broker and a cluster's other
# servers are answered with by whoever says to be a client or a name server. A test compares it with the sources.
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
    """All of them."""
    for module in pkgutil.walk_packages(headers.__path__, headers.__name__ + "."):
        importlib.import_module(module.name)
    found, waiting = [], [CommandCustomHeader]
    while waiting:
        below = waiting.pop().__subclasses__()
        found += below
        waiting += below
    return sorted(set(found), key=lambda cls: cls.__name__)


def _custom_header(cls: type[CommandCustomHeader], field: str) -> Reader:
    """The text is the value of one field, by turns as it is and as a text in quotes; the others are `1`."""
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
    """Pieces of the text are names and values by turns, each of `length` bytes."""
    def read(text: bytes) -> object:
        pieces = [text[at:at + length] for at in range(0, len(text), length)]
        pairs = b"".join(struct.pack(">i" if number % 2 else ">h", len(piece)) + piece
                         for number, piece in enumerate(pieces[:len(pieces) & ~1]))
        return _framed(struct.pack(">hbhiii", 34, 0, 409, 1, 0, 0) + struct.pack(">i", len(pairs)) + pairs, 1)
    return read


def places(annotation: object, levels: int = 7) -> Iterator[tuple[str, bytes]]:
    """(name, JSON with HOLE) of each place of a value of this type: itself, elements, values, keys, fields."""
    yield "", HOLE
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
        for arg in args:  # of an optional one
            yield from (one for one in places(arg, levels) if one[0])


def all_readers() -> dict[str, Reader]:
    """READERS, and one for each field of each class of headers and for each place of each class of bodies."""
    readers = dict(READERS)
    readers |= {f"header {cls.__name__}.{item.name}": _custom_header(cls, item.name)
                for cls in header_classes() for item in dataclasses.fields(cls)}
    readers |= {"binary remark": _binary_remark, "binary fields": _binary_fields(8), "binary names": _binary_fields(64)}
    for cls in BODIES:
        for name, text in places(cls):
            before, _, after = text.partition(HOLE)
            readers[f"body {getattr(cls, '__name__', cls)}{name}"] = _body(cls, before, after)
    return readers
