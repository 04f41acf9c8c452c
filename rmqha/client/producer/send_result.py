"""What a send gives back, at once or to a callback."""
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rmqha.common.message.message import MessageQueue


class SendStatus(Enum):
    """SEND_OK is acknowledged as asked; the others are stored, but not as safely as the broker's role promises.

    Java: org.apache.rocketmq.client.producer.SendStatus (4.9.8)
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True)
class SendResult:
    """Where a message went. `msg_id` is the client's id, `offset_msg_id` the broker's (address and log offset).

    For a batch both ids are joined by commas, and `queue_offset` is the first message's.

    Java: org.apache.rocketmq.client.producer.SendResult (4.9.8)
    """

    send_status: SendStatus
    msg_id: str | None
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    region_id: str | None = None
    trace_on: bool = True

    def __str__(self) -> str:
        offset_msg_id = "null" if self.offset_msg_id is None else self.offset_msg_id
        return (f"SendResult [sendStatus={self.send_status.name}, msgId={self.msg_id}, offsetMsgId={offset_msg_id}, "
                f"messageQueue={self.message_queue}, queueOffset={self.queue_offset}]")


class SendCallback:
    """Exactly one of the two is called, on a thread of the remoting client: return quickly, hand longer work on.

        producer.send_async(message, SendCallback(on_success=results.append, on_exception=errors.append))

    Java: org.apache.rocketmq.client.producer.SendCallback (4.9.8)
    """

    def __init__(
        self,
        on_success: Callable[[SendResult], object] | None = None,
        on_exception: Callable[[Exception], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, send_result: SendResult) -> None:
        """The broker answered; look at `send_result.send_status`."""
        if self._on_success is not None:
            self._on_success(send_result)

    def on_exception(self, error: Exception) -> None:
        """All tries failed; `error` is the last one's."""
        if self._on_exception is not None:
            self._on_exception(error)
