"""How a program starts and ends: Ctrl-C, SIGTERM, SIGHUP, and a closed pipe on its standard output.

Before a program is ready for Ctrl-C, and after it is done, Ctrl-C ends the process without a traceback. SIGTERM and
SIGHUP end a program as Ctrl-C does, with its cleanup. A server waits for SIGTERM, Ctrl-C or the end of its terminal
with a `StopSignal`:

    signal handler, any thread --set--> [told] --wait--> the thread that ends the process in good order

`run_while_read` is for programs whose output may no longer be read, as in `mqbroker -p | head -1`.
"""
from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# Until this module is there Ctrl-C ends in a traceback: it imports what Python's start has imported, and signal.
TYPE_CHECKING = False

ROCKETMQ_HOME_ENV = "ROCKETMQ_HOME"
NAMESRV_ADDR_ENV = "NAMESRV_ADDR"
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


_LOOK_S = 1.0


def ending_signals() -> tuple[signal.Signals, ...]:
    """What ends a program that runs until it is told to: SIGTERM, SIGINT, and SIGHUP, unless nohup has that ignored."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@contextmanager
def interrupted_later() -> Iterator[None]:
    """An interrupt that comes in the block has its effect at the block's end: for steps that would leave threads behind
    half-way, or of which nobody would know whether they were done. That is Ctrl-C, and SIGTERM and SIGHUP where the
    program has a handler for them. Only the main thread is interrupted; on others nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
              if callable(handler := signal.getsignal(number)) or number is signal.SIGINT and handler is not None}
    came: list[int] = []
    try:
        for number in before:
            signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


class StopSignal:
    """Set once, for good; `set` may come from a signal handler.

    A threading.Event must not be set by a handler: one that interrupts its own thread while that begins to wait asks
    for a lock which the thread itself holds, and neither ever goes on. A SimpleQueue is made for it. And a handler runs
    between two steps of the interpreter: a signal that comes in the midst of the step that begins to wait is seen at
    the end of that wait, so that no wait is long.
    """

    def __init__(self) -> None:
        from queue import SimpleQueue  # here, as below: `rmqha --help` does without

        self._told: SimpleQueue[None] = SimpleQueue()
        self._is_set = False

    @classmethod
    def of_process(cls) -> StopSignal:
        """One that SIGTERM, SIGINT and SIGHUP set from now on. Only on the main thread."""
        stop = cls()
        for number in ending_signals():
            signal.signal(number, stop.handler)
        return stop

    def handler(self, _number: int, _frame: FrameType | None) -> None:
        """For signal.signal."""
        self.set()

    def set(self) -> None:
        """All who wait go on, now and later."""
        self._is_set = True
        self._told.put(None)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False when that takes longer."""
        from queue import Empty

        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_set:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            try:
                self._told.get(timeout=min(remaining_s, _LOOK_S))
            except Empty:
                continue
            self._told.put(None)  # for the next one
        return True


ENDED_BY_PIPE = 141
"""The exit code of a program that could print no more, as shells have it."""


def nobody_reads() -> bool:
    """Whether the standard output is a pipe, or a connection, whose other end is closed."""
    import select

    try:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # there is no standard output, or it is no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _fd, event in poller.poll(0))


def discard_output() -> None:
    """From now on nothing that is printed goes anywhere; else the interpreter complains at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def run_while_read(main: Callable[[], int | None]) -> int:
    """The exit code of `main`; where nobody reads what it prints it ends without a word, with ENDED_BY_PIPE."""
    try:
        try:
            code = main() or 0
        except SystemExit:
            _flush()
            raise
        _flush()
        return code
    except BrokenPipeError:
        if not nobody_reads():
            raise
        discard_output()
        return ENDED_BY_PIPE


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
