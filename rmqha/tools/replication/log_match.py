"""Comparison of the commit logs of two replicas, by checksums and bytes read from their brokers.

    checksums of 64 KiB --> bytes of a differing block --> the record that holds the first differing byte

- `BrokerSide`: asks an rmqha broker at its main port.
- `StreamSide`: reads a broker that does not know that request, such as RocketMQ's, through its HA port, like
  `ha receive` without --acknowledge; rmqha.tools.replication.receive explains why that is harmless.
"""
from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from rmqha.common.message.message_layout import (
    BLANK,
    BLANK_MAGIC_CODE,
    HEAD_LENGTH,
    LONG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_POSITION,
    PHYSICAL_OFFSET_POSITION,
)
from rmqha.common.protocol.controller_headers import MAX_BYTES
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.remoting.frame_decoder import ByteStream, StreamError
from rmqha.store.ha import ha_transfer
from rmqha.tools.admin.cluster_admin import ClusterAdmin, number, parsed_address
from rmqha.tools.replication.receive import Master, ask_master
from rmqha.tools.store_files.reading import LogRecord, scan_block
from rmqha.tools.terminal import CannotAnswerError, cell

_DEFAULT_FILE_SIZE = 1 << 30
_RECEIVE_SIZE = 1 << 20
# Bytes kept before the requested ones: twice the longest record.
_KEPT = 8 << 20
_WAIT_S = 0.25
_CONNECT_TIMEOUT_S = 5.0
# A 4.9 master checks its waiting sends once a second.
_SETTLE_MARGIN_MS = 5000
_TRIES = 3


class RangeGoneError(CannotAnswerError):
    """A log no longer holds a range that it held when it was first asked."""


class LogSide(Protocol):
    """One of two compared logs. `begin` and `end` are the commit log offsets that it holds."""

    name: str
    begin: int
    end: int
    file_size: int

    def checksums(self, offset: int, block_size: int, count: int) -> tuple[int, ...]:
        """Return the CRC32 of each block. RangeGoneError when the log does not hold them all."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the log. RangeGoneError when the log does not hold them all."""

    def close(self) -> None:
        """Close the connection."""


def log_side(admin: ClusterAdmin, address: str, role: str, patience: Callable[[float], None] = time.sleep) -> LogSide:
    """Return the log of the broker at an address, through the port that can serve it; `role` names it in errors."""
    config = admin.get_broker_config(address)
    file_size = number(config, "mappedFileSizeCommitLog", address, _DEFAULT_FILE_SIZE)
    told = admin.get_commit_log_checksums(address, 0, 1, 1)
    if told is not None:
        return BrokerSide(admin, address, f"the {role} {address}", told, file_size)
    host = parsed_address(address, "the broker's address")[0]
    ha_port = number(config, "haListenPort", address)
    if not ha_port:
        raise CannotAnswerError(f"broker {address} provides no checksums and does not report its HA port")
    master = ask_master(admin, address, (host, ha_port), False)
    if config.get("brokerRole") == "SYNC_MASTER":
        # After this time no send waits for what the log holds now, so a reported offset in it acknowledges nothing.
        patience((master.slave_timeout_ms + _SETTLE_MARGIN_MS) / 1000)
    return StreamSide(f"the {role} {address}", master)


class BrokerSide:
    """The log of an rmqha broker."""

    def __init__(self, admin: ClusterAdmin, address: str, name: str, told: LogChecksums, file_size: int) -> None:
        self.name = name
        self.begin, self.end = max(told.min_offset, 0), max(told.max_offset, 0)
        self.file_size = file_size
        self._admin = admin
        self._address = address

    def checksums(self, offset: int, block_size: int, count: int) -> tuple[int, ...]:
        """Return the CRC32 of each block, see LogSide."""
        told = self._admin.get_commit_log_checksums(self._address, offset, block_size, count)
        if told is None or len(told.crcs) < count:
            raise _gone(self.name, offset, block_size * count, told)
        return told.crcs

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the log, see LogSide."""
        parts = []
        while size > 0:
            part = self._admin.get_commit_log_bytes(self._address, offset, min(size, MAX_BYTES))
            if not part:
                raise _gone(self.name, offset, size, self._admin.get_commit_log_checksums(self._address, offset, 1, 1))
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing: the connection is the admin client's."""


class StreamSide:
    """A log that is read through an HA port. Reads in ascending order use one connection.

    A connection only reports the offset at which it began.
    """

    def __init__(self, name: str, master: Master) -> None:
        self.name = name
        self.begin, self.end = master.min_offset, master.max_offset
        self.file_size = master.file_size
        self._master = master
        self._stream: ByteStream | None = None
        self._decoder = ha_transfer.FrameDecoder()
        self._start = 0  # commit log offset of the first byte kept
        self._kept = bytearray()
        self._reported = 0
        self._last_report = self._last_read = 0.0  # monotonic s

    def checksums(self, offset: int, block_size: int, count: int) -> tuple[int, ...]:
        """Return the CRC32 of each block, see LogSide."""
        data = memoryview(self.read(offset, block_size * count))
        return tuple(zlib.crc32(data[at:at + block_size]) for at in range(0, len(data), block_size))

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the log, see LogSide."""
        if offset < self.begin or offset + size > self.end:
            raise _gone(self.name, offset, size, None)
        for attempt in range(_TRIES):
            try:
                self._cover(offset, size)
                break
            except StreamError as error:
                self.close()
                if attempt == _TRIES - 1:
                    raise CannotAnswerError(f"can't read {self.name} through its HA port: {error}") from error
        at = offset - self._start
        return bytes(self._kept[at:at + size])

    def _cover(self, offset: int, size: int) -> None:
        if self._stream is None or not self._start <= offset <= self._start + len(self._kept):
            if self._start <= offset and offset + size <= self._start + len(self._kept):
                return
            self.close()
            self._connect(offset)
        unneeded = offset - _KEPT - self._start
        if unneeded > _KEPT:
            del self._kept[:unneeded]
            self._start += unneeded
        while offset + size > self._start + len(self._kept):
            self._receive()

    def _connect(self, offset: int) -> None:
        self._stream = ByteStream(self._master.address, _CONNECT_TIMEOUT_S)
        self._decoder = ha_transfer.FrameDecoder()
        # Offset 0 would ask for the last file. So reading begins at 1: the first byte of a log is always 0, the highest
        # byte of a record's size.
        self._start, self._kept = offset, bytearray(b"" if offset else b"\0")
        self._reported = offset or 1
        self._last_read = time.monotonic()
        self._report(self._stream)

    def _report(self, stream: ByteStream) -> None:
        stream.send_all(ha_transfer.encode_report(self._reported), _CONNECT_TIMEOUT_S)
        self._last_report = time.monotonic()

    def _receive(self) -> None:
        # `_cover` connects first.
        assert self._stream is not None
        stream, housekeeping_s = self._stream, self._master.housekeeping_ms / 1000
        count = stream.receive_into(self._decoder.writable(_RECEIVE_SIZE), _WAIT_S)
        now = time.monotonic()
        if count:
            self._last_read = now
            self._decoder.received(count)
            self._take()
        elif now - self._last_read > housekeeping_s:
            raise StreamError(f"{stream.name} has been silent for {housekeeping_s:g} s")
        if now - self._last_report > housekeeping_s / 4:
            self._report(stream)

    def _take(self) -> None:
        try:
            for run in self._decoder.runs(self.file_size):
                if not run.length:
                    continue
                expected = self._start + len(self._kept)
                if run.offset != expected:
                    raise _gone(self.name, expected, 1, None)
                self._kept += self._decoder.view[run.start:run.start + run.length]
        except ha_transfer.TransferError as error:
            raise StreamError(f"{error}; is this its HA port?") from error

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _gone(name: str, offset: int, size: int, told: LogChecksums | None) -> RangeGoneError:
    holds = "" if told is None else f"; it holds {told.min_offset} to {told.max_offset}"
    return RangeGoneError(f"{name} no longer holds {size} bytes at offset {offset}{holds}")


BLOCK = 64 << 10
# Per question.
_BLOCKS = 256
_FIRST_LOOK, _MAX_LOOK = 16 << 10, 1 << 20
_MAGIC = (MESSAGE_MAGIC_CODE & 0xFFFF_FFFF).to_bytes(4, "big")
_HEAD_SEEN = PHYSICAL_OFFSET_POSITION + LONG.size
# Bytes; a greater size is damage.
_MAX_RECORD = 64 << 20


def differing_blocks(one: LogSide, other: LogSide, begin: int, end: int,
                     come_to: Callable[[int], None] = lambda offset: None) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each block in which two logs differ; `come_to` is called with the offset reached."""
    offset = begin
    while offset < end:
        size = min(BLOCK, end - offset)
        count = min((end - offset) // size, _BLOCKS)
        pairs = zip(one.checksums(offset, size, count), other.checksums(offset, size, count), strict=True)
        for index, (mine, theirs) in enumerate(pairs):
            if mine != theirs:
                yield offset + index * size, offset + (index + 1) * size
        offset += count * size
        come_to(offset)


def first_difference(one: LogSide, other: LogSide, begin: int, end: int) -> int | None:
    """Return the first offset, in a range of at most one block, at which two logs differ; None if they are equal."""
    if begin >= end:
        return None
    mine, theirs = one.read(begin, end - begin), other.read(begin, end - begin)
    if mine == theirs:
        return None
    return begin + next(at for at, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1])


@dataclass(frozen=True)
class Place:
    """The record, or the blank at the end of a file, that holds a byte of a log; else `reason` says why none does.

    `end` is the end of the record or of the file; `start` when there is neither.
    """

    start: int
    end: int
    is_blank: bool = False
    reason: str = ""

    @property
    def size(self) -> int:
        """The size of the record or blank in bytes."""
        return self.end - self.start


def place_of(log: LogSide, offset: int) -> Place:
    """Find the record around a byte: follow the chain from the last record before it that contains its own offset."""
    # A file begins with a record.
    first = max(offset - offset % log.file_size, log.begin)
    start, file_end = _record_before(log, first, offset), offset - offset % log.file_size + log.file_size
    while True:
        if start + BLANK.size > log.end:
            return Place(start, start, reason="the log ends there")
        total, magic = BLANK.unpack(log.read(start, BLANK.size))
        if magic == BLANK_MAGIC_CODE:
            return Place(start, file_end, is_blank=True)
        if magic != MESSAGE_MAGIC_CODE or not HEAD_LENGTH <= total <= min(file_end - start, _MAX_RECORD):
            return Place(start, start, reason=f"size {total} and magic code {magic & 0xFFFF_FFFF:#010x} are not "
                                              "those of a record")
        if start + total > offset:
            return Place(start, start + total)
        start += total


def _record_before(log: LogSide, first: int, offset: int) -> int:
    """Return the start of the last record at or before `offset` that contains its own offset; else `first`."""
    low, size, data = offset + 1, _FIRST_LOOK, log.read(offset + 1, min(_HEAD_SEEN, max(log.end - offset - 1, 0)))
    while low > first:
        size = min(size, low - first)
        low -= size
        data = log.read(low, size) + data[:_HEAD_SEEN]
        at = data.rfind(_MAGIC, 0, size + MESSAGE_MAGIC_CODE_POSITION + len(_MAGIC) - 1)
        while at >= 0:
            start = at - MESSAGE_MAGIC_CODE_POSITION
            if 0 <= start < size and start + _HEAD_SEEN <= len(data) \
                    and LONG.unpack_from(data, start + PHYSICAL_OFFSET_POSITION)[0] == low + start:
                return low + start
            at = data.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
        size = min(4 * size, _MAX_LOOK)
    return first


@dataclass(frozen=True)
class Copy:
    """One side's bytes of a record, and the reason why they are invalid; "" for a complete record of that offset."""

    data: bytes
    record: LogRecord | None
    reason: str

    @property
    def is_good(self) -> bool:
        """True if size, magic code, offset and body CRC are right."""
        return not self.reason


def copy_of(data: bytes, offset: int) -> Copy:
    """Parse `data`, which should be the record at `offset`, and check it."""
    scan = scan_block(data, offset, check_crc=True, begin_before=1)
    record = scan.records[0] if scan.records else None
    if record is None:
        return Copy(data, None, scan.reason or "it is not a complete record")
    if record.size != len(data):
        return Copy(data, record, f"it has {record.size} bytes instead of {len(data)}")
    if record.physical_offset != offset:
        return Copy(data, record, f"it contains the offset {record.physical_offset}")
    return Copy(data, record, "" if record.crc_ok else "its body CRC is wrong")


@dataclass(frozen=True)
class Difference:
    """The first offset at which two logs differ, the record around it, and both copies of that."""

    offset: int
    place: Place
    master: Copy
    slave: Copy

    @property
    def wrong(self) -> str:
        """The side whose copy fails its own checks: master, slave, both or neither."""
        if self.master.is_good:
            return "neither" if self.slave.is_good else "slave"
        return "master" if self.slave.is_good else "both"

    @property
    def record(self) -> LogRecord | None:
        """The record, from the side with the good copy."""
        good, other = (self.slave, self.master) if self.wrong == "master" else (self.master, self.slave)
        return good.record or other.record

    def text(self) -> str:
        """Return the difference as text."""
        record = self.record
        if self.place.is_blank:
            what = f"in the blank at {self.place.start} that ends the file"
        elif record is None:
            what = f"there is no record at {self.place.start}: {self.master.reason or self.slave.reason}"
        else:
            what = (f"byte {self.offset - self.place.start} of the record at {record.offset}, topic "
                    f"{cell(record.topic)}, queue {record.queue_id}, queue offset {record.queue_offset}, "
                    f"{record.size} bytes")
        reasons = {"slave": f"the slave's copy is wrong: {self.slave.reason}",
                   "master": f"the master's copy is wrong: {self.master.reason}",
                   "both": f"both copies are wrong; the master's: {self.master.reason}; the slave's: "
                           f"{self.slave.reason}",
                   "neither": "both copies have a valid CRC: they differ in the properties or the head"}
        whose = "" if self.place.is_blank else f"; {reasons[self.wrong]}"
        return f"the logs differ at offset {self.offset}, {what}{whose}"


def describe(master: LogSide, slave: LogSide, offset: int) -> Difference:
    """Describe a difference by the record around it: the master's, or the slave's when the master has none."""
    place = place_of(master, offset)
    if place.reason:
        other = place_of(slave, offset)
        place = place if other.reason else other
    size = BLANK.size if place.is_blank else place.size or BLANK.size
    copies = [copy_of(side.read(place.start, min(size, side.end - place.start)), place.start)
              for side in (master, slave)]
    return Difference(offset, place, *copies)


def in_unread_rest(master: LogSide, slave: LogSide, offset: int, place: Place) -> bool:
    """Return whether a byte lies after the blank of both logs, where it is never read."""
    return place.is_blank and offset >= place.start + BLANK.size and place_of(slave, offset) == place
