"""Results of appends, puts, gets and queries, and the fields of a record that dispatching needs.

Messages that were found stay in the map: a result holds a reference to each mapped file until it is released.

Java: org.apache.rocketmq.store.StoreUtil (4.9.8)
"""
from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from rmqha.common.message.message_decoder import create_message_id
from rmqha.common.message.message_layout import Host
from rmqha.common.texts import LATER

if TYPE_CHECKING:
    from rmqha.store.mapped_file import MappedFile


class AppendMessageStatus(Enum):
    """The outcome of `MappedFile.append_message`.

    Java: org.apache.rocketmq.store.AppendMessageStatus (4.9.8)
    """

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

_PUT_OK = AppendMessageStatus.PUT_OK


class AppendMessageResult:
    """Status, commit log offset, bytes, logical offset and number of messages of one append; times in ms.

    `offsets`: commit log offsets of the messages of a batch, None for a single message. `msg_id` is built when it is
    first read, because only the response to a producer needs it.

    Java: org.apache.rocketmq.store.AppendMessageResult (4.9.8)
    """

    __slots__ = ("status", "wrote_offset", "wrote_bytes", "store_timestamp", "logics_offset", "page_cache_rt",
                 "msg_num", "store_host", "offsets", "_msg_id")

    def __init__(self, status: AppendMessageStatus, wrote_offset: int = 0, wrote_bytes: int = 0,
                 store_host: Host | None = None, store_timestamp: int = 0, logics_offset: int = 0,
                 offsets: list[int] | None = None) -> None:
        self.status = status
        self.wrote_offset = wrote_offset
        self.wrote_bytes = wrote_bytes
        self.store_host = store_host
        self.store_timestamp = store_timestamp
        self.logics_offset = logics_offset
        self.page_cache_rt = 0
        self.msg_num = 1 if offsets is None else len(offsets)
        self.offsets = offsets
        self._msg_id: str | None = None

    @property
    def is_ok(self) -> bool:
        """True when the bytes are in the map."""
        return self.status is _PUT_OK

    @property
    def msg_id(self) -> str | None:
        """The offset message id; for a batch the ids of all its messages, joined by commas."""
        if self._msg_id is None and self.store_host is not None:
            offsets = [self.wrote_offset] if self.offsets is None else self.offsets
            self._msg_id = ",".join([create_message_id(self.store_host, offset) for offset in offsets])
        return self._msg_id

    def __repr__(self) -> str:
        return (f"AppendMessageResult [status={self.status.name}, wroteOffset={self.wrote_offset}, "
                f"wroteBytes={self.wrote_bytes}, msgId='{self.msg_id}', storeTimestamp={self.store_timestamp}, "
                f"logicsOffset={self.logics_offset}, pagecacheRT={self.page_cache_rt}, msgNum={self.msg_num}]")


class PutMessageStatus(Enum):
    """The outcome of a put; only PUT_OK means that the message is stored as safely as the configuration asks.

    Java: org.apache.rocketmq.store.PutMessageStatus (4.9.8)
    """

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    # from 5.1.4: nothing was stored
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    # our own: the topic was deleted after the message had been checked
    TOPIC_NOT_EXIST = "TOPIC_NOT_EXIST"


class PutMessageResult:
    """The result of a put; `append_message_result` is None when nothing was appended.

    Java: org.apache.rocketmq.store.PutMessageResult (4.9.8)
    """

    __slots__ = ("put_message_status", "append_message_result")

    def __init__(self, put_message_status: PutMessageStatus,
                 append_message_result: AppendMessageResult | None = None) -> None:
        self.put_message_status = put_message_status
        self.append_message_result = append_message_result

    @property
    def is_ok(self) -> bool:
        """True when the message is in the log, whether or not flush and replication succeeded."""
        return self.append_message_result is not None and self.append_message_result.is_ok

    def __repr__(self) -> str:
        return (f"PutMessageResult [putMessageStatus={self.put_message_status.name}, "
                f"appendMessageResult={self.append_message_result}]")


class SelectMappedBufferResult:
    """`size` bytes at commit log (or queue) offset `start_offset`, read in place through `buffer`.

    Use it as a context manager, or call `release` when done: it releases first the view, then the reference to the
    file. Releasing twice does nothing.

    Java: org.apache.rocketmq.store.SelectMappedBufferResult (4.9.8)
    """

    __slots__ = ("start_offset", "buffer", "size", "mapped_file")

    def __init__(self, start_offset: int, buffer: memoryview, size: int, mapped_file: MappedFile | None) -> None:
        self.start_offset = start_offset
        self.buffer = buffer
        self.size = size
        self.mapped_file = mapped_file

    def release(self) -> None:
        """Release the view and the file."""
        mapped_file, self.mapped_file = self.mapped_file, None
        if mapped_file is not None:
            self.buffer.release()
            mapped_file.release()

    def __enter__(self) -> SelectMappedBufferResult:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


# Bytes that count as one message for billing.
SIZE_PER_COUNT = 64 * 1024
_NOTHING = SelectMappedBufferResult(0, memoryview(b""), 0, None)


class GetMessageStatus(Enum):
    """The outcome of a get: messages found, or the reason why not.

    Java: org.apache.rocketmq.store.GetMessageStatus (4.9.8)
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult:
    """Slices of the map, and the offsets for the response. The code that sends the slices calls `release` afterwards.

    `message_maped_list` holds the parts of the log that were read, `message_buffer_list` the records found in them.

    Java: org.apache.rocketmq.store.GetMessageResult (4.9.8)
    """

    __slots__ = ("message_maped_list", "message_buffer_list", "status", "next_begin_offset", "min_offset", "max_offset",
                 "buffer_total_size", "suggest_pulling_from_slave", "msg_count4_commercial", "last_part")

    def __init__(self, _result_size: int = 0) -> None:
        self.message_maped_list: list[SelectMappedBufferResult] = []
        self.message_buffer_list: list[memoryview] = []
        self.status: GetMessageStatus = LATER
        self.next_begin_offset = 0
        self.min_offset = 0
        self.max_offset = 0
        self.buffer_total_size = 0  # bytes
        self.suggest_pulling_from_slave = False
        self.msg_count4_commercial = 0
        self.last_part = _NOTHING  # of message_maped_list

    def add_part(self, part: SelectMappedBufferResult) -> None:
        """Add a part of the log that contains messages; it is released with this result."""
        self.message_maped_list.append(part)
        self.last_part = part

    def add_record(self, record: memoryview) -> None:
        """Add one message of the last part; it is released with this result."""
        size = len(record)
        self.message_buffer_list.append(record)
        self.buffer_total_size += size
        self.msg_count4_commercial += -(-size // SIZE_PER_COUNT)

    @property
    def message_count(self) -> int:
        """Number of messages."""
        return len(self.message_buffer_list)

    def release(self) -> None:
        """Release all slices, the views before the references to the files. Idempotent."""
        for record in self.message_buffer_list:
            record.release()
        for part in self.message_maped_list:
            part.release()

    def __repr__(self) -> str:
        return (f"GetMessageResult [status={self.status and self.status.name}, "
                f"nextBeginOffset={self.next_begin_offset}, minOffset={self.min_offset}, maxOffset={self.max_offset}, "
                f"bufferTotalSize={self.buffer_total_size}, suggestPullingFromSlave={self.suggest_pulling_from_slave}]")


class QueryMessageResult:
    """Slices of the map, and the position of the index. `release` releases the slices.

    Java: org.apache.rocketmq.store.QueryMessageResult (4.9.8)
    """

    __slots__ = ("message_maped_list", "message_buffer_list", "index_last_update_timestamp",
                 "index_last_update_phyoffset", "buffer_total_size")

    def __init__(self) -> None:
        self.message_maped_list: list[SelectMappedBufferResult] = []
        self.message_buffer_list: list[memoryview] = []
        self.index_last_update_timestamp = 0  # ms
        self.index_last_update_phyoffset = 0
        self.buffer_total_size = 0  # bytes

    def add_message(self, maped_buffer: SelectMappedBufferResult) -> None:
        """Add one message; it is released with this result."""
        self.message_maped_list.append(maped_buffer)
        self.message_buffer_list.append(maped_buffer.buffer)
        self.buffer_total_size += maped_buffer.size

    def keep(self, is_wanted: Callable[[memoryview], bool]) -> None:
        """Keep only the records that are wanted; release the others."""
        found, self.message_maped_list, self.message_buffer_list = self.message_maped_list, [], []
        self.buffer_total_size = 0
        for select in found:
            if is_wanted(select.buffer):
                self.add_message(select)
            else:
                select.release()

    def release(self) -> None:
        """Release all slices. Idempotent."""
        for select in self.message_maped_list:
            select.release()


def get_total_physical_memory_size() -> int:
    """Return the size of the physical memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


TOTAL_PHYSICAL_MEMORY_SIZE = get_total_physical_memory_size()


class DispatchRequest:
    """Summary of a commit log record, or the reason why there is no record.

    success and msg_size > 0: a record; success and 0: the blank rest of a file; not success and -1: not a record (bad
    magic, bad checksum, incomplete); not success and > 0: a record whose length does not add up. `tags_code` may be a
    delivery time, see the layout of the consume queue. `properties_map` is None for a record without properties.

    Java: org.apache.rocketmq.store.DispatchRequest (4.9.8)
    """

    __slots__ = ("topic", "queue_id", "commit_log_offset", "msg_size", "tags_code", "store_timestamp",
                 "consume_queue_offset", "keys", "uniq_key", "sys_flag", "prepared_transaction_offset", "success",
                 "bit_map", "buffer_size", "properties_map")

    def __init__(self, msg_size: int, success: bool = False) -> None:
        self.topic = ""
        self.queue_id = 0
        self.commit_log_offset = 0
        self.msg_size = msg_size
        self.tags_code = 0
        self.store_timestamp = 0
        self.consume_queue_offset = 0
        self.keys: str | None = ""
        self.uniq_key: str | None = None
        self.sys_flag = 0
        self.prepared_transaction_offset = 0
        self.success = success
        self.bit_map: bytes | None = None
        # bytes; larger than msg_size when the record is wrapped in something else
        self.buffer_size = -1
        self.properties_map: dict[str, str] | None = None

    def __repr__(self) -> str:
        return (f"DispatchRequest(topic={self.topic!r}, queue_id={self.queue_id}, offset={self.commit_log_offset}, "
                f"size={self.msg_size}, queue_offset={self.consume_queue_offset}, success={self.success})")
