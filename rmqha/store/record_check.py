"""Reading one record for dispatch and recovery: what it is, and whether it is whole. No file, no thread.

Java: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize (4.9.8)
"""
from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from rmqha.common.java_compat import string_hash_code
from rmqha.common.message import message_const
from rmqha.common.message.message import parse_int
from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    LENGTHS,
    LENGTHS_SIZE,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    SUMMARIES,
    V6_FLAGS,
    cal_msg_length,
    decode_text,
)
from rmqha.common.sysflag import message_sys_flag
from rmqha.common.topic.topic_validator import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.store.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from rmqha.store.schedule.schedule_message_service import ScheduleMessageService

log = logging.getLogger("RocketmqStore")

_unpack_lengths = LENGTHS.unpack_from
_TRANSACTION_MASK = message_sys_flag.TRANSACTION_ROLLBACK_TYPE
_WITHOUT_UNIT = (message_sys_flag.TRANSACTION_PREPARED_TYPE, message_sys_flag.TRANSACTION_ROLLBACK_TYPE)
_KEYS = message_const.PROPERTY_KEYS
_UNIQ_KEY = message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_TAGS = message_const.PROPERTY_TAGS
_DELAY = message_const.PROPERTY_DELAY_TIME_LEVEL
_unpack_v4 = SUMMARIES[0].unpack_from


def check_message_and_return_size(buffer: memoryview, position: int = 0, check_crc: bool = False,
                                  read_body: bool = True, schedule: ScheduleMessageService | None = None,
                                  ) -> DispatchRequest:
    """Summary of the record at `position`; see DispatchRequest for what its size and success say.

    `schedule` turns delay levels of the schedule topic into delivery times. The CRC is only checked when both flags
    ask for it. Lengths are checked against the buffer; nothing is allocated by what they say.
    """
    end = len(buffer)
    if position + HEAD_LENGTH <= end:
        fields = _unpack_v4(buffer, position)
        body_at = position + HEAD_LENGTH
        if fields[6] & V6_FLAGS and fields[1] == MESSAGE_MAGIC_CODE:
            head = SUMMARIES[fields[6] >> 4 & 3]
            body_at = position + head.size
            if body_at > end:
                return DispatchRequest(-1)
            fields = head.unpack_from(buffer, position)
    elif position + BLANK.size <= end and BLANK.unpack_from(buffer, position)[1] != MESSAGE_MAGIC_CODE:
        fields, body_at = BLANK.unpack_from(buffer, position), end
    else:
        return DispatchRequest(-1)
    if fields[1] != MESSAGE_MAGIC_CODE:
        return _no_message(fields[1])
    body_length = fields[9]
    topic_at = body_at + (body_length if body_length > 0 else 0)
    if topic_at + LENGTHS_SIZE > end:
        return DispatchRequest(-1)
    if check_crc and read_body and body_length > 0 and \
            zlib.crc32(buffer[body_at:topic_at]) & 0x7FFF_FFFF != fields[2]:
        log.warning("CRC check failed. bodyCRC=%s", fields[2])
        return DispatchRequest(-1)
    topic_length = buffer[topic_at]
    properties_at = topic_at + LENGTHS_SIZE + topic_length
    if topic_length > MAX_TOPIC_LENGTH or properties_at > end:
        return DispatchRequest(-1)
    properties_length = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
    properties_end = properties_at + (properties_length if properties_length < 0x8000 else 0)
    if properties_end > end:
        return DispatchRequest(-1)
    total_size = fields[0]
    if total_size != properties_end - position or body_length < 0 or properties_length >= 0x8000:
        return _length_mismatch(total_size, fields, topic_length, properties_length)
    request = DispatchRequest(total_size, True)
    (_, _, _, request.queue_id, request.consume_queue_offset, request.commit_log_offset, request.sys_flag,
     request.store_timestamp, request.prepared_transaction_offset, _) = fields
    request.topic = _topic(bytes(buffer[topic_at + 1:properties_at - 2]))
    if properties_length:
        _take_properties(request, str(buffer[properties_at:properties_end], "utf-8", "replace"), schedule)
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


def _no_message(magic_code: int) -> DispatchRequest:
    """The blank rest of a file, or something that is neither."""
    if magic_code == BLANK_MAGIC_CODE:
        return DispatchRequest(0, True)
    if magic_code != 0:  # 0: nothing was written here yet
        log.warning("found a illegal magic code 0x%x", magic_code & 0xFFFF_FFFF)
    return DispatchRequest(-1)


def _length_mismatch(total_size: int, fields: tuple, topic_length: int, properties_length: int) -> DispatchRequest:
    log.error("[BUG]read total count not equals msg total size. totalSize=%s, readTotalCount=%s, bodyLen=%s, "
              "topicLen=%s, propertiesLength=%s", total_size,
              cal_msg_length(fields[6], fields[9], topic_length, properties_length),
              fields[9], topic_length, properties_length)
    return DispatchRequest(total_size if total_size > 0 else -1, False)


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
