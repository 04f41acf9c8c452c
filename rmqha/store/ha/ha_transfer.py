"""The replication protocol of RocketMQ 4.9 between a master and its slaves. Pure: no socket, no thread, no file.

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

`follow_records` walks from record to record over log bytes that arrive in pieces. Each record begins with its size
(int32) and its magic (int32); the end of a file is a blank record that reaches exactly to the file's end. Frames are
not aligned to records, so a piece may begin and end anywhere.
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
_HEADER_AND_RECORD = struct.Struct(">qiii")  # and the size and magic of the record behind it
_INT = struct.Struct(">i")

# A slave closes a connection whose frame does not fit its buffer, header included.
READ_MAX_BUFFER_SIZE = 4 * 1024 * 1024
MAX_BODY_SIZE = READ_MAX_BUFFER_SIZE - HEADER.size
ROOM_IN_FRONT = 64 * 1024  # bytes of a decoder's buffer before its view, for the beginning of a record
# Bodies for which places are foreseen have so many bytes at least: a read names two places a frame, 1,024 at most.
_MIN_FORESEEN = 4096


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

    The socket fills `writable()`, `received(n)` tells how much, `runs()` takes all complete frames out. While frames of
    one size stream in, it may fill `places()` instead, in their order:

        view:    header body body body ...       the headers behind the first lie in a buffer of their own, so
        heads:   header header ...               that the bodies are one run where they are

    What comes otherwise than it was foreseen is put together again, and read as ever. `view` has ROOM_IN_FRONT bytes of
    `buffer` before it; those before the run that was yielded last are nobody's.
    """

    header_size: int
    size_at: int  # in a header

    def __init__(self, capacity: int = READ_MAX_BUFFER_SIZE) -> None:
        self.buffer = memoryview(bytearray(ROOM_IN_FRONT + capacity))
        self.view = self.buffer[ROOM_IN_FRONT:]
        self._end = 0  # bytes of `view`, or of the places, that are filled; between the calls a frame starts at 0
        self._size = 0  # body of the last frame that `runs` took out; 0: of none yet
        self._behind = 0  # commit log offset behind it
        self._foreseen = 0  # size of the bodies for which places were given; 0: all that was received is in `view`
        self._places: list[memoryview] = []  # of all frames but the first, of `_places_for` bytes
        self._places_for = 0
        self._heads = memoryview(b"")

    def writable(self, limit: int) -> memoryview:
        """Where the next bytes belong, at most `limit` of them. Never empty after `runs` was exhausted."""
        self._foreseen = 0
        return self.view[self._end:self._end + limit]

    def places(self, limit: int, segment_size: int) -> list[memoryview]:
        """Where the next bytes belong if they are frames as large as the last one, as many as `limit` bytes have and
        the log's file has room for. Empty when that is not to be expected: `writable` has to do.

        For use after `runs` was exhausted, as `writable`.
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
        """Whether a part of a frame is there, after `runs` was exhausted."""
        return self._end > 0

    def received(self, count: int) -> None:
        """`count` bytes were written to `writable()`, or to `places()`."""
        self._end += count

    def runs(self, segment_size: int) -> Iterator[R]:
        """Each run of the complete frames received; a run ends where a commit log file of `segment_size` begins.

        A run's bytes are valid until the next one is asked for. TransferError when a frame can't be; the connection
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
        """How many of the `whole` first frames at the places are what was foreseen, and their run."""
        raise NotImplementedError

    def _runs_in_view(self, segment_size: int) -> Iterator[R]:
        raise NotImplementedError

    def _put_together(self, frames: int) -> None:
        """The bytes of all places but those of the first `frames` go to the beginning of `view`, in their order."""
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
        """`run` is the last one, and of `size` bytes its last frame; what lies from `position` to `end` stays."""
        self._size, self._behind = size, run.offset + run.length
        self._end = end - position
        if self._end:
            self.view[:self._end] = self.view[position:end]

    def take_record(self, offset: int, room: int) -> int:
        """The size of the record at commit log `offset`, when it is taken out before `runs` looks; 0: it is not."""
        return 0


class FrameDecoder(RunDecoder[Run]):
    """Cuts 4.9's frames. Bodies of contiguous frames are moved together in place, so that one read costs one append,
    however small the frames.
    """

    header_size = HEADER.size
    size_at = 8

    def take_record(self, offset: int, room: int) -> int:
        """The size of the record at commit log `offset`, of less than `room` bytes, when what was received is one frame
        with nothing else in it: as almost always for a sync put. It stands behind the header, and is taken out.

        0, and nothing is done, when it is anything else, or was received at `places()`, where a frame larger than the
        foreseen ones is not in one piece: `runs` knows what.
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
    """The bytes at a record's place are no record."""


class RecordChain(NamedTuple):
    """Where the next record begins, and its first bytes when they came at the end of the last piece."""

    next_record: int  # commit log offset
    head: bytes = b""  # 0 to 7 bytes


class FollowedRecords:
    """Up to where a slave has followed the records that it got, over its connections. One thread's."""

    __slots__ = ("chain", "end", "is_checked")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The log ends elsewhere now, with a whole record."""
        self.chain = RecordChain(-1)  # where the next record begins, as of `end`
        self.end = -1  # commit log offset; -1: nothing was followed
        self.is_checked = True  # the log ends with a whole record, or within a file's blank


def follow_records(chain: RecordChain, offset: int, data: memoryview, start: int, length: int,
                   segment_size: int) -> RecordChain:
    """The chain behind `length` bytes at `data[start]`, which lie at commit log `offset` right behind the last piece.

    RecordChainError names the offset of the first flaw; `chain` is still good then.
    """
    position = chain.next_record - offset  # of the next record's head, relative to `start`
    if position < 0:
        head = chain.head + bytes(data[start:start + min(length, HEAD.size - len(chain.head))])
        if len(head) < HEAD.size:
            return RecordChain(chain.next_record, head)
        size, magic = HEAD.unpack(head)
        _check(size, magic, chain.next_record, segment_size)
        position += size
    if length - position > _BULK_BYTES and bulk.is_compiled():
        # In one call, up to a record that is odd; the loop below judges that one, and goes on.
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
        raise RecordChainError(f"at commit log offset {at} is no record: size {size}, magic {magic & 0xFFFFFFFF:#x}")
