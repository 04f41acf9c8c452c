"""The interface of consume hooks."""
from rmqha.client.hook.consume_message_context import ConsumeMessageContext


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
