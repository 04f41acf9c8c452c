"""The commit log of a broker, for comparing it with a replica's: its checksums and its bytes.

A broker of ours is asked at its main port. One that does not know the question, such as RocketMQ's, is read through its
HA port, as `ha receive` does without --acknowledge: see receiver.py for why that is harmless.
"""
from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Protocol

from rmqha.common.protocol.controller_headers import MAX_BYTES
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.remoting.frame_decoder import ByteStream, StreamError
from rmqha.store.ha import ha_transfer
from rmqha.tools.ha.broker_admin import BrokerAdmin, ReplicationToolError, number, parsed_address
from rmqha.tools.ha.receive import ask_master
from rmqha.tools.ha.receiver import Master

_DEFAULT_FILE_SIZE = 1 << 30
_RECEIVE_SIZE = 1 << 20
_KEPT = 8 << 20  # bytes before those that are asked for: the longest record, twice
_WAIT_S = 0.25
_CONNECT_TIMEOUT_S = 5.0
_SETTLE_MARGIN_MS = 5000  # a 4.9 master looks at its waiting sends once a second
_TRIES = 3


class RangeGoneError(ReplicationToolError):
    """A log does not hold a range any more that it held when it was first asked."""


class LogSide(Protocol):
    """One of two logs that are compared. `begin` and `end` are the commit log offsets that it holds."""

    name: str
    begin: int
    end: int
    file_size: int

    def checksums(self, offset: int, block_size: int, count: int) -> tuple[int, ...]:
        """CRC32 of each block. RangeGoneError when it does not hold them all."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the log. RangeGoneError when it does not hold them all."""

    def close(self) -> None:
        """Nothing more is asked."""


class LogAdmin(BrokerAdmin):
    """Asks brokers for checksums and bytes of their logs."""

    def checksums(self, address: str, offset: int, block_size: int, count: int) -> LogChecksums | None:
        """None when the broker does not know the question."""
        return self._asked(f"broker {address}", lambda: self._api.get_commit_log_checksums(
            address, offset, block_size, count, self.timeout_ms))

    def log_bytes(self, address: str, offset: int, size: int) -> bytes:
        """At most MAX_BYTES; b"" when the broker does not hold them all."""
        return self._asked(f"broker {address}", lambda: self._api.get_commit_log_bytes(
            address, offset, size, self.timeout_ms)) or b""

    def side(self, address: str, role: str, patience: Callable[[float], None] = time.sleep) -> LogSide:
        """The log of the broker at an address, the way it can be read; `role`: what to call it."""
        config = self.config(address)
        file_size = number(config, "mappedFileSizeCommitLog", address, _DEFAULT_FILE_SIZE)
        told = self.checksums(address, 0, 1, 1)
        if told is not None:
            return BrokerSide(self, address, f"the {role} {address}", told, file_size)
        host = parsed_address(address, "the broker's address")[0]
        ha_port = number(config, "haListenPort", address)
        if not ha_port:
            raise ReplicationToolError(f"the broker {address} gives no checksums, and does not say which its HA "
                                       "port is")
        master = ask_master(self, address, (host, ha_port), False)
        if config.get("brokerRole") == "SYNC_MASTER":
            # What it holds now nobody waits for then, so that a report of a place in it acknowledges nothing.
            patience((master.slave_timeout_ms + _SETTLE_MARGIN_MS) / 1000)
        return StreamSide(f"the {role} {address}", master)


class BrokerSide:
    """The log of a broker of ours."""

    def __init__(self, admin: LogAdmin, address: str, name: str, told: LogChecksums, file_size: int) -> None:
        self.name = name
        self.begin, self.end = max(told.min_offset, 0), max(told.max_offset, 0)
        self.file_size = file_size
        self._admin = admin
        self._address = address

    def checksums(self, offset: int, block_size: int, count: int) -> tuple[int, ...]:
        """See LogSide."""
        told = self._admin.checksums(self._address, offset, block_size, count)
        if told is None or len(told.crcs) < count:
            raise _gone(self.name, offset, block_size * count, told)
        return told.crcs

    def read(self, offset: int, size: int) -> bytes:
        """See LogSide."""
        parts = []
        while size > 0:
            part = self._admin.log_bytes(self._address, offset, min(size, MAX_BYTES))
            if not part:
                raise _gone(self.name, offset, size, self._admin.checksums(self._address, offset, 1, 1))
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def close(self) -> None:
        """See LogSide."""


class StreamSide:
    """A log that is read through an HA port. What is asked for in its order comes over one connection.

    A connection reports the place at which it began, and nothing else.
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
        """See LogSide."""
        data = memoryview(self.read(offset, block_size * count))
        return tuple(zlib.crc32(data[at:at + block_size]) for at in range(0, len(data), block_size))

    def read(self, offset: int, size: int) -> bytes:
        """See LogSide."""
        if offset < self.begin or offset + size > self.end:
            raise _gone(self.name, offset, size, None)
        for attempt in range(_TRIES):
            try:
                self._cover(offset, size)
                break
            except StreamError as error:
                self.close()
                if attempt == _TRIES - 1:
                    raise ReplicationToolError(f"{self.name} is read through its HA port: {error}") from error
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
        # The first byte of a log is always 0 (the top of a record's size), and 0 asks for the last file.
        self._start, self._kept = offset, bytearray(b"" if offset else b"\0")
        self._reported = offset or 1
        self._last_read = time.monotonic()
        self._report(self._stream)

    def _report(self, stream: ByteStream) -> None:
        stream.send_all(ha_transfer.encode_report(self._reported), _CONNECT_TIMEOUT_S)
        self._last_report = time.monotonic()

    def _receive(self) -> None:
        assert self._stream is not None  # `_cover` connects
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
        """See LogSide."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _gone(name: str, offset: int, size: int, told: LogChecksums | None) -> RangeGoneError:
    holds = "" if told is None else f"; it holds {told.min_offset} to {told.max_offset}"
    return RangeGoneError(f"{name} does not hold {size} bytes at offset {offset} any more{holds}")
