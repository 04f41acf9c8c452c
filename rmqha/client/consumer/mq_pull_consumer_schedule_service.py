"""A pull consumer that calls the user's functions for its share of the group's queues.

    rebalance --share--> a PullTask per queue --> PullMsgThread-<group>_<n>: callback(queue, context)
                              ^------- after context.pull_next_delay_time_millis ----------|
"""
import logging
import threading
from collections.abc import Callable
from types import TracebackType

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageQueueListener
from rmqha.client.life import CauseLog
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message.message import MessageQueue
from rmqha.common.subscriptions import MessageModel
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError, ScheduledService

log = logging.getLogger("RocketmqClient")

AFTER_EXCEPTION_MS = 1_000


@dataclass
class PullTaskContext:
    """The argument of a callback.

    `pull_consumer`: the consumer to pull with. `pull_next_delay_time_millis`: the callback may set the delay in ms
    before it is called for this queue again.

    Java: org.apache.rocketmq.client.consumer.PullTaskContext (4.9.8)
    """

    pull_consumer: DefaultMQPullConsumer
    pull_next_delay_time_millis: int = 200


PullTaskCallback = Callable[[MessageQueue, PullTaskContext], None]
"""A function that is called for each queue of the share, one call at a time for a queue."""


class MQPullConsumerScheduleService(MessageQueueListener):
    """A pull consumer that repeatedly calls a callback for each of its queues.

        def pull(queue, context):
            offset = max(0, context.pull_consumer.fetch_consume_offset(queue, from_store=False))
            result = context.pull_consumer.pull(queue, "*", offset, 32)
            context.pull_consumer.update_consume_offset(queue, result.next_begin_offset)

        service = MQPullConsumerScheduleService("audit", "127.0.0.1:9876")
        service.register_pull_task_callback("orders", pull)
        with service: ...

    Java: org.apache.rocketmq.client.consumer.MQPullConsumerScheduleService (4.9.8)
    """

    def __init__(self, consumer_group: str, namesrv_addr: str | None = None, pull_thread_nums: int = 20) -> None:
        self.default_mq_pull_consumer = DefaultMQPullConsumer(consumer_group, namesrv_addr)
        self.default_mq_pull_consumer.message_queue_listener = self
        self.causes = CauseLog(log)  # errors of the callbacks
        self._callback_table: dict[str, PullTaskCallback] = {}  # by topic; written before start
        self._lock = threading.Lock()
        self._task_table: dict[MessageQueue, PullTaskImpl] = {}  # guarded by _lock
        self._pool = NamedThreadPool(f"PullMsgThread-{consumer_group}_", pull_thread_nums)
        self._scheduler = ScheduledService("PullMsgScheduledThread")

    def register_pull_task_callback(self, topic: str, callback: PullTaskCallback) -> None:
        """Pull a topic with `callback`. Call this before `start`."""
        consumer = self.default_mq_pull_consumer
        consumer.check_process()
        self._callback_table[consumer.with_namespace(topic)] = callback
        consumer.register_message_queue_listener(topic, self)

    def start(self) -> None:
        """Start pulling. MQClientException for a bad group name or a second start."""
        self.default_mq_pull_consumer.start()

    def shutdown(self) -> None:
        """Let running callbacks finish, store the offsets, and disconnect. Idempotent; a no-op in a forked process."""
        if self.default_mq_pull_consumer.is_of_another_process():
            return
        self.put_task(None, set())
        self._scheduler.shutdown()
        self._pool.shutdown()
        self.default_mq_pull_consumer.shutdown()

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        is_broadcasting = self.default_mq_pull_consumer.message_model is MessageModel.BROADCASTING
        self.put_task(topic, mq_all if is_broadcasting else mq_divided)

    def put_task(self, topic: str | None, mq_new_set: set[MessageQueue]) -> None:
        """Pull these queues of a topic (None: of all topics), and stop pulling its other queues."""
        with self._lock:
            for mq in list(self._task_table):
                if (topic is None or mq.topic == topic) and mq not in mq_new_set:
                    self._task_table.pop(mq).cancelled = True
            new = [PullTaskImpl(self, mq) for mq in mq_new_set if mq not in self._task_table]
            self._task_table.update({task.message_queue: task for task in new})
        for task in new:
            self.run_later(task, 0)

    def callback_of(self, topic: str) -> PullTaskCallback | None:
        """Return the callback of a topic."""
        return self._callback_table.get(topic)

    def run_later(self, task: "PullTaskImpl", delay_ms: float) -> None:
        """Call the callback of a queue on a pool thread, `delay_ms` from now."""
        def submit() -> None:
            try:
                self._pool.submit(task.run)
            except RejectedExecutionError:
                log.info("no more pulls of %s", task.message_queue)

        self._scheduler.schedule(submit, delay_ms)

    def __enter__(self) -> "MQPullConsumerScheduleService":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.shutdown()


class PullTaskImpl:
    """The repeated calls for one queue.

    Java: org.apache.rocketmq.client.consumer.MQPullConsumerScheduleService$PullTaskImpl (4.9.8)
    """

    def __init__(self, service: MQPullConsumerScheduleService, message_queue: MessageQueue) -> None:
        self._service = service
        self.message_queue = message_queue
        self.cancelled = False  # set once, when the queue leaves the share

    def run(self) -> None:
        """Call the callback once and schedule the next call."""
        callback = self._service.callback_of(self.message_queue.topic)
        if self.cancelled or callback is None:
            log.warning("The Pull Task is cancelled, %s", self.message_queue)
            return
        consumer = self._service.default_mq_pull_consumer
        context = PullTaskContext(consumer)
        [queue] = consumer.queues_without_namespace([self.message_queue])
        try:
            callback(queue, context)
        except BaseException as error:  # the user's code
            context.pull_next_delay_time_millis = AFTER_EXCEPTION_MS
            self._service.causes.raised(error, "doPullTask Exception")
        if not self.cancelled:
            self._service.run_later(self, context.pull_next_delay_time_millis)
