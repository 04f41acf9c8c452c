"""What is called when an asynchronous request ends."""
from collections.abc import Callable

from rmqha.common.message.message_ext import MessageExt


class RequestCallback:
    """Exactly one of the two is called, on a thread of the client: return quickly.

    Java: org.apache.rocketmq.client.producer.RequestCallback (4.9.8)
    """

    def __init__(
        self,
        on_success: Callable[[MessageExt], object] | None = None,
        on_exception: Callable[[Exception], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, message: MessageExt) -> None:
        """The reply is there."""
        if self._on_success is not None:
            self._on_success(message)

    def on_exception(self, error: Exception) -> None:
        """The request was not sent, or no reply came in time."""
        if self._on_exception is not None:
            self._on_exception(error)
