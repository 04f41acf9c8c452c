"""What the two kinds of consume threads have in common."""
import logging
import time
from typing import TYPE_CHECKING

from rmqha.client.common.cause_log import CauseLog
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import CMResult, ConsumeMessageDirectlyResult
from rmqha.common.threads import NamedThreadPool, ScheduledService

if TYPE_CHECKING:
    from rmqha.client.impl.consumer.default_mq_push_consumer_impl import DefaultMQPushConsumerImpl

log = logging.getLogger("RocketmqClient")

MIN_JOIN_MS = 5_000


class ConsumeMessageService:
    """Base: the threads that call a push consumer's listener.

    Java: org.apache.rocketmq.client.impl.consumer.ConsumeMessageService (4.9.8)
    """

    def __init__(self, consumer_impl: "DefaultMQPushConsumerImpl") -> None:
        self._consumer_impl = consumer_impl
        self._consumer = consumer_impl.default_mq_push_consumer
        self._consumer_group = self._consumer.consumer_group
        self.causes = CauseLog(log)  # what the listener did wrong
        self._stopping = False  # set by shutdown; requests that wait then return at once
        self._consume_executor = NamedThreadPool(
            f"ConsumeMessageThread_{self._consumer_group[:100]}_", self._consumer.consume_thread_max)
        self._scheduled_executor_service = ScheduledService("ConsumeMessageScheduledThread_1")

    def start(self) -> None:
        """Begin what happens from time to time."""
        raise NotImplementedError

    def shutdown(self, await_terminate_millis: int = 0) -> None:
        """Let the listeners that run finish; what still waits stays unconsumed, for the group's next consumer."""
        # Differs: 4.9.8 interrupts the listeners after await_terminate_millis; Python cannot, so they get 5 s at least
        self._stopping = True
        self._scheduled_executor_service.shutdown()
        self._consume_executor.shutdown(max(await_terminate_millis, MIN_JOIN_MS))
        self.causes.log_counts(f"the listener of group {self._consumer_group}")

    def get_core_pool_size(self) -> int:
        """How many consume threads there may be."""
        return self._consume_executor.max_workers

    def consume_message_directly(self, msg: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        """Give one message to the listener now, and say what it said; nothing is sent back."""
        result = ConsumeMessageDirectlyResult(order=False, autoCommit=True)
        queue = MessageQueue(msg.topic, broker_name, msg.queue_id)  # type: ignore[arg-type]  # an old broker is silent
        self._consumer_impl.reset_retry_and_namespace([msg], self._consumer_group)
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
        """Call the listener; what else it says goes into `result`."""
        raise NotImplementedError

    def submit_consume_request(
        self, msgs: list[MessageExt], process_queue: ProcessQueue, message_queue: MessageQueue,
        dispatch_to_consume: bool = True,
    ) -> None:
        """Have messages consumed that were pulled; they are in `process_queue` already."""
        raise NotImplementedError
