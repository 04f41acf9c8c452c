"""Many slaves of 4.9 in one process that cost next to nothing: what a master sends them is thrown away.

    python -m tests.support.raw_slaves PORT COUNT OFFSET

Each of the COUNT connections reports OFFSET first, then the end of the last whole frame of each read, as 4.9's slave
does; what it reports it holds nowhere. Frames that do not follow each other end the process. It prints "ready" when the
master has sent each of them something, if only a heartbeat, and ends when its standard input does.
"""
import select
import socket
import struct
import sys
import time

_HEADER = struct.Struct(">qi")
_BUFFER = 1 << 20
_REPEAT_S = 2  # the last report is repeated, so that the master does not take the slave for dead


class RawSlave:
    """One connection: cuts frames, keeps no body."""

    def __init__(self, port: int, offset: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.end = offset  # of the last whole frame
        self.frames = 0
        self._head = b""  # of a header that is not complete
        self._left = 0  # bytes of a body that are still to come
        self._body_end = offset
        self.report()

    def report(self) -> None:
        """Where this slave's log ends."""
        self.socket.sendall(self.end.to_bytes(8, "big"))

    def feed(self, view: memoryview, size: int) -> None:
        """The next `size` bytes of the stream; reports when they end a frame that is no heartbeat."""
        at, before = 0, self.end
        while at < size:
            if self._left:
                taken = min(self._left, size - at)
                at += taken
                self._left -= taken
                if not self._left:
                    self.end = self._body_end
                continue
            if self._head or size - at < _HEADER.size:
                missing = _HEADER.size - len(self._head)
                self._head += view[at:at + missing].tobytes()
                at += missing
                if len(self._head) < _HEADER.size:
                    break
                offset, length = _HEADER.unpack(self._head)
                self._head = b""
            else:
                offset, length = _HEADER.unpack_from(view, at)
                at += _HEADER.size
            if offset != self.end:
                sys.exit(f"a frame of {offset} behind {self.end}")
            self.frames += 1
            self._left, self._body_end = length, offset + length
        if self.end != before:
            self.report()


def serve(port: int, count: int, offset: int) -> None:
    """Until standard input ends."""
    slaves = {}
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    for _ in range(count):
        slave = RawSlave(port, offset)
        slaves[slave.socket.fileno()] = slave
        poll.register(slave.socket.fileno(), select.EPOLLIN)
    view, ready, repeat_at = memoryview(bytearray(_BUFFER)), False, time.monotonic() + _REPEAT_S
    while True:
        for descriptor, _event in poll.poll(_REPEAT_S):
            if descriptor not in slaves:
                return
            slave = slaves[descriptor]
            size = slave.socket.recv_into(view)
            if not size:
                sys.exit("the master has closed a connection")
            slave.feed(view, size)
        if not ready and all([slave.frames for slave in slaves.values()]):
            ready = True
            sys.stdout.write("ready\n")
            sys.stdout.flush()
        if time.monotonic() >= repeat_at:
            repeat_at = time.monotonic() + _REPEAT_S
            for slave in slaves.values():
                slave.report()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
