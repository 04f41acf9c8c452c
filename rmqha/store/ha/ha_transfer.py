"""The replication protocol of RocketMQ 4.9 between a master and its slaves. Pure: no socket, no thread, no file.

Slave to master, a report, 8 bytes:

| bytes | type | field |
|---|---|---|
| 0-7 | int64 big-endian | the slave's max commit log offset: end of the stored bytes, start of the requested ones |

Master to slave, a frame, 12 bytes and the body:

| bytes | type | field |
|---|---|---|
| 0-7 | int64 big-endian | commit log offset of the body's first byte |
| 8-11 | int32 big-endian | body size; 0 is a heartbeat |
| 12- | bytes | commit log bytes; never across the end of a commit log file, not aligned to records |

The record chain. A slave of 4.9 appends whatever arrives at the right offset; a damaged byte, or bytes of another log,
stay unnoticed until a consumer reads them, or until a restart truncates the log there. `follow_records` catches gross
damage at little cost. Each record begins with its size (int32) and its magic (int32), and its size leads to the next
record; the last record of a file is a blank that reaches exactly to the file's end. If the bytes at any of these places
are not a valid head, the piece is rejected before it is appended. Frames are not aligned to records, so a piece may
begin and end anywhere: RecordChain keeps the offset of the next record and its first bytes from one piece to the next.

The chain does not look inside records. That is the work of RecordVerifier, which is used instead unless
haVerifyRecords=false: it also verifies the CRC of each body, at the cost of holding a record back until it is complete.

Decoding. On a fast link, frames arrive at a rate where every copy of their bytes counts. The plain way is to read into
one buffer and to move the bodies together, over the headers in between (`runs`). When frames of one size stream in, the
decoder predicts their layout: the socket's scatter read then puts headers and bodies into separate buffers, so that the
bodies form one contiguous run without a copy (`places`). A prediction may be wrong: each header is checked, and bytes
that arrived in another layout are put back in order and decoded in the plain way.
"""
import struct
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message.message_layout import HEAD, MESSAGE_MAGIC_CODE, fits
from rmqha.store.bulk import bulk

REPORT = struct.Struct(">q")
assert REPORT.size == 8
HEADER = struct.Struct(">qi")
assert HEADER.size == 12
_HEADER_AND_RECORD = struct.Struct(">qiii")  # and the size and magic of the record after it
_INT = struct.Struct(">i")

# A slave closes a connection if a frame, including its header, does not fit into its buffer.
READ_MAX_BUFFER_SIZE = 4 * 1024 * 1024
MAX_BODY_SIZE = READ_MAX_BUFFER_SIZE - HEADER.size
# Bytes of a decoder's buffer before its view, for the beginning of a record.
ROOM_IN_FRONT = 64 * 1024
# Smallest body for which places are predicted. Each frame takes two buffers, one of them for the body, and one scatter
# read may have at most 1,024 buffers (IOV_MAX): with smaller bodies, a read could need more.
_MIN_FORESEEN = 4096


class TransferError(ValueError):
    """The peer sent bytes that are not a valid frame."""


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
    """Return the 8 bytes that say "my commit log ends at `max_offset`"."""
    return REPORT.pack(max_offset)


def encode_header(offset: int, size: int) -> bytes:
    """Return the 12 bytes before a body of `size` bytes; size 0 makes a heartbeat."""
    return HEADER.pack(offset, size)


def decode_header(data: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int]:
    """Return (commit log offset, body size) of the header at `position`."""
    return HEADER.unpack_from(data, position)


def encode_frames(offset: int, body: bytes | memoryview, batch_size: int) -> list[bytes | memoryview]:
    """Return `body` at commit log `offset` as frames of at most `batch_size` bytes: header, slice, header, slice..."""
    size = len(body)
    if size <= batch_size:
        return [HEADER.pack(offset, size), body]
    buffers: list[bytes | memoryview] = []
    for start in range(0, size, batch_size):
        piece = body[start:start + batch_size]
        buffers += (HEADER.pack(offset + start, len(piece)), piece)
    return buffers


def unsent(buffers: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """Return what remains of `buffers` after the first `sent` bytes."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1:]] if sent else buffers[index:]
        sent -= len(buffer)
    return []


class ReportDecoder:
    """A decoder for the reports of a slave. One per connection; owned by the reading thread."""

    def __init__(self) -> None:
        self._rest = b""  # the bytes of an incomplete report, 0 to 7

    def feed(self, data: bytes | memoryview) -> tuple[int, ...]:
        """Return the offsets of the reports that `data` completes, in order."""
        if self._rest:
            data = self._rest + data
        # the usual case
        elif len(data) == REPORT.size:
            return REPORT.unpack(data)
        whole = len(data) // REPORT.size
        self._rest = bytes(data[whole * REPORT.size:])
        return struct.unpack_from(f">{whole}q", data)


class RunDecoder(Generic[R]):
    """A decoder of a master's bytes into runs of contiguous log bytes. One per connection; owned by HAClient's thread.

    The socket fills `writable()`, `received(n)` says how many bytes it received, and `runs()` takes all complete frames
    out. While frames of one size stream in, the socket may fill `places()` instead, in their order:

        view:    header body body body ...       all headers but the first are in a buffer of their own,
        heads:   header header ...               so that the bodies form one run without being moved

    Bytes that arrive in another layout than predicted are put back in order, and decoded as usual. `view` has
    ROOM_IN_FRONT bytes of `buffer` before it, so that the caller can put held bytes directly in front of a run. Bytes
    before the run that was yielded last are unused.
    """

    header_size: int
    size_at: int  # position in a header

    def __init__(self, capacity: int = READ_MAX_BUFFER_SIZE) -> None:
        self.buffer = memoryview(bytearray(ROOM_IN_FRONT + capacity))
        self.view = self.buffer[ROOM_IN_FRONT:]
        # number of bytes of `view`, or of the places, that are filled; between the calls a frame starts at 0
        self._end = 0
        # body size of the last frame that `runs` took out; 0: no frame yet
        self._size = 0
        # commit log offset after that frame
        self._behind = 0
        # size of the bodies for which places were given; 0: everything received is in `view`
        self._foreseen = 0
        # of all frames but the first, for bodies of `_places_for` bytes
        self._places: list[memoryview] = []
        self._places_for = 0
        self._heads = memoryview(b"")

    def writable(self, limit: int) -> memoryview:
        """Return the buffer for the next bytes, at most `limit` of them. Never empty after `runs` was exhausted."""
        self._foreseen = 0
        return self.view[self._end:self._end + limit]

    def places(self, limit: int, segment_size: int) -> list[memoryview]:
        """Return the buffers for the next bytes, if frames as large as the last one are to be expected.

        There are as many as fit into `limit` bytes and into the rest of the log's file. The list is empty when no such
        frames are to be expected; use `writable` then. Like `writable`, for use after `runs` was exhausted.
        """
        view, header, size = self.view, self.header_size, self._size
        if size < _MIN_FORESEEN or self._end >= header and _INT.unpack_from(view, self.size_at)[0] != size:
            return []
        count = min(min(limit, len(view)) // (header + size), (segment_size - self._behind % segment_size) // size)
        if count < 2:
            return []
        self._foreseen = size
        if len(self._places) < 2 * count - 2 or self._places_for != size:
            self._make_places(count, size)
        return [view[self._end:header + size], *self._places[:2 * count - 2]]

    def _make_places(self, count: int, size: int) -> None:
        header, self._places, self._places_for = self.header_size, [], size
        self._heads = memoryview(bytearray(header * (count - 1)))
        for number in range(1, count):
            body = header + number * size
            self._places += self._heads[(number - 1) * header:number * header], self.view[body:body + size]

    @property
    def is_within_frame(self) -> bool:
        """True if a part of a frame has arrived, after `runs` was exhausted."""
        return self._end > 0

    def received(self, count: int) -> None:
        """Count `count` bytes that were written to `writable()`, or to `places()`."""
        self._end += count

    def runs(self, segment_size: int) -> Iterator[R]:
        """Yield the runs of the complete frames received; a run ends where a commit log file of `segment_size` begins.

        A run's bytes are valid until the next one is requested. TransferError when a frame is invalid; the connection
        can't be used any more then.
        """
        if self._foreseen:
            frames, run = self._foreseen_run(self._end // (self.header_size + self._foreseen))
            if run is not None:
                self._behind = run.offset + run.length
                yield run
            self._put_together(frames)
        yield from self._runs_in_view(segment_size)

    def _foreseen_run(self, whole: int) -> tuple[int, R | None]:
        """Return how many of the first `whole` frames at the places are as predicted, and their run."""
        raise NotImplementedError

    def _runs_in_view(self, segment_size: int) -> Iterator[R]:
        raise NotImplementedError

    def _put_together(self, frames: int) -> None:
        """Move the bytes of all places, except for the first `frames` frames, to the beginning of `view`, in order."""
        header, size, self._foreseen = self.header_size, self._foreseen, 0
        parts: list[memoryview] = []
        for number in range(frames, -(-self._end // (header + size))):
            left, body = min(self._end - number * (header + size), header + size), header + number * size
            head = self._heads[(number - 1) * header:number * header] if number else self.view
            parts += head[:min(left, header)], self.view[body:body + max(left - header, 0)]
        rest = b"".join(parts)
        self.view[:len(rest)] = rest
        self._end = len(rest)

    def _taken(self, run: LogBytes, size: int, position: int, end: int) -> None:
        """Remember the last run and the body `size` of its last frame; keep the bytes from `position` to `end`."""
        self._size, self._behind = size, run.offset + run.length
        self._end = end - position
        if self._end:
            self.view[:self._end] = self.view[position:end]

    def take_record(self, offset: int, room: int) -> int:
        """Return the size of the record at commit log `offset` if it was taken out without `runs`, else 0."""
        return 0


class FrameDecoder(RunDecoder[Run]):
    """A decoder of 4.9's frames. It moves the bodies of contiguous frames together in place, so that one read costs one
    append, however small the frames are.
    """

    header_size = HEADER.size
    size_at = 8

    def take_record(self, offset: int, room: int) -> int:
        """Take out the record at commit log `offset` if it is the only frame received, and return its size.

        That is the usual case for a synchronous put. The record has less than `room` bytes, and follows the header in
        `view`. Return 0 and do nothing in any other case, which is left to `runs`; also when the bytes were received at
        `places()`, where a frame larger than the predicted ones is not in one piece.
        """
        if self._end > _HEADER_AND_RECORD.size and not self._foreseen:
            size = self._end - HEADER.size
            begin, length, record, magic = _HEADER_AND_RECORD.unpack_from(self.view)
            if begin == offset and length == size == record < room and magic == MESSAGE_MAGIC_CODE:
                self._end = 0
                return size
        return 0

    def _foreseen_run(self, whole: int) -> tuple[int, Run | None]:
        size, offset = self._foreseen, self._behind
        if not whole or HEADER.unpack_from(self.view) != (offset, size):
            return 0, None
        frames = 1
        for header in HEADER.iter_unpack(self._heads[:(whole - 1) * HEADER.size]):
            if header != (offset + frames * size, size):
                break
            frames += 1
        return frames, Run(offset, HEADER.size, frames * size)

    def _runs_in_view(self, segment_size: int) -> Iterator[Run]:
        view, end, position, last = self.view, self._end, 0, 0
        largest = len(view) - HEADER.size
        run: Run | None = None
        while end - position >= HEADER.size:
            offset, size = HEADER.unpack_from(view, position)
            if not 0 <= size <= largest:
                raise TransferError(f"frame at commit log offset {offset} has an impossible size: {size}")
            body = position + HEADER.size
            if end - body < size:
                break
            position, last = body + size, size
            if run is not None and run.length and offset == run.offset + run.length and offset % segment_size:
                run = self._joined(run, body, size)
                continue
            if run is not None:
                yield run
            run = Run(offset, body, size)
        if run is not None:
            yield run
            self._taken(run, last, position, end)

    def _joined(self, run: Run, body: int, size: int) -> Run:
        after = run.start + run.length
        self.view[after:after + size] = self.view[body:body + size]
        return Run(run.offset, run.start, run.length + size)


_BULK_BYTES = 4096


class RecordChainError(ValueError):
    """The bytes at the place of a record are not a record."""


class RecordChain(NamedTuple):
    """The offset of the next record, and its first bytes if they arrived at the end of the last piece."""

    next_record: int  # commit log offset
    head: bytes = b""  # 0 to 7 bytes


class FollowedRecords:
    """The position up to which a slave has followed the received records, across connections. Owned by one thread."""

    __slots__ = ("chain", "end", "is_checked")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the state, because the log ends elsewhere now, with a complete record."""
        # where the next record begins, as of `end`
        self.chain = RecordChain(-1)
        # commit log offset; -1: nothing was followed
        self.end = -1
        # the log ends with a complete record, or within a file's blank
        self.is_checked = True


def follow_records(chain: RecordChain, offset: int, data: memoryview, start: int, length: int,
                   segment_size: int) -> RecordChain:
    """Return the chain after `length` bytes at `data[start]`, which directly follow the last piece, at log `offset`.

    RecordChainError names the offset of the first flaw; `chain` is still valid then.
    """
    # of the next record's head, relative to `start`
    position = chain.next_record - offset
    if position < 0:
        head = chain.head + bytes(data[start:start + min(length, HEAD.size - len(chain.head))])
        if len(head) < HEAD.size:
            return RecordChain(chain.next_record, head)
        size, magic = HEAD.unpack(head)
        _check(size, magic, chain.next_record, segment_size)
        position += size
    if length - position > _BULK_BYTES and bulk.is_compiled():
        # In one call, up to an unusual record; the loop below checks that one, and continues.
        position = bulk.walk(data, start + position, start + length).position - start
    unpack_from, room = HEAD.unpack_from, segment_size - (offset + position) % segment_size
    while position + HEAD.size <= length:
        size, magic = unpack_from(data, start + position)
        if magic != MESSAGE_MAGIC_CODE or not HEAD.size < size < room:
            _check(size, magic, offset + position, segment_size)
        position += size
        room = (room - size) or segment_size
    rest = bytes(data[start + position:start + length]) if position < length else b""
    return RecordChain(offset + position, rest)


def _check(size: int, magic: int, at: int, segment_size: int) -> None:
    if not fits(size, magic, segment_size - at % segment_size):
        raise RecordChainError(f"no valid record at commit log offset {at}: size {size}, "
                               f"magic {magic & 0xFFFFFFFF:#x}")
