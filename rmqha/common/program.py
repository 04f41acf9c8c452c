"""The start and the end of a program: Ctrl-C, SIGTERM, SIGHUP, and a closed pipe on its standard output.

Before a program is ready for Ctrl-C, and after it is done, Ctrl-C ends the process without a traceback. SIGTERM and
SIGHUP end a program as Ctrl-C does, with its cleanup. A server waits for SIGTERM, Ctrl-C or the end of its terminal
with a `StopSignal`:

    signal handler, any thread --set--> [_told] --wait--> the thread that shuts the process down in order

`run_while_read` is for programs whose output may be closed by the reader, as in `mqbroker -p | head -1`.
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

# Until this module is loaded, Ctrl-C ends in a traceback. It therefore imports only modules that Python's start has
# loaded, and signal.
TYPE_CHECKING = False

ROCKETMQ_HOME_ENV = "ROCKETMQ_HOME"
NAMESRV_ADDR_ENV = "NAMESRV_ADDR"
INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended, by the convention of shells."""
_OTHERS = (signal.SIGTERM, signal.SIGHUP)
EXAMPLES = "Examples:\n"


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: its examples, a line each, which click does not wrap."""
    return f"\b\n{EXAMPLES}" + "\n".join(f"  {line}" for line in lines)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP in the block of an Interruptible. Code that cleans up after Ctrl-C handles it the same way."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of an interrupted program: 128 plus the signal's number, by the convention of shells."""
    return 128 + interrupt.number if isinstance(interrupt, Terminated) else INTERRUPTED


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def leave_when_interrupted() -> None:
    """Make Ctrl-C end the process at once, with INTERRUPTED. A process that ignores Ctrl-C keeps ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


class Interruptible:
    """A context manager in which signals raise exceptions, so that the program cleans up what it has begun.

    In the block Ctrl-C raises KeyboardInterrupt. After the block it ends the process at once again, so that the
    interpreter prints no traceback on exit. SIGTERM and SIGHUP raise Terminated, once: a second signal does not
    interrupt the cleanup.

    Ctrl-C is left alone where `leave_when_interrupted` had no effect; SIGTERM and SIGHUP where the program ignores
    them, as under nohup, or has its own handler.
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
    """Return the signals that stop a server: SIGTERM, SIGINT, and SIGHUP unless it is ignored, as under nohup."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@contextmanager
def interrupted_later() -> Iterator[None]:
    """Delay interrupts in the block until its end.

    It protects steps that must not be left half done, such as starting a thread. Interrupts are Ctrl-C, and SIGTERM and
    SIGHUP where the program has a handler for them. Only the main thread is interrupted; on others this does nothing.
    """
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
    """A flag that is set once and stays set; a signal handler may set it.

    A handler must not set a threading.Event: if it interrupts its own thread while that begins to wait, it waits for
    a lock that the thread itself holds, which is a deadlock. A SimpleQueue is reentrant and made for this. A handler
    also runs only between two steps of the interpreter: a signal that arrives during the step that begins to wait is
    handled only when that wait ends. `wait` therefore waits in short intervals.
    """

    def __init__(self) -> None:
        # Imported late, as below: `rmqha --help` does without it.
        from queue import SimpleQueue

        self._told: SimpleQueue[None] = SimpleQueue()
        self._is_set = False

    @classmethod
    def of_process(cls) -> StopSignal:
        """Return a StopSignal that SIGTERM, SIGINT and SIGHUP set from now on. Call it on the main thread."""
        stop = cls()
        for number in ending_signals():
            signal.signal(number, stop.handler)
        return stop

    def handler(self, _number: int, _frame: FrameType | None) -> None:
        """Set the flag; a handler for signal.signal."""
        self.set()

    def set(self) -> None:
        """Set the flag. All current and later waits return."""
        self._is_set = True
        self._told.put(None)

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the flag is set. Return False when `timeout_s` passes first."""
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
            self._told.put(None)  # for the next waiter
        return True


ENDED_BY_PIPE = 141
"""The exit code of a program whose output was closed, by the convention of shells."""


def nobody_reads() -> bool:
    """Return whether the standard output is a pipe or a connection whose other end is closed."""
    import select

    try:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):
        # No standard output, or not a file.
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _fd, event in poller.poll(0))


def discard_output() -> None:
    """Discard all further output. Without this the interpreter reports an error on exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def run_while_read(main: Callable[[], int | None]) -> int:
    """Run `main` and return its exit code; ENDED_BY_PIPE, without a message, when its output was closed."""
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
