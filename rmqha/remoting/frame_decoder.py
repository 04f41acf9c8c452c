"""Cutting a byte stream into frames, and a plain TCP connection for one thread.

A frame on the wire: `length` int32 (of the bytes after it), then that many bytes: header mark, header, body.

`FrameDecoder` does no I/O. `ByteStream` has no TLS; its waits have time limits, and its errors name the peer.
"""
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator

FRAME_MAX_LENGTH = 16 * 1024 * 1024  # bytes, with the length field
LENGTH_FIELD_SIZE = 4
MIN_LENGTH = 4  # a frame holds at least its header mark
_LENGTH = struct.Struct(">i")
_NOTHING = memoryview(b"")


class FrameError(ValueError):
    """A length that no frame has. The stream can't be trusted any more: the connection is to be closed."""


class FrameDecoder:
    """Collects bytes until frames are complete. One per connection, used by its reading thread only.

    Memory follows what has arrived, never what a length field promises.

    Java: org.apache.rocketmq.remoting.netty.NettyDecoder (4.9.8)
    """

    __slots__ = ("max_frame_length", "_partial", "_needed")

    def __init__(self, max_frame_length: int = FRAME_MAX_LENGTH) -> None:
        self.max_frame_length = max_frame_length
        self._partial = bytearray()  # the start of a frame whose rest has not arrived
        self._needed = 0  # bytes in _partial before looking again is worth while

    @property
    def buffered(self) -> int:
        """Bytes of the frame that is not complete yet."""
        return len(self._partial)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
        """Yield the frames that `data` completes, each without its length field.

        A yielded view is valid until the caller reuses `data`. To be iterated to its end. Raises FrameError, after
        the frames before it, for a length below 4, or a frame above `max_frame_length`.
        """
        view, position = self.begin(data), 0
        while (frame := self.frame_at(view, position)) is not None:
            position += LENGTH_FIELD_SIZE + len(frame)
            yield frame
        self.end(view, position)

    def begin(self, data: bytes | bytearray | memoryview) -> memoryview:
        """What there is to cut: `data` behind the bytes that `end` kept; nothing while these are known to want more."""
        if not self._partial:
            return memoryview(data)
        self._partial += data
        if len(self._partial) < self._needed:
            return _NOTHING
        data, self._partial = self._partial, bytearray()
        return memoryview(data)

    def frame_at(self, view: memoryview, position: int) -> memoryview | None:
        """The frame whose length field stands at `position`, without it; None when it is not whole. As `feed`."""
        rest = len(view) - position - LENGTH_FIELD_SIZE
        if rest < 0:
            self._needed = LENGTH_FIELD_SIZE
            return None
        (length,) = _LENGTH.unpack_from(view, position)
        if length < MIN_LENGTH or length + LENGTH_FIELD_SIZE > self.max_frame_length:
            raise FrameError(f"frame length {length}")
        if rest < length:
            self._needed = LENGTH_FIELD_SIZE + length
            return None
        position += LENGTH_FIELD_SIZE
        return view[position:position + length]

    def pause(self, view: memoryview, position: int) -> None:
        """Keep what lies behind `position`, where whole frames may stand: `begin` with nothing more gives it again."""
        self.end(view, position)
        self._needed = 0

    def end(self, view: memoryview, position: int) -> None:
        """Keep what lies behind `position`, where `frame_at` has found no whole frame."""
        if position < len(view):
            self._partial = bytearray(view[position:])


class StreamError(Exception):
    """The connection can't be made, or has ended; the text names the peer and the reason."""


class ByteStream:
    """One connection, used by one thread. `address` is (host, port); times are seconds."""

    def __init__(self, address: tuple[str, int], connect_timeout_s: float) -> None:
        self.name = f"{address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, connect_timeout_s)
        except OSError as error:
            raise StreamError(f"{self.name} can't be reached: {error.strerror or error}") from error
        if self._socket.getsockname() == self._socket.getpeername():
            self._socket.close()
            raise StreamError(f"{self.name} can't be reached: nobody listens there")
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive_into(self, view: memoryview, timeout_s: float) -> int:
        """Read once into `view`; how many bytes, 0 when none came in time. StreamError when the peer has closed."""
        try:
            if not self._is_ready(select.POLLIN, timeout_s):
                return 0
            count = self._socket.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise StreamError(f"{self.name}: {error.strerror or error}") from error
        if count == 0:
            raise StreamError(f"{self.name} has closed the connection")
        return count

    def send_all(self, data: bytes, timeout_s: float) -> None:
        """Send all of `data`. StreamError when it does not go out in time."""
        deadline = time.monotonic() + timeout_s
        while data:
            try:
                data = data[self._socket.send(data):]
            except BlockingIOError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise StreamError(f"{self.name} takes nothing: {os.strerror(errno.ETIMEDOUT)}") from None
                self._is_ready(select.POLLOUT, left_s)
            except OSError as error:
                raise StreamError(f"{self.name}: {error.strerror or error}") from error

    def _is_ready(self, event: int, timeout_s: float) -> bool:
        # poll, not select: that one takes no descriptors above 1023
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
