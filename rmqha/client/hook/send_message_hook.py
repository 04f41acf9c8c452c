"""The interface of send hooks, and what they get to see."""
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqha.client.impl.communication_mode import CommunicationMode
from rmqha.client.producer.send_result import SendResult
from rmqha.common.message.message import Message, MessageQueue, MessageType

if TYPE_CHECKING:
    from rmqha.client.impl.producer.default_mq_producer_impl import DefaultMQProducerImpl


@dataclass
class SendMessageContext:
    """One try of a send. `mq_trace_context` is the hook's own, from before to after.

    Java: org.apache.rocketmq.client.hook.SendMessageContext (4.9.8)
    """

    producer_group: str
    message: Message
    mq: MessageQueue
    broker_addr: str
    born_host: str
    communication_mode: CommunicationMode
    producer: "DefaultMQProducerImpl"
    msg_type: MessageType = MessageType.Normal_Msg
    namespace: str | None = None
    send_result: SendResult | None = None
    exception: Exception | None = None
    mq_trace_context: Any = None
    props: dict[str, str] | None = None


class SendMessageHook:
    """Called around each try of a send; what it raises is logged and changes nothing.

    Java: org.apache.rocketmq.client.hook.SendMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def send_message_before(self, context: SendMessageContext) -> None:
        """Before the request leaves."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """After the answer (`context.send_result`) or the failure (`context.exception`)."""
