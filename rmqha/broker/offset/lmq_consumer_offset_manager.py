"""How far each group has read, on a broker with light message queues, and the file of it, lmqConsumerOffset.json."""
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqha.broker import broker_path_config_helper
from rmqha.broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager
from rmqha.broker.subscription.subscription_group_manager import MAX_GROUP_LENGTH
from rmqha.common import mix_all
from rmqha.common.data_version import entries_of
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import WrittenEntries
from rmqha.remoting.protocol.header_codec import KeptEntries

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController

log = logging.getLogger("RocketmqBroker")


@dataclass(slots=True)
class _Tables:
    """What the file holds."""

    lmqOffsetTable: dict[str, int] = field(default_factory=dict)
    offsetTable: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _TablesFile:
    """The same, with the text of each entry."""

    lmqOffsetTable: WrittenEntries
    offsetTable: WrittenEntries


class LmqConsumerOffsetManager(ConsumerOffsetManager):
    """One offset by `topic@group` for groups named like a light queue, besides the table of all other groups.

    Java: org.apache.rocketmq.broker.offset.LmqConsumerOffsetManager (4.9.8)
    """

    def __init__(self, broker_controller: "BrokerController") -> None:
        super().__init__(broker_controller)
        self.lmq_offset_table: dict[str, int] = {}  # single dict operations
        self._kept_light = KeptEntries(self.changes, lambda: list(self.lmq_offset_table),
                                       lambda key: self.lmq_offset_table.get(key))

    def load(self) -> bool:
        """Read the file.

        Differs: without one the offsets of consumerOffset.json are taken over, so that enableLmq forgets none; the
        original starts with an empty table.
        """
        path = self.config_file_path()
        if os.path.exists(path) or os.path.exists(path + ".bak"):
            return super().load()
        ordinary = ConsumerOffsetManager(self._broker_controller)
        if not ordinary.load():
            return False
        self.offset_table = ordinary.offset_table
        self.note_change()
        log.info("%s is not there, %s offsets are taken over from %s", path, len(self.offset_table),
                 ordinary.config_file_path())
        return True

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The offset, -1 when there is none."""
        if not mix_all.is_lmq(group):
            return super().query_offset(group, topic, queue_id)
        return self.lmq_offset_table.get(topic + TOPIC_GROUP_SEPARATOR + group, -1)

    def query_offsets(self, group: str, topic: str) -> dict[int, int] | None:
        """The offsets of all queues, or None; a group named like a light queue has queue 0 or an empty table."""
        if not mix_all.is_lmq(group):
            return super().query_offsets(group, topic)
        offset = self.lmq_offset_table.get(topic + TOPIC_GROUP_SEPARATOR + group)
        return {0: offset} if offset is not None else {}

    def _may_add(self, group: str, topic: str) -> bool:
        """Whether a group may get an entry for a topic: at most twice as many as there may be light queues."""
        if not mix_all.is_lmq(group):
            return super()._may_add(group, topic)
        table, store = self.lmq_offset_table, self._broker_controller.message_store
        limit = 2 * self._broker_controller.message_store_config.maxLmqConsumeQueueNum
        if len(table) >= limit:
            for key in list(table):
                name = key.partition(TOPIC_GROUP_SEPARATOR)[0]
                if mix_all.is_lmq(name) and store.get_consume_queue(name, 0) is None:
                    table.pop(key, None)
                    self.note_change()
        return len(group) <= MAX_GROUP_LENGTH and len(table) < limit

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset. One below the present is taken too."""
        if not mix_all.is_lmq(group):
            super().commit_offset(client_host, group, topic, queue_id, offset)
        else:
            key = topic + TOPIC_GROUP_SEPARATOR + group
            if self.lmq_offset_table.get(key) != offset:
                self.lmq_offset_table[key] = offset
                self.note_change(key)

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets of a topic, and save that."""
        keys = [key for key in list(self.lmq_offset_table) if key.startswith(topic + TOPIC_GROUP_SEPARATOR)]
        for key in keys:
            self.lmq_offset_table.pop(key, None)
        super().remove_topic(topic)
        if keys:
            self.note_change()
            self.persist()

    def config_file_path(self) -> str:
        """lmqConsumerOffset.json."""
        root = self._broker_controller.message_store_config.storePathRootDir
        return broker_path_config_helper.get_lmq_consumer_offset_path(root)

    def encode(self, pretty_format: bool = False) -> str:
        """Both tables as JSON."""
        if not pretty_format:
            return self.encode_entries(None)
        return remoting_serializable.to_json(_TablesFile(self._kept_light.written(), self._kept.written()), True)

    def encode_entries(self, keys: list[str] | None) -> str:
        """Some entries of both tables, None for all, as JSON; one that is gone is left out."""
        light = entries_of(self.lmq_offset_table, keys)
        return remoting_serializable.to_json(_Tables(light, self.copy_of_entries(keys)))

    def decode(self, json_string: str) -> None:
        """Replace both tables by those from JSON."""
        tables = remoting_serializable.from_json(_Tables, json_string)
        self.offset_table = dict(tables.offsetTable or {})
        self.lmq_offset_table = dict(tables.lmqOffsetTable or {})
        self.changes.note_all()
