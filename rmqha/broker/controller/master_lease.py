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

    def granted(self, asked_ns: int, lease_ms: int) -> None:
        """The leading controller has answered what was asked at `asked_ns` (of the clock): you are the master."""
        with self._lock:
            if asked_ns > self._renounced_ns:
                self._until_ns = max(self._until_ns, asked_ns + int(lease_ms * _KEPT_SHARE * _NS_PER_MS))

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
