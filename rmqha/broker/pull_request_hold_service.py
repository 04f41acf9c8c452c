"""Long polling: a pull that finds no message is held until a message arrives or its time is over.

    IO thread --suspend--> [lists by queue] <--notify-- dispatching thread (a message arrived)
                                            <--scan every 5 s-- PullRequestHoldService (time over)

The hard part is that no wake-up may be lost. A pull reads its queue, finds nothing, and is then put on a list. A
message that is dispatched between these two steps notifies a list that does not contain the pull yet; the pull would
wait for the next message, or for the scan, although its message is there. So a pull is put on the list first, and its
queue is checked again afterwards. If appended records are still waiting for their dispatch, the check runs after they
are dispatched. A message that is dispatched later than the check finds the pull on the list, so one of the two always
wakes it. Two rules on the lists complete this:

- `take` decides which pulls go while it holds the list's lock. A pull that arrives in that time waits for the lock, is
  added afterwards, and then makes its own check.
- An empty list is closed under its lock before it is removed from the table. A pull that meets a closed list gets a
  new one, so that no pull waits on a list that is never notified.

Woken pulls are collected and run again at the end of the round of the thread that woke them, and their responses leave
together. A woken pull is answered whatever it finds. To hold it again could exceed the time that its client waits.
"""
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rmqha.broker.client.client_channels import now_ms
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import ANSWER, Round, at_round_end
from rmqha.common.service_thread import ServiceThread
from rmqha.common.texts import LATER
from rmqha.store.consume_queue_ext import CqExtUnit
from rmqha.store.dispatch import MessageArrivingListener
from rmqha.store.message_reader import MessageFilter

if TYPE_CHECKING:
    from rmqha.broker.queue_offsets import QueueOffsets
    from rmqha.common.subscriptions import SubscriptionData
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.protocol.remoting_command import RemotingCommand
    from rmqha.store.deleted_topics import DeletedTopics
    from rmqha.store.reput_message_service import ReputMessageService


class PullRequest:
    """A held pull: the request, its connection, and how long it waits. Times are ms of the monotonic clock.

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
        """Return whether the pull has been held for as long as it asked for."""
        return now_ms >= self.suspend_timestamp + self.timeout_millis


class ManyPullRequest:
    """The held pulls of one queue. Any thread.

    Java: org.apache.rocketmq.broker.longpolling.ManyPullRequest (4.9.8)
    """

    __slots__ = ("_lock", "_pull_request_list", "_closed")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pull_request_list: list[PullRequest] = []  # guarded by _lock
        self._closed = False  # guarded by _lock

    def add_pull_request(self, pull_request: PullRequest) -> bool:
        """Add a pull; return False if the list is closed."""
        with self._lock:
            if not self._closed:
                self._pull_request_list.append(pull_request)
            return not self._closed

    def close_if_empty(self) -> bool:
        """Close the list if it is empty; return whether it is closed."""
        with self._lock:
            self._closed = not self._pull_request_list
            return self._closed

    def take(self, wants_to_go: Callable[[PullRequest], bool]) -> list[PullRequest]:
        """Remove and return the pulls for which `wants_to_go` is true."""
        # Differs: the list of a queue's held pulls is filtered under its lock; the original empties it while it decides
        # which held pulls go, and a message that arrives in that time wakes no pull
        with self._lock:
            going: list[PullRequest] = []
            staying: list[PullRequest] = []
            for pull_request in self._pull_request_list:
                (going if wants_to_go(pull_request) else staying).append(pull_request)
            self._pull_request_list = staying
            return going

    @property
    def is_empty(self) -> bool:
        """True if no pull is held; read without the lock."""
        return not self._pull_request_list


log = logging.getLogger("RocketmqBroker")

_CHECK_INTERVAL_MS = 5 * 1000
MAX_HELD_OF_CHANNEL = 10_000
# A client holds one pull for each of its groups.
MAX_HELD_OF_CHANNEL_AND_QUEUE = 64


class _Held:
    """The number of held pulls of one connection, in total and by queue."""

    __slots__ = ("total", "by_queue")

    def __init__(self) -> None:
        self.total = 0
        self.by_queue: dict[tuple[str, int], int] = {}


class PullProcessor(Protocol):
    """The interface to the processor that runs the held pulls again."""

    def execute_request_when_wakeup(self, channel: "Channel", request: "RemotingCommand") -> None:
        """Answer a pull that was held, whether or not it finds messages."""


class PullRequestHoldService(ServiceThread):
    """The held pulls by (topic, queue id).

    Java: org.apache.rocketmq.broker.longpolling.PullRequestHoldService (4.9.8)
    """

    # Differs: the empty lists of held pulls are removed for all queues, not only for light queues, as in the original's
    # LmqPullRequestHoldService; and the number of held pulls of a connection is limited

    def __init__(self, broker_config: BrokerConfig, queues: "QueueOffsets", reput: "ReputMessageService",
                 deleted_topics: "DeletedTopics", queues_of: Callable[[str], int]) -> None:
        super().__init__()
        self._config = broker_config
        self._queues = queues
        self._reput = reput
        self._deleted_topics = deleted_topics
        # Returns the number of queues of a topic, 0 when it does not exist.
        self._queues_of = queues_of
        # Adds pulls to the lists, and runs the woken ones.
        self.processor: PullProcessor = LATER
        # Only single dict operations.
        self.pull_request_table: dict[tuple[str, int], ManyPullRequest] = {}
        # Appended by notifying threads, popped by the threads that run the pulls.
        self._woken: deque[PullRequest] = deque()
        self._held: dict[Channel, _Held] = {}  # guarded by _held_lock
        self._held_lock = threading.Lock()
        # The broker is shutting down, so no pull is held any more. Written once.
        self.is_ending = False

    def polling_ms(self, suspend_ms: int) -> int:
        """Return how long to hold a pull that asks for `suspend_ms`."""
        return suspend_ms if self._config.longPollingEnable else self._config.shortPollingTimeMills

    def suspend_pull_request(self, topic: str, queue_id: int, pull_request: PullRequest) -> bool:
        """Hold a pull; return False when its connection has too many held pulls.

        A pull whose message has arrived since it read the queue is woken at once.
        """
        key = (topic, queue_id)
        if not self._may_hold(pull_request.client_channel, key):
            return False
        while not self._list_of(key).add_pull_request(pull_request):
            continue  # The scan is removing that list.
        if self.is_ending:  # perhaps only since the pull was found to wait
            self._wake_all(lambda one: one == key)
            if not at_round_end(ANSWER, self.run_woken):
                self.run_woken()
            return True
        # Differs: a queue is checked again once a pull is held; in the original a message that arrives in between does
        # not wake the pull, which waits for the next message or the next scan
        look_again = functools.partial(self._look_again, topic, queue_id, pull_request)
        if not self._reput.call_when_dispatched(look_again):
            look_again()
        return True

    def _may_hold(self, channel: "Channel", key: tuple[str, int]) -> bool:
        with self._held_lock:
            held = self._held.get(channel)
            if held is None:
                held = self._held[channel] = _Held()
            count = held.by_queue.get(key, 0)
            if held.total >= MAX_HELD_OF_CHANNEL or count >= MAX_HELD_OF_CHANNEL_AND_QUEUE:
                return False
            held.by_queue[key], held.total = count + 1, held.total + 1
            return True

    def _no_longer_held(self, woken: list[PullRequest], key: tuple[str, int]) -> None:
        with self._held_lock:
            for request in woken:
                held = self._held[request.client_channel]
                held.total -= 1
                held.by_queue[key] -= 1
                if not held.by_queue[key]:
                    del held.by_queue[key]
                if not held.total:
                    del self._held[request.client_channel]

    def _look_again(self, topic: str, queue_id: int, pull_request: PullRequest) -> None:
        if topic in self._deleted_topics.names and not self._queues_of(topic):
            # The topic was deleted while the pull read the queue.
            self.answer_all(topic)
            return
        max_offset = self._queues.get_max_offset_in_queue(topic, queue_id)
        if max_offset > pull_request.pull_from_this_offset:
            self.notify_message_arriving(topic, queue_id, max_offset)

    def _list_of(self, key: tuple[str, int]) -> ManyPullRequest:
        many = self.pull_request_table.get(key)
        return many if many is not None else self.pull_request_table.setdefault(key, ManyPullRequest())

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        config = self._config
        while not self.stopped:
            self.wait_for_running(_CHECK_INTERVAL_MS if config.longPollingEnable else config.shortPollingTimeMills)
            begin = now_ms()
            try:
                with Round():
                    self.check_hold_request()
            except Exception:
                log.exception("%s service has exception. ", self.get_service_name())
            cost = now_ms() - begin
            if cost > _CHECK_INTERVAL_MS:
                log.info("[NOTIFYME] check hold request cost %d ms.", cost)
        log.info("%s service end", self.get_service_name())

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        """Return whether any pull of the queue is held."""
        many = self.pull_request_table.get((topic, queue_id))
        return many is not None and not many.is_empty

    def notify_message_arriving(self, topic: str, queue_id: int, max_offset: int, tags_code: int | None = None,
                                msg_store_time: int = 0, filter_bit_map: bytes | None = None,
                                properties: dict[str, str] | None = None) -> None:
        """Wake the pulls that want the message before `max_offset`, the new end of the queue, and the expired ones.

        `tags_code` None: the message is unknown, so all pulls want it.
        """
        many = self.pull_request_table.get((topic, queue_id))
        if many is None or many.is_empty:
            return
        queues = self._queues
        unit = CqExtUnit(tags_code or 0, msg_store_time, filter_bit_map)

        def wants_to_go(request: PullRequest) -> bool:
            if not request.client_channel.is_active:
                return True
            newest = max_offset
            if newest <= request.pull_from_this_offset:
                newest = queues.get_max_offset_in_queue(topic, queue_id)
            if newest > request.pull_from_this_offset:
                matched = request.message_filter.is_matched_by_consume_queue(tags_code, unit)
                if matched and properties is not None:
                    matched = request.message_filter.is_matched_by_commit_log(None, properties)
                if matched:
                    return True
            return request.is_expired(now_ms())

        woken = many.take(wants_to_go)
        if woken:
            self._no_longer_held(woken, (topic, queue_id))
            self._woken.extend(woken)
            if not at_round_end(ANSWER, self.run_woken):
                self.run_woken()

    def answer_all(self, topic: str) -> None:
        """Answer all held pulls of a topic now that it has been deleted."""
        self._wake_all(lambda key: key[0] == topic)
        self.run_woken()

    def end_holding(self) -> None:
        """Answer all held pulls, and hold no others: the broker is shutting down.

        A client that does not notice the end of its connection would wait for their answers, Java's 4.9.8 for 30 s.
        """
        self.is_ending = True
        self.wake_all()
        self.run_woken()

    def wake_all(self) -> None:
        """Wake all held pulls; `run_woken` answers them. Their clients pull again at once."""
        self._wake_all(lambda _key: True)

    def _wake_all(self, is_meant: Callable[[tuple[str, int]], bool]) -> None:
        for key, many in list(self.pull_request_table.items()):
            if is_meant(key):
                woken = many.take(lambda _request: True)
                self._no_longer_held(woken, key)
                self._woken.extend(woken)

    def run_woken(self) -> None:
        """Run all woken pulls again, on this thread; their responses leave together."""
        processor = self.processor
        with Round():
            while self._woken:
                try:
                    request = self._woken.popleft()
                except IndexError:
                    # Another thread took the last one.
                    return
                # Differs: a held pull whose connection is closed is dropped, not served
                if request.client_channel.is_active:
                    processor.execute_request_when_wakeup(request.client_channel, request.request_command)

    def check_hold_request(self) -> None:
        """Scan all held pulls: wake those that are due, and remove empty lists."""
        queues = self._queues
        for (topic, queue_id), many in list(self.pull_request_table.items()):
            # Differs: a queue's list of held pulls is closed before it is removed; in the original a pull may be added
            # to a list that is being removed, and is never answered
            if many.is_empty and many.close_if_empty():
                self.pull_request_table.pop((topic, queue_id), None)
                continue
            try:
                offset = queues.get_max_offset_in_queue(topic, queue_id)
                self.notify_message_arriving(topic, queue_id, offset)
            except Exception:
                log.exception("check hold request failed. topic=%s, queueId=%d", topic, queue_id)


class NotifyMessageArrivingListener(MessageArrivingListener):
    """The listener that wakes held pulls, on the dispatching thread.

    Java: org.apache.rocketmq.broker.longpolling.NotifyMessageArrivingListener (4.9.8)
    """

    def __init__(self, pull_request_hold_service: PullRequestHoldService) -> None:
        self._pull_request_hold_service = pull_request_hold_service

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        """Return whether any pull of the queue is held."""
        return self._pull_request_hold_service.is_waiting(topic, queue_id)

    def arriving(self, topic: str, queue_id: int, logic_offset: int, tags_code: int, msg_store_time: int,
                 filter_bit_map: bytes | None, properties: dict[str, str] | None) -> None:
        """Wake the pulls that want a message that has been added to its queue."""
        self._pull_request_hold_service.notify_message_arriving(
            topic, queue_id, logic_offset, tags_code, msg_store_time, filter_bit_map, properties)
