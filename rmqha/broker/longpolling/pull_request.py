"""A pull that waits, and the pulls that wait for one queue."""
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.store.message_reader import MessageFilter

if TYPE_CHECKING:
    from rmqha.common.subscriptions import SubscriptionData
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


class ManyPullRequest:
    """A list that many add to, and that one at a time sifts.

    Java: org.apache.rocketmq.broker.longpolling.ManyPullRequest (4.9.8)
    """

    __slots__ = ("_lock", "_pull_request_list", "_closed")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pull_request_list: list[PullRequest] = []  # guarded by _lock
        self._closed = False  # guarded by _lock

    def add_pull_request(self, pull_request: PullRequest) -> bool:
        """One more waits; False when the list takes nobody any more."""
        with self._lock:
            if not self._closed:
                self._pull_request_list.append(pull_request)
            return not self._closed

    def close_if_empty(self) -> bool:
        """Take nobody any more; False when somebody waits."""
        with self._lock:
            self._closed = not self._pull_request_list
            return self._closed

    def take(self, wants_to_go: Callable[[PullRequest], bool]) -> list[PullRequest]:
        """Remove and return those that want to go; the others stay."""
        # Differs: the list is sifted under its lock; the original empties it while it decides which held pulls go,
        # and a message that comes meanwhile wakes nobody
        with self._lock:
            going: list[PullRequest] = []
            staying: list[PullRequest] = []
            for pull_request in self._pull_request_list:
                (going if wants_to_go(pull_request) else staying).append(pull_request)
            self._pull_request_list = staying
            return going

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits; a look without the lock."""
        return not self._pull_request_list
