"""The requests of one client instance that wait for replies."""
import logging

from rmqha.client.producer.request_response_future import RequestResponseFuture
from rmqha.common.message import message_const
from rmqha.common.message.message_ext import MessageExt

log = logging.getLogger("RocketmqClient")


class RequestFutureHolder:
    """By correlation id; single dict operations only, from any thread.

    Java: org.apache.rocketmq.client.producer.RequestFutureHolder (4.9.8)
    """

    # Differs: one for each client instance, which is whom replies are sent to; the original has one for the process
    def __init__(self) -> None:
        self.request_future_table: dict[str, RequestResponseFuture] = {}

    def fail_all(self, cause: Exception) -> None:
        """No reply can come any more: who waits is told."""
        # Differs: the original leaves callbacks uncalled when the client ends
        while self.request_future_table:
            try:
                _correlation_id, future = self.request_future_table.popitem()
            except KeyError:  # its reply, or its timer, was faster
                return
            future.fail(cause)

    def process_reply_message(self, message: MessageExt) -> None:
        """Hand a reply to whoever waits for it."""
        correlation_id = message.get_user_property(message_const.PROPERTY_CORRELATION_ID)
        future = self.request_future_table.pop(correlation_id or "", None)
        if future is None:
            log.warning("receive reply message, but not matched any request, CorrelationId: %s , reply from host: %s",
                        correlation_id, message.born_host_string)
            return
        future.put_response_message(message)
