"""Brokers and name servers of the real RocketMQ side by side in one JVM: a start costs 0.2 s of CPU instead of 2 s.

    a test's process --"start", number, kind, config file--> Host (java/host) --its own threads--> the server
                     <--number, request, error---------------------

A process has one such JVM per version, which ends with it. A server in it can only be stopped in order. A server that a
test kills to see the effect, signals, measures, or starts with its own environment runs in a separate process, which is
the default.
"""
import atexit
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from tests.support import real_rocketmq
from tests.support.start_as import killed_with_parent

_MAIN = "org.rmqha.host.Host"
_WHAT = {real_rocketmq.NAMESRV: "namesrv", real_rocketmq.BROKER: "broker"}
_STARTS = 60  # per JVM; the remains of its servers add up
_TERMINATED = 143


class _Start(NamedTuple):
    version: str
    what: str
    config: str


def _start_of(command: Sequence[str], env: Mapping[str, str]) -> _Start | None:
    """Return what a command starts, or None if a separate process has to run it."""
    if len(command) < 3 or command[-2] != "-c" or command[-3] not in _WHAT or os.environ.get("RMQHA_JAVA_OPTIONS"):
        return None
    if env.get("JAVA_TOOL_OPTIONS") or env.get("RMQHA_JAVA_LOG_LEVEL") != os.environ.get("RMQHA_JAVA_LOG_LEVEL"):
        return None
    classes = command[command.index("-cp") + 1]
    version = real_rocketmq.VERSION_5 if f"rocketmq-{real_rocketmq.VERSION_5}" in classes else real_rocketmq.VERSION
    if version == real_rocketmq.VERSION and env.get("ROCKETMQ_HOME") != real_rocketmq.home():
        return None
    return _Start(version, _WHAT[command[-3]], command[-1])


def can_host(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a server that `command` starts may share a JVM."""
    return _start_of(command, env) is not None


class HostedServer:
    """One server in the JVM, with the part of subprocess.Popen's interface that tests use for a server that stops in
    order."""

    def __init__(self, host: "_Host", number: str, args: Sequence[str]) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self.started = threading.Event()
        self.ended = threading.Event()
        self.wrong = ""  # the error of a start or an end; written before the event is set
        self._host, self._number = host, number

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._host.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        if self.returncode is None:
            if self.ended.is_set():
                self.returncode = _TERMINATED
            elif self.wrong or self._host.is_gone:
                self.returncode = 1
        return self.returncode

    def has_started(self) -> bool:
        """Return whether it serves; AssertionError if its start has failed."""
        assert self.started.is_set() or self.poll() is None, f"{self.args[-1]}: {self.wrong or self.tail()}"
        return self.started.is_set()

    def tail(self) -> str:
        """Return the latest output of the servers in this JVM."""
        return self._host.tail()

    def wait_ended(self) -> None:
        """Wait until its files and its port are free."""
        assert self.ended.wait(240) or self._host.is_gone, f"{self.args[-1]} does not end: {self.tail()}"

    def terminate(self) -> None:
        """Start its shutdown, without waiting."""
        if self.poll() is None:
            self._host.ask(self._number, "end", self._number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; subprocess.TimeoutExpired if it does not end in time."""
        if not self.ended.wait(timeout) and self.poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.poll() or 0

    def kill(self) -> None:
        """Shut it down in the background, because the test is done with it. A later start on its store waits for
        that."""
        self.terminate()
        self.returncode = _TERMINATED

    def send_signal(self, _number: int) -> None:
        raise AssertionError("a server in a JVM with others gets no signals: give it a process of its own")


class _Host:
    """One JVM and its servers."""

    def __init__(self, version: str) -> None:
        folder = Path(mkdtemp(prefix="rmqha-java-host-"))
        self.output_file, self.starts = folder / "out", 0
        command, env = real_rocketmq.host_command(version, folder, _MAIN)
        with open(self.output_file, "ab") as out:
            self._process = subprocess.Popen(
                killed_with_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True,
                encoding="utf-8", cwd=folder, env={**os.environ, **env}, start_new_session=True)
        self.pid = self._process.pid
        self.is_gone = False
        self._lock = threading.Lock()
        self._servers: dict[str, HostedServer] = {}  # guarded by _lock
        threading.Thread(target=self._read, name=f"java-host-{version}", daemon=True).start()

    def start(self, start: _Start, args: Sequence[str]) -> HostedServer:
        self.starts += 1
        number = str(self.starts)
        server = HostedServer(self, number, args)
        with self._lock:
            self._servers[number] = server
        self.ask(number, "start", number, start.what, start.config)
        return server

    def ask(self, number: str, *words: str) -> None:
        try:
            with self._lock:
                self._process.stdin.write("\t".join(words) + "\n")
                self._process.stdin.flush()
        except (OSError, ValueError):
            self._gone()

    def _read(self) -> None:
        for line in self._process.stdout:
            number, asked, wrong = line.rstrip("\n").split("\t")
            with self._lock:
                server = self._servers[number]
                if asked == "end":
                    del self._servers[number]
            server.wrong = wrong.replace("\r", "\n")
            if asked == "end":
                server.ended.set()
            elif not wrong:
                server.started.set()
        self._gone()

    def _gone(self) -> None:
        self.is_gone = True
        with self._lock:
            servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            server.wrong = server.wrong or f"the JVM has ended: {self.tail()}"

    def is_full(self) -> bool:
        """True if the next server gets a new JVM; this one ends with its last server."""
        return self.is_gone or self.starts >= _STARTS

    def tail(self) -> str:
        """Return the last few kilobytes of its servers' output."""
        return self.output_file.read_text("utf-8", "replace")[-6000:]

    def end(self) -> None:
        self._process.kill()
        self._process.wait(240)


_HOSTS: dict[str, _Host] = {}


def start(command: Sequence[str], env: Mapping[str, str]) -> HostedServer:
    """Start a server for which `can_host` returns True."""
    start = _start_of(command, env)
    assert start is not None, command
    host = _HOSTS.get(start.version)
    if host is None or host.is_full():
        host = _HOSTS[start.version] = _Host(start.version)
        atexit.register(host.end)
    return host.start(start, command)
