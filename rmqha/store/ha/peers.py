"""The peer of a replication connection: its state, access control, known masters, and sending to it.

- `HAConnectionState`: the state of a replication connection.
- `AllowedPeers`: the peers that may connect to the replication port; pure.
- `MasterKind`, `KnownMasters`: the facts that a slave has learned about its masters.
- `send_whole`: sends small messages completely: reports, and the messages of a handshake.
"""
import ipaddress
import socket
import time
from collections.abc import Callable
from enum import Enum


class HAConnectionState(Enum):
    """The state of a connection, seen from either end. 4.9 has no such states; the first five are those of 5.x.

    Java: org.apache.rocketmq.store.ha.HAConnectionState (5.1.4)
    """

    READY = "READY"  # no connection, or nothing reported yet
    # the peers find out whether their logs match, and from which offset to continue
    HANDSHAKE = "HANDSHAKE"
    TRANSFER = "TRANSFER"
    # flow control: this second's budget is used up
    SUSPEND = "SUSPEND"
    SHUTDOWN = "SHUTDOWN"
    # the master does not hold the slave's offset; an operator has to intervene
    OFFSET_REFUSED = "OFFSET_REFUSED"
    # the slave holds other bytes than the master; an operator has to intervene
    DIVERGED = "DIVERGED"
    # the slave can't write, or the received bytes are not a commit log
    APPEND_FAILED = "APPEND_FAILED"


# The states of a connection in which its slave counts as a replica.
SERVING = (HAConnectionState.TRANSFER, HAConnectionState.SUSPEND)


class AllowedPeers:
    """The addresses and networks of haAllowedPeers, separated by "," or ";"; an empty list allows every peer.

    ValueError names the key and the invalid entry.
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
                raise ValueError(f"haAllowedPeers: {entry!r} is not a valid address, or network such as 10.0.0.0/8: "
                                 f"{error}") from None

    def allows(self, host: str) -> bool:
        """Return whether a peer at the address `host` is allowed. An invalid address is allowed only if all peers are.
        """
        if not self._networks:
            return True
        try:
            address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network or address in network for network in self._networks)


# for an unknown master to answer what it is
_MAIN_PORT_WAIT_MS = 10_000


class MasterKind(Enum):
    """The kind of a master, according to its main port."""

    OURS = "it compares logs at the handshake"
    OTHER = "it does not support that handshake, or has it turned off"


class KnownMasters:
    """The known facts about masters, by HA address, across the connections of one HAClient. Its thread owns them."""

    def __init__(self) -> None:
        # those whose main port said that they are rmqha's
        self._ours: set[str] = set()
        # the master that closed its connection when it was asked for a handshake
        self._without_handshake: str | None = None
        # the master for which a warning was logged that nothing can be compared
        self._said_unknown: str | None = None
        # the master whose main port did not answer, and since when (monotonic ns)
        self._waiting_for = ("", 0)

    def has_told(self, address: str, kind: MasterKind) -> None:
        """Record the answer of its main port."""
        if kind is MasterKind.OURS:
            self._ours.add(address)
        else:
            self._ours.discard(address)

    def is_ours(self, address: str) -> bool:
        """Return whether its main port said so in its last answer."""
        return address in self._ours

    def has_closed_at_the_question(self, address: str) -> None:
        """Record that it treats the request for a handshake as an error."""
        self._without_handshake = address

    def may_be_asked(self, address: str) -> bool:
        """Return whether it may be asked for a handshake: it did not close its last connection because of that."""
        return address != self._without_handshake

    def is_newly_unknown(self, address: str) -> bool:
        """Return whether the warning that nothing can be compared has not been logged for it yet; True once."""
        said, self._said_unknown = self._said_unknown, address
        return said != address

    def may_answer_soon(self, address: str) -> bool:
        """Return whether its main port, which has just failed to answer, may do so soon.

        The main port of a master opens after its HA port.
        """
        now = time.monotonic_ns()
        waiting_for, since_ns = self._waiting_for
        if waiting_for != address:
            self._waiting_for, since_ns = (address, now), now
        return now - since_ns < _MAIN_PORT_WAIT_MS * 1_000_000


_ATTEMPTS = 3


def send_whole(sock: socket.socket, data: bytes, may_wait: Callable[[], bool] | None = None) -> None:
    """Send all of `data`; OSError when the connection is gone, BlockingIOError when the peer accepts no more.

    `may_wait` is called when the send buffer is full: it waits, or returns False to give up. Without it, the function
    does not wait.
    """
    attempts = 0
    while data:
        try:
            data = data[sock.send(data):]
        except BlockingIOError:
            attempts += 1
            if not (attempts < _ATTEMPTS if may_wait is None else may_wait()):
                raise
