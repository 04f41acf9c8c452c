"""What is called when an asynchronous pull ends."""
from collections.abc import Callable

from rmqha.client.consumer.pull_result import PullResult


class PullCallback:
    """Exactly one of the two is called, on a thread of the remoting client: return quickly.

    Java: org.apache.rocketmq.client.consumer.PullCallback (4.9.8)
    """

    def __init__(
        self,
        on_success: Callable[[PullResult], object] | None = None,
        on_exception: Callable[[Exception], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, pull_result: PullResult) -> None:
        """The broker answered; look at `pull_result.pull_status`."""
        if self._on_success is not None:
            self._on_success(pull_result)

    def on_exception(self, error: Exception) -> None:
        """No answer, or an error answer."""
        if self._on_exception is not None:
            self._on_exception(error)
