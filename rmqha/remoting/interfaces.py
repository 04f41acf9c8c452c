"""The interfaces that users of a connection implement, and the objects that they are given.

- `RequestProcessor`, `ExpressLane`: serve requests; `RequestTask` is a request that waits to be served.
- `RPCHook`: sees requests and responses before and after a call.
- `ChannelEventListener`: is notified of connections that open and close.
- `ResponseFuture`: a call that waits for its response.
"""
import threading
import time
from collections.abc import Callable
from typing import Protocol

from rmqha.common.futures import AtomicBoolean, Completable
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


class RPCHook(Protocol):
    """Called around each request: by the server around the processor, by the client around the call.

    Java: org.apache.rocketmq.remoting.RPCHook (4.9.8)
    """

    def do_before_request(self, remote_addr: str, request: RemotingCommand) -> None:
        """Before it is served or sent. An exception here is the answer."""

    def do_after_response(self, remote_addr: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """After it was served or answered; `response` is None when there is none."""


class ChannelEventListener:
    """Override what is of interest. Called on the NettyEventExecutor thread, in the order of the events.

    Java: org.apache.rocketmq.remoting.ChannelEventListener (4.9.8)
    """

    def on_channel_connect(self, remote_addr: str, channel: "Channel") -> None:
        """A connection is there."""

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """A connection is gone."""

    def on_channel_exception(self, remote_addr: str, channel: "Channel") -> None:
        """Serving a connection failed; it is being closed."""

    def on_channel_idle(self, remote_addr: str, channel: "Channel") -> None:
        """Nothing moved on a connection for too long; it is being closed."""


class SemaphoreReleaseOnlyOnce:
    """Several parties may end a call; the first gives the permit back.

    Java: org.apache.rocketmq.remoting.common.SemaphoreReleaseOnlyOnce (4.9.8)
    """

    __slots__ = ("semaphore", "_released")

    def __init__(self, semaphore: threading.Semaphore) -> None:
        self.semaphore = semaphore
        self._released = AtomicBoolean()

    def release(self) -> None:
        """Give the permit back, the first time."""
        if self._released.compare_and_set(False, True):
            self.semaphore.release()


class ResponseFuture:
    """Completed by the reading thread, by a failed write, by the connection's end, or by the scan for time-outs.

    The callback is called once; `response_command` is then None unless a response came, and `send_request_ok` and
    `is_timeout` tell why.

    Java: org.apache.rocketmq.remoting.netty.ResponseFuture (4.9.8)
    """

    __slots__ = ("opaque", "process_channel", "timeout_ms", "invoke_callback", "begin_ns", "response_command",
                 "send_request_ok", "cause", "_once", "_done", "_called")

    def __init__(self, channel: Channel, opaque: int, timeout_ms: float,
                 invoke_callback: "Callable[[ResponseFuture], None] | None" = None,
                 once: SemaphoreReleaseOnlyOnce | None = None) -> None:
        self.opaque = opaque
        self.process_channel = channel
        self.timeout_ms = timeout_ms
        self.invoke_callback = invoke_callback
        self.begin_ns = time.monotonic_ns()
        # The next three are written before _done is set, or before the callback is called, and read after it.
        self.response_command: RemotingCommand | None = None
        self.send_request_ok = True
        self.cause: Exception | None = None
        self._once = once
        self._done = threading.Event() if invoke_callback is None else None
        self._called = AtomicBoolean()

    def execute_invoke_callback(self) -> None:
        """Call the callback, the first time."""
        if self.invoke_callback is not None and self._called.compare_and_set(False, True):
            self.invoke_callback(self)

    def release(self) -> None:
        """Give the permit of the call back, the first time."""
        if self._once is not None:
            self._once.release()

    @property
    def is_timeout(self) -> bool:
        """True when the time of the call is over."""
        return time.monotonic_ns() - self.begin_ns > self.timeout_ms * 1_000_000

    def wait_response(self, timeout_ms: float) -> RemotingCommand | None:
        """The response; None when it does not come in time, or can't come."""
        if self._done is not None:
            self._done.wait(timeout_ms / 1000)
        return self.response_command

    def put_response(self, response: RemotingCommand | None) -> None:
        """End the wait."""
        self.response_command = response
        if self._done is not None:
            self._done.set()

    def __repr__(self) -> str:
        return (f"ResponseFuture [responseCommand={self.response_command}, sendRequestOK={self.send_request_ok}, "
                f"cause={self.cause}, opaque={self.opaque}, processChannel={self.process_channel}, "
                f"timeoutMillis={self.timeout_ms}]")
