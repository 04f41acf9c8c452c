"""What a slave has found out about masters."""
import time
from enum import Enum

_MAIN_PORT_WAIT_MS = 10_000  # for an unknown master to tell what it is


class MasterKind(Enum):
    """What the main port of a master tells of it."""

    OURS = "it compares logs at the handshake"
    OTHER = "it knows no such handshake, or has it turned off"


class KnownMasters:
    """By HA address, over the connections of one HAClient; its thread owns it."""

    def __init__(self) -> None:
        self._ours: set[str] = set()  # those that have told to be ours
        self._without_handshake: str | None = None  # closed when it was asked for a handshake
        self._said_unknown: str | None = None  # of which it was said that nothing can be compared
        self._waiting_for = ("", 0)  # whose main port did not answer, and since when (monotonic ns)

    def has_told(self, address: str, kind: MasterKind) -> None:
        """Its main port has answered."""
        if kind is MasterKind.OURS:
            self._ours.add(address)
        else:
            self._ours.discard(address)

    def is_ours(self, address: str) -> bool:
        """Whether its main port said so, when it last said anything."""
        return address in self._ours

    def has_closed_at_the_question(self, address: str) -> None:
        """It takes the question for a handshake for an error."""
        self._without_handshake = address

    def may_be_asked(self, address: str) -> bool:
        """Whether it has not closed its last connection at the question for a handshake."""
        return address != self._without_handshake

    def is_newly_unknown(self, address: str) -> bool:
        """Whether it was not said of it before that nothing can be compared; True once."""
        said, self._said_unknown = self._said_unknown, address
        return said != address

    def may_answer_soon(self, address: str) -> bool:
        """Whether its main port, which opens after its HA port and did not answer now, may do so in a moment."""
        now = time.monotonic_ns()
        waiting_for, since_ns = self._waiting_for
        if waiting_for != address:
            self._waiting_for, since_ns = (address, now), now
        return now - since_ns < _MAIN_PORT_WAIT_MS * 1_000_000
