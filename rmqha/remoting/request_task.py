"""A request that waits in an executor's queue."""
from collections.abc import Callable

from rmqha.common.util_all import current_time_millis
from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand


class RequestTask:
    """Callable once by the pool; whoever cleans the queue sets `stop_run` and answers with `return_response`.

    Java: org.apache.rocketmq.remoting.netty.RequestTask (4.9.8)
    """

    __slots__ = ("runnable", "create_timestamp", "channel", "request", "stop_run")

    def __init__(self, runnable: Callable[[], None], channel: Channel, request: RemotingCommand) -> None:
        self.runnable = runnable
        self.create_timestamp = current_time_millis()
        self.channel = channel
        self.request = request
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
