"""What is called when an asynchronous send ends."""
from collections.abc import Callable

from rmqha.client.producer.send_result import SendResult


class SendCallback:
    """Exactly one of the two is called, on a thread of the remoting client: return quickly, hand longer work on.

        producer.send_async(message, SendCallback(on_success=results.append, on_exception=errors.append))

    Java: org.apache.rocketmq.client.producer.SendCallback (4.9.8)
    """

    def __init__(
        self,
        on_success: Callable[[SendResult], object] | None = None,
        on_exception: Callable[[Exception], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, send_result: SendResult) -> None:
        """The broker answered; look at `send_result.send_status`."""
        if self._on_success is not None:
            self._on_success(send_result)

    def on_exception(self, error: Exception) -> None:
        """All tries failed; `error` is the last one's."""
        if self._on_exception is not None:
            self._on_exception(error)
