"""Finding the first file of a master's log over 4.9's protocol. Pure.

The problem: a new slave should get the whole log, but a slave that reports 0 ("my log is empty") is sent only the
master's last file. In 4.9's protocol the slave can't ask where the log begins.

The way around it: a master takes any first report above 0 as the offset to send from. A report of a file's beginning
plus 1 therefore gets that file, except for its first byte. And that byte is known: it is the highest byte of a record's
size, which is 0 for sizes below 16 MiB. The slave puts it back (`OffsetMasterConnection._first_run`).

What remains is to find the first file that exists. A report of 0 reveals where the last file begins. File 0 is asked
for next, since most masters still have it. If it is gone, the search bisects between the lowest file that may exist
and the lowest that is known to exist. A 4.9 master that has deleted the file sends only heartbeats there; that is an
answer too, after a short wait (`nothing_came`). An rmqha master names its first file, which is asked for next.

Each question takes a new connection, because only the first report chooses the offset. Files may expire during the
search; if the file that was there a moment ago is gone, the search begins again.
"""
import logging
from enum import Enum

log = logging.getLogger("RocketmqStore")


class Found(Enum):
    """The next step for the connection after its first frame."""

    FOLLOW = "follow"  # the log begins here: append
    AGAIN = "again"  # ask for another file, on a new connection
    WAIT = "wait"  # undecided


class FirstFileSearch:
    """The state of one search across its connections. Used by one thread.

    `next_report` returns the first report of each connection, `heard` evaluates its first frame, and `nothing_came`
    ends the wait for data after a heartbeat.
    """

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        # No earlier file exists.
        self._lowest = 0
        # This file exists, or did a moment ago.
        self._highest = 0
        # offset at which the master's last file begins; -1: not known
        self._last = -1
        # the file that is being asked for; None: the last one
        self._asked: int | None = None

    def next_report(self) -> int:
        """Return the first report for the next connection."""
        return 0 if self._asked is None else self._asked + 1

    def heard(self, offset: int, size: int) -> Found:
        """Evaluate the master's first frame on this connection: `size` bytes at `offset`."""
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
        # The append reports what is wrong with the frame.
        return Found.FOLLOW

    def nothing_came(self) -> Found:
        """Conclude that the file does not exist, because no data followed the heartbeat."""
        # For the last file, the first frame decides everything.
        assert self._asked is not None
        log.info("the master no longer has the commit log file %d", self._asked)
        self._lowest = self._asked + self._segment_size
        # The file existed a moment ago.
        if self._lowest > self._highest:
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
        # The first file is the last one: a report of 0 gets it, even if it is still empty.
        if self._lowest == self._last:
            self._asked = None
        return Found.AGAIN

    def _restart(self) -> None:
        self._lowest, self._highest, self._last, self._asked = 0, 0, -1, None
