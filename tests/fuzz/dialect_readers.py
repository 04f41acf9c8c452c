"""What reads a stranger's JSON: headers, and bodies of several shapes."""
import struct
from collections.abc import Callable

from rmqha.common.protocol.body.offset_bodies import ResetOffsetBody
from rmqha.common.protocol.heartbeat.heartbeat_data import HeartbeatData
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand


def _header(before: bytes, after: bytes) -> Callable[[bytes], object]:
    def read(text: bytes) -> object:
        header = before + text + after
        try:
            return RemotingCommand.decode(struct.pack(">I", len(header)) + header)
        except RemotingCommandException as error:
            raise ValueError from error
    return read


def _body(cls: type, before: bytes, after: bytes) -> Callable[[bytes], object]:
    return lambda text: remoting_serializable.decode(cls, before + text + after)


READERS: dict[str, Callable[[bytes], object]] = {
    "any value": fastjson.loads,
    "remark": _header(b'{"code":34,"remark":', b"}"),
    "field": _header(b'{"code":34,"extFields":{"a":', b"}}"),
    "unknown field": _header(b'{code:34,"x":', b"}"),
    "heartbeat": _body(HeartbeatData, b'{"clientID":', b"}"),
    "offsets": _body(ResetOffsetBody, b'{"offsetTable":', b"}"),
}
