"""A decoder that splits a byte stream into frames, and a plain TCP connection for one thread.

A frame on the wire: `length` int32 (the number of bytes after it), then that many bytes: header mark, header, body.

`FrameDecoder` does no I/O. It keeps the beginning of a frame until the rest arrives:

    begin   the bytes to split: those kept, and those just read
    frame_at   the next frame, called repeatedly; None when the rest is not a complete frame
    end   keeps that rest;   pause   keeps everything from a position, complete frames included, for the next round

A length field is checked before anything is kept for it, and the buffer grows only with the bytes that arrive, so a
peer can't make the decoder reserve memory by announcing a large frame.

`ByteStream` has no TLS. Its waits have time limits, and its errors name the peer.
"""
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator

FRAME_MAX_LENGTH = 16 * 1024 * 1024  # bytes, including the length field
LENGTH_FIELD_SIZE = 4
MIN_LENGTH = 4  # a frame holds at least its header mark
_LENGTH = struct.Struct(">i")
_NOTHING = memoryview(b"")


class FrameError(ValueError):
    """An impossible frame length. The frame boundaries are lost, so the connection has to be closed."""


class FrameDecoder:
    """Collects bytes until frames are complete. One per connection, used only by the thread that reads it.

    Its memory grows with the bytes that have arrived, not with what a length field announces.

    Java: org.apache.rocketmq.remoting.netty.NettyDecoder (4.9.8)
    """

    __slots__ = ("max_frame_length", "_partial", "_needed")

    def __init__(self, max_frame_length: int = FRAME_MAX_LENGTH) -> None:
        self.max_frame_length = max_frame_length
        # The beginning of a frame whose rest has not arrived.
        self._partial = bytearray()
        # The length of _partial from which on it is worth decoding again.
        self._needed = 0

    @property
    def buffered(self) -> int:
        """The number of bytes of the incomplete frame."""
        return len(self._partial)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
        """Yield the frames that `data` completes, each without its length field.

        A yielded view is valid until the caller reuses `data`. The caller must exhaust the iterator. Raises FrameError
        for a length below 4 or a frame longer than `max_frame_length`, after the frames before it.
        """
        view, position = self.begin(data), 0
        while (frame := self.frame_at(view, position)) is not None:
            position += LENGTH_FIELD_SIZE + len(frame)
            yield frame
        self.end(view, position)

    def begin(self, data: bytes | bytearray | memoryview) -> memoryview:
        """Return the bytes to split: the kept ones, then `data`. Empty while the kept frame is still incomplete."""
        if not self._partial:
            return memoryview(data)
        self._partial += data
        if len(self._partial) < self._needed:
            return _NOTHING
        data, self._partial = self._partial, bytearray()
        return memoryview(data)

    def frame_at(self, view: memoryview, position: int) -> memoryview | None:
        """Return the frame at `position` without its length field; None if it is incomplete. Raises like `feed`."""
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
        """Keep everything from `position` on, complete frames included; `begin` returns it even without new data."""
        self.end(view, position)
        self._needed = 0

    def end(self, view: memoryview, position: int) -> None:
        """Keep the bytes from `position` on, where `frame_at` has found no complete frame."""
        if position < len(view):
            self._partial = bytearray(view[position:])


class StreamError(Exception):
    """A connection failed or has ended. The text names the peer and the reason."""


class ByteStream:
    """One connection, used by one thread. `address` is (host, port); times are in seconds."""

    def __init__(self, address: tuple[str, int], connect_timeout_s: float) -> None:
        self.name = f"{address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, connect_timeout_s)
        except OSError as error:
            raise StreamError(f"{self.name} can't be reached: {error.strerror or error}") from error
        if self._socket.getsockname() == self._socket.getpeername():
            self._socket.close()
            raise StreamError(f"{self.name} can't be reached: nothing is listening there")
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive_into(self, view: memoryview, timeout_s: float) -> int:
        """Read once into `view`. Return the number of bytes, 0 if none arrived in time. StreamError at the end."""
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
        """Send all of `data`. StreamError if the peer does not take it in time."""
        deadline = time.monotonic() + timeout_s
        while data:
            try:
                data = data[self._socket.send(data):]
            except BlockingIOError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise StreamError(f"{self.name} accepts no data: {os.strerror(errno.ETIMEDOUT)}") from None
                self._is_ready(select.POLLOUT, left_s)
            except OSError as error:
                raise StreamError(f"{self.name}: {error.strerror or error}") from error

    def _is_ready(self, event: int, timeout_s: float) -> bool:
        # Not select: it can't watch descriptors above 1023.
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
