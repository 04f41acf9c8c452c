"""The version stamp of a configuration table.

Which entries of a table have changed since somebody was told: a part of the table in the place of the whole.
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
    """When (ms since the epoch) and how often a table changed. Equal when both numbers are.

    Not locked: the owner of the table calls `next_version` under the table's guard.

    Java: org.apache.rocketmq.common.DataVersion (4.9.8)
    """

    timestamp: int = field(default_factory=_now_ms)
    counter: int = 0

    def copy(self) -> DataVersion:
        """The present numbers, which stay."""
        return DataVersion(self.timestamp, self.counter)

    def assign_new_one(self, data_version: DataVersion) -> None:
        """Take over the other's numbers."""
        self.timestamp = data_version.timestamp
        self.counter = data_version.counter

    def next_version(self) -> None:
        """The table changed now."""
        self.timestamp = _now_ms()
        self.counter += 1

    def __hash__(self) -> int:
        return text_hash(self.timestamp, self.counter)

    def __str__(self) -> str:
        return f"DataVersion[timestamp={self.timestamp}, counter={self.counter}]"


_MOST_DIGITS = 18
T = TypeVar("T")


class ChangeLog:
    """The order in which the entries of one table were changed last, by any thread.

    A mark names a state of the table; whoever was told a state gets, with its mark, the names of what has changed
    since. A mark of another process, or from before an entry was taken away, is not known: then the whole table goes.
    Note a change when it is done, and take the mark before the entries are read: what changes meanwhile is told twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._life = os.urandom(16).hex()  # marks of another life mean nothing here
        self._number = 0  # of the last change
        self._known_from = 0  # the first number whose later changes are all in `_last`
        self._last: dict[str, int] = {}  # name -> number of its last change, the latest one at the end

    def note(self, names: Iterable[str]) -> None:
        """These entries are new, or have changed."""
        with self._lock:
            for name in names:
                self._number += 1
                self._last.pop(name, None)
                self._last[name] = self._number

    def note_all(self) -> None:
        """Anything may have changed, or is gone: all marks from before are unknown."""
        with self._lock:
            self._number += 1
            self._known_from = self._number
            self._last.clear()

    def mark(self) -> str:
        """The present state."""
        with self._lock:
            return f"{self._life}.{self._number}"

    def before(self, name: str) -> str:
        """The state before the last change of this entry; the present one when no change of it is known."""
        with self._lock:
            return f"{self._life}.{self._last.get(name, self._number + 1) - 1}"

    def since(self, mark: str) -> list[str] | None:
        """What has changed since that state, the latest first; None when the mark is not known."""
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
    """A copy of these entries of a table, None for all, while other threads change it; one that is gone is left out."""
    if names is None:
        return dict(table)
    return {name: entry for name in names if (entry := table.get(name)) is not None}


def follows(since: str, known: str) -> bool:
    """Whether what was noted since `since` completes the state `known`: both of one life, `known` not older."""
    life, number = _parts(since)
    known_life, known_number = _parts(known)
    return life == known_life and number is not None and known_number is not None and number <= known_number


def _parts(mark: str) -> tuple[str, int | None]:
    life, _, number = mark.rpartition(".")
    return life, int(number) if number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS else None
