"""Ctrl-C before a program is ready for it, and after it is done: the process ends, with no traceback. SIGTERM and
SIGHUP end a program as Ctrl-C does: what was begun is ended in order.
"""
from __future__ import annotations

import os
import signal

# Until this module is there Ctrl-C ends in a traceback: it imports what Python's start has imported, and signal.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, as shells have it."""
_OTHERS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP in the block of an Interruptible: whoever cleans up after Ctrl-C does so after this."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a program that was ended so: 128 and the signal's number, as shells have it."""
    return 128 + interrupt.number if isinstance(interrupt, Terminated) else INTERRUPTED


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def leave_when_interrupted() -> None:
    """From now on Ctrl-C ends the process at once, with INTERRUPTED. What ignores it goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


class Interruptible:
    """In the block Ctrl-C is a KeyboardInterrupt, which has what was begun cleaned up; behind it the process ends at
    once again, so that the interpreter's own end tells nothing either. SIGTERM and SIGHUP are a Terminated, once: what
    sends both, or one of them twice, does not disturb the cleaning up.

    Ctrl-C: changes nothing where `leave_when_interrupted` had no effect. The others: nothing where a program ignores
    them, as under nohup, or has a handler of its own.
    """

    def __init__(self) -> None:
        self._is_changed = False
        self._is_ending = False
        self._taken: list[signal.Signals] = []

    def __enter__(self) -> None:
        import threading

        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is _leave:
            self._is_changed = True
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in _OTHERS:
            if signal.getsignal(number) is signal.SIG_DFL:
                self._taken.append(number)
                signal.signal(number, self._terminate)

    def __exit__(self, *_exception: object) -> None:
        if self._is_changed:
            signal.signal(signal.SIGINT, _leave)
        for number in self._taken:
            if signal.getsignal(number) == self._terminate:
                signal.signal(number, signal.SIG_DFL)

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        if not self._is_ending:
            self._is_ending = True
            raise Terminated(number)
