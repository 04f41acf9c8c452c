"""Persistent state in small files: text files of entries with a checksum, and the broker's tables in JSON files.

`CheckpointFile` is a text file:

| line | content |
|---|---|
| 1 | number of entries |
| 2 | CRC32 of the remaining bytes, without its highest bit; 0 means not checked |
| 3- | one entry per line |

`ConfigManager` is the base class of the tables, one JSON file each.
"""
import logging
import os
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar

from rmqha.common import mix_all
from rmqha.common.data_version import ChangeLog

log = logging.getLogger("RocketmqCommon")

T = TypeVar("T")
_NOT_CHECK_CRC = 0
_MAX_BYTES = 4 * 1024 * 1024
_BAK = ".bak"


class CheckpointFileError(ValueError):
    """A file that is not a valid checkpoint file; the text names the file and the error."""


def encode(lines: Sequence[str]) -> str:
    """Return the text of a file with these entries."""
    content = "".join(f"{line}\n" for line in lines)
    return f"{len(lines)}\n{zlib.crc32(content.encode()) & 0x7FFFFFFF}\n{content}"


def decode(text: str) -> list[str]:
    """Return the entries in a file's text; ValueError says what is wrong."""
    head, _newline, rest = text.partition("\n")
    crc, newline, content = rest.partition("\n")
    if not newline:
        raise ValueError("it ends before its third line")
    for name, number in (("number of entries", head), ("checksum", crc)):
        if not (number.isascii() and number.isdecimal()) or len(number) > 10:
            raise ValueError(f"its {name} is {number[:20]!r}")
    lines = content.splitlines()
    if int(crc) not in (_NOT_CHECK_CRC, zlib.crc32("".join(f"{line}\n" for line in lines).encode()) & 0x7FFFFFFF):
        raise ValueError(f"its checksum {crc} does not match its entries")
    if len(lines) != int(head):
        raise ValueError(f"it should have {head} entries but has {len(lines)}")
    return lines


class CheckpointFile(Generic[T]):
    """Entries in `file_path`, and the previous ones in `.bak`. Not thread-safe: the owner locks.

    Java: org.apache.rocketmq.common.utils.CheckpointFile (5.1.4)
    """

    def __init__(self, file_path: str, to_line: Callable[[T], str], from_line: Callable[[str], T]) -> None:
        self.file_path = file_path
        self._to_line = to_line
        self._from_line = from_line  # ValueError for an invalid line

    def write(self, entries: Sequence[T]) -> None:
        """Replace the file durably. OSError when that fails.

        Differs: an empty checkpoint file (`CheckpointFile`) is written too, and twice, so that `.bak` does not keep old
        entries; the original keeps the old file, whose entries come back after a restart.
        """
        text = encode([self._to_line(entry) for entry in entries])
        for _ in range(1 if entries else 2):
            mix_all.string2file(text, self.file_path)

    def read(self) -> list[T]:
        """Return the entries; those of `.bak` when the file is missing or damaged; an empty list when neither exists.

        Differs: a checkpoint file that exists is an error (CheckpointFileError) if neither it nor its `.bak` is
        readable; the original takes a missing `.bak` for an empty file.
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
                log.error("%s; using its backup file", flaws[0])
            return entries
        if flaws:
            raise CheckpointFileError("; ".join(flaws))
        return []

    def _read(self, path: str) -> list[T]:
        if os.path.getsize(path) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")
        with open(path, encoding="utf-8", newline="") as file:
            return [self._from_line(line) for line in decode(file.read())]


class ConfigManager(ABC):
    """The base of a table that is saved in one file through `encode` and `decode`. A subclass owns the state.

    The disk always holds the old state or the new one: see mix_all.string2file.

    Java: org.apache.rocketmq.common.ConfigManager (4.9.8)
    """

    # Held by the writer of the file.
    _persist_lock: threading.Lock
    # The state has changed since the last write began, or since the start. Any thread sets it, after its change.
    _has_changed: bool
    # The backup is older than the file. Used by the thread that saves changes.
    _backup_is_older: bool
    changes: ChangeLog  # of the entries

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        self = super().__new__(cls)
        self._persist_lock = threading.Lock()
        self._has_changed, self._backup_is_older = True, False
        self.changes = ChangeLog()
        return self

    @abstractmethod
    def config_file_path(self) -> str:
        """Return the path of the file."""

    @abstractmethod
    def encode(self, pretty_format: bool = False) -> str | None:
        """Return the state as JSON; None when there is nothing to save."""

    @abstractmethod
    def decode(self, json_string: str) -> None:
        """Set the state from JSON. Raises ValueError or a subclass when it is malformed."""

    def load(self) -> bool:
        """Read the file, or its `.bak` when the file is missing, empty or malformed.

        Return True when one of them was read or neither exists; False when one exists and neither is readable.
        """
        file_name = self.config_file_path()
        if self._load_from(file_name):
            return True
        if self._load_from(file_name + ".bak"):
            log.warning("%s could not be used; its backup file was loaded instead", file_name)
            return True
        # Differs: an empty config JSON file is not loaded; for Java it counts as loaded, and the state is silently
        # empty
        if os.path.exists(file_name) or os.path.exists(file_name + ".bak"):
            log.error("load %s Failed: neither it nor its backup file is usable; "
                      "restore one of them, or remove both to start with an empty state", file_name)
            return False
        return True

    def _load_from(self, file_name: str) -> bool:
        try:
            text = mix_all.file2string(file_name)
            if not text:
                return False
            self.decode(text)
        except Exception:
            log.exception("load %s failed, and try to load backup file", file_name)
            return False
        log.info("load %s OK", file_name)
        return True

    def note_change(self, *names: str) -> None:
        """Mark the state to be saved by `persist_changes`. Call this after each change.

        `names` are the entries that are new or have changed; without names when an entry was removed.
        """
        self._has_changed = True
        if names:
            self.changes.note(names)
        else:
            self.changes.note_all()

    def persist_changes(self) -> None:
        """Save the state if it has changed since the last save. The next call saves it again, to update the backup.

        Differs: an unchanged table is not written; the original writes each of its tables every few seconds.
        """
        is_new = self._has_changed
        if is_new or self._backup_is_older:
            self._has_changed = False
            self._backup_is_older = is_new
            if not self.persist():
                self._has_changed = True

    def persist(self) -> bool:
        """Save the state durably. Return False when that fails, which is logged."""
        with self._persist_lock:
            text = self.encode(True)
            if text is None:
                return True
            file_name = self.config_file_path()
            try:
                mix_all.string2file(text, file_name)
            except OSError:
                log.exception("persist file %s exception", file_name)
                return False
            return True
