"""The filter expressions of consumer groups and their file, consumerFilter.json."""
import logging
import threading
from collections.abc import Iterable

from rmqha.broker import broker_path_config_helper
from rmqha.common import subscriptions as expression_type
from rmqha.common import util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_manager import ConfigManager
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.subscriptions import SubscriptionData
from rmqha.filter import selector_parser
from rmqha.filter.bloom_filter import BloomFilter, BloomFilterData
from rmqha.filter.expressions import Expression, MQFilterException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.message_store_config import MessageStoreConfig


@dataclass(eq=False)
class ConsumerFilterData:
    """A group's expression for a topic, its compiled form, and the group's bits in the bloom filter.

    Times are ms since the epoch. deadTime 0: not dead.

    Java: org.apache.rocketmq.broker.filter.ConsumerFilterData (4.9.8)
    """

    consumerGroup: str | None = None
    topic: str | None = None
    expression: str | None = None
    expressionType: str | None = None
    compiled_expression: Expression | None = field(default=None, metadata={"json": False}, repr=False)
    bornTime: int = 0
    deadTime: int = 0
    bloomFilterData: BloomFilterData | None = None
    clientVersion: int = 0
    # For the file only, as in Java; see is_dead.
    dead: bool = field(default=False, init=False)

    @property
    def is_dead(self) -> bool:
        """True if no consumer of the group has been online since deadTime."""
        return self.deadTime >= self.bornTime

    def how_long_after_death(self) -> int:
        """Return the ms since deadTime; -1 while the group is alive."""
        return util_all.current_time_millis() - self.deadTime if self.is_dead else -1

    def is_msg_in_live(self, msg_store_time: int) -> bool:
        """Return whether a message stored at this time has the group's result in its bit map."""
        return msg_store_time > self.bornTime


log = logging.getLogger("RocketmqFilter")

MAX_EXPRESSION_LENGTH = 64 * 1024
MAX_CHARACTERS = 32 << 20  # of the expressions of all groups
# Characters that are added to the length of each expression, for its compiled form.
_OVERHEAD = 1600
_DEAD_BEFORE_LOAD_MS = 30 * 1000


@dataclass
class FilterDataMapByTopic:
    """The expressions of all groups for one topic.

    Java: org.apache.rocketmq.broker.filter.ConsumerFilterManager$FilterDataMapByTopic (4.9.8)
    """

    topic: str | None = None
    groupFilterData: dict[str, ConsumerFilterData] = field(default_factory=dict)

    def un_register(self, consumer_group: str) -> bool:
        """Mark the group as dead after its last consumer disconnected; return whether it was alive."""
        data = self.groupFilterData.get(consumer_group)
        if data is None or data.is_dead:
            return False
        now = util_all.current_time_millis()
        log.info("Unregister consumer filter: %s, deadTime: %d", data, now)
        data.deadTime = now
        return True

    def register(self, consumer_group: str, expression: str, type_: str, bloom_filter_data: BloomFilterData,
                 client_version: int) -> bool:
        """Set a group's expression of this version; return False when it is older than ours or does not compile."""
        old = self.groupFilterData.get(consumer_group)
        if old is None:
            data = build(self.topic, consumer_group, expression, type_, client_version)
            if data is None:
                return False
            data.bloomFilterData = bloom_filter_data
            self.groupFilterData[consumer_group] = data
            log.info("New consumer filter registered: %s", data)
            return True
        if client_version <= old.clientVersion:
            return self._keep(old, expression, type_, client_version)
        if (old.expression, old.expressionType, old.bloomFilterData) == (expression, type_, bloom_filter_data):
            old.clientVersion = client_version
            if old.is_dead:
                _re_alive(old)
            return True
        data = build(self.topic, consumer_group, expression, type_, client_version)
        # The consumer gets the error when it pulls.
        if data is None:
            del self.groupFilterData[consumer_group]
            return False
        data.bloomFilterData = bloom_filter_data
        self.groupFilterData[consumer_group] = data
        log.info("Consumer filter info change, old: %s, new: %s, change: true", old, data)
        return True

    def _keep(self, old: ConsumerFilterData, expression: str, type_: str, client_version: int) -> bool:
        if (type_, expression) != (old.expressionType, old.expression):
            log.info("Ignore consumer(%s:%s) filter, because of version %d <= %d, but maybe info changed!old=%s:%s, "
                     "ignored=%s:%s", old.consumerGroup, self.topic, client_version, old.clientVersion,
                     old.expressionType, old.expression, type_, expression)
        if client_version == old.clientVersion and old.is_dead:
            _re_alive(old)
            return True
        return False


@dataclass
class _File:
    """The contents of consumerFilter.json."""

    filterDataByTopic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)


class ConsumerFilterManager(ConfigManager):
    """The expressions by topic and group. Changes hold `_lock`; pulls and the dispatch read without it.

    Java: org.apache.rocketmq.broker.filter.ConsumerFilterManager (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, message_store_config: MessageStoreConfig) -> None:
        self._config, self._store_config = broker_config, message_store_config
        self.filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}
        self.bloom_filter = BloomFilter.create_by_fn(broker_config.maxErrorRateOfBloomFilter,
                                                     broker_config.expectConsumerNumUseFilter)
        message_store_config.bitMapLengthConsumeQueueExt = self.bloom_filter.m
        self._lock = threading.Lock()
        self._characters = 0  # guarded by _lock

    def register(self, consumer_group: str, sub_list: Iterable[SubscriptionData]) -> None:
        """Set all subscriptions of a group; its expressions for other topics become dead."""
        subscriptions = list(sub_list)
        if all(expression_type.is_tag_type(one.expressionType) for one in subscriptions) \
                and not self.filter_data_by_topic:
            return
        with self._lock:
            for one in subscriptions:
                self._register_one(one.topic, consumer_group, one.subString, one.expressionType, one.subVersion)
            topics = {one.topic for one in subscriptions}
            for data in self.get_by_group(consumer_group):
                if data.topic not in topics and not data.is_dead:
                    data.deadTime = util_all.current_time_millis()
                    self.note_change()
                    log.info("Consumer filter changed: %s, make illegal topic dead:%s", consumer_group, data)

    def _register_one(self, topic: str | None, consumer_group: str, expression: str | None, type_: str | None,
                      client_version: int) -> bool:
        if topic is None or type_ is None or expression_type.is_tag_type(type_) or not expression:
            return False
        by_topic = self.filter_data_by_topic.get(topic) or FilterDataMapByTopic(topic)
        # Differs: all filter expressions together have at most 32 Mi characters; the original keeps any number, for at
        # least a day
        old = by_topic.groupFilterData.get(consumer_group)
        if self._characters - _size(old) + len(expression) + _OVERHEAD > MAX_CHARACTERS:
            log.warning("too many expressions: the expression of group %s for topic %s is not stored", consumer_group,
                        topic)
            return False
        bloom_filter_data = self.bloom_filter.generate(f"{consumer_group}#{topic}")
        registered = by_topic.register(consumer_group, expression, type_, bloom_filter_data, client_version)
        if by_topic.groupFilterData:
            self.filter_data_by_topic[topic] = by_topic
        new = by_topic.groupFilterData.get(consumer_group)
        self._characters += _size(new) - _size(old)
        if registered or new is not old:
            self.note_change()
        return registered

    def un_register(self, consumer_group: str) -> None:
        """Mark the group as dead after its last consumer disconnected."""
        with self._lock:
            for by_topic in self.filter_data_by_topic.values():
                if by_topic.un_register(consumer_group):
                    self.note_change()

    def remove_topic(self, topic: str) -> None:
        """Remove the expressions of all groups for a topic, and save the table. Consumers that are online send them
        again."""
        with self._lock:
            removed = self.filter_data_by_topic.pop(topic, None)
        if removed is not None:
            log.info("Remove consumer filters of the deleted topic %s", topic)
            self.note_change()
            self.persist()

    def get(self, topic: str, consumer_group: str) -> ConsumerFilterData | None:
        """Return a group's expression for a topic, or None."""
        by_topic = self.filter_data_by_topic.get(topic)
        return by_topic.groupFilterData.get(consumer_group) if by_topic is not None else None

    def get_by_group(self, consumer_group: str) -> list[ConsumerFilterData]:
        """Return a group's expressions for all topics."""
        return [by_topic.groupFilterData[consumer_group] for by_topic in list(self.filter_data_by_topic.values())
                if consumer_group in by_topic.groupFilterData]

    def get_by_topic(self, topic: str) -> list[ConsumerFilterData]:
        """Return the expressions of all groups for a topic."""
        by_topic = self.filter_data_by_topic.get(topic)
        return list(by_topic.groupFilterData.values()) if by_topic is not None else []

    def config_file_path(self) -> str:
        """Return the path of consumerFilter.json."""
        return broker_path_config_helper.get_consumer_filter_path(self._store_config.storePathRootDir)

    def decode(self, json_string: str) -> None:
        """Load a table from JSON, unless its bits belong to a different bloom filter. Raises FastjsonError."""
        table = remoting_serializable.from_json(_File, json_string).filterDataByTopic
        for by_topic in table.values():
            for data in by_topic.groupFilterData.values():
                if not self.bloom_filter.is_valid(data.bloomFilterData):
                    log.info("Bloom filter is changed!So ignore all filter data persisted! %s, %s", self.bloom_filter,
                             data.bloomFilterData)
                    return
                self._take_over(data)
        self.filter_data_by_topic = table
        self._characters = sum(_size(data) for by_topic in table.values() for data in by_topic.groupFilterData.values())

    @staticmethod
    def _take_over(data: ConsumerFilterData) -> None:
        data.compiled_expression = _compile(data.expression, data.expressionType, data.topic, data.consumerGroup)
        log.info("load exist consumer filter data: %s", data)
        # No consumer is online yet.
        if data.deadTime == 0:
            data.deadTime = max(data.bornTime, util_all.current_time_millis() - _DEAD_BEFORE_LOAD_MS)

    def persist_changes(self) -> None:
        """Remove expressions that have been dead for too long, and save the table if it has changed."""
        with self._lock:
            self._clean()
        super().persist_changes()

    def encode(self, pretty_format: bool = False) -> str:
        """Return the table as JSON, without expressions that have been dead for too long."""
        with self._lock:
            self._clean()
            for by_topic in self.filter_data_by_topic.values():
                for data in by_topic.groupFilterData.values():
                    data.dead = data.is_dead
            return remoting_serializable.to_json(_File(self.filter_data_by_topic), pretty_format)

    def _clean(self) -> None:
        limit_ms = self._config.filterDataCleanTimeSpan
        for topic, by_topic in list(self.filter_data_by_topic.items()):
            for group, data in list(by_topic.groupFilterData.items()):
                if data.how_long_after_death() >= limit_ms:
                    log.info("Remove filter consumer %s, died too long!", data)
                    del by_topic.groupFilterData[group]
                    self.note_change()
                    self._characters -= _size(data)
            if not by_topic.groupFilterData:
                log.info("Topic has no consumer, remove it! %s", topic)
                del self.filter_data_by_topic[topic]


def _size(data: ConsumerFilterData | None) -> int:
    return len(data.expression or "") + _OVERHEAD if data is not None else 0


def build(topic: str | None, consumer_group: str, expression: str | None, type_: str | None,
          client_version: int) -> ConsumerFilterData | None:
    """Return an expression without its bits; None for tags and for an expression that does not compile."""
    if expression_type.is_tag_type(type_):
        return None
    compiled = _compile(expression, type_, topic, consumer_group)
    if compiled is None:
        return None
    return ConsumerFilterData(consumerGroup=consumer_group, topic=topic, expression=expression, expressionType=type_,
                              compiled_expression=compiled, bornTime=util_all.current_time_millis(),
                              clientVersion=client_version)


def _compile(expression: str | None, type_: str | None, topic: str | None, group: str | None) -> Expression | None:
    spi = selector_parser.get(type_)
    if spi is None or expression is None:
        log.error("parse error: expr=%s, topic=%s, group=%s, error=unknown filter type %s", expression, topic, group,
                  type_)
        return None
    # Differs: a filter expression of more than 64 KiB does not compile, because each term is evaluated for each message
    if len(expression) > MAX_EXPRESSION_LENGTH:
        log.error("parse error: topic=%s, group=%s, error=the expression is too long: %d characters", topic, group,
                  len(expression))
        return None
    try:
        return spi.compile(expression)
    except MQFilterException as failure:
        log.error("parse error: expr=%s, topic=%s, group=%s, error=%s", expression, topic, group, failure)
        return None


def _re_alive(data: ConsumerFilterData) -> None:
    log.info("Re alive consumer filter: %s, oldDeadTime: %d", data, data.deadTime)
    data.deadTime = 0
