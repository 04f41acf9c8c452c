"""Who keeps all other threads from running, and for how long: a tool for whoever looks for pauses.

    StallWatch: a beat each quarter of the limit -> arms the interpreter's own watchdog, a thread that needs no turn
    watchdog: not armed again within the limit -> the stacks of all threads, into a file
    StallWatch: a beat that comes too late -> one line of the log: how long, why, and the stacks that did not wait
"""
from __future__ import annotations

import faulthandler
import gc
import logging
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rmqha.common.service_thread import ServiceThread

log = logging.getLogger("RocketmqCommon")

_BEATS = 4  # within the limit
_FRAMES = 12  # of a stack that go into the log
_MAX_DUMP = 1 << 20
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)[^\n]*\n((?:  [^\n]*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "([^"]*)", line (\d+) in (\S+)', re.MULTILINE)
# Where a thread that has nothing to do stands: (end of the file's name, function).
_WAITING = {("threading.py", "wait"), ("threading.py", "_wait_for_tstate_lock"), ("selectors.py", "select"),
            ("quick_selector.py", "select"), ("queue.py", "get"), ("socket.py", "accept"),
            ("concurrent/futures/thread.py", "_worker"), ("subprocess.py", "_try_wait")}


class StallWatch(ServiceThread):
    """Logs each time when no other thread has had a turn for `limit_ms`, with the stacks of those that did not wait.

    Off with a limit of 0. There is one watchdog in a process: of several watches the last one that beats has it.
    """

    def __init__(self, limit_ms: int) -> None:
        super().__init__()
        self.daemon = True
        self._limit_ms = limit_ms
        self._collecting_since = 0.0  # monotonic s; written by whichever thread collects garbage
        self._collected = (0.0, 0.0, 0)  # when the last collection ended, its seconds, its generation

    def start(self) -> None:
        if self._limit_ms > 0:
            super().start()

    def run(self) -> None:
        log.info("%s service started: pauses above %d ms are logged", self.get_service_name(), self._limit_ms)
        gc.callbacks.append(self._note_collection)
        try:
            with tempfile.TemporaryFile() as dump:
                self.keep_going(lambda: self._beat_until_stopped(dump.fileno()))
        finally:
            faulthandler.cancel_dump_traceback_later()
            gc.callbacks.remove(self._note_collection)
        log.info("%s service end", self.get_service_name())

    def _beat_until_stopped(self, dump: int) -> None:
        """Arm and sleep, and see how late it is each time."""
        interval_s = self._limit_ms / _BEATS / 1000
        last, no_core_s = time.monotonic(), _waited_for_a_core()
        names: dict[int | None, str] = {}
        while not self.stopped:
            faulthandler.dump_traceback_later(self._limit_ms / 1000, file=dump)
            self.wait_for_running(interval_s * 1000)
            now, waited_s = time.monotonic(), _waited_for_a_core()
            late_ms = (now - last - interval_s) * 1000
            if late_ms >= self._limit_ms:
                why = self._why(last, late_ms, (waited_s - no_core_s) * 1000)
                stacks = busy_stacks(_taken(dump), names, threading.get_ident())
                log.warning("no other thread had a turn for %d ms%s\n%s", late_ms, why, "\n".join(stacks))
            # a thread may have ended when it is to be named
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            last, no_core_s = now, waited_s

    def _why(self, begin: float, late_ms: float, no_core_ms: float) -> str:
        ended, seconds, generation = self._collected
        if no_core_ms > late_ms / 2:
            return f", of which the machine had no core free for {no_core_ms:.0f} ms"
        if ended >= begin and seconds * 1000 > late_ms / 2:
            return f", of which {seconds * 1000:.0f} ms for a garbage collection of generation {generation}"
        return ""

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        now = time.monotonic()
        if phase == "start":
            self._collecting_since = now
        else:
            self._collected = now, now - self._collecting_since, info["generation"]


def busy_stacks(dump: str, names: dict[int | None, str], watch: int | None = None) -> Iterator[str]:
    """The stacks of a dump whose threads did not wait when it was made, without that of `watch`."""
    for ident, stack in _THREAD.findall(dump):
        frames = _FRAME.findall(stack)
        is_waiting = frames and any(frames[0][0].endswith(file) and frames[0][2] == name for file, name in _WAITING)
        if frames and not is_waiting and int(ident, 16) != watch:
            yield f"  {names.get(int(ident, 16), 'a thread that has just begun')}"
            yield from (f"    {file}:{line} {name}" for file, line, name in frames[:_FRAMES])


def _taken(dump: int) -> str:
    """What the watchdog has written, which is then gone."""
    with open(dump, "r+b", closefd=False) as file:
        file.seek(0)
        text = file.read(_MAX_DUMP).decode("utf-8", "replace")
        file.seek(0)
        file.truncate()
    return text


def _waited_for_a_core() -> float:
    """Seconds that this thread has been ready to run without a core, since it began; 0 where nobody counts."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
