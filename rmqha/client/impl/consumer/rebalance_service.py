"""The thread that shares out queues.

    every 20 s, at a consumer's start, or when a broker says that the group changed (code 40)
        --> RebalanceService --> RebalanceImpl.do_rebalance of each consumer
"""
import logging
from typing import TYPE_CHECKING

from rmqha.common.service_thread import ServiceThread

if TYPE_CHECKING:
    from rmqha.client.impl.factory.mq_client_instance import MQClientInstance

log = logging.getLogger("RocketmqClient")

WAIT_INTERVAL_MS = 20_000


class RebalanceService(ServiceThread):
    """Rebalances all consumers of an instance.

    Java: org.apache.rocketmq.client.impl.consumer.RebalanceService (4.9.8)
    """

    def __init__(self, mq_client_factory: "MQClientInstance") -> None:
        super().__init__()
        self.daemon = True
        self._mq_client_factory = mq_client_factory

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self.wait_for_running(WAIT_INTERVAL_MS)
            if not self.stopped:
                self._mq_client_factory.do_rebalance()
        log.info("%s service end", self.get_service_name())
