"""Findings of a monitor in the log."""
import logging
from collections.abc import Mapping

from rmqha.common.protocol.body.consumer_running_info import ConsumerRunningInfo
from rmqha.tools.monitor.delete_msgs_event import DeleteMsgsEvent
from rmqha.tools.monitor.monitor_listener import MonitorListener
from rmqha.tools.monitor.undone_msgs import UndoneMsgs

log = logging.getLogger("RocketmqClient")

LOG_PREFIX = "[MONITOR] "
LOG_NOTIFY = LOG_PREFIX + " [NOTIFY] "
_RULE = "=" * 41


class DefaultMonitorListener(MonitorListener):
    """Writes what it hears into the client's log, in the original's words.

    Java: org.apache.rocketmq.tools.monitor.DefaultMonitorListener (4.9.8)
    """

    def begin_round(self) -> None:
        log.info("%s%sbeginRound", LOG_PREFIX, _RULE)

    def report_undone_msgs(self, undone_msgs: UndoneMsgs) -> None:
        log.info("%sreportUndoneMsgs: %s", LOG_PREFIX, undone_msgs)

    def report_delete_msgs_event(self, delete_msgs_event: DeleteMsgsEvent) -> None:
        log.info("%sreportDeleteMsgsEvent: %s", LOG_PREFIX, delete_msgs_event)

    def report_consumer_running_info(self, cri_table: Mapping[str, ConsumerRunningInfo]) -> None:
        group = cri_table[min(cri_table)].properties.get("consumerGroup")
        if not ConsumerRunningInfo.analyze_subscription(cri_table):
            log.info("%sreportConsumerRunningInfo: ConsumerGroup: %s, Subscription different", LOG_NOTIFY, group)
        for client_id in sorted(cri_table):
            trouble = ConsumerRunningInfo.analyze_process_queue(client_id, cri_table[client_id])
            if trouble:
                log.info("%sreportConsumerRunningInfo: ConsumerGroup: %s, ClientId: %s, %s", LOG_NOTIFY, group,
                         client_id, trouble)

    def end_round(self) -> None:
        log.info("%s%sendRound", LOG_PREFIX, _RULE)
