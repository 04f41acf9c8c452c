"""The text of a table's entries, kept: a file of a hundred thousand entries is written again without encoding those
that have not changed."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from rmqha.common.data_version import ChangeLog
from rmqha.remoting.protocol.fastjson_writer import WrittenEntries, entry_text

_IN_A_FIELD = 2  # tabs before the entries of a map that is a field of the file's object


class KeptEntries:
    """The entries of one table as pretty JSON, for a map that is a field of what the table's file holds.

    `changes` has all changes of the table, `names` gives the names of all entries, `value` one of them or None. For any
    thread.
    """

    def __init__(self, changes: ChangeLog, names: Callable[[], Iterable[str]],
                 value: Callable[[str], object | None]) -> None:
        self._changes = changes
        self._names = names
        self._value = value
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}  # guarded by _lock
        self._state = ""  # of the table, which the texts have; guarded by _lock

    def written(self) -> WrittenEntries:
        """All entries; new ones stand in the order of their last changes.

        What changes meanwhile is in it, or in the next one.
        """
        with self._lock:
            state = self._changes.mark()
            changed = self._changes.since(self._state)
            if changed is None:
                self._texts.clear()
                changed = list(self._names())[::-1]
            for name in reversed(changed):
                value = self._value(name)
                if value is None:
                    self._texts.pop(name, None)
                else:
                    self._texts[name] = entry_text(name, value, _IN_A_FIELD)
            self._state = state
            return WrittenEntries(list(self._texts.values()))
