"""Which topics were deleted, and up to where their records in the log are dead.

    admin thread   --delete--> [put lock] where the log ends -> deletedTopics.json -> [dispatching thread] queues go
    dispatching, recovery --is_dead--> records of deleted topics get no units
    putting threads, under the put lock --refuses--> messages whose topic went after they had been checked

The log keeps the records of a deleted topic, and those of the topic that is made again have the same names and indices:
only where they lie tells them apart.
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from rmqha.common import mix_all
from rmqha.common.config_manager import ConfigManager
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store import store_path_config_helper as paths
from rmqha.store.append import PutMessageContext

log = logging.getLogger("RocketmqStore")

# Messages in these wait for a place in the topic that their properties name.
_WAITING_TOPICS = (RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC)


class MarkedLog(Protocol):
    """What a deletion needs of the commit log."""

    @property
    def put_message_lock(self) -> AbstractContextManager[object]: ...

    def get_max_wrote_position(self) -> int:
        """Where it ends, write buffers included."""

    def take_queue_offsets(self, topic: str) -> list[dict[str, int]]:
        """Under the put lock: forget the next offsets of all queues of a topic; what they were."""

    def give_queue_offsets_back(self, taken: list[dict[str, int]]) -> None:
        """Under the put lock: undo `take_queue_offsets`."""


@dataclass(slots=True)
class _File:
    """deletedTopics.json."""

    deletedTopics: dict[str, int] = field(default_factory=dict)


class DeletedTopics(ConfigManager):
    """The marks of deletions: topic -> commit log offset below which its records are dead. A mark lasts until the log
    begins behind it, and lies never behind the log's end.

    `marks` and `names` are replaced under `_lock`, never changed in place; read by any thread. `names` changes under
    the put lock: the names of deleted topics, whose puts are looked at again under that lock.

    Differs: 4.9 keeps no marks. A rebuild of its queues brings deleted topics back, and mixes the messages of a topic
    that was made again with those of before.
    """

    def __init__(self, root: str) -> None:
        self._root = root  # of the store
        self._lock = threading.Lock()
        self.marks: Mapping[str, int] = {}
        self.names: frozenset[str] = frozenset()
        # How many queue ids a topic takes messages for, 0 for one that is not there; set by the broker.
        self.queues_of: Callable[[str], int] | None = None

    def config_file_path(self) -> str:
        """deletedTopics.json, which 4.9 does not know and leaves alone."""
        return paths.get_deleted_topics_path(self._root)

    def encode(self, pretty_format: bool = False) -> str:
        """The marks as JSON."""
        return remoting_serializable.to_json(_File(dict(self.marks)), pretty_format)

    def decode(self, json_string: str) -> None:
        """Take the marks out of JSON. ValueError."""
        marks = remoting_serializable.from_json(_File, json_string).deletedTopics or {}
        if not all(isinstance(topic, str) and isinstance(offset, int) for topic, offset in marks.items()):
            raise ValueError("the offsets of deleted topics are no numbers")
        self.marks, self.names = marks, frozenset(marks)

    def is_dead(self, topic: str, offset: int) -> bool:
        """Whether the record of `topic` at commit log `offset` was deleted with its topic."""
        return offset < self.marks.get(topic, 0)

    def is_message_dead(self, message: MessageExt) -> bool:
        """The same of a message that was read; of one that waits, delayed or prepared, by the topic it waits for."""
        topic = message.topic
        if topic in _WAITING_TOPICS:
            topic = message.properties.get(message_const.PROPERTY_REAL_TOPIC) or topic
        return self.is_dead(topic, message.commit_log_offset)

    # Putting, under the put lock, and only while there are names.

    def refuses(self, context: PutMessageContext) -> bool:
        """Whether a message's topic was deleted, or made again with fewer queues, since the message was checked."""
        message, names = context.message, self.names
        if message is None:
            return any([row.topic in names and self._is_gone(row.topic, row.queue_id)
                        for row in context.rows])
        topic, queue_id = message.topic, message.queue_id
        if topic in _WAITING_TOPICS:
            topic, queue_id = message.properties.get(message_const.PROPERTY_REAL_TOPIC) or topic, 0
        return topic in names and self._is_gone(topic, queue_id)

    def _is_gone(self, topic: str, queue_id: int) -> bool:
        return self.queues_of is not None and queue_id >= self.queues_of(topic)

    # Deleting.

    def mark(self, topic: str, commit_log: MarkedLog) -> int:
        """Note that all of a topic which `commit_log` has now is dead, and where that ends. OSError: nothing is done.

        Before anything is put to a topic of that name again its queues have to go.
        """
        with self._lock:
            with commit_log.put_message_lock:
                had_name, self.names = topic in self.names, self.names | {topic}
                end = commit_log.get_max_wrote_position()
                offsets = commit_log.take_queue_offsets(topic)
            try:
                self._set({**self.marks, topic: end})
            except OSError:
                with commit_log.put_message_lock:
                    commit_log.give_queue_offsets_back(offsets)
                    self.names = self.names if had_name else self.names - {topic}
                raise
        return end

    def take_marks(self, marks: Mapping[str, int], min_offset: int, came_to: int) -> list[str]:
        """On a slave: take over those of its master's marks that lie in a log from `min_offset` to `came_to`.

        Return the topics that are newly deleted.
        """
        with self._lock:
            new = {topic: offset for topic, offset in marks.items()
                   if max(self.marks.get(topic, 0), min_offset) < offset <= came_to}
            if new:
                self._set({**self.marks, **new})
                self.names = frozenset(self.marks)
        return list(new)

    # Its life.

    def clamp(self, log_end: int) -> None:
        """The log was cut off at `log_end`: what is put there next is alive."""
        self._change({topic: min(offset, log_end) for topic, offset in self.marks.items() if log_end > 0})

    def expire(self, min_offset: int) -> None:
        """The log begins at `min_offset`: forget marks below, whose records are gone."""
        self._change({topic: offset for topic, offset in self.marks.items() if offset > min_offset})

    def _change(self, marks: dict[str, int]) -> None:
        with self._lock:
            if marks != self.marks:
                self._set(marks)
                self.names = frozenset(marks)

    def _set(self, marks: dict[str, int]) -> None:
        """Nothing is dead before that is on the disk. OSError."""
        with self._persist_lock:
            mix_all.string2file(remoting_serializable.to_json(_File(marks), True), self.config_file_path())
        self.marks = marks
