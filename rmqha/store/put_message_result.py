"""Status of a put and where it went."""
from rmqha.store.append_message_result import AppendMessageResult
from rmqha.store.put_message_status import PutMessageStatus


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
