"""The peer of a replication connection: its state, access control, known masters, and sending to it.

- `HAConnectionState`: the state of a replication connection.
- `AllowedPeers`: the peers that may connect to the replication port; pure.
- `MasterKind`, `KnownMasters`: what a slave has found out about masters.
- `send_whole`: sends small messages whole: reports, and those of a handshake.
"""
import ipaddress
import socket
import time
from collections.abc import Callable
from enum import Enum


class HAConnectionState(Enum):
    """The state of a connection, seen from either end. 4.9 has none; the first five are those of 5.x.

    Java: org.apache.rocketmq.store.ha.HAConnectionState (5.1.4)
    """

    READY = "READY"  # no connection, or nothing reported yet
    HANDSHAKE = "HANDSHAKE"  # the two find out whether, and from where on, their logs fit together
    TRANSFER = "TRANSFER"
    SUSPEND = "SUSPEND"  # flow control: this second's share is used up
    SHUTDOWN = "SHUTDOWN"
    OFFSET_REFUSED = "OFFSET_REFUSED"  # the master does not hold the slave's offset: an operator has to look
    DIVERGED = "DIVERGED"  # the slave holds other bytes than the master: an operator has to look
    APPEND_FAILED = "APPEND_FAILED"  # the slave can't write, or what came is no commit log


# The states of a connection whose slave counts.
SERVING = (HAConnectionState.TRANSFER, HAConnectionState.SUSPEND)


class AllowedPeers:
    """The addresses and networks of haAllowedPeers, separated by "," or ";"; nothing given lets everybody in.

    ValueError, which names the key and the entry, when one is neither.
    """

    def __init__(self, text: str | None) -> None:
        self._networks = []
        for entry in (text or "").replace(";", ",").split(","):
            entry = entry.strip()
            if not entry:
                continue
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError as error:
                raise ValueError(f"haAllowedPeers: {entry!r} is no address and no network such as 10.0.0.0/8: {error}"
                                 ) from None

    def allows(self, host: str) -> bool:
        """Whether a peer at the address `host` may stay. One that is no address may only where all may."""
        if not self._networks:
            return True
        try:
            address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network or address in network for network in self._networks)


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


_ATTEMPTS = 3


def send_whole(sock: socket.socket, data: bytes, may_wait: Callable[[], bool] | None = None) -> None:
    """Send all of `data`; OSError when the connection is gone, BlockingIOError when the peer takes no more of it.

    `may_wait` is called when there is no room: it waits, or gives up with False. Without it nothing is waited for.
    """
    attempts = 0
    while data:
        try:
            data = data[sock.send(data):]
        except BlockingIOError:
            attempts += 1
            if not (attempts < _ATTEMPTS if may_wait is None else may_wait()):
                raise
