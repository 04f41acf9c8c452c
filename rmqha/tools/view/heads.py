"""Messages of one queue without their bodies, from brokers of rmqha and of the original.

    rmqha     --GET_MESSAGE_HEADS--> heads, filtered by the broker
    original  --PULL_MESSAGE-------> whole messages --key, text--> heads

The original has no request for a part of a message. So it sends whole messages: up to 256 KiB or 32 messages in one
answer, and at least one message, whatever its size. A page of 50 messages of 4 MiB costs 200 MiB. So `HeadReader` stops
after MAX_PULLED_BYTES and one answer more, and the next call continues. The broker filters by tags and SQL, by SQL only
with enablePropertyFilter=true.
"""
import time
from dataclasses import dataclass

from rmqha.client.exception import MQBrokerException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.results import PullStatus
from rmqha.common import body_parts, subscriptions, sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import MessageQueue
from rmqha.common.mix_all import TOOLS_CONSUMER_GROUP
from rmqha.common.protocol import message_heads, response_code
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.protocol.message_heads import (
    GetMessageHeadsRequestHeader,
    GetMessageHeadsResponseHeader,
    MessageHead,
    MessageHeads,
)
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt

# After this time a broker that did not know the request is asked again: it may have been replaced.
_ASK_AGAIN_S = 600.0
MAX_PULLED_BYTES = 4 << 20
_MAX_PULLS = 50
# Messages of one pull. The original sends at most 32 with its default settings.
_AT_ONCE = 32
# When messages are read backwards, so many bytes of them are read at a time. If the broker filters them, it examines
# up to 800 for one pull.
_STEP_BYTES = 256 * 1024
_MAX_STEP, _MAX_FILTERED_STEP = 32, 800


class HeadReader:
    """Reads heads of messages from brokers. Thread-safe.

    Raises the client's exceptions, and ValueError for a malformed answer.
    """

    def __init__(self, admin: DefaultMQAdminExt) -> None:
        self._admin = admin
        # Address of a broker that does not know the request -> until when it is not asked (monotonic).
        self._not_asked: dict[str, float] = {}

    def pulls_from(self, address: str) -> bool:
        """Return whether a broker is known to send whole messages only."""
        return time.monotonic() < self._not_asked.get(address, 0.0)

    def read(self, address: str, header: GetMessageHeadsRequestHeader) -> MessageHeads:
        """Return what GET_MESSAGE_HEADS returns, from any broker."""
        return self._asked(address, header) or self._pulling(address, header).run()

    def whole(self, address: str, header: GetMessageHeadsRequestHeader) -> bytes | None:
        """Return the stored record of the message at the header's offset; None if the queue does not have it."""
        answer = self._asked(address, header)
        if answer is None:
            return self._pulling(address, header).record()
        found = [head for head in answer.heads if head.queue_offset == header.offset]
        return self._admin.view_record(address, found[0].commit_log_offset) if found else None

    def _asked(self, address: str, header: GetMessageHeadsRequestHeader) -> MessageHeads | None:
        """Return the answer to GET_MESSAGE_HEADS; None from a broker that does not know it."""
        if self.pulls_from(address):
            return None
        answer = self._admin.api.get_message_heads(address, header, self._admin.timeout_millis)
        if answer is None:
            self._not_asked[address] = time.monotonic() + _ASK_AGAIN_S
        return answer

    def _pulling(self, address: str, header: GetMessageHeadsRequestHeader) -> "_Pulling":
        return _Pulling(self._admin.api, address, header, self._admin.timeout_millis)


@dataclass
class _Pulled:
    """The records that a pull returned, and where the next pull continues."""

    records: list[memoryview]
    next_offset: int


class _Pulling:
    """Answers one request by pulls, on the caller's thread."""

    def __init__(self, api: MQClientAPIImpl, address: str, header: GetMessageHeadsRequestHeader,
                 timeout_ms: float) -> None:
        self._api, self._address, self._header, self._timeout_ms = api, address, header, timeout_ms
        self._tags = message_heads.tag_names(header.tags)
        self._text = header.text.encode("utf-8", "replace") if header.text is not None else None
        self._is_filtered_there = self._tags is not None or header.sql is not None
        self._heads: list[MessageHead] = []
        self._pulls = self._received = 0
        # Set by `run`.
        self._told = GetMessageHeadsResponseHeader(0, 0, header.offset, 0, -1, 0, 0, 0)

    def run(self) -> MessageHeads:
        """Pull until enough messages are found, or enough bytes are received."""
        told, header = self._told, self._header
        self._ask_range()
        if header.backwards:
            told.nextOffset = min(header.offset, told.minOffset - 1)
            self._run_backwards(min(told.maxOffset, header.offset + 1))
        else:
            self._run_forwards(max(told.minOffset, header.offset))
        return MessageHeads(told, self._heads, self._received)

    def record(self) -> bytes | None:
        """Return the stored record at the header's offset; None if the queue does not have it."""
        told, offset = self._told, self._header.offset
        self._ask_range()
        # A pull outside the range makes a broker of the original store an event.
        if not told.minOffset <= offset < told.maxOffset:
            return None
        found = [record for record in self._pull(offset, 1).records if _offset_of(record) == offset]
        return bytes(found[0]) if found else None

    def _ask_range(self) -> None:
        queue = MessageQueue(self._header.topic, queueId=self._header.queueId)
        self._told.minOffset = self._api.get_min_offset(self._address, queue, self._timeout_ms)
        self._told.maxOffset = self._api.get_max_offset(self._address, queue, self._timeout_ms)

    @property
    def _is_full(self) -> bool:
        # Each request comes further, whatever the limits are.
        return len(self._heads) >= self._header.count or self._told.examined > 0 and (
            self._pulls >= _MAX_PULLS or self._received >= MAX_PULLED_BYTES)

    def _run_forwards(self, offset: int) -> None:
        while offset < self._told.maxOffset and not self._is_full:
            pulled = self._pull(offset, _AT_ONCE)
            next_offset, last = max(offset, pulled.next_offset), None
            for last in pulled.records:
                self._take(last)
                if len(self._heads) >= self._header.count:
                    # The next request pulls the messages after this one again.
                    next_offset = _offset_of(last) + 1
                    break
            self._passed(next_offset - offset, next_offset, last)
            if next_offset == offset:
                return
            offset = next_offset

    def _run_backwards(self, end: int) -> None:
        step = 1
        while end > self._told.minOffset and not self._is_full:
            begin = max(self._told.minOffset, end - step)
            records = self._between(begin, end)
            if records is None:
                step = max(1, step // 8)
                continue
            last = None
            for last in reversed(records):
                self._take(last)
                if len(self._heads) >= self._header.count:
                    begin = _offset_of(last)
                    break
            self._passed(end - begin, begin - 1, last)
            end = begin
            size = sum(map(len, records))
            most = _MAX_FILTERED_STEP if self._is_filtered_there else _MAX_STEP
            step = max(1, min(most, step * 8, step * _STEP_BYTES // max(size, 1)))

    def _between(self, begin: int, end: int) -> list[memoryview] | None:
        """Return all records from one offset to before another; None if several are too large together."""
        records: list[memoryview] = []
        size, is_one = 0, end - begin == 1
        while begin < end:
            pulled = self._pull(begin, min(_AT_ONCE, end - begin))
            records += [record for record in pulled.records if _offset_of(record) < end]
            size += sum(map(len, pulled.records))
            if pulled.next_offset <= begin:
                break
            begin = pulled.next_offset
            if size > MAX_PULLED_BYTES and begin < end and not is_one:
                return None
        return records

    def _passed(self, count: int, next_offset: int, last: memoryview | None) -> None:
        told = self._told
        told.examined += count
        told.nextOffset = next_offset
        # If the broker filters, this is the last one that it has sent: it may have refused later ones.
        if last is not None:
            told.lastTimestamp = layout.decode_header(last).store_timestamp

    def _pull(self, offset: int, count: int) -> _Pulled:
        header = self._header
        is_sql = header.sql is not None
        # A broker filters by one of the two. Tags are checked again in `_take`.
        subscription = header.sql if is_sql else " || ".join(sorted(self._tags or ())) or subscriptions.SUB_ALL
        request = PullMessageRequestHeader(
            consumerGroup=TOOLS_CONSUMER_GROUP, topic=header.topic, queueId=header.queueId, queueOffset=offset,
            maxMsgNums=count, sysFlag=sys_flags.build_pull_sys_flag(False, False, True, False), commitOffset=0,
            suspendTimeoutMillis=0, subscription=subscription, subVersion=0,
            expressionType=subscriptions.SQL92 if is_sql else subscriptions.TAG)
        try:
            result = self._api.pull_message(self._address, request, self._timeout_ms)
        except MQBrokerException as error:
            if is_sql and error.response_code == response_code.SYSTEM_ERROR and "does not support" in (
                    error.error_message or ""):
                raise MQBrokerException(error.response_code, f"{error.error_message}: it is a broker with "
                                        "enablePropertyFilter=false. Search by tag, key or text instead",
                                        self._address) from None
            raise
        data = memoryview(result.message_binary or b"") if result.pull_status is PullStatus.FOUND else memoryview(b"")
        self._pulls += 1
        self._received += len(data)
        return _Pulled(_records(data), result.next_begin_offset)

    def _take(self, record: memoryview) -> None:
        """Add a record if it is wanted."""
        header, parts = self._header, layout.decode_parts(record)
        at = parts.properties_position
        properties = message_decoder.string2message_properties(
            layout.decode_text(record[at:at + parts.properties_length]))
        if (self._tags is not None and not message_heads.has_tag(properties, self._tags)
                or header.key is not None and not message_heads.has_key(properties, header.key)):
            return
        if self._text is not None:
            begin = parts.body_position
            found = body_parts.contains(record[begin:begin + parts.head.body_length], parts.head.sys_flag, self._text,
                                        message_heads.MAX_SEARCHED_BYTES)
            self._told.searchedBytes += found.spent
            if found.is_found is None:
                self._told.unsearched += 1
            if not found.is_found:
                return
        encoded = message_heads.encode(record, parts, parts.head.queue_offset, header.bodyBytes, header.propertyBytes)
        self._heads += message_heads.decode(encoded, 1)


def _offset_of(record: memoryview) -> int:
    return layout.decode_header(record).queue_offset


def _records(data: memoryview) -> list[memoryview]:
    """Return the records of a pull's answer; MessageDecodeError for damage."""
    records, at = [], 0
    while at < len(data):
        size = layout.decode_parts(data, at).head.total_size
        records.append(data[at:at + size])
        at += size
    return records
