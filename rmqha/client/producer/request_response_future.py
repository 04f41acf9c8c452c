"""Requests that wait for their replies, and functions that choose the queue of a message."""
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

from rmqha.client.life import CauseLog
from rmqha.common.futures import AtomicBoolean
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue


class RequestCallback:
    """A callback for the reply to a request.

    Exactly one of its two methods is called, on a thread of the client. It must return quickly.

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
        """Handle the reply."""
        if self._on_success is not None:
            self._on_success(message)

    def on_exception(self, error: Exception) -> None:
        """Handle a request that was not sent or got no reply in time."""
        if self._on_exception is not None:
            self._on_exception(error)


class RequestResponseFuture:
    """A pending request. It ends once: by the reply, a failed send, or the timer, whichever is first.

    Java: org.apache.rocketmq.client.producer.RequestResponseFuture (4.9.8)
    """

    def __init__(self, correlation_id: str, timeout_ms: float, request_callback: RequestCallback | None,
                 causes: CauseLog | None = None) -> None:
        self._causes = causes  # logs the callback's exceptions
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        self.request_callback = request_callback
        self.response_msg: MessageExt | None = None  # written before _done is set
        self.cause: Exception | None = None  # written before _done is set
        self._done = threading.Event()
        self._ended = AtomicBoolean()

    def put_response_message(self, message: MessageExt) -> None:
        """End the request with its reply."""
        if self._ended.compare_and_set(False, True):
            self.response_msg = message
            self._done.set()
            if self.request_callback is not None:
                self._call(self.request_callback.on_success, message)

    def fail(self, cause: Exception) -> None:
        """End the request without a reply."""
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
        """Wait for the reply and return it; None if it does not arrive in time, or the request failed."""
        self._done.wait(timeout_ms / 1000)
        return self.response_msg


log = logging.getLogger("RocketmqClient")


class RequestFutureHolder:
    """The pending requests by correlation id. Any thread may use the dict, with single operations only.

    Java: org.apache.rocketmq.client.producer.RequestFutureHolder (4.9.8)
    """

    # Differs: each client instance, to which replies are sent, has its own table of pending requests; the original has
    # one per process
    def __init__(self) -> None:
        self.request_future_table: dict[str, RequestResponseFuture] = {}

    def fail_all(self, cause: Exception) -> None:
        """Fail all pending requests, because no more replies can arrive."""
        # Differs: when a client is shut down, the callbacks of its pending requests get an error; the original never
        # calls them
        while self.request_future_table:
            try:
                _correlation_id, future = self.request_future_table.popitem()
            except KeyError:
                # Its reply or its timer has removed the last request in the meantime
                return
            future.fail(cause)

    def process_reply_message(self, message: MessageExt) -> None:
        """Pass a reply to the request that waits for it."""
        correlation_id = message.get_user_property(message_const.PROPERTY_CORRELATION_ID)
        future = self.request_future_table.pop(correlation_id or "", None)
        if future is None:
            log.warning("receive reply message, but not matched any request, CorrelationId: %s , reply from host: %s",
                        correlation_id, message.born_host_string)
            return
        future.put_response_message(message)


def select_message_queue_by_hash(mqs: list[MessageQueue], msg: Message, arg: Any) -> MessageQueue:
    """Return the queue that `arg` hashes to, the same as in Java for strings and 32-bit integers.

        producer.send(message, selector=select_message_queue_by_hash, arg="order-17")

    Java: org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash (4.9.8)
    """
    hash_code = arg if isinstance(arg, int) else string_hash_code(str(arg))
    return mqs[abs(hash_code) % len(mqs)]


def select_message_queue_by_random(mqs: list[MessageQueue], msg: Message, arg: Any) -> MessageQueue:
    """Return a random queue.

    Java: org.apache.rocketmq.client.producer.selector.SelectMessageQueueByRandom (4.9.8)
    """
    return random.choice(mqs)
