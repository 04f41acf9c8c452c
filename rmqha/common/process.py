"""A server as a process: its limits of maps and descriptors, systemd notification, and a watch for stalls.

The server notifies systemd like a service of Type=notify, as in sd_notify(3): it sends datagrams to $NOTIFY_SOCKET.
Without that variable, for example when systemd did not start it, it sends nothing.

    start --READY=1--> systemd <--WATCHDOG=1-- the waiting thread, while `lives` says so (WatchdogSec=)
    stop  --STOPPING=1-->

`StallWatch` logs when all other threads are kept from running:

    StallWatch: a beat every quarter of the limit; every second the CPU time of all threads
    a beat that is late -> one entry in the log: how long, why, and the stacks of the threads that did not wait, with
    the CPU time that each has used recently

It reads the frames of other threads while it holds the GIL, which is the only safe way: faulthandler's watchdog
reads them at any time, and crashes the process when they change meanwhile. A stall is one native call that holds the
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
# Mapped files may use one in _SHARE of the maps and descriptors: a mapped file takes one of each.
_SHARE = 2
_LEAST = 64
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)


def max_mapped_files(descriptors: int | None = None) -> int:
    """Return how many files the process may keep mapped: half of its maps or of its descriptors, whichever are fewer.

    `descriptors`: the number of descriptors, if not the process's limit.
    """
    if descriptors is None:
        descriptors, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        descriptors = max_map_count()
    return max(min(max_map_count(), descriptors) // _SHARE, _LEAST)


def max_map_count() -> int:
    """Return the number of maps that the system allows a process."""
    try:
        with open(MAX_MAP_COUNT_FILE, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError) as error:
        log.info("cannot read %s: %s", MAX_MAP_COUNT_FILE, error)
        return _DEFAULT_MAX_MAP_COUNT


def is_shortage(error: BaseException | None) -> bool:
    """Return whether an error is a temporary lack of descriptors, maps or memory: the operation may succeed later."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def how_to_raise(error: OSError) -> str:
    """Return which limit was reached and how to raise it, to end a log line with; empty for other errors."""
    if error.errno == errno.EMFILE:
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f". This process may open {limit} files: raise `ulimit -n` (LimitNOFILE= in systemd) and restart it"
    if error.errno == errno.ENFILE:
        return ". The system has reached its limit of open files: raise `sysctl fs.file-max`"
    if error.errno == errno.ENOMEM:
        return ". The system lacks memory, or this process maps: add memory, or raise `sysctl vm.max_map_count`"
    return ""


SOCKET_ENV = "NOTIFY_SOCKET"
WATCHDOG_ENV = "WATCHDOG_USEC"
WATCHDOG_PID_ENV = "WATCHDOG_PID"

# Pings to send in the time in which systemd expects one.
_PINGS = 2
_US = 1_000_000


def notify(*assignments: str) -> bool:
    """Send `READY=1`, `STATUS=...` to systemd. Return False without $NOTIFY_SOCKET, or when sending fails.

    A failure is only logged: a working service must not stop because of it.
    """
    address = os.environ.get(SOCKET_ENV, "")
    if not address:
        return False
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(assignments).encode("utf-8", "replace"), address)
    except OSError as error:
        log.warning("cannot notify systemd of %s at %s: %s", assignments[0], address, error)
        return False
    return True


def ready(status: str) -> None:
    """Report that the service is ready; `systemctl status` shows `status`."""
    notify("READY=1", f"STATUS={status}")


def stopping() -> None:
    """Report that the service is shutting down in order. TimeoutStopSec limits how long that may take."""
    notify("STOPPING=1", "STATUS=stopping")


def watchdog_s() -> float | None:
    """Return the interval, in seconds, within which systemd expects a ping from this process; None without a watchdog.
    """
    if os.environ.get(WATCHDOG_PID_ENV, str(os.getpid())) != str(os.getpid()):
        # Meant for the process that started this one.
        return None
    text = os.environ.get(WATCHDOG_ENV, "")
    try:
        return int(text) / _US if text and int(text) > 0 else None
    except ValueError:
        log.warning("%s=%s is not a valid number of microseconds", WATCHDOG_ENV, text)
        return None


def wait(stop: StopSignal, lives: Callable[[float], bool]) -> None:
    """Wait for `stop`. Meanwhile ping systemd's watchdog, if there is one, as long as the service is alive.

    `lives` is called with the seconds that it may take. When it returns False, no ping is sent, so that systemd
    restarts the service.
    """
    limit_s = watchdog_s()
    if limit_s is None:
        stop.wait()
        return
    # A check may take as long as the pause before it.
    pause_s = limit_s / _PINGS / 2
    while not stop.wait(pause_s):
        if lives(pause_s):
            notify("WATCHDOG=1")
        else:
            log.error("not pinging the watchdog: the service's threads do not answer within %.1f s", pause_s)


_BEATS = 4  # per limit
_CPU_NOTED_S = 1.0  # interval
_FRAMES = 12  # logged of each stack
# The innermost calls of threads that wait for work: (end of the file's name, function).
_WAITING = {("threading.py", "wait"), ("threading.py", "_wait_for_tstate_lock"), ("selectors.py", "select"),
            ("rmqha/remoting/io_thread.py", "select"), ("rmqha/common/program.py", "wait"), ("queue.py", "get"),
            ("socket.py", "accept"), ("concurrent/futures/thread.py", "_worker"), ("subprocess.py", "_try_wait")}


class StallWatch(ServiceThread):
    """Logs each time that no other thread could run for `limit_ms`, with the stacks of the threads that did not wait.

    A limit of 0 turns it off.
    """

    def __init__(self, limit_ms: int) -> None:
        super().__init__()
        self.daemon = True
        self._limit_ms = limit_ms
        # The number of stalls, and their total duration; written by this thread.
        self.stalls, self.stalled_ms = 0, 0.0
        # The last garbage collection, written by the thread that ran it: its begin, its end or None, its generation.
        self._collection: tuple[float, float | None, int] = (0.0, 0.0, 0)

    @property
    def is_on(self) -> bool:
        """True if the watch is turned on."""
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
        """Sleep in short intervals, and check each time how late the thread wakes up."""
        interval_s = self._limit_ms / _BEATS / 1000
        last, no_core_s, (used_until, used) = time.monotonic(), _waited_for_a_core(), (time.monotonic(), cpu_seconds())
        while not self.stopped:
            self.wait_for_running(interval_s * 1000)
            now = time.monotonic()
            late_ms = (now - last - interval_s) * 1000
            # First of all, because the other threads continue meanwhile.
            stacks = busy_stacks(sys._current_frames()) if late_ms >= self._limit_ms else {}
            waited_s = _waited_for_a_core()
            if late_ms >= self._limit_ms:
                self.stalls, self.stalled_ms = self.stalls + 1, self.stalled_ms + late_ms
                why = self._why(last, late_ms, (waited_s - no_core_s) * 1000)
                spent = {ident: seconds - used.get(ident, 0) for ident, seconds in cpu_seconds().items()}
                log.warning("no other thread had a turn for %d ms%s; CPU time in the last %d ms:\n%s", late_ms, why,
                            (now - used_until) * 1000, "\n".join(told(stacks, spent)))
            if late_ms >= self._limit_ms or now - used_until >= _CPU_NOTED_S:
                used_until, used = now, cpu_seconds()
            last, no_core_s = now, waited_s

    def _why(self, begin: float, late_ms: float, no_core_ms: float) -> str:
        began, ended, generation = self._collection
        # The collecting thread has not noted the end yet.
        if ended is None:
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
    """Return the stacks, innermost call first, by thread ident, without the calling thread and threads that wait."""
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
    """Yield the lines for the log, the thread that has used the most CPU first. `spent`: CPU seconds by thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident in sorted(stacks, key=lambda ident: -spent.get(ident, 0)):
        yield f"  {names.get(ident, 'a thread that has ended')}, CPU {spent.get(ident, 0) * 1000:.0f} ms"
        yield from (f"    {line}" for line in stacks[ident])


def cpu_seconds() -> dict[int, float]:
    """Return the CPU time of each Python thread in seconds, by ident, as far as the system reports it."""
    used = {}
    for thread in threading.enumerate():
        if thread.ident is not None and thread.native_id is not None:
            # The clock id of pthread_getcpuclockid on Linux, computed here: the call crashes when the thread has ended.
            try:
                used[thread.ident] = time.clock_gettime(~thread.native_id << 3 | 6)
            except OSError:
                continue
    return used


def _waited_for_a_core() -> float:
    """Return the seconds that this thread has waited for a core since it started; 0 where the system does not count it.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read(100).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
