"""The consume service that calls an orderly listener.

    pull callback --the queue has messages--> ConsumeMessageThread_<group>_<n>: while the queue is locked and has
        messages, take the next ones from the ProcessQueue -> listener -> commit, or put them back and wait briefly
    ConsumeMessageScheduledThread: renews the brokers' locks every 20 s, resumes waiting queues, and retries failed
        locks

The module `rebalance` explains the locks.
"""
import logging
import threading
import time

from rmqha.client.consumer.listeners import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageListenerOrderly
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.consume_message_concurrently_service import ConsumeMessageService, Consuming
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.client.impl.consumer.pulling import return_type
from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import CMResult, ConsumeMessageDirectlyResult
from rmqha.common.subscriptions import MessageModel
from rmqha.common.threads import RejectedExecutionError
from rmqha.remoting.exception import RemotingException

log = logging.getLogger("RocketmqClient")

MAX_TIME_CONSUME_CONTINUOUSLY_MS = 60_000
REBALANCE_LOCK_INTERVAL_MS = 20_000
FIRST_LOCK_MS = 1_000
NEXT_TURN_MS = 10
LOCK_FAILED_MS = 3_000
_MIN_SUSPEND_MS, _MAX_SUSPEND_MS = 10, 30_000
_MAX_INT = 0x7FFFFFFF

_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
_DIRECT_RESULT = {
    ConsumeOrderlyStatus.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeOrderlyStatus.COMMIT: CMResult.CR_COMMIT,
    ConsumeOrderlyStatus.ROLLBACK: CMResult.CR_ROLLBACK,
    _SUSPEND: CMResult.CR_LATER,
    None: CMResult.CR_RETURN_NULL,
}


class ConsumeMessageOrderlyService(ConsumeMessageService):
    """Consumes each queue in order, on one thread at a time, while this client has the queue's lock at the broker.

    Java: org.apache.rocketmq.client.impl.consumer.ConsumeMessageOrderlyService (4.9.8)
    """

    def __init__(self, consuming: Consuming, message_listener: MessageListenerOrderly) -> None:
        super().__init__(consuming)
        self._send = consuming.send
        self._message_listener = message_listener
        # Held while a thread consumes the queue. Locks are never removed
        self._message_queue_lock: dict[MessageQueue, threading.Lock] = {}

    def start(self) -> None:
        """Start renewing the locks."""
        if self._is_clustering():
            self._scheduled_executor_service.schedule_at_fixed_rate(
                self._lock_mq_periodically, FIRST_LOCK_MS, REBALANCE_LOCK_INTERVAL_MS)

    def shutdown(self, await_terminate_millis: int = 0) -> None:
        """Shut down, and release the locks."""
        super().shutdown(await_terminate_millis)
        if self._is_clustering():
            self._rebalance.unlock_all()

    def _consume_directly(
        self, msg: MessageExt, queue: MessageQueue, result: ConsumeMessageDirectlyResult
    ) -> CMResult:
        result.order, context = True, ConsumeOrderlyContext(queue)
        try:
            status = self._message_listener.consume_message([msg], context)
        finally:
            result.autoCommit = context.auto_commit
        return _DIRECT_RESULT[status if isinstance(status, ConsumeOrderlyStatus) else None]

    def submit_consume_request(
        self, msgs: list[MessageExt], process_queue: ProcessQueue, message_queue: MessageQueue,
        dispatch_to_consume: bool = True,
    ) -> None:
        """Have a queue's messages consumed, unless a thread is consuming it already."""
        if not dispatch_to_consume:
            return
        try:
            self._consume_executor.submit(self._consume, process_queue, message_queue)
        except RejectedExecutionError:
            if not self._stopping:
                self._submit_later(process_queue, message_queue, LOCK_FAILED_MS)

    def _is_clustering(self) -> bool:
        return self._config.message_model is MessageModel.CLUSTERING

    def _lock_mq_periodically(self) -> None:
        if not self._stopping:
            self._rebalance.lock_all()

    def _try_lock_later_and_reconsume(
        self, process_queue: ProcessQueue, message_queue: MessageQueue, delay_ms: int
    ) -> None:
        def lock() -> None:
            is_locked = False
            try:
                is_locked = not self._stopping and self._rebalance.lock(message_queue)
            finally:
                # Whatever happened, or the queue would stall forever
                self._submit_later(process_queue, message_queue, NEXT_TURN_MS if is_locked else LOCK_FAILED_MS)

        self._scheduled_executor_service.schedule(lock, delay_ms)

    def _submit_later(self, process_queue: ProcessQueue, message_queue: MessageQueue, suspend_ms: int) -> None:
        if suspend_ms == -1:
            suspend_ms = self._config.suspend_current_queue_time_millis
        self._scheduled_executor_service.schedule(
            lambda: self.submit_consume_request([], process_queue, message_queue),
            max(_MIN_SUSPEND_MS, min(suspend_ms, _MAX_SUSPEND_MS)))

    def _consume(self, process_queue: ProcessQueue, message_queue: MessageQueue) -> None:
        """Consume until the queue is empty or must not be consumed. Runs on a consume thread."""
        if process_queue.dropped:
            log.warning("run, the message queue not be able to consume, because it's dropped. %s", message_queue)
            return
        with self._message_queue_lock.setdefault(message_queue, threading.Lock()):
            begin_ns = time.monotonic_ns()
            while not self._stopping and self._may_consume(process_queue, message_queue):
                if time.monotonic_ns() - begin_ns > MAX_TIME_CONSUME_CONTINUOUSLY_MS * 1_000_000:
                    self._submit_later(process_queue, message_queue, NEXT_TURN_MS)
                    return
                msgs = process_queue.take_messages(self._config.consume_message_batch_max_size)
                if not msgs or not self._consume_some(msgs, process_queue, message_queue):
                    return

    def _may_consume(self, process_queue: ProcessQueue, message_queue: MessageQueue) -> bool:
        if process_queue.dropped:
            log.warning("the message queue not be able to consume, because it's dropped. %s", message_queue)
            return False
        if not self._is_clustering() or (process_queue.locked and not process_queue.is_lock_expired()):
            return True
        log.warning("the message queue is not locked or its lock expired, so consume later, %s", message_queue)
        self._try_lock_later_and_reconsume(process_queue, message_queue, NEXT_TURN_MS)
        return False

    def _consume_some(
        self, msgs: list[MessageExt], process_queue: ProcessQueue, message_queue: MessageQueue
    ) -> bool:
        """Call the listener and process its result; return True to continue at once."""
        self._reset_retry_and_namespace(msgs, self._consumer_group)
        context = ConsumeOrderlyContext(message_queue)
        hook_context = self._hooks.before(self._config, self._consumer_group, msgs, message_queue)
        begin_ns, status, is_exception = time.monotonic_ns(), None, False
        with process_queue.consume_lock:
            if process_queue.dropped:
                log.warning("consumeMessage, the message queue not be able to consume, because it's dropped. %s",
                            message_queue)
                return False
            try:
                status = self._message_listener.consume_message(list(msgs), context)
                if not isinstance(status, ConsumeOrderlyStatus):
                    self.causes.returned(status, "consumeMessage return %s, not a ConsumeOrderlyStatus: the messages "
                                         "are redelivered, Group: %s Msgs: %s MQ: %s",
                                         "null" if status is None else repr(status), self._consumer_group, msgs,
                                         message_queue)
                    status = None
            except BaseException as error:
                # The user's code failed; the messages are redelivered
                is_exception = True
                self.causes.raised(error, "consumeMessage exception: Group: %s Msgs: %s MQ: %s", self._consumer_group,
                                   msgs, message_queue)
        if status in (ConsumeOrderlyStatus.ROLLBACK, _SUSPEND):
            self.causes.happened(status.name, "consumeMessage Orderly return not OK, %s, Group: %s Msgs: %s MQ: %s",
                                 status.name, self._consumer_group, msgs, message_queue)
        if hook_context is not None:
            kind = return_type(status, _SUSPEND, is_exception, begin_ns, self._config.consume_timeout)
            self._hooks.after(hook_context, self._config, (status or _SUSPEND).name,
                              status in (ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.COMMIT), kind)
        self._stats.inc_consume_rt(
            self._consumer_group, message_queue.topic, (time.monotonic_ns() - begin_ns) // 1_000_000)
        return self.process_consume_result(msgs, status or _SUSPEND, context, process_queue)

    def process_consume_result(
        self, msgs: list[MessageExt], status: ConsumeOrderlyStatus, context: ConsumeOrderlyContext,
        process_queue: ProcessQueue,
    ) -> bool:
        """Commit the messages or put them back; return True to continue at once."""
        stats, topic = self._stats, context.message_queue.topic
        commit_offset, go_on = -1, True
        if status is _SUSPEND:
            stats.inc_consume_failed_tps(self._consumer_group, topic, len(msgs))
            if self._check_reconsume_times(msgs):
                process_queue.make_message_to_consume_again(msgs)
                go_on = False
            elif context.auto_commit:
                commit_offset = process_queue.commit()
        elif context.auto_commit:
            if status is not ConsumeOrderlyStatus.SUCCESS:
                log.warning("the message queue consume result is illegal, we think you want to ack these message %s",
                            context.message_queue)
            stats.inc_consume_ok_tps(self._consumer_group, topic, len(msgs))
            commit_offset = process_queue.commit()
        elif status is ConsumeOrderlyStatus.SUCCESS:
            stats.inc_consume_ok_tps(self._consumer_group, topic, len(msgs))
        elif status is ConsumeOrderlyStatus.COMMIT:
            commit_offset = process_queue.commit()
        else:
            process_queue.rollback()
            go_on = False
        if not go_on:
            self._submit_later(process_queue, context.message_queue, context.suspend_current_queue_time_millis)
        if commit_offset >= 0 and not process_queue.dropped:
            self._offset_store.update_offset(context.message_queue, commit_offset, increase_only=False)
        return go_on

    def _get_max_reconsume_times(self) -> int:
        times = self._config.max_reconsume_times
        return _MAX_INT if times == -1 else times

    def _check_reconsume_times(self, msgs: list[MessageExt]) -> bool:
        """Count a try of each message; return True if one of them must be consumed again.

        A message that was tried too often is sent to the broker instead.
        """
        suspend = False
        for msg in msgs:
            if msg.reconsume_times >= self._get_max_reconsume_times():
                msg.put_property(message_const.PROPERTY_RECONSUME_TIME, str(msg.reconsume_times))
                if self.send_message_back(msg):
                    continue
            suspend = True
            msg.reconsume_times += 1
        return suspend

    def send_message_back(self, msg: MessageExt) -> bool:
        """Send a message to the dead letters, through the retry topic; return False on failure."""
        times = self._get_max_reconsume_times()
        back = Message(mix_all.get_retry_topic(self._consumer_group), msg.body, flag=msg.flag)
        back.properties = dict(msg.properties)
        back.properties.setdefault(message_const.PROPERTY_ORIGIN_MESSAGE_ID, msg.msg_id or "")
        back.put_property(message_const.PROPERTY_RETRY_TOPIC, msg.topic)
        back.put_property(message_const.PROPERTY_RECONSUME_TIME, str(msg.reconsume_times))
        back.put_property(message_const.PROPERTY_MAX_RECONSUME_TIMES, str(times))
        back.clear_property(message_const.PROPERTY_TRANSACTION_PREPARED)
        back.delay_time_level = 3 + msg.reconsume_times
        try:
            self._send(back)
            return True
        except (MQClientException, MQBrokerException, RemotingException):
            log.exception("sendMessageBack exception, group: %s msg: %s", self._consumer_group, msg)
            return False
