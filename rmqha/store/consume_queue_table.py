"""The table of a store's consume queues."""
from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.futures import AtomicInteger
from rmqha.store.config import store_path_config_helper as paths
from rmqha.store.consume_queue import ConsumeQueue, is_safe_topic
from rmqha.store.queue_ends import QueueEnds, WrongQueueEndsError, check_mtime, tell_wrong

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore
    from rmqha.store.recovery_base import RecoveryBase

log = logging.getLogger("RocketmqStore")


class ConsumeQueueTable(dict[str, dict[int, ConsumeQueue]]):
    """Topic -> queue id -> queue: what the original calls `consumeQueueTable`, and what it does with all queues.

    Changed under `lock`, by the methods here, and read without it. `lmq_consume_queue_num` counts the light queues.
    """

    def __init__(self, store: DefaultMessageStore) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.lmq_consume_queue_num = AtomicInteger()
        self._store = store
        self._ends_are_known = False  # by load, before recover

    def folder(self) -> str:
        """Where all of them lie."""
        return paths.get_store_path_consume_queue(self._store.message_store_config.storePathRootDir)

    def all_queues(self) -> Iterator[ConsumeQueue]:
        """All queues, as they are at the call."""
        with self.lock:
            return iter([queue for queues in self.values() for queue in queues.values()])

    def get_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None when there is none."""
        queues = self.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def make_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, made unless somebody else has just made it; None for a topic that can't be a folder's name."""
        # Differs: the original makes folders of any name, outside of its own too
        if not is_safe_topic(topic):
            return None
        config = self._store.message_store_config
        with self.lock:
            queues = self.setdefault(topic, {})
            queue = queues.get(queue_id)
            if queue is None:
                queue = queues[queue_id] = ConsumeQueue(
                    topic, queue_id, self.folder(), config.get_mapped_file_size_consume_queue(), self._store)
                if mix_all.is_lmq(topic):
                    self.lmq_consume_queue_num.increment_and_get()
            return queue

    def pop_topic(self, topic: str) -> list[ConsumeQueue]:
        """Take all queues of a topic out."""
        with self.lock:
            queues = list(self.pop(topic, {}).values())
        if mix_all.is_lmq(topic):
            for _queue in queues:
                self.lmq_consume_queue_num.decrement_and_get()
        return queues

    def pop_queue(self, queue: ConsumeQueue) -> None:
        """Take one queue out."""
        with self.lock:
            queues = self.get(queue.topic, {})
            queues.pop(queue.queue_id, None)
            if not queues:
                self.pop(queue.topic, None)

    def load(self, noted: QueueEnds | None) -> bool:
        """Make the queues whose folders are there; False when one can't be used.

        `noted`: by the last stop. Then, unless it turns out to be wrong, their ends are known, too.
        """
        self._ends_are_known = noted is not None and self._take(noted)
        return self._ends_are_known or self._load_folders()

    def _take(self, noted: QueueEnds) -> bool:
        try:
            for topic in noted.topics:
                check_mtime(os.path.join(self.folder(), topic.topic), topic.folder_mtime)
                for end in topic.queues:
                    queue = self.make_queue(topic.topic, end.queue_id)
                    if queue is not None:
                        queue.take_noted_end(end)
        except (OSError, WrongQueueEndsError) as error:
            tell_wrong(error)
            for name in list(self):
                self.pop_topic(name)
            return False
        log.info("the ends of the consume queues are those that the last stop noted")
        return True

    def _load_folders(self) -> bool:
        root = self.folder()
        for topic in sorted(os.listdir(root)):
            folder = os.path.join(root, topic)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if name.isdecimal():
                    queue = self.make_queue(topic, int(name))
                    if queue is None or not queue.load():
                        return False
        log.info("load logics queue all over, OK")
        return True

    def recover(self, base: RecoveryBase) -> int:
        """Find each queue's end, and drop those of deleted topics. The end of what is dispatched; -1: nothing is."""
        if not self._ends_are_known:
            for queue in self.all_queues():
                queue.recover(base)
        self._store.deleted_topics.drop_dead_queues(at_start=True)
        return self.max_physic_offset()

    def max_physic_offset(self) -> int:
        """The log's offset behind the last record that has a unit; -1 when none has."""
        return max((queue.max_physic_offset for queue in self.all_queues()), default=-1)

    def next_offsets(self) -> dict[str, int]:
        """The next offset of each queue, by `topic-queueId`; each queue's oldest message is looked for by the way."""
        min_phy_offset = self._store.commit_log.get_min_offset()
        table = {}
        for queue in self.all_queues():
            table[f"{queue.topic}-{queue.queue_id}"] = queue.get_max_offset_in_queue()
            queue.correct_min_offset(min_phy_offset)
        return table

    def unmap(self) -> None:
        """At shutdown."""
        for queue in self.all_queues():
            queue.mapped_file_queue.shutdown(0)
            if queue.consume_queue_ext is not None:
                queue.consume_queue_ext.mapped_file_queue.shutdown(0)
