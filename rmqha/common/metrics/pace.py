"""Making a long answer without being in anybody's way."""
import time
from collections.abc import Callable

STEPS = 200  # of work, about a millisecond's, between two pauses
_LET_IN_S = 0.0002


class OutOfTimeError(Exception):
    """The time for an answer is used up, or the server is going down."""


class Pace:
    """Counts steps of work: after each STEPS the other threads have their turn, and time is looked at.

    OutOfTimeError once `limit_s` have passed, or when `is_stopped` says so.
    """

    def __init__(self, limit_s: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self._ends = time.monotonic() + limit_s
        self._is_stopped = is_stopped
        self._left = STEPS

    def step(self) -> None:
        """One step was made."""
        self._left -= 1
        if self._left <= 0:
            self._left = STEPS
            time.sleep(_LET_IN_S)
            if self._is_stopped() or time.monotonic() > self._ends:
                raise OutOfTimeError
