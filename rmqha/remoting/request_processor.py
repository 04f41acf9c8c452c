"""What serves requests, and one that waits to be served."""
from collections.abc import Callable
from typing import Protocol

from rmqha.common.futures import Completable
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand

Answer = RemotingCommand | Completable[RemotingCommand | None] | None


class RequestProcessor(Protocol):
    """Serves the requests of the codes it is registered for.

    Java: org.apache.rocketmq.remoting.netty.NettyRequestProcessor (4.9.8)
    """

    def process_request(self, channel: Channel, request: RemotingCommand) -> Answer:
        """The response, now or later; None when there is none (yet: the processor may write one itself)."""

    def reject_request(self) -> bool:
        """True when requests are to be turned away (SYSTEM_BUSY)."""


class ExpressLane(Protocol):
    """Serves the frames that it knows how to serve; all others go the general way. Everything on the IO thread."""

    def serve(self, channel: Channel, data: memoryview, position: int) -> int:
        """Serve the frames that lie whole in `data` from `position` on, up to the first that has to go the general
        way; the position behind them. `data` is valid until it returns."""


class RequestTask:
    """Callable once by the pool; whoever cleans the queue sets `stop_run` and answers with `return_response`.

    Java: org.apache.rocketmq.remoting.netty.RequestTask (4.9.8)
    """

    __slots__ = ("runnable", "create_timestamp", "channel", "request", "stop_run", "size")

    def __init__(self, runnable: Callable[[], None], channel: Channel, request: RemotingCommand) -> None:
        self.runnable = runnable
        self.create_timestamp = current_time_millis()
        self.channel = channel
        self.request = request
        self.size = request.header_length + len(request.body or b"")  # bytes
        self.stop_run = False  # set by a cleaner before the pool takes the task

    def __call__(self) -> None:
        """Serve the request, unless it was answered already."""
        if not self.stop_run:
            self.runnable()

    def return_response(self, code: int, remark: str) -> None:
        """Answer in the request's place."""
        response = RemotingCommand.create_response_command(code, remark)
        response.opaque = self.request.opaque
        self.channel.write(response)
