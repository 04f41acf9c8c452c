"""Logs for receivers: records with times, in segments, and a master with configurable answers."""
import struct
import zlib

from rmqha.common.message.message_layout import BLANK_MAGIC_CODE, HEADS, MESSAGE_MAGIC_CODE
from rmqha.tools.replication.receive import Master

SEGMENT = 4096


def record(offset: int, stored: int, size: int = 300) -> bytes:
    """Return a complete record of the topic T for `offset`, stored at `stored` ms."""
    body = bytes(offset % 250 for _ in range(size - HEADS[0].size - 4))
    head = HEADS[0].pack(size, MESSAGE_MAGIC_CODE, zlib.crc32(body) & 0x7FFFFFFF, 0, 0, 0, offset, 0, stored,
                         bytes(8), stored, bytes(8), 0, 0, len(body))
    return head + body + b"\x01T" + struct.pack(">h", 0)


def log_of(count: int, step_ms: int = 1000, begin: int = 0, size: int = 300) -> bytes:
    """Return `count` records starting at `begin`, `step_ms` apart; files end with blanks."""
    data = b""
    for number in range(count):
        room = SEGMENT - (begin + len(data)) % SEGMENT
        if size + 8 > room:
            data += struct.pack(">ii", room, BLANK_MAGIC_CODE).ljust(room, b"\0")
        data += record(begin + len(data), 1_700_000_000_000 + number * step_ms, size)
    return data


def master(data: bytes, address: tuple[str, int] = ("127.0.0.1", 1), **fields: object) -> Master:
    """Return the description of a master whose log is `data` (starting at 0)."""
    told = {"name": "broker-a", "address": address, "file_size": SEGMENT, "min_offset": 0, "max_offset": len(data),
            "slave_timeout_ms": 1000, "housekeeping_ms": 20_000, **fields}
    return Master(**told)


def files(folder) -> dict[int, bytes]:
    """Return start offset -> content of each file."""
    return {int(file.name): file.read_bytes() for file in sorted(folder.iterdir())}


def content(folder, end: int) -> bytes:
    """Return the log in a folder, up to `end`."""
    found = files(folder)
    assert all(len(data) == SEGMENT for data in found.values())
    joined = b"".join(found.values())
    first = min(found)
    assert not any(joined[end - first:])
    return joined[:end - first]
