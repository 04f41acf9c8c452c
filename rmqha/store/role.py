"""The role of a replica, and whether it may accept and acknowledge puts at this moment.

    store start, AutoSwitchHAService --take-->  Role      <-- puts, dispatch, replication, requests: read
    ReplicasManager's MasterLease    --holds--> PutGuard  <-- each put, each acknowledgement
    handover request                 --pause-->

Term and lease answer two different questions, and a put needs both answers.

- The term (`Role.term`) is local. It numbers the roles that this process has had, and rises with each change before
  anything is truncated. A put notes the term before it reads the role, and is appended and acknowledged only while the
  term is still the same. Without it, a put that was appended at offset 1000 and truncated by a change of roles would be
  acknowledged as soon as replicas report 1000 again, although other bytes are there by then.
- The lease (`PutGuard.holds_lease`) is global. It is the leading controller's promise that no other broker becomes the
  master before a certain time. A master that is cut off from its controllers can't learn that it was replaced; it can
  only observe, on its own monotonic clock, that the promise has run out. From then on it acknowledges nothing, so a
  master that the cluster has already replaced never reports success to a producer.

A put whose lease runs out after the append stays unanswered: it is acknowledged if the lease is renewed in time and
the term is the same, and times out otherwise. A timeout is honest, because the message may or may not survive.
"""
from __future__ import annotations

import time
from collections.abc import Callable

from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.store.message_store_config import SLAVE, SYNC_MASTER, BrokerRole, MessageStoreConfig

_NS_PER_MS = 1_000_000
AUTOMATIC = f"{mix_all.SOON_OVER}: refresh the route and send the message to the master"


class PutGuard:
    """The conditions under which a master may accept and acknowledge puts. Safe to read from any thread.

    The lease and the pause of a planned handover expire by the clock. `is_closed` is set while a restarted master can't
    begin yet, because its log is not confirmed.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        # None: no lease is needed
        self.holds_lease: Callable[[], bool] | None = None
        # Gives the lease up, and rejects any lease requested within the given number of ms.
        self.renounce: Callable[[float], object] | None = None
        # The contents of the log have to be confirmed first.
        self.is_closed = False
        self._clock = clock
        # broker id of the next master
        self._heir: int | None = None
        self._paused_until_ns = 0

    def may_acknowledge(self) -> bool:
        """Return whether no other broker can be the master now."""
        return self.holds_lease is None or self.holds_lease()

    def takes_puts(self) -> bool:
        """Return whether a put may be appended now."""
        return self.why_not() is None

    def why_not(self) -> str | None:
        """Return the reason, for the producer, why no puts are accepted now; None when they are."""
        if self._paused_until_ns and self._clock() < self._paused_until_ns:
            return f"the master role is being handed over to broker {self._heir}; {AUTOMATIC}"
        if self.is_closed:
            return f"the master was restarted, and its log is not confirmed yet; {AUTOMATIC}"
        if not self.may_acknowledge():
            return f"no controller currently confirms that this broker is the master; {AUTOMATIC}"
        return None

    def pause(self, heir: int, timeout_ms: float) -> None:
        """Refuse puts for `timeout_ms`, or until `resume`, because `heir` is about to become the master."""
        self._heir = heir
        self._paused_until_ns = self._clock() + int(timeout_ms * _NS_PER_MS)

    def resume(self) -> None:
        """End the pause: the handover has been cancelled or completed."""
        self._paused_until_ns = 0

    @property
    def is_handing_over(self) -> bool:
        """True while puts are refused because of a handover."""
        return self._clock() < self._paused_until_ns


class Role:
    """The role and broker id of one store's replica. Only the methods here change them; any thread reads them.

    `term` rises with each change of the role, before anything is truncated: a put is acknowledged only under the term
    in which it began (see the module). `guard` belongs to a master whose role is decided elsewhere; it is None for all
    others.

    The original keeps role and id in two configurations. Their keys are updated here too, for commands that show them.
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
        """Take this role from now on, under a new term."""
        self._set(kind)
        # The order matters: a put that sees the new term also sees the new role.
        self.term += 1

    def take_id(self, broker_id: int) -> None:
        """Take this id among the replicas of the broker's name; 0 is the master's."""
        self._broker_config.brokerId = self.broker_id = broker_id

    def need_guard(self) -> PutGuard:
        """Return the guard, creating it first if there is none."""
        if self.guard is None:
            self.guard = PutGuard()
        return self.guard
