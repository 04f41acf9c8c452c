"""What every store of a controller's decisions can do."""
from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rmqha.controller.replica_set import ReplicaSet

_MAX_TERM = (1 << 62) - 1  # it is on the wire, as a long


class NotLeaderError(Exception):
    """Another controller leads, or nobody is known to: nothing was written, and nothing ever will be by this call."""


class StoreConflictError(Exception):
    """The replica set is not the one that was read any more: read it again, decide again."""


class StoreFailedError(Exception):
    """The change was not written; or that is not known, then this controller has stopped leading before it says so."""


@dataclass(frozen=True)
class Versioned:
    """A replica set, None when there is none of that name, and the version that a change of it has to name."""

    replica_set: ReplicaSet | None
    version: int


def new_term() -> int:
    """The number of a leadership. Drawn, not counted: a store that was lost or restored would count anew."""
    return secrets.randbelow(_MAX_TERM) + 1


class ControllerStore(Protocol):
    """Replica sets by broker name, which only the leader may read and change.

    Any thread may call it. What `leads` says is of that moment; `put` alone decides, and checks both the leadership and
    the version within one transaction.
    """

    on_leader_changed: Callable[[], None] | None
    """Called, on a thread of the store's, after this controller has begun or ceased to lead."""

    def start(self) -> None:
        """Open it, and try to lead. OSError or ValueError says why it can't be used."""

    def shutdown(self) -> None:
        """Give the leadership back, and close. May be called twice."""

    @property
    def leads(self) -> bool:
        """Whether this controller leads, as far as it can know: false once its lease may have run out."""

    @property
    def leads_since_ns(self) -> int:
        """When (monotonic) this leadership began; of no meaning while it does not lead."""

    @property
    def term(self) -> int:
        """Which time of leading this is: no two are the same, of whichever controller. 0 while it does not lead."""

    @property
    def leader_id(self) -> str | None:
        """The id of the controller that leads; None when nobody is known to."""

    @property
    def leader_address(self) -> str | None:
        """Its `host:port`; None when nobody is known to lead."""

    def confirm(self, since_ns: int) -> None:
        """Make sure that this controller led at some moment behind that one (monotonic), asking who knows it.

        So what it has read was true then. NotLeaderError; StoreFailedError: nobody answers.
        """

    def names(self) -> list[str]:
        """All broker names. NotLeaderError when another one leads."""

    def places_taken(self, broker_name: str) -> int:
        """How many other names there are, with those that were forgotten. NotLeaderError when another one leads."""

    def get(self, broker_name: str) -> Versioned:
        """The replica set of a name, as it was last written. NotLeaderError when another one leads."""

    def put(self, broker_name: str, version: int, replica_set: ReplicaSet | None,
            term: int | None = None) -> Versioned:
        """Write it, durably, if this one leads and the stored one still has that version; None deletes it.

        `term`: as it was before the version was read and the decision taken. If another controller has led since, which
        may have written nothing, and granted a lease, nothing is written.

        NotLeaderError, StoreConflictError, StoreFailedError.
        """
