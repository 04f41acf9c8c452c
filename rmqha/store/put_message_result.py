"""What became of one put into the store, and where it went."""
from enum import Enum

from rmqha.store.append_message_result import AppendMessageResult


class PutMessageStatus(Enum):
    """What became of a message; only PUT_OK means stored as safely as the configuration asks.

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
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"  # of 5.1.4: nothing was stored
    TOPIC_NOT_EXIST = "TOPIC_NOT_EXIST"  # of our own: the topic was deleted since the message was checked


class PutMessageResult:
    """`append_message_result` is None when nothing was appended.

    Java: org.apache.rocketmq.store.PutMessageResult (4.9.8)
    """

    __slots__ = ("put_message_status", "append_message_result")

    def __init__(self, put_message_status: PutMessageStatus,
                 append_message_result: AppendMessageResult | None = None) -> None:
        self.put_message_status = put_message_status
        self.append_message_result = append_message_result

    @property
    def is_ok(self) -> bool:
        """True when the message is in the log, whatever flush and replication said."""
        return self.append_message_result is not None and self.append_message_result.is_ok

    def __repr__(self) -> str:
        return (f"PutMessageResult [putMessageStatus={self.put_message_status.name}, "
                f"appendMessageResult={self.append_message_result}]")
