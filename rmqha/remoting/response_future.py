"""A call that waits for its response."""
import threading
import time
from collections.abc import Callable

from rmqha.common.futures import AtomicBoolean
from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand


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
