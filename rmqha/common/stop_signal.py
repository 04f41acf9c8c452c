"""Waiting for the request to stop: SIGTERM, Ctrl-C, the end of the terminal.

    signal handler, any thread --set--> [told] --wait--> the thread that ends the process in good order
"""
from __future__ import annotations

import math
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()
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
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_set:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            try:
                self._told.get(timeout=min(remaining_s, _LOOK_S))
            except queue.Empty:
                continue
            self._told.put(None)  # for the next one
        return True
