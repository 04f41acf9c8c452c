"""The rules for which replicas must have a put before it is acknowledged.

    CommitLog, before a put     --need_ack_nums--> AckRule: CountedSlaves, or SyncStateSetRule when roles can change
    GroupTransferService, after --acked_offset-->
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rmqha.common.futures import AtomicLong
from rmqha.store.ha.autoswitch.sync_state_set import SyncStateSet
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.role import Role

if TYPE_CHECKING:
    from rmqha.store.ha.ha_connection import HAConnection

# Special numbers of acknowledgements; a number from 2 on counts replicas, the master included. ANY_SLAVE is 4.9's rule:
# one slave that is not far behind.
ALL_ACK_IN_SYNC_STATE_SET = -1  # all slaves that are in sync
NO_SLAVE = 0
ANY_SLAVE = 1


class Slaves(Protocol):
    """The slaves of a master, as HAService knows them."""

    @property
    def connection_list(self) -> tuple[HAConnection, ...]: ...

    @property
    def push2_slave_max_offset(self) -> AtomicLong:
        """The highest offset that any slave has acknowledged."""


class AckRule(Protocol):
    """The number of replicas that must have a message, and the offset up to which that many have the log."""

    def need_ack_nums(self) -> int | None:
        """Return how many replicas, including the master, must have the next message; None when there are too few."""

    def acked_offset(self, ack_nums: int) -> int:
        """Return the offset up to which `ack_nums` replicas have the log; -1 when there are fewer replicas."""

    def is_slave_ok(self, master_put_where: int) -> bool:
        """Return whether a slave is close enough to a log that ends at `master_put_where`."""

    def in_sync_replicas_nums(self, master_put_where: int) -> int:
        """Return the number of replicas, including the master, in sync with a log that ends at `master_put_where`."""

    def is_in_sync(self, master_put_where: int, ack_offset: int) -> bool:
        """Return whether a slave that has acknowledged `ack_offset` may count as in sync."""

    def any_slave_will_do(self) -> bool:
        """Return whether puts wait for at most one slave, no matter which."""


class CountedSlaves:
    """A rule that waits for any one slave, as in 4.9, or for a number of slaves that is determined at each put.

    `max_offset` returns the end of the log.
    """

    def __init__(self, config: MessageStoreConfig, slaves: Slaves, max_offset: Callable[[], int]) -> None:
        self._config = config
        self._slaves = slaves
        self._max_offset = max_offset

    def is_slave_ok(self, master_put_where: int) -> bool:
        """Return whether there is a slave that is less than haSlaveFallbehindMax bytes behind `master_put_where`.

        Differs: a slave counts when it has reported an offset that the master holds; 4.9 counts every connection.
        """
        if master_put_where - self._slaves.push2_slave_max_offset.get() < self._config.haSlaveFallbehindMax:
            # Usually the first one is serving; `any` would cost two more calls.
            for connection in self._slaves.connection_list:
                if connection.is_serving:
                    return True
        return False

    def slave_acks(self) -> dict[str, int]:
        """Return the acknowledged offset of each slave by identity; of several connections the newest counts."""
        # Differs: slaves are counted by identity; 5.1.4 counts connections, so a slave that has reconnected counts
        # twice for up to 20 s.
        return {connection.slave_identity: connection.slave_ack_offset for connection in self._slaves.connection_list
                if connection.is_serving}

    def in_sync_replicas_nums(self, master_put_where: int) -> int:
        """Return the number of replicas: the master, and the slaves in sync with `master_put_where`."""
        return 1 + sum(self.is_in_sync(master_put_where, ack) for ack in self.slave_acks().values())

    def is_in_sync(self, master_put_where: int, ack_offset: int) -> bool:
        """Return whether a slave that has acknowledged `ack_offset` is less than haMaxGapNotInSync bytes behind."""
        return master_put_where - ack_offset < self._config.haMaxGapNotInSync

    def need_ack_nums(self) -> int | None:
        """Return how many replicas must have the next message; None when there are too few.

        Differs: in 5.1.4 inSyncReplicas=1 waits for no slave, and the other keys apply only with enableControllerMode
        or enableSlaveActingMaster. Here 1 keeps 4.9's rule for a SYNC_MASTER, and each key applies on its own.
        """
        config = self._config
        need, least = config.inSyncReplicas, config.minInSyncReplicas
        every, auto = config.allAckInSyncStateSet, config.enableAutoInSyncReplicas
        if need <= 1 and least <= 1 and not every and not auto:
            return ANY_SLAVE
        in_sync = self.in_sync_replicas_nums(self._max_offset())
        if auto:
            need = max(min(need, in_sync), least)
        if max(least, NO_SLAVE if every else need) > in_sync:
            return None
        if every:
            return ALL_ACK_IN_SYNC_STATE_SET
        if auto and need <= 1:
            return NO_SLAVE
        return max(need, ANY_SLAVE)

    def acked_offset(self, ack_nums: int) -> int:
        """Return the offset up to which `ack_nums` replicas have the log; -1 when there are fewer replicas."""
        if NO_SLAVE <= ack_nums <= ANY_SLAVE:
            return self._slaves.push2_slave_max_offset.get()
        acks = sorted(self.slave_acks().values(), reverse=True)
        if ack_nums == ALL_ACK_IN_SYNC_STATE_SET:
            highest = self._max_offset()
            # Differs: without a controller, allAckInSyncStateSet counts what slaves have acknowledged; 5.1.4 accepts
            # any one connection, whatever it has acknowledged.
            in_sync = sum(self.is_in_sync(highest, ack) for ack in acks)
            ack_nums = 1 + max(in_sync, self._config.minInSyncReplicas - 1, 1)
        return acks[ack_nums - 2] if len(acks) >= ack_nums - 1 else -1

    def any_slave_will_do(self) -> bool:
        """Return whether puts wait for at most one slave, no matter which."""
        return self.need_ack_nums() == ANY_SLAVE


class SyncStateSetRule:
    """A rule that waits for all members of the sync-state set; or, with inSyncReplicas, for a number of slaves."""

    def __init__(self, config: MessageStoreConfig, role: Role, sync_state_set: SyncStateSet,
                 counted: CountedSlaves) -> None:
        self._config = config
        self._role = role
        self._set = sync_state_set
        self._counted = counted

    def is_slave_ok(self, _master_put_where: int) -> bool:
        """Return True: the required number is checked before the put."""
        return True

    def in_sync_replicas_nums(self, _master_put_where: int) -> int:
        """Return the number of replicas, including the master, that hold everything that was confirmed."""
        return len(self._set.members)

    def is_in_sync(self, _master_put_where: int, ack_offset: int) -> bool:
        """Return whether a slave that has acknowledged `ack_offset` holds everything that was confirmed."""
        return ack_offset >= self._set.confirm_offset()

    def need_ack_nums(self) -> int | None:
        """Return how many replicas must have the next message; None when there are too few."""
        config = self._config
        if len(self._set.wanted) < config.minInSyncReplicas:
            return None
        if config.allAckInSyncStateSet:
            return ALL_ACK_IN_SYNC_STATE_SET
        return config.inSyncReplicas if config.inSyncReplicas > 1 else NO_SLAVE

    def acked_offset(self, ack_nums: int) -> int:
        """Return the offset up to which `ack_nums` replicas have the log; -1 when that may not be acknowledged now."""
        guard = self._role.guard
        if not self._set.is_master or guard is not None and not guard.may_acknowledge():
            return -1
        if ack_nums != ALL_ACK_IN_SYNC_STATE_SET:
            return self._counted.acked_offset(ack_nums)
        # Differs: a put that waits while slaves leave the sync-state set needs minInSyncReplicas too; for 5.1.4 the
        # master is enough.
        enough = len(self._set.members) >= self._config.minInSyncReplicas
        return self._set.confirm_offset() if enough else -1

    def any_slave_will_do(self) -> bool:
        """Return False: consumers read only what all members of the sync-state set hold."""
        return False
