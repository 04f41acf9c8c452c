"""Where an append went."""
from collections.abc import Callable

from rmqha.store.append_message_status import AppendMessageStatus


class AppendMessageResult:
    """Status, commit log offset, bytes, logical offset and number of messages of one append; times in ms.

    `msg_id` is built when first read: most answers need it, the replication and flush paths do not.

    Java: org.apache.rocketmq.store.AppendMessageResult (4.9.8)
    """

    __slots__ = ("status", "wrote_offset", "wrote_bytes", "store_timestamp", "logics_offset", "page_cache_rt",
                 "msg_num", "_msg_id", "_msg_id_supplier")

    def __init__(self, status: AppendMessageStatus, wrote_offset: int = 0, wrote_bytes: int = 0,
                 msg_id_supplier: Callable[[], str] | None = None, store_timestamp: int = 0,
                 logics_offset: int = 0, page_cache_rt: int = 0, msg_num: int = 1) -> None:
        self.status = status
        self.wrote_offset = wrote_offset
        self.wrote_bytes = wrote_bytes
        self.store_timestamp = store_timestamp
        self.logics_offset = logics_offset
        self.page_cache_rt = page_cache_rt
        self.msg_num = msg_num
        self._msg_id: str | None = None
        self._msg_id_supplier = msg_id_supplier

    @property
    def is_ok(self) -> bool:
        """True when the bytes are in the map."""
        return self.status is AppendMessageStatus.PUT_OK

    @property
    def msg_id(self) -> str | None:
        """The offset message id; for a batch the ids of all its messages, joined by commas."""
        if self._msg_id is None and self._msg_id_supplier is not None:
            self._msg_id = self._msg_id_supplier()
        return self._msg_id

    def __repr__(self) -> str:
        return (f"AppendMessageResult [status={self.status.name}, wroteOffset={self.wrote_offset}, "
                f"wroteBytes={self.wrote_bytes}, msgId='{self.msg_id}', storeTimestamp={self.store_timestamp}, "
                f"logicsOffset={self.logics_offset}, pagecacheRT={self.page_cache_rt}, msgNum={self.msg_num}]")
