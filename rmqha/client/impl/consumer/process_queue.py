"""The local cache of one queue, and the pull request that fills it."""
import logging
import threading
from typing import TYPE_CHECKING

from rmqha.common import util_all
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt, MessageQueue

if TYPE_CHECKING:
    from rmqha.common.protocol.client_bodies import ProcessQueueInfo


log = logging.getLogger("RocketmqClient")

REBALANCE_LOCK_MAX_LIVE_TIME_MS = 30_000
PULL_MAX_IDLE_TIME_MS = 120_000


class ProcessQueue:
    """The cache of a queue: messages that were pulled and are not consumed yet, by queue offset.

    The pull callback adds messages, and the consume threads remove them. Several threads consume one queue in parallel
    and finish in any order, but a broker stores only one number per group and queue: the next offset to consume, which
    means that all messages before it are consumed. So the offset to commit is the lowest offset that is still cached,
    or, if the cache is empty, one past the last message that was added. If it were the highest consumed offset, a
    crash would lose each earlier message that is still with a listener. With the lowest, a crash only causes messages
    to be consumed again, which RocketMQ allows (at least once).

    A slow message therefore holds the offset back, however many later messages are consumed. Two limits bound this:
    pulling pauses while the cache spans more than `consume_concurrently_max_span` offsets, and a message that a
    listener has for longer than `consume_timeout` goes back to the broker and leaves the cache. A failed message leaves
    it only once the broker has taken it for the retry topic. Each thread computes its offset under the lock, but
    stores it after releasing the lock. The offset store must then keep the higher value (`increase_only`).

    An orderly listener takes the messages in order. They move to a second table until their result is known: a commit
    removes them and returns the offset past the highest, a rollback puts them back.

    A queue that rebalance has given up is `dropped`. Its results must be discarded: the group's offset belongs to the
    new owner, and an offset from here would overwrite the newer one.

    Java: org.apache.rocketmq.client.impl.consumer.ProcessQueue (4.9.8)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[int, MessageExt] = {}  # ascending by queue offset; guarded by _lock
        self._consuming_orderly: dict[int, MessageExt] = {}  # taken by an orderly consumer; guarded by _lock
        # True while a thread consumes the messages in order; guarded by _lock
        self._is_consuming = False
        # Held while an orderly listener is called
        self.consume_lock = threading.Lock()
        self.try_unlock_times = 0  # owned by the rebalance thread
        self.msg_count = 0  # written under _lock, read without it
        self.msg_size = 0  # bytes of bodies; written under _lock, read without it
        self.queue_offset_max = 0  # guarded by _lock
        # Messages at the broker after the last one that was pulled; guarded by _lock
        self.msg_acc_cnt = 0
        # Set once, by rebalance, and read by the consume threads
        self.dropped = False
        self.locked = False
        # By queue offset: the time at which a listener got the message; guarded by _lock
        self._consume_begins: dict[int, int] = {}
        # Monotonic, ms. Differs: the times of a consumer's queue are monotonic; the original uses the wall clock. If
        # that is set forward, the original drops queues that it is pulling; if it is set back, it consumes under a lock
        # that the broker has given to another client
        self.last_pull_ms = self.last_consume_ms = self.last_lock_ms = util_all.monotonic_millis()

    def is_lock_expired(self) -> bool:
        """Return True if the broker's lock was not renewed for 30 s."""
        return util_all.monotonic_millis() - self.last_lock_ms > REBALANCE_LOCK_MAX_LIVE_TIME_MS

    def is_pull_expired(self) -> bool:
        """Return True if no pull was started for 2 minutes: the pull loop has lost this queue."""
        return util_all.monotonic_millis() - self.last_pull_ms > PULL_MAX_IDLE_TIME_MS

    def consume_begins(self, msgs: list[MessageExt]) -> None:
        """Record that a listener gets these messages now."""
        now = util_all.monotonic_millis()
        with self._lock:
            for msg in msgs:
                self._consume_begins[msg.queue_offset] = now

    def first_expired_msg(self, consume_timeout_ms: int) -> MessageExt | None:
        """Return the first message if a listener has had it for longer than `consume_timeout_ms`, else None."""
        with self._lock:
            if not self._messages:
                return None
            msg = next(iter(self._messages.values()))
            begin = self._consume_begins.get(msg.queue_offset)
            if begin is not None and util_all.monotonic_millis() - begin > consume_timeout_ms:
                return msg
            return None

    def put_message(self, msgs: list[MessageExt]) -> bool:
        """Add pulled messages; a message that is already cached (by offset) is replaced and not counted again.

        Return True if an orderly consumer must be started, because no thread is consuming the queue.
        """
        with self._lock:
            messages = self._messages
            last = next(reversed(messages), -1)
            in_order = True
            for msg in msgs:
                offset = msg.queue_offset
                if offset not in messages:
                    self.msg_count += 1
                    self.msg_size += len(msg.body)
                    self.queue_offset_max = offset
                in_order = in_order and offset > last
                last = offset
                messages[offset] = msg
            if not in_order:
                self._messages = dict(sorted(messages.items()))
            self._count_what_is_left(msgs)
            if not self._messages or self._is_consuming:
                return False
            self._is_consuming = True
            return True

    def get_max_span(self) -> int:
        """Return the distance from the lowest to the highest cached offset."""
        with self._lock:
            if not self._messages:
                return 0
            return next(reversed(self._messages)) - next(iter(self._messages))

    def remove_message(self, msgs: list[MessageExt]) -> int:
        """Remove consumed messages; return the offset that may be committed now, -1 if the cache was empty."""
        with self._lock:
            self.last_consume_ms = util_all.monotonic_millis()
            messages, begins = self._messages, self._consume_begins
            if not messages:
                return -1
            for msg in msgs:
                begins.pop(msg.queue_offset, None)
                if messages.pop(msg.queue_offset, None) is not None:
                    self.msg_count -= 1
                    self.msg_size -= len(msg.body)
            return next(iter(messages)) if messages else self.queue_offset_max + 1

    def has_temp_message(self) -> bool:
        """Return True if messages are cached."""
        return bool(self._messages)

    def rollback(self) -> None:
        """Put back all messages that an orderly consumer took and did not commit."""
        with self._lock:
            self._messages = dict(sorted({**self._messages, **self._consuming_orderly}.items()))
            self._consuming_orderly.clear()

    def commit(self) -> int:
        """Remove the messages that an orderly consumer took, because they are consumed.

        Return the offset that may be committed now, -1 if no messages were taken.
        """
        with self._lock:
            taken, self._consuming_orderly = self._consuming_orderly, {}
            self.msg_count -= len(taken)
            self.msg_size -= sum(len(msg.body) for msg in taken.values())
            return max(taken) + 1 if taken else -1

    def make_message_to_consume_again(self, msgs: list[MessageExt]) -> None:
        """Put back some of the messages that an orderly consumer took."""
        with self._lock:
            for msg in msgs:
                self._consuming_orderly.pop(msg.queue_offset, None)
                self._messages[msg.queue_offset] = msg
            self._messages = dict(sorted(self._messages.items()))

    def take_messages(self, batch_size: int) -> list[MessageExt]:
        """Return the next messages for an orderly consumer, at most `batch_size`.

        After an empty list, the consumer is started again once messages arrive.
        """
        with self._lock:
            self.last_consume_ms = util_all.monotonic_millis()
            offsets = [offset for offset, _ in zip(self._messages, range(batch_size))]
            for offset in offsets:
                self._consuming_orderly[offset] = self._messages.pop(offset)
            if not offsets:
                self._is_consuming = False
            return [self._consuming_orderly[offset] for offset in offsets]

    def clear(self) -> None:
        """Forget all messages, because the offset was reset."""
        with self._lock:
            self._messages.clear()
            self._consuming_orderly.clear()
            self._consume_begins.clear()
            self.msg_count = self.msg_size = self.queue_offset_max = 0

    def fill_process_queue_info(self, info: "ProcessQueueInfo") -> None:
        """Write this queue's state into an answer for the admin commands."""
        with self._lock:
            if self._messages:
                info.cachedMsgMinOffset = next(iter(self._messages))
                info.cachedMsgMaxOffset = next(reversed(self._messages))
                info.cachedMsgCount = len(self._messages)
            info.cachedMsgSizeInMiB = self.msg_size // (1024 * 1024)
            info.locked = self.locked
            info.lastLockTimestamp = util_all.wall_clock_of(self.last_lock_ms)
            info.droped = self.dropped
            info.lastPullTimestamp = util_all.wall_clock_of(self.last_pull_ms)
            info.lastConsumeTimestamp = util_all.wall_clock_of(self.last_consume_ms)

    def _count_what_is_left(self, msgs: list[MessageExt]) -> None:
        if not msgs:
            return
        max_offset = msgs[-1].get_property(message_const.PROPERTY_MAX_OFFSET)
        if max_offset is not None and int(max_offset) > msgs[-1].queue_offset:
            self.msg_acc_cnt = int(max_offset) - msgs[-1].queue_offset


@dataclass(slots=True, eq=False)
class PullRequest:
    """The next pull of a queue for a group. It circulates between the pull thread and the callbacks.

    Java: org.apache.rocketmq.client.impl.consumer.PullRequest (4.9.8)
    """

    consumer_group: str
    message_queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    # True once an orderly consumer has started to pull
    previously_locked: bool = False

    def __str__(self) -> str:
        return (f"PullRequest [consumerGroup={self.consumer_group}, messageQueue={self.message_queue}, "
                f"nextOffset={self.next_offset}]")
