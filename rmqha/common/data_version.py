"""The version stamp of a configuration table, and a log of its changes.

With the `ChangeLog` a sender sends only the entries that have changed since the receiver's last state, not the table.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TypeVar

from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.texts import text_hash


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class DataVersion:
    """The time (ms since the epoch) of a table's last change, and the number of its changes.

    Two versions are equal if both numbers are. Not locked: the owner calls `next_version` under the table's lock.

    Java: org.apache.rocketmq.common.DataVersion (4.9.8)
    """

    timestamp: int = field(default_factory=_now_ms)
    counter: int = 0

    def copy(self) -> DataVersion:
        """Return a copy of the current numbers."""
        return DataVersion(self.timestamp, self.counter)

    def assign_new_one(self, data_version: DataVersion) -> None:
        """Set the numbers to those of another version."""
        self.timestamp = data_version.timestamp
        self.counter = data_version.counter

    def next_version(self) -> None:
        """Note that the table has changed now."""
        self.timestamp = _now_ms()
        self.counter += 1

    def __hash__(self) -> int:
        return text_hash(self.timestamp, self.counter)

    def __str__(self) -> str:
        return f"DataVersion[timestamp={self.timestamp}, counter={self.counter}]"


_MOST_DIGITS = 18
T = TypeVar("T")


class ChangeLog:
    """The order of the last changes of the entries of one table. Thread-safe.

    A mark names a state of the table. A receiver sends the mark of the state that it has, and gets the names of the
    entries that have changed since. A mark of another process, or from before an entry was removed, is unknown: then
    the whole table is sent. Note a change after making it, and take the mark before reading the entries. An entry that
    changes between the two is then sent twice; in any other order it could be missed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Part of each mark. Marks of another process are unknown here.
        self._life = os.urandom(16).hex()
        self._number = 0  # of the last change
        # The first number since which all changes are in `_last`.
        self._known_from = 0
        # Name -> number of its last change, in the order of these numbers.
        self._last: dict[str, int] = {}

    def note(self, names: Iterable[str]) -> None:
        """Note that these entries are new or have changed."""
        with self._lock:
            for name in names:
                self._number += 1
                self._last.pop(name, None)
                self._last[name] = self._number

    def note_all(self) -> None:
        """Note that any entry may have changed or been removed. All previous marks become unknown."""
        with self._lock:
            self._number += 1
            self._known_from = self._number
            self._last.clear()

    def mark(self) -> str:
        """Return the mark of the current state."""
        with self._lock:
            return f"{self._life}.{self._number}"

    def before(self, name: str) -> str:
        """Return the mark of the state before the last change of this entry; of the current state if none is known."""
        with self._lock:
            return f"{self._life}.{self._last.get(name, self._number + 1) - 1}"

    def since(self, mark: str) -> list[str] | None:
        """Return the names of the entries changed since that state, the latest first; None for an unknown mark."""
        life, number = _parts(mark)
        if life != self._life or number is None:
            return None
        with self._lock:
            if not self._known_from <= number <= self._number:
                return None
            changed = []
            for name, last in reversed(self._last.items()):
                if last <= number:
                    break
                changed.append(name)
            return changed


def entries_of(table: Mapping[str, T], names: Iterable[str] | None) -> dict[str, T]:
    """Return a copy of the named entries of a table, or of all for None; missing ones are left out.

    Other threads may change the table meanwhile.
    """
    if names is None:
        return dict(table)
    return {name: entry for name in names if (entry := table.get(name)) is not None}


def follows(since: str, known: str) -> bool:
    """Return whether the changes since `since` complete the state `known`: both of one process, `known` not older."""
    life, number = _parts(since)
    known_life, known_number = _parts(known)
    return life == known_life and number is not None and known_number is not None and number <= known_number


def _parts(mark: str) -> tuple[str, int | None]:
    life, _, number = mark.rpartition(".")
    return life, int(number) if number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS else None
