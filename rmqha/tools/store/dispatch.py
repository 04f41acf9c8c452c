"""What consume queues and index must hold of one record: computed as the broker's dispatch does."""
from collections.abc import Mapping

from rmqha.common import mix_all, sys_flags
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_const
from rmqha.common.message.message import parse_int
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.tools.store.errors import StoreToolError
from rmqha.tools.store.record_scan import LogRecord

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNKNOWN_LEVEL_MS = 1000
_ROLLBACK = sys_flags.TRANSACTION_ROLLBACK_TYPE
_NOT_QUEUED = (sys_flags.TRANSACTION_PREPARED_TYPE, _ROLLBACK)

Properties = dict[str, str]
Unit = tuple[str, int, int, int]  # topic, queue id, index in the queue, tags code


class Dispatcher:
    """The units and keys of records. `delay_levels`: the broker's messageDelayLevel; `marks`: deleted topic -> offset
    below which its records have no units."""

    def __init__(self, delay_levels: str = DEFAULT_DELAY_LEVELS, marks: Mapping[str, int] | None = None) -> None:
        self.marks = marks or {}
        try:
            self.delays_ms = [_UNITS_MS[level[-1:]] * parse_int(level[:-1]) for level in delay_levels.split()]
        except (KeyError, ValueError):
            raise StoreToolError(f"--delay-levels {delay_levels!r}: give the broker's messageDelayLevel, "
                                 "numbers with s, m, h or d, such as '1s 5s 10s'") from None

    def units(self, record: LogRecord, properties: Properties) -> list[Unit]:
        """The units of a record: none for prepared and rolled back messages, several for a multi-dispatched one."""
        if record.sys_flag & _ROLLBACK in _NOT_QUEUED:
            return []
        tags_code = self.tags_code(record, properties)
        units = [(record.topic, record.queue_id, record.queue_offset, tags_code)]
        if message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET in properties:
            units += [(topic, 0 if mix_all.is_lmq(topic) else record.queue_id, index, tags_code)
                      for topic, index in _further_queues(properties)]
        return [unit for unit in units if record.offset >= self.marks.get(unit[0], 0)] if self.marks else units

    def tags_code(self, record: LogRecord, properties: Properties) -> int:
        """Hash of the tags; of a delayed message the time of its delivery, ms."""
        if record.topic == RMQ_SYS_SCHEDULE_TOPIC:
            level = _level(properties.get(message_const.PROPERTY_DELAY_TIME_LEVEL))
            if level > 0:
                level = min(level, len(self.delays_ms))
                return record.store_timestamp + (self.delays_ms[level - 1] if level else _UNKNOWN_LEVEL_MS)
        tags = properties.get(message_const.PROPERTY_TAGS)
        return string_hash_code(tags) if tags else 0

    @staticmethod
    def keys(record: LogRecord, properties: Properties) -> list[str]:
        """The texts that the index hashes, in its order: topic#uniqueKey, then topic#word of each word of KEYS."""
        if record.sys_flag & _ROLLBACK == _ROLLBACK:
            return []
        return [f"{record.topic}#{key}" for key in plain_keys(properties)]


def plain_keys(properties: Properties) -> list[str]:
    """The unique key of a message, then the words of its KEYS."""
    unique = properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    words = properties.get(message_const.PROPERTY_KEYS)
    keys = [unique] if unique is not None else []
    if words:
        keys += [word for word in words.split(message_const.KEY_SEPARATOR) if word]
    return keys


def _level(text: str | None) -> int:
    try:
        return parse_int(text) if text is not None else 0
    except ValueError:
        return 0


def _further_queues(properties: Properties) -> list[tuple[str, int]]:
    names = _split(properties.get(message_const.PROPERTY_INNER_MULTI_DISPATCH, ""))
    offsets = _split(properties[message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET])
    if len(names) != len(offsets) or not all(text.isascii() and text.isdecimal() for text in offsets):
        return []
    return [(name, int(text)) for name, text in zip(names, offsets) if name]


def _split(text: str) -> list[str]:
    """As Java splits: without the empty parts at the end."""
    parts = text.strip().split(mix_all.MULTI_DISPATCH_QUEUE_SPLITTER)
    while parts and not parts[-1]:
        parts.pop()
    return parts
