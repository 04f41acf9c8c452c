"""The interface of hooks that filter what was pulled."""
from dataclasses import dataclass

from rmqha.common.message.message import MessageExt, MessageQueue


@dataclass
class FilterMessageContext:
    """Messages of one pull; a hook takes those out of `msg_list` that nobody is to see.

    Java: org.apache.rocketmq.client.hook.FilterMessageContext (4.9.8)
    """

    consumer_group: str
    msg_list: list[MessageExt]
    mq: MessageQueue
    unit_mode: bool = False


class FilterMessageHook:
    """Called with each pull's messages; what it raises is logged and changes nothing.

    Java: org.apache.rocketmq.client.hook.FilterMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def filter_message(self, context: FilterMessageContext) -> None:
        """Change `context.msg_list` in place."""
        raise NotImplementedError
