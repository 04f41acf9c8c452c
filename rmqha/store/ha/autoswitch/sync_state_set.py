"""Which replicas hold everything that was confirmed, and how far that is.

    ReadSocketService  --acknowledged-->  SyncStateSet  --> confirm offset --> dispatch, frames' headers, waiting puts
    housekeeping       --shrink-->
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable

_NO_CONNECTION = -1


class SyncStateSet:
    """The master, and the slaves that hold all confirmed bytes. The confirm offset never falls but by `lower`.

    A slave that has caught up first holds the confirm offset back, and is a member as soon as it holds everything
    that was confirmed before: so whatever was ever confirmed, each member has.

    Differs: the master alone decides, at once. 5.1.4 asks its controller, and adds a slave while messages are confirmed
    without it.
    """

    def __init__(self, max_offset: Callable[[], int], clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._max_offset = max_offset  # of this replica's log
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._local_id: int | None = None  # None: not a master
        self._wanted: frozenset[int] = frozenset()  # who is to be a member
        self._members: frozenset[int] = frozenset()  # who counts as one: whoever may be elected
        self._joining: frozenset[int] = frozenset()  # they hold the confirm offset back
        self._acks: dict[int, int] = {}  # slave id -> its last acknowledgement, while it is connected
        self._caught_up_ns: dict[int, int] = {}  # slave id -> when it held all that the log had (monotonic)
        self._confirm_offset = -1

    @property
    def is_master(self) -> bool:
        """Whether this replica is the one that decides."""
        return self._local_id is not None

    @property
    def members(self) -> frozenset[int]:
        """Broker ids of the members, the master's included; empty when this is not a master."""
        return self._members

    @property
    def wanted(self) -> frozenset[int]:
        """Who is to be a member, as far as this master knows: those that hold all that was confirmed."""
        return self._wanted

    def become_master(self, local_id: int) -> None:
        """Begin with the master alone: all that it holds is confirmed."""
        with self._lock:
            self._local_id = local_id
            self._wanted, self._joining = frozenset((local_id,)), frozenset()
            self._acks, self._caught_up_ns = {}, {}
            self._derive()
            self._confirm_offset = self._max_offset()

    def resign(self) -> None:
        """This replica is no longer a master: nothing is confirmed here."""
        with self._lock:
            if self._local_id is not None:
                self._confirm()
            self._local_id = None
            self._wanted = self._joining = frozenset()
            self._acks, self._caught_up_ns = {}, {}
            self._derive()

    def confirm_offset(self) -> int:
        """End of what all members hold; on a slave, of what the master said so about. -1: unknown."""
        with self._lock:
            if self._local_id is not None:
                return self._confirm()
            return min(self._confirm_offset, self._max_offset())

    def learn(self, confirm_offset: int) -> bool:
        """A slave hears its master's confirm offset; True when it is new."""
        with self._lock:
            if self._local_id is not None or confirm_offset <= self._confirm_offset:
                return False
            self._confirm_offset = min(confirm_offset, self._max_offset())
            return True

    def lower(self, offset: int) -> None:
        """The log is cut off at `offset`."""
        with self._lock:
            self._confirm_offset = min(self._confirm_offset, offset)

    def acknowledged(self, slave_id: int, ack_offset: int, caught_up_ns: int | None, may_join: bool) -> None:
        """A slave holds everything below `ack_offset`.

        `caught_up_ns`: when (monotonic) the log ended no further than that; None: no news. `may_join`: begin to make it
        a member, unless it is one already.
        """
        with self._lock:
            if self._local_id is None:
                return
            if slave_id in self._members and ack_offset < self._confirm():
                # it comes back with less than it had acknowledged: it no longer holds all that was confirmed
                self._wanted -= {slave_id}
                self._has_lost(slave_id)
                self._derive()
            self._acks[slave_id] = ack_offset
            if caught_up_ns is not None:
                self._caught_up_ns[slave_id] = max(self._caught_up_ns.get(slave_id, 0), caught_up_ns)
            if slave_id in self._wanted:
                return
            if may_join:
                self._joining |= {slave_id}
            if slave_id in self._joining and ack_offset >= self._confirm():
                self._joining -= {slave_id}
                self._wanted |= {slave_id}
                self._derive()

    def holds(self, slave_id: int, offset: int) -> bool:
        """Whether a slave has acknowledged all below `offset`, and is in sync."""
        with self._lock:
            return slave_id in self._wanted and self._acks.get(slave_id, _NO_CONNECTION) >= offset

    def left(self, slave_id: int) -> None:
        """A slave's last connection has ended."""
        with self._lock:
            if self._local_id is not None:
                self._drop(frozenset((slave_id,)))

    def shrink(self, max_behind_ms: int) -> frozenset[int]:
        """Drop the members that have not caught up for so long, or are not connected; returns those dropped."""
        now = self._clock()
        with self._lock:
            if self._local_id is None:
                return frozenset()
            highest = self._max_offset()
            late = frozenset(
                slave for slave in self._wanted | self._joining
                if slave != self._local_id and self._acks.get(slave, _NO_CONNECTION) < highest
                and now - self._caught_up_ns.get(slave, 0) > max_behind_ms * 1_000_000)
            self._drop(late)
            return late

    def _drop(self, slaves: frozenset[int]) -> None:
        self._confirm()
        self._wanted -= slaves
        self._joining -= slaves
        for slave in slaves:
            self._acks.pop(slave, None)
        self._derive()

    def _has_lost(self, slave_id: int) -> None:
        """Under the lock: a member does not hold what was confirmed any more."""

    def _derive(self) -> None:
        """Under the lock: who counts as a member."""
        self._members = self._wanted

    def _confirm(self) -> int:
        """Under the lock: raise the confirm offset to what all hold."""
        offset = self._max_offset()
        for slave in (self._members | self._joining) - {self._local_id}:
            offset = min(offset, self._acks.get(slave, _NO_CONNECTION))
        self._confirm_offset = max(self._confirm_offset, offset)
        return self._confirm_offset
