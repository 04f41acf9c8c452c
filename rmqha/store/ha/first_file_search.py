"""Finding the first file of a master's log over 4.9's protocol. Pure.

A master sends an empty slave its last file only; but it takes any first report above 0 as the place to start from, and
the first byte of a record is always 0 (a size below 16 MiB). So a report of 1 behind a file's beginning gets all but
one known byte of it. A 4.9 master that has deleted the file sends nothing but heartbeats there, an rmqha master names
its first file.
"""
import logging
from enum import Enum

log = logging.getLogger("RocketmqStore")


class Found(Enum):
    """What to do with the connection after its first frame."""

    FOLLOW = "follow"  # the log begins here: append
    AGAIN = "again"  # ask for another file, on a new connection
    WAIT = "wait"  # nothing is known yet


class FirstFileSearch:
    """The state over the connections of one search; one thread.

    `next_report` gives the first report of each connection, `heard` judges its first frame, `nothing_came` ends the
    wait for data behind a heartbeat. 0 asks where the master's last file begins; then its first file is asked for,
    which most masters still have, and if not, the files between are halved.
    """

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._lowest = 0  # no file before it is there
        self._highest = 0  # this one is, or was
        self._last = -1  # where the master's last file begins, -1: not known
        self._asked: int | None = None  # the file that is asked for, None: the last one

    def next_report(self) -> int:
        """What to report first on the next connection."""
        return 0 if self._asked is None else self._asked + 1

    def heard(self, offset: int, size: int) -> Found:
        """The master's first frame on this connection came: `size` bytes at `offset`."""
        if self._asked is None:
            return self._heard_of_last_file(offset)
        if offset == self._asked + 1:
            if size == 0:
                return Found.WAIT
            self._highest = self._asked
            return Found.FOLLOW if self._lowest == self._asked else self._ask()
        if offset % self._segment_size == 0 and offset > self._asked:
            log.info("the master's first commit log file is %d", offset)
            self._lowest = self._highest = offset
            return self._ask()
        self._restart()
        return Found.FOLLOW  # whoever appends says what is wrong with it

    def nothing_came(self) -> Found:
        """No data followed the heartbeat: the file is not there."""
        assert self._asked is not None  # of the last file the first frame tells all
        log.info("the master no longer has the commit log file %d", self._asked)
        self._lowest = self._asked + self._segment_size
        if self._lowest > self._highest:  # it was there a moment ago
            self._restart()
            return Found.AGAIN
        return self._ask()

    def _heard_of_last_file(self, offset: int) -> Found:
        if offset <= 0 or offset % self._segment_size or offset == self._last == self._lowest:
            return Found.FOLLOW
        self._lowest, self._highest, self._last, self._asked = 0, offset, offset, 0
        return Found.AGAIN

    def _ask(self) -> Found:
        files = (self._highest - self._lowest) // self._segment_size
        self._asked = self._lowest + files // 2 * self._segment_size
        if self._lowest == self._last:  # the first is the last: a report of 0 gets it, even when nothing is in it yet
            self._asked = None
        return Found.AGAIN

    def _restart(self) -> None:
        self._lowest, self._highest, self._last, self._asked = 0, 0, -1, None
