"""Consume queues held against the log: each record has its unit, each unit its record."""
import struct
import time

from rmqha.common.filesystem import read_at
from rmqha.store.consume_queue_layout import CQ_UNIT
from rmqha.tools.store.dispatch import Unit as DispatchUnit
from rmqha.tools.store.findings import Findings
from rmqha.tools.store.queue_reader import UNIT, QueueKey, QueueReader, Unit, ext_position, unpack
from rmqha.tools.store.record_scan import LogRecord
from rmqha.tools.store.segments import Folder
from rmqha.tools.store.span_taker import RunOfUnits
from rmqha.tools.store.store_reader import StoreReader

_EXT_HEAD = struct.Struct(">hqqh")
_ZEROS = bytes(UNIT)
_CHUNK_UNITS = 65536
_DISPATCH_WAIT_S = 3.0
_POLL_S = 0.05
_SETTLE_S = 0.02  # a unit that was begun is whole after this long

_pack_unit = CQ_UNIT.pack


class _QueueState:
    """How far one queue has been compared."""

    __slots__ = ("reader", "first", "next", "missing", "missing_from", "missing_unit")

    def __init__(self, reader: QueueReader) -> None:
        self.reader = reader
        self.first: int | None = None  # index of its first record in the log
        self.next = 0  # index behind its last record so far
        self.missing = 0  # records at the end so far that have no unit
        self.missing_from = 0  # index of the first of them
        self.missing_unit = b""  # of the last of them


class QueuesCheck:
    """Call it with each record of the log in order, then `finish`."""

    def __init__(self, store: StoreReader, readers: dict[QueueKey, QueueReader], findings: Findings) -> None:
        self.store = store
        self.findings = findings
        self.units = 0
        self._states = {key: _QueueState(reader) for key, reader in readers.items()}
        self._ext_folders: dict[QueueKey, Folder] = {}

    def record(self, record: LogRecord, units: list[DispatchUnit], place: tuple[str, int]) -> None:
        """Compare the units of one record, which lies at `place`."""
        for topic, queue_id, index, tags_code in units:
            state = self._states.get((topic, queue_id)) or self._new_queue(topic, queue_id)
            if index != state.next and state.first is not None:
                self.findings.flaw(*place, f"index {index} of queue {topic}/{queue_id} follows index {state.next - 1}")
            if state.first is None:
                state.first = index
            state.next = index + 1
            self.units += 1
            expected = _pack_unit(record.offset, record.size, tags_code)
            if state.reader.unit_bytes(index) != expected:
                self._look_closer(state, index, expected)
            elif state.missing:
                self._hole(state, index)

    def fits(self, run: RunOfUnits) -> bool:
        """Whether the units of a bulk scan are there where their queue goes on."""
        state = self._states.get((run.topic, run.queue_id))
        return state is not None and not state.missing and (state.first is None or run.first_index == state.next) \
            and state.reader.read(run.first_index, len(run.units) // UNIT) == run.units

    def take(self, run: RunOfUnits) -> None:
        """Go on behind units that fit."""
        state = self._states[run.topic, run.queue_id]
        if state.first is None:
            state.first = run.first_index
        state.next = run.end
        self.units += len(run.units) // UNIT

    def _new_queue(self, topic: str, queue_id: int) -> _QueueState:
        """A queue that had no folder when the store was opened; a running broker may have made it since."""
        path = f"{self.store.consume_queue_path}/{topic}/{queue_id}"
        state = self._states[topic, queue_id] = _QueueState(QueueReader(topic, queue_id, path))
        return state

    def _look_closer(self, state: _QueueState, index: int, expected: bytes) -> None:
        reader = state.reader
        data = reader.fresh_unit(index, look_for_files=self.store.live) if index >= reader.first_index else b""
        if data in (b"", _ZEROS):
            if not state.missing:
                state.missing_from = index
            state.missing += 1
            state.missing_unit = expected
            return
        if state.missing:
            self._hole(state, index)
        if data == expected:
            return  # written since its block was read
        if self.store.live:
            time.sleep(_SETTLE_S)
            data = reader.fresh_unit(index)
        found, wanted = unpack(data), unpack(expected)
        if found == wanted or self._is_ext_of(reader, found, wanted):
            return
        what = (f"index {index} of queue {reader.name} points at {found.offset} with size {found.size} and tags code "
                f"{found.tags_code}; by the log it is {wanted.offset}, {wanted.size}, {wanted.tags_code}")
        if found[:2] == wanted[:2] and reader.topic.startswith("SCHEDULE_TOPIC"):
            what += " (the time of delivery: does --delay-levels say the broker's messageDelayLevel?)"
        self.findings.flaw(*reader.position(index), what)

    def _is_ext_of(self, reader: QueueReader, found: Unit, wanted: Unit) -> bool:
        """Whether the tags code is an address in the extension files, and the right code is there."""
        position = ext_position(found.tags_code)
        if position is None or found[:2] != wanted[:2]:
            return False
        key = reader.topic, reader.queue_id
        folder = self._ext_folders.get(key) or self._ext_folders.setdefault(key, self.store.ext_folder(key))
        at = folder.at(position)
        segment = folder.segments[at] if at >= 0 else None
        data = read_at(segment.path, position - segment.start, _EXT_HEAD.size) if segment is not None else b""
        if segment is None or len(data) < _EXT_HEAD.size:
            self.findings.note("units whose extension is gone")
            return True
        size, tags_code, _store_time, _map_size = _EXT_HEAD.unpack(data)
        if size < _EXT_HEAD.size or tags_code != wanted.tags_code:
            self.findings.flaw(segment.path, position - segment.start,
                               f"the extension of {reader.name} says tags code {tags_code}, not {wanted.tags_code}")
        return True

    def _hole(self, state: _QueueState, index: int) -> None:
        """Units are missing in front of one that is there, unless they have been written since."""
        count, first = state.missing, state.missing_from
        is_written = self._is_dispatched(state, index - 1)
        state.missing = 0
        if is_written:
            return
        self.findings.flaw(*state.reader.position(first),
                           f"queue {state.reader.name} has no unit for {_messages(count, first)}, but one for {index}")

    def finish(self, log_end: int, last_store_timestamp: int) -> None:
        """What is left when the log is at its end: records without unit, units without record."""
        self._wait_for_dispatch()
        for state in self._states.values():
            if state.missing:
                self._missing(state)
            self._before(state)
            self._behind(state, log_end, last_store_timestamp)

    def _wait_for_dispatch(self) -> None:
        """A running broker writes the units of its newest records a little later."""
        deadline = time.monotonic() + _DISPATCH_WAIT_S
        while self.store.live and time.monotonic() < deadline:
            late = False
            for state in self._states.values():
                if state.missing and self._is_dispatched(state, state.next - 1):
                    state.missing = 0
                late |= state.missing > 0
            if not late:
                return
            time.sleep(_POLL_S)

    def _is_dispatched(self, state: _QueueState, last: int) -> bool:
        """Whether a running broker has written the missing units, the last of which is `last`, by now: in order."""
        return self.store.live and state.reader.fresh_unit(last, look_for_files=True) == state.missing_unit

    def _missing(self, state: _QueueState) -> None:
        what = f"queue {state.reader.name} has no unit for {_messages(state.missing, state.missing_from)}"
        if self.store.live:
            self.findings.note(f"{what}: they are not dispatched yet")
        elif self.store.crashed:
            self.findings.note(f"{what}: they are dispatched at the next start")
        else:
            self.findings.flaw(*state.reader.position(state.missing_from), what)

    def _before(self, state: _QueueState) -> None:
        """Units in front of the first record in the log: of messages that are deleted, or fillers."""
        reader, log_min = state.reader, self.store.log.min_offset
        index = reader.first_index
        end = reader.end_index() if state.first is None else state.first
        while index < end:
            data = reader.read(index, min(_CHUNK_UNITS, end - index))
            for number, (offset, size, _tags_code) in enumerate(CQ_UNIT.iter_unpack(data), index):
                if state.first is None and not (offset < log_min or (offset, size) == (0, 0x7FFF_FFFF)):
                    return  # `_behind` looks at these
                if offset >= log_min and (offset, size) != (0, 0x7FFF_FFFF):
                    self.findings.flaw(*reader.position(number), f"index {number} of queue {reader.name} points at "
                                       f"{offset}, which is no record of this queue")
                state.next = max(state.next, number + 1)
            if not data:
                return
            index += len(data) // UNIT

    def _behind(self, state: _QueueState, log_end: int, last_store_timestamp: int) -> None:
        """Units behind the last record in the log."""
        reader = state.reader
        index = max(state.next, reader.first_index)
        while index < reader.files_end:
            data = reader.read(index, _CHUNK_UNITS)
            if not data:
                return
            rest = data.lstrip(b"\0")
            if rest:
                self._extra(reader, index + (len(data) - len(rest)) // UNIT, log_end, last_store_timestamp)
                return
            index += len(data) // UNIT

    def _extra(self, reader: QueueReader, index: int, log_end: int, last_store_timestamp: int) -> None:
        unit = unpack(reader.fresh_unit(index).ljust(UNIT, b"\0"))
        what = (f"index {index} of queue {reader.name} points at {unit.offset} with size {unit.size}, "
                "which is no record of this queue")
        behind = unit.is_valid and unit.offset >= log_end and not unit.is_filler
        if behind and self.store.crashed:
            self.findings.note(f"queue {reader.name} goes on behind the end of the log: the next start cuts it")
            return
        if behind:
            record = self.store.log_now().record_at(unit.offset)
            if record is not None and self.store.live and record.size == unit.size:
                return  # appended since
            if record is not None and record.store_timestamp < last_store_timestamp:
                self.findings.note(f"queue {reader.name} has units behind its end, left by an earlier crash")
                return
        self.findings.flaw(*reader.position(index), what)


def _messages(count: int, first: int) -> str:
    return f"index {first}" if count == 1 else f"{count} messages from index {first} on"
