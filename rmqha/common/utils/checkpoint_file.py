"""A small text file of entries with a checksum.

| line | content |
|---|---|
| 1 | number of entries |
| 2 | CRC32 of the remaining bytes, without its highest bit; 0 is not checked |
| 3- | one entry a line |
"""
import logging
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from rmqha.common import mix_all

log = logging.getLogger("RocketmqCommon")

T = TypeVar("T")
_NOT_CHECK_CRC = 0
_MAX_BYTES = 4 * 1024 * 1024
_BAK = ".bak"


class CheckpointFileError(ValueError):
    """Not a checkpoint file; the text names the file and what is wrong."""


def encode(lines: Sequence[str]) -> str:
    """The text of a file with these entries."""
    content = "".join(f"{line}\n" for line in lines)
    return f"{len(lines)}\n{zlib.crc32(content.encode()) & 0x7FFFFFFF}\n{content}"


def decode(text: str) -> list[str]:
    """The entries in a file's text; ValueError says what is wrong with it."""
    head, _newline, rest = text.partition("\n")
    crc, newline, content = rest.partition("\n")
    if not newline:
        raise ValueError("it ends before its third line")
    for name, number in (("number of entries", head), ("checksum", crc)):
        if not (number.isascii() and number.isdecimal()) or len(number) > 10:
            raise ValueError(f"its {name} is {number[:20]!r}")
    lines = content.splitlines()
    if int(crc) not in (_NOT_CHECK_CRC, zlib.crc32("".join(f"{line}\n" for line in lines).encode()) & 0x7FFFFFFF):
        raise ValueError(f"its checksum {crc} is not that of its entries")
    if len(lines) != int(head):
        raise ValueError(f"it should have {head} entries, and has {len(lines)}")
    return lines


class CheckpointFile(Generic[T]):
    """Entries in `file_path`, the ones before them in `.bak`. Not thread-safe: the owner locks.

    Java: org.apache.rocketmq.common.utils.CheckpointFile (5.1.4)
    """

    def __init__(self, file_path: str, to_line: Callable[[T], str], from_line: Callable[[str], T]) -> None:
        self.file_path = file_path
        self._to_line = to_line
        self._from_line = from_line  # ValueError for a line that is no entry

    def write(self, entries: Sequence[T]) -> None:
        """Replace the file durably. OSError when the disk says no.

        Differs: no entries are written too, and leave no old ones in `.bak`; the original keeps the file, whose entries
        are back after a restart.
        """
        text = encode([self._to_line(entry) for entry in entries])
        for _ in range(1 if entries else 2):
            mix_all.string2file(text, self.file_path)

    def read(self) -> list[T]:
        """The entries; those of `.bak` when the file is missing or damaged; none when there is neither.

        Differs: CheckpointFileError when there is something, and nothing of it can be read; the original takes a
        missing `.bak` for an empty file.
        """
        flaws = []
        for path in (self.file_path, self.file_path + _BAK):
            if not os.path.exists(path):
                continue
            try:
                entries = self._read(path)
            except (OSError, ValueError) as error:
                flaws.append(f"{path}: {error}")
                continue
            if flaws:
                log.error("%s; its copy is used", flaws[0])
            return entries
        if flaws:
            raise CheckpointFileError("; ".join(flaws))
        return []

    def _read(self, path: str) -> list[T]:
        if os.path.getsize(path) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")
        with open(path, encoding="utf-8", newline="") as file:
            return [self._from_line(line) for line in decode(file.read())]
