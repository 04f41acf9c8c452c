"""A master's log, for comparing: by checksums that its main port gives, or by its bytes, read through its HA port.

    slave --GET_COMMIT_LOG_CHECKSUMS--> main port of an rmqha master
    slave --a report of where to begin--> HA port of a master of RocketMQ 4.9, which then sends its log from there on

A report counts as an acknowledgement: the reader's own is of an offset that this slave has acknowledged before, so it
says nothing new. The stream is read as slowly as the comparison goes, and closed when there is nothing to compare.
"""
from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from enum import Enum

from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.common.util_all import LONG_AGO
from rmqha.remoting.frame_decoder import ByteStream, StreamError
from rmqha.store.ha import ha_transfer

_TIMEOUT_S = 5.0
_RECEIVE_SIZE = 1024 * 1024
_READ_WAIT_S = 1.0
_SILENCE_S = 20.0  # without a byte that is waited for


class CantAsk(Enum):
    """Why there is no answer."""

    UNKNOWN_REQUEST = "the master does not know the request"
    NO_ANSWER = "the master's main port does not answer"


# Of (HA address, offset, block size, number of blocks).
AskChecksums = Callable[[str, int, int, int], LogChecksums | CantAsk]


class MasterLogError(Exception):
    """The master's log can't be read now; the text says why."""


class LogOfMaster:
    """The log of the master whose HA port is at `address`; used by one thread.

    `streams`: its HA port speaks as RocketMQ 4.9's. `stopped` ends a wait.
    """

    def __init__(self, address: str, place: tuple[str, int], ask: AskChecksums, streams: bool, segment_size: int,
                 stopped: Callable[[], bool]) -> None:
        self.address = address
        self._place = place
        self._ask = ask
        self._streams = streams
        self._segment_size = segment_size
        self._stopped = stopped
        self._is_other = False  # it is known not to know the request
        self._stream: _Stream | None = None

    def checksums(self, offset: int, block_size: int, count: int) -> LogChecksums:
        """CRC32 of `count` blocks from `offset` on, fewer where the log ends. MasterLogError when it can't be read."""
        if not self._is_other:
            answer = self._ask(self.address, offset, block_size, count)
            if isinstance(answer, LogChecksums):
                return answer
            if answer is CantAsk.NO_ANSWER:
                raise MasterLogError(answer.value)
            self._is_other = True
        if not self._streams:
            raise MasterLogError("the master gives no checksums, and its HA port does not speak as RocketMQ 4.9's")
        data = self._bytes(offset, block_size * count)
        crcs = tuple(zlib.crc32(data[at:at + block_size]) for at in range(0, len(data), block_size))
        return LogChecksums(0, offset + len(data), crcs)

    @property
    def is_streamed(self) -> bool:
        """Whether it gives no checksums, as far as it was asked."""
        return self._is_other

    @property
    def is_open(self) -> bool:
        """Whether there is a stream."""
        return self._stream is not None

    def close(self) -> bool:
        """Close the stream; whether there was one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        return stream is not None

    def _bytes(self, offset: int, size: int) -> bytes:
        try:
            if self._stream is None or not self._stream.holds(offset):
                self.close()
                self._stream = _Stream(self._place, offset, self._segment_size)
            return self._stream.read(offset, size, self._stopped)
        except (StreamError, ha_transfer.TransferError) as error:
            self.close()
            raise MasterLogError(str(error)) from error


class _Stream:
    """A connection to a HA port, which sends the log from `begin` on."""

    def __init__(self, place: tuple[str, int], begin: int, segment_size: int) -> None:
        self._segment_size = segment_size
        # A report of 0 asks for the last file; the byte at 0 is 0, the top of a record's size.
        self._report = max(begin, 1)
        self._start = begin  # commit log offset of the first byte in `_data`
        self._data = bytearray(self._report - begin)
        self._decoder = ha_transfer.FrameDecoder()
        self._last_report: float = LONG_AGO
        self._socket = ByteStream(place, _TIMEOUT_S)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def holds(self, offset: int) -> bool:
        """Whether what comes next, or is kept, includes `offset`."""
        return self._start <= offset <= self._start + len(self._data)

    def read(self, offset: int, size: int, stopped: Callable[[], bool]) -> bytes:
        """`size` bytes at `offset`; what lies before them is forgotten by the next read."""
        del self._data[:offset - self._start]
        self._start = offset
        last_byte = time.monotonic()
        while len(self._data) < size:
            if stopped():
                raise StreamError("stopped")
            self._report_when_due()
            count = self._socket.receive_into(self._decoder.writable(_RECEIVE_SIZE), _READ_WAIT_S)
            if count and self._take(count):
                last_byte = time.monotonic()
            elif time.monotonic() - last_byte > _SILENCE_S:
                raise StreamError(f"{self._socket.name} sends nothing at {self._start + len(self._data)}")
        return bytes(self._data[:size])

    def _report_when_due(self) -> None:
        now = time.monotonic()
        if now - self._last_report > _TIMEOUT_S:
            self._socket.send_all(ha_transfer.encode_report(self._report), _TIMEOUT_S)
            self._last_report = now

    def _take(self, count: int) -> bool:
        """Whether bytes of the log were among those received."""
        self._decoder.received(count)
        before = len(self._data)
        for run in self._decoder.runs(self._segment_size):
            if run.offset != self._start + len(self._data):
                raise StreamError(f"{self._socket.name} was asked for {self._start + len(self._data)} and sends "
                                  f"{run.offset}: it does not hold what lies between")
            self._data += self._decoder.view[run.start:run.start + run.length]
        return len(self._data) > before
