"""The answers to plain sends: what is the same in all of them is encoded once."""
import operator
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.protocol.rocketmq_serializable import HEADER_FIXED, LENGTH
from rmqha.remoting.protocol.serialize_type import SerializeType

_FRAME_START = struct.Struct(">II")  # length, mark and header length
_BINARY_MARK = SerializeType.ROCKETMQ << 24
# Stand in a template for what differs from answer to answer.
_MARKS = ("@msgId@", "@queueId@", "@queueOffset@", "@opaque@")
_OPAQUE = 1234567891  # in the place of the last one, which is a number
_TEXTS = 3  # of the marks, those that are texts


class Answered(NamedTuple):
    """What an answer tells about one message."""

    msg_id: str
    queue_id: int
    queue_offset: int
    opaque: int


Encoder = Callable[[Iterable[Answered]], bytes]


class SendAnswers:
    """Encodes answers exactly as RemotingCommand does: its encoder makes the templates. Any thread."""

    def __init__(self, broker_config: BrokerConfig) -> None:
        self._config = broker_config
        self._encoders: dict[tuple[int, int, str, bool], Encoder] = {}  # single dict operations

    def encode(self, code: int, kind: int, answered: Iterable[Answered]) -> bytes:
        """The frames of answers with one response code and one serialize type."""
        key = code, kind, self._config.regionId, self._config.traceOn
        encoder = self._encoders.get(key)
        if encoder is None:
            made = _JsonAnswers if kind == SerializeType.JSON else _BinaryAnswers
            encoder = self._encoders[key] = made(_template(*key)).encode
        return encoder(answered)


def _template(code: int, kind: int, region: str, trace_on: bool) -> bytes:
    """The header of an answer with the marks in it."""
    response = RemotingCommand.create_response_command(code, None)
    response.mark_response_type()
    response.opaque, response.serialize_type = _OPAQUE, SerializeType(kind)
    response.ext_fields = {
        message_const.PROPERTY_MSG_REGION: region,
        message_const.PROPERTY_TRACE_SWITCH: "true" if trace_on else "false",
        "msgId": _MARKS[0], "queueId": _MARKS[1], "queueOffset": _MARKS[2]}
    return response.encode_header()[_FRAME_START.size:]


class _JsonAnswers:
    def __init__(self, template: bytes) -> None:
        text = template.decode().replace(str(_OPAQUE), _MARKS[3])
        order = sorted(range(len(_MARKS)), key=lambda index: text.index(_MARKS[index]))
        text = text.replace("%", "%%")
        for mark in _MARKS:
            text = text.replace(mark, "%s")
        self._text = text
        self._arrange = operator.itemgetter(*order)

    def encode(self, answered: Iterable[Answered]) -> bytes:
        """The frames, their headers in JSON."""
        text, arrange, parts = self._text, self._arrange, []
        for one in answered:
            header = (text % arrange(one)).encode()
            parts += (_FRAME_START.pack(4 + len(header), len(header)), header)
        return b"".join(parts)


class _BinaryAnswers:
    """Each mark stands behind its length; what lies between them is the same in all answers."""

    def __init__(self, template: bytes) -> None:
        code, language, version, _, flag, remark = HEADER_FIXED.unpack_from(template)
        self._fixed = code, language, version
        self._flag = flag
        assert remark == 0, "an answer has no remark"
        rest = template[HEADER_FIXED.size + LENGTH.size:]
        marks = sorted(range(_TEXTS), key=lambda index: rest.index(_MARKS[index].encode()))
        self._between: list[bytes] = []
        for index in marks:
            mark = _MARKS[index].encode()
            before, rest = rest.split(LENGTH.pack(len(mark)) + mark, 1)
            self._between.append(before)
        self._rest = rest
        self._arrange = operator.itemgetter(*marks)
        self._same_size = sum(map(len, self._between)) + len(rest) + _TEXTS * LENGTH.size

    def encode(self, answered: Iterable[Answered]) -> bytes:
        """The frames, their headers in the binary form."""
        first, second, third = self._between
        pack, parts = LENGTH.pack, []
        for one in answered:
            values = [str(value).encode() for value in self._arrange(one)]
            fields = self._same_size + sum(map(len, values))
            size = HEADER_FIXED.size + LENGTH.size + fields
            a, b, c = values
            parts += (_FRAME_START.pack(4 + size, _BINARY_MARK | size),
                      HEADER_FIXED.pack(*self._fixed, one.opaque, self._flag, 0), pack(fields), first, pack(len(a)), a,
                      second, pack(len(b)), b, third, pack(len(c)), c, self._rest)
        return b"".join(parts)
