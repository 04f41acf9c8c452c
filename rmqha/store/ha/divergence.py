"""What a slave has noticed of a divergence: that its log or its queues are not what its master has."""
from __future__ import annotations

import json
import logging
import os
import threading
from typing import NamedTuple

from rmqha.common.texts import parse_json

log = logging.getLogger("RocketmqStore")

_MAX_REASON = 1000  # characters


class Diverged(NamedTuple):
    """A finding: `offset` is the commit log offset of the first thing that is different."""

    offset: int
    reason: str


class Divergence:
    """The first finding of each of three kinds, and how many there were. Any thread.

    - The log: the handshake finds other bytes, or an end that the master does not have. It is looked for again at each
      connect, and forgotten when the two fit.
    - A record: what the master sends fails its checks, twice. It is fetched again every few seconds, and the finding
      is forgotten when a good one comes.
    - The queues: a record's index is not the one that its queue goes on with. It is remembered in the file at
      `path`: the queue stays wrong until it is built again.

    The original logs "Build consume queue repeatedly" and "logic queue order maybe wrong", and goes on.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()  # guards what follows
        self._log: Diverged | None = None
        self._record: Diverged | None = None
        self._queues: Diverged | None = None
        self.queue_count = 0  # records whose index did not fit, since the store was made or mended

    @property
    def found(self) -> Diverged | None:
        """The finding that counts: that of the log, which is the cause, before that of the queues; None for none."""
        return self._log or self._record or self._queues

    @property
    def found_in_log(self) -> Diverged | None:
        """The finding of the last handshake."""
        return self._log

    def load(self) -> None:
        """Remember what was found before the last start."""
        try:
            with open(self._path, "rb") as file:
                known = parse_json(file.read(), "its text")
            with self._lock:
                self._queues = Diverged(int(known["offset"]), str(known["reason"]))
                self.queue_count = int(known["count"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("%s can't be read (%s): whether the queues of this slave had diverged is not known", self._path,
                      error)

    def log_differs(self, offset: int, reason: str) -> None:
        """The log is another one than the master's from `offset` on."""
        with self._lock:
            self._log = Diverged(offset, reason)

    def log_fits(self) -> None:
        """The log was compared with the master's, and is a part of it."""
        with self._lock:
            self._log = None

    def record_is_flawed(self, offset: int, reason: str) -> None:
        """The record at `offset` that the master sends fails its checks, each time."""
        with self._lock:
            self._record = Diverged(offset, reason)

    def record_is_good(self) -> None:
        """The record of which `record_is_flawed` spoke was received, and is good."""
        with self._lock:
            self._record = None

    def queue_does_not_fit(self, offset: int, reason: str) -> None:
        """The record at `offset` has another index than its queue has room for."""
        with self._lock:
            self.queue_count += 1
            if self._queues is not None:
                return
            self._queues = found = Diverged(offset, reason)
            log.error("this slave's queues are not its master's: %s. Stop it, build its queues again with "
                      "`rmqha store rebuild --apply --force`, or set it up anew", reason)
            self._write(found)

    def cut_off(self, offset: int) -> None:
        """Log and queues end at `offset` now. A record behind it did not fit because of what was cut off."""
        self.log_fits()
        queues = self._queues
        if queues is not None and queues.offset >= offset:
            self.queues_are_mended()

    def queues_are_mended(self) -> None:
        """All queues behind the finding were built again."""
        with self._lock:
            self._queues, self.queue_count = None, 0
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                log.debug("no finding was written")

    def _write(self, found: Diverged) -> None:
        try:
            known = {"offset": found.offset, "reason": found.reason[:_MAX_REASON], "count": self.queue_count}
            with open(self._path, "w", encoding="utf-8") as file:
                json.dump(known, file)
        except OSError as error:
            log.error("%s can't be written: %s", self._path, error)
