"""The CPU that this process took, with the processes that it started."""
import os
from contextlib import suppress

import psutil


def used_s() -> float:
    """User and system time in seconds: of this process, of children that ended, of descendants that run.

    A process that left its parent counts until then only.
    """
    own = os.times()
    used = own.user + own.system + own.children_user + own.children_system
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                used += sum(child.cpu_times()[:4])
    return used


class Laps:
    """The CPU between two looks: what a test file took, when one looks at the end of each."""

    def __init__(self) -> None:
        self._before = used_s()

    def lap(self) -> float:
        """Seconds since the last look, 0 at least."""
        now = used_s()
        took, self._before = max(0.0, now - self._before), now
        return took
