"""Waking those who follow a slave's log, after its report to the master.

    HAClient --append_to_commit_log--> [end of its round: the report is out] --flush--> dispatch, chained slaves
"""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore


class LogFollowers:
    """Whoever follows the log of a slave; flushed at the end of the round that has appended."""

    __slots__ = ("_store",)

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store = store

    def flush(self) -> None:
        """Tell of it."""
        self._store.on_appended()
