"""The local cache of one queue, and the request whose turns fill it."""
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
    """Messages of one queue that were pulled and are not consumed yet, by queue offset.

    The pull callback puts, the consume threads remove. What a consumer may commit is the lowest offset still here, or
    one past the highest when nothing is.

    Java: org.apache.rocketmq.client.impl.consumer.ProcessQueue (4.9.8)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[int, MessageExt] = {}  # ascending by queue offset; guarded by _lock
        self._consuming_orderly: dict[int, MessageExt] = {}  # taken by an orderly consumer; guarded by _lock
        self._is_consuming = False  # a thread is at the orderly messages; guarded by _lock
        self.consume_lock = threading.Lock()  # held while an orderly listener is called
        self.try_unlock_times = 0  # owned by the rebalance thread
        self.msg_count = 0  # written under _lock, read without
        self.msg_size = 0  # bytes of bodies; written under _lock, read without
        self.queue_offset_max = 0  # guarded by _lock
        self.msg_acc_cnt = 0  # messages behind the last one here, at the broker; guarded by _lock
        self.dropped = False  # set once, by rebalance; consume threads look at it
        self.locked = False
        self._consume_begins: dict[int, int] = {}  # by queue offset: when a listener got it; guarded by _lock
        # Monotonic, ms. Differs: the original takes the wall clock's time; one that is set forward lets it drop queues
        # that it pulls, one that is set back lets it consume under a lock that the broker has given to another client
        self.last_pull_ms = self.last_consume_ms = self.last_lock_ms = util_all.monotonic_millis()

    def is_lock_expired(self) -> bool:
        """True when the broker's lock was not renewed for 30 s."""
        return util_all.monotonic_millis() - self.last_lock_ms > REBALANCE_LOCK_MAX_LIVE_TIME_MS

    def is_pull_expired(self) -> bool:
        """True when nothing was pulled for 2 minutes: the pull loop lost this queue."""
        return util_all.monotonic_millis() - self.last_pull_ms > PULL_MAX_IDLE_TIME_MS

    def consume_begins(self, msgs: list[MessageExt]) -> None:
        """A listener gets these now."""
        now = util_all.monotonic_millis()
        with self._lock:
            for msg in msgs:
                self._consume_begins[msg.queue_offset] = now

    def first_expired_msg(self, consume_timeout_ms: int) -> MessageExt | None:
        """The message at the front when a listener has had it for longer than `consume_timeout_ms`."""
        with self._lock:
            if not self._messages:
                return None
            msg = next(iter(self._messages.values()))
            begin = self._consume_begins.get(msg.queue_offset)
            if begin is not None and util_all.monotonic_millis() - begin > consume_timeout_ms:
                return msg
            return None

    def put_message(self, msgs: list[MessageExt]) -> bool:
        """Add pulled messages; one already here (by offset) is replaced and not counted again.

        True when an orderly consumer has to be told that there are some.
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
        """Distance from the lowest to the highest offset here."""
        with self._lock:
            if not self._messages:
                return 0
            return next(reversed(self._messages)) - next(iter(self._messages))

    def remove_message(self, msgs: list[MessageExt]) -> int:
        """Take consumed messages out; the offset that may be committed now, -1 when nothing was here."""
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
        """True while messages are here."""
        return bool(self._messages)

    def rollback(self) -> None:
        """Put back all that an orderly consumer took and did not commit."""
        with self._lock:
            self._messages = dict(sorted({**self._messages, **self._consuming_orderly}.items()))
            self._consuming_orderly.clear()

    def commit(self) -> int:
        """What an orderly consumer took is consumed; the offset that may be committed now, -1 if nothing was taken."""
        with self._lock:
            taken, self._consuming_orderly = self._consuming_orderly, {}
            self.msg_count -= len(taken)
            self.msg_size -= sum(len(msg.body) for msg in taken.values())
            return max(taken) + 1 if taken else -1

    def make_message_to_consume_again(self, msgs: list[MessageExt]) -> None:
        """Put back some that an orderly consumer took."""
        with self._lock:
            for msg in msgs:
                self._consuming_orderly.pop(msg.queue_offset, None)
                self._messages[msg.queue_offset] = msg
            self._messages = dict(sorted(self._messages.items()))

    def take_messages(self, batch_size: int) -> list[MessageExt]:
        """The next messages for an orderly consumer, at most `batch_size`; none: it is told when there are some."""
        with self._lock:
            self.last_consume_ms = util_all.monotonic_millis()
            offsets = [offset for offset, _ in zip(self._messages, range(batch_size))]
            for offset in offsets:
                self._consuming_orderly[offset] = self._messages.pop(offset)
            if not offsets:
                self._is_consuming = False
            return [self._consuming_orderly[offset] for offset in offsets]

    def clear(self) -> None:
        """Forget everything, for an offset that was reset."""
        with self._lock:
            self._messages.clear()
            self._consuming_orderly.clear()
            self._consume_begins.clear()
            self.msg_count = self.msg_size = self.queue_offset_max = 0

    def fill_process_queue_info(self, info: "ProcessQueueInfo") -> None:
        """Put this queue's state into an answer for the admin commands."""
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
    """Which queue to pull next for which group, and from where; it goes round between pull thread and callbacks.

    Java: org.apache.rocketmq.client.impl.consumer.PullRequest (4.9.8)
    """

    consumer_group: str
    message_queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False  # an orderly consumer has begun to pull

    def __str__(self) -> str:
        return (f"PullRequest [consumerGroup={self.consumer_group}, messageQueue={self.message_queue}, "
                f"nextOffset={self.next_offset}]")
