"""Which replicas hold everything that was confirmed, and how far that is.

    ReadSocketService  --acknowledged-->  SyncStateSet  --> confirm offset --> dispatch, frames' headers, waiting puts
    housekeeping       --shrink-->

The set of in-sync replicas when a controller decides it: only a member of the controller's set is ever elected.

    ReadSocketService, housekeeping --wanted--> next_ask --> the listener: 1001 to the controller --> answered, decided
    members = decided | wanted | asked for, and not yet heard about  --> confirm offset
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from rmqha.common.lazy_tuples import NamedTuple

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


_FORGET_NS = 10_000_000_000


class Ask(NamedTuple):
    """Make `members` the set if its epoch is still `epoch`."""

    members: frozenset[int]
    epoch: int


class ControlledSyncStateSet(SyncStateSet):
    """The union of what the controller has decided and of what it may decide without a further word of this master.

    So an addition counts at once, a removal only when the controller has confirmed it: whatever is confirmed, each
    member of the controller's set has, whenever it looks. An ask names the epoch of the set that it changes. One whose
    fate is not known counts until that epoch has passed: then it was carried out, or can't be any more.

    Differs: 5.1.4 forgets what it had asked for when it asks for the next set, and when any answer comes.
    """

    def __init__(self, max_offset: Callable[[], int], clock: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(max_offset, clock)
        self._decided: frozenset[int] = frozenset()  # guarded by _lock, as the rest
        self._epoch = 0  # of what is decided
        self._asked: Ask | None = None  # being asked for
        self._unknown: dict[frozenset[int], int] = {}  # asked for at `_epoch`, fate not known: when last (clock)
        self._lost: frozenset[int] = frozenset()  # they came back with less than was confirmed
        self._is_settled = True  # no process before this one can have asked for anything behind `_epoch`

    @property
    def decided(self) -> frozenset[int]:
        """The controller's set, as it was last heard."""
        return self._decided

    @property
    def epoch(self) -> int:
        """How often the controller has changed the set, as it was last heard."""
        return self._epoch

    @property
    def is_settled(self) -> bool:
        """False for a master that goes on, until the controller has answered it: before, it may carry out what the same
        master's process before had asked for."""
        return self._is_settled

    def become_master_of(self, local_id: int, decided: Iterable[int], epoch: int, goes_on: bool = False) -> None:
        """Begin with the controller's set. What this replica holds is confirmed as far as the others hold it.

        `goes_on`: with the epoch that it was the master of before it was started anew.
        """
        with self._lock:
            self._begin(local_id, decided, epoch, self._max_offset() if set(decided) <= {local_id} else None)
            self._is_settled = not goes_on

    def re_elected(self, local_id: int, decided: Iterable[int], epoch: int) -> None:
        """The master stays, the controller begins with another set: who still holds all is wanted again."""
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
        """The controller's set is `members` at `epoch`; whether that is news."""
        with self._lock:
            if self._local_id is None or epoch <= self._epoch:
                return False
            self._decided, self._epoch, self._unknown, self._is_settled = frozenset(members), epoch, {}, True
            self._derive()
            return True

    def needs_ask(self, min_in_sync: int) -> bool:
        """Whether the controller is to be asked for another set.

        Not for one of fewer than `min_in_sync`: nothing is acknowledged then, so who was in sync stays so, and may be
        elected should this master die, too.

        Differs: 5.1.4 reports the master alone, whose death then leaves nobody to elect.
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
        """What to ask for now; counted from here on, until `answered` and beyond. None: nothing."""
        with self._lock:
            if self._local_id is None or self._asked is not None or not self._differs(min_in_sync):
                return None
            self._asked = Ask(self._to_ask_for(min_in_sync), self._epoch)
            self._derive()
            return self._asked

    def answered(self, ask: Ask, is_over: bool) -> None:
        """`ask` has come to an end; `is_over`: the controller has answered it, so it will not be carried out later."""
        with self._lock:
            if self._asked is not ask:
                return  # of a mastership before
            self._asked = None
            if ask.epoch == self._epoch:
                if not is_over:
                    self._unknown[ask.members] = self._clock()
                elif ask.members == self._decided:
                    self._is_settled = True
                    self._forget_old()
            self._derive()

    def _forget_old(self) -> None:
        """What was asked for long before an ask that the controller has now answered, lies nowhere any more.

        That is not so for sure, when the controller slept meanwhile. One of rmqha gives the set that it has already a
        new epoch when it is asked for it, and nothing has to be forgotten; one of RocketMQ refuses that.
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
