"""What a pull gives back, at once or to a callback."""
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqha.common.message.message import MessageExt
from rmqha.common.subscriptions import PullStatus as PullStatus


@dataclass(slots=True)
class PullResult:
    """The messages found, where to go on (`next_begin_offset`), and the queue's bounds, all as queue offsets.

    Java: org.apache.rocketmq.client.consumer.PullResult (4.9.8)
    """

    pull_status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    msg_found_list: list[MessageExt] = field(default_factory=list)


@dataclass(slots=True)
class PullResultExt(PullResult):
    """A PullResult before decoding: the broker to ask next time, and the records' bytes.

    Java: org.apache.rocketmq.client.impl.consumer.PullResultExt (4.9.8)
    """

    suggest_which_broker_id: int = 0
    message_binary: bytes | memoryview | None = None


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
