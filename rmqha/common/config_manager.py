"""Persistent state in small files: text files of entries with a checksum, and the broker's tables in JSON files.

`CheckpointFile` is a text file:

| line | content |
|---|---|
| 1 | number of entries |
| 2 | CRC32 of the remaining bytes, without its highest bit; 0 is not checked |
| 3- | one entry a line |

`ConfigManager` is the base of the tables, one JSON file each.
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


class ConfigManager(ABC):
    """Loads and saves one config file through `encode` and `decode`; a subclass owns the state.

    On disk there is always the old or the new state: see mix_all.string2file.

    Java: org.apache.rocketmq.common.ConfigManager (4.9.8)
    """

    _persist_lock: threading.Lock  # one writer of the file at a time
    _has_changed: bool  # since the last write began, or the start; set after each change, by any thread
    _backup_is_older: bool  # than the file; for the thread that saves changes
    changes: ChangeLog  # of the entries

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        self = super().__new__(cls)
        self._persist_lock = threading.Lock()
        self._has_changed, self._backup_is_older = True, False
        self.changes = ChangeLog()
        return self

    @abstractmethod
    def config_file_path(self) -> str:
        """The file."""

    @abstractmethod
    def encode(self, pretty_format: bool = False) -> str | None:
        """The state as JSON; None means that there is nothing to save."""

    @abstractmethod
    def decode(self, json_string: str) -> None:
        """Take the state out of JSON. Raises ValueError or a subclass when it is malformed."""

    def load(self) -> bool:
        """Read the file, or its `.bak` when the file is missing, empty or malformed.

        True when one of them was read, and when neither exists; False when there was something and none is readable.
        """
        file_name = self.config_file_path()
        if self._load_from(file_name):
            return True
        if self._load_from(file_name + ".bak"):
            log.warning("%s could not be used, its backup file was", file_name)
            return True
        # Differs: for Java empty files count as loaded, and the state starts anew without a word
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
        """The state is to be saved by `persist_changes`: by whoever has changed it, afterwards.

        With the names of the entries that are new or have changed; without one when an entry is gone.
        """
        self._has_changed = True
        if names:
            self.changes.note(names)
        else:
            self.changes.note_all()

    def persist_changes(self) -> None:
        """Save the state when it has changed since it was saved, and once more then, which brings the backup up to it.

        Differs: the original writes each table that it saves every few seconds whole, also when nothing happens.
        """
        is_new = self._has_changed
        if is_new or self._backup_is_older:
            self._has_changed = False
            self._backup_is_older = is_new
            if not self.persist():
                self._has_changed = True

    def persist(self) -> bool:
        """Save the state durably; False, with a line in the log, when the disk refuses."""
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
