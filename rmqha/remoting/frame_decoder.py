"""Cutting the byte stream into frames: pure, no socket.

A frame on the wire: `length` int32 (of what follows), then that many bytes: header mark, header, body.
"""
import struct
from collections.abc import Iterator

FRAME_MAX_LENGTH = 16 * 1024 * 1024  # bytes, with the length field
LENGTH_FIELD_SIZE = 4
MIN_LENGTH = 4  # a frame holds at least its header mark
_LENGTH = struct.Struct(">i")


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
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data, self._partial = self._partial, bytearray()
        view = memoryview(data)
        position, end = 0, len(view)
        while end - position >= LENGTH_FIELD_SIZE:
            body = position + LENGTH_FIELD_SIZE
            (length,) = _LENGTH.unpack_from(view, position)
            if length < MIN_LENGTH or length + LENGTH_FIELD_SIZE > self.max_frame_length:
                raise FrameError(f"frame length {length}")
            if end - body < length:
                self._needed = LENGTH_FIELD_SIZE + length
                break
            position = body + length
            yield view[body:position]
        else:
            self._needed = LENGTH_FIELD_SIZE
        if position < end:
            self._partial = bytearray(view[position:])
