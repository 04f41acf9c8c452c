"""The work of GET_MESSAGE_HEADS: messages of a queue without their bodies, for people who browse a topic.

    entries of the consume queue --tags--> heads and properties of records --tags, key, sql--> bodies --text--> answer

Only what the answer needs is read from the map of the log: of a record whose body is not searched, the pages with its
head, the beginning of its body, and its properties.
"""
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rmqha.broker.expression_message_filter import MessageEvaluationContext
from rmqha.broker.processor.admin_handlers import success
from rmqha.common import body_parts, subscriptions, topics
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.protocol import message_heads, response_code
from rmqha.common.protocol.message_heads import GetMessageHeadsRequestHeader, GetMessageHeadsResponseHeader
from rmqha.filter import selector_parser
from rmqha.filter.expressions import Expression, MQFilterException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.consume_queue_layout import BLANK_POSITION, CQ_STORE_UNIT_SIZE, is_blank, is_ext_addr, iter_units

if TYPE_CHECKING:
    from rmqha.store.commit_log import CommitLog
    from rmqha.store.consume_queue import ConsumeQueue
    from rmqha.store.results import SelectMappedBufferResult

log = logging.getLogger("RocketmqBroker")

# Entries of a queue that are read at a time: few for a page of a list, many for a search.
_FIRST_BLOCK, _LARGEST_BLOCK = 50, 4096
_BLANK = (*BLANK_POSITION, 0)
_HASH = 0xFFFF_FFFF
Unit = tuple[int, int, int]


def browse(topic: str, header: GetMessageHeadsRequestHeader, queue: "ConsumeQueue | None",
           commit_log: "CommitLog") -> RemotingCommand:
    """Return the response for a queue of a topic; None is a queue without messages."""
    if queue is None:
        begin = -1 if header.backwards else header.offset
        return success(b"", GetMessageHeadsResponseHeader(0, 0, begin, 0, -1, 0, 0, 0))
    try:
        expression = _compiled(header.sql)
    except MQFilterException as failure:
        return RemotingCommand.create_response_command(response_code.SUBSCRIPTION_PARSE_FAILED,
                                                       f"parse the sql filter failed: {failure}")
    with _Records(commit_log) as records:
        return _Browsing(header, queue, records, _Filter(topic, header, expression)).run()


def _compiled(sql: str | None) -> Expression | None:
    spi = selector_parser.get(subscriptions.SQL92)
    assert spi is not None
    return spi.compile(sql) if sql is not None else None


class _Records:
    """The records of the log. It holds a reference to the file of the last record, until another file is read."""

    def __init__(self, commit_log: "CommitLog") -> None:
        self._commit_log = commit_log
        self._begin = commit_log.get_min_offset()
        self._file: SelectMappedBufferResult | None = None

    def __enter__(self) -> "_Records":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._release()

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.release()

    def at(self, offset: int, size: int) -> memoryview | None:
        """Return the `size` bytes at a commit log offset; None if the log does not have them, or not in one file."""
        if offset < self._begin or size < layout.MIN_RECORD_LENGTH:
            return None
        file = self._file
        if file is None or not file.start_offset <= offset <= file.start_offset + file.size - size:
            # The file is another one, or has grown.
            self._release()
            start = offset - offset % self._commit_log.mapped_file_size
            file = self._file = self._commit_log.get_data(start, False)
            if file is None or offset + size > file.start_offset + file.size:
                return None
        begin = offset - file.start_offset
        return file.buffer[begin:begin + size]

    def store_timestamp(self, offset: int, size: int) -> int:
        """Return the store time (ms) of the record at a commit log offset; -1 without a record there."""
        record = self.at(offset, size)
        if record is None:
            return -1
        with record:
            return layout.decode_header(record).store_timestamp


class _Filter:
    """Which messages are wanted."""

    def __init__(self, topic: str, header: GetMessageHeadsRequestHeader, expression: Expression | None) -> None:
        self._tags = message_heads.tag_names(header.tags)
        self._key, self._expression = header.key, expression
        self._key_bytes = header.key.encode("utf-8", "replace") if header.key is not None else None
        self.text = header.text.encode("utf-8", "replace") if header.text is not None else None
        self.needs_properties = not (self._tags is None and self._key is None and expression is None)
        # In the queues of delayed messages, an entry has the time of delivery in place of the tag's hash.
        self._codes = ({string_hash_code(tag) & _HASH for tag in self._tags}
                       if self._tags is not None and topic != topics.RMQ_SYS_SCHEDULE_TOPIC else None)

    def places(self, queue: "ConsumeQueue", units: list[Unit]) -> Sequence[int]:
        """Return the places in `units` of the messages that may be wanted, and of entries without a record."""
        codes = self._codes
        if codes is None:
            return range(len(units))
        if queue.consume_queue_ext is not None:
            units = [(offset, size, _tags_code(queue, code, next(iter(codes)))) for offset, size, code in units]
        return [place for place, (offset, size, code) in enumerate(units)
                if code & _HASH in codes or is_blank(offset, size)]

    def wants(self, stored: bytes) -> bool:
        """Return whether a message with these stored properties is wanted, before its body is searched."""
        if self._key_bytes is not None and self._key_bytes not in stored:
            return False
        properties = message_decoder.string2message_properties(layout.decode_text(stored))
        return ((self._tags is None or message_heads.has_tag(properties, self._tags))
                and (self._key is None or message_heads.has_key(properties, self._key))
                and (self._expression is None or _is_true(self._expression, properties)))


def _tags_code(queue: "ConsumeQueue", code: int, unknown: int) -> int:
    """Return the hash of an entry's tag, which may be in the queue's extension; `unknown` if it is not there."""
    if not is_ext_addr(code):
        return code
    extension = queue.get_ext(code)
    return unknown if extension is None else extension.tags_code


def _is_true(expression: Expression, properties: dict[str, str]) -> bool:
    try:
        return expression.evaluate(MessageEvaluationContext(properties)) is True
    except Exception as failure:
        # As in a pull, a message on which the expression fails is not wanted.
        log.debug("the expression of a browser fails for %s: %r", properties, failure)
        return False


class _Browsing:
    """One request, on one thread."""

    def __init__(self, header: GetMessageHeadsRequestHeader, queue: "ConsumeQueue", records: _Records,
                 wanted: _Filter) -> None:
        self._header, self._queue, self._records, self._filter = header, queue, records, wanted
        self._heads: list[bytes] = []
        self._size = self._read = 0
        self._step = -1 if header.backwards else 1
        least, end = queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()
        # The first message to examine.
        self._begin = min(header.offset, end - 1) if header.backwards else max(header.offset, least)
        self._told = GetMessageHeadsResponseHeader(
            least, end, min(header.offset, least - 1) if header.backwards else header.offset, 0, -1, 0, 0, 0)
        # The entry of the last message that was examined.
        self._last_unit: Unit = _BLANK
        self._deadline_ns = time.monotonic_ns() + message_heads.MAX_WORK_MS * 1_000_000

    def run(self) -> RemotingCommand:
        """Examine messages until enough are found, or a limit is reached, and return the response."""
        for first, units in self._blocks():
            if self._is_full() or not self._examine_block(first, units):
                break
        offset, size, _ = self._last_unit
        if not is_blank(offset, size):
            self._told.lastTimestamp = self._records.store_timestamp(offset, size)
        return success(b"".join(self._heads), self._told)

    def _blocks(self) -> Iterator[tuple[int, list[Unit]]]:
        """Yield blocks of the queue's entries, in the direction of the request: index of the first, and the entries."""
        index, size = self._begin, _FIRST_BLOCK
        while self._told.minOffset <= index < self._told.maxOffset:
            if self._header.backwards:
                count = min(size, index + 1 - self._told.minOffset)
                yield index - count + 1, _units(self._queue, index - count + 1, count)
            else:
                count = min(size, self._told.maxOffset - index)
                yield index, _units(self._queue, index, count)
            index += self._step * count
            size = min(size * 4, _LARGEST_BLOCK)

    def _examine_block(self, first: int, units: list[Unit]) -> bool:
        """Examine the messages of a block; return False if a limit is reached before its end."""
        places = self._filter.places(self._queue, units)
        for place in reversed(places) if self._header.backwards else places:
            if place != (len(units) - 1 if self._header.backwards else 0):
                self._passed(first + place - self._step, units[place - self._step])
            if self._is_full() or not self._examine(first + place, units[place]):
                return False
            self._passed(first + place, units[place])
        last = 0 if self._header.backwards else len(units) - 1
        self._passed(first + last, units[last])
        return True

    def _passed(self, index: int, unit: Unit) -> None:
        """Note that all messages up to an index were examined."""
        self._told.examined = abs(index - self._begin) + 1
        self._told.nextOffset = index + self._step
        self._last_unit = unit

    def _is_full(self) -> bool:
        told = self._told
        if told.examined == 0:
            # Each request comes further, whatever the limits are.
            return False
        return (len(self._heads) >= self._header.count or self._size >= message_heads.MAX_ANSWER_BYTES
                or told.examined >= message_heads.MAX_EXAMINED or self._read >= message_heads.MAX_READ
                or told.searchedBytes >= message_heads.MAX_SEARCHED_BYTES
                or time.monotonic_ns() > self._deadline_ns)

    def _examine(self, index: int, unit: Unit) -> bool:
        """Add a message if it is wanted; return False if the rest of the work does not suffice to decide that."""
        offset, size, _ = unit
        record = None if is_blank(offset, size) else self._records.at(offset, size)
        if record is None:
            self._told.unreadable += 1
            return True
        self._read += 1
        with record:
            try:
                parts = layout.decode_parts(record)
            except layout.MessageDecodeError as error:
                log.debug("no message at commit log offset %s: %s", offset, error)
                parts = None
            if parts is None or (parts.head.physical_offset, parts.head.total_size) != (offset, size):
                self._told.unreadable += 1
                return True
            return self._add_if_wanted(index, record, parts)

    def _add_if_wanted(self, index: int, record: memoryview, parts: layout.RecordParts) -> bool:
        if self._filter.needs_properties:
            self._told.searchedBytes += parts.properties_length
            at = parts.properties_position
            if not self._filter.wants(bytes(record[at:at + parts.properties_length])):
                return True
        if self._filter.text is not None:
            has_text = self._has_text(parts, record, self._filter.text)
            if not has_text:
                return has_text is False
        head = message_heads.encode(record, parts, index, self._header.bodyBytes, self._header.propertyBytes)
        self._heads.append(head)
        self._size += len(head)
        return True

    def _has_text(self, parts: layout.RecordParts, record: memoryview, text: bytes) -> bool | None:
        """Return whether a body contains a text; None if the next request has to look for it."""
        told, begin = self._told, parts.body_position
        rest = message_heads.MAX_SEARCHED_BYTES - told.searchedBytes
        with record[begin:begin + parts.head.body_length] as body:
            found = body_parts.contains(body, parts.head.sys_flag, text, rest)
        told.searchedBytes += found.spent
        if found.is_found is None and (found.error or self._read == 1):
            told.unsearched += 1
            return False
        return found.is_found


def _units(queue: "ConsumeQueue", index: int, count: int) -> list[Unit]:
    """Return `count` entries of a queue from `index` on; blank ones in place of those that were deleted meanwhile."""
    units: list[Unit] = []
    while len(units) < count:
        result = queue.get_index_buffer(index + len(units))
        if result is None:
            break
        with result:
            size = min(count - len(units), result.size // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
            units += iter_units(bytes(result.buffer[:size]))
        if not size:
            break
    return units + [_BLANK] * (count - len(units))
