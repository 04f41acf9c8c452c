"""The bytes between a master and its slaves. Pure: no socket, no thread, no file.

Slave to master, a report, 8 bytes:

| bytes | type | field |
|---|---|---|
| 0-7 | int64 big-endian | the slave's max commit log offset: what it has stored, and in the first report asks for |

Master to slave, a frame, 12 bytes and the body:

| bytes | type | field |
|---|---|---|
| 0-7 | int64 big-endian | commit log offset of the body's first byte |
| 8-11 | int32 big-endian | body size; 0 is a heartbeat |
| 12- | bytes | commit log bytes; never across a commit log file, not aligned to records |
"""
import struct
from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from rmqha.common.message.message_layout import MESSAGE_MAGIC_CODE

REPORT = struct.Struct(">q")
assert REPORT.size == 8
HEADER = struct.Struct(">qi")
assert HEADER.size == 12
_HEADER_AND_RECORD = struct.Struct(">qiii")  # and the size and magic of the record behind it

# A slave closes a connection whose frame does not fit its buffer, header included.
READ_MAX_BUFFER_SIZE = 4 * 1024 * 1024
MAX_BODY_SIZE = READ_MAX_BUFFER_SIZE - HEADER.size


class TransferError(ValueError):
    """The peer sent bytes that are no frame."""


class LogBytes(Protocol):
    """Contiguous commit log bytes of one or more frames, of either protocol; see Run."""

    @property
    def offset(self) -> int: ...

    @property
    def start(self) -> int: ...

    @property
    def length(self) -> int: ...


class Run(NamedTuple):
    """Contiguous commit log bytes of one or more frames: `length` bytes at `start` of the decoder's view."""

    offset: int  # commit log offset of the first byte
    start: int
    length: int  # 0: a heartbeat


R = TypeVar("R", bound=LogBytes)


def encode_report(max_offset: int) -> bytes:
    """The 8 bytes that say "my commit log ends at `max_offset`"."""
    return REPORT.pack(max_offset)


def encode_header(offset: int, size: int) -> bytes:
    """The 12 bytes before a body of `size` bytes; size 0 makes a heartbeat."""
    return HEADER.pack(offset, size)


def decode_header(data: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int]:
    """(commit log offset, body size) of the header at `position`."""
    return HEADER.unpack_from(data, position)


def encode_frames(offset: int, body: bytes | memoryview, batch_size: int) -> list[bytes | memoryview]:
    """Header, slice, header, slice, ...: `body` at commit log `offset` in frames of at most `batch_size` bytes."""
    size = len(body)
    if size <= batch_size:
        return [HEADER.pack(offset, size), body]
    buffers: list[bytes | memoryview] = []
    for start in range(0, size, batch_size):
        piece = body[start:start + batch_size]
        buffers += (HEADER.pack(offset + start, len(piece)), piece)
    return buffers


def unsent(buffers: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """What remains of `buffers` when the first `sent` bytes are gone."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1:]] if sent else buffers[index:]
        sent -= len(buffer)
    return []


class ReportDecoder:
    """Cuts the bytes of a slave into reports. One per connection; owned by the reading thread."""

    def __init__(self) -> None:
        self._rest = b""  # the bytes of an incomplete report, 0 to 7

    def feed(self, data: bytes | memoryview) -> tuple[int, ...]:
        """The offsets of the reports that `data` completes, in order."""
        if self._rest:
            data = self._rest + data
        elif len(data) == REPORT.size:  # as almost always
            return REPORT.unpack(data)
        whole = len(data) // REPORT.size
        self._rest = bytes(data[whole * REPORT.size:])
        return struct.unpack_from(f">{whole}q", data)


class RunDecoder(Generic[R]):
    """Cuts the bytes of a master into runs of contiguous log bytes. One per connection; owned by HAClient's thread.

    The socket fills `writable()`, `received(n)` tells how much, `runs()` takes all complete frames out.
    """

    def __init__(self, capacity: int = READ_MAX_BUFFER_SIZE) -> None:
        self.view = memoryview(bytearray(capacity))
        self._end = 0  # bytes of `view` that are filled; the first frame starts at 0 between the calls

    def writable(self, limit: int) -> memoryview:
        """Where the next bytes belong, at most `limit` of them. Never empty after `runs` was exhausted."""
        return self.view[self._end:self._end + limit]

    def received(self, count: int) -> None:
        """`count` bytes were written to `writable()`."""
        self._end += count

    def runs(self, segment_size: int) -> Iterator[R]:
        """Each run of the complete frames received; a run ends where a commit log file of `segment_size` begins.

        A run's bytes are valid until the next one is asked for. TransferError when a frame can't be; the connection
        can't be used any more then.
        """
        raise NotImplementedError

    def take_record(self, offset: int, room: int) -> int:
        """The size of the record at commit log `offset`, when it is taken out before `runs` looks; 0: it is not."""
        return 0


class FrameDecoder(RunDecoder[Run]):
    """Cuts 4.9's frames. Bodies of contiguous frames are moved together in place, so that one read costs one append,
    however small the frames.
    """

    def take_record(self, offset: int, room: int) -> int:
        """The size of the record at commit log `offset`, of less than `room` bytes, when what was received is one frame
        with nothing else in it: as almost always for a sync put. It stands behind the header, and is taken out.

        0, and nothing is done, when it is anything else: `runs` knows what.
        """
        if self._end > _HEADER_AND_RECORD.size:
            size = self._end - HEADER.size
            begin, length, record, magic = _HEADER_AND_RECORD.unpack_from(self.view)
            if begin == offset and length == size == record < room and magic == MESSAGE_MAGIC_CODE:
                self._end = 0
                return size
        return 0

    def runs(self, segment_size: int) -> Iterator[Run]:
        view, end, position = self.view, self._end, 0
        largest = len(view) - HEADER.size
        run: Run | None = None
        while end - position >= HEADER.size:
            offset, size = HEADER.unpack_from(view, position)
            if not 0 <= size <= largest:
                raise TransferError(f"frame at commit log offset {offset} has an impossible size: {size}")
            body = position + HEADER.size
            if end - body < size:
                break
            position = body + size
            if run is not None and run.length and offset == run.offset + run.length and offset % segment_size:
                run = self._joined(run, body, size)
                continue
            if run is not None:
                yield run
            run = Run(offset, body, size)
        if run is not None:
            yield run
        self._end = end - position
        if position and self._end:
            view[:self._end] = view[position:end]

    def _joined(self, run: Run, body: int, size: int) -> Run:
        after = run.start + run.length
        self.view[after:after + size] = self.view[body:body + size]
        return Run(run.offset, run.start, run.length + size)
