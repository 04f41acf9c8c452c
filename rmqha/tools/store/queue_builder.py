"""Consume queue files from units in the order of the log: the same bytes as a broker writes."""
import os
import shutil
import time
from typing import Protocol

from rmqha.common.filesystem import open_regular
from rmqha.common.util_all import offset2file_name
from rmqha.store.consume_queue_layout import PRE_BLANK_UNIT
from rmqha.tools.store.index_builder import write_all
from rmqha.tools.store.queue_reader import UNIT, QueueReader, unpack

_REST_UNITS = 65536
_SETTLE_S = 0.02  # a unit that was begun is whole after this long


class QueueSink(Protocol):
    """Takes the units of one queue from front to back."""

    def units(self, index: int, data: bytes) -> None:
        """Units from `index` on."""

    def finish(self, end_index: int) -> None:
        """The queue ends before `end_index`."""

    def begin_anew(self) -> None:
        """Forget all units so far: they are of a queue that was deleted."""


class QueueBuilder:
    """One queue. `max_gap`: how many indices may be missing in a row and are filled with blanks."""

    def __init__(self, sink: QueueSink, file_size: int, flush_bytes: int, max_gap: int) -> None:
        self.sink = sink
        self.units = 0
        self.first_index: int | None = None
        self.next_index = 0
        self._per_file = file_size // UNIT
        self._flush_bytes = flush_bytes
        self._max_gap = max_gap
        self._chunk = bytearray()
        self._chunk_index = 0
        self._zero: bytes | None = None  # unit of a message 0 that came behind others

    def put(self, index: int, unit: bytes) -> str | None:
        """Add the unit of message `index`; what is wrong with that index, if anything.

        A message 0 behind others begins the queue anew, unless the next one says that its index is wrong.
        """
        problem = None
        if self._zero is not None:
            if index == self.next_index + 1:
                self._append(self._zero)  # as a broker does
                self.next_index += 1
                self.units += 1
                problem = f"index 0 follows {index - 2}, and is followed by {index}"
            else:
                self._begin_anew(self._zero)
            self._zero = None
        elif index == 0 and self.next_index > 0:
            self._zero = unit
            return None
        if self.first_index is None:
            if index < 0:
                return f"index {index} is left out"
            # the first file begins in the middle: blanks up to there
            self.first_index, self._chunk_index = index, index - index % self._per_file
            self._chunk += PRE_BLANK_UNIT * (index % self._per_file)
        elif index != self.next_index:
            problem = f"index {index} follows {self.next_index - 1}"
            if index < self.next_index:
                return f"{problem}: it is left out"
            if index - self.next_index > self._max_gap:
                return f"{problem}: it is left out, no such gap fits the log"
            for _ in range(index - self.next_index):
                self._append(PRE_BLANK_UNIT)
        self._append(unit)
        self.next_index = index + 1
        self.units += 1
        return problem

    def _begin_anew(self, zero: bytes) -> None:
        self._chunk.clear()
        self.sink.begin_anew()
        self.first_index = self._chunk_index = 0
        self._chunk += zero
        self.next_index = self.units = 1

    def goes_on_at(self, index: int) -> bool:
        """Whether the unit of message `index` would be the next one, or the first."""
        if self._zero is not None:
            return False
        return index >= 0 if self.first_index is None else index == self.next_index

    def put_run(self, index: int, units: bytes) -> None:
        """Add units that follow one another, where the queue goes on."""
        self.put(index, units[:UNIT])
        self._append(units[UNIT:])
        self.next_index += len(units) // UNIT - 1
        self.units += len(units) // UNIT - 1

    def _append(self, unit: bytes) -> None:
        self._chunk += unit
        if len(self._chunk) >= self._flush_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._chunk:
            self.sink.units(self._chunk_index, bytes(self._chunk))
            self._chunk_index += len(self._chunk) // UNIT
            self._chunk.clear()

    def finish(self) -> None:
        """The last record is in."""
        if self._zero is not None:
            self._begin_anew(self._zero)
        self._flush()
        self.sink.finish(self.next_index)

    @property
    def files(self) -> int:
        """How many files the units take."""
        if self.first_index is None:
            return 0
        return (self.next_index - 1) // self._per_file - self.first_index // self._per_file + 1


class QueueWriter:
    """Writes the files of a new queue folder."""

    def __init__(self, path: str, file_size: int) -> None:
        self.path = path
        self.file_size = file_size

    def units(self, index: int, data: bytes) -> None:
        """Write units, file by file."""
        os.makedirs(self.path, exist_ok=True)
        address = index * UNIT
        while data:
            position = address % self.file_size
            part = data[:self.file_size - position]
            self._write(os.path.join(self.path, offset2file_name(address - position)), position, part)
            address, data = address + len(part), data[len(part):]

    def _write(self, path: str, position: int, data: bytes) -> None:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(fd, self.file_size)
            write_all(fd, data, position)
        finally:
            os.close(fd)

    def begin_anew(self) -> None:
        """Delete what was written."""
        shutil.rmtree(self.path, ignore_errors=True)

    def finish(self, end_index: int) -> None:
        """Force all files to the disk."""
        if not os.path.isdir(self.path):
            return
        for entry in os.scandir(self.path):
            fd = open_regular(entry.path)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


class QueueComparer:
    """Compares with an existing queue; `difference` says where it differs first.

    Units of messages that the log has no more, in front of the first one, count as equal.
    """

    def __init__(self, reader: QueueReader | None, live: bool) -> None:
        self.reader = reader
        self.live = live
        self.difference: str | None = None if reader is not None or live else "missing"

    def units(self, index: int, data: bytes) -> None:
        """Compare units."""
        if self.difference is not None:
            return
        if self.reader is None:
            return  # a running broker makes it later
        there = self.reader.read(index, len(data) // UNIT) if index >= self.reader.first_index else b""
        if self.live and not data.startswith(there.rstrip(b"\0")):
            time.sleep(_SETTLE_S)
            there = self.reader.read(index, len(data) // UNIT)
        if there == data or (self.live and data.startswith(there.rstrip(b"\0"))):
            return
        for at in range(0, len(data), UNIT):
            expected, found = data[at:at + UNIT], there[at:at + UNIT]
            if found != expected and not (expected == PRE_BLANK_UNIT or self._is_ext(found, expected)):
                self.difference = f"different from index {index + at // UNIT} on"
                return

    @staticmethod
    def _is_ext(found: bytes, expected: bytes) -> bool:
        """Whether it says the same, and more in an extension file."""
        return len(found) == UNIT and found[:12] == expected[:12] and unpack(found).tags_code < -(1 << 31)

    def begin_anew(self) -> None:
        """What was compared is not to be there."""
        self.difference = None if self.reader is not None or self.live else "missing"

    def finish(self, end_index: int) -> None:
        """Findings about what follows the last unit."""
        if self.difference is not None or self.live or self.reader is None:
            return
        index = max(end_index, self.reader.first_index)
        while data := self.reader.read(index, _REST_UNITS):
            if data.strip(b"\0"):
                self.difference = f"there is more from index {end_index} on"
                return
            index += len(data) // UNIT
