"""The sync-state set: the replicas that hold everything that was confirmed, and the confirm offset.

    ReadSocketService  --acknowledged-->  SyncStateSet  --> confirm offset --> dispatch, frames' headers, waiting puts
    housekeeping       --shrink-->

With a controller, which elects only members of the set that it has decided:

    ReadSocketService, housekeeping --wanted--> next_ask --> the listener: request 1001 --> answered, decided
    members = decided | wanted | requested with unknown outcome  --> confirm offset

The invariant: every replica that may become the master holds everything below the confirm offset. A put is acknowledged
when the confirm offset has passed it, and consumers read no further; so no acknowledged message is lost by an election.
The confirm offset is the minimum of the ends of all members' logs, and never falls except by `lower`.

Adding a slave is the first difficulty. A slave that is one byte short of the confirm offset must not be a member, but
while it catches up, the confirm offset moves on. So a slave that is close first joins (`_joining`): it holds the
confirm offset back, but may not be elected. It becomes a member as soon as it holds everything confirmed so far.

The second difficulty is that two processes decide. The master computes the confirm offset, the controller elects, and
messages between them are delayed and lost. The master therefore computes with every set that the controller may have
decided or may still decide: the last set that the controller reported, the set that the master now wants, and all sets
that it has requested without knowing the outcome. Additions thus count at once, and removals only when the controller
has confirmed them. A request names the epoch of the set that it changes, and the controller applies it only to that
epoch; once the epoch has passed, an old request can no longer take effect and is forgotten. If the master dropped a
slave on its own instead, it would acknowledge messages without it, and the controller could still elect that slave.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from rmqha.common.lazy_tuples import NamedTuple

_NO_CONNECTION = -1


class SyncStateSet:
    """The master, and the slaves that hold all confirmed bytes. Only `lower` lowers the confirm offset.

    A slave that is close to the end of the log does not become a member at once. First it holds the confirm offset
    back. It becomes a member when it holds everything that was confirmed before. So each member has whatever was ever
    confirmed.

    Differs: without a controller, the master alone decides the sync-state set, at once. 5.1.4 asks its controller, and
    adds a slave while messages are being confirmed without it.
    """

    def __init__(self, max_offset: Callable[[], int], clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._max_offset = max_offset  # of this replica's log
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._local_id: int | None = None  # None: not a master
        # replicas that should be members
        self._wanted: frozenset[int] = frozenset()
        # replicas that count as members, because they may be elected
        self._members: frozenset[int] = frozenset()
        # slaves that hold the confirm offset back, but may not be elected yet
        self._joining: frozenset[int] = frozenset()
        # slave id -> its last acknowledgement, while it is connected
        self._acks: dict[int, int] = {}
        # slave id -> last time (monotonic) at which it held all of the log
        self._caught_up_ns: dict[int, int] = {}
        self._confirm_offset = -1

    @property
    def is_master(self) -> bool:
        """True if this replica is the master, which computes the set."""
        return self._local_id is not None

    @property
    def members(self) -> frozenset[int]:
        """Broker ids of the members, including the master's; empty when this replica is not a master."""
        return self._members

    @property
    def wanted(self) -> frozenset[int]:
        """The replicas that should be members, according to this master: they hold everything that was confirmed."""
        return self._wanted

    def become_master(self, local_id: int) -> None:
        """Begin as the master and only member: everything that it holds is confirmed."""
        with self._lock:
            self._local_id = local_id
            self._wanted, self._joining = frozenset((local_id,)), frozenset()
            self._acks, self._caught_up_ns = {}, {}
            self._derive()
            self._confirm_offset = self._max_offset()

    def resign(self) -> None:
        """End the master role: nothing is confirmed here any more."""
        with self._lock:
            if self._local_id is not None:
                self._confirm()
            self._local_id = None
            self._wanted = self._joining = frozenset()
            self._acks, self._caught_up_ns = {}, {}
            self._derive()

    def confirm_offset(self) -> int:
        """Return the end of the bytes that all members hold; on a slave, the value last received. -1: unknown."""
        with self._lock:
            if self._local_id is not None:
                return self._confirm()
            return min(self._confirm_offset, self._max_offset())

    def learn(self, confirm_offset: int) -> bool:
        """Adopt the master's confirm offset on a slave; return whether it is new."""
        with self._lock:
            if self._local_id is not None or confirm_offset <= self._confirm_offset:
                return False
            self._confirm_offset = min(confirm_offset, self._max_offset())
            return True

    def lower(self, offset: int) -> None:
        """Lower the confirm offset, because the log is truncated at `offset`."""
        with self._lock:
            self._confirm_offset = min(self._confirm_offset, offset)

    def acknowledged(self, slave_id: int, ack_offset: int, caught_up_ns: int | None, may_join: bool) -> None:
        """Handle a slave's acknowledgement of everything below `ack_offset`.

        `caught_up_ns`: last time (monotonic) at which the slave held all of the log; None: not new. `may_join`: begin
        to make the slave a member, unless it is one already.
        """
        with self._lock:
            if self._local_id is None:
                return
            if slave_id in self._members and ack_offset < self._confirm():
                # It has returned with less than it had acknowledged, and lacks confirmed bytes.
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
        """Return whether a slave is in sync and has acknowledged everything below `offset`."""
        with self._lock:
            return slave_id in self._wanted and self._acks.get(slave_id, _NO_CONNECTION) >= offset

    def left(self, slave_id: int) -> None:
        """Drop a slave whose last connection has ended."""
        with self._lock:
            if self._local_id is not None:
                self._drop(frozenset((slave_id,)))

    def shrink(self, max_behind_ms: int) -> frozenset[int]:
        """Drop and return the members that have not caught up for `max_behind_ms`, or are not connected."""
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
        """Handle a member that has lost confirmed bytes. Called under the lock."""

    def _derive(self) -> None:
        """Recompute the members. Called under the lock."""
        self._members = self._wanted

    def _confirm(self) -> int:
        """Raise the confirm offset to the end of the bytes that all members hold. Called under the lock."""
        offset = self._max_offset()
        for slave in (self._members | self._joining) - {self._local_id}:
            offset = min(offset, self._acks.get(slave, _NO_CONNECTION))
        self._confirm_offset = max(self._confirm_offset, offset)
        return self._confirm_offset


_FORGET_NS = 10_000_000_000


class Ask(NamedTuple):
    """A request to the controller: make `members` the set, if the set's epoch is still `epoch`."""

    members: frozenset[int]
    epoch: int


class ControlledSyncStateSet(SyncStateSet):
    """The union of the controller's set and of the sets that it may still decide without another request.

    So an addition counts at once, and a removal only when the controller has confirmed it. At any time, each member of
    the controller's set has everything that was confirmed. A request names the epoch of the set that it changes. If its
    outcome is unknown, it counts until that epoch has passed: then it was carried out, or can't be any more.

    Differs: a request for a new sync-state set counts until its outcome is known; 5.1.4 forgets it when it sends the
    next one, and when any response arrives.
    """

    def __init__(self, max_offset: Callable[[], int], clock: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(max_offset, clock)
        self._decided: frozenset[int] = frozenset()  # guarded by _lock, as the rest
        # of the decided set
        self._epoch = 0
        # the current request
        self._asked: Ask | None = None
        # sets requested at `_epoch` with unknown outcome -> time of the last request (clock)
        self._unknown: dict[frozenset[int], int] = {}
        # slaves that returned with less than was confirmed
        self._lost: frozenset[int] = frozenset()
        # No request of an earlier process of this master can take effect at `_epoch` any more.
        self._is_settled = True

    @property
    def decided(self) -> frozenset[int]:
        """The controller's set, as last received."""
        return self._decided

    @property
    def epoch(self) -> int:
        """The number of times that the controller has changed the set, as last received."""
        return self._epoch

    @property
    def is_settled(self) -> bool:
        """False for a restarted master that continues its epoch, until the controller has responded to it.

        Before that, the controller may still carry out a request of the master's previous process.
        """
        return self._is_settled

    def become_master_of(self, local_id: int, decided: Iterable[int], epoch: int, goes_on: bool = False) -> None:
        """Begin as the master with the controller's set. This log is confirmed as far as the other members hold it.

        `goes_on`: the master continues the epoch that it had before it was restarted.
        """
        with self._lock:
            self._begin(local_id, decided, epoch, self._max_offset() if set(decided) <= {local_id} else None)
            self._is_settled = not goes_on

    def re_elected(self, local_id: int, decided: Iterable[int], epoch: int) -> None:
        """Stay the master with another set from the controller; slaves that still hold everything are wanted again."""
        with self._lock:
            self._confirm()
            acks, times, before = self._acks, self._caught_up_ns, self._wanted
            self._begin(local_id, decided, epoch, None)
            self._acks, self._caught_up_ns = acks, times
            self._wanted |= {slave for slave in before if acks.get(slave, -1) >= self._confirm_offset}
            self._derive()

    def _begin(self, local_id: int, decided: Iterable[int], epoch: int, confirmed: int | None) -> None:
        self._local_id = local_id
        self._decided = self._wanted = frozenset(decided) | {local_id}
        self._joining = frozenset()
        self._epoch, self._asked, self._unknown, self._lost = epoch, None, {}, frozenset()
        self._acks, self._caught_up_ns = {}, {}
        self._is_settled = True
        self._derive()
        if confirmed is not None:
            self._confirm_offset = confirmed

    def resign(self) -> None:
        with self._lock:
            if self._local_id is not None:
                self._confirm()
            self._decided, self._asked, self._unknown = frozenset(), None, {}
        super().resign()

    def decide(self, members: Iterable[int], epoch: int) -> bool:
        """Adopt the controller's set `members` at `epoch`; return whether that is new."""
        with self._lock:
            if self._local_id is None or epoch <= self._epoch:
                return False
            self._decided, self._epoch, self._unknown, self._is_settled = frozenset(members), epoch, {}, True
            self._derive()
            return True

    def needs_ask(self, min_in_sync: int) -> bool:
        """Return whether the controller has to be asked for another set.

        It is not asked for a set of fewer than `min_in_sync` members. Nothing is acknowledged then, so the replicas
        that were in sync still are, and may be elected if this master fails too.

        Differs: a master does not request a sync-state set of fewer than minInSyncReplicas members. 5.1.4 reports the
        master alone; if it then fails, no replica can be elected.
        """
        with self._lock:
            return self._local_id is not None and self._differs(min_in_sync)

    def _differs(self, min_in_sync: int) -> bool:
        return not self._is_settled or self._to_ask_for(min_in_sync) != self._decided \
            or any(not asked <= self._decided for asked in self._unknown)

    def _to_ask_for(self, min_in_sync: int) -> frozenset[int]:
        is_too_small = len(self._wanted) < min_in_sync and self._wanted < self._decided
        return self._decided if is_too_small and not self._lost & self._decided else self._wanted

    def next_ask(self, min_in_sync: int) -> Ask | None:
        """Return the request to send now, or None. It counts from here on, at least until `answered`."""
        with self._lock:
            if self._local_id is None or self._asked is not None or not self._differs(min_in_sync):
                return None
            self._asked = Ask(self._to_ask_for(min_in_sync), self._epoch)
            self._derive()
            return self._asked

    def answered(self, ask: Ask, is_over: bool) -> None:
        """Handle the end of `ask`. `is_over`: the controller has responded, so it will not be carried out later."""
        with self._lock:
            # It belongs to an earlier master role.
            if self._asked is not ask:
                return
            self._asked = None
            if ask.epoch == self._epoch:
                if not is_over:
                    self._unknown[ask.members] = self._clock()
                elif ask.members == self._decided:
                    self._is_settled = True
                    self._forget_old()
            self._derive()

    def _forget_old(self) -> None:
        """Forget requests sent long before the one that the controller has just answered: they must have been lost.

        This is not certain if the controller was suspended meanwhile. It is needed only for a RocketMQ controller,
        which rejects a request for the set that it already has. An rmqha controller gives that set a new epoch instead,
        which ends all earlier requests.
        """
        now = self._clock()
        self._unknown = {members: at for members, at in self._unknown.items() if now - at < _FORGET_NS}

    def _has_lost(self, slave_id: int) -> None:
        self._lost |= {slave_id}

    def _derive(self) -> None:
        self._lost -= self._wanted
        if self._local_id is None:
            self._members = frozenset()
            return
        self._members = self._wanted.union(self._decided, self._asked.members if self._asked else (), *self._unknown)
