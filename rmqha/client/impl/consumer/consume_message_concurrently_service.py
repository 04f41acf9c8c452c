"""The threads that call the listener.

    pull callback --ConsumeRequest of 1 or more messages--> ConsumeMessageThread_<group>_<n> --> listener
        success: offset up to the lowest message still here --> offset store
        later:   back to the broker (code 36); if that fails: here again 5 s later, by ConsumeMessageScheduledThread
    CleanExpireMsgScheduledThread: what a listener keeps for longer than 15 minutes goes back to the broker
"""
import logging
import time
from typing import TYPE_CHECKING

from rmqha.client.consumer.listener.message_listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    MessageListenerConcurrently,
)
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.consumer.consume_message_service import ConsumeMessageService
from rmqha.client.impl.consumer.consumer_hooks import return_type
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.common import util_all
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import CMResult, ConsumeMessageDirectlyResult
from rmqha.common.subscriptions import MessageModel
from rmqha.common.threads import RejectedExecutionError, ScheduledService
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.consumer.default_mq_push_consumer_impl import DefaultMQPushConsumerImpl

log = logging.getLogger("RocketmqClient")

LATER_MS = 5_000
EXPIRED_DELAY_LEVEL = 3
EXPIRED_AT_ONCE = 16

_DIRECT_RESULT = {
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: CMResult.CR_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER: CMResult.CR_LATER,
    None: CMResult.CR_RETURN_NULL,
}


class ConsumeMessageConcurrentlyService(ConsumeMessageService):
    """Consumes each message on its own, in no order, on many threads.

    Java: org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService (4.9.8)
    """

    def __init__(
        self, consumer_impl: "DefaultMQPushConsumerImpl", message_listener: MessageListenerConcurrently
    ) -> None:
        super().__init__(consumer_impl)
        self._message_listener = message_listener
        self._clean_expire_msg_executors = ScheduledService("CleanExpireMsgScheduledThread_1")

    def start(self) -> None:
        """Begin to look for messages that listeners keep too long."""
        every_ms = self._consumer.consume_timeout * 60_000
        self._clean_expire_msg_executors.schedule_at_fixed_rate(self._clean_expire_msg, every_ms, every_ms)

    def shutdown(self, await_terminate_millis: int = 0) -> None:
        """The same, and look no more for what listeners keep too long."""
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
        """Hand messages to the consume threads, at most consume_message_batch_max_size at a time."""
        batch = self._consumer.consume_message_batch_max_size
        for start in range(0, len(msgs), batch):
            self._submit(ConsumeRequest(self, msgs[start:start + batch], process_queue, message_queue))

    def _submit(self, request: "ConsumeRequest") -> None:
        try:
            self._consume_executor.submit(request.run)
        except RejectedExecutionError:
            if not self._stopping:
                self._scheduled_executor_service.schedule(lambda: self._submit(request), LATER_MS)

    def _clean_expire_msg(self) -> None:
        timeout_ms = self._consumer.consume_timeout * 60_000
        for process_queue in list(self._consumer_impl.rebalance_impl.process_queue_table.values()):
            for _ in range(EXPIRED_AT_ONCE):
                msg = process_queue.first_expired_msg(timeout_ms)
                if msg is None:
                    break
                self._consumer_impl.send_message_back(msg, EXPIRED_DELAY_LEVEL, msg.broker_name)
                log.info("send expire msg back. topic=%s, msgId=%s, storeHost=%s, queueId=%s, queueOffset=%s",
                         msg.topic, msg.msg_id, msg.store_host, msg.queue_id, msg.queue_offset)
                process_queue.remove_message([msg])

    def consume(self, request: "ConsumeRequest") -> None:
        """Call the listener and see to the result; on a consume thread."""
        if self._stopping:
            return
        if request.process_queue.dropped:
            log.info("the message queue not be able to consume, because it's dropped. group=%s %s",
                     self._consumer_group, request.message_queue)
            return
        context = ConsumeConcurrentlyContext(request.message_queue)
        self._consumer_impl.reset_retry_and_namespace(request.msgs, self._consumer_group)
        status = self._call_listener(request, context)
        if request.process_queue.dropped:
            log.warning("processQueue is dropped without process consume result. messageQueue=%s, msgs=%s",
                        request.message_queue, request.msgs)
            return
        self.process_consume_result(status, context, request)

    def _call_listener(
        self, request: "ConsumeRequest", context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        hooks, hook_context = self._consumer_impl.hooks, None
        if hooks.consume_message_hook_list:
            hook_context = hooks.before(self._consumer, self._consumer_group, request.msgs, request.message_queue)
        request.process_queue.consume_begins(request.msgs)
        now = str(util_all.current_time_millis())
        for msg in request.msgs:
            msg.properties[message_const.PROPERTY_CONSUME_START_TIMESTAMP] = now
        begin_ns, status, is_exception = time.monotonic_ns(), None, False
        try:
            status = self._message_listener.consume_message(list(request.msgs), context)
            if not isinstance(status, ConsumeConcurrentlyStatus):
                self.causes.returned(
                    status, "consumeMessage return %s, no ConsumeConcurrentlyStatus: the messages come again, "
                    "Group: %s Msgs: %s MQ: %s", "null" if status is None else repr(status), self._consumer_group,
                    request.msgs, request.message_queue)
                status = None
        except BaseException as error:  # the user's code; the message comes again
            is_exception = True
            self.causes.raised(error, "consumeMessage exception: Group: %s Msgs: %s MQ: %s",
                               self._consumer_group, request.msgs, request.message_queue)
        stats = self._consumer_impl.consumer_stats_manager
        stats.inc_consume_rt(self._consumer_group, request.message_queue.topic,
                             (time.monotonic_ns() - begin_ns) // 1_000_000)
        later = ConsumeConcurrentlyStatus.RECONSUME_LATER
        if hook_context is not None:
            kind = return_type(status, later, is_exception, begin_ns, self._consumer.consume_timeout)
            hooks.after(hook_context, self._consumer, (status or later).name,
                        status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS, kind)
        return status or later

    def process_consume_result(
        self, status: ConsumeConcurrentlyStatus, context: ConsumeConcurrentlyContext, request: "ConsumeRequest"
    ) -> None:
        """Send back what failed, take the rest out of the cache, and move the offset on."""
        if not request.msgs:
            return
        succeeded = 0
        if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
            succeeded = min(context.ack_index + 1, len(request.msgs))
        failed = request.msgs[succeeded:]
        topic = request.message_queue.topic
        self._consumer_impl.consumer_stats_manager.inc_consume_ok_tps(self._consumer_group, topic, succeeded)
        self._consumer_impl.consumer_stats_manager.inc_consume_failed_tps(self._consumer_group, topic, len(failed))
        if failed and self._consumer.message_model is MessageModel.BROADCASTING:
            log.warning("BROADCASTING, the message consume failed, drop it, %s", failed)
        elif failed:
            self._send_back(failed, context, request)
        offset = request.process_queue.remove_message(request.msgs)
        if offset >= 0 and not request.process_queue.dropped:
            self._consumer_impl.offset_store.update_offset(request.message_queue, offset, increase_only=True)

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
        """Let the broker deliver the message again; False when it could not be told."""
        try:
            self._consumer_impl.send_message_back(
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
        """On a consume thread."""
        self._service.consume(self)
