"""The thread that pulls.

    rebalance, pull callbacks --execute_pull_request_immediately--> queue --> PullMessageService --> pull_message
    failures, flow control    --execute_pull_request_later--> PullMessageServiceScheduledThread --> queue
"""
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.client.impl.consumer.process_queue import PullRequest
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import ScheduledService

if TYPE_CHECKING:
    from rmqha.client.impl.factory.mq_client_instance import MQClientInstance

log = logging.getLogger("RocketmqClient")

IDLE_WAIT_MS = 5_000
AFTER_EXCEPTION_MS = 3_000


class PullMessageService(ServiceThread):
    """Takes pull requests in turn and sends each to its broker; the answers come on the remoting client's threads.

    Java: org.apache.rocketmq.client.impl.consumer.PullMessageService (4.9.8)
    """

    def __init__(self, mq_client_factory: "MQClientInstance") -> None:
        super().__init__()
        self.daemon = True
        self._mq_client_factory = mq_client_factory
        self._pull_request_queue: deque[PullRequest] = deque()  # any thread appends, this service takes
        self.scheduled_executor_service = ScheduledService("PullMessageServiceScheduledThread")

    def execute_pull_request_later(self, pull_request: PullRequest, delay_ms: float) -> None:
        """Pull after a pause."""
        self.execute_task_later(lambda: self.execute_pull_request_immediately(pull_request), delay_ms)

    def execute_pull_request_immediately(self, pull_request: PullRequest) -> None:
        """Pull next."""
        self._pull_request_queue.append(pull_request)
        self.wakeup()

    def execute_task_later(self, task: Callable[[], None], delay_ms: float) -> None:
        """Run something after a pause, on the scheduling thread."""
        if self.stopped:
            log.warning("PullMessageServiceScheduledThread has shutdown")
            return
        self.scheduled_executor_service.schedule(task, delay_ms)

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            while self._pull_request_queue and not self.stopped:
                self._pull_message(self._pull_request_queue.popleft())
            self.wait_for_running(IDLE_WAIT_MS)
        log.info("%s service end", self.get_service_name())

    def shutdown(self, interrupt: bool = False) -> None:
        super().shutdown(interrupt)
        self.scheduled_executor_service.shutdown()

    def _pull_message(self, pull_request: PullRequest) -> None:
        consumer = self._mq_client_factory.select_consumer(pull_request.consumer_group)
        pull_message = getattr(consumer, "pull_message", None)
        if pull_message is None:
            log.warning("No matched consumer for the PullRequest %s, drop it", pull_request)
            return
        try:
            pull_message(pull_request)
        except BaseException as error:
            # Differs: the queue is pulled again; in the original it rests until rebalance misses it, 2 minutes later
            log.error("Pull Message Service Run Method exception", exc_info=error)
            self.execute_pull_request_later(pull_request, AFTER_EXCEPTION_MS)
