"""The table of a store's consume queues.

Removing consume queues: of topics that are deleted or unknown, or whose messages are all gone.

All of it on the dispatching thread, between two records: nobody adds to a queue that goes.

Deleting files of consume queues and index that point at deleted parts of the commit log.
"""
from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.futures import AtomicInteger
from rmqha.common.texts import is_folder_name
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from rmqha.store import store_path_config_helper as paths
from rmqha.store.consume_queue import ConsumeQueue, is_safe_topic
from rmqha.store.message_store_config import SLAVE
from rmqha.store.store_marks import QueueEnds, WrongQueueEndsError, check_mtime, tell_wrong

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore
    from rmqha.store.store_marks import RecoveryBase


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


# Differs: half messages stay; the original forgets them when a topic is deleted before the first transaction check, and
# where they are when expired queues are cleaned
_KEPT_TOPICS = (RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC)


class QueueRemoval:
    """The removing half of DefaultMessageStore, whose table of queues it changes."""

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store = store

    def unused_topics(self, topics: Iterable[str]) -> list[str]:
        """All topics that have queues, but `topics`, the system's and light queues."""
        known = {*topics, *_KEPT_TOPICS}
        return [topic for topic in list(self._store.consume_queue_table)
                if topic not in known and not mix_all.is_lmq(topic)]

    def drop_topic(self, topic: str) -> None:
        """Delete all queues of a topic."""
        store = self._store
        for queue in store.consume_queue_table.pop_topic(topic):
            queue.destroy()
            log.info("cleanUnusedTopic: %s %s ConsumeQueue cleaned", queue.topic, queue.queue_id)
        _remove_folder(store.get_store_path_logic(), topic)
        log.info("cleanUnusedTopic: %s,topic destroyed", topic)

    def drop_dead_queue(self, queue: ConsumeQueue, mark: int) -> None:
        """Delete a queue that begins with records which were deleted with their topic: those before `mark`."""
        if queue.max_physic_offset > mark:
            log.error("consume queue %s-%s has messages of before and behind the deletion of its topic at %s: those "
                      "behind are dispatched again", queue.topic, queue.queue_id, mark)
            self._store.reput_message_service.dispatch_again_from(mark)
        self._remove(queue)
        _remove_folder(self._store.get_store_path_logic(), queue.topic)

    def drop_expired_queues(self, is_kept: Callable[[str], bool]) -> None:
        """Delete the queues whose last message is no longer in the log, but those of topics that are kept.

        Differs: a queue that may get messages again stays, with its last file, and counts on; in the original it begins
        again at 0 while its groups stay where they were, on a slave it does not fit, and acknowledged messages are
        never given to anybody.
        """
        min_commit_log_offset = self._store.commit_log.get_min_offset()
        for queue in list(self._store.all_consume_queues()):
            if queue.topic in _KEPT_TOPICS or is_kept(queue.topic):
                continue
            last_offset = queue.get_last_offset()
            if last_offset == -1:
                log.warning("maybe ConsumeQueue was created just now. topic=%s queueId=%s maxPhysicOffset=%s "
                            "minLogicOffset=%s.", queue.topic, queue.queue_id, queue.max_physic_offset,
                            queue.min_logic_offset)
            elif last_offset < min_commit_log_offset and self._forget_next_offset(queue):
                log.info("cleanExpiredConsumerQueue: %s %s consumer queue destroyed, minCommitLogOffset: %s "
                         "maxCLOffsetInConsumeQueue: %s", queue.topic, queue.queue_id, min_commit_log_offset,
                         last_offset)
                self._remove(queue)

    def _forget_next_offset(self, queue: ConsumeQueue) -> bool:
        """False when the queue has a message that is not dispatched yet.

        Differs: in the original such a message and those that come next begin the new queue in the wrong order, and
        are lost.
        """
        store = self._store
        is_slave = store.message_store_config.brokerRole is SLAVE  # which gives no offsets
        return store.commit_log.remove_queue_from_topic_queue_table(
            queue.topic, queue.queue_id, None if is_slave else queue.get_max_offset_in_queue())

    def _remove(self, queue: ConsumeQueue) -> None:
        self._store.consume_queue_table.pop_queue(queue)
        queue.destroy()


def _remove_folder(root: str, topic: str) -> None:
    if not is_folder_name(topic):  # of a master's deletion
        log.error("no folder of consume queues can have the name %r: nothing is removed", topic)
        return
    folder = os.path.join(root, topic)
    try:
        os.rmdir(folder)
    except OSError as error:
        log.info("folder %s stays: %s", folder, error.strerror)


class CleanConsumeQueueService:
    """Runs on the store's scheduled thread.

    Java: org.apache.rocketmq.store.DefaultMessageStore$CleanConsumeQueueService (4.9.8)
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        self.default_message_store = default_message_store
        self._last_physical_min_offset = 0

    def run(self) -> None:
        """One round; does nothing until the commit log begins later than in the last round."""
        store = self.default_message_store
        interval_ms = store.message_store_config.deleteConsumeQueueFilesInterval
        min_offset = store.commit_log.get_min_offset()
        if min_offset <= self._last_physical_min_offset:
            return
        self._last_physical_min_offset = min_offset
        for queue in store.all_consume_queues():
            if queue.delete_expired_file(min_offset) > 0 and interval_ms > 0 and store.pause(interval_ms):
                return
        store.index_service.delete_expired_file(min_offset)
        store.deleted_topics.expire(min_offset)
