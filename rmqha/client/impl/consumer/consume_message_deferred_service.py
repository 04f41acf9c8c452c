"""Messages whose consumer says later what became of them; no thread waits meanwhile.

    pull callback --Delivery of 1 message--> MessageListenerDeferred.take
    who has it, on any thread: delivery.begin() ... delivery.end(status)
        CONSUME_SUCCESS:  offset up to the lowest message still here --> offset store, at once
        RECONSUME_LATER:  ConsumeMessageThread_<group>_<n>: back to the broker (code 36)
"""
import threading
import time
from typing import TYPE_CHECKING

from rmqha.client.consumer.listener.message_listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    MessageListenerConcurrently,
)
from rmqha.client.hook.consume_message_hook import ConsumeMessageContext
from rmqha.client.impl.consumer.consume_message_concurrently_service import (
    ConsumeMessageConcurrentlyService,
    ConsumeRequest,
)
from rmqha.client.impl.consumer.consumer_hooks import return_type
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.common import util_all
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.threads import RejectedExecutionError

if TYPE_CHECKING:
    from rmqha.client.impl.consumer.default_mq_push_consumer_impl import DefaultMQPushConsumerImpl


class MessageListenerDeferred(MessageListenerConcurrently):
    """Is given messages, and says later what became of each."""

    def take(self, delivery: "Delivery") -> None:
        """Keep `delivery` and return quickly; called by the threads that pull."""
        raise NotImplementedError

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        """Asked for by `mqadmin consumeMessage` alone, which wants to hear at once what became of it."""
        raise NotImplementedError("this consumer says later what became of a message; it can't consume one directly")


class ConsumeMessageDeferredService(ConsumeMessageConcurrentlyService):
    """Consumes each message on its own, in the order of the pulls; its threads only send back what failed.

    What is not ended when the consumer shuts down stays unconsumed: the group's next consumer gets it at once.
    """

    def __init__(self, consumer_impl: "DefaultMQPushConsumerImpl", listener: MessageListenerDeferred) -> None:
        super().__init__(consumer_impl, listener)
        self._deferred_listener = listener

    def submit_consume_request(
        self, msgs: list[MessageExt], process_queue: ProcessQueue, message_queue: MessageQueue,
        dispatch_to_consume: bool = True,
    ) -> None:
        """Hand each message on."""
        self._consumer_impl.reset_retry_and_namespace(msgs, self._consumer_group)
        for msg in msgs:
            self._submit(ConsumeRequest(self, [msg], process_queue, message_queue))

    def _submit(self, request: ConsumeRequest) -> None:
        self._deferred_listener.take(Delivery(self, request))

    def check_process(self) -> None:
        """Raise MQClientException in a process that was forked after the consumer's start."""
        self._consumer.check_process()

    def begin(self, request: ConsumeRequest) -> ConsumeMessageContext | None:
        """Somebody has the message now; for `end`."""
        impl, context = self._consumer_impl, None
        if impl.hooks.consume_message_hook_list:
            context = impl.hooks.before(self._consumer, self._consumer_group, request.msgs, request.message_queue)
        request.process_queue.consume_begins(request.msgs)
        now = str(util_all.current_time_millis())
        for msg in request.msgs:
            msg.properties[message_const.PROPERTY_CONSUME_START_TIMESTAMP] = now
        return context

    def end(
        self, request: ConsumeRequest, context: ConsumeMessageContext | None, status: ConsumeConcurrentlyStatus,
        begin_ns: int, delay_level: int,
    ) -> None:
        """See to the result; sending back, which asks a broker, is a thread's work."""
        if self._stopping or request.process_queue.dropped:
            return  # another consumer gets it, or has it already
        self._consumer_impl.consumer_stats_manager.inc_consume_rt(
            self._consumer_group, request.message_queue.topic, (time.monotonic_ns() - begin_ns) // 1_000_000)
        is_success = status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        if context is not None:
            kind = return_type(status, ConsumeConcurrentlyStatus.RECONSUME_LATER, False, begin_ns,
                               self._consumer.consume_timeout)
            self._consumer_impl.hooks.after(context, self._consumer, status.name, is_success, kind)
        result = ConsumeConcurrentlyContext(request.message_queue, delay_level)
        if is_success:
            self.process_consume_result(status, result, request)
            return
        try:
            self._consume_executor.submit(self.process_consume_result, status, result, request)
        except RejectedExecutionError:
            if not self._stopping:
                raise


class Delivery:
    """One message in the hands of a consumer. `end` counts once: what comes after the first is without effect."""

    __slots__ = ("_service", "_request", "_context", "_begin_ns", "_lock", "_is_ended")

    def __init__(self, service: ConsumeMessageDeferredService, request: ConsumeRequest) -> None:
        self._service = service
        self._request = request
        self._context: ConsumeMessageContext | None = None
        self._begin_ns = 0
        self._lock = threading.Lock()
        self._is_ended = False  # guarded by _lock

    @property
    def message(self) -> MessageExt:
        """What was delivered."""
        return self._request.msgs[0]

    @property
    def is_dropped(self) -> bool:
        """True when the queue went to another consumer, which gets the message too."""
        return self._request.process_queue.dropped

    @property
    def is_ended(self) -> bool:
        """Whether it was said what became of the message."""
        return self._is_ended

    def begin(self) -> None:
        """The message is looked at from now on: what takes longer than `consume_timeout` comes again."""
        self._begin_ns = time.monotonic_ns()
        self._context = self._service.begin(self._request)

    def end(self, status: ConsumeConcurrentlyStatus, delay_level: int = 0) -> bool:
        """What became of the message; does not block. False when it was said before.

        `delay_level`: of RECONSUME_LATER, see ConsumeConcurrentlyContext.
        """
        self._service.check_process()
        with self._lock:
            if self._is_ended:
                return False
            self._is_ended = True
        self._service.end(self._request, self._context, status, self._begin_ns, delay_level)
        return True
