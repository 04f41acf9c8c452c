"""A server as a process: its limits of maps and descriptors, systemd notification, and a watch for stalls.

The server notifies systemd as a service of Type=notify, as in sd_notify(3): with datagrams to $NOTIFY_SOCKET.
Without that variable, as when it was not started by systemd, it sends nothing.

    start --READY=1--> systemd <--WATCHDOG=1-- the waiting thread, while `lives` says so (WatchdogSec=)
    stop  --STOPPING=1-->

`StallWatch` logs when all other threads are kept from running:

    StallWatch: a beat each quarter of the limit; each second the CPU time of all threads
    a beat that comes too late -> one line of the log: how long, why, and the stacks of the threads that did not wait,
    with the CPU time that each has used of late

It reads the frames of other threads while it holds the GIL, which is the only safe way: faulthandler's watchdog
reads them at any time, and the process crashes when they change meanwhile. A stall is one native call that holds the
GIL, so when its thread releases the GIL, its stack still shows that call.
"""
from __future__ import annotations

import errno
import gc
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType

from rmqha.common.program import StopSignal
from rmqha.common.service_thread import ServiceThread

log = logging.getLogger("RocketmqCommon")

MAX_MAP_COUNT_FILE = "/proc/sys/vm/max_map_count"
_DEFAULT_MAX_MAP_COUNT = 65_530
_SHARE = 2  # one of so many maps and descriptors is for the files of consume queues: a map costs one of each
_LEAST = 64
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)


def max_mapped_files(descriptors: int | None = None) -> int:
    """Half of what this process may have, of maps or descriptors (`descriptors`: of those), whichever are fewer."""
    if descriptors is None:
        descriptors, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        descriptors = max_map_count()
    return max(min(max_map_count(), descriptors) // _SHARE, _LEAST)


def max_map_count() -> int:
    """How many maps the system lets a process have."""
    try:
        with open(MAX_MAP_COUNT_FILE, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError) as error:
        log.info("%s can't be read: %s", MAX_MAP_COUNT_FILE, error)
        return _DEFAULT_MAX_MAP_COUNT


def is_shortage(error: BaseException | None) -> bool:
    """Whether the system lacked descriptors, maps or memory at the moment, and may have them later."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def how_to_raise(error: OSError) -> str:
    """What is lacking, and what raises it: the end of a log line, empty when nothing is known."""
    if error.errno == errno.EMFILE:
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f". This process may have {limit} files open: raise `ulimit -n` (LimitNOFILE= of systemd) and restart it"
    if error.errno == errno.ENFILE:
        return ". The system has as many files open as it may: raise `sysctl fs.file-max`"
    if error.errno == errno.ENOMEM:
        return ". The system lacks memory, or this process maps: give it memory, or raise `sysctl vm.max_map_count`"
    return ""


SOCKET_ENV = "NOTIFY_SOCKET"
WATCHDOG_ENV = "WATCHDOG_USEC"
WATCHDOG_PID_ENV = "WATCHDOG_PID"

_PINGS = 2  # in the time that systemd waits for one
_US = 1_000_000


def notify(*assignments: str) -> bool:
    """Send `READY=1`, `STATUS=...`; False when nobody wants to know, or can be told.

    A failure is logged only: a service that works must not end because of it.
    """
    address = os.environ.get(SOCKET_ENV, "")
    if not address:
        return False
    if address.startswith("@"):  # an abstract one
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(assignments).encode("utf-8", "replace"), address)
    except OSError as error:
        log.warning("systemd can't be told %s at %s: %s", assignments[0], address, error)
        return False
    return True


def ready(status: str) -> None:
    """The service serves; `status` is what `systemctl status` shows."""
    notify("READY=1", f"STATUS={status}")


def stopping() -> None:
    """The service ends in good order; how long that may take is TimeoutStopSec's."""
    notify("STOPPING=1", "STATUS=stopping")


def watchdog_s() -> float | None:
    """How often systemd wants to hear that this process lives; None when it does not."""
    if os.environ.get(WATCHDOG_PID_ENV, str(os.getpid())) != str(os.getpid()):
        return None  # meant for another process, which started this one
    text = os.environ.get(WATCHDOG_ENV, "")
    try:
        return int(text) / _US if text and int(text) > 0 else None
    except ValueError:
        log.warning("%s=%s is no number of microseconds", WATCHDOG_ENV, text)
        return None


def wait(stop: StopSignal, lives: Callable[[float], bool]) -> None:
    """Wait for `stop`; meanwhile tell the watchdog, if there is one, that the service lives, as long as that is so.

    `lives`: called with the seconds that it may take; False, and nothing is told, so that systemd may start anew.
    """
    limit_s = watchdog_s()
    if limit_s is None:
        stop.wait()
        return
    pause_s = limit_s / _PINGS / 2  # a look may take as long as the pause before it
    while not stop.wait(pause_s):
        if lives(pause_s):
            notify("WATCHDOG=1")
        else:
            log.error("the watchdog isn't told that the service lives: its threads don't answer within %.1f s", pause_s)


_BEATS = 4  # within the limit
_CPU_NOTED_S = 1.0  # how often
_FRAMES = 12  # of a stack that go into the log
# Where a thread that has nothing to do stands: (end of the file's name, function).
_WAITING = {("threading.py", "wait"), ("threading.py", "_wait_for_tstate_lock"), ("selectors.py", "select"),
            ("rmqha/remoting/io_thread.py", "select"), ("rmqha/common/program.py", "wait"), ("queue.py", "get"),
            ("socket.py", "accept"), ("concurrent/futures/thread.py", "_worker"), ("subprocess.py", "_try_wait")}


class StallWatch(ServiceThread):
    """Logs each time when no other thread has had a turn for `limit_ms`, with the stacks of those that did not wait.

    Off with a limit of 0.
    """

    def __init__(self, limit_ms: int) -> None:
        super().__init__()
        self.daemon = True
        self._limit_ms = limit_ms
        self.stalls, self.stalled_ms = 0, 0.0  # how many, and how long in all; written by its thread
        # The last garbage collection, as its thread writes it: when it began, its end or None, its generation.
        self._collection: tuple[float, float | None, int] = (0.0, 0.0, 0)

    @property
    def is_on(self) -> bool:
        """Whether it watches."""
        return self._limit_ms > 0

    def start(self) -> None:
        if self.is_on:
            super().start()

    def run(self) -> None:
        log.info("%s service started: pauses above %d ms are logged", self.get_service_name(), self._limit_ms)
        gc.callbacks.append(self._note_collection)
        try:
            self.keep_going(self._beat_until_stopped)
        finally:
            gc.callbacks.remove(self._note_collection)
        log.info("%s service end", self.get_service_name())

    def _beat_until_stopped(self) -> None:
        """Sleep, and see how late it is each time."""
        interval_s = self._limit_ms / _BEATS / 1000
        last, no_core_s, (used_until, used) = time.monotonic(), _waited_for_a_core(), (time.monotonic(), cpu_seconds())
        while not self.stopped:
            self.wait_for_running(interval_s * 1000)
            now = time.monotonic()
            late_ms = (now - last - interval_s) * 1000
            stacks = busy_stacks(sys._current_frames()) if late_ms >= self._limit_ms else {}  # first: they move on
            waited_s = _waited_for_a_core()
            if late_ms >= self._limit_ms:
                self.stalls, self.stalled_ms = self.stalls + 1, self.stalled_ms + late_ms
                why = self._why(last, late_ms, (waited_s - no_core_s) * 1000)
                spent = {ident: seconds - used.get(ident, 0) for ident, seconds in cpu_seconds().items()}
                log.warning("no other thread had a turn for %d ms%s; CPU of the last %d ms:\n%s", late_ms, why,
                            (now - used_until) * 1000, "\n".join(told(stacks, spent)))
            if late_ms >= self._limit_ms or now - used_until >= _CPU_NOTED_S:
                used_until, used = now, cpu_seconds()
            last, no_core_s = now, waited_s

    def _why(self, begin: float, late_ms: float, no_core_ms: float) -> str:
        began, ended, generation = self._collection
        if ended is None:  # its thread lost its turn before noting the end
            ended = time.monotonic()
        seconds = ended - began
        if no_core_ms > late_ms / 2:
            return f", of which the machine had no core free for {no_core_ms:.0f} ms"
        if ended >= begin and seconds * 1000 > late_ms / 2:
            return f", of which {seconds * 1000:.0f} ms for a garbage collection of generation {generation}"
        return ""

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        now = time.monotonic()
        if phase == "start":
            self._collection = now, None, info["generation"]
        else:
            self._collection = self._collection[0], now, info["generation"]


def busy_stacks(frames: Mapping[int, FrameType]) -> dict[int, list[str]]:
    """By thread: where it stands, innermost first; of the threads that neither wait nor ask."""
    stacks = {}
    for ident, innermost in frames.items():
        if ident != threading.get_ident() and not _is_waiting(innermost.f_code):
            stack: list[str] = []
            frame: FrameType | None = innermost
            while frame is not None and len(stack) < _FRAMES:
                stack.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
                frame = frame.f_back
            stacks[ident] = stack
    return stacks


def _is_waiting(code: CodeType) -> bool:
    return any(code.co_filename.endswith(file) and code.co_name == name for file, name in _WAITING)


def told(stacks: Mapping[int, list[str]], spent: Mapping[int, float]) -> Iterator[str]:
    """The lines of the log, the thread that has used the most CPU first. `spent`: CPU seconds by thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident in sorted(stacks, key=lambda ident: -spent.get(ident, 0)):
        yield f"  {names.get(ident, 'a thread that has ended')}, CPU {spent.get(ident, 0) * 1000:.0f} ms"
        yield from (f"    {line}" for line in stacks[ident])


def cpu_seconds() -> dict[int, float]:
    """The CPU time of each thread of threading, by its ident, as far as the system tells."""
    used = {}
    for thread in threading.enumerate():
        if thread.ident is not None and thread.native_id is not None:
            try:  # as pthread_getcpuclockid has it on Linux, but no fault when the thread has ended
                used[thread.ident] = time.clock_gettime(~thread.native_id << 3 | 6)
            except OSError:
                continue
    return used


def _waited_for_a_core() -> float:
    """Seconds that this thread has been ready to run without a core, since it began; 0 where nobody counts."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(100).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
