"""Consume services that deliver pulled messages to a listener in parallel, and process the results.

`ConsumeMessageService` is the base that they share with the orderly service. `ConsumeMessageConcurrentlyService` calls
the listener on its own threads; 15 minutes is the default of `consume_timeout`:

    pull callback --ConsumeRequest of 1 or more messages--> ConsumeMessageThread_<group>_<n> --> listener
        success: the lowest offset that is still cached --> offset store
        later:   back to the broker (code 36); if that fails: consumed again here 5 s later, by
                 ConsumeMessageScheduledThread
    CleanExpireMsgScheduledThread: sends messages back to the broker that a listener has had for over 15 minutes

With `ConsumeMessageDeferredService` the consumer reports the result later, without a waiting thread:

    pull callback --Delivery of 1 message--> MessageListenerDeferred.take
    its holder, on any thread: delivery.begin() ... delivery.end(status)
        CONSUME_SUCCESS:  the lowest offset that is still cached --> offset store, at once
        RECONSUME_LATER:  ConsumeMessageThread_<group>_<n>: back to the broker (code 36)
"""
import logging
import threading
import time
from collections.abc import Callable

from rmqha.client.consumer.consumer_config import PushConsumerConfig
from rmqha.client.consumer.listeners import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    MessageListenerConcurrently,
)
from rmqha.client.consumer.offset_stores import LocalFileOffsetStore, RemoteBrokerOffsetStore
from rmqha.client.consumer_stats_manager import ConsumerStatsManager
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.hooks import ConsumeMessageContext
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.client.impl.consumer.pulling import ConsumerHooks, return_type
from rmqha.client.impl.consumer.rebalance import RebalancePushImpl
from rmqha.client.life import CauseLog
from rmqha.common import util_all
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import CMResult, ConsumeMessageDirectlyResult
from rmqha.common.subscriptions import MessageModel
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError, ScheduledService
from rmqha.remoting.exception import RemotingException

log = logging.getLogger("RocketmqClient")

MIN_JOIN_MS = 5_000


@dataclass(frozen=True)
class Consuming:
    """The parts of a started push consumer that its consume threads use."""

    config: PushConsumerConfig
    hooks: ConsumerHooks
    stats: ConsumerStatsManager
    offset_store: RemoteBrokerOffsetStore | LocalFileOffsetStore
    rebalance: RebalancePushImpl
    reset_retry_and_namespace: Callable[[list[MessageExt], str], None]
    send_message_back: Callable[[MessageExt, int, str | None], None]  # message, delay level, broker
    send: Callable[[Message], object]  # sends a message of the library itself


class ConsumeMessageService:
    """Base class of the services whose threads call a push consumer's listener.

    Java: org.apache.rocketmq.client.impl.consumer.ConsumeMessageService (4.9.8)
    """

    def __init__(self, consuming: Consuming) -> None:
        self._config = consuming.config
        self._hooks = consuming.hooks
        self._stats = consuming.stats
        self._offset_store = consuming.offset_store
        self._rebalance = consuming.rebalance
        self._reset_retry_and_namespace = consuming.reset_retry_and_namespace
        self._consumer_group = self._config.consumer_group
        self.causes = CauseLog(log)  # errors of the listener
        # Set by shutdown; waiting requests then return at once
        self._stopping = False
        self._consume_executor = NamedThreadPool(
            f"ConsumeMessageThread_{self._consumer_group[:100]}_", self._config.consume_thread_max)
        self._scheduled_executor_service = ScheduledService("ConsumeMessageScheduledThread_1")

    def start(self) -> None:
        """Start the periodic tasks."""
        raise NotImplementedError

    def shutdown(self, await_terminate_millis: int = 0) -> None:
        """Let running listeners finish. Waiting messages stay unconsumed, for the group's next consumer."""
        # Differs: a shutdown waits at least 5 s for listeners, because Python cannot interrupt them; 4.9.8 interrupts
        # them after await_terminate_millis
        self._stopping = True
        self._scheduled_executor_service.shutdown()
        self._consume_executor.shutdown(max(await_terminate_millis, MIN_JOIN_MS))
        self.causes.log_counts(f"the listener of group {self._consumer_group}")

    def get_core_pool_size(self) -> int:
        """Return the maximum number of consume threads."""
        return self._consume_executor.max_workers

    def consume_message_directly(self, msg: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        """Pass one message to the listener now, and return its result; nothing is sent back to the broker."""
        result = ConsumeMessageDirectlyResult(order=False, autoCommit=True)
        # An old broker does not send its name
        queue = MessageQueue(msg.topic, broker_name, msg.queue_id)  # type: ignore[arg-type]
        self._reset_retry_and_namespace([msg], self._consumer_group)
        begin_ns = time.monotonic_ns()
        log.info("consumeMessageDirectly receive new message: %s", msg)
        try:
            result.consumeResult = self._consume_directly(msg, queue, result)
        except BaseException as error:  # the user's code
            result.consumeResult = CMResult.CR_THROW_EXCEPTION
            result.remark = f"{type(error).__name__}: {error}"
            log.warning("consumeMessageDirectly exception: Group: %s Msg: %s", self._consumer_group, msg, exc_info=True)
        result.spentTimeMills = (time.monotonic_ns() - begin_ns) // 1_000_000
        log.info("consumeMessageDirectly Result: %s", result)
        return result

    def _consume_directly(
        self, msg: MessageExt, queue: MessageQueue, result: ConsumeMessageDirectlyResult
    ) -> CMResult:
        """Call the listener; put the other values of its answer into `result`."""
        raise NotImplementedError

    def submit_consume_request(
        self, msgs: list[MessageExt], process_queue: ProcessQueue, message_queue: MessageQueue,
        dispatch_to_consume: bool = True,
    ) -> None:
        """Have pulled messages consumed, which are in `process_queue` already."""
        raise NotImplementedError


LATER_MS = 5_000
EXPIRED_DELAY_LEVEL = 3
EXPIRED_AT_ONCE = 16

_DIRECT_RESULT = {
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: CMResult.CR_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER: CMResult.CR_LATER,
    None: CMResult.CR_RETURN_NULL,
}


class ConsumeMessageConcurrentlyService(ConsumeMessageService):
    """Consumes messages on many threads, in any order.

    Java: org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService (4.9.8)
    """

    def __init__(self, consuming: Consuming, message_listener: MessageListenerConcurrently) -> None:
        super().__init__(consuming)
        self._send_message_back = consuming.send_message_back
        self._message_listener = message_listener
        self._clean_expire_msg_executors = ScheduledService("CleanExpireMsgScheduledThread_1")

    def start(self) -> None:
        """Start checking for messages that a listener has had for too long."""
        every_ms = self._config.consume_timeout * 60_000
        self._clean_expire_msg_executors.schedule_at_fixed_rate(self._clean_expire_msg, every_ms, every_ms)

    def shutdown(self, await_terminate_millis: int = 0) -> None:
        """Shut down, and stop checking for messages that a listener has had for too long."""
        super().shutdown(await_terminate_millis)
        self._clean_expire_msg_executors.shutdown()

    def _consume_directly(
        self, msg: MessageExt, queue: MessageQueue, result: ConsumeMessageDirectlyResult
    ) -> CMResult:
        status = self._message_listener.consume_message([msg], ConsumeConcurrentlyContext(queue))
        return _DIRECT_RESULT[status if isinstance(status, ConsumeConcurrentlyStatus) else None]

    def submit_consume_request(
        self, msgs: list[MessageExt], process_queue: ProcessQueue, message_queue: MessageQueue,
        dispatch_to_consume: bool = True,
    ) -> None:
        """Pass messages to the consume threads, at most consume_message_batch_max_size at a time."""
        batch = self._config.consume_message_batch_max_size
        for start in range(0, len(msgs), batch):
            self._submit(ConsumeRequest(self, msgs[start:start + batch], process_queue, message_queue))

    def _submit(self, request: "ConsumeRequest") -> None:
        try:
            self._consume_executor.submit(request.run)
        except RejectedExecutionError:
            if not self._stopping:
                self._scheduled_executor_service.schedule(lambda: self._submit(request), LATER_MS)

    def _clean_expire_msg(self) -> None:
        timeout_ms = self._config.consume_timeout * 60_000
        for process_queue in list(self._rebalance.process_queue_table.values()):
            for _ in range(EXPIRED_AT_ONCE):
                msg = process_queue.first_expired_msg(timeout_ms)
                if msg is None:
                    break
                self._send_message_back(msg, EXPIRED_DELAY_LEVEL, msg.broker_name)
                log.info("send expire msg back. topic=%s, msgId=%s, storeHost=%s, queueId=%s, queueOffset=%s",
                         msg.topic, msg.msg_id, msg.store_host, msg.queue_id, msg.queue_offset)
                process_queue.remove_message([msg])

    def consume(self, request: "ConsumeRequest") -> None:
        """Call the listener and process its result. Runs on a consume thread."""
        if self._stopping:
            return
        if request.process_queue.dropped:
            log.info("the message queue not be able to consume, because it's dropped. group=%s %s",
                     self._consumer_group, request.message_queue)
            return
        context = ConsumeConcurrentlyContext(request.message_queue)
        self._reset_retry_and_namespace(request.msgs, self._consumer_group)
        status = self._call_listener(request, context)
        if request.process_queue.dropped:
            log.warning("processQueue is dropped without process consume result. messageQueue=%s, msgs=%s",
                        request.message_queue, request.msgs)
            return
        self.process_consume_result(status, context, request)

    def _call_listener(
        self, request: "ConsumeRequest", context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        hooks, hook_context = self._hooks, None
        if hooks.consume_message_hook_list:
            hook_context = hooks.before(self._config, self._consumer_group, request.msgs, request.message_queue)
        request.process_queue.consume_begins(request.msgs)
        now = str(util_all.current_time_millis())
        for msg in request.msgs:
            msg.properties[message_const.PROPERTY_CONSUME_START_TIMESTAMP] = now
        begin_ns, status, is_exception = time.monotonic_ns(), None, False
        try:
            status = self._message_listener.consume_message(list(request.msgs), context)
            if not isinstance(status, ConsumeConcurrentlyStatus):
                self.causes.returned(
                    status, "consumeMessage return %s, not a ConsumeConcurrentlyStatus: the messages are redelivered, "
                    "Group: %s Msgs: %s MQ: %s", "null" if status is None else repr(status), self._consumer_group,
                    request.msgs, request.message_queue)
                status = None
        except BaseException as error:
            # The user's code failed; the messages are redelivered
            is_exception = True
            self.causes.raised(error, "consumeMessage exception: Group: %s Msgs: %s MQ: %s",
                               self._consumer_group, request.msgs, request.message_queue)
        self._stats.inc_consume_rt(self._consumer_group, request.message_queue.topic,
                                   (time.monotonic_ns() - begin_ns) // 1_000_000)
        later = ConsumeConcurrentlyStatus.RECONSUME_LATER
        if hook_context is not None:
            kind = return_type(status, later, is_exception, begin_ns, self._config.consume_timeout)
            hooks.after(hook_context, self._config, (status or later).name,
                        status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS, kind)
        return status or later

    def process_consume_result(
        self, status: ConsumeConcurrentlyStatus, context: ConsumeConcurrentlyContext, request: "ConsumeRequest"
    ) -> None:
        """Send failed messages back, remove the messages from the cache, and advance the offset.

        Messages that could not be sent back stay in the cache, and are consumed again here.
        """
        if not request.msgs:
            return
        succeeded = 0
        if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
            succeeded = min(context.ack_index + 1, len(request.msgs))
        failed = request.msgs[succeeded:]
        topic = request.message_queue.topic
        self._stats.inc_consume_ok_tps(self._consumer_group, topic, succeeded)
        self._stats.inc_consume_failed_tps(self._consumer_group, topic, len(failed))
        if failed and self._config.message_model is MessageModel.BROADCASTING:
            log.warning("BROADCASTING, the message consume failed, drop it, %s", failed)
        elif failed:
            self._send_back(failed, context, request)
        offset = request.process_queue.remove_message(request.msgs)
        if offset >= 0 and not request.process_queue.dropped:
            self._offset_store.update_offset(request.message_queue, offset, increase_only=True)

    def _send_back(
        self, failed: list[MessageExt], context: ConsumeConcurrentlyContext, request: "ConsumeRequest"
    ) -> None:
        not_sent = [msg for msg in failed if not self.send_message_back(msg, context)]
        if not not_sent:
            return
        for msg in not_sent:
            msg.reconsume_times += 1
        request.msgs = [msg for msg in request.msgs if msg not in not_sent]
        process_queue, message_queue = request.process_queue, request.message_queue
        self._scheduled_executor_service.schedule(
            lambda: self.submit_consume_request(not_sent, process_queue, message_queue), LATER_MS)

    def send_message_back(self, msg: MessageExt, context: ConsumeConcurrentlyContext) -> bool:
        """Have the broker deliver the message again; return False if the request failed."""
        try:
            self._send_message_back(
                msg, context.delay_level_when_next_consume, context.message_queue.brokerName)
            return True
        except (MQClientException, MQBrokerException, RemotingException):
            log.exception("sendMessageBack exception, group: %s msg: %s", self._consumer_group, msg)
            return False


class ConsumeRequest:
    """Messages of one queue for one call of the listener.

    Java: org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService$ConsumeRequest (4.9.8)
    """

    __slots__ = ("_service", "msgs", "process_queue", "message_queue")

    def __init__(
        self,
        service: ConsumeMessageConcurrentlyService,
        msgs: list[MessageExt],
        process_queue: ProcessQueue,
        message_queue: MessageQueue,
    ) -> None:
        self._service = service
        self.msgs = msgs
        self.process_queue = process_queue
        self.message_queue = message_queue

    def run(self) -> None:
        """Consume the messages, on a consume thread."""
        self._service.consume(self)


class MessageListenerDeferred(MessageListenerConcurrently):
    """A listener that receives messages, and reports the result of each later."""

    def take(self, delivery: "Delivery") -> None:
        """Keep `delivery` and return quickly; called by the threads that pull."""
        raise NotImplementedError

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        """Raise NotImplementedError: only `mqadmin consumeMessage` calls this, and it needs the result at once."""
        raise NotImplementedError("this consumer reports the result of a message later; it can't consume one directly")


class ConsumeMessageDeferredService(ConsumeMessageConcurrentlyService):
    """Delivers messages one by one, in the order of the pulls; its threads only send failed messages back.

    Messages without a result stay unconsumed when the consumer shuts down. The group's next consumer gets them at once.
    """

    def __init__(
        self, consuming: Consuming, listener: MessageListenerDeferred, check_process: Callable[[], None]
    ) -> None:
        super().__init__(consuming, listener)
        self._deferred_listener = listener
        self._check_process = check_process

    def submit_consume_request(
        self, msgs: list[MessageExt], process_queue: ProcessQueue, message_queue: MessageQueue,
        dispatch_to_consume: bool = True,
    ) -> None:
        """Pass each message to the listener."""
        self._reset_retry_and_namespace(msgs, self._consumer_group)
        for msg in msgs:
            self._submit(ConsumeRequest(self, [msg], process_queue, message_queue))

    def _submit(self, request: ConsumeRequest) -> None:
        self._deferred_listener.take(Delivery(self, request))

    def check_process(self) -> None:
        """Raise MQClientException if this process was forked after the consumer's start."""
        self._check_process()

    def begin(self, request: ConsumeRequest) -> ConsumeMessageContext | None:
        """Record that the message is being consumed now; return the context for `end`."""
        context = None
        if self._hooks.consume_message_hook_list:
            context = self._hooks.before(self._config, self._consumer_group, request.msgs, request.message_queue)
        request.process_queue.consume_begins(request.msgs)
        now = str(util_all.current_time_millis())
        for msg in request.msgs:
            msg.properties[message_const.PROPERTY_CONSUME_START_TIMESTAMP] = now
        return context

    def end(
        self, request: ConsumeRequest, context: ConsumeMessageContext | None, status: ConsumeConcurrentlyStatus,
        begin_ns: int, delay_level: int,
    ) -> None:
        """Process the result. A message is sent back on another thread, because that waits for a broker."""
        if self._stopping or request.process_queue.dropped:
            # Another consumer gets the message, or has it already
            return
        self._stats.inc_consume_rt(
            self._consumer_group, request.message_queue.topic, (time.monotonic_ns() - begin_ns) // 1_000_000)
        is_success = status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        if context is not None:
            kind = return_type(status, ConsumeConcurrentlyStatus.RECONSUME_LATER, False, begin_ns,
                               self._config.consume_timeout)
            self._hooks.after(context, self._config, status.name, is_success, kind)
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
    """One message that a consumer has received. Only the first call of `end` has an effect."""

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
        """The delivered message."""
        return self._request.msgs[0]

    @property
    def is_dropped(self) -> bool:
        """True if the queue was assigned to another consumer, which gets the message too."""
        return self._request.process_queue.dropped

    @property
    def is_ended(self) -> bool:
        """True if the result of the message was reported."""
        return self._is_ended

    def begin(self) -> None:
        """Start consuming the message: if it takes longer than `consume_timeout`, the message is delivered again."""
        self._begin_ns = time.monotonic_ns()
        self._context = self._service.begin(self._request)

    def end(self, status: ConsumeConcurrentlyStatus, delay_level: int = 0) -> bool:
        """Report the result of the message, without blocking. Return False if it was reported before.

        `delay_level`: for RECONSUME_LATER, see ConsumeConcurrentlyContext.
        """
        self._service.check_process()
        with self._lock:
            if self._is_ended:
                return False
            self._is_ended = True
        self._service.end(self._request, self._context, status, self._begin_ns, delay_level)
        return True
