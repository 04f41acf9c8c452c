"""The asyncio consumer, which receives messages in an event loop."""
import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Unpack

from rmqha.aio import async_producer
from rmqha.aio.async_producer import LoopInbox
from rmqha.client.consumer.consumer_config import PushConsumerSettings
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus, MessageSelector
from rmqha.client.exception import MQClientException
from rmqha.client.impl.consumer.consume_message_concurrently_service import Delivery, MessageListenerDeferred
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.common.message.message import Message, MessageClientExt, MessageExt

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook

Topics = str | Iterable[str] | Mapping[str, str | MessageSelector]
"""A topic, several topics, or a mapping of topics to tags ("paid || refunded") or a MessageSelector."""

_COPIED = (*Message.__slots__, *(name for name in MessageExt.__slots__ if name != "msg_id"), "offset_msg_id")
_values_of = attrgetter(*_COPIED)


class AsyncMessage(MessageClientExt):
    """A received message to be settled by `ack` or `nack`; only the first call has an effect."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        for name, value in zip(_COPIED, _values_of(delivery.message)):
            setattr(self, name, value)
        self._delivery = delivery

    def ack(self) -> bool:
        """Acknowledge the message: it is consumed. Return False if the message was settled before."""
        return self._delivery.end(ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

    def nack(self, delay_level: int = 0) -> bool:
        """Have the message delivered again. Return False if the message was settled before.

        `delay_level`: 0 lets the broker choose the delay (10 s, 30 s, 1 min ..., longer each time); a positive number
        is that level of `messageDelayLevel`; -1 sends the message to the dead letters at once.
        """
        return self._delivery.end(ConsumeConcurrentlyStatus.RECONSUME_LATER, delay_level)

    @property
    def is_settled(self) -> bool:
        """True if `ack` or `nack` was called."""
        return self._delivery.is_ended


class AsyncConsumer(async_producer.AsyncLife):
    """A consumer that receives messages with `async for`. The consumers of a group share the queues.

        async with AsyncConsumer("billing", "127.0.0.1:9876", topics={"orders": "paid || refunded"}) as consumer:
            async for message in consumer:
                await book(message.body)

    A message counts as consumed when the loop asks for the next one. If the loop ends with `break` or an exception, its
    current message is delivered again, unless `message.ack()` was called. `message.nack()` has a message delivered
    again after a delay, at most 16 times. With `auto_ack=False` only `ack` and `nack` settle messages, in any order and
    from any task. Each message is delivered at least once; the messages of a queue arrive in order, except those that
    are delivered again. Several loops may share one consumer. `stop` ends the loops when they ask for the next message.

    Up to `pull_threshold_for_queue` messages of each queue are pulled ahead. When the consumer closes, all messages
    that were not settled go to the group's next consumer at once. The settings are those of DefaultMQPushConsumer;
    `consumer` is the wrapped one. Use it only in the event loop that started it.
    """

    def __init__(
        self,
        consumer_group: str,
        namesrv_addr: str | None = None,
        topics: Topics = (),
        *,
        auto_ack: bool = True,
        rpc_hook: "RPCHook | None" = None,
        client_manager: MQClientManager | None = None,
        namespace: str | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
        **settings: Unpack[PushConsumerSettings],
    ) -> None:
        self.consumer = DefaultMQPushConsumer(consumer_group, namesrv_addr, None, rpc_hook, client_manager, namespace,
                                              enable_msg_trace, customized_trace_topic, **settings)
        self.auto_ack = auto_ack
        self._ready: deque[Delivery] = deque()  # owned by the loop
        # Set when messages are ready or the loops are to end
        self._changed = asyncio.Event()
        self._is_started = False
        self._is_stopped = False
        self._is_closed = False
        for topic, wanted in _selectors(topics):
            self.consumer.subscribe(topic, wanted.expression, wanted.type)

    def subscribe(self, topic: str, sub_expression: str | MessageSelector = "*") -> None:
        """Receive a topic: all messages, some tags, or those that a MessageSelector selects. Call this before `start`.
        """
        self.consumer.check_process()
        if self._is_started:
            raise MQClientException("subscribe before start: later it would ask the brokers and block the event loop")
        wanted = sub_expression if isinstance(sub_expression, MessageSelector) else MessageSelector(sub_expression)
        self.consumer.subscribe(topic, wanted.expression, wanted.type)

    async def start(self) -> None:
        """Start receiving. MQClientException for bad settings, a missing subscription or a second start."""
        self._check_home(self.consumer, "consumer")
        if self._is_started:
            raise MQClientException("The consumer service state not OK, maybe started once")
        if not self.consumer.default_mq_push_consumer_impl.rebalance_impl.subscription_inner:
            raise MQClientException("subscription is null: pass topics, or call subscribe, before start")
        inbox: LoopInbox[Delivery] = LoopInbox(asyncio.get_running_loop(), self._take)
        self.consumer.register_message_listener(_Listener(inbox))
        await async_producer.start(self.consumer)
        self._loop = asyncio.get_running_loop()
        self._is_started = True

    def stop(self) -> None:
        """End the loops when they ask for the next message. Call this in the event loop, for example in a signal
        handler of it.

        MQClientException in an event loop other than that of `start`.
        """
        if self._is_in_a_loop():
            self._check_home(self.consumer, "consumer")
        self._is_stopped = True
        self._changed.set()

    async def close(self) -> None:
        """Stop, store the offsets, and disconnect. Idempotent; a no-op in a forked process.

        MQClientException in an event loop other than that of `start`.
        """
        if self.consumer.is_of_another_process() or self._is_closed:
            return
        self.stop()
        await async_producer.shutdown(self.consumer)
        self._ready.clear()
        self._is_closed = True

    def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        self._check_started()
        return _Messages(self, self._next, self.auto_ack)

    async def receive(self) -> AsyncMessage:
        """Return the next message, to be settled by `ack` or `nack`. MQClientException once the consumer has stopped.

        It may be cancelled (for example by `asyncio.wait_for`) without losing a message.
        """
        self._check_started()
        message = await self._next()
        if message is None:
            raise MQClientException("The consumer has stopped.")
        return message

    def _check_started(self) -> None:
        self.consumer.check_process()
        if not self._is_started:
            raise MQClientException("The consumer not running, please start it first.")

    def check_home(self) -> None:
        """Raise MQClientException in a forked process, or in an event loop other than that of `start`."""
        self._check_home(self.consumer, "consumer")

    @staticmethod
    def _is_in_a_loop() -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # no loop is running on this thread
            return False
        return True

    async def _next(self) -> AsyncMessage | None:
        self.check_home()
        while not self._is_stopped:
            while self._ready:
                delivery = self._ready.popleft()
                if not delivery.is_dropped:
                    delivery.begin()
                    return AsyncMessage(delivery)
            self._changed.clear()
            await self._changed.wait()
        return None

    def _take(self, delivery: Delivery) -> None:
        """Queue a delivery, in the loop."""
        self._ready.append(delivery)
        self._changed.set()


class _Messages(AsyncIterator[AsyncMessage]):
    """An iterator over a consumer's messages, for one loop."""

    def __init__(
        self, consumer: AsyncConsumer, next_message: Callable[[], Awaitable[AsyncMessage | None]], auto_ack: bool
    ) -> None:
        self._consumer = consumer
        self._next_message = next_message
        self._auto_ack = auto_ack
        self._last: AsyncMessage | None = None  # the loop's current message

    async def __anext__(self) -> AsyncMessage:
        # Must fail before a message is acknowledged
        self._consumer.check_home()
        last, self._last = self._last, None
        if last is not None and self._auto_ack:
            last.ack()
        message = await self._next_message()
        if message is None:
            raise StopAsyncIteration
        self._last = message
        return message


class _Listener(MessageListenerDeferred):
    """A listener that passes deliveries to the event loop."""

    def __init__(self, inbox: LoopInbox[Delivery]) -> None:
        self._inbox = inbox

    def take(self, delivery: Delivery) -> None:
        self._inbox.put(delivery)


def _selectors(topics: Topics) -> list[tuple[str, MessageSelector]]:
    if isinstance(topics, str):
        topics = (topics,)
    pairs = topics.items() if isinstance(topics, Mapping) else ((topic, "*") for topic in topics)
    return [(topic, wanted if isinstance(wanted, MessageSelector) else MessageSelector(wanted))
            for topic, wanted in pairs]
