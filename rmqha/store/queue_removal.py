"""Removal of consume queues and of expired files of consume queues and index.

- `QueueRemoval`: removes the queues of topics that are deleted or unknown, or whose messages are all gone. It works on
  the dispatching thread, between two records, so that nothing is added to a queue that is being removed.
- `CleanConsumeQueueService`: deletes files of consume queues and index that point at deleted parts of the commit log.
"""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping

from rmqha.common import mix_all
from rmqha.common.texts import is_folder_name
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.deleted_topics import DeletedTopics
from rmqha.store.index.index_service import IndexService
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

_DISPATCH_WAIT_MS = 3000
# Differs: half messages stay; the original forgets them when a topic is deleted before the first transaction check, and
# where they are when expired queues are cleaned
_KEPT_TOPICS = (RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC)


class QueueRemoval:
    """Deletes topics and queues from the table, and marks what is dead of them in the log."""

    def __init__(self, state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable,
                 deleted_topics: DeletedTopics, reput_message_service: ReputMessageService) -> None:
        self._role = state.role
        self._commit_log = commit_log
        self._table = table
        self._deleted_topics = deleted_topics
        self._reput = reput_message_service

    def delete_topic(self, topic: str) -> None:
        """Delete all of a topic that nobody may put to any more: what was put is dispatched, marked dead, and its
        queues go, before anything is put to a topic of that name again. OSError, and nothing is done, when the mark
        can't be written."""
        end = self._deleted_topics.mark(topic, self._commit_log)
        # dispatched or not, dead is what lies before the mark: an older broker, or 4.9, opens a store without gaps
        if not self._reput.wait_dispatched_to(end, _DISPATCH_WAIT_MS):
            log.warning("topic %s is deleted before all of its messages are dispatched", topic)
        self._reput.run_between_records(lambda: self.drop_topic(topic))

    def take_over(self, marks: Mapping[str, int]) -> list[str]:
        """On a slave: take over its master's marks, as far as this log has come; the topics that are newly deleted."""
        came_to = self._reput.reput_from_offset
        new = self._deleted_topics.take_marks(marks, self._commit_log.get_min_offset(), came_to)
        if new:
            self._reput.run_between_records(self.drop_dead_queues)
        return new

    def drop_dead_queues(self, at_start: bool = False) -> None:
        """Delete the queues whose units are of dead records. For the dispatching thread, or before it runs.

        `at_start`: those without units, too. What recovery does not believe may be of dead records, and what is alive
        makes its queue anew when it is dispatched.
        """
        for topic, mark in self._deleted_topics.marks.items():
            for queue in list(self._table.get(topic, {}).values()):
                first = queue.first_record_offset()
                if at_start if first is None else first < mark:
                    self._drop_dead_queue(queue, mark)

    def unused_topics(self, topics: Iterable[str]) -> list[str]:
        """All topics that have queues, but `topics`, the system's and light queues."""
        known = {*topics, *_KEPT_TOPICS}
        return [topic for topic in list(self._table)
                if topic not in known and not mix_all.is_lmq(topic)]

    def drop_topic(self, topic: str) -> None:
        """Delete all queues of a topic."""
        for queue in self._table.pop_topic(topic):
            queue.destroy()
            log.info("cleanUnusedTopic: %s %s ConsumeQueue cleaned", queue.topic, queue.queue_id)
        _remove_folder(self._table.folder(), topic)
        log.info("cleanUnusedTopic: %s,topic destroyed", topic)

    def _drop_dead_queue(self, queue: ConsumeQueue, mark: int) -> None:
        """Delete a queue that begins with records which were deleted with their topic: those before `mark`."""
        if queue.max_physic_offset > mark:
            log.error("consume queue %s-%s has messages of before and behind the deletion of its topic at %s: those "
                      "behind are dispatched again", queue.topic, queue.queue_id, mark)
            self._reput.dispatch_again_from(mark)
        self._remove(queue)
        _remove_folder(self._table.folder(), queue.topic)

    def drop_expired_queues(self, is_kept: Callable[[str], bool]) -> None:
        """Delete the queues whose last message is no longer in the log, but those of topics that are kept.

        Differs: a queue that may get messages again stays, with its last file, and counts on; in the original it begins
        again at 0 while its groups stay where they were, on a slave it does not fit, and acknowledged messages are
        never given to anybody.
        """
        min_commit_log_offset = self._commit_log.get_min_offset()
        for queue in list(self._table.all_queues()):
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
        is_slave = self._role.is_slave  # which gives no offsets
        return self._commit_log.remove_queue_from_topic_queue_table(
            queue.topic, queue.queue_id, None if is_slave else queue.get_max_offset_in_queue())

    def _remove(self, queue: ConsumeQueue) -> None:
        self._table.pop_queue(queue)
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

    def __init__(self, state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable, index_service: IndexService,
                 deleted_topics: DeletedTopics) -> None:
        self._state = state
        self._commit_log = commit_log
        self._table = table
        self._index_service = index_service
        self._deleted_topics = deleted_topics
        self._last_physical_min_offset = 0

    def run(self) -> None:
        """One round; does nothing until the commit log begins later than in the last round."""
        interval_ms = self._state.config.deleteConsumeQueueFilesInterval
        min_offset = self._commit_log.get_min_offset()
        if min_offset <= self._last_physical_min_offset:
            return
        self._last_physical_min_offset = min_offset
        for queue in self._table.all_queues():
            if queue.delete_expired_file(min_offset) > 0 and interval_ms > 0 \
                    and self._state.tasks_pause.wait(interval_ms):
                return
        self._index_service.delete_expired_file(min_offset)
        self._deleted_topics.expire(min_offset)
