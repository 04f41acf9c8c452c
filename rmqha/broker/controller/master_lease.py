"""Until when a master may acknowledge without asking again.

    ReplicasManager  --granted, renounced-->  MasterLease  <--holds--  every acknowledgement
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable

_NS_PER_MS = 1_000_000
_KEPT_SHARE = 0.9  # of what a controller grants: the rest is for clocks that do not go at the same pace


class MasterLease:
    """The leading controller's word that nobody else is made the master before a moment.

    Leases are taken of one leadership at a time, which each heartbeat names: `term`. So a controller that is named in
    one knows that this process holds no lease of a leader of before, and will take none: who is followed next has
    answered what was asked behind the beginning of this one, and a leader that was not named in the question asks its
    store behind it whether it still leads.

    It counts from when the question left, so it ends here before it ends at the controller, which counts from when the
    question came. The end of a connection to any controller takes the lease with it at once, before the connection is
    closed if it is this side that closes it: the controller that leads by now takes that for the end of this process.
    An answer to what was asked before that grants nothing: its controller may have lost the lead since. Any thread may
    ask `holds`, which reads one attribute and the monotonic clock.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards writing what follows
        self._until_ns = 0  # of the clock; 0: there is none
        self._renounced_ns = -1  # of the clock, the last time
        self.term = 0  # the leadership that is followed, written under the lock; 0: of no controller of rmqha
        self._followed_ns = -1  # of the clock, since when

    def granted(self, asked_ns: int, lease_ms: int, term: int = 0, asked_of: int = 0) -> bool:
        """The leading controller has answered what was asked at `asked_ns` (of the clock): you are the master.

        It has answered in this term, and the question named another one or the same: `asked_of`. Returns whether that
        counts: it is the leadership that is followed, or a later one, which is followed from now on. 0 ms: no lease.
        """
        with self._lock:
            until_ns = self._until_ns
            if term != self.term:
                if term in (asked_of, 0) or asked_ns <= self._followed_ns:
                    return False  # that one leads no more, or may not
                self.term, self._followed_ns, until_ns = term, self._clock(), 0
            if lease_ms > 0 and asked_ns > self._renounced_ns:
                until_ns = max(until_ns, asked_ns + int(lease_ms * _KEPT_SHARE * _NS_PER_MS))
            self._until_ns = until_ns
            return True

    def follows_nobody(self) -> None:
        """The controllers have forgotten this broker: it follows whoever answers what is asked from now on."""
        with self._lock:
            self.term, self._followed_ns, self._until_ns = 0, self._clock(), 0

    def renounced(self, for_ms: float = 0) -> None:
        """It says otherwise, its connection has ended, or the mastership is handed over: there is no lease any more.

        Nor will there be one by what is asked within `for_ms` from now on, but for a new role.
        """
        with self._lock:
            self._until_ns = 0
            self._renounced_ns = max(self._renounced_ns, self._clock() + int(for_ms * _NS_PER_MS))

    def role_changes(self) -> None:
        """There is no lease for the new role yet."""
        with self._lock:
            self._until_ns, self._renounced_ns = 0, self._clock()

    def holds(self) -> bool:
        """Whether this master may acknowledge now."""
        return self._clock() < self._until_ns

    def left_ms(self) -> float:
        """How long it still holds; 0 when it does not."""
        return max(0, self._until_ns - self._clock()) / _NS_PER_MS
