"""Reading one record for dispatch and recovery: what it is, and whether it is whole. No file, no thread.

Java: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize (4.9.8)
"""
from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from rmqha.common import sys_flags
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_const
from rmqha.common.message.message import parse_int
from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import (
    HEAD_LENGTH,
    LENGTHS,
    LENGTHS_SIZE,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    V6_FLAGS,
    cal_msg_length,
    decode_text,
)
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.store.bulk.bulk_layout import Stop
from rmqha.store.bulk.record_at import GOOD, record_at
from rmqha.store.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from rmqha.store.schedule.schedule_message_service import ScheduleMessageService

log = logging.getLogger("RocketmqStore")

_unpack_lengths = LENGTHS.unpack_from
_TRANSACTION_MASK = sys_flags.TRANSACTION_ROLLBACK_TYPE
_WITHOUT_UNIT = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)
_KEYS = message_const.PROPERTY_KEYS
_UNIQ_KEY = message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_TAGS = message_const.PROPERTY_TAGS
_DELAY = message_const.PROPERTY_DELAY_TIME_LEVEL


def check_message_and_return_size(buffer: memoryview, position: int = 0, check_crc: bool = False,
                                  read_body: bool = True, schedule: ScheduleMessageService | None = None,
                                  ) -> DispatchRequest:
    """Summary of the record at `position`; see DispatchRequest for what its size and success say.

    `schedule` turns delay levels of the schedule topic into delivery times. The CRC is only checked when both flags
    ask for it. Lengths are checked against the buffer; nothing is allocated by what they say.
    """
    stop, size, fields, topic_at, properties_at = record_at(buffer, position, check_crc and read_body)
    if stop != GOOD:
        return _no_message(stop, size, fields, buffer, topic_at, properties_at)
    request = DispatchRequest(size, True)
    (_, _, _, request.queue_id, request.consume_queue_offset, request.commit_log_offset, request.sys_flag,
     request.store_timestamp, request.prepared_transaction_offset, _) = fields
    request.topic = _topic(buffer[topic_at + 1:properties_at - 2].tobytes())
    if properties_at < position + size:
        _take_properties(request, buffer[properties_at:position + size].tobytes().decode("utf-8", "replace"), schedule)
    return request


def skip_good_records(buffer: memoryview, position: int, end: int, file_from_offset: int, check_crc: bool,
                      is_dispatched: Callable[[bytes, int, int, int], bool]) -> int:
    """Position, from `position` on, of the first record that `check_message_and_return_size` has to look at.

    That is a bad one, a blank, one with an IPv6 host, one that is not where it says, and one that is not dispatched
    yet, which `is_dispatched` tells by topic (bytes), queue id, queue offset and position in `buffer`. Prepared and
    rolled back ones are not asked for. Several times as fast as looking at everything in each record.
    """
    unpack = _unpack_lengths
    while position + HEAD_LENGTH <= end:
        (total_size, magic_code, crc, queue_id, queue_offset, physical_offset, sys_flag,
         body_length) = unpack(buffer, position)
        topic_at = position + HEAD_LENGTH + body_length
        if magic_code != MESSAGE_MAGIC_CODE or sys_flag & V6_FLAGS or body_length < 0 or topic_at + LENGTHS_SIZE > end \
                or physical_offset != file_from_offset + position:
            break
        topic_length = buffer[topic_at]
        properties_at = topic_at + LENGTHS_SIZE + topic_length
        if topic_length > MAX_TOPIC_LENGTH or properties_at > end:
            break
        properties_length = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
        record_end = properties_at + properties_length
        if properties_length >= 0x8000 or record_end > end or record_end - position != total_size:
            break
        if check_crc and zlib.crc32(buffer[position + HEAD_LENGTH:topic_at]) & 0x7FFF_FFFF != crc and body_length:
            break
        if sys_flag & _TRANSACTION_MASK in _WITHOUT_UNIT or not is_dispatched(
                bytes(buffer[topic_at + 1:properties_at - 2]), queue_id, queue_offset, record_end):
            break
        position = record_end
    return position


def _no_message(stop: int, size: int, fields: tuple[int, ...], buffer: memoryview, topic_at: int,
                properties_at: int) -> DispatchRequest:
    """The blank rest of a file, or something that is neither; see `record_at`."""
    if stop == Stop.BAD_MAGIC:
        log.warning("found a illegal magic code 0x%x", fields[1] & 0xFFFF_FFFF)
    elif stop == Stop.BAD_CRC:
        log.warning("CRC check failed. bodyCRC=%s", fields[2])
    elif stop == Stop.LENGTH_MISMATCH:
        topic_length = buffer[topic_at]
        properties_length = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
        log.error("[BUG]read total count not equals msg total size. totalSize=%s, readTotalCount=%s, bodyLen=%s, "
                  "topicLen=%s, propertiesLength=%s", fields[0],
                  cal_msg_length(fields[6], fields[9], topic_length, properties_length),
                  fields[9], topic_length, properties_length)
    return DispatchRequest(size, stop == Stop.BLANK)


@lru_cache(maxsize=4096)
def _topic(data: bytes) -> str:
    return decode_text(data)


def _take_properties(request: DispatchRequest, text: str, schedule: ScheduleMessageService | None) -> None:
    """Fill in what the properties say."""
    properties = request.properties_map = string2message_properties(text)
    get = properties.get
    request.keys = get(_KEYS)
    request.uniq_key = get(_UNIQ_KEY)
    tags = get(_TAGS)
    if tags:
        request.tags_code = string_hash_code(tags)
    if request.topic == RMQ_SYS_SCHEDULE_TOPIC and schedule is not None and _DELAY in properties:
        try:
            level = min(parse_int(properties[_DELAY]), schedule.max_delay_level)
        except ValueError as error:
            # Differs: such a message is dispatched like one without level; the original takes it for a damaged record,
            # and drops all that is behind it in the file.
            log.warning("a scheduled message has no delay level: %s", error)
            return
        if level > 0:
            request.tags_code = schedule.compute_deliver_timestamp(level, request.store_timestamp)
