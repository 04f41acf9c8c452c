"""Fast codec of simple sends: reads headers in the format of clients of 4.9, and encodes the responses.

All functions are pure: no socket, no store. Anything unusual is left unread and takes the general way.

- `read_simple_header`: matches a header against fixed patterns, without building a command.
- `read_simple_sends`: the simple sends at the start of the bytes read from a connection, up to the first other frame.
- `SendAnswers`: encodes the responses; the parts that all of them share are encoded once.

`read_simple_sends` and the responses with JSON headers are compiled where a C compiler was available
(rmqha/native/_express_send.c); elsewhere `sends_in_python` and `json_in_python` give the same results.
"""
import functools
import operator
import re
import struct
from collections.abc import Callable, Iterator

from rmqha.common import sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const, message_layout
from rmqha.common.message.message_decoder import property_order
from rmqha.common.message.message_layout import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH, SHORT, body_crc32
from rmqha.common.protocol import response_code
from rmqha.common.protocol.request_code import SEND_MESSAGE_V2
from rmqha.native import kernels
from rmqha.remoting.frame_decoder import LENGTH_FIELD_SIZE
from rmqha.remoting.protocol.header_codec import HEADER_FIXED, LENGTH, SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageRow
from rmqha.store.results import PutMessageStatus

_TEXT = rb'[^"\\\x00-\x1f]'
_NUMBER = rb"(\d{1,9})"
# {"code":310,"extFields":{a: producer group, b: topic, c: default topic, d: its queues, e: queue id, f: sysFlag,
# g: born timestamp, h: flag, i: properties, j: reconsume times, k: unit mode, l: max reconsume times, m: batch,
# n: broker name}, ...}
_match_header = re.compile(
    rb'\{"code":310,"extFields":\{"a":"' + _TEXT + rb'+","b":"(' + _TEXT + rb'+)","c":"' + _TEXT
    + rb'+","d":"\d{1,9}","e":"' + _NUMBER + rb'","f":"' + _NUMBER + rb'","g":"(\d{13})","h":"' + _NUMBER
    + rb'","i":"([^"\x00-\x1f]*)","j":"' + _NUMBER + rb'","k":"(?:true|false)",(?:"l":"\d{1,9}",)?"m":"false"'
    + rb'(?:,"n":"' + _TEXT + rb'*")?\},"flag":0,"language":"JAVA","opaque":' + _NUMBER
    + rb',"serializeTypeCurrentRPC":"JSON","version":\d{1,9}\}').fullmatch

# Code, language, version, opaque, flag, length of the remark, length of the fields; then, for each field, the length of
# its name, the name (one character), and the length of its value.
_FIXED_PART, _FIELD = struct.Struct(">hbhiiii"), struct.Struct(">hci")
_number, _words = re.compile(rb"\d{1,9}"), re.compile(rb"[\x20-\x7f]+")
_PATTERNS = {
    b"a": _words, b"b": _words, b"c": _words, b"d": _number, b"e": _number, b"f": _number, b"g": re.compile(rb"\d{13}"),
    b"h": _number, b"i": re.compile(rb"[\x01\x02\x20-\x7f]*"), b"j": _number, b"k": re.compile(rb"true|false"),
    b"l": _number, b"m": re.compile(rb"false"), b"n": re.compile(rb"(?s).*")}
_OPTIONAL = (b"l", b"n")

_CLUSTER, _WAIT = message_const.PROPERTY_CLUSTER, message_const.PROPERTY_WAIT_STORE_MSG_OK
# Properties that require more than appending the message, and the one that the broker sets.
_SPECIAL = frozenset((message_const.PROPERTY_DELAY_TIME_LEVEL, message_const.PROPERTY_TRANSACTION_PREPARED,
                      message_const.PROPERTY_INNER_MULTI_DISPATCH, _CLUSTER))
# The order of the names is cached for properties of up to this many bytes.
_KEPT_LENGTH = 4096
# With CLUSTER there are 12: a HashMap does not resize its initial table up to there.
_MAX_PROPERTIES = 11

_Fields = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes | int]
"""Topic, queue id, sysFlag, born timestamp, flag, properties, reconsume times, opaque; as received."""
SimpleHeader = tuple[str, int, int, int, int, bytes, int, int, int, int, int]
"""Topic, queue id, sysFlag, born timestamp (ms), flag, the record's end (topic and properties with their lengths),
reconsume times, opaque, where the body begins in the frame, its BODYCRC, the header's serialize type."""


def cluster_property(cluster_name: str) -> bytes:
    """Return the property that each record gets, encoded for `read_simple_header`."""
    return f"{_CLUSTER}\x01{cluster_name}".encode()


def read_simple_header(frame: memoryview | bytes, cluster: bytes) -> SimpleHeader | None:
    """Return the header of a frame (without its length field); None when it is not a simple send."""
    end = 4 + int.from_bytes(frame[1:4])
    if len(frame) < 4 or frame[0] not in _READERS or end > len(frame):
        return None
    fields = _READERS[frame[0]](bytes(frame[4:end]))
    if fields is None:
        return None
    properties = _stored_properties(fields[5], cluster)
    if properties is None or len(properties) > MAX_PROPERTIES_LENGTH or len(fields[0]) > MAX_TOPIC_LENGTH:
        return None
    topic, queue_id, sys_flag, born, flag, _, reconsumed, opaque = fields
    body, tail = frame[end:], b"%c%b%b%b" % (len(topic), topic, SHORT.pack(len(properties)), properties)
    return (topic.decode(), int(queue_id), int(sys_flag), int(born), int(flag), tail, int(reconsumed),
            int(opaque), end, body_crc32(body) if body else 0, frame[0])


def _read_json(header: bytes) -> _Fields | None:
    match = _match_header(header) if header.isascii() else None
    if match is None:
        return None
    topic, queue_id, sys_flag, born, flag, escaped, reconsumed, opaque = match.groups()
    text = escaped.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
    return None if b"\\" in text else (topic, queue_id, sys_flag, born, flag, text, reconsumed, opaque)


def _read_binary(header: bytes) -> _Fields | None:
    """Return the fields a to n of a ROCKETMQ header, in which each follows its name."""
    if len(header) < _FIXED_PART.size:
        return None
    code, _language, _version, opaque, flag, remark, length = _FIXED_PART.unpack_from(header)
    position, found = _FIXED_PART.size, {}
    if code != SEND_MESSAGE_V2 or flag or remark or length != len(header) - position:
        return None
    while position < len(header):
        if len(header) - position < _FIELD.size:
            return None
        name_length, name, length = _FIELD.unpack_from(header, position)
        position += _FIELD.size
        if name_length != 1 or name in found or not 0 <= length <= len(header) - position:
            return None
        found[name] = header[position:position + length]
        position += length
    if found.keys() - _PATTERNS.keys():
        return None
    for name, pattern in _PATTERNS.items():
        if pattern.fullmatch(found[name]) is None if name in found else name not in _OPTIONAL:
            return None
    return found[b"b"], found[b"e"], found[b"f"], found[b"g"], found[b"h"], found[b"i"], found[b"j"], opaque


def _stored_properties(text: bytes, cluster: bytes) -> bytes | None:
    """Return the properties of a header without WAIT, with CLUSTER, in Java's order; None when they are unusual."""
    entries = text.split(b"\x02")
    if not entries[-1]:
        entries.pop()
    try:
        pairs = [(name, value) for name, value in [entry.split(b"\x01") for entry in entries]]
    except ValueError:
        return None
    names = tuple([name for name, _ in pairs])
    order = _kept_order(names) if len(text) <= _KEPT_LENGTH else _order(names)
    if order is None or not all(map(all, pairs)) or dict(pairs).get(b"WAIT", b"true") != b"true":
        return None
    entries.append(cluster)
    return b"\x02".join([entries[index] for index in order])


def _order(names: tuple[bytes, ...]) -> tuple[int, ...] | None:
    """Return the indices of these properties in Java's order, with -1 for CLUSTER; None for unusual names."""
    texts = [name.decode("ascii") for name in names]
    if len(texts) > _MAX_PROPERTIES or len(set(texts)) != len(texts) or _SPECIAL & set(texts):
        return None
    places = {name: index for index, name in enumerate(texts)}
    # WAIT has been removed from the map before the iteration.
    stored = tuple([name for name in (*texts, _CLUSTER) if name != _WAIT])
    return tuple([places.get(name, -1) for name in property_order(stored)])


_kept_order = functools.lru_cache(maxsize=4096)(_order)


_READERS = {0: _read_json, 1: _read_binary}  # by SerializeType


_OTHER_SYS_FLAGS = sys_flags.TRANSACTION_ROLLBACK_TYPE | message_layout.V6_FLAGS

Routes = dict[str, tuple[str, ...]]
"""The "topic-queueId" of each queue, by topic."""
SimpleSends = tuple[list[MessageRow], list[int], list[str], int, int, str | None]
"""The sends, their opaques, the topics whose routes were used (again after each change of topic), the serialize type,
the position after the last send, and the topic of the next send if that has no route."""


def sends_in_python(data: memoryview, position: int, cluster: bytes, born_host: bytes, routes: Routes, max_body: int,
                    most: int, row_type: type[MessageRow]) -> SimpleSends:
    """Read the simple sends of one serialize type whose frames are complete in `data[position:]`, at most `most`.

    Each is to one of the queues in `routes` and has a body of at most `max_body` bytes. `cluster`: see
    `cluster_property`; `born_host`: 8 bytes; `row_type`: MessageRow. The bodies are views of `data`.
    """
    sends: list[MessageRow] = []
    opaques: list[int] = []
    topics: list[str] = []
    first_kind = 0
    while len(sends) < most and len(data) - position >= LENGTH_FIELD_SIZE:
        begin = position + LENGTH_FIELD_SIZE
        end = begin + int.from_bytes(data[position:begin], signed=True)
        if not begin <= end <= len(data):
            break
        header = read_simple_header(data[begin:end], cluster)
        if header is None or sends and header[-1] != first_kind:
            break
        topic, queue_id, sys_flag, born, flag, tail, reconsumed, opaque, body_at, crc, kind = header
        keys, body = routes.get(topic), data[begin + body_at:end]
        if keys is None:
            return sends, opaques, topics, first_kind, position, topic
        if topics[-1:] != [topic]:
            topics.append(topic)
        if queue_id >= len(keys) or sys_flag & _OTHER_SYS_FLAGS or len(body) > max_body:
            break
        sends.append(row_type(topic, queue_id, keys[queue_id], row_type.record_size(len(body), len(tail)), crc,
                                flag, sys_flag, born, born_host, reconsumed, body, tail))
        opaques.append(opaque)
        first_kind, position = kind, end
    return sends, opaques, topics, first_kind, position, None


read_simple_sends = kernels.EXPRESS_SENDS.function("read_simple_sends", sends_in_python)
"""`sends_in_python`, or its compiled twin."""


SENT_CODES = {
    PutMessageStatus.PUT_OK: response_code.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: response_code.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: response_code.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: response_code.SLAVE_NOT_AVAILABLE,
}
"""The codes of responses with the message's position; all others mean that it is not stored."""
# By far the most common code; looking it up by status is slower.
SENT = SENT_CODES[PutMessageStatus.PUT_OK]

_FRAME_START = struct.Struct(">II")  # length, mark and header length
_BINARY_MARK = SerializeType.ROCKETMQ << 24
# Placeholders in a template for the values that differ between responses.
_MARKS = ("@msgId@", "@queueId@", "@queueOffset@")
# The last placeholder, a number.
_OPAQUE = 1234567891
# The number of placeholders that are texts.
_TEXTS = 3


Encoder = Callable[[bytes, list[int], list[MessageRow], list[int], list[int]], bytes]
"""Encodes responses, given: host of the message ids (hex), commit log offsets, sends, queue offsets, opaques."""


def first_fields(region: str, trace_on: bool) -> dict[str, str]:
    """Return the fields of each response to a send, including errors."""
    return {message_const.PROPERTY_MSG_REGION: region,
            message_const.PROPERTY_TRACE_SWITCH: "true" if trace_on else "false"}


def tell_place(fields: dict[str, str], msg_id: str, queue_id: str, queue_offset: str) -> None:
    """Add the message's position to the fields; for a batch, the ids of all messages and the offset of the first."""
    fields["msgId"] = msg_id
    fields["queueId"] = queue_id
    fields["queueOffset"] = queue_offset


class SendAnswers:
    """Encodes responses exactly as RemotingCommand does: its encoder creates the templates. Any thread."""

    def __init__(self, broker_config: BrokerConfig) -> None:
        self._config = broker_config
        self._encoders: dict[tuple[int, int, str, bool], Encoder] = {}  # single dict operations

    def encode(self, code: int, kind: int, host: bytes, physical_offsets: list[int], sends: list[MessageRow],
               queue_offsets: list[int], opaques: list[int]) -> bytes:
        """Return the frames of responses with one response code and one serialize type; see Encoder."""
        key = code, kind, self._config.regionId, self._config.traceOn
        encoder = self._encoders.get(key)
        if encoder is None:
            template = _template(*key)
            encoder = self._encoders[key] = (
                _json_encoder(template) if kind == SerializeType.JSON else _BinaryAnswers(template).encode)
        return encoder(host, physical_offsets, sends, queue_offsets, opaques)


def _template(code: int, kind: int, region: str, trace_on: bool) -> bytes:
    """Return the header of a response with the placeholders in it."""
    response = RemotingCommand.create_response_command(code, None)
    response.mark_response_type()
    response.opaque, response.serialize_type = _OPAQUE, SerializeType(kind)
    response.ext_fields = first_fields(region, trace_on)
    tell_place(response.ext_fields, *_MARKS)
    return response.encode_header()[_FRAME_START.size:]


def _values(host: bytes, physical_offsets: list[int], sends: list[MessageRow], queue_offsets: list[int],
            opaques: list[int]) -> Iterator[tuple[bytes, bytes, bytes, int]]:
    """Yield the values for the placeholders of each response."""
    for offset, send, queue_offset, opaque in zip(physical_offsets, sends, queue_offsets, opaques, strict=True):
        yield b"%b%016X" % (host, offset), b"%d" % send.queue_id, b"%d" % queue_offset, opaque


def json_in_python(between: tuple[bytes, ...], order: tuple[int, ...], host: bytes, physical_offsets: list[int],
                   sends: list[MessageRow], queue_offsets: list[int], opaques: list[int]) -> bytes:
    """Return the frames; each header is the parts in `between` with the values, in this order, between them."""
    parts: list[bytes] = []
    for values in _values(host, physical_offsets, sends, queue_offsets, opaques):
        texts = (*values[:3], b"%d" % values[3])
        marked = [texts[mark] for mark in order]
        header = b"".join([part for pair in zip(between, marked) for part in pair]) + between[-1]
        parts += (_FRAME_START.pack(4 + len(header), len(header)), header)
    return b"".join(parts)


_json_answers = kernels.EXPRESS_SENDS.function("json_answers", json_in_python)


def _json_encoder(template: bytes) -> Encoder:
    """Return the encoder of responses with JSON headers."""
    marks = [mark.encode() for mark in (*_MARKS, str(_OPAQUE))]
    order = sorted(range(len(marks)), key=lambda index: template.index(marks[index]))
    between, rest = [], template
    for index in order:
        before, rest = rest.split(marks[index], 1)
        between.append(before)
    return functools.partial(_json_answers, (*between, rest), tuple(order))


class _BinaryAnswers:
    """The encoder of responses with binary headers. Each value follows its length; the parts between are constant."""

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
        """Return the frames, with binary headers."""
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
