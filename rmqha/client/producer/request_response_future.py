"""A request that waits for its reply."""
import threading
from collections.abc import Callable
from typing import Any

from rmqha.client.common.cause_log import CauseLog
from rmqha.client.producer.request_callback import RequestCallback
from rmqha.common.atomics import AtomicBoolean
from rmqha.common.message.message_ext import MessageExt


class RequestResponseFuture:
    """Ended once: by the reply, by a failed send, or by the timer; only the first counts.

    Java: org.apache.rocketmq.client.producer.RequestResponseFuture (4.9.8)
    """

    def __init__(self, correlation_id: str, timeout_ms: float, request_callback: RequestCallback | None,
                 causes: CauseLog | None = None) -> None:
        self._causes = causes  # told of what the callback raises
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        self.request_callback = request_callback
        self.response_msg: MessageExt | None = None  # written before _done is set
        self.cause: Exception | None = None  # written before _done is set
        self._done = threading.Event()
        self._ended = AtomicBoolean()

    def put_response_message(self, message: MessageExt) -> None:
        """The reply."""
        if self._ended.compare_and_set(False, True):
            self.response_msg = message
            self._done.set()
            if self.request_callback is not None:
                self._call(self.request_callback.on_success, message)

    def fail(self, cause: Exception) -> None:
        """There will be no reply."""
        if self._ended.compare_and_set(False, True):
            self.cause = cause
            self._done.set()
            if self.request_callback is not None:
                self._call(self.request_callback.on_exception, cause)

    def _call(self, callback: Callable[[Any], object], value: object) -> None:
        try:
            callback(value)
        except BaseException as error:  # the user's code
            if self._causes is None:
                raise
            self._causes.raised(error, "request callback exception")

    def wait_response_message(self, timeout_ms: float) -> MessageExt | None:
        """The reply; None when there is none in time, or can be none."""
        self._done.wait(timeout_ms / 1000)
        return self.response_msg
