"""Who hears what a monitor finds."""
from collections.abc import Mapping
from typing import Protocol

from rmqha.common.protocol.body.consumer_running_info import ConsumerRunningInfo
from rmqha.tools.monitor.delete_msgs_event import DeleteMsgsEvent
from rmqha.tools.monitor.undone_msgs import UndoneMsgs


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
