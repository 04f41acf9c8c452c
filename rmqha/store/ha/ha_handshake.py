"""The greeting of two rmqha peers before a slave's first report. Pure: no socket, no thread, no file.

It is asked for by the slave (haHandshakeEnable), in a way that means nothing to a RocketMQ master:

    slave                                        master
    ask: a report of -1                  -->     4.9 and 5.x take it for "no report yet", and stay silent
                                         <--     hello: a frame at offset -1
    who: identity, end and tail of its log -->
                                         <--     verdict: a frame at offset -2; the reports begin, or both close

A slave that hears no hello for a while goes on with its first report, on the same connection.

Bodies of the master's two frames (each behind the 12-byte header of a frame, its offset -1 or -2):

| hello | type | field |
|---|---|---|
| 0-3 | bytes | "RMQH" |
| 4-5 | int16 | version, 1 |
| 6-13 | int64 | the master's min commit log offset |
| 14-21 | int64 | its max commit log offset |

| verdict | type | field |
|---|---|---|
| 0-1 | int16 | see Verdict |
| 2-9 | int64 | the master's min commit log offset |
| 10-17 | int64 | its max commit log offset |

What the slave sends in between:

| who | type | field |
|---|---|---|
| 0-3 | bytes | "RMQH": no report begins so |
| 4-5 | int16 | version, 1 |
| 6-13 | int64 | end of the slave's log |
| 14-17 | int32 | bytes of its tail, 0 when it is empty |
| 18-21 | uint32 | CRC32 of the tail: the last bytes of the log, in one file, its last record among them |
| 22-23 | int16 | bytes of the identity |
| 24- | UTF-8 | the identity: whatever tells this slave from others of the same master |
"""
import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from rmqha.store.ha import ha_transfer

MAGIC = b"RMQH"
VERSION = 1
ASK = ha_transfer.encode_report(-1)
HELLO_OFFSET = -1
VERDICT_OFFSET = -2
# Covers the largest record of a default configuration; one that is larger is covered by its end.
MAX_TAIL = 4 * 1024 * 1024 + 64 * 1024
MAX_IDENTITY = 1024

_HELLO = struct.Struct(">4shqq")
assert _HELLO.size == 22
_VERDICT = struct.Struct(">hqq")
assert _VERDICT.size == 18
_WHO = struct.Struct(">4shqiIh")
assert _WHO.size == 24


class HandshakeError(ValueError):
    """The peer sent bytes that are no greeting."""


class Verdict(IntEnum):
    """What the master makes of the slave's log."""

    GOOD = 0
    NOT_HELD = 1  # it ends where the master's log has nothing any more, or nothing yet
    DIVERGED = 2  # its last bytes are others than the master's at the same place


class Range(NamedTuple):
    """The commit log offsets that a master holds."""

    min_offset: int
    max_offset: int


class Who(NamedTuple):
    """A slave, and the end of its log."""

    identity: str
    end: int
    tail_size: int
    tail_crc: int


def encode_hello(held: Range) -> bytes:
    """The master's answer to ASK."""
    return ha_transfer.encode_header(HELLO_OFFSET, _HELLO.size) + _HELLO.pack(MAGIC, VERSION, *held)


def encode_verdict(verdict: Verdict, held: Range) -> bytes:
    """The master's last word."""
    return ha_transfer.encode_header(VERDICT_OFFSET, _VERDICT.size) + _VERDICT.pack(verdict, *held)


def encode_who(who: Who) -> bytes:
    """The slave's introduction. The identity is cut at MAX_IDENTITY bytes."""
    identity = who.identity.encode("utf-8", "replace")[:MAX_IDENTITY]
    return _WHO.pack(MAGIC, VERSION, who.end, who.tail_size, who.tail_crc, len(identity)) + identity


def decode_hello(data: bytes | bytearray) -> tuple[Range, int] | None:
    """(what the master holds, bytes used); None when there are too few bytes. HandshakeError when it is no hello."""
    body = _frame_body(data, HELLO_OFFSET, _HELLO.size)
    if body is None:
        return None
    magic, version, *held = _HELLO.unpack(body)
    if magic != MAGIC or version != VERSION:
        raise HandshakeError(f"a hello of version {version}, {magic!r}; this is {VERSION}, {MAGIC!r}")
    return Range(*held), ha_transfer.HEADER.size + _HELLO.size


def decode_verdict(data: bytes | bytearray) -> tuple[Verdict, Range, int] | None:
    """(verdict, what the master holds, bytes used); None when there are too few. HandshakeError when it is none."""
    body = _frame_body(data, VERDICT_OFFSET, _VERDICT.size)
    if body is None:
        return None
    code, *held = _VERDICT.unpack(body)
    try:
        return Verdict(code), Range(*held), ha_transfer.HEADER.size + _VERDICT.size
    except ValueError:
        raise HandshakeError(f"an unknown verdict: {code}") from None


def decode_who(data: bytes | bytearray) -> tuple[Who, int] | None:
    """(the slave, bytes used); None when there are too few bytes. HandshakeError when it is no introduction."""
    if not MAGIC.startswith(bytes(data[:len(MAGIC)])):
        raise HandshakeError(f"an introduction begins with {MAGIC!r}, not with {bytes(data[:len(MAGIC)])!r}")
    if len(data) < _WHO.size:
        return None
    _magic, version, end, tail_size, tail_crc, length = _WHO.unpack_from(data)
    if version != VERSION or not 0 <= length <= MAX_IDENTITY or not 0 <= tail_size <= MAX_TAIL or end < tail_size:
        raise HandshakeError(f"an impossible introduction: version {version}, log end {end}, tail of {tail_size} "
                             f"bytes, identity of {length}")
    if len(data) < _WHO.size + length:
        return None
    identity = bytes(data[_WHO.size:_WHO.size + length]).decode("utf-8", "replace")
    return Who(identity, end, tail_size, tail_crc), _WHO.size + length


def tail_place(end: int, log_begin: int, segment_size: int) -> tuple[int, int]:
    """(offset, size) of the tail of a log that begins at `log_begin` and ends at `end`; it lies in one file."""
    if end <= log_begin:
        return end, 0
    file_begin = (end - 1) // segment_size * segment_size
    begin = max(file_begin, log_begin, end - MAX_TAIL)
    return begin, end - begin


def tail_crc(tail: bytes | memoryview) -> int:
    """The checksum of a tail."""
    return zlib.crc32(tail)


def _frame_body(data: bytes | bytearray, offset: int, size: int) -> bytes | None:
    header_size = ha_transfer.HEADER.size
    if len(data) < header_size:
        return None
    header = ha_transfer.decode_header(data)
    if header != (offset, size):
        raise HandshakeError(f"a frame at {header[0]} of {header[1]} bytes instead of the greeting")
    if len(data) < header_size + size:
        return None
    return bytes(data[header_size:header_size + size])
