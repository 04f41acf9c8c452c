"""Processes of tests: servers of rmqha until they report that they run, and forked code."""
import json
import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.support import java_host, start_as, warm
from tests.support.wait import wait_until

# Code that runs in a forked process.

_LIMIT_S = 120


def in_forked_process(work: Callable[[], Any]) -> Any:
    """Return the result of `work`, which has to be JSON, from a forked process. AssertionError if it hangs."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking a process with threads, which is intended
        pid = os.fork()
    if pid == 0:
        _run_and_exit(work, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, f"the forked process ended with {status} (a negative number is a signal): {said.decode()}"
    return json.loads(said)


def _run_and_exit(work: Callable[[], Any], write_end: int) -> None:
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LIMIT_S)
        said = json.dumps(work())
        status = 0
    except BaseException:
        said = traceback.format_exc()
    os.write(write_end, said.encode())
    os._exit(status)


# The commands of rmqha's own name server and broker: processes of this interpreter, or those of another checkout.

_ROOT = Path(__file__).resolve().parents[2]


class Checkout:
    """The servers of the sources in `root`."""

    def __init__(self, root: Path, python: str) -> None:
        self._root = root
        self._python = python

    def namesrv_command(self, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of a name server."""
        return self._command("rmqha.namesrv.namesrv_startup", config_file, folder)

    def broker_command(self, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of a broker; it finds the name server in its file."""
        return self._command("rmqha.broker.broker_startup", config_file, folder)

    def controller_command(self, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of a controller."""
        return self._command("rmqha.controller.controller_startup", config_file, folder)

    def _command(self, module: str, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        env = {"HOME": str(folder), "PYTHONPATH": str(self._root), "PYTHONUNBUFFERED": "1",
               "ROCKETMQ_HOME": str(folder)}
        return [self._python, "-m", module, "-c", str(config_file)], env


OURS = Checkout(_ROOT, sys.executable)


def before() -> Checkout:
    """Return the checkout that RMQHA_BEFORE names, see tests.bench."""
    root = Path(os.environ["RMQHA_BEFORE"]).resolve()
    return Checkout(root, str(root / ".venv" / "bin" / "python"))


# A server process of a test: started until it reports so, killed reliably, its output kept for the failure report.

_TAIL_BYTES = 6000


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, even if it is not reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class ServerProcess:
    """One command that can be started repeatedly; stdout and stderr are appended to `<folder>/<name>.out`.

    A server of ours is forked from a warm process, see `warm`. A test of a server's start sets `warm_start` to False.
    A server of the real RocketMQ may share a JVM with others unless it is killed to test that, see `java_host`.
    """

    def __init__(self, name: str, command: list[str], folder: Path, ready: str, env: dict[str, str] | None = None,
                 warm_start: bool = True, shared_jvm: bool = False):
        self.warm_start, self.shared_jvm = warm_start, shared_jvm
        self.name = name
        self.command = command
        self.ready = ready
        self.output_file = folder / f"{name}.out"
        self.process: subprocess.Popen | warm.WarmProcess | java_host.HostedServer | None = None
        self._env = {**os.environ, **(env or {})}
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, timeout_ms: int = 60_000) -> "ServerProcess":
        """Start and wait for the ready text; AssertionError with the output if the process ends before."""
        begin = self.launch()
        wait_until(lambda: self._is_ready(begin), timeout_ms, f"{self.name}: {self.ready!r} on stdout")
        return self

    def launch(self) -> int:
        """Start without waiting; return the position in the output file where this run's output begins."""
        assert not self.is_alive, f"{self.name} is already running"
        if isinstance(self.process, java_host.HostedServer):
            self.process.wait_ended()
        with open(self.output_file, "ab") as out:
            begin = out.tell()
            if self.shared_jvm and java_host.can_host(self.command, self._env):
                self.process = java_host.start(self.command, self._env)
                return begin
            if self.warm_start and warm.can_be_warm(self.command, self._env):
                self.process = warm.start(self.command, self._env, self._folder, out.fileno(), out.fileno())
                return begin
            self.process = subprocess.Popen(
                start_as.killed_with_parent(self.command), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env=self._env, cwd=self._folder, start_new_session=True)
        return begin

    def _is_ready(self, begin: int) -> bool:
        if isinstance(self.process, java_host.HostedServer):
            return self.process.has_started()
        text = self.output(begin)
        if self.ready in text:
            return True
        code = self.process.poll()
        assert code is None, f"{self.name} ended with code {code}:\n{text[-_TAIL_BYTES:]}"
        return False

    @property
    def is_alive(self) -> bool:
        """True if the process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        return self.process.pid

    def output(self, begin: int = 0) -> str:
        """Return its output from byte `begin` on."""
        if not self.output_file.exists():
            return ""
        with open(self.output_file, "rb") as out:
            out.seek(begin)
            return out.read().decode("utf-8", "replace")

    def tail(self) -> str:
        """Return the last few kilobytes of its output."""
        if isinstance(self.process, java_host.HostedServer):
            return self.process.tail()
        return self.output()[-_TAIL_BYTES:]

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self.is_alive:
            self.process.kill()
            self.process.wait(240)

    def stop(self, timeout_s: float = 240) -> int | None:
        """Send SIGTERM and wait; return the exit code. SIGKILL and AssertionError if it does not end in time."""
        if not self.is_alive:
            return self.process.returncode if self.process else None
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {timeout_s} s of SIGTERM") from None

    def rss_bytes(self) -> int:
        """Return its resident memory."""
        return psutil.Process(self.pid).memory_info().rss
