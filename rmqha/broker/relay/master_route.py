"""The route of requests for the master at this moment: here, to another broker, or nowhere until a role is decided."""
from __future__ import annotations

import enum
import time
from collections.abc import Callable

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.store.role import Role

_NS_PER_MS = 1_000_000
# How long requests may wait for the decision which broker is the master, from its beginning on.
WAIT_MS = 2500
# How long they may wait for the lease of a master. Then they are refused, and producers try another broker name.
_LEASE_MS = 1000


class Direction(enum.Enum):
    """HERE: serve it, or refuse it as a broker does that relays nothing. WAIT: a role is being decided."""

    HERE = enum.auto()
    WAIT = enum.auto()
    RELAY = enum.auto()


class Route(NamedTuple):
    """A direction; with RELAY also the master's address for clients and its epoch."""

    direction: Direction
    address: str = ""
    epoch: int = 0


HERE, WAIT = Route(Direction.HERE), Route(Direction.WAIT)


class MasterRoute:
    """The route of requests for the master. Any thread; it reads the role and takes no lock.

    `target` returns the master that this replica follows, as (address, epoch); None while it follows none.
    """

    def __init__(self, role: Role, target: Callable[[], tuple[str, int] | None],
                 clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._role = role
        self._target = target
        self._clock = clock
        # The state that WAIT began with, and when; replaced as a whole.
        self._waiting: tuple[tuple[object, ...], int] | None = None
        # A route that failed, and until when it is not tried again; replaced as a whole.
        self._failed: tuple[Route, int] | None = None

    def is_here(self) -> bool:
        """Return whether this broker is the master and accepts messages."""
        role = self._role
        return not role.is_slave and (role.guard is None or role.guard.takes_puts())

    def now(self) -> Route:
        """Return the present route."""
        role, guard = self._role, self._role.guard
        if not role.is_slave:
            if guard is None or guard.takes_puts():
                return HERE
            if guard.is_handing_over or guard.is_closed:
                return self._wait(WAIT_MS, role.term, guard.is_closed)
            # A new master gets its lease within milliseconds. One that has lost it may have been replaced.
            return self._wait(_LEASE_MS, role.term)
        target = self._target()
        if target is None:
            return self._wait(WAIT_MS, role.term)
        route, failed = Route(Direction.RELAY, *target), self._failed
        if failed is not None and failed[0] == route and self._clock() < failed[1]:
            return HERE
        return route

    def _wait(self, limit_ms: int, *state: object) -> Route:
        waiting = self._waiting
        if waiting is None or waiting[0] != state:
            self._waiting = waiting = state, self._clock()
        return WAIT if self._clock() - waiting[1] < limit_ms * _NS_PER_MS else HERE

    def failed(self, route: Route, for_ms: float) -> None:
        """Note that a route does not lead to the master, so that requests are not relayed there for `for_ms`."""
        self._failed = route, self._clock() + int(for_ms * _NS_PER_MS)
