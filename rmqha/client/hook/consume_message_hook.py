"""The interface of consume hooks, and what they get to see."""
from dataclasses import dataclass, field
from typing import Any

from rmqha.client.client_config import AccessChannel
from rmqha.common.message.message import MessageExt, MessageQueue


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


class ConsumeMessageHook:
    """Called around each call of a listener; what it raises is logged and changes nothing.

    Java: org.apache.rocketmq.client.hook.ConsumeMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Before the listener gets `context.msg_list`."""

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """After it returned or raised."""
