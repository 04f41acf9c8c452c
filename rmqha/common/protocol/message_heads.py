"""GET_MESSAGE_HEADS, an extension of rmqha: messages of a queue without their bodies, for people who browse a topic.

The answer has the first bytes of each body at most, so a list of messages costs little whatever their bodies are. The
broker reads the head of each record and what follows its body, and applies the filters. A request examines a limited
number of messages, and reads a limited number of bytes. Then it answers with what it has found so far, and with
`nextOffset`, where the next request continues.

    body of the answer:  head, head, ...
    head:   8  index of the message in the queue
            4  TOTALSIZE of the stored record
            4  length of its body
            2  length of its properties
               a record, as in `message_layout`, with the beginning of the body, and some properties if not all fit

The record in a head has the other fields of the stored one, BODYCRC included. A compressed body stays compressed:
`body_parts.stored_size_for` says how many of its bytes are sent.
"""
import struct

from rmqha.common import body_parts
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import Buffer, Host, MessageDecodeError
from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    not_null,
    nullable,
)

MAX_HEADS = 1024  # per answer
MAX_BODY_BYTES = 64 * 1024  # of one body, in plain bytes
DEFAULT_PROPERTY_BYTES = 4096
# No further head is added to an answer of this size.
MAX_ANSWER_BYTES = 1 << 20
# What one request examines: entries of the queue, records, and bytes of records.
MAX_EXAMINED = 65_536
MAX_READ = 10_000
MAX_SEARCHED_BYTES = 64 << 20
# A request also ends soon after this time.
MAX_WORK_MS = 250
MAX_TEXT = 1024  # characters of a key or of the text to search, and of each tag
MAX_TAGS = 100
MAX_EXPRESSION = 65_536  # characters
# The most characters of a property that is kept when not all properties fit.
_MAX_VALUE = 512
_KEPT_FIRST = (
    message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, message_const.PROPERTY_TAGS, message_const.PROPERTY_KEYS,
    message_const.PROPERTY_DELAY_TIME_LEVEL, message_const.PROPERTY_REAL_TOPIC, message_const.PROPERTY_REAL_QUEUE_ID,
    message_const.PROPERTY_TRANSACTION_PREPARED, message_const.PROPERTY_RETRY_TOPIC,
    message_const.PROPERTY_ORIGIN_MESSAGE_ID)
_START = struct.Struct(">qiih")


@dataclass
class GetMessageHeadsRequestHeader(CommandCustomHeader):
    """A query for `count` messages of a queue from `offset` on, or from there towards older ones if `backwards`.

    A message is wanted if all given filters match: `tags` ("a || b"), `key`, `sql` over the properties (SQL92), and
    `text`, which is searched as UTF-8 in the whole decompressed body.
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)
    offset: int = not_null(LONG)
    count: int = not_null(INTEGER)
    bodyBytes: int = not_null(INTEGER)
    propertyBytes: int = nullable(INTEGER, DEFAULT_PROPERTY_BYTES, lax=False)
    backwards: bool = nullable(default=False, lax=False)
    tags: str | None = None
    key: str | None = None
    sql: str | None = None
    text: str | None = None

    def check_fields(self) -> None:
        """Limit what one request may ask for."""
        for name, value, least, most in (
                ("queueId", self.queueId, 0, layout.MAX_INT), ("offset", self.offset, 0, (1 << 63) - 1),
                ("count", self.count, 1, MAX_HEADS), ("bodyBytes", self.bodyBytes, 0, MAX_BODY_BYTES),
                ("propertyBytes", self.propertyBytes, 0, layout.MAX_PROPERTIES_LENGTH)):
            if not least <= value <= most:
                raise HeaderFieldError(f"{name} is {value}, and must be from {least} to {most}")
        for name, text, longest in (("key", self.key, MAX_TEXT), ("text", self.text, MAX_TEXT),
                                    ("sql", self.sql, MAX_EXPRESSION), ("tags", self.tags, MAX_EXPRESSION)):
            if text is not None and not 1 <= len(text) <= longest:
                raise HeaderFieldError(f"{name} has {len(text)} characters, and must have 1 to {longest}")
        tags = tag_names(self.tags)
        if tags is not None and (not 1 <= len(tags) <= MAX_TAGS or max(map(len, tags)) > MAX_TEXT):
            raise HeaderFieldError(f"tags must be 1 to {MAX_TAGS} names of at most {MAX_TEXT} characters, "
                                   "separated by ||")


@dataclass
class GetMessageHeadsResponseHeader(CommandCustomHeader):
    """The range of the queue, and how far the request came. The body has the heads, in the order of the request.

    `nextOffset`: where the next request continues; the queue's end, or one before its beginning, when there is nothing
    more. `examined`: messages up to there, from the request's offset on. `lastTimestamp`: store time (ms) of the last
    one of them, -1 if unknown. `searchedBytes`: bytes of records that the filters read.
    `unreadable`: messages among them whose records are deleted or damaged; entries that a filter by tag leaves out are
    not counted. `unsearched`: messages whose bodies could not be searched: damaged, larger than MAX_SEARCHED_BYTES, or
    of a type whose library the broker lacks.
    """

    minOffset: int = not_null(LONG)
    maxOffset: int = not_null(LONG)
    nextOffset: int = not_null(LONG)
    examined: int = not_null(INTEGER)
    lastTimestamp: int = not_null(LONG)
    searchedBytes: int = not_null(LONG)
    unreadable: int = not_null(INTEGER)
    unsearched: int = not_null(INTEGER)


class MessageHead(NamedTuple):
    """A message without its body. `queue_offset` is its index in the queue that was asked.

    The lengths are those of the stored record. `body` is the beginning of the stored body, compressed if the flag says
    so. Times are in ms.
    """

    queue_offset: int
    queue_id: int
    commit_log_offset: int
    store_size: int
    body_length: int
    properties_length: int
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    topic: str
    properties: dict[str, str]
    has_all_properties: bool
    body: bytes

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return message_decoder.create_message_id(self.store_host, self.commit_log_offset)


class MessageHeads(NamedTuple):
    """The answer to GET_MESSAGE_HEADS, and the size of its body."""

    told: GetMessageHeadsResponseHeader
    heads: list[MessageHead]
    body_size: int


def encode(record: Buffer, parts: layout.RecordParts, index: int, body_bytes: int, property_bytes: int) -> bytes:
    """Return the head of a record that is message `index` of a queue.

    Of the record's body only the bytes that are returned are read.
    """
    head = parts.head
    begin, length = parts.body_position, head.body_length
    sent = body_parts.stored_size_for(record[begin:begin + length], head.sys_flag, body_bytes)
    at = parts.properties_position
    properties = bytes(record[at:at + parts.properties_length])
    if len(properties) > property_bytes:
        properties = shortened(properties, property_bytes)
    topic_at = parts.topic_position
    topic = bytes(record[topic_at - 1:topic_at + parts.topic_length])
    start = layout.HEADS[head.sys_flag >> 4 & 3].size
    size = start + sent + len(topic) + layout.SHORT.size + len(properties)
    return b"".join((
        _START.pack(index, head.total_size, length, parts.properties_length), layout.INT.pack(size),
        record[begin - start + layout.INT.size:begin - layout.INT.size], layout.INT.pack(sent),
        record[begin:begin + sent], topic, layout.SHORT.pack(len(properties)), properties))


def shortened(properties: bytes, most: int) -> bytes:
    """Return at most `most` bytes of a record's properties: first those that a list shows. Long values are cut."""
    found = message_decoder.string2message_properties(layout.decode_text(properties))
    kept: list[bytes] = []
    size = 0
    for name in dict.fromkeys((*(name for name in _KEPT_FIRST if name in found), *found)):
        entry = f"{name}{message_decoder.NAME_VALUE_SEPARATOR}{found[name][:_MAX_VALUE]}".encode("utf-8", "replace")
        if size + len(entry) + bool(kept) <= most:
            size += len(entry) + bool(kept)
            kept.append(entry)
    return message_decoder.PROPERTY_SEPARATOR.encode().join(kept)


def decode(body: Buffer, most: int) -> list[MessageHead]:
    """Return the heads of an answer, at most `most`; ValueError for a malformed body."""
    heads: list[MessageHead] = []
    at = 0
    while at < len(body):
        if len(heads) == most:
            raise ValueError(f"the answer has more than {most} messages")
        if at + _START.size > len(body):
            raise ValueError(f"the answer ends within message {len(heads)}")
        index, store_size, body_length, properties_length = _START.unpack_from(body, at)
        at += _START.size
        parts = layout.decode_parts(body, at)
        if body_length < parts.head.body_length or properties_length < parts.properties_length or index < 0:
            raise MessageDecodeError("a message's head has more of the message than there is", at)
        heads.append(_head(body, parts, index, store_size, body_length, properties_length))
        at += parts.head.total_size
    return heads


def _head(buffer: Buffer, parts: layout.RecordParts, index: int, store_size: int, body_length: int,
          properties_length: int) -> MessageHead:
    (_, _, body_crc, queue_id, flag, _, commit_log_offset, sys_flag, born_timestamp, born_host, store_timestamp,
     store_host, reconsume_times, prepared_transaction_offset, sent) = parts.head
    properties = bytes(buffer[parts.properties_position:parts.properties_position + parts.properties_length])
    return MessageHead(
        index, queue_id, commit_log_offset, store_size, body_length, properties_length, flag, sys_flag, body_crc,
        born_timestamp, layout.bytes_to_host(born_host), store_timestamp, layout.bytes_to_host(store_host),
        reconsume_times, prepared_transaction_offset,
        layout.decode_text(buffer[parts.topic_position:parts.topic_position + parts.topic_length]),
        message_decoder.string2message_properties(layout.decode_text(properties)),
        len(properties) == properties_length, bytes(buffer[parts.body_position:parts.body_position + sent]))


# The filters, the same in a broker and in a client that reads from a broker of the original.


def tag_names(tags: str | None) -> frozenset[str] | None:
    """Return the names of "a || b"; None if all tags are wanted: no text, or *."""
    if tags is None or tags.strip() == "*":
        return None
    return frozenset(filter(None, (name.strip() for name in tags.split("||"))))


def has_tag(properties: dict[str, str], tags: frozenset[str]) -> bool:
    """Return whether a message has one of the tags."""
    return properties.get(message_const.PROPERTY_TAGS) in tags


def has_key(properties: dict[str, str], key: str) -> bool:
    """Return whether a message has a key, or a producer's id that equals it."""
    return (key in properties.get(message_const.PROPERTY_KEYS, "").split(message_const.KEY_SEPARATOR)
            or properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) == key)
