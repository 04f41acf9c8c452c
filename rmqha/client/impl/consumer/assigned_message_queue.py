"""The queues of a lite pull consumer, and where it stands in each."""
import threading
from collections.abc import Collection
from dataclasses import dataclass, field

from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.common.message.message import MessageQueue


@dataclass
class MessageQueueState:
    """Offsets are of the queue; -1 when there is none (yet).

    Java: org.apache.rocketmq.client.impl.consumer.AssignedMessageQueue$MessageQueueState (4.9.8)
    """

    process_queue: ProcessQueue = field(default_factory=ProcessQueue)
    paused: bool = False
    pull_offset: int = -1  # to be pulled next
    consume_offset: int = -1  # behind what the user got
    seek_offset: int = -1  # where the user wants to go on


class AssignedMessageQueue:
    """Queue -> state. Several threads read it; it changes under `_lock`, states by single assignments.

    Java: org.apache.rocketmq.client.impl.consumer.AssignedMessageQueue (4.9.8)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[MessageQueue, MessageQueueState] = {}
        self.process_queue_table: dict[MessageQueue, ProcessQueue] = {}  # the rebalance's, when there is one

    def message_queues(self) -> list[MessageQueue]:
        """The queues that are assigned now."""
        return list(self._states)

    def state(self, mq: MessageQueue) -> MessageQueueState | None:
        """Where the consumer stands in a queue; None when it is not assigned."""
        return self._states.get(mq)

    def set_paused(self, queues: Collection[MessageQueue], paused: bool) -> None:
        """Stop or go on to pull."""
        for mq in queues:
            state = self._states.get(mq)
            if state is not None:
                state.paused = paused

    def update(self, assigned: Collection[MessageQueue], topic: str | None = None) -> None:
        """Have these queues instead of those before, of one topic or of all."""
        with self._lock:
            for mq in list(self._states):
                if (topic is None or mq.topic == topic) and mq not in assigned:
                    self._states.pop(mq).process_queue.dropped = True
            for mq in assigned:
                if mq not in self._states:
                    self._states[mq] = MessageQueueState(self.process_queue_table.get(mq) or ProcessQueue())

    def remove(self, topic: str) -> None:
        """Give up all queues of a topic."""
        # Differs: what is cached of them is not handed out any more; 4.9.8 does not mark it
        self.update((), topic)
