"""What a monitor finds, who hears it, and the one who writes it into the log."""
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rmqha.common.protocol.client_bodies import ConsumerRunningInfo, OffsetMovedEvent

log = logging.getLogger("RocketmqClient")

LOG_PREFIX = "[MONITOR] "
LOG_NOTIFY = LOG_PREFIX + " [NOTIFY] "
_RULE = "=" * 41


@dataclass(slots=True)
class UndoneMsgs:
    """Messages of a topic that a group has yet to consume: in all, in its longest queue, and its delay in ms.

    Java: org.apache.rocketmq.tools.monitor.UndoneMsgs (4.9.8)
    """

    consumerGroup: str
    topic: str
    undoneMsgsTotal: int = 0
    undoneMsgsSingleMQ: int = 0
    undoneMsgsDelayTimeMills: int = 0

    def __str__(self) -> str:
        return (f"UndoneMsgs [consumerGroup={self.consumerGroup}, topic={self.topic}, "
                f"undoneMsgsTotal={self.undoneMsgsTotal}, undoneMsgsSingleMQ={self.undoneMsgsSingleMQ}, "
                f"undoneMsgsDelayTimeMills={self.undoneMsgsDelayTimeMills}]")


@dataclass(slots=True)
class DeleteMsgsEvent:
    """A broker's event, and when it was stored (ms since the epoch).

    Java: org.apache.rocketmq.tools.monitor.DeleteMsgsEvent (4.9.8)
    """

    offsetMovedEvent: OffsetMovedEvent
    eventTimestamp: int

    def __str__(self) -> str:
        event = self.offsetMovedEvent
        text = (f"OffsetMovedEvent [consumerGroup={event.consumerGroup}, messageQueue={event.messageQueue}, "
                f"offsetRequest={event.offsetRequest}, offsetNew={event.offsetNew}]")
        return f"DeleteMsgsEvent [offsetMovedEvent={text}, eventTimestamp={self.eventTimestamp}]"


class MonitorListener(Protocol):
    """Called on the monitor's thread; events of deleted messages come on a consumer's.

    Java: org.apache.rocketmq.tools.monitor.MonitorListener (4.9.8)
    """

    # Differs: no report of failed messages: the original declares one and never makes any
    def begin_round(self) -> None:
        """A round begins."""

    def report_undone_msgs(self, undone_msgs: UndoneMsgs) -> None:
        """How far a group is behind in a topic."""

    def report_delete_msgs_event(self, delete_msgs_event: DeleteMsgsEvent) -> None:
        """A group lost messages."""

    def report_consumer_running_info(self, cri_table: Mapping[str, ConsumerRunningInfo]) -> None:
        """What a group's clients do, by client id."""

    def end_round(self) -> None:
        """A round is over."""


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
