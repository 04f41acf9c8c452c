"""The part that a replica plays, and whether it may take puts and acknowledge them at this moment.

    the start, AutoSwitchHAService --take-->  Role  <-- puts, dispatch, replication, requests: read
    ReplicasManager's MasterLease  --holds--> PutGuard  <-- each put, each acknowledgement
    handover request               --pause-->
"""
from __future__ import annotations

import time
from collections.abc import Callable

from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.store.message_store_config import SLAVE, SYNC_MASTER, BrokerRole, MessageStoreConfig

_NS_PER_MS = 1_000_000
AUTOMATIC = f"{mix_all.SOON_OVER}: ask for the route again, and send it to the master"


class PutGuard:
    """The lease, and the pause of a handover, which end by the clock; and a mastership that can't begin yet.

    Any thread may ask.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.holds_lease: Callable[[], bool] | None = None  # None: no lease is asked for
        # gives the lease up, and takes none that is asked for within so many ms
        self.renounce: Callable[[float], object] | None = None
        self.is_closed = False  # what the log holds has to be confirmed first
        self._clock = clock
        self._heir: int | None = None  # broker id of who is to be the master next
        self._paused_until_ns = 0

    def may_acknowledge(self) -> bool:
        """Whether nobody else can be the master now."""
        return self.holds_lease is None or self.holds_lease()

    def takes_puts(self) -> bool:
        """Whether a put may be appended now."""
        return self.why_not() is None

    def why_not(self) -> str | None:
        """Why no puts are taken now, for the producer; None when they are."""
        if self._paused_until_ns and self._clock() < self._paused_until_ns:
            return f"the master is handed over to broker {self._heir}; {AUTOMATIC}"
        if self.is_closed:
            return f"the master was started anew, and what it holds is not confirmed yet; {AUTOMATIC}"
        if not self.may_acknowledge():
            return f"no controller confirms at present that this broker is the master; {AUTOMATIC}"
        return None

    def pause(self, heir: int, timeout_ms: float) -> None:
        """Take no puts for so long, or until `resume`: `heir` is to be the master next."""
        self._heir = heir
        self._paused_until_ns = self._clock() + int(timeout_ms * _NS_PER_MS)

    def resume(self) -> None:
        """The handover is off, or done."""
        self._paused_until_ns = 0

    @property
    def is_handing_over(self) -> bool:
        """Whether puts are refused for a handover."""
        return self._clock() < self._paused_until_ns


class Role:
    """The role of one store's replica and its broker id, changed by the methods here alone and read by all threads.

    `term` rises with each change of the role, before anything is cut off: a put is acknowledged under the term in
    which it began. `guard` is that of a master whose role others decide, None of any other.

    The original keeps role and id in two configurations; their keys follow, for the commands that show them.
    """

    def __init__(self, config: MessageStoreConfig, broker_config: BrokerConfig) -> None:
        self._config = config
        self._broker_config = broker_config
        self.term = 0
        self.guard: PutGuard | None = None
        self.broker_id = broker_config.brokerId
        self._set(config.brokerRole)

    def _set(self, kind: BrokerRole) -> None:
        self._config.brokerRole = self.kind = kind
        self.is_slave = kind is SLAVE
        self.is_sync_master = kind is SYNC_MASTER

    def take(self, kind: BrokerRole) -> None:
        """Play this part from now on, under a new term."""
        self._set(kind)
        self.term += 1  # in this order: a put that sees the new term sees the new role

    def take_id(self, broker_id: int) -> None:
        """Have this id among the replicas of the broker's name from now on; 0 is the master's."""
        self._broker_config.brokerId = self.broker_id = broker_id

    def need_guard(self) -> PutGuard:
        """The guard, made when there is none."""
        if self.guard is None:
            self.guard = PutGuard()
        return self.guard
