"""Removing consume queues: of topics that are deleted or unknown, or whose messages are all gone.

All of it on the dispatching thread, between two records: nobody adds to a queue that goes.
"""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.texts import is_folder_name
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from rmqha.store.config.message_store_config import SLAVE
from rmqha.store.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")

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
