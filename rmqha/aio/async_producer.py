"""The asyncio producer, and the helpers that it shares with the asyncio consumer.

- `AsyncLife`, `start`, `shutdown`: start and close a blocking client from a coroutine.
- `LoopInbox`: passes items from threads to an event loop.
- `AsyncProducer`: sends messages from an event loop.
"""
import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from rmqha.client.exception import MQClientException
from rmqha.client.impl.default_mq_producer_impl import MessageQueueSelector
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.life import Lifecycle
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.producer_config import ProducerSettings
from rmqha.client.producer.request_response_future import RequestCallback
from rmqha.client.results import SendCallback, SendResult
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook


class AsyncLife:
    """Base class for `async with`: started and closed in one event loop. A subclass implements `start` and `close`."""

    # The event loop that started this object. Set by start, and kept after close
    _loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def from_context(cls, group: str, context: str | None = None, **settings: Any) -> Self:
        """Return a client of a group for the cluster of a context; see Lifecycle.from_context."""
        from rmqha.client.contexts import client_from_context  # most clients are given an address

        return client_from_context(cls, group, context, settings)

    def _check_home(self, client: Lifecycle, attribute: str) -> None:
        """Raise MQClientException in a forked process, or in an event loop other than the one that started this object.

        `client` is the wrapped client, and `attribute` is the name of the attribute that has it.
        """
        client.check_process()
        if self._loop is None or asyncio.get_running_loop() is self._loop:
            return
        name = type(self).__name__
        if self._loop.is_closed():
            cure = f"that loop is closed: shut down with `await asyncio.to_thread(x.{attribute}.shutdown)`, and"
        else:
            cure = "use and close it in that loop, or"
        raise MQClientException(
            f"this {name} belongs to the event loop that started it, and can't be used in another: {cure} start one in "
            "this loop (with pytest-asyncio, give the fixture and its tests the same loop_scope)")

    async def start(self) -> None:
        """Start."""
        raise NotImplementedError

    async def close(self) -> None:
        """Shut down. Idempotent."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()


async def start(client: Lifecycle) -> None:
    """Start `client` in a thread. Shut it down again if the start fails or the caller is cancelled meanwhile."""
    starting = asyncio.ensure_future(asyncio.to_thread(client.start))
    try:
        await asyncio.shield(starting)
    except BaseException:
        await asyncio.wait([starting])
        await shutdown(client)
        raise


async def shutdown(client: Lifecycle) -> None:
    """Shut `client` down in a thread. Wait until that is done, even if the caller is cancelled meanwhile."""
    ending = asyncio.ensure_future(asyncio.to_thread(client.shutdown))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise


log = logging.getLogger("RocketmqClient")

_T = TypeVar("_T")


class LoopInbox(Generic[_T]):
    """A queue from threads to an event loop: any thread may `put`, and `take` is called in the loop, in order.

    Items that are put before the loop has run wake it only once, because each wake-up is a system call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[_T], None]) -> None:
        self._loop = loop
        self._take = take
        self._lock = threading.Lock()
        self._items: list[_T] = []  # guarded by _lock
        # True if the loop was woken and will take the items; guarded by _lock
        self._is_told = False

    def put(self, item: _T) -> None:
        """Pass `item` to the loop; it is discarded if the loop is closed."""
        with self._lock:
            self._items.append(item)
            if self._is_told:
                return
            self._is_told = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError as error:
            log.debug("the event loop is closed, discard %s: %s", item, error)

    def _deliver(self) -> None:
        with self._lock:
            items, self._items = self._items, []
            self._is_told = False
        for item in items:
            self._take(item)


# More than one, so that a thread that waits for a connection to a dead broker does not block the other sends.
SENDING_THREADS = 4

_Ended = tuple["asyncio.Future[Any]", Any, BaseException | None]
"""A future with its result or its exception."""


class AsyncProducer(AsyncLife):
    """A producer that sends messages to the masters of a cluster, with many sends in flight.

        async with AsyncProducer("orders", "127.0.0.1:9876") as producer:
            result = await producer.send(Message("orders", b"17 apples"))
            results = await asyncio.gather(*(producer.send(message) for message in messages))

    `max_in_flight`: the maximum number of sends without an answer. The next send waits until one of them has ended; its
    own timeout starts after that. The message of a cancelled send may still be stored. Leaving the block waits for all
    sends in flight. The settings are those of DefaultMQProducer; `producer` is the wrapped one. Sends raise the same
    exceptions: MQClientException, MQBrokerException, RemotingException. Use it only in the event loop that started it.
    """

    def __init__(
        self,
        producer_group: str,
        namesrv_addr: str | None = None,
        *,
        max_in_flight: int = 1_000,
        rpc_hook: "RPCHook | None" = None,
        client_manager: MQClientManager | None = None,
        namespace: str | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be 1 or more, not {max_in_flight}")
        self.producer = DefaultMQProducer(producer_group, namesrv_addr, rpc_hook, client_manager, namespace,
                                          enable_msg_trace, customized_trace_topic, **settings)
        self._max_in_flight = max_in_flight
        self._permits = asyncio.Semaphore(max_in_flight)
        self._pool = NamedThreadPool(f"AsyncSendThread_{producer_group[:100]}_", SENDING_THREADS)
        self._inbox: LoopInbox[_Ended] | None = None  # from start to close
        self._is_closed = False

    async def start(self) -> None:
        """Connect. MQClientException for a bad group name or a second start.

        The first send, not the start, contacts a name server.
        """
        self._check_home(self.producer, "producer")
        if self._loop is not None:
            raise MQClientException(f"{self._state()}, maybe started once")
        self._loop = asyncio.get_running_loop()
        try:
            await start(self.producer)
        except BaseException:
            self._loop = None
            raise
        self._inbox = LoopInbox(self._loop, self._end)

    async def close(self) -> None:
        """Wait for the answers to all sends, and disconnect. Idempotent; a no-op in a forked process.

        MQClientException in an event loop other than that of `start`.
        """
        if self.producer.is_of_another_process() or self._is_closed:
            return
        self._check_home(self.producer, "producer")
        if self._inbox is not None:
            self._inbox = None
            for _ in range(self._max_in_flight):
                await self._permits.acquire()
        await shutdown(self.producer)
        await asyncio.to_thread(self._pool.shutdown)
        self._is_closed = True

    async def send(
        self,
        msg: Message,
        timeout_ms: float | None = None,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: Any = None,
    ) -> SendResult:
        """Send and wait for the answer: to any queue, with retries at other brokers, or to the given or selected queue.
        """
        def begin(send_callback: SendCallback, left_ms: float) -> None:
            chosen = queue if selector is None else \
                self.producer.default_mq_producer_impl.select_queue(msg, selector, arg)
            self.producer.send_async(msg, send_callback, left_ms, chosen)
        return await self._sent(begin, timeout_ms)

    async def send_batch(
        self, msgs: Iterable[Message], timeout_ms: float | None = None, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic in one request: all of them are stored, or none."""
        batch = list(msgs)

        def begin(send_callback: SendCallback, left_ms: float) -> None:
            self.producer.send_batch_async(batch, send_callback, left_ms, queue)
        return await self._sent(begin, timeout_ms)

    async def send_oneway(self, msg: Message, queue: MessageQueue | None = None) -> None:
        """Send without an answer; return once the message was sent."""
        def begin(done: Callable[[None], None], _failed: Callable[[Exception], None]) -> None:
            self.producer.send_oneway(msg, queue)
            done(None)
        await self._run(begin)

    async def request(self, msg: Message, timeout_ms: float, queue: MessageQueue | None = None) -> MessageExt:
        """Send `msg` and wait for the reply; RequestTimeoutException if it does not arrive in time."""
        def begin(done: Callable[[MessageExt], None], failed: Callable[[Exception], None]) -> None:
            self.producer.request_async(msg, RequestCallback(done, failed), timeout_ms, queue)
        return await self._run(begin)

    async def _sent(self, begin: Callable[[SendCallback, float], None], timeout_ms: float | None) -> SendResult:
        time_ms = self.producer.send_msg_timeout if timeout_ms is None else timeout_ms
        begin_ns: list[int] = []

        def begin_in_time(done: Callable[[SendResult], None], failed: Callable[[Exception], None]) -> None:
            begin(SendCallback(done, failed), time_ms - (time.monotonic_ns() - begin_ns[0]) / 1e6)
        return await self._run(begin_in_time, begin_ns)

    async def _run(
        self, begin: Callable[[Callable[[_T], None], Callable[[Exception], None]], None],
        begin_ns: list[int] | None = None,
    ) -> _T:
        """Have a thread call `begin`, and wait for the result.

        `begin` ensures that exactly one of its two arguments is called, once. Only that releases the permit. The
        cancellation of the caller does not, because the send is still in flight.
        """
        self._running()
        await self._permits.acquire()
        inbox = None
        try:
            inbox = self._running()
            future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
            if begin_ns is not None:
                begin_ns.append(time.monotonic_ns())
            self._pool.submit(self._begin, begin, future, inbox)
        except (MQClientException, RejectedExecutionError) as error:
            self._permits.release()
            raise error if inbox is None else MQClientException(f"no thread to send with: {error}") from error
        return await future

    def _running(self) -> LoopInbox[_Ended]:
        self._check_home(self.producer, "producer")
        if self._inbox is None:
            raise MQClientException(self._state())
        return self._inbox

    def _state(self) -> str:
        return f"The producer service state not OK, {self.producer.default_mq_producer_impl.service_state.name}"

    @staticmethod
    def _begin(
        begin: Callable[[Callable[[_T], None], Callable[[Exception], None]], None], future: "asyncio.Future[_T]",
        inbox: LoopInbox[_Ended],
    ) -> None:
        """Start a send, on a sending thread."""
        def done(result: _T) -> None:
            inbox.put((future, result, None))

        def failed(error: BaseException) -> None:
            inbox.put((future, None, error))
        try:
            begin(done, failed)
        except Exception as error:
            # The caller waits, so it must get any error
            failed(error)

    def _end(self, ended: _Ended) -> None:
        """Complete the future of a send, in the loop."""
        future, result, error = ended
        self._permits.release()
        if future.done():  # cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
