"""TLS: many buffers in one record, many records in one read, beside the plain bytes."""
from __future__ import annotations

import random
import ssl
from collections import Counter
from collections.abc import Sequence
from functools import cache

from rmqha.remoting import tls
from rmqha.remoting.protocol.remoting_command import Buffer
from rmqha.remoting.tls import MAX_RECORD, TlsSocket, build_ssl_context
from rmqha.remoting.tls_system_config import TlsSystemConfig
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size

LARGEST = 4 << 20


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server in test mode, and of a client that trusts anybody."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return build_ssl_context(False, TlsSystemConfig(tls_test_mode_enable=True)), client


class _Wire:
    """A socket that takes any part of what it is given, and gives what has come in any pieces."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.smooth = True  # until the handshake is done
        self.taken, self.waiting = bytearray(), bytearray()

    def send(self, data: Buffer) -> int:
        """As of a socket."""
        if not self.smooth and self._rng.random() < 0.3:
            raise BlockingIOError
        size = len(data) if self.smooth or self._rng.random() < 0.5 else self._rng.randint(1, len(data))
        self.taken += data[:size]
        return size

    def recv_into(self, buffer: memoryview) -> int:
        """As of a socket; BlockingIOError when nothing has come."""
        if not self.waiting:
            raise BlockingIOError
        size = min(len(buffer), len(self.waiting))
        if self._rng.random() < 0.5:
            size = self._rng.randint(1, size)
        buffer[:size] = self.waiting[:size]
        del self.waiting[:size]
        return size


class _Connection:
    """A server's TLS socket, and its peer by the standard library alone."""

    def __init__(self, rng: random.Random) -> None:
        server, client = _contexts()
        self.wire = _Wire(rng)
        self.socket = TlsSocket(self.wire, server, True)  # type: ignore[arg-type]  # as far as it is asked
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.peer = client.wrap_bio(self._in, self._out)
        self.buffer = memoryview(bytearray(MAX_RECORD + rng.choice([1, 1000, 64 << 10, 240 << 10])))
        for _ in range(4):
            try:
                self.peer.do_handshake()
            except ssl.SSLWantReadError:
                pass  # the server has to say something first
            self.wire.waiting += self._out.read()
            assert self.read() == b""
            self._hear()
        assert self.socket.is_established
        self.wire.smooth = False

    def read(self) -> bytes:
        """All plain bytes that the server's side gets out of what waits, by a buffer that each read uses again."""
        found = bytearray()
        while self.wire.waiting:
            try:
                size = self.socket.recv_into(self.buffer)
            except BlockingIOError:
                continue
            found += self.buffer[:size]
            self.buffer[:] = bytes(len(self.buffer))
        return bytes(found)

    def _hear(self) -> None:
        self._in.write(bytes(self.wire.taken))
        self.wire.taken.clear()

    def peer_writes(self, data: bytes) -> None:
        """Encrypted, on the wire."""
        for begin in range(0, len(data), 1 << 20):
            self.peer.write(data[begin:begin + (1 << 20)])
        self.wire.waiting += self._out.read()

    def peer_reads(self) -> bytes:
        """What has come to the peer."""
        self._hear()
        found = bytearray()
        while True:
            try:
                found += self.peer.read(1 << 20)
            except ssl.SSLWantReadError:
                return bytes(found)


def compare_tls(rng: random.Random) -> Counter[str]:
    """Buffers of any size go one way, reads of any size the other."""
    taken: Counter[str] = Counter()
    with lowered(tls, ENCRYPT_AT_ONCE=rng.choice([100, 3000, 20_000, 256 << 10])):
        at_once, connection, room = tls.ENCRYPT_AT_ONCE, _Connection(rng), LARGEST
        for _ in range(rng.choice([1, 3, 8])):
            most = min(room, at_once * 50)
            queue: list[Buffer] = []
            for _ in range(rng.choice([1, 2, 3, 70])):
                queue.append(rng.randbytes(max(1, min(most, some_size(rng, [at_once, 1 << 14], LARGEST)))))
                most = max(1, most - len(queue[-1]))
            expected = b"".join(queue)
            room = max(1, room - len(expected))
            received = bytearray()
            while queue:
                taken[FAST if len(queue) > 1 and len(queue[0]) < at_once else PLAIN] += 1
                try:
                    sent = (connection.socket.send(queue[0]) if len(queue) == 1
                            else connection.socket.sendmsg(queue[:64]))
                except BlockingIOError:
                    sent = 0
                while sent:  # as Channel does
                    if sent < len(queue[0]):
                        queue[0] = memoryview(queue[0])[sent:]
                        break
                    sent -= len(queue.pop(0))
                    if not sent:
                        break
                if rng.random() < 0.2:
                    received += connection.peer_reads()
            received += connection.peer_reads()
            assert bytes(received) == expected, f"{len(received)} bytes came, {len(expected)} were written"
            asked = rng.randbytes(some_size(rng, [1 << 14, len(connection.buffer)], min(room, LARGEST)))
            connection.peer_writes(asked)
            got = connection.read()
            assert got == asked, f"{len(got)} bytes were read, {len(asked)} written"
    return taken


def _gathers_behind_the_room(buffers: Sequence[Buffer]) -> Buffer:
    """Buffers are gathered though the room is used up."""
    first = buffers[0]
    if len(buffers) == 1 or len(first) >= tls.ENCRYPT_AT_ONCE:
        return memoryview(first)[:tls.ENCRYPT_AT_ONCE]
    parts, room = [], tls.ENCRYPT_AT_ONCE
    for buffer in buffers:
        parts.append(memoryview(buffer)[:room])
        room -= len(buffer)
    return b"".join(parts)


def _reads_one_record(self: TlsSocket, buffer: memoryview) -> int:
    """One record of a read is decrypted."""
    try:
        size: int = self._ssl.read(len(buffer), buffer)  # type: ignore[assignment]  # a count
    except ssl.SSLWantReadError:
        return 0
    return size


def _encrypts_again(self: TlsSocket, buffers: Sequence[Buffer]) -> int:
    """After a full socket the same bytes are encrypted again."""
    self._encrypted = 0
    return _sendmsg(self, buffers)


_sendmsg = TlsSocket.sendmsg

WAYS = [
    Way("buffers under TLS", "rmqha/remoting/tls.py::TlsSocket",
        "several small buffers are sent together", "a part of one buffer, not copied", compare_tls,
        (Plant("a full socket has the same bytes encrypted again", replaced(TlsSocket, "sendmsg", _encrypts_again)),
         Plant("gathered behind the room", replaced(tls, "_gather", _gathers_behind_the_room)),
         Plant("one record of a read", replaced(TlsSocket, "_decrypt", _reads_one_record))), seeds=15),
]
