"""What handles messages in the order of their queue."""
from rmqha.client.consumer.listener.consume_orderly_context import ConsumeOrderlyContext
from rmqha.client.consumer.listener.consume_orderly_status import ConsumeOrderlyStatus
from rmqha.common.message.message_ext import MessageExt


class MessageListenerOrderly:
    """Called for one queue by one thread at a time; different queues are handled side by side.

    Java: org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly (4.9.8)
    """

    def consume_message(self, msgs: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        """Handle `msgs`; an exception or None counts as SUSPEND_CURRENT_QUEUE_A_MOMENT."""
        raise NotImplementedError
