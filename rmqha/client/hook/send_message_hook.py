"""The interface of send hooks."""
from rmqha.client.hook.send_message_context import SendMessageContext


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
