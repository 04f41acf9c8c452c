"""A relay between slaves and their master's HA port, which flips a chosen bit of the master's stream.

It parses the stream by the format alone (see rmqha/store/ha/ha_transfer.py): frames with a header of 12 bytes, int64
commit log offset and int32 size of the body, and the body. The byte to hit is given by its commit log offset, or is in
the header of the frame that contains this offset, so it is hit again when it is sent again.
"""
import math
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.ports import free_ha_port

_HEADER = struct.Struct(">qi")
_CHUNK = 1 << 18
# Answers of the main port that name its HA port are not longer.
_SHORT = 4096
# The place in a record of IPv4 hosts.
_BODY_LENGTH = 84


class Bit(NamedTuple):
    """A bit of a record or of a frame's header: the byte, and the bit in it."""

    byte: int
    mask: int


def _in(first: int, last: int) -> Callable[[bytes, random.Random], Bit]:
    return lambda _record, rng: Bit(rng.randint(first, last), 1 << rng.randrange(8))


def _behind_body(first: int, last: int) -> Callable[[bytes, random.Random], Bit]:
    return lambda record, rng: Bit(_body_end(record) + rng.randint(first, last), 1 << rng.randrange(8))


def _body_end(record: bytes) -> int:
    return _BODY_LENGTH + 4 + struct.unpack_from(">i", record, _BODY_LENGTH)[0]


def _topic_end(record: bytes) -> int:
    return _body_end(record) + 1 + record[_body_end(record)]


# Places of a record that its own checks cover. Each function draws a bit.
CHECKED: dict[str, Callable[[bytes, random.Random], Bit]] = {
    "size": _in(0, 3),
    "magic": _in(4, 7),
    "CRC": _in(8, 11),
    "sign of the queue offset": lambda _record, _rng: Bit(20, 0x80),
    "own offset": _in(28, 35),
    "lengths of hosts": lambda _record, rng: Bit(39, rng.choice((0x10, 0x20))),
    "body length": _in(84, 87),
    "body": lambda record, rng: Bit(rng.randrange(_BODY_LENGTH + 4, _body_end(record)), 1 << rng.randrange(8)),
    "topic length": _behind_body(0, 0),
    "properties length": lambda record, rng: Bit(_topic_end(record) + rng.randrange(2), 1 << rng.randrange(8)),
}
# Places that no check of a record covers, with the reason: RocketMQ's record layout has no checksum for them. A slave
# accepts them as they arrive, and scrubbing compares them with the master's. The same holds for the rest of a file
# after its last record, of which only eight bytes are ever read.
UNCHECKED: dict[str, tuple[str, Callable[[bytes, random.Random], Bit]]] = {
    "queue id": ("any number is a queue's", _in(12, 15)),
    "flag": ("any number is good: it is the user's", _in(16, 19)),
    "queue offset": ("only its sign is known: dispatch compares it with its queue, later", _in(21, 27)),
    "system flag": ("but for the two bits that say how long hosts are, any is good", lambda _record, rng: rng.choice(
        [Bit(39, 1), Bit(39, 4), Bit(39, 8), Bit(rng.randint(36, 38), 1 << rng.randrange(8))])),
    "born time": ("it is the client's clock", _in(40, 47)),
    "born host": ("any address is good", _in(48, 55)),
    "store time": ("clocks go backwards", _in(56, 63)),
    "store host": ("any address is good", _in(64, 71)),
    "reconsume times": ("any number is good", _in(72, 75)),
    "prepared offset": ("never read in a message without a transaction", _in(76, 83)),
    "topic": ("the CRC is of the body alone", lambda record, _rng: Bit(_body_end(record) + 1, 1)),
    "properties": ("the CRC is of the body alone", lambda record, rng: Bit(
        rng.randrange(_topic_end(record) + 2, len(record)), 1)),
}
# Places of a frame's header. The slave checks offsets and sizes.
HEADER: dict[str, Callable[[random.Random], Bit]] = {
    "frame's offset": lambda rng: Bit(rng.randint(0, 7), 1 << rng.randrange(8)),
    "frame's size": lambda rng: Bit(rng.randint(8, 11), 1 << rng.randrange(8)),
}


@dataclass
class Flip:
    """The damage of the byte at commit log `offset`, or of the header of the frame that contains it."""

    offset: int
    mask: int
    header_at: int | None = None  # byte of the header
    # math.inf: every time.
    times: float = 1
    hits: int = 0

    @classmethod
    def each_time(cls, offset: int, mask: int, header_at: int | None = None) -> "Flip":
        """True if the byte is hit every time it is sent."""
        return cls(offset, mask, header_at, math.inf)


class Relay:
    """The relay, which listens for slaves, and on the main port, one below, for their requests; see `port`.

    `flip` may be set at any time. `pause` sends nothing to slaves; `hold` lets new connections wait.
    """

    def __init__(self, ha_port: int, main_port: int | None = None) -> None:
        self._target, self._main_port = ha_port, main_port
        self.port = free_ha_port()
        self.address = f"127.0.0.1:{self.port}"
        self.flip: Flip | None = None
        self.ended = 0  # connections of slaves
        # Guards ended, hits of flips, and _sockets.
        self._lock = threading.Lock()
        self._going, self._admitting = threading.Event(), threading.Event()
        self._going.set()
        self._admitting.set()
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._listen(self.port, self._serve_slave)
        if main_port is not None:
            self._listen(self.port - 1, self._serve_questions)

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the relay and all connections."""
        self._closed = True
        self.go()
        self.admit()
        with self._lock:
            for one in self._sockets:
                shut(one)

    def pause(self) -> None:
        """Stop sending to slaves."""
        self._going.clear()

    def go(self) -> None:
        """Resume sending."""
        self._going.set()

    def hold(self) -> None:
        """Let connecting slaves wait."""
        self._admitting.clear()

    def admit(self) -> None:
        """Serve the waiting slaves."""
        self._admitting.set()

    def _keep(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._sockets.append(sock)
        return sock

    def _listen(self, port: int, serve: Callable[[socket.socket], None]) -> None:
        listener = self._keep(socket.create_server(("127.0.0.1", port)))

        def accept() -> None:
            while not self._closed:
                try:
                    peer = self._keep(listener.accept()[0])
                except OSError:
                    return  # closed
                threading.Thread(target=serve, args=(peer,), name="relay", daemon=True).start()
        threading.Thread(target=accept, name="relay-accept", daemon=True).start()

    def _serve_slave(self, slave: socket.socket) -> None:
        self._admitting.wait()
        try:
            self._relay(slave, self._target, self._frames())
        finally:
            with self._lock:
                self.ended += 1

    def _serve_questions(self, slave: socket.socket) -> None:
        """Forward requests to the main port, and put this relay's HA port into the answers."""
        named, here = str(self._target).encode(), str(self.port).encode()

        def answers(data: bytes) -> bytes:
            return data.replace(named, here) if len(data) <= _SHORT else data
        self._relay(slave, self._main_port, answers)

    def _relay(self, slave: socket.socket, port: int | None, change: Callable[[bytes], bytes]) -> None:
        try:
            master = self._keep(socket.create_connection(("127.0.0.1", port), 10))
        except OSError:
            shut(slave)
            return
        for one in (slave, master):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_pump, args=(slave, master, bytes), name="relay-back", daemon=True)
        back.start()
        _pump(master, slave, change)
        back.join()

    def _frames(self) -> Callable[[bytes], bytes]:
        """Return the function that changes the stream of one connection."""
        # the first part of a header
        pending = b""
        # The commit log offset of the next byte of a body, and the number of remaining bytes.
        at, left = 0, 0

        def change(data: bytes) -> bytes:
            nonlocal pending, at, left
            self._going.wait()
            out, position, pending = bytearray(pending + data), 0, b""
            while position < len(out):
                if left:
                    size = min(left, len(out) - position)
                    self._hit_body(out, position, at, size)
                    position, at, left = position + size, at + size, left - size
                    continue
                if len(out) - position < _HEADER.size:
                    pending = bytes(out[position:])
                    return bytes(out[:position])
                at, left = _HEADER.unpack_from(out, position)
                self._hit_header(out, position, at, left)
                position += _HEADER.size
            return bytes(out)
        return change

    def _hit_body(self, out: bytearray, position: int, at: int, size: int) -> None:
        flip = self.flip
        if flip is not None and flip.header_at is None and at <= flip.offset < at + size and self._count(flip):
            out[position + flip.offset - at] ^= flip.mask

    def _hit_header(self, out: bytearray, position: int, at: int, size: int) -> None:
        flip = self.flip
        if flip is not None and flip.header_at is not None and at <= flip.offset < at + size and self._count(flip):
            out[position + flip.header_at] ^= flip.mask

    def _count(self, flip: Flip) -> bool:
        with self._lock:
            flip.hits += flip.hits < flip.times
            flip.times -= 1
            return flip.times >= 0


def _pump(source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
    try:
        while data := source.recv(_CHUNK):
            sink.sendall(change(data))
    except OSError:
        # the other direction has closed it
        return
    finally:
        shut(source)
        shut(sink)


def shut(sock: socket.socket) -> None:
    """Shut down both directions, which wakes their threads, and close the socket."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the peer is already gone
    finally:
        sock.close()


def some_size(rng: random.Random) -> int:
    """Draw a size of 100 bytes to 2 MiB, evenly on a logarithmic scale."""
    return int(math.exp(rng.uniform(math.log(100), math.log(2 << 20))))

