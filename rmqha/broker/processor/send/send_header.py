"""The header of a send as clients of 4.9 write it: read by one pattern, without making a command of it.

Pure: no socket, no store. Whatever is unusual is not read here, and goes the general way.
"""
import functools
import re
import struct

from rmqha.common.message import message_const
from rmqha.common.message.message_decoder import property_order
from rmqha.common.message.message_layout import MAX_PROPERTIES_LENGTH, MAX_TOPIC_LENGTH, SHORT, body_crc32
from rmqha.common.protocol.request_code import SEND_MESSAGE_V2

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

# code, language, version, opaque, flag, length of the remark, length of the fields; then of each field
_FIXED_PART, _FIELD = struct.Struct(">hbhiiii"), struct.Struct(">hci")
_number, _words = re.compile(rb"\d{1,9}"), re.compile(rb"[\x20-\x7f]+")
_PATTERNS = {
    b"a": _words, b"b": _words, b"c": _words, b"d": _number, b"e": _number, b"f": _number, b"g": re.compile(rb"\d{13}"),
    b"h": _number, b"i": re.compile(rb"[\x01\x02\x20-\x7f]*"), b"j": _number, b"k": re.compile(rb"true|false"),
    b"l": _number, b"m": re.compile(rb"false"), b"n": re.compile(rb"(?s).*")}
_OPTIONAL = (b"l", b"n")

_CLUSTER, _WAIT = message_const.PROPERTY_CLUSTER, message_const.PROPERTY_WAIT_STORE_MSG_OK
# Properties that make a message more than something to append, and the one that the broker sets.
_SPECIAL = frozenset((message_const.PROPERTY_DELAY_TIME_LEVEL, message_const.PROPERTY_TRANSACTION_PREPARED,
                      message_const.PROPERTY_INNER_MULTI_DISPATCH, _CLUSTER))
_KEPT_LENGTH = 4096  # bytes of properties the order of whose names is kept
_MAX_PROPERTIES = 11  # with CLUSTER they fill a HashMap's first table

_Fields = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes | int]
"""Topic, queue id, sysFlag, born timestamp, flag, properties, reconsume times, opaque; as they came."""
SimpleHeader = tuple[str, int, int, int, int, bytes, int, int, int, int, int]
"""Topic, queue id, sysFlag, born timestamp (ms), flag, the record's end (topic and properties with their lengths),
reconsume times, opaque, where the body begins in the frame, its BODYCRC, the header's serialize type."""


def cluster_property(cluster_name: str) -> bytes:
    """What every record's properties have, as `read_simple_header` wants it."""
    return f"{_CLUSTER}\x01{cluster_name}".encode()


def read_simple_header(frame: memoryview | bytes, cluster: bytes) -> SimpleHeader | None:
    """The header of a frame (without its length field); None when it is no simple send."""
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
    """The fields a to n of a ROCKETMQ header, each behind its name."""
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
    """Those of a header without WAIT, with CLUSTER, in Java's order; None when they are unusual."""
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
    """Which entry comes when, of properties with these names; -1 is CLUSTER's. None for names that are unusual."""
    texts = [name.decode("ascii") for name in names]
    if len(texts) > _MAX_PROPERTIES or len(set(texts)) != len(texts) or _SPECIAL & set(texts):
        return None
    places = {name: index for index, name in enumerate(texts)}
    # WAIT has left the map when it is iterated over
    stored = tuple([name for name in (*texts, _CLUSTER) if name != _WAIT])
    return tuple([places.get(name, -1) for name in property_order(stored)])


_kept_order = functools.lru_cache(maxsize=4096)(_order)


_READERS = {0: _read_json, 1: _read_binary}  # by SerializeType
