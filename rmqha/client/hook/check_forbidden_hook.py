"""The interface of hooks that may forbid a send."""
from dataclasses import dataclass

from rmqha.client.impl.communication_mode import CommunicationMode
from rmqha.common.message.message import Message, MessageQueue


@dataclass
class CheckForbiddenContext:
    """A send that may be forbidden.

    Java: org.apache.rocketmq.client.hook.CheckForbiddenContext (4.9.8)
    """

    name_srv_addr: str | None
    group: str
    message: Message
    mq: MessageQueue
    broker_addr: str
    communication_mode: CommunicationMode
    unit_mode: bool = False


class CheckForbiddenHook:
    """Called before each try of a send; MQClientException from here fails the try.

    Java: org.apache.rocketmq.client.hook.CheckForbiddenHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        """Raise MQClientException to forbid."""
        raise NotImplementedError
