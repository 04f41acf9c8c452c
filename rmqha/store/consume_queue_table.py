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
    """Topic -> queue id -> queue: what the original calls `consumeQueueTable`, and what it does with all queues.

    Changed under `lock`, by the methods here, and read without it. `lmq_consume_queue_num` counts the light queues.
    """

    def __init__(self, context: ConsumeQueueContext) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.lmq_consume_queue_num = AtomicInteger()
        self._context = context
        self._config = context.state.config
        # Of the queues that load has made, from then until `end_recovery`
        self._recoveries: dict[ConsumeQueue, ConsumeQueueRecovery] = {}
        self._ends_are_known = False  # by load, before recover

    def folder(self) -> str:
        """Where all of them lie."""
        return paths.get_store_path_consume_queue(self._config.storePathRootDir)

    def all_queues(self) -> Iterator[ConsumeQueue]:
        """All queues, as they are at the call."""
        with self.lock:
            return iter([queue for queues in self.values() for queue in queues.values()])

    def get_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None when there is none."""
        queues = self.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; made when it is not there. None for a topic that can't be a folder's name."""
        return self.get_queue(topic, queue_id) or self.make_queue(topic, queue_id)

    def make_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, made unless somebody else has just made it; None for a topic that can't be a folder's name."""
        # Differs: the original makes folders of any name, outside of its own too
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

    def is_lmq_num_exceeded(self) -> bool:
        """True when there are more light queues than configured."""
        config = self._config
        return (config.enableLmq and config.enableMultiDispatch
                and self.lmq_consume_queue_num.get() > config.maxLmqConsumeQueueNum)

    # Opening and closing the store.

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
                        self.recovery_of(queue).take_noted_end(end)
        except (OSError, WrongQueueEndsError) as error:
            tell_wrong(error)
            for name in list(self):
                self.pop_topic(name)
            self._recoveries.clear()
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

    def recover(self, base: RecoveryBase) -> None:
        """Find each queue's end, unless the last stop has noted it."""
        if not self._ends_are_known:
            for queue in self.all_queues():
                self.recovery_of(queue).recover(base)

    def recovery_of(self, queue: ConsumeQueue) -> ConsumeQueueRecovery:
        """What recovery knows of a queue."""
        recovery = self._recoveries.get(queue)
        if recovery is None:
            recovery = self._recoveries[queue] = ConsumeQueueRecovery(queue, self._config, self._context.commit_log)
        return recovery

    def end_recovery(self) -> None:
        """Everything is dispatched again."""
        for queue in self.all_queues():
            self.recovery_of(queue).end_recovery()

    def doubtful_folders(self) -> list[str]:
        """The folders of queues of which not all names are known to be on the disk."""
        known = {topic for topic, queues in self.items()
                 if queues and all(self.recovery_of(queue).has_its_names for queue in queues.values())}
        with os.scandir(self.folder()) as entries:
            return [entry.path for entry in entries if entry.name not in known]

    def forget_recovery(self) -> None:
        """The store is loaded."""
        self._recoveries = {}

    def noted_ends(self, number: int) -> QueueEnds:
        """What a clean stop notes, beside write `number` of the checkpoint. OSError, WrongQueueEndsError."""
        root, min_offset, topics = self.folder(), self._context.commit_log.get_min_offset(), []
        for topic, queues in self.items():
            ends = [end for queue in queues.values() if (end := noted_end(queue, min_offset)) is not None]
            if ends:
                topics.append(TopicEnds(topic, mtime_of(os.path.join(root, topic)), ends))
        return QueueEnds(VERSION, number, self._config.get_mapped_file_size_consume_queue(), mtime_of(root), topics)

    def max_physic_offset(self) -> int:
        """The log's offset behind the last record that has a unit; -1 when none has."""
        return max((queue.max_physic_offset for queue in self.all_queues()), default=-1)

    def next_offsets(self) -> dict[str, int]:
        """The next offset of each queue, by `topic-queueId`; each queue's oldest message is looked for by the way."""
        min_phy_offset = self._context.commit_log.get_min_offset()
        table = {}
        for queue in self.all_queues():
            table[f"{queue.topic}-{queue.queue_id}"] = queue.get_max_offset_in_queue()
            queue.correct_min_offset(min_phy_offset)
        return table

    def truncate_dirty_logic_files(self, phy_offset: int) -> None:
        """Drop what points at or behind `phy_offset` from all queues."""
        for queue in self.all_queues():
            queue.truncate_dirty_logic_files(phy_offset)

    def destroy(self) -> None:
        """Delete all files of all queues."""
        for queue in self.all_queues():
            queue.destroy()

    def unmap(self) -> None:
        """At shutdown."""
        for queue in self.all_queues():
            queue.mapped_file_queue.shutdown(0)
            if queue.consume_queue_ext is not None:
                queue.consume_queue_ext.mapped_file_queue.shutdown(0)
