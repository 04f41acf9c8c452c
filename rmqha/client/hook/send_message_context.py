"""What a send hook gets to see."""
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqha.client.impl.communication_mode import CommunicationMode
from rmqha.client.producer.send_result import SendResult
from rmqha.common.message.message import Message
from rmqha.common.message.message_queue import MessageQueue
from rmqha.common.message.message_type import MessageType

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
