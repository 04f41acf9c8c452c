"""Whether a master whose role a controller decides may take puts and acknowledge them at this moment.

    ReplicasManager's MasterLease --holds-->  PutGuard  <-- each put, each acknowledgement
    handover request              --pause-->
"""
from __future__ import annotations

import time
from collections.abc import Callable

from rmqha.common import mix_all

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
