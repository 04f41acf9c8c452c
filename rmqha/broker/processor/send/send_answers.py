"""The answers to simple sends: what is the same in all of them is encoded once.

Those with JSON headers are compiled where a C compiler was (rmqha/native/_express_send.c), and `json_in_python` where
none was: both give the same.
"""
import functools
import operator
import struct
from collections.abc import Callable, Iterator

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const
from rmqha.common.protocol import response_code
from rmqha.native import kernels
from rmqha.remoting.protocol.header_codec import HEADER_FIXED, LENGTH, SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageRow
from rmqha.store.results import PutMessageStatus

SENT_CODES = {
    PutMessageStatus.PUT_OK: response_code.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: response_code.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: response_code.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: response_code.SLAVE_NOT_AVAILABLE,
}
"""The answers that say where a message went; all others say why it is not stored."""
SENT = SENT_CODES[PutMessageStatus.PUT_OK]  # by far the commonest; a status is not quick to look up

_FRAME_START = struct.Struct(">II")  # length, mark and header length
_BINARY_MARK = SerializeType.ROCKETMQ << 24
# Stand in a template for what differs from answer to answer.
_MARKS = ("@msgId@", "@queueId@", "@queueOffset@")
_OPAQUE = 1234567891  # the last one, a number
_TEXTS = 3  # of the marks, those that are texts


Encoder = Callable[[bytes, list[int], list[MessageRow], list[int], list[int]], bytes]
"""What the answers tell: host of the message ids (hex), commit log offsets, sends, queue offsets, opaques."""


def first_fields(region: str, trace_on: bool) -> dict[str, str]:
    """What each answer to a send has, also one that refuses it."""
    return {message_const.PROPERTY_MSG_REGION: region,
            message_const.PROPERTY_TRACE_SWITCH: "true" if trace_on else "false"}


def tell_place(fields: dict[str, str], msg_id: str, queue_id: str, queue_offset: str) -> None:
    """Add where the message went; of a batch, the ids of all and the offset of the first."""
    fields["msgId"] = msg_id
    fields["queueId"] = queue_id
    fields["queueOffset"] = queue_offset


class SendAnswers:
    """Encodes answers exactly as RemotingCommand does: its encoder makes the templates. Any thread."""

    def __init__(self, broker_config: BrokerConfig) -> None:
        self._config = broker_config
        self._encoders: dict[tuple[int, int, str, bool], Encoder] = {}  # single dict operations

    def encode(self, code: int, kind: int, host: bytes, physical_offsets: list[int], sends: list[MessageRow],
               queue_offsets: list[int], opaques: list[int]) -> bytes:
        """The frames of answers with one response code and one serialize type; see Encoder."""
        key = code, kind, self._config.regionId, self._config.traceOn
        encoder = self._encoders.get(key)
        if encoder is None:
            template = _template(*key)
            encoder = self._encoders[key] = (
                _json_encoder(template) if kind == SerializeType.JSON else _BinaryAnswers(template).encode)
        return encoder(host, physical_offsets, sends, queue_offsets, opaques)


def _template(code: int, kind: int, region: str, trace_on: bool) -> bytes:
    """The header of an answer with the marks in it."""
    response = RemotingCommand.create_response_command(code, None)
    response.mark_response_type()
    response.opaque, response.serialize_type = _OPAQUE, SerializeType(kind)
    response.ext_fields = first_fields(region, trace_on)
    tell_place(response.ext_fields, *_MARKS)
    return response.encode_header()[_FRAME_START.size:]


def _values(host: bytes, physical_offsets: list[int], sends: list[MessageRow], queue_offsets: list[int],
            opaques: list[int]) -> Iterator[tuple[bytes, bytes, bytes, int]]:
    """What stands for the marks, answer by answer."""
    for offset, send, queue_offset, opaque in zip(physical_offsets, sends, queue_offsets, opaques, strict=True):
        yield b"%b%016X" % (host, offset), b"%d" % send.queue_id, b"%d" % queue_offset, opaque


def json_in_python(between: tuple[bytes, ...], order: tuple[int, ...], host: bytes, physical_offsets: list[int],
                   sends: list[MessageRow], queue_offsets: list[int], opaques: list[int]) -> bytes:
    """The frames whose headers are `between`, and between each two of them the marks, in this order."""
    parts: list[bytes] = []
    for values in _values(host, physical_offsets, sends, queue_offsets, opaques):
        texts = (*values[:3], b"%d" % values[3])
        marked = [texts[mark] for mark in order]
        header = b"".join([part for pair in zip(between, marked) for part in pair]) + between[-1]
        parts += (_FRAME_START.pack(4 + len(header), len(header)), header)
    return b"".join(parts)


_json_answers = kernels.EXPRESS_SENDS.function("json_answers", json_in_python)


def _json_encoder(template: bytes) -> Encoder:
    """The encoder of answers with headers in JSON."""
    marks = [mark.encode() for mark in (*_MARKS, str(_OPAQUE))]
    order = sorted(range(len(marks)), key=lambda index: template.index(marks[index]))
    between, rest = [], template
    for index in order:
        before, rest = rest.split(marks[index], 1)
        between.append(before)
    return functools.partial(_json_answers, (*between, rest), tuple(order))


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

    def encode(self, host: bytes, physical_offsets: list[int], sends: list[MessageRow], queue_offsets: list[int],
               opaques: list[int]) -> bytes:
        """The frames, their headers in the binary form."""
        first, second, third = self._between
        pack = LENGTH.pack
        parts: list[bytes] = []
        for values in _values(host, physical_offsets, sends, queue_offsets, opaques):
            a, b, c = self._arrange(values)
            fields = self._same_size + len(a) + len(b) + len(c)
            size = HEADER_FIXED.size + LENGTH.size + fields
            parts += (_FRAME_START.pack(4 + size, _BINARY_MARK | size),
                      HEADER_FIXED.pack(*self._fixed, values[_TEXTS], self._flag, 0), pack(fields), first,
                      pack(len(a)), a, second, pack(len(b)), b, third, pack(len(c)), c, self._rest)
        return b"".join(parts)
