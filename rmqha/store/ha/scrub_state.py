"""The progress of comparing a slave's log with its master's, and the differences found.

A round compares the log from its beginning to its end, and continues with what is appended meanwhile. New bytes are
compared as soon as the rate limit allows; bytes that were compared before are compared again in the next round.
"""
from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.mix_all import string2file
from rmqha.common.texts import parse_json
from rmqha.common.util_all import current_time_millis

log = logging.getLogger("RocketmqStore")

OFF, WAITING, RUNNING, CANT = "OFF", "WAITING", "RUNNING", "CANT"
SLAVE, MASTER, UNKNOWN = "slave", "master", "unknown"
_MAX_FOUND = 100
_MAX_REASON = 1000  # characters
_MAX_SAMPLES = 256


class Difference(NamedTuple):
    """A record in which the two logs differ, or differing bytes that belong to no record.

    `where`: the side whose copy fails its own checks: "slave", "master", or "unknown" when neither does.
    """

    offset: int
    size: int
    reason: str
    where: str


class ScrubState:
    """The progress of ScrubService; written by its thread, read by any. The file at `path` keeps it across restarts.

    `position` is the commit log offset up to which the current round has compared, from `round_begin` on; `round_end`
    is the log's end when the service last checked. `differences` also counts those that did not fit into `found`.
    """

    def __init__(self, path: str, clock: Callable[[], int] = current_time_millis) -> None:
        self.state = OFF
        # reason why the master can't be queried
        self.last_error = ""
        self.position = self.round_begin = self.round_end = 0
        self.rounds = self.compared_bytes = 0  # since the start
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()  # guards everything below
        self._found: tuple[Difference, ...] = ()
        self._more = 0  # differences beyond _MAX_FOUND
        # wall clock, as are the next two; 0: no round has begun
        self._round_started_ms = 0
        # (beginning of the last complete round, offset up to which it compared)
        self._last_round = (0, 0)
        # (ms, end of the log then), of bytes that are not compared yet
        self._samples: list[tuple[int, int]] = []

    @property
    def found(self) -> tuple[Difference, ...]:
        """The first differences, at most 100."""
        return self._found

    @property
    def differences(self) -> int:
        """The number of records that differ, as last compared."""
        return len(self._found) + self._more

    @property
    def first_difference(self) -> int | None:
        """The lowest commit log offset of the differences found; None if there are none."""
        return min((each.offset for each in self._found), default=None)

    def unscrubbed_ms(self) -> int:
        """Return the age of the oldest byte that is due for comparison.

        A byte is due if it was not compared since it was appended. While a further round runs, a byte is also due until
        that round has compared it. 0 when no byte is due, -1 before the log was first checked.
        """
        now = self._clock()
        with self._lock:
            if not self._round_started_ms:
                return -1
            began_ms, compared_to = self._last_round
            ages = [now - began_ms] if self.position < min(compared_to, self.round_end) else []
            fresh = max(self.position, compared_to)
            if fresh < self.round_end:
                ages.append(now - max((at for at, end in self._samples if end <= fresh),
                                      default=self._samples[0][0] if self._samples else self._round_started_ms))
            return max(0, *ages) if ages else 0

    def is_round_due(self, promise_ms: int) -> bool:
        """Return whether everything was compared, and the next round has to begin so that it ends in time.

        Rounds begin every half of `promise_ms`: a byte is then compared again within `promise_ms` even if the next
        round takes as long as the other half.
        """
        if not self._round_started_ms:
            return True
        return self.position >= self.round_end and (
            self._clock() - self._last_round[0] >= promise_ms // 2 or self._clock() < self._last_round[0])

    def begin_round(self, begin: int) -> None:
        """Begin a round at `begin`."""
        with self._lock:
            self._round_started_ms = self._clock()
            self.round_begin = self.position = begin

    def log_is(self, begin: int, end: int) -> None:
        """Record that the log now begins at `begin` and ends at `end`."""
        with self._lock:
            if end > self.round_end or not self._samples:
                self._sample(end)
            self.round_end = end
            self.position = min(max(self.position, begin), end)
            if self._last_round[1] > end:
                self._last_round = self._last_round[0], end

    def _sample(self, end: int) -> None:
        """Record the log's end as a sample.

        Samples are spaced by a fraction of the time that all of them cover, so that their number stays limited.
        """
        now, samples = self._clock(), self._samples
        if len(samples) > 1 and 0 <= now - samples[-1][0] < (now - samples[0][0]) // _MAX_SAMPLES:
            return
        samples.append((now, end))
        if len(samples) > _MAX_SAMPLES:
            closest = min(range(1, len(samples) - 1), key=lambda at: samples[at + 1][0] - samples[at - 1][0])
            del samples[closest]

    def compared(self, position: int, size: int) -> None:
        """Record that `size` bytes up to `position` were compared."""
        with self._lock:
            self.position = position
            self.compared_bytes += size
            while len(self._samples) > 1 and self._samples[1][1] <= position:
                del self._samples[0]
            if position < self.round_end:
                return
            if self._round_started_ms != self._last_round[0]:
                self.rounds += 1
            self._last_round = self._round_started_ms, position

    def differs(self, difference: Difference) -> bool:
        """Remember a difference; return whether it is a new one."""
        with self._lock:
            if any(known.offset == difference.offset for known in self._found):
                return False
            if len(self._found) < _MAX_FOUND:
                self._found = (*self._found, difference._replace(reason=difference.reason[:_MAX_REASON]))
            else:
                self._more += 1
        return True

    def keep(self, still: Iterable[Difference]) -> None:
        """Keep only the differences in `still`; the next round finds those again that did not fit into the list."""
        with self._lock:
            self._found, self._more = tuple(still), 0

    def load(self) -> None:
        """Continue where the last run of this broker stopped."""
        try:
            with open(self._path, "rb") as file:
                self._take(parse_json(file.read(), "its text"))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("can't read %s (%s); scrubbing begins with a new round", self._path, error)

    def _take(self, known: dict[str, Any]) -> None:
        found = tuple(Difference(int(each["offset"]), int(each["size"]), str(each["reason"]), str(each["where"]))
                      for each in known["found"][:_MAX_FOUND])
        samples = [(int(at), int(end)) for at, end in known["samples"][:_MAX_SAMPLES]]
        last_round = int(known["lastRoundBegan"]), int(known["lastRoundEnd"])
        position, begin, started = int(known["position"]), int(known["roundBegin"]), int(known["roundStarted"])
        if min(position, begin, started, *last_round) < 0:
            raise ValueError("it contains a negative number")
        with self._lock:
            self._found, self._more, self._samples = found, max(0, int(known["more"])), samples
            self._last_round, self.position, self.round_begin = last_round, position, begin
            self._round_started_ms = started
            self.round_end = max((end for _at, end in samples), default=position)

    def save(self) -> None:
        """Write the file; a failure is logged."""
        with self._lock:
            known = {"position": self.position, "roundBegin": self.round_begin, "roundStarted": self._round_started_ms,
                     "lastRoundBegan": self._last_round[0], "lastRoundEnd": self._last_round[1], "more": self._more,
                     "samples": self._samples, "found": [each._asdict() for each in self._found]}
        try:
            string2file(json.dumps(known, indent=1), self._path)
        except OSError as error:
            log.error("can't write %s: %s", self._path, error)
