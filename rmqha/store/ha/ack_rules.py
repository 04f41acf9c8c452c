"""Which replicas must have a put before it is acknowledged.

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

# Numbers of acknowledgements, the master's own included; ANY_SLAVE is 4.9's rule: one slave that is not far behind.
ALL_ACK_IN_SYNC_STATE_SET = -1  # all slaves that are in sync
NO_SLAVE = 0
ANY_SLAVE = 1


class Slaves(Protocol):
    """The slaves of a master, as HAService knows them."""

    @property
    def connection_list(self) -> tuple[HAConnection, ...]: ...

    @property
    def push2_slave_max_offset(self) -> AtomicLong:
        """The highest offset that any of them has acknowledged."""


class AckRule(Protocol):
    """How many replicas must have a message, and up to where so many have the log."""

    def need_ack_nums(self) -> int | None:
        """How many must have the message that is about to be put, the master included; None when there are too few."""

    def acked_offset(self, ack_nums: int) -> int:
        """Up to where `ack_nums` replicas hold the log; -1 when there are not so many."""

    def is_slave_ok(self, master_put_where: int) -> bool:
        """Whether there is a slave close enough to a log that ends at `master_put_where`."""

    def in_sync_replicas_nums(self, master_put_where: int) -> int:
        """The master, and its slaves that are in sync with a log that ends at `master_put_where`."""

    def is_in_sync(self, master_put_where: int, ack_offset: int) -> bool:
        """Whether a slave that has acknowledged `ack_offset` may be one of them."""

    def any_slave_will_do(self) -> bool:
        """Whether puts ask for no more than one slave, whichever that is."""


class CountedSlaves:
    """Any one slave, as in 4.9, or a number of slaves that are counted when a message is put.

    `max_offset`: the end of the log.
    """

    def __init__(self, config: MessageStoreConfig, slaves: Slaves, max_offset: Callable[[], int]) -> None:
        self._config = config
        self._slaves = slaves
        self._max_offset = max_offset

    def is_slave_ok(self, master_put_where: int) -> bool:
        """Whether there is a slave, less than haSlaveFallbehindMax bytes behind `master_put_where`.

        Differs: 4.9 counts every connection; here a peer has to have reported an offset that the master holds.
        """
        if master_put_where - self._slaves.push2_slave_max_offset.get() < self._config.haSlaveFallbehindMax:
            for connection in self._slaves.connection_list:  # as a rule the first one is; `any` costs two calls more
                if connection.is_serving:
                    return True
        return False

    def slave_acks(self) -> dict[str, int]:
        """What each slave has acknowledged, by identity; of several connections of one the newest counts."""
        # Differs: 5.1.4 counts connections, so that one slave which came back counts twice for up to 20 s
        return {connection.slave_identity: connection.slave_ack_offset for connection in self._slaves.connection_list
                if connection.is_serving}

    def in_sync_replicas_nums(self, master_put_where: int) -> int:
        """The master and the slaves that are less than haMaxGapNotInSync bytes behind `master_put_where`."""
        return 1 + sum(self.is_in_sync(master_put_where, ack) for ack in self.slave_acks().values())

    def is_in_sync(self, master_put_where: int, ack_offset: int) -> bool:
        """Whether a slave that has acknowledged `ack_offset` is close enough."""
        return master_put_where - ack_offset < self._config.haMaxGapNotInSync

    def need_ack_nums(self) -> int | None:
        """How many replicas must have the message that is about to be put; None when there are too few.

        Differs: in 5.1.4 inSyncReplicas=1 asks for no slave, and the other keys count only with enableControllerMode
        or enableSlaveActingMaster. Here 1 keeps 4.9's rule for a SYNC_MASTER, and each key holds by itself.
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
        """Up to where `ack_nums` replicas hold the log; -1 when there are not so many."""
        if NO_SLAVE <= ack_nums <= ANY_SLAVE:
            return self._slaves.push2_slave_max_offset.get()
        acks = sorted(self.slave_acks().values(), reverse=True)
        if ack_nums == ALL_ACK_IN_SYNC_STATE_SET:
            highest = self._max_offset()
            # Differs: 5.1.4 is content with any one connection here, whatever it has acknowledged
            in_sync = sum(self.is_in_sync(highest, ack) for ack in acks)
            ack_nums = 1 + max(in_sync, self._config.minInSyncReplicas - 1, 1)
        return acks[ack_nums - 2] if len(acks) >= ack_nums - 1 else -1

    def any_slave_will_do(self) -> bool:
        """Whether puts ask for no more than one slave, whichever that is."""
        return self.need_ack_nums() == ANY_SLAVE


class SyncStateSetRule:
    """The members of the sync-state set; or a number of slaves, or none, with inSyncReplicas."""

    def __init__(self, config: MessageStoreConfig, role: Role, sync_state_set: SyncStateSet,
                 counted: CountedSlaves) -> None:
        self._config = config
        self._role = role
        self._set = sync_state_set
        self._counted = counted

    def is_slave_ok(self, _master_put_where: int) -> bool:
        """Always: how many are needed is found out before the put."""
        return True

    def in_sync_replicas_nums(self, _master_put_where: int) -> int:
        """The master and the slaves that hold all that was confirmed."""
        return len(self._set.members)

    def is_in_sync(self, _master_put_where: int, ack_offset: int) -> bool:
        """Whether a slave that has acknowledged `ack_offset` may be one of them."""
        return ack_offset >= self._set.confirm_offset()

    def need_ack_nums(self) -> int | None:
        """How many must have the message that is about to be put; None when there are too few."""
        config = self._config
        if len(self._set.wanted) < config.minInSyncReplicas:
            return None
        if config.allAckInSyncStateSet:
            return ALL_ACK_IN_SYNC_STATE_SET
        return config.inSyncReplicas if config.inSyncReplicas > 1 else NO_SLAVE

    def acked_offset(self, ack_nums: int) -> int:
        """Up to where `ack_nums` replicas hold the log; -1 when there are not so many."""
        guard = self._role.guard
        if not self._set.is_master or guard is not None and not guard.may_acknowledge():
            return -1
        if ack_nums != ALL_ACK_IN_SYNC_STATE_SET:
            return self._counted.acked_offset(ack_nums)
        # Differs: a put that waits while slaves leave needs minInSyncReplicas too; 5.1.4 is content with the master
        enough = len(self._set.members) >= self._config.minInSyncReplicas
        return self._set.confirm_offset() if enough else -1

    def any_slave_will_do(self) -> bool:
        """Never: what is read waits for all members of the sync-state set."""
        return False
