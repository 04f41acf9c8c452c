"""A pull that waits."""
from typing import TYPE_CHECKING

from rmqha.store.message_filter import MessageFilter

if TYPE_CHECKING:
    from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.protocol.remoting_command import RemotingCommand


class PullRequest:
    """The request, where to answer, and until when to wait; times are ms of the monotonic clock.

    Java: org.apache.rocketmq.broker.longpolling.PullRequest (4.9.8)
    """

    __slots__ = ("request_command", "client_channel", "timeout_millis", "suspend_timestamp", "pull_from_this_offset",
                 "subscription_data", "message_filter")

    def __init__(self, request_command: "RemotingCommand", client_channel: "Channel", timeout_millis: int,
                 suspend_timestamp: int, pull_from_this_offset: int, subscription_data: "SubscriptionData",
                 message_filter: MessageFilter) -> None:
        self.request_command = request_command
        self.client_channel = client_channel
        self.timeout_millis = timeout_millis
        self.suspend_timestamp = suspend_timestamp
        self.pull_from_this_offset = pull_from_this_offset
        self.subscription_data = subscription_data
        self.message_filter = message_filter

    def is_expired(self, now_ms: int) -> bool:
        """Whether it has waited for as long as it wanted to."""
        return now_ms >= self.suspend_timestamp + self.timeout_millis
