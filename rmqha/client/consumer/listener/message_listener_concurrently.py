"""What handles messages, on many threads at once."""
from collections.abc import Callable

from rmqha.client.consumer.listener.consume_concurrently_context import ConsumeConcurrentlyContext
from rmqha.client.consumer.listener.consume_concurrently_status import ConsumeConcurrentlyStatus
from rmqha.common.message.message_ext import MessageExt

SimpleListener = Callable[[list[MessageExt]], ConsumeConcurrentlyStatus | None]


class MessageListenerConcurrently:
    """Base of listeners that want the context; a plain function of the messages will do elsewhere.

    Java: org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently (4.9.8)
    """

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        """Handle `msgs`; an exception or None counts as RECONSUME_LATER."""
        raise NotImplementedError


class FunctionListener(MessageListenerConcurrently):
    """A function of the messages as a listener."""

    def __init__(self, function: SimpleListener) -> None:
        self._function = function

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        return self._function(msgs)
