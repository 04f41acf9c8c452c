"""Locks on queues: at most one consumer of a group may read a queue in order."""
import logging
import threading
from collections import Counter
from collections.abc import Iterable

from rmqha.broker.client.client_channels import now_ms
from rmqha.common.message.message import MessageQueue

log = logging.getLogger("RocketmqRebalanceLock")

REBALANCE_LOCK_MAX_LIVE_TIME_MS = 60_000
MAX_LOCKS = 100_000  # of all groups
# Limits each host, so that one client cannot use up all locks.
MAX_LOCKS_OF_HOST = 25_000
# Of groups, topics, brokers and clients; clients of 4.9 allow less.
MAX_NAME_LENGTH = 255
# Log lines for one request.
_LINES = 20


class LockEntry:
    """The lock on a queue: its holder, and the time of the last renewal.

    Java: org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager$LockEntry (4.9.8)
    """

    __slots__ = ("client_id", "host", "last_update_ms")

    def __init__(self, client_id: str | None, host: str) -> None:
        self.client_id = client_id
        self.host = host  # of the client
        self.last_update_ms = now_ms()  # monotonic

    def is_locked(self, client_id: str | None) -> bool:
        """Return whether this client still holds the lock."""
        return self.client_id == client_id and not self.is_expired()

    def is_expired(self) -> bool:
        """Return whether the holder has not renewed the lock for more than 60 s."""
        return now_ms() - self.last_update_ms > REBALANCE_LOCK_MAX_LIVE_TIME_MS


class _Log:
    """The log lines of one request; those beyond the first few are left out."""

    def __init__(self) -> None:
        self._left = _LINES

    def write(self, level: int, text: str, *args: object) -> None:
        """Write one line."""
        if self._left > 0:
            log.log(level, text, *args)
        elif self._left == 0:
            log.info("... and more of the same request")
        self._left -= 1


class RebalanceLockManager:
    """The locks by group and queue, in memory only. Guarded by one lock.

    Java: org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager (4.9.8)
    """

    # Differs: the number of locks of queues is limited, in total and per host, and expired locks are removed; the
    # original keeps an entry for each name for ever
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mq_lock_table: dict[str, dict[MessageQueue, LockEntry]] = {}  # guarded by _lock
        self._count = 0  # entries of all groups; guarded by _lock
        self._count_of_host: Counter[str] = Counter()  # guarded by _lock

    def try_lock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str | None,
                       host: str = "") -> set[MessageQueue]:
        """Lock or renew each queue for a client on a host; return the queues that the client now holds."""
        if _is_too_long(group) or _is_too_long(client_id):
            return set()
        lines = _Log()
        with self._lock:
            table = self._mq_lock_table.get(group, {})
            locked = {mq for mq in mqs if self._try_lock_one(group, table, mq, (client_id, host), lines)}
            if table:
                self._mq_lock_table[group] = table
            return locked

    def unlock_batch(self, group: str, mqs: Iterable[MessageQueue], client_id: str | None) -> None:
        """Unlock the queues that the client holds."""
        lines = _Log()
        with self._lock:
            table = self._mq_lock_table.get(group)
            if table is None:
                log.warning("unlockBatch, group not exist, Group: %s %s", group, client_id)
                return
            for mq in mqs:
                entry = table.get(mq)
                if entry is None:
                    lines.write(logging.WARNING, "unlockBatch, but mq not locked, Group: %s %s %s", group, mq,
                                client_id)
                elif entry.client_id != client_id:
                    lines.write(logging.WARNING, "unlockBatch, but mq locked by other client: %s, Group: %s %s %s",
                                entry.client_id, group, mq, client_id)
                else:
                    self._remove(table, mq)
                    lines.write(logging.INFO, "unlockBatch, Group: %s %s %s", group, mq, client_id)
            if not table:
                del self._mq_lock_table[group]

    def remove_expired(self) -> None:
        """Remove the expired locks."""
        with self._lock:
            for group, table in list(self._mq_lock_table.items()):
                for mq in [mq for mq, entry in table.items() if entry.is_expired()]:
                    self._remove(table, mq)
                if not table:
                    del self._mq_lock_table[group]

    def _remove(self, table: dict[MessageQueue, LockEntry], mq: MessageQueue) -> None:
        host = table.pop(mq).host
        self._count -= 1
        self._count_of_host[host] -= 1
        if not self._count_of_host[host]:
            del self._count_of_host[host]

    def _is_full(self, host: str) -> bool:
        return self._count >= MAX_LOCKS or self._count_of_host[host] >= MAX_LOCKS_OF_HOST

    def _try_lock_one(self, group: str, table: dict[MessageQueue, LockEntry], mq: MessageQueue,
                      client: tuple[str | None, str], lines: _Log) -> bool:
        entry, (client_id, host) = table.get(mq), client
        if entry is None:
            if self._is_full(host) or _is_too_long(mq.topic) or _is_too_long(mq.brokerName):
                lines.write(logging.WARNING, "tryLockBatch refused, %d queues are locked, %d by %s. Group: %s "
                            "NewClientId: %s", self._count, self._count_of_host[host], host, group, client_id)
                return False
            table[mq] = LockEntry(client_id, host)
            self._count += 1
            self._count_of_host[host] += 1
            lines.write(logging.INFO, "tryLockBatch, message queue not locked, I got it. Group: %s NewClientId: %s %s",
                        group, client_id, mq)
            return True
        if not entry.is_locked(client_id):
            if not entry.is_expired():
                lines.write(logging.WARNING, "tryLockBatch, message queue locked by other client. Group: %s "
                            "OtherClientId: %s NewClientId: %s %s", group, entry.client_id, client_id, mq)
                return False
            lines.write(logging.WARNING, "tryLockBatch, message queue lock expired, I got it. Group: %s OldClientId: "
                        "%s NewClientId: %s %s", group, entry.client_id, client_id, mq)
            entry.client_id = client_id
        entry.last_update_ms = now_ms()
        return True


def _is_too_long(name: str | None) -> bool:
    return name is not None and len(name) > MAX_NAME_LENGTH
