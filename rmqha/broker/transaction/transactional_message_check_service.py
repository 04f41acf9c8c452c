"""The thread that asks about half messages which nobody ended.

    TransactionalMessageCheckService: each transactionCheckInterval ms -> TransactionalMessageService.check
"""
import logging
from typing import TYPE_CHECKING

from rmqha.common import util_all
from rmqha.common.service_thread import ServiceThread

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController

log = logging.getLogger("RocketmqTransaction")


class TransactionalMessageCheckService(ServiceThread):
    """Runs on masters only.

    Java: org.apache.rocketmq.broker.transaction.TransactionalMessageCheckService (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        super().__init__()
        self._broker_controller = broker_controller

    def run(self) -> None:
        log.info("Start transaction check service thread!")
        while not self.stopped:
            # Differs: a change of transactionCheckInterval at run time counts from the next round on
            self.wait_for_running(self._broker_controller.broker_config.transactionCheckInterval)
        log.info("End transaction check service thread!")

    def on_wait_end(self) -> None:
        # Differs: no last check while the broker shuts down
        if self.stopped:
            return
        controller = self._broker_controller
        config = controller.broker_config
        begin = util_all.current_time_millis()
        log.info("Begin to check prepare message, begin time:%d", begin)
        controller.transactional_message_service.check(config.transactionTimeOut, config.transactionCheckMax,
                                                       controller.transactional_message_check_listener)
        log.info("End to check prepare message, consumed time:%d", util_all.current_time_millis() - begin)
