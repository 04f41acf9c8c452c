"""Flushes that could not ask the disk, because what they flush could not be opened."""
from __future__ import annotations

import logging

from rmqha.common.filesystem import NotAskedError
from rmqha.common.process import how_to_raise

log = logging.getLogger("RocketmqStore")


class FlushShortage:
    """Whether the last flush of a service could not ask the disk, and what the log says of it. One thread at a time.

    Differs: no fsync has failed then, so nothing is lost, and the flush is tried again; meanwhile nothing counts as
    flushed. The original has no such flushes: it keeps its files open, and leaves their names to the file system.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._times = 0  # in a row

    @property
    def lasts(self) -> bool:
        """Whether the last flush could not ask the disk."""
        return self._times > 0

    def note(self, error: NotAskedError) -> None:
        """A flush could not ask; the log has the 1st, 2nd, 4th, 8th ... in a row."""
        self._times += 1
        if self._times & self._times - 1 == 0:
            log.error("%s can't be flushed now, and it is tried again (%s so far); nothing is lost: %s%s", self._what,
                      self._times, error, how_to_raise(error))

    def end(self) -> None:
        """A flush has asked the disk."""
        if self._times:
            log.warning("%s is flushed again, after %s flushes that could not ask the disk", self._what, self._times)
            self._times = 0
