"""Messages found, still in the map."""
from enum import Enum

from rmqha.common.texts import LATER
from rmqha.store.select_mapped_buffer_result import SelectMappedBufferResult

# Bytes that count as one message on a bill.
SIZE_PER_COUNT = 64 * 1024
_NOTHING = SelectMappedBufferResult(0, memoryview(b""), 0, None)


class GetMessageStatus(Enum):
    """Why a get found messages or none.

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
    """Slices of the map with the offsets to answer. `release` gives all slices back; whoever sends them calls it.

    `message_maped_list` are the parts of the log that were looked at, `message_buffer_list` the records found in them.

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
        """Add a part of the log in which messages are; it is released with this result."""
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
        """Give all slices back; idempotent. The views go before the shares of the files."""
        for record in self.message_buffer_list:
            record.release()
        for part in self.message_maped_list:
            part.release()

    def __repr__(self) -> str:
        return (f"GetMessageResult [status={self.status and self.status.name}, "
                f"nextBeginOffset={self.next_begin_offset}, minOffset={self.min_offset}, maxOffset={self.max_offset}, "
                f"bufferTotalSize={self.buffer_total_size}, suggestPullingFromSlave={self.suggest_pulling_from_slave}]")
