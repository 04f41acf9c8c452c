"""Commands of ours in processes forked from one that has imported them: 0.05 s of CPU instead of 0.3 to 0.6 s.

    a test's process --module, arguments, environment, folder; its output, a pipe--> warm process --fork--> the command
                     <-- the pipe: process id, at last the exit status ------------

The warm process serves this process, one request at a time, and ends with it; its children end with it. A command that
is about starting (its environment, its time, the interpreter's options) is started normally: see `can_be_warm`.
"""
import contextlib
import gc
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from tests.support import patience, start_as

_ROOT = str(Path(__file__).resolve().parents[2])
MODULES = (
    "rmqha.namesrv.namesrv_startup", "rmqha.broker.broker_startup", "rmqha.controller.controller_startup",
    "rmqha.tools.rmqha_command", "rmqha.tools.command.mq_admin_startup")
# Variables that the interpreter, the C library or a module of ours reads when it is loaded.
_READ_AT_START = re.compile("PYTHON|LD_|MALLOC_|GLIBC_|JAVA|rocketmq[._]|ROCKETMQ_(?!HOME)")
_SAME_EITHER_WAY = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE"}
_REQUEST_BYTES = 1 << 20
_ORPHAN_S = 5.0
_CTRL_C = signal.getsignal(signal.SIGINT)


_is_off = False


def switch_off() -> None:
    """Start each server as its users do from now on: for measurements that include the start and the memory."""
    global _is_off
    _is_off = True


def can_be_warm(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a fork does the same as the command: `python -m MODULE ...` of this checkout with this
    interpreter."""
    if _is_off or tuple(command[:2]) != (sys.executable, "-m") or command[2] not in MODULES:
        return False
    if _ROOT not in env.get("PYTHONPATH", _ROOT).split(os.pathsep)[:1]:
        return False
    return all(env.get(name) == os.environ.get(name) for name in {*env, *os.environ}
               if _READ_AT_START.match(name) and name not in _SAME_EITHER_WAY)


class WarmProcess:
    """One running command, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, pipe: socket.socket, args: Sequence[str]) -> None:
        self.args = args
        self.returncode: int | None = None
        self._pipe = pipe
        self._lock = threading.Lock()
        self.pid = int(pipe.recv(64) or b"0")
        if not self.pid:
            raise RuntimeError("the warm process has ended")

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; subprocess.TimeoutExpired if it does not end in time."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                poller = select.poll()  # select() accepts no descriptor above 1,023
                poller.register(self._pipe, select.POLLIN)
                if poller.poll(None if timeout is None else timeout * 1000):
                    said = self._pipe.recv(64)
                    self._pipe.recv(64)  # its end: the process is reaped
                    # Without a status the warm process was ended, and its children with it.
                    self.returncode = int(said) if said else -signal.SIGKILL
                    self._pipe.close()
            return self.returncode


class _Warm:
    """The warm process of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()  # a fork of this process starts its own
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        env = {**os.environ, "PYTHONPATH": _ROOT, "PYTHONUNBUFFERED": "1"}
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(its.fileno()), str(os.getpid())], env=env, cwd="/",
                pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def start(self, command: Sequence[str], env: Mapping[str, str], folder: Path, out: int, err: int,
              end_with: int) -> WarmProcess:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([command[2:], dict(env), str(folder), end_with, patience.is_patient()]).encode()
        with its:
            socket.send_fds(self._socket, [request], [its.fileno(), out, err])
        return WarmProcess(ours, command)


_lock = threading.Lock()
_warm: _Warm | None = None


def start(command: Sequence[str], env: Mapping[str, str], folder: Path, out: int, err: int,
          end_with: int = signal.SIGKILL) -> WarmProcess:
    """Start a command for which `can_be_warm` is true, in its own session, with output to the descriptors `out` and
    `err` and no input. It gets the signal `end_with` (0: none) when this process ends."""
    global _warm
    with _lock:
        if _warm is None or _warm.pid != os.getpid() or not _warm.is_alive:
            _warm = _Warm()
        return _warm.start(command, env, folder, out, err, end_with)


def run(command: Sequence[str], env: Mapping[str, str], folder: Path,
        timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a command for which `can_be_warm` is true to its end, as subprocess.run does with captured text."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(command, env, folder, out.fileno(), err.fileno())
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(command), code, out.read().decode(), err.read().decode())


def _serve(control: socket.socket, parent: int) -> list[str]:
    """Fork for each request until the parent has ended. Returns in the children: the module and its arguments."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pipes: dict[int, socket.socket] = {}
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(woken, select.POLLIN)
    while os.getppid() == parent:
        for fd, _event in poller.poll(_ORPHAN_S * 1000):
            if fd == woken:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
                _tell_ends(pipes)
                continue
            request, fds, _flags, _address = socket.recv_fds(control, _REQUEST_BYTES, 3)
            if not request:
                return _end()
            words, env, folder, end_with, is_patient = json.loads(request)
            pipe = socket.socket(fileno=fds[0])
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for each in (control, pipe, *pipes.values()):
                    each.close()
                os.close(woken)
                os.close(wake)
                _become(env, folder, fds[1:], end_with)
                patience.be_patient(is_patient and words[0].startswith("rmqha.tools."))
                return words
            os.close(fds[1])
            os.close(fds[2])
            pipes[pid] = pipe
            _say(pipe, pid)
    return _end()


def _tell_ends(pipes: dict[int, socket.socket]) -> None:
    """Report the exit statuses of children before they are reaped: until then no other process can have their
    process ids."""
    while pipes:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with pipes.pop(ended.si_pid) as pipe:
            _say(pipe, status)
            os.waitpid(ended.si_pid, 0)


def _say(pipe: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nothing reads it
        pipe.send(b"%d" % number)


def _end() -> NoReturn:
    """End this process, and the children that have to end with it."""
    sys.exit(0)


def _become(env: dict[str, str], folder: str, outputs: list[int], end_with: int) -> None:
    """Set up a new process: its session, signals, environment, folder and files."""
    if end_with:
        start_as.end_with_parent(end_with)
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, _CTRL_C)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(folder)
    for target, fd in zip((1, 2), outputs):
        os.dup2(fd, target)
    for fd in outputs:
        os.close(fd)


def _run(words: list[str]) -> None:
    """Run `python -m MODULE ...`."""
    module = words[0]
    sys.argv = words
    sys.modules.pop(module, None)  # otherwise runpy warns that it is already loaded
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for _module in MODULES:
        import_module(_module)
    with socket.socket(fileno=int(sys.argv[1])) as _control:
        gc.collect()
        gc.freeze()
        _words = _serve(_control, int(sys.argv[2]))
    gc.enable()
    _run(_words)
