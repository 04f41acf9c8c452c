"""The topics of a broker: their table, its file topics.json, deletion of topics, and adoption by a new master.

`TopicDeletion` removes everything that the broker holds of a topic in one step. The topic cannot be created again until
the step is complete.

    admin thread --delete--> [topic table locked] out of the table -> store: mark, dispatch, queues -> offsets, filters,
                             statistics -> held pulls are answered
    slave        --take_over--> the same, for the marks of its master that its own log has reached

`adopt_topics` creates the topics for which a new master has messages but no table entry: the old master failed before
it reported them.
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqha.broker import broker_path_config_helper
from rmqha.common import mix_all, sys_flags, topics
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_manager import ConfigManager
from rmqha.common.data_version import DataVersion, entries_of
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol.table_bodies import KVTable, TopicConfigSerializeWrapper
from rmqha.common.topics import TopicConfig, TopicValidator
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import WrittenEntries
from rmqha.remoting.protocol.header_codec import KeptEntries
from rmqha.store.message_store_config import MessageStoreConfig

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


log = logging.getLogger("RocketmqBroker")

LOCK_TIMEOUT_S = 3.0
MAX_TOPICS = 100_000
# Beyond this number topics are only created explicitly, by `mqadmin updateTopic`.
MAX_AUTO_CREATED_TOPICS = 20_000
MAX_QUEUE_NUMS = 1 << 16  # per topic and broker
SCHEDULE_TOPIC_QUEUE_NUM = 18
_READ_WRITE = sys_flags.PERM_READ | sys_flags.PERM_WRITE


@dataclass(slots=True)
class _TopicFile:
    """The contents of the file, in the form of a TopicConfigSerializeWrapper."""

    dataVersion: DataVersion
    topicConfigTable: WrittenEntries


class TopicConfigManager(ConfigManager):
    """The topics by name. Reads need no lock; changes hold `_table_lock`. Each change is saved and registered.

    Creating, changing and deleting topics writes files and calls name servers, so IO threads must not do it.

    Java: org.apache.rocketmq.broker.topic.TopicConfigManager (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, message_store_config: MessageStoreConfig,
                 register: Callable[[], None]) -> None:
        self._config, self._store_config = broker_config, message_store_config
        # Registers a topic that a send has just created: at once, and without waiting for the name servers' responses.
        self._register = register
        self._table_lock = threading.Lock()
        # Only single dict operations; iterate over a copy.
        self.topic_config_table: dict[str, TopicConfig] = {}
        self.data_version = DataVersion()
        self._kept = KeptEntries(self.changes, lambda: list(self.topic_config_table), self.topic_config_table.get)
        self.topic_validator = TopicValidator()
        self._add_system_topics()

    def _add_system_topics(self) -> None:
        config = self._config
        self._add_system_topic(topics.RMQ_SYS_SELF_TEST_TOPIC, 1)
        if config.autoCreateTopicEnable:
            self._add_system_topic(topics.AUTO_CREATE_TOPIC_KEY_TOPIC, config.defaultTopicQueueNums,
                                   sys_flags.PERM_INHERIT | _READ_WRITE)
        self._add_system_topic(topics.RMQ_SYS_BENCHMARK_TOPIC, 1024)
        self._add_system_topic(config.brokerClusterName, 16,
                               sys_flags.PERM_INHERIT | (_READ_WRITE if config.clusterTopicEnable else 0))
        self._add_system_topic(config.brokerName, 1,
                               sys_flags.PERM_INHERIT | (_READ_WRITE if config.brokerTopicEnable else 0))
        self._add_system_topic(topics.RMQ_SYS_OFFSET_MOVED_EVENT, 1)
        self._add_system_topic(topics.RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUM)
        if config.traceTopicEnable:
            self._add_system_topic(config.msgTraceTopicName, 1)
        self._add_system_topic(mix_all.get_reply_topic(config.brokerClusterName), 1)

    def _add_system_topic(self, topic: str, queue_nums: int, perm: int = _READ_WRITE) -> None:
        self.topic_validator.add_system_topic(topic)
        self.topic_config_table[topic] = TopicConfig(topic, queue_nums, queue_nums, perm)

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """Return the topic, or None."""
        return self.topic_config_table.get(topic)

    def queues_of(self, topic: str) -> int:
        """Return the number of queue ids of the topic; 0 when it does not exist."""
        config = self.select_topic_config(topic)
        return max(config.writeQueueNums, config.readQueueNums) if config is not None else 0

    def create_topic_in_send_message_method(self, topic: str, default_topic: str, remote_address: str,
                                            client_default_topic_queue_nums: int,
                                            sys_flag: int) -> TopicConfig | None:
        """Return the topic; create it from `default_topic` if it is new and that topic has the inherit permission."""
        def make() -> TopicConfig | None:
            config = self._inherit(topic, default_topic, remote_address, client_default_topic_queue_nums, sys_flag)
            if config is not None:
                log.info("Create new topic by default topic:[%s] config:[%s] producer:[%s]", default_topic, config,
                         remote_address)
            return config

        return self._get_or_create(topic, make)

    def create_topic_in_send_message_back_method(self, topic: str, client_default_topic_queue_nums: int, perm: int,
                                                 sys_flag: int) -> TopicConfig | None:
        """Return the topic, for retry and dead letter topics; create it with this number of queues if it is new."""
        def make() -> TopicConfig:
            queues = min(client_default_topic_queue_nums, MAX_QUEUE_NUMS)
            config = TopicConfig(topic, queues, queues, perm, topicSysFlag=sys_flag)
            log.info("create new topic %s", config)
            return config

        return self._get_or_create(topic, make)

    def create_topic_of_tran_check_max_time(self, client_default_topic_queue_nums: int,
                                            perm: int) -> TopicConfig | None:
        """Return the topic for half messages that are no longer checked; create it if it is new."""
        return self.create_topic_in_send_message_back_method(
            topics.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, client_default_topic_queue_nums, perm, 0)

    def update_topic_config(self, topic_config: TopicConfig) -> None:
        """Create or replace a topic."""
        with self._table_lock:
            name = topic_config.topicName
            old = self.topic_config_table.get(name)
            self.topic_config_table[name] = topic_config
            self._changed(name)
        if old is not None:
            log.info("update topic config, old:[%s] new:[%s]", old, topic_config)
        else:
            log.info("create new topic [%s]", topic_config)
        self.persist()

    def update_order_topic_config(self, order_kv_table_from_ns: KVTable | None) -> None:
        """Mark as ordered exactly the topics that the name server lists as ordered."""
        if order_kv_table_from_ns is None or order_kv_table_from_ns.table is None:
            return
        order_topics = order_kv_table_from_ns.table
        changed = []
        with self._table_lock:
            for topic, config in self.topic_config_table.items():
                if config.order != (topic in order_topics):
                    config.order = topic in order_topics
                    changed.append(topic)
                    log.info("update order topic config, topic=%s, order=%s", topic, config.order)
            if changed:
                self._changed(*changed)
        if changed:
            self.persist()

    def is_order_topic(self, topic: str) -> bool:
        """Return whether the topic is ordered."""
        config = self.topic_config_table.get(topic)
        return config is not None and config.order

    def delete_topic_config(self, topic: str) -> None:
        """Remove a topic from the table."""
        with self.without(topic):
            pass

    @contextmanager
    def without(self, topic: str) -> Iterator[bool]:
        """Remove a topic from the table and yield whether it was there.

        The topic cannot be created again while the block runs. If the block raises, the topic is put back.
        """
        with self._table_lock:
            old = self.topic_config_table.pop(topic, None)
            try:
                yield old is not None
            except BaseException:
                if old is not None:
                    self.topic_config_table[topic] = old
                raise
            if old is None:
                log.warning("delete topic config failed, topic: %s not exists", topic)
                return
            self._changed()
            log.info("delete topic config OK, topic: %s", old)
            self.persist()

    @contextmanager
    def unless_known(self, topic: str) -> Iterator[bool]:
        """Yield whether the topic is unknown. It cannot be created while the block runs."""
        with self._table_lock:
            yield topic not in self.topic_config_table

    def note_another_owner(self) -> None:
        """Raise the table's version after a change of the broker's role or permission: name servers must read all
        topics again."""
        self._changed()

    def _changed(self, *names: str) -> None:
        """Note that these topics are new or have changed; without a name, that a topic was removed."""
        self.data_version.next_version()
        self.note_change(*names)

    def build_topic_config_serialize_wrapper(self, names: Iterable[str] | None = None) -> TopicConfigSerializeWrapper:
        """Return a copy of the table, or of some of its topics, with its version, for name servers and slaves."""
        # Copy the version before the table: a concurrent change is then sent again with the next version.
        version = self.data_version.copy()
        return TopicConfigSerializeWrapper(entries_of(self.topic_config_table, names), version)

    def config_file_path(self) -> str:
        """Return the path of topics.json."""
        return broker_path_config_helper.get_topic_config_path(self._store_config.storePathRootDir)

    def encode(self, pretty_format: bool = False) -> str:
        """Return the table as JSON."""
        if not pretty_format:
            return remoting_serializable.to_json(self.build_topic_config_serialize_wrapper())
        return remoting_serializable.to_json(_TopicFile(self.data_version.copy(), self._kept.written()), True)

    def decode(self, json_string: str) -> None:
        """Merge a table from JSON into this one; topics that only this table has are kept."""
        wrapper = remoting_serializable.from_json(TopicConfigSerializeWrapper, json_string)
        self.topic_config_table.update(wrapper.topicConfigTable or {})
        self.changes.note_all()
        if wrapper.dataVersion is not None:
            self.data_version.assign_new_one(wrapper.dataVersion)
        for config in (wrapper.topicConfigTable or {}).values():
            log.info("load exist local topic, %s", config)

    def _get_or_create(self, topic: str, make: Callable[[], TopicConfig | None]) -> TopicConfig | None:
        config = self.topic_config_table.get(topic)
        if config is not None:
            return config
        if not self._table_lock.acquire(timeout=LOCK_TIMEOUT_S):
            log.error("create topic %s: the topic table is locked for more than %s s", topic, LOCK_TIMEOUT_S)
            return None
        try:
            config = self.topic_config_table.get(topic)
            if config is not None:
                return config
            # Differs: no topic is created automatically once there are 20,000; the original has no limit
            config = make() if len(self.topic_config_table) < MAX_AUTO_CREATED_TOPICS else None
            if config is None:
                return None
            self.topic_config_table[topic] = config
            self._changed(topic)
            self.persist()
        finally:
            self._table_lock.release()
        self._register()
        return config

    def _inherit(self, topic: str, default_topic: str, remote_address: str, queue_nums: int,
                 sys_flag: int) -> TopicConfig | None:
        default = self.topic_config_table.get(default_topic)
        if default is None:
            log.warning("Create new topic failed, because the default topic[%s] not exist. producer:[%s]",
                        default_topic, remote_address)
            return None
        if default_topic == topics.AUTO_CREATE_TOPIC_KEY_TOPIC and not self._config.autoCreateTopicEnable:
            default.perm = _READ_WRITE
            self.changes.note([default_topic])
        if not sys_flags.is_inherited(default.perm):
            log.warning("Create new topic failed, because the default topic[%s] has no perm [%s] producer:[%s]",
                        default_topic, default.perm, remote_address)
            return None
        queues = max(0, min(queue_nums, default.writeQueueNums))
        return TopicConfig(topic, queues, queues, default.perm & ~sys_flags.PERM_INHERIT, default.topicFilterType,
                           sys_flag)


class LmqTopicConfigManager(TopicConfigManager):
    """A topic table for which every light queue exists, with one read and one write queue; none is stored in the table.

    Java: org.apache.rocketmq.broker.topic.LmqTopicConfigManager (4.9.8)
    """

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """Return the topic, or None."""
        if mix_all.is_lmq(topic):
            return TopicConfig(topic, 1, 1, sys_flags.PERM_READ | sys_flags.PERM_WRITE)
        return super().select_topic_config(topic)

    def update_topic_config(self, topic_config: TopicConfig) -> None:
        """Create or replace a topic; do nothing for a light queue."""
        if not mix_all.is_lmq(topic_config.topicName):
            super().update_topic_config(topic_config)


class TopicDeletion:
    """Deletes topics, for AdminBrokerProcessor, SlaveSynchronize and offset commits. Any thread but the IO threads.

    Differs: a deletion removes a topic's table entry, queues, offsets, filters and held pulls in one step. The original
    removes the topic from its table, then destroys the queues of all topics that it does not know. Meanwhile sends that
    were already admitted continue, and the dispatch lags. When the topic is created again, messages that it
    acknowledges may be missing from its queues. It also keeps offsets, filters and held pulls.
    """

    def __init__(self, store: DefaultMessageStore, topics: TopicConfigManager,
                 forget: Iterable[Callable[[str], None]]) -> None:
        self._store, self._topics = store, topics
        self._forgets = tuple(forget)  # each drops its own data of a topic

    def delete(self, topic: str) -> None:
        """Delete a topic, or the remains of one.

        Raises OSError when the mark of the deletion cannot be written; nothing is deleted then.
        """
        store = self._store
        with self._topics.without(topic) as was_there:
            # Without this check, deleting an unknown name would leave a mark behind for ever.
            if was_there or topic in store.consume_queue_table:
                store.delete_topic(topic)
            self._forget(topic)

    def delete_light_queue(self, topic: str) -> None:
        """Delete a light queue, which is in no table. Raises OSError as `delete` does."""
        if topic in self._store.consume_queue_table:
            self._store.delete_topic(topic)
            self._forget(topic)

    def delete_unused(self, take_topics: Callable[[], None]) -> None:
        """Delete the queues of all topics that are not in the table.

        A slave first updates its table from the master, with `take_topics`. Raises RemotingException when the master
        does not answer; nothing is deleted then.
        """
        table = self._topics.topic_config_table
        if self._store.role.is_slave:
            self._delete_unused_of_slave(table, take_topics)
            return
        for topic in self._store.queue_removal.unused_topics(list(table)):
            with self._topics.unless_known(topic) as is_unknown:
                if is_unknown:
                    self._store.delete_topic(topic)
                    self._forget(topic)

    def _delete_unused_of_slave(self, table: Mapping[str, TopicConfig], take_topics: Callable[[], None]) -> None:
        """Delete unused queues on a slave: each topic that exists here now is in the master's table or was deleted."""
        # Differs: a slave fetches its master's table of topics before it deletes unused queues; the original uses a
        # table that is up to 10 s old, and deletes the queues of topics created since
        came_to = self._store.reput_message_service.reput_from_offset
        unused = self._store.queue_removal.unused_topics(())
        take_topics()
        self.take_over({topic: came_to for topic in unused if topic not in table})

    def delete_expired(self) -> None:
        """Delete the queues without messages of all topics that are not in the table."""
        self._store.clean_expired_consumer_queue(
            lambda topic: mix_all.is_lmq(topic) or self._topics.select_topic_config(topic) is not None)

    def marks(self) -> dict[str, int]:
        """Return the marks of all deletions, for slaves."""
        return dict(self._store.deleted_topics.marks)

    def take_over(self, marks: Mapping[str, int]) -> None:
        """Apply the marks of the master's deletions on a slave."""
        for topic in self._store.queue_removal.take_over(marks):
            log.info("topic %s was deleted on the master before offset %s of the log", topic, marks[topic])
            self._forget(topic)

    def is_stale(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether a consumer offset belongs to a deleted topic: the topic does not exist, or was created again
        and its queue ends before the offset."""
        store = self._store
        if topic not in store.deleted_topics.names:
            return False
        queue = store.get_consume_queue(topic, queue_id)
        end = max(store.commit_log.topic_queue_table.get(f"{topic}-{queue_id}", 0),
                  queue.get_max_offset_in_queue() if queue is not None else 0)
        return not self._topics.queues_of(topic) or offset > end

    def _forget(self, topic: str) -> None:
        # Differs: a topic's statistics are deleted with it, whatever the value of autoDeleteUnusedStats
        for forget in self._forgets:
            forget(topic)


def adopt_topics(store: DefaultMessageStore, topics: TopicConfigManager) -> list[str]:
    """Create the topics that have messages in their queues but are not in the table, and return their names.

    Differs: a new master creates the topics that have messages in their queues but are missing in its table; in 5.1.4
    their acknowledged messages cannot be read until the topic is created again. The queues beyond the last one with
    messages, and the topic's other settings, are lost.
    """
    with store.consume_queue_table.lock:
        unknown = {topic: list(queues.values()) for topic, queues in store.consume_queue_table.items()
                   if topic not in topics.topic_config_table and not mix_all.is_lmq(topic)}
    adopted = []
    for topic, queues in unknown.items():
        used = [queue.queue_id for queue in queues if queue.get_max_offset_in_queue() > 0]
        if used:
            count = max(used) + 1
            log.warning("the topic %s has messages, but the last master did not report it: creating it with %d queues",
                        topic, count)
            topics.update_topic_config(TopicConfig(topic, count, count))
            adopted.append(topic)
    return adopted
