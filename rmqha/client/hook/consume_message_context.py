"""What a consume hook gets to see."""
from dataclasses import dataclass, field
from typing import Any

from rmqha.client.access_channel import AccessChannel
from rmqha.common.message.message_ext import MessageExt
from rmqha.common.message.message_queue import MessageQueue


@dataclass
class ConsumeMessageContext:
    """One call of a listener. `props` holds ConsumeContextType, a ConsumeReturnType's name, when it ended.

    Java: org.apache.rocketmq.client.hook.ConsumeMessageContext (4.9.8)
    """

    consumer_group: str
    msg_list: list[MessageExt]
    mq: MessageQueue
    success: bool = False
    status: str | None = None
    mq_trace_context: Any = None
    props: dict[str, str] = field(default_factory=dict)
    namespace: str | None = None
    access_channel: AccessChannel | None = None
