"""What became of one append to the log, and where it went."""
from enum import Enum

from rmqha.common.message.message_decoder import create_message_id
from rmqha.common.message.message_layout import Host


class AppendMessageStatus(Enum):
    """What `MappedFile.append_message` did.

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

    `offsets`: of the messages of a batch, None for a single one. `msg_id` is built when first read: the answer to a
    producer needs it, other puts do not.

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
