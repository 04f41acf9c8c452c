"""The interfaces that users of a connection implement, and the objects that are passed to them.

- `RequestProcessor`, `ExpressLane`: serve requests. `RequestTask` is a request that waits to be served.
- `RequestRelay`: takes requests that another server has to serve.
- `RPCHook`: sees requests and responses before and after a call.
- `ChannelEventListener`: is notified when connections open and close.
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
    """Serves the requests with the codes that it is registered for.

    Java: org.apache.rocketmq.remoting.netty.NettyRequestProcessor (4.9.8)
    """

    def process_request(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Return the response, or a future of it. None: no response, or the processor writes it itself."""

    def reject_request(self) -> bool:
        """Return whether requests are to be refused with SYSTEM_BUSY."""


class ExpressLane(Protocol):
    """A fast path for common requests. All other frames take the general path. Runs on the IO thread."""

    def serve(self, channel: Channel, data: memoryview, position: int) -> int:
        """Serve the complete frames in `data` from `position` on, up to the first that has to take the general way.

        Return the position after the served frames. `data` is valid until it returns.
        """


class RequestRelay(Protocol):
    """Takes requests that another server has to serve. All methods are called by the server; any thread."""

    def take(self, channel: Channel, command: RemotingCommand) -> bool:
        """Return whether the relay takes care of a request, so that it is not served here."""

    def take_refused(self, channel: Channel, command: RemotingCommand, response: RemotingCommand) -> bool:
        """Return whether the relay takes care of a request that was refused here; then `response` is not sent."""

    def closed(self, channel: Channel) -> None:
        """Handle the end of a client's connection."""


class RequestTask:
    """A request in a pool's queue, called once by the pool.

    To cancel it, a cleaner of the queue sets `stop_run` and answers with `return_response`.

    Java: org.apache.rocketmq.remoting.netty.RequestTask (4.9.8)
    """

    __slots__ = ("runnable", "create_timestamp", "channel", "request", "stop_run", "size")

    def __init__(self, runnable: Callable[[], None], channel: Channel, request: RemotingCommand) -> None:
        self.runnable = runnable
        self.create_timestamp = current_time_millis()
        self.channel = channel
        self.request = request
        self.size = request.header_length + len(request.body or b"")  # bytes
        # Set by a cleaner before the pool takes the task.
        self.stop_run = False

    def __call__(self) -> None:
        """Serve the request, unless a cleaner has answered it."""
        if not self.stop_run:
            self.runnable()

    def return_response(self, code: int, remark: str) -> None:
        """Answer the request in place of its processor."""
        response = RemotingCommand.create_response_command(code, remark)
        response.opaque = self.request.opaque
        self.channel.write(response)


class RPCHook(Protocol):
    """Called around each request: by the server around the processor, by the client around the call.

    Java: org.apache.rocketmq.remoting.RPCHook (4.9.8)
    """

    def do_before_request(self, remote_addr: str, request: RemotingCommand) -> None:
        """See a request before it is served or sent. An exception raised here becomes the answer."""

    def do_after_response(self, remote_addr: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """See a request after it was served or answered. `response`: None without one."""


class ChannelEventListener:
    """A listener for connection events; override what is of interest.

    It is called on the NettyEventExecutor thread, in the order of the events.

    Java: org.apache.rocketmq.remoting.ChannelEventListener (4.9.8)
    """

    def on_channel_connect(self, remote_addr: str, channel: "Channel") -> None:
        """Handle a new connection."""

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """Handle the end of a connection."""

    def on_channel_exception(self, remote_addr: str, channel: "Channel") -> None:
        """Handle a failure in serving a connection, which is being closed."""

    def on_channel_idle(self, remote_addr: str, channel: "Channel") -> None:
        """Handle a connection that was idle for too long, and is being closed."""


class SemaphoreReleaseOnlyOnce:
    """A permit of a call, released once: several parties may end the call, and the first returns the permit.

    Java: org.apache.rocketmq.remoting.common.SemaphoreReleaseOnlyOnce (4.9.8)
    """

    __slots__ = ("semaphore", "_released")

    def __init__(self, semaphore: threading.Semaphore) -> None:
        self.semaphore = semaphore
        self._released = AtomicBoolean()

    def release(self) -> None:
        """Return the permit, the first time it is called."""
        if self._released.compare_and_set(False, True):
            self.semaphore.release()


class ResponseFuture:
    """A call that waits for its response.

    It is completed by the reading thread, by a failed write, by the end of the connection, or by the scan for
    time-outs. The callback is called once. It finds the response in `response_command`; without one,
    `send_request_ok` and `is_timeout` show why.

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
        # The next three are written before _done is set or the callback is called, and read after that.
        self.response_command: RemotingCommand | None = None
        self.send_request_ok = True
        self.cause: Exception | None = None
        self._once = once
        self._done = threading.Event() if invoke_callback is None else None
        self._called = AtomicBoolean()

    def execute_invoke_callback(self) -> None:
        """Call the callback, but only at the first call of this method."""
        if self.invoke_callback is not None and self._called.compare_and_set(False, True):
            self.invoke_callback(self)

    def release(self) -> None:
        """Return the call's permit, but only at the first call of this method."""
        if self._once is not None:
            self._once.release()

    @property
    def is_timeout(self) -> bool:
        """True once the call has timed out."""
        return time.monotonic_ns() - self.begin_ns > self.timeout_ms * 1_000_000

    def wait_response(self, timeout_ms: float) -> RemotingCommand | None:
        """Wait for the response and return it; None if it does not arrive in time, or no longer can."""
        if self._done is not None:
            self._done.wait(timeout_ms / 1000)
        return self.response_command

    def put_response(self, response: RemotingCommand | None) -> None:
        """Set the response and end the wait. None: there will be no response."""
        self.response_command = response
        if self._done is not None:
            self._done.set()

    def __repr__(self) -> str:
        return (f"ResponseFuture [responseCommand={self.response_command}, sendRequestOK={self.send_request_ok}, "
                f"cause={self.cause}, opaque={self.opaque}, processChannel={self.process_channel}, "
                f"timeoutMillis={self.timeout_ms}]")
