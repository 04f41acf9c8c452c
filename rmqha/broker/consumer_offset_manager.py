"""The consumer offsets: how far each group has read each queue, and their file, consumerOffset.json.

On a broker with light message queues the file is lmqConsumerOffset.json.
"""
import logging
import os
import threading
from collections.abc import Callable, Iterator

from rmqha.broker import broker_path_config_helper
from rmqha.broker.subscription_group_manager import MAX_GROUP_LENGTH, SubscriptionGroupManager
from rmqha.broker.topic_config_manager import TopicConfigManager
from rmqha.common import mix_all, util_all
from rmqha.common.config_manager import ConfigManager
from rmqha.common.data_version import entries_of
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.protocol import response_code
from rmqha.common.protocol.table_bodies import ConsumerOffsetSerializeWrapper
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import WrittenEntries
from rmqha.remoting.protocol.header_codec import KeptEntries
from rmqha.store.message_store_config import MessageStoreConfig

log = logging.getLogger("RocketmqBroker")

TOPIC_GROUP_SEPARATOR = "@"
# Limit of topic@group entries for groups that do not exist: offsets may be set before a group's first start.
MAX_UNKNOWN_GROUPS = 1000


@dataclass(slots=True)
class _OffsetFile:
    """The contents of the file, in the form of a ConsumerOffsetSerializeWrapper."""

    offsetTable: WrittenEntries


class ConsumerOffsetManager(ConfigManager):
    """The offsets by `topic@group` and queue. Any thread: single dict operations, and iteration over copies.

    Java: org.apache.rocketmq.broker.offset.ConsumerOffsetManager (4.9.8)
    """

    def __init__(self, message_store_config: MessageStoreConfig, topics: TopicConfigManager,
                 groups: SubscriptionGroupManager) -> None:
        self._store_config = message_store_config
        self._topics, self._groups = topics, groups
        self.offset_table: dict[str, dict[int, int]] = {}
        self._kept = KeptEntries(self.changes, lambda: list(self.offset_table), self._copy_of_entry)
        self._of_unknown_groups: set[str] = set()  # guarded by _adding
        self._adding = threading.Lock()

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """Return the topics for which a group has offsets."""
        return {topic for _key, topic, owner in self._entries() if owner == group}

    def topics_by_group(self) -> dict[str, set[str]]:
        """Return, for each group, the topics for which it has offsets."""
        topics: dict[str, set[str]] = {}
        for _key, topic, group in self._entries():
            topics.setdefault(group, set()).add(topic)
        return topics

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that have offsets for a topic."""
        return {group for _key, name, group in self._entries() if name == topic}

    def refusal(self, group: str, topic: str, queue_id: int) -> tuple[int, str] | None:
        """Return the code and remark that refuse a request to set this offset, or None to accept it.

        An offset of an unknown topic or group would stay in the table for ever.
        """
        # Differs: offsets are stored only for existing topics and queues, and for known groups or up to 1,000 others
        # (offsets may be set before a group's first start); the original stores any offset
        if self.query_offset(group, topic, queue_id) >= 0:
            return None
        config = self._topics.select_topic_config(topic)
        if config is None:
            return response_code.TOPIC_NOT_EXIST, f"topic[{topic}] not exist"
        queues = max(config.readQueueNums, config.writeQueueNums)
        if not 0 <= queue_id < queues:
            return response_code.SYSTEM_ERROR, f"queueId[{queue_id}] is illegal, topic:[{topic}] has {queues} queues"
        if not self._may_add(group, topic):
            return (response_code.SUBSCRIPTION_GROUP_NOT_EXIST,
                    f"subscription group [{group}] does not exist, and too many such groups have offsets already")
        return None

    def _may_add(self, group: str, topic: str) -> bool:
        """Return whether a group may get an entry for a topic."""
        known = self._groups.subscription_group_table
        key = topic + TOPIC_GROUP_SEPARATOR + group
        if group in known or key in self.offset_table:
            return True
        if len(group) > MAX_GROUP_LENGTH:
            return False
        with self._adding:
            if len(self._of_unknown_groups) >= MAX_UNKNOWN_GROUPS:
                self._of_unknown_groups = {one for one in self._of_unknown_groups if one in self.offset_table
                                           and one.rpartition(TOPIC_GROUP_SEPARATOR)[2] not in known}
            may = len(self._of_unknown_groups) < MAX_UNKNOWN_GROUPS
            if may:
                self._of_unknown_groups.add(key)
            return may

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset. A lower offset than the current one is accepted too, and logged."""
        key = topic + TOPIC_GROUP_SEPARATOR + group
        table = self.offset_table.get(key)
        if table is None:
            table = self.offset_table.setdefault(key, {})
        store_offset = table.get(queue_id)
        table[queue_id] = offset
        # Idle consumers commit the same offset every 5 s.
        if offset == store_offset:
            return
        self.note_change(key)
        if store_offset is not None and offset < store_offset:
            log.warning("[NOTIFYME]update consumer offset less than store. clientHost=%s, key=%s, queueId=%d, "
                        "requestOffset=%d, storeOffset=%d", client_host, key, queue_id, offset, store_offset)

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset; -1 if not found."""
        table = self.offset_table.get(topic + TOPIC_GROUP_SEPARATOR + group)
        return table.get(queue_id, -1) if table is not None else -1

    def config_file_path(self) -> str:
        """Return the path of consumerOffset.json."""
        return broker_path_config_helper.get_consumer_offset_path(self._store_config.storePathRootDir)

    def encode(self, pretty_format: bool = False) -> str:
        """Return the table as JSON."""
        if not pretty_format:
            return self.encode_entries(None)
        return remoting_serializable.to_json(_OffsetFile(self._kept.written()), True)

    def encode_entries(self, keys: list[str] | None) -> str:
        """Return some entries, all for None, as JSON. Removed entries are left out."""
        table = self.copy_of_entries(keys)
        return remoting_serializable.to_json(ConsumerOffsetSerializeWrapper(offsetTable=table))

    def copy_of_entries(self, keys: list[str] | None) -> dict[str, dict[int, int]]:
        """Return a copy of some entries of `offset_table`, all for None. Removed entries are left out."""
        return {key: dict(offsets) for key, offsets in entries_of(self.offset_table, keys).items()}

    def _copy_of_entry(self, key: str) -> dict[int, int] | None:
        offsets = self.offset_table.get(key)
        return None if offsets is None else dict(offsets)

    def decode(self, json_string: str) -> None:
        """Replace the table with one from JSON."""
        wrapper = remoting_serializable.from_json(ConsumerOffsetSerializeWrapper, json_string)
        self.offset_table = dict(wrapper.offsetTable or {})
        self.changes.note_all()

    def query_min_offset_in_all_group(self, topic: str, filter_groups: str | None,
                                      min_offset_in_queue: Callable[[str, int], int]) -> dict[int, int]:
        """Return the lowest offset of each queue over the groups that are not in the comma list `filter_groups`.

        Offsets below `min_offset_in_queue`, whose messages are deleted, do not count.
        """
        # Differs: the original removes the offsets of the groups that a QUERY_CORRECTION_OFFSET excludes from its live
        # table
        ignored = set() if util_all.is_blank(filter_groups) else set((filter_groups or "").split(","))
        result: dict[int, int] = {}
        for key, name, group in self._entries():
            if name != topic or group in ignored:
                continue
            for queue_id, offset in list(self.offset_table.get(key, {}).items()):
                if offset >= min_offset_in_queue(topic, queue_id):
                    result[queue_id] = min(offset, result.get(queue_id, offset))
        return result

    def query_offsets(self, group: str, topic: str) -> dict[int, int] | None:
        """Return the offsets of all queues, or None.

        Java: org.apache.rocketmq.broker.offset.ConsumerOffsetManager#queryOffset
        """
        return self.offset_table.get(topic + TOPIC_GROUP_SEPARATOR + group)

    def clone_offset(self, src_group: str, dest_group: str, topic: str) -> None:
        """Copy the offsets of one group to another, if that group may get an entry."""
        offsets = self.query_offsets(src_group, topic)
        if offsets is not None and self._may_add(dest_group, topic):
            key = topic + TOPIC_GROUP_SEPARATOR + dest_group
            self.offset_table[key] = dict(offsets)
            self.note_change(key)

    def remove_offset(self, group: str) -> None:
        """Remove all offsets of a group."""
        for key, _topic, owner in self._entries():
            if owner == group:
                self.offset_table.pop(key, None)
                self.note_change()
                log.warning("clean group offset %s", key)

    def remove_topic(self, topic: str) -> None:
        """Remove all offsets of a topic, and save the table."""
        keys = [key for key in list(self.offset_table) if key.startswith(topic + TOPIC_GROUP_SEPARATOR)]
        for key in keys:
            self.offset_table.pop(key, None)
            log.warning("remove topic offset, %s", key)
        if keys:
            self.note_change()
            self.persist()

    def _entries(self) -> Iterator[tuple[str, str, str]]:
        for key in list(self.offset_table):
            parts = key.split(TOPIC_GROUP_SEPARATOR)
            if len(parts) == 2:
                yield key, parts[0], parts[1]


@dataclass(slots=True)
class _Tables:
    """The contents of the file."""

    lmqOffsetTable: dict[str, int] = field(default_factory=dict)
    offsetTable: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _TablesFile:
    """The contents of the file, with the text of each entry."""

    lmqOffsetTable: WrittenEntries
    offsetTable: WrittenEntries


class LmqConsumerOffsetManager(ConsumerOffsetManager):
    """The offsets of groups that are named like a light queue, one per `topic@group`, and the table of other groups.

    Java: org.apache.rocketmq.broker.offset.LmqConsumerOffsetManager (4.9.8)
    """

    def __init__(self, message_store_config: MessageStoreConfig, topics: TopicConfigManager,
                 groups: SubscriptionGroupManager, has_queue: Callable[[str], bool]) -> None:
        super().__init__(message_store_config, topics, groups)
        # Returns whether the store has a light queue of this name.
        self._has_queue = has_queue
        self.lmq_offset_table: dict[str, int] = {}  # single dict operations
        self._kept_light = KeptEntries(self.changes, lambda: list(self.lmq_offset_table),
                                       lambda key: self.lmq_offset_table.get(key))

    def load(self) -> bool:
        """Read the file.

        Differs: without a file of its own, the LMQ table takes the offsets of consumerOffset.json, so that setting
        enableLmq keeps them; the original starts with an empty table.
        """
        path = self.config_file_path()
        if os.path.exists(path) or os.path.exists(path + ".bak"):
            return super().load()
        ordinary = ConsumerOffsetManager(self._store_config, self._topics, self._groups)
        if not ordinary.load():
            return False
        self.offset_table = ordinary.offset_table
        self.note_change()
        log.info("%s does not exist; using %s offsets from %s", path, len(self.offset_table),
                 ordinary.config_file_path())
        return True

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset; -1 if not found."""
        if not mix_all.is_lmq(group):
            return super().query_offset(group, topic, queue_id)
        return self.lmq_offset_table.get(topic + TOPIC_GROUP_SEPARATOR + group, -1)

    def query_offsets(self, group: str, topic: str) -> dict[int, int] | None:
        """Return the offsets of all queues, or None.

        For a group that is named like a light queue the result has only queue 0, or is empty.
        """
        if not mix_all.is_lmq(group):
            return super().query_offsets(group, topic)
        offset = self.lmq_offset_table.get(topic + TOPIC_GROUP_SEPARATOR + group)
        return {0: offset} if offset is not None else {}

    def _may_add(self, group: str, topic: str) -> bool:
        """Return whether a group may get an entry for a topic: at most twice the limit of light queues."""
        if not mix_all.is_lmq(group):
            return super()._may_add(group, topic)
        table, limit = self.lmq_offset_table, 2 * self._store_config.maxLmqConsumeQueueNum
        if len(table) >= limit:
            for key in list(table):
                name = key.partition(TOPIC_GROUP_SEPARATOR)[0]
                if mix_all.is_lmq(name) and not self._has_queue(name):
                    table.pop(key, None)
                    self.note_change()
        return len(group) <= MAX_GROUP_LENGTH and len(table) < limit

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset. A lower offset than the current one is accepted too."""
        if not mix_all.is_lmq(group):
            super().commit_offset(client_host, group, topic, queue_id, offset)
        else:
            key = topic + TOPIC_GROUP_SEPARATOR + group
            if self.lmq_offset_table.get(key) != offset:
                self.lmq_offset_table[key] = offset
                self.note_change(key)

    def remove_topic(self, topic: str) -> None:
        """Remove all offsets of a topic, and save the tables."""
        keys = [key for key in list(self.lmq_offset_table) if key.startswith(topic + TOPIC_GROUP_SEPARATOR)]
        for key in keys:
            self.lmq_offset_table.pop(key, None)
        super().remove_topic(topic)
        if keys:
            self.note_change()
            self.persist()

    def config_file_path(self) -> str:
        """Return the path of lmqConsumerOffset.json."""
        return broker_path_config_helper.get_lmq_consumer_offset_path(self._store_config.storePathRootDir)

    def encode(self, pretty_format: bool = False) -> str:
        """Return both tables as JSON."""
        if not pretty_format:
            return self.encode_entries(None)
        return remoting_serializable.to_json(_TablesFile(self._kept_light.written(), self._kept.written()), True)

    def encode_entries(self, keys: list[str] | None) -> str:
        """Return some entries of both tables, all for None, as JSON. Removed entries are left out."""
        light = entries_of(self.lmq_offset_table, keys)
        return remoting_serializable.to_json(_Tables(light, self.copy_of_entries(keys)))

    def decode(self, json_string: str) -> None:
        """Replace both tables with those from JSON."""
        tables = remoting_serializable.from_json(_Tables, json_string)
        self.offset_table = dict(tables.offsetTable or {})
        self.lmq_offset_table = dict(tables.lmqOffsetTable or {})
        self.changes.note_all()
