"""Ctrl-C before a program is ready for it, and after it is done: the process ends, with no traceback."""
from __future__ import annotations

import os
import signal

# Until this module is there Ctrl-C ends in a traceback: it imports what Python's start has imported, and signal.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells tell it."""


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def leave_when_interrupted() -> None:
    """From now on Ctrl-C ends the process at once, with INTERRUPTED. What ignores it goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


class Interruptible:
    """In the block Ctrl-C is a KeyboardInterrupt, which has what was begun cleaned up; behind it the process ends at
    once again, so that the interpreter's own end tells nothing either.

    Changes nothing where `leave_when_interrupted` had no effect.
    """

    def __init__(self) -> None:
        self._is_changed = False

    def __enter__(self) -> None:
        import threading

        if signal.getsignal(signal.SIGINT) is _leave and threading.current_thread() is threading.main_thread():
            self._is_changed = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_exception: object) -> None:
        if self._is_changed:
            signal.signal(signal.SIGINT, _leave)
