"""The table of a store's consume queues."""
from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator

from rmqha.common import mix_all
from rmqha.common.futures import AtomicInteger
from rmqha.store import store_path_config_helper as paths
from rmqha.store.consume_queue import ConsumeQueue, ConsumeQueueContext
from rmqha.store.consume_queue_layout import is_safe_topic
from rmqha.store.consume_queue_recovery import ConsumeQueueRecovery, noted_end
from rmqha.store.store_marks import (
    VERSION,
    QueueEnds,
    RecoveryBase,
    TopicEnds,
    WrongQueueEndsError,
    check_mtime,
    mtime_of,
    tell_wrong,
)

log = logging.getLogger("RocketmqStore")


class ConsumeQueueTable(dict[str, dict[int, ConsumeQueue]]):
    """The consume queues by topic and queue id, and operations on all of them; `consumeQueueTable` of the original.

    The methods here change it under `lock`; it is read without the lock. `lmq_consume_queue_num` counts the light
    queues.
    """

    def __init__(self, context: ConsumeQueueContext) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.lmq_consume_queue_num = AtomicInteger()
        self._context = context
        self._config = context.state.config
        # The recoveries of the queues that `load` found; emptied by `forget_recovery`.
        self._recoveries: dict[ConsumeQueue, ConsumeQueueRecovery] = {}
        # Set by `load`, read by `recover`.
        self._ends_are_known = False

    def folder(self) -> str:
        """Return the folder of all queues."""
        return paths.get_store_path_consume_queue(self._config.storePathRootDir)

    def all_queues(self) -> Iterator[ConsumeQueue]:
        """Iterate over a snapshot of all queues."""
        with self.lock:
            return iter([queue for queues in self.values() for queue in queues.values()])

    def get_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, or None if it does not exist."""
        queues = self.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, which is created if necessary; None for a topic that is not a valid folder name."""
        return self.get_queue(topic, queue_id) or self.make_queue(topic, queue_id)

    def make_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Create the queue, unless another thread has just done so; None for a topic that is not a valid folder name.
        """
        # Differs: a consume queue needs a topic that is a safe folder name; the original creates folders of any name,
        # even outside its own folder.
        if not is_safe_topic(topic):
            return None
        with self.lock:
            queues = self.setdefault(topic, {})
            queue = queues.get(queue_id)
            if queue is None:
                queue = queues[queue_id] = ConsumeQueue(
                    topic, queue_id, self.folder(), self._config.get_mapped_file_size_consume_queue(), self._context)
                if mix_all.is_lmq(topic):
                    self.lmq_consume_queue_num.increment_and_get()
            return queue

    def pop_topic(self, topic: str) -> list[ConsumeQueue]:
        """Remove and return all queues of a topic."""
        with self.lock:
            queues = list(self.pop(topic, {}).values())
        if mix_all.is_lmq(topic):
            for _queue in queues:
                self.lmq_consume_queue_num.decrement_and_get()
        return queues

    def pop_queue(self, queue: ConsumeQueue) -> None:
        """Remove one queue."""
        with self.lock:
            queues = self.get(queue.topic, {})
            queues.pop(queue.queue_id, None)
            if not queues:
                self.pop(queue.topic, None)

    def is_lmq_num_exceeded(self) -> bool:
        """Return whether there are more light queues than configured."""
        config = self._config
        return (config.enableLmq and config.enableMultiDispatch
                and self.lmq_consume_queue_num.get() > config.maxLmqConsumeQueueNum)

    # Opening and closing the store.

    def load(self, noted: QueueEnds | None) -> bool:
        """Create the queues whose folders exist; return False if one can't be used.

        `noted`: the queue ends that the last stop saved, which are used unless they turn out to be wrong.
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
                        self.recovery_of(queue).take_noted_end(end)
        except (OSError, WrongQueueEndsError) as error:
            tell_wrong(error)
            for name in list(self):
                self.pop_topic(name)
            self._recoveries.clear()
            return False
        log.info("using the queue ends saved at the last shutdown")
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

    def recover(self, base: RecoveryBase) -> None:
        """Find each queue's end, unless the last stop saved it."""
        if not self._ends_are_known:
            for queue in self.all_queues():
                self.recovery_of(queue).recover(base)

    def recovery_of(self, queue: ConsumeQueue) -> ConsumeQueueRecovery:
        """Return the recovery of a queue."""
        recovery = self._recoveries.get(queue)
        if recovery is None:
            recovery = self._recoveries[queue] = ConsumeQueueRecovery(queue, self._config, self._context.commit_log)
        return recovery

    def end_recovery(self) -> None:
        """End the recovery of all queues, once all records are dispatched again."""
        for queue in self.all_queues():
            self.recovery_of(queue).end_recovery()

    def doubtful_folders(self) -> list[str]:
        """Return the folders of the topics whose file names may not all be on the disk."""
        known = {topic for topic, queues in self.items()
                 if queues and all(self.recovery_of(queue).has_its_names for queue in queues.values())}
        with os.scandir(self.folder()) as entries:
            return [entry.path for entry in entries if entry.name not in known]

    def forget_recovery(self) -> None:
        """Forget the recoveries, once the store is loaded."""
        self._recoveries = {}

    def noted_ends(self, number: int) -> QueueEnds:
        """Return the queue ends that a clean stop saves, which belong to write `number` of the checkpoint.

        Raise OSError or WrongQueueEndsError if they can't be determined.
        """
        root, min_offset, topics = self.folder(), self._context.commit_log.get_min_offset(), []
        for topic, queues in self.items():
            ends = [end for queue in queues.values() if (end := noted_end(queue, min_offset)) is not None]
            if ends:
                topics.append(TopicEnds(topic, mtime_of(os.path.join(root, topic)), ends))
        return QueueEnds(VERSION, number, self._config.get_mapped_file_size_consume_queue(), mtime_of(root), topics)

    def max_physic_offset(self) -> int:
        """Return the log offset after the last record that has a unit, or -1 without units."""
        return max((queue.max_physic_offset for queue in self.all_queues()), default=-1)

    def next_offsets(self) -> dict[str, int]:
        """Return each queue's next offset by `topic-queueId`, and correct each queue's minimum."""
        min_phy_offset = self._context.commit_log.get_min_offset()
        table = {}
        for queue in self.all_queues():
            table[f"{queue.topic}-{queue.queue_id}"] = queue.get_max_offset_in_queue()
            queue.correct_min_offset(min_phy_offset)
        return table

    def truncate_dirty_logic_files(self, phy_offset: int) -> None:
        """Drop the units of records at or after `phy_offset` from all queues."""
        for queue in self.all_queues():
            queue.truncate_dirty_logic_files(phy_offset)

    def destroy(self) -> None:
        """Delete all files of all queues."""
        for queue in self.all_queues():
            queue.destroy()

    def unmap(self) -> None:
        """Unmap all files, at shutdown."""
        for queue in self.all_queues():
            queue.mapped_file_queue.shutdown(0)
            if queue.consume_queue_ext is not None:
                queue.consume_queue_ext.mapped_file_queue.shutdown(0)
