"""What a send gives back."""
from dataclasses import dataclass

from rmqha.client.producer.send_status import SendStatus
from rmqha.common.message.message_queue import MessageQueue


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
