"""The topics that were deleted, and the commit log offsets below which their records are dead.

    admin thread --delete--> [put lock] log end -> deletedTopics.json -> [dispatching thread] removes the queues
    dispatching, recovery --is_dead--> records of deleted topics get no units
    putting threads, under the put lock --refuses--> messages whose topic was deleted after they had been checked

Deleting a topic removes its queues, but not its records: the commit log is append-only and shared by all topics. If the
topic is created again, its new records have the same topic, queue ids and queue offsets (from 0) as the old ones. Their
position in the log is the only difference. So a deletion writes a mark: all records of the topic below the log's
current end are dead. Everything that turns records into queue entries (dispatch, recovery, rebuilds) asks `is_dead`.

The order matters. The mark is taken under the put lock, where no record can be half appended on either side of it. It
is on disk before anything is treated as dead, so a crash can't bring the topic back in part. And a put that was checked
before the deletion is checked again under the put lock (`refuses`): otherwise it would land after the mark, alive, in a
topic that no longer exists. Without marks, a rebuild of the queues would bring deleted topics back, and would mix two
messages with the same queue offset in a topic that was created again.
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

# Messages in these topics wait to be put into the topic that their properties name.
_WAITING_TOPICS = (RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC)


class MarkedLog(Protocol):
    """The part of the commit log that a deletion uses."""

    @property
    def put_message_lock(self) -> AbstractContextManager[object]: ...

    def get_max_wrote_position(self) -> int:
        """Return the offset at which the log ends, including write buffers."""

    def take_queue_offsets(self, topic: str) -> list[dict[str, int]]:
        """Remove the next offsets of all queues of a topic and return them. Called under the put lock."""

    def give_queue_offsets_back(self, taken: list[dict[str, int]]) -> None:
        """Undo `take_queue_offsets`. Called under the put lock."""


@dataclass(slots=True)
class _File:
    """The contents of deletedTopics.json."""

    deletedTopics: dict[str, int] = field(default_factory=dict)


class DeletedTopics(ConfigManager):
    """The marks of deletions: topic -> commit log offset below which its records are dead.

    A mark is kept until the log begins after it. It is never beyond the log's end.

    `marks` and `names` are replaced under `_lock` and never changed in place; any thread reads them. `names` holds the
    names of deleted topics, whose puts are checked again under the put lock; deletions change it under that lock.

    Differs: 4.9 keeps no marks of deleted topics. A rebuild of its queues brings deleted topics back, and mixes the
    messages of a topic that was created again with its earlier ones.
    """

    def __init__(self, root: str) -> None:
        self._root = root  # of the store
        self._lock = threading.Lock()
        self.marks: Mapping[str, int] = {}
        self.names: frozenset[str] = frozenset()
        # Returns the number of queue ids that a topic accepts messages for, 0 for an unknown topic; set by the broker.
        self.queues_of: Callable[[str], int] | None = None

    def config_file_path(self) -> str:
        """Return the path of deletedTopics.json, which 4.9 does not know and leaves alone."""
        return paths.get_deleted_topics_path(self._root)

    def encode(self, pretty_format: bool = False) -> str:
        """Return the marks as JSON."""
        return remoting_serializable.to_json(_File(dict(self.marks)), pretty_format)

    def decode(self, json_string: str) -> None:
        """Read the marks from JSON. ValueError when they are malformed."""
        marks = remoting_serializable.from_json(_File, json_string).deletedTopics or {}
        if not all(isinstance(topic, str) and isinstance(offset, int) for topic, offset in marks.items()):
            raise ValueError("the offsets of deleted topics must be numbers")
        self.marks, self.names = marks, frozenset(marks)

    def is_dead(self, topic: str, offset: int) -> bool:
        """Return whether the record of `topic` at commit log `offset` was deleted with its topic."""
        return offset < self.marks.get(topic, 0)

    def is_message_dead(self, message: MessageExt) -> bool:
        """Return the same for a message; a delayed or prepared message counts as one of its destination topic."""
        topic = message.topic
        if topic in _WAITING_TOPICS:
            topic = message.properties.get(message_const.PROPERTY_REAL_TOPIC) or topic
        return self.is_dead(topic, message.commit_log_offset)

    # Putting. Called under the put lock, and only if `names` is not empty.

    def refuses(self, context: PutMessageContext) -> bool:
        """Return whether a message's topic was deleted, or recreated with fewer queues, since the message was checked.
        """
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
        """Mark all records of a topic that `commit_log` holds now as dead, and return the log's end.

        On OSError nothing has changed. The topic's queues have to be removed before any message is put to a topic of
        that name again.
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
        """Adopt, on a slave, the master's marks that are in the slave's log, between `min_offset` and `came_to`.

        Return the newly deleted topics.
        """
        with self._lock:
            new = {topic: offset for topic, offset in marks.items()
                   if max(self.marks.get(topic, 0), min_offset) < offset <= came_to}
            if new:
                self._set({**self.marks, **new})
                self.names = frozenset(self.marks)
        return list(new)

    # Changes of the log's range.

    def clamp(self, log_end: int) -> None:
        """Lower the marks to `log_end`, where the log was truncated: records that are put there next are alive."""
        self._change({topic: min(offset, log_end) for topic, offset in self.marks.items() if log_end > 0})

    def expire(self, min_offset: int) -> None:
        """Remove the marks up to `min_offset`, where the log begins now: their records no longer exist."""
        self._change({topic: offset for topic, offset in self.marks.items() if offset > min_offset})

    def _change(self, marks: dict[str, int]) -> None:
        with self._lock:
            if marks != self.marks:
                self._set(marks)
                self.names = frozenset(marks)

    def _set(self, marks: dict[str, int]) -> None:
        """Write the marks to disk, then apply them: nothing is dead before its mark is on disk. OSError."""
        with self._persist_lock:
            mix_all.string2file(remoting_serializable.to_json(_File(marks), True), self.config_file_path())
        self.marks = marks
