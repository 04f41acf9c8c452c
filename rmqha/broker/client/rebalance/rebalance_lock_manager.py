"""Which consumer may read a queue in order."""
import logging
import threading
from collections.abc import Iterable

from rmqha.broker.client.client_channel_info import now_ms
from rmqha.common.message.message_queue import MessageQueue

log = logging.getLogger("RocketmqRebalanceLock")

REBALANCE_LOCK_MAX_LIVE_TIME_MS = 60_000


class LockEntry:
    """Who holds a queue, and when the client last said so.

    Java: org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager$LockEntry (4.9.8)
    """

    __slots__ = ("client_id", "last_update_ms")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.last_update_ms = now_ms()  # monotonic

    def is_locked(self, client_id: str) -> bool:
        """Whether this client holds the lock still."""
        return self.client_id == client_id and not self.is_expired()

    def is_expired(self) -> bool:
        """Whether the holder has been silent for more than 60 s."""
        return now_ms() - self.last_update_ms > REBALANCE_LOCK_MAX_LIVE_TIME_MS


class RebalanceLockManager:
    """Locks by group and queue; in memory only. Everything under one lock.

    Java: org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager (4.9.8)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mq_lock_table: dict[str, dict[MessageQueue, LockEntry]] = {}  # guarded by _lock

    def try_lock(self, group: str, mq: MessageQueue, client_id: str) -> bool:
        """Lock one queue, or renew the lock."""
        return mq in self.try_lock_batch(group, (mq,), client_id)

    def try_lock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str) -> set[MessageQueue]:
        """Lock or renew each queue; the ones that the client now holds."""
        with self._lock:
            table = self._mq_lock_table.setdefault(group, {})
            return {mq for mq in mqs if self._try_lock_one(group, table, mq, client_id)}

    def unlock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str) -> None:
        """Give up the queues that the client holds."""
        with self._lock:
            table = self._mq_lock_table.get(group)
            if table is None:
                log.warning("unlockBatch, group not exist, Group: %s %s", group, client_id)
                return
            for mq in mqs:
                entry = table.get(mq)
                if entry is None:
                    log.warning("unlockBatch, but mq not locked, Group: %s %s %s", group, mq, client_id)
                elif entry.client_id != client_id:
                    log.warning("unlockBatch, but mq locked by other client: %s, Group: %s %s %s", entry.client_id,
                                group, mq, client_id)
                else:
                    del table[mq]
                    log.info("unlockBatch, Group: %s %s %s", group, mq, client_id)

    @staticmethod
    def _try_lock_one(group: str, table: dict[MessageQueue, LockEntry], mq: MessageQueue, client_id: str) -> bool:
        entry = table.get(mq)
        if entry is None:
            table[mq] = LockEntry(client_id)
            log.info("tryLockBatch, message queue not locked, I got it. Group: %s NewClientId: %s %s", group,
                     client_id, mq)
            return True
        if not entry.is_locked(client_id):
            if not entry.is_expired():
                log.warning("tryLockBatch, message queue locked by other client. Group: %s OtherClientId: %s "
                            "NewClientId: %s %s", group, entry.client_id, client_id, mq)
                return False
            log.warning("tryLockBatch, message queue lock expired, I got it. Group: %s OldClientId: %s "
                        "NewClientId: %s %s", group, entry.client_id, client_id, mq)
            entry.client_id = client_id
        entry.last_update_ms = now_ms()
        return True
