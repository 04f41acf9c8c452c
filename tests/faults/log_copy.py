"""One broker's commit log as the oracle reads it, from the files alone: each record once, and again after a change.

    commit log files --store_compare.record_at--> names and places of messages, what the queues must hold, first flaw

A log that has grown is read from where its last record ended, if that record, and the blank that closes its file, are
what they were: what was truncated, set up anew or overwritten is read from the beginning. A broker that was killed
between the blank and the next file takes the blank back, and a smaller record may fit there. What changes further to
the front is found by the comparison of master and slave, and by a new copy at the end of a life.
"""
import os
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.faults.drawn_messages import crc_of
from tests.support import store_compare

Place = tuple[str, int, int, int, int]  # topic, queue, queue offset, offset in the log, CRC as of Acknowledged
Unit = tuple[int, int, int | None]  # offset in the log, size, tags code; None: the log has it not
_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">II")  # size and magic
_PREPARED_OR_ROLLED_BACK = (0x4, 0xC)
_TRANSACTION_MASK = 0xC


class LogCopy:
    """What was read of the log in `folder` so far: all from `begin` to `end`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._file_size = 0  # of all its files; 0: not known yet
        self.forget()

    def forget(self) -> None:
        """Read all of it the next time: after a loss of power, say, that may have taken anything."""
        self.begin = self.end = 0
        self.count = 0  # records
        self.places: defaultdict[str, list[Place]] = defaultdict(list)  # of a message, by its name
        self.queues: defaultdict[tuple[str, int], dict[int, Unit]] = defaultdict(dict)  # what each must hold
        self.repeated = ""  # the first index of a queue that was given twice, or after a higher one
        self.flaw = ""  # why what lies at `end` is not a whole record; "" where the log ends
        self._last = (0, 0, 0)  # the last record, with the head of the blank after it: offset, size, CRC of its bytes

    def read(self, limit: int | None = None) -> None:
        """Read on, up to the first record that is not whole, and not beyond `limit`: where the broker says that its
        log ends."""
        files = store_compare.segments(self.folder)
        if limit is not None and self.end > limit or self.count and not self._is_as_it_was(files):
            self.forget()
        if not self.count:
            self.begin = self.end = min(files, default=0)
        self.flaw = ""
        for start, file in files.items():
            size = file.stat().st_size
            if start + size <= self.end:
                continue
            if start > self.end:
                self.flaw = f"the file of {self.end} is missing"
                return
            with open(file, "rb") as log:
                log.seek(self.end - start)
                self._read_file(log.read(), limit)
            if self.end != start + size:
                return

    def _is_as_it_was(self, files: dict[int, Path]) -> bool:
        offset, size, crc = self._last
        return self.begin == min(files, default=0) and \
            zlib.crc32(store_compare.read_range(self.folder, offset, offset + size)) == crc

    def _read_file(self, data: bytes, limit: int | None) -> None:
        """The rest of a file, from `end` on; its records, and the blank that closes it."""
        at, start, last, blank = 0, self.end, -1, -1
        # the rest of a slave's last record may be on its way
        known = len(data) if limit is None else min(len(data), limit - start)
        while at + _HEAD.size <= known:
            total, magic = _HEAD.unpack_from(data, at)
            if magic == store_compare.BLANK_MAGIC:
                blank, self.end = at, start + len(data)
                break
            if magic != store_compare.MESSAGE_MAGIC or at + total > known:
                break
            try:
                self._take(store_compare.record_at(data, at, start))
            except (AssertionError, struct.error, UnicodeDecodeError) as failure:
                self.flaw = f"the record at {start + at} can't be read: {failure}"
            if self.flaw:
                break
            last, at = at, at + total
            self.end = start + at
        if last >= 0:
            (size,) = _SIZE.unpack_from(data, last)
            self._last = start + last, size, zlib.crc32(data[last:last + size])
        offset, size, crc = self._last
        if blank >= 0 and offset + size == start + blank:
            self._last = offset, size + _HEAD.size, zlib.crc32(data[blank:blank + _HEAD.size], crc)

    def _take(self, record: store_compare.Record) -> None:
        if not record.crc_ok or record.physical_offset != record.offset:
            what = "has another body than its CRC is of" if not record.crc_ok else f"says {record.physical_offset}"
            self.flaw = f"the record at {record.offset}, of {record.size} bytes, {what}"
            return
        self.count += 1
        properties = record.properties
        self.places[properties.get("KEYS", "")].append(
            (record.topic, record.queue_id, record.queue_offset, record.offset,
             crc_of(record.body, properties.get("TAGS", ""), properties.get("FILLING", ""))))
        if record.sys_flag & _TRANSACTION_MASK in _PREPARED_OR_ROLLED_BACK:
            return
        queue = self.queues[record.topic, record.queue_id]
        before = next(reversed(queue), -1)
        if record.queue_offset <= before and not self.repeated:
            when = "twice" if record.queue_offset in queue else f"after {before}"
            self.repeated = f"{record.topic}/{record.queue_id}: index {record.queue_offset} {when}"
        queue[record.queue_offset] = record.offset, record.size, store_compare.tags_code(record)

    def log_end(self) -> int:
        """Where the log ends now: behind the last record, or the blank that closes a file. Sizes and magics are looked
        at, and nothing is kept."""
        return self._end_from(self._known())[1]

    def followed_end(self) -> Callable[[], int]:
        """The same, to be called again and again while the log only grows.

        The last record is looked at again each time: a head that lies in two lines of the processor's cache may be seen
        with half of its size, as the lines are written one after the other.
        """
        last = self._known()

        def now() -> int:
            nonlocal last
            last, end = self._end_from(last)
            return end
        return now

    def _known(self) -> int:
        """How far the log is read, if it still is what it was."""
        files = store_compare.segments(self.folder)
        return self.end if self.count and self._is_as_it_was(files) else min(files, default=0)

    def _end_from(self, last: int) -> tuple[int, int]:
        """Where the last record begins, and where the log ends, when a record or a file begins at `last`."""
        size = self._file_size = self._file_size or next((f.stat().st_size for f in self.folder.glob("[0-9]*")), 0)
        end = last
        while size:
            start = end - end % size
            try:
                in_file, found = _end_in_file(self.folder / f"{start:020d}", end - start, size)
            except FileNotFoundError:
                break
            if found != end - start:
                last, end = start + in_file, start + found
            if found < size:
                break
        return last, end


def _end_in_file(file: Path, at: int, size: int) -> tuple[int, int]:
    """The same of a file, from the record at `at` on."""
    last = at
    descriptor = os.open(file, os.O_RDONLY)
    try:
        while len(head := os.pread(descriptor, _HEAD.size, at)) == _HEAD.size:
            total, magic = _HEAD.unpack(head)
            if magic == store_compare.BLANK_MAGIC:
                return at, size
            if magic != store_compare.MESSAGE_MAGIC or total <= 0 or at + total > size:
                break
            last, at = at, at + total
        return last, at
    finally:
        os.close(descriptor)
