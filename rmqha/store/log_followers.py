"""Telling of what a slave has appended, behind its report.

    HAClient --append_to_commit_log--> [end of its round: the report is out] --flush--> dispatch, chained slaves
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.remoting.write_round import flush_at_end_of_round

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


class LogFollowers:
    """Whoever follows the log of a slave."""

    __slots__ = ("_store",)

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store = store

    def on_data_appended(self) -> None:
        """A piece of the master's log is there: tell of it at the end of this thread's round, or at once."""
        if not flush_at_end_of_round(self, last=True):
            self.flush()

    def flush(self) -> None:
        """Tell of it."""
        self._store.on_appended()
