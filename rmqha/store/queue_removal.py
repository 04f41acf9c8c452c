"""The removal of consume queues, and of expired files of consume queues and index.

- `QueueRemoval`: removes the queues of deleted or unknown topics, and queues whose messages have all expired. It works
  on the dispatching thread, between two records, so that nothing is appended to a queue that is being removed.
- `CleanConsumeQueueService`: deletes files of consume queues and index that refer only to deleted parts of the log.
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
# Differs: the deletion of unused queues leaves half messages. The original loses them if a topic is deleted before the
# first transaction check, and loses their positions when expired queues are cleaned.
_KEPT_TOPICS = (RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC)


class QueueRemoval:
    """The removal of topics and queues from the table. It also marks their records in the log as dead."""

    def __init__(self, state: StoreState, commit_log: CommitLog, table: ConsumeQueueTable,
                 deleted_topics: DeletedTopics, reput_message_service: ReputMessageService) -> None:
        self._role = state.role
        self._commit_log = commit_log
        self._table = table
        self._deleted_topics = deleted_topics
        self._reput = reput_message_service

    def delete_topic(self, topic: str) -> None:
        """Delete all messages of a topic. Puts to the topic must already be refused.

        The topic's records are marked as dead and dispatched, and its queues are deleted, before anything can be put to
        a new topic with the same name. Raise OSError, and do nothing, if the mark can't be written.
        """
        end = self._deleted_topics.mark(topic, self._commit_log)
        # All records before the mark are dead, dispatched or not. They are dispatched first so that an older broker, or
        # RocketMQ 4.9, finds queues without gaps.
        if not self._reput.wait_dispatched_to(end, _DISPATCH_WAIT_MS):
            log.warning("deleting topic %s before all of its messages are dispatched", topic)
        self._reput.run_between_records(lambda: self.drop_topic(topic))

    def take_over(self, marks: Mapping[str, int]) -> list[str]:
        """Take over the master's marks on a slave, up to the dispatched offset; return the newly deleted topics."""
        came_to = self._reput.reput_from_offset
        new = self._deleted_topics.take_marks(marks, self._commit_log.get_min_offset(), came_to)
        if new:
            self._reput.run_between_records(self.drop_dead_queues)
        return new

    def drop_dead_queues(self, at_start: bool = False) -> None:
        """Delete the queues whose units refer to dead records. For the dispatching thread, or before it runs.

        `at_start`: also delete queues without units. The units that recovery does not trust may be of dead records, and
        a live record creates its queue again when it is dispatched.
        """
        for topic, mark in self._deleted_topics.marks.items():
            for queue in list(self._table.get(topic, {}).values()):
                first = queue.first_record_offset()
                if at_start if first is None else first < mark:
                    self._drop_dead_queue(queue, mark)

    def unused_topics(self, topics: Iterable[str]) -> list[str]:
        """Return all topics with queues, except `topics`, the system topics and light queues."""
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
        """Delete a queue that begins with records before `mark`, which were deleted with their topic."""
        if queue.max_physic_offset > mark:
            log.error("consume queue %s-%s has messages from before and after the deletion of its topic at %s; "
                      "dispatching the later ones again", queue.topic, queue.queue_id, mark)
            self._reput.dispatch_again_from(mark)
        self._remove(queue)
        _remove_folder(self._table.folder(), queue.topic)

    def drop_expired_queues(self, is_kept: Callable[[str], bool]) -> None:
        """Delete the queues whose last message is no longer in the log, except those of kept topics.

        Differs: an expired queue that may get messages again stays, with its last file, and its offsets continue. In
        the original it starts again at 0, while its consumer groups keep their offsets and a slave's queue does not
        match; acknowledged messages are then never delivered.
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
        """Forget the queue's next offset; return False if the queue has a message that is not dispatched yet.

        Differs: a queue with a message that is not dispatched yet is not removed. In the original such a message and
        the following ones start the new queue in the wrong order, and are lost.
        """
        is_slave = self._role.is_slave  # a slave assigns no offsets
        return self._commit_log.remove_queue_from_topic_queue_table(
            queue.topic, queue.queue_id, None if is_slave else queue.get_max_offset_in_queue())

    def _remove(self, queue: ConsumeQueue) -> None:
        self._table.pop_queue(queue)
        queue.destroy()


def _remove_folder(root: str, topic: str) -> None:
    if not is_folder_name(topic):  # the name may come from a master
        log.error("%r is not a valid name for a folder of consume queues; removing nothing", topic)
        return
    folder = os.path.join(root, topic)
    try:
        os.rmdir(folder)
    except OSError as error:
        log.info("not removing folder %s: %s", folder, error.strerror)


class CleanConsumeQueueService:
    """The cleaner of consume queues and index, which runs on the store's scheduled thread.

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
        """Run one round. It does nothing unless the commit log begins later than in the last round."""
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
