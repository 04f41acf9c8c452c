"""How far each consumer group is in each of its topics, on this broker."""
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqha.broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR
from rmqha.common.metrics import Pace
from rmqha.common.mix_all import DLQ_GROUP_TOPIC_PREFIX
from rmqha.common.subscriptions import MessageModel
from rmqha.common.util_all import current_time_millis

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.broker.client.consumer_group_info import ConsumerGroupInfo
    from rmqha.store.default_message_store import DefaultMessageStore


class GroupProgress(NamedTuple):
    """One group in one topic, all queues of this broker together."""

    topic: str
    group: str
    members: "ConsumerGroupInfo | None"  # None: nobody is online
    consumed: int  # sum of the committed offsets; a queue without one counts as 0
    behind: int  # messages behind them
    behind_committed: int  # the same, of the queues that have a committed offset
    behind_ms: int  # age of the oldest of them, 0 when there are none

    @property
    def is_clustering(self) -> bool:
        """Whether the group shares the messages; a group that is not online is taken for one that does."""
        return self.members is None or self.members.message_model is not MessageModel.BROADCASTING


class StoreTimes:
    """When messages were stored: each is looked up once, as long as each scrape asks for it.

    A scrape reads the log for what has moved, where a consumer reads at that time, and not for what stands still.
    """

    def __init__(self, store: "DefaultMessageStore") -> None:
        self._store = store
        self._known: dict[tuple[str, int, int], int] = {}  # replaced as a whole, by each scrape

    def of_scrape(self, pace: Pace) -> "ScrapeTimes":
        """To be used for one scrape."""
        return ScrapeTimes(self._store, self._known, pace)

    def keep(self, times: "ScrapeTimes") -> None:
        """The scrape is over."""
        self._known = times.used


class ScrapeTimes:
    """The store times that one scrape asks for."""

    def __init__(self, store: "DefaultMessageStore", known: dict[tuple[str, int, int], int], pace: Pace) -> None:
        self._store, self._known, self._pace = store, known, pace
        self.used: dict[tuple[str, int, int], int] = {}

    def of(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time (ms) of message `offset` of a queue; -1 when it is not there."""
        key = topic, queue_id, offset
        time_ms = self._known.get(key, self.used.get(key, -1))
        if time_ms < 0:
            self._pace.step()
            time_ms = self._store.get_message_store_timestamp(topic, queue_id, offset)
        if time_ms >= 0:
            self.used[key] = time_ms
        return time_ms


def group_progress(controller: "BrokerController", times: ScrapeTimes, pace: Pace) -> Iterator[GroupProgress]:
    """Each group in each topic that it subscribes to, or has offsets of; dead-letter topics are left out."""
    members = {info.group_name: info for info in controller.consumer_manager.groups()}
    for topic, group in _pairs(controller, members):
        pace.step()
        config = controller.topic_config_manager.select_topic_config(topic)
        info = members.get(group)
        if config is None or info is not None and info.subscription_table and topic not in info.subscription_table:
            continue
        yield _progress(controller, times, pace, GroupProgress(topic, group, info, 0, 0, 0, 0), config.readQueueNums)


def is_consumer(controller: "BrokerController", topic: str, group: str) -> bool:
    """Whether the group subscribes to the topic, or has offsets of it."""
    return (topic + TOPIC_GROUP_SEPARATOR + group in controller.consumer_offset_manager.offset_table
            or controller.consumer_manager.find_subscription_data(group, topic) is not None)


def _pairs(controller: "BrokerController", members: "dict[str, ConsumerGroupInfo]") -> Iterator[tuple[str, str]]:
    """(topic, group), each once; none of dead letters. A table of all would bring on garbage collections."""
    offsets = controller.consumer_offset_manager.offset_table
    for key in list(offsets):
        topic, _at, group = key.partition(TOPIC_GROUP_SEPARATOR)
        if group and not topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
            yield topic, group
    for group, info in members.items():
        for topic in list(info.subscription_table):
            if topic + TOPIC_GROUP_SEPARATOR + group not in offsets and not topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
                yield topic, group


def _progress(controller: "BrokerController", times: ScrapeTimes, pace: Pace, none: GroupProgress,
              queue_nums: int) -> GroupProgress:
    store, topic, now_ms = controller.message_store, none.topic, current_time_millis()
    offsets = controller.consumer_offset_manager.query_offsets(none.group, topic) or {}
    consumed = behind = behind_committed = behind_ms = 0
    for queue_id in range(queue_nums):
        pace.step()
        end = max(0, store.get_max_offset_in_queue(topic, queue_id))
        committed = offsets.get(queue_id, -1)
        at = max(0, committed)
        consumed += at
        if at >= end:
            continue
        behind += end - at
        if committed >= 0:
            behind_committed += end - at
        time_ms = times.of(topic, queue_id, max(at, store.get_min_offset_in_queue(topic, queue_id)))
        if time_ms >= 0:
            behind_ms = max(behind_ms, now_ms - time_ms)
    return none._replace(consumed=consumed, behind=behind, behind_committed=behind_committed, behind_ms=behind_ms)
