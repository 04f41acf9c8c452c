"""One writer at a time: who writes to an archive says so in a file there, then looks whether others do.

Of two that come at once at least one sees the other, wherever the files are, since each writes before it looks; both
may give up. A lock whose process is gone from this machine does not count; one of another machine does until somebody
who knows better takes it away (`break_lock`).
"""
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psutil

from rmqha.common.texts import parse_json
from rmqha.pipeline.archive.archive_files import ArchiveFiles
from rmqha.pipeline.archive.archive_layout import LOCKS
from rmqha.pipeline.options import PipelineError


@contextmanager
def locked(files: ArchiveFiles, what: str, break_lock: bool = False) -> Iterator["Lock"]:
    """Nobody else writes meanwhile. PipelineError when somebody does."""
    lock = Lock(files, what)
    if break_lock:
        files.remove(f"{LOCKS}/{name}" for name in files.listed(LOCKS))
    lock.take()
    try:
        yield lock
    finally:
        lock.give_back()


class Lock:
    """The lock of one writer."""

    def __init__(self, files: ArchiveFiles, what: str) -> None:
        self._files = files
        self._name = f"{uuid4().hex}.json"
        self._what = what

    def take(self) -> None:
        """PipelineError when others have it."""
        process = psutil.Process()
        told = {"host": os.uname().nodename, "pid": process.pid, "started": process.create_time(),
                "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "what": self._what}
        self._files.write(f"{LOCKS}/{self._name}", json.dumps(told))
        gone, living = [], ""
        for name in self._files.listed(LOCKS):
            if name != self._name and not living:
                living = self._who(name)
                gone += [] if living else [f"{LOCKS}/{name}"]
        if living:
            self.give_back()
            raise PipelineError(f"{self._files.root} is being written by {living}. One at a time: wait for it; if it "
                                "is gone for sure, add --break-lock")
        self._files.remove(gone)

    def _who(self, name: str) -> str:
        """Who has a lock, in words; "" when nobody has it any more."""
        try:
            told = parse_json(self._files.read([f"{LOCKS}/{name}"])[f"{LOCKS}/{name}"], name)
            host, pid, started = str(told["host"]), int(told["pid"]), float(told["started"])
        except PipelineError:
            return "" if name not in self._files.listed(LOCKS) else f"somebody (lock {name} can't be read)"
        except (ArithmeticError, KeyError, TypeError, ValueError):
            return f"somebody (lock {name} is damaged)"
        if not 0 < pid < 1 << 31:
            return f"somebody (lock {name} is damaged)"
        if host == os.uname().nodename and not _is_alive(pid, started):
            return ""
        return f"process {pid} on {host} ({told.get('what')}) since {told.get('since')}"

    def check(self) -> None:
        """PipelineError when somebody has taken the lock away."""
        if self._name not in self._files.listed(LOCKS):
            raise PipelineError(f"{self._files.root}: somebody broke the lock of this process, so what it did does not "
                                "count")

    def give_back(self) -> None:
        """Let others write."""
        self._files.remove([f"{LOCKS}/{self._name}"])


def _is_alive(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < 1 and pid != os.getpid()
    except psutil.NoSuchProcess:
        return False
