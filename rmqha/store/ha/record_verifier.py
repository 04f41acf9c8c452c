"""Verification of received records before they reach the log, while their bytes arrive in pieces of any size. Pure.

    pieces of a run --> RecordVerifier --complete records, each verified--> the log
                            | holds the beginning of a record until its end has arrived

The following is checked: the magic code, that the lengths add up to the size, that PHYSICALOFFSET is the record's
position in the log, that the queue offset is not negative, and the CRC of the body. The blank at the end of a file
consists of a head only; the bytes after it, up to the file's end, are passed on as they arrive. No check covers a
record's topic, properties, times, hosts and flags, or a queue offset that is merely a different one. Scrubbing compares
those, and dispatch compares a queue offset with its queue.
"""
from collections.abc import Iterator

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message.message_layout import (
    BLANK_MAGIC_CODE,
    HEAD,
    HEAD_LENGTH,
    LENGTHS,
    LENGTHS_SIZE,
    MAX_HEAD_LENGTH,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MIN_RECORD_LENGTH,
    SUMMARIES,
    fits,
)
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Stop
from rmqha.store.ha.ha_transfer import RecordChainError

_MAX_TAIL = LENGTHS_SIZE + MAX_TOPIC_LENGTH + MAX_PROPERTIES_LENGTH  # bytes after a body
_BLANK = 0
_LENGTHS_DIFFER = "has lengths that do not add up to its size"
_FLAWS = {Stop.ODD: "contains another log offset, or a negative queue offset", Stop.BAD_CRC: "has a body that does not "
          "match its CRC", Stop.LENGTH_MISMATCH: _LENGTHS_DIFFER, Stop.TRUNCATED: _LENGTHS_DIFFER}


class RecordFlawError(RecordChainError):
    """The record at commit log offset `offset` fails its checks."""

    def __init__(self, offset: int, flaw: str) -> None:
        super().__init__(f"the record at commit log offset {offset} {flaw}")
        self.offset = offset


class Piece(NamedTuple):
    """Verified bytes for the log: `length` bytes at `data[start]`, for commit log offset `offset`."""

    offset: int
    data: memoryview
    start: int
    length: int


class RecordVerifier:
    """A verifier for the bytes of one connection. `take` is called with each run; the first begins with a record.

    `end` is the commit log offset after the last byte that was taken; -1 before the first run. While a part of a record
    is held, the log ends where that record begins.
    """

    __slots__ = ("end", "_segment_size", "_held", "_wanted", "_blank_end")

    def __init__(self, segment_size: int, blank_end: int = -1) -> None:
        """Continue in a blank that an earlier connection passed on in part; it reaches up to `blank_end`."""
        self.end = -1
        self._segment_size = segment_size
        # the beginning of a record
        self._held = bytearray()
        # size of `_held` at which it is checked again
        self._wanted = 0
        # end of the blank whose head was passed on
        self._blank_end = blank_end

    def next_record(self, end: int) -> int:
        """Return the offset at which the next record begins in a log that ends at `end`."""
        return max(end, self._blank_end)

    @property
    def is_within_record(self) -> bool:
        """True while the beginning of a record is held."""
        return bool(self._held)

    def take_record(self, offset: int, data: memoryview, start: int, length: int) -> None:
        """Take exactly one record, while no other is held; RecordFlawError when it fails its checks."""
        with data[start:start + length] as record:
            self._check_whole(offset, record)
        self.end = offset + length

    def take(self, offset: int, data: memoryview, start: int, length: int, overwrites: bool = False) -> Iterator[Piece]:
        """Yield the bytes that may be appended now, in order. A piece is valid until the next one is requested.

        `length` bytes at `data[start]` follow the last ones, in one file of the log. `overwrites`: the bytes before
        them in `data` may be overwritten. RecordFlawError names the flawed record, after all good bytes before it were
        yielded.
        """
        self.end = offset + length
        known = len(self._held)
        if overwrites and 0 < known <= min(start, length):
            # One piece instead of two; this never copies more bytes than have arrived.
            data[start - known:start] = self._held
            self._held = bytearray()
            offset, start, length = offset - known, start - known, length + known
        at, stop, base = start, start + length, offset - start
        if offset < self._blank_end:
            at += min(length, self._blank_end - offset)
            yield Piece(offset, data, start, at - start)
        while at < stop:
            if self._held:
                begin = base + at - len(self._held)
                at = self._fill(begin, data, at, stop)
                if len(self._held) < self._wanted:
                    return
                held, self._held = memoryview(self._held), bytearray()
                if self._wanted == HEAD.size:
                    self._blank_end = self._file_end(begin)
                else:
                    self._check_whole(begin, held)
                yield Piece(begin, held, 0, len(held))
                if begin + len(held) < self._blank_end and at < stop:
                    yield Piece(base + at, data, at, stop - at)
                    return
                continue
            begin = base + at
            with data[at:stop] as rest:
                found = bulk.walk(rest, 0, stop - at, True, begin, keeps_gil=True)
            if found.position:
                yield Piece(begin, data, at, found.position)
                at += found.position
            if found.stop is Stop.END:
                return
            if self._hold(base + at, data, at, stop, found.stop):
                yield Piece(base + at, data, at, stop - at)
                return
            at = stop

    def _hold(self, begin: int, data: memoryview, at: int, stop: int, why: Stop) -> bool:
        """Hold the beginning of a record; return True when it is a file's blank, which is not held."""
        with data[at:min(stop, at + MAX_HEAD_LENGTH)] as head:
            wanted = self._look_at(begin, head)
        if wanted == _BLANK:
            self._blank_end = self._file_end(begin)
            return True
        if wanted <= stop - at:
            raise RecordFlawError(begin, _FLAWS.get(why, _LENGTHS_DIFFER))
        self._held += data[at:stop]
        self._wanted = wanted
        return False

    def _fill(self, begin: int, data: memoryview, at: int, stop: int) -> int:
        """Add to the held bytes until they are a complete record or a blank's head, or until the data is used up.

        Return the position in `data` at which to continue.
        """
        held = self._held
        while at < stop:
            taken = min(stop - at, self._wanted - len(held))
            held += data[at:at + taken]
            at += taken
            if len(held) < self._wanted:
                break
            wanted = self._look_at(begin, held)
            if wanted in (_BLANK, len(held)):
                break
            self._wanted = wanted
        return at

    def _look_at(self, begin: int, head: memoryview | bytearray) -> int:
        """Return how many bytes of the record at `begin` the next check needs, or its size; _BLANK for a blank.

        RecordFlawError when the bytes can't be the beginning of a record. This is decided with its head at the latest,
        so that it does not wait for the end of a record whose size is wrong.
        """
        if len(head) < HEAD.size:
            return HEAD.size
        size: int
        size, magic = HEAD.unpack_from(head)
        if not fits(size, magic, self._segment_size - begin % self._segment_size):
            raise RecordFlawError(begin, f"is not a valid record: size {size}, magic {magic & 0xFFFFFFFF:#x}")
        if magic == BLANK_MAGIC_CODE:
            return _BLANK
        if size < MIN_RECORD_LENGTH:
            raise RecordFlawError(begin, _LENGTHS_DIFFER)
        if len(head) < HEAD_LENGTH:
            return HEAD_LENGTH
        summary = SUMMARIES[LENGTHS.unpack_from(head)[6] >> 4 & 3]
        head_size: int = summary.size
        if len(head) < head_size:
            if size < head_size:
                raise RecordFlawError(begin, _LENGTHS_DIFFER)
            return head_size
        fields = summary.unpack_from(head)
        if fields[5] != begin or fields[4] < 0:
            raise RecordFlawError(begin, _FLAWS[Stop.ODD])
        if fields[9] < 0 or not head_size + fields[9] + LENGTHS_SIZE <= size <= head_size + fields[9] + _MAX_TAIL:
            raise RecordFlawError(begin, _LENGTHS_DIFFER)
        return size

    def _check_whole(self, begin: int, record: memoryview) -> None:
        if not bulk.is_record(record, begin):
            found = bulk.walk(record, 0, len(record), True, begin)
            raise RecordFlawError(begin, _FLAWS.get(found.stop, _LENGTHS_DIFFER))

    def _file_end(self, offset: int) -> int:
        return offset - offset % self._segment_size + self._segment_size
