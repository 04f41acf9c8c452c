"""The log files of a cluster's servers: lines with their level and time, the last ones, and those that come.

Start what does not run of a cluster, in good order: the name server, a controller, the masters, the slaves.

The commands `rmqha up`, `down` and `ps`: a cluster on this host that stays.

A whole cluster on this host, in a folder of its own, that ends with its program: for the quickstart.

The folder is one that `rmqha up` can start again.
"""
from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from rmqha.common.configuration import read_config_file
from rmqha.common.mix_all import NAMESRV_ADDR_ENV
from rmqha.tools.cluster import layout, processes
from rmqha.tools.cluster import layout as cluster_folder
from rmqha.tools.cluster import layout as ports
from rmqha.tools.cluster.layout import (
    CONTROLLER,
    DIR_ENV,
    HOST,
    MAX_MASTERS,
    MAX_SLAVES,
    NAMESRV,
    NORMAL,
    PORTS_PER_BROKER,
    REPLICA,
    SMALL,
    SMALL_FILES,
    ClusterError,
    Layout,
    Node,
)
from rmqha.tools.cluster.processes import NodeState, Observer, State
from rmqha.tools.terminal import cell, duration_type, emit, output_option, put, render_table, size_text

LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
OUTPUT = "out"  # names, among the log files, what the server prints
# Files that tell each minute that nothing is wrong; they are read when they are asked for.
QUIET_FILES = {"stats", "watermark", "commercial", "protection"}
_ENTRY = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*) (?:(DEBUG|INFO|WARN|ERROR) )?")
_JSON_LEVEL = re.compile(r'"level":\s*"(\w+)"')
_JSON_TIME = re.compile(r'"(?:time|timestamp|ts)":\s*"([^"]+)"')
_READ_BACK = 4 << 20  # bytes of each file that are looked through for its last lines
_SHORT_END = 15  # lines of a log that an error shows


@dataclass
class Entry:
    """A log line with what follows it (a traceback), whose it is, and at which time as it stands there."""

    node: str
    time: str
    level: str | None
    lines: list[str] = field(default_factory=list)

    def is_at_least(self, level: str | None) -> bool:
        """Whether it is as grave as `level`; a line without one is nothing grave."""
        return level is None or self.level is not None and LEVELS.index(self.level) >= LEVELS.index(level)


class EntryReader:
    """Makes entries of lines, in order; the last one is complete only when the next begins."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._open: Entry | None = None

    def feed(self, lines: Iterable[str]) -> Iterator[Entry]:
        """The entries that `lines` complete."""
        for line in lines:
            begun = self._begin(line)
            if begun is None:
                if self._open is None:
                    self._open = Entry(self._node, "", None)
                self._open.lines.append(line)
                continue
            yield from self.flush()
            self._open = begun

    def flush(self) -> Iterator[Entry]:
        """The last entry, as far as it has come."""
        if self._open is not None:
            yield self._open
        self._open = None

    def _begin(self, line: str) -> Entry | None:
        if line.startswith("{"):
            level, time = _JSON_LEVEL.search(line), _JSON_TIME.search(line)
            if level and level[1] in LEVELS:
                return Entry(self._node, time[1] if time else "", level[1], [line])
        found = _ENTRY.match(line)
        return Entry(self._node, found[1], found[2], [line]) if found else None


def log_files(node: Node, names: tuple[str, ...]) -> list[Path]:
    """A server's log files: those named (without .log), else all but the quiet ones."""
    if names:
        return [node.output_file if name == OUTPUT else node.log_folder / f"{name}.log" for name in names]
    return sorted(file for file in node.log_folder.rglob("*.log")
                  if file.stem not in QUIET_FILES and "otherdays" not in file.parts)


def check_names(nodes: Iterable[Node], names: tuple[str, ...]) -> None:
    """ClusterError for the name of a log file that no server has."""
    known = {OUTPUT, *(file.stem for node in nodes for file in node.log_folder.rglob("*.log"))}
    for name in names:
        if name not in known:
            raise ClusterError(f"--file {name}: there is no such log; there are {', '.join(sorted(known))}")


def last_entries(node: Node, names: tuple[str, ...], level: str | None, count: int) -> list[Entry]:
    """The last `count` entries of a server's files, by their times."""
    entries: list[Entry] = []
    for file in log_files(node, names):
        reader = EntryReader(node.name)
        wanted = [entry for part in (reader.feed(_last_lines(file)), reader.flush()) for entry in part
                  if entry.is_at_least(level)]
        entries += wanted[-count:]
    return sorted(entries, key=lambda entry: entry.time)[-count:]


def _last_lines(file: Path) -> list[str]:
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            begin = opened.seek(max(0, size - _READ_BACK))
            lines = opened.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[1:] if begin else lines


def end_of_logs(node: Node) -> str:
    """For errors: the last lines of a server's output and log, and where they are."""
    printed = node.tail().splitlines()[-_SHORT_END:]
    parts = [f"--- {node.output_file}", *printed]
    logged = [line for entry in last_entries(node, (), None, _SHORT_END) for line in entry.lines][-_SHORT_END:]
    if logged:
        parts += [f"--- {node.log_folder}", *logged]
    return "\n".join(parts)


class Follower:
    """Gives what is appended to a file from now on, also when it is rolled or appears later. `close` at the end."""

    def __init__(self, node: Node, file: Path) -> None:
        self._file = file
        self._reader = EntryReader(node.name)
        self._opened = self._open()
        self._partial = b""
        if self._opened is not None:
            self._opened.seek(0, os.SEEK_END)

    def _open(self) -> BinaryIO | None:
        try:
            return open(self._file, "rb")
        except FileNotFoundError:
            return None

    def poll(self) -> list[Entry]:
        """The entries since the last call. A line that comes later is an entry of its own."""
        data = self._opened.read() if self._opened is not None else b""
        if self._is_another_file():
            self.close()
            self._opened = self._open()
            data += self._opened.read() if self._opened is not None else b""
        *lines, self._partial = (self._partial + data).split(b"\n")
        entries = self._reader.feed(line.decode("utf-8", "replace") for line in lines)
        return [*entries, *self._reader.flush()]

    def _is_another_file(self) -> bool:
        try:
            status = self._file.stat()
        except FileNotFoundError:
            return False
        return self._opened is None or os.fstat(self._opened.fileno()).st_ino != status.st_ino

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()


_LOOK_S = 0.05
# A slave that comes before its master, or a master before the name server, has to try again, seconds later: so each
# group is given some time even when nobody asked to wait.
PATIENCE_S = 5.0
_GOOD_ENOUGH = (State.RUNNING, State.NOT_CONNECTED)


class BringUp:
    """One `rmqha up`. `tell` is called with a line for each server that is started."""

    def __init__(self, layout: Layout, tell: Callable[[str], None]) -> None:
        self._layout = layout
        self._tell = tell
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, wait: bool, timeout_s: float) -> None:
        """Start, and with `wait` until all brokers are registered and all slaves connected.

        ClusterError when a server ends, or when waiting takes longer than `timeout_s`, with the end of its log.
        """
        missing = [node for node in self._layout.nodes if processes.find(node) is None]
        ports.check_free(missing)
        deadline = time.monotonic() + timeout_s
        with Observer(self._layout) as observer:
            groups = self._layout.start_groups  # before there is a store
            for group in groups:
                for node in group:
                    if node in missing:
                        self._start(node)
                if wait:
                    self._wait(observer, group, deadline)
                elif missing:
                    self._give_time(observer, group)
        self._check_lives()

    def _start(self, node: Node) -> None:
        self._started[node.name] = process = processes.start(node)
        self._tell(f"started {node.name}, {node.role}, {node.address}, pid {process.pid}")

    def _wait(self, observer: Observer, group: Sequence[Node], deadline: float) -> None:
        for node in group:
            while (state := observer.state_of(node).state) is not State.RUNNING:
                self._check_lives()
                if time.monotonic() > deadline:
                    raise ClusterError(f"waited in vain for {node.name} ({node.address}): it is {state}. Give it more "
                                       f"time with --timeout, or read why:\n{end_of_logs(node)}")
                time.sleep(_LOOK_S)

    def _give_time(self, observer: Observer, group: Sequence[Node]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self._check_lives()
            if all(observer.state_of(node).state in _GOOD_ENOUGH for node in group):
                return
            time.sleep(_LOOK_S)

    def _check_lives(self) -> None:
        for node in self._layout.nodes:
            process = self._started.get(node.name)
            code = None if process is None else process.poll()
            if code is not None:
                raise ClusterError(f"{node.name} has ended with code {code}; the others go on (`rmqha ps`). The end of "
                                   f"its output and log:\n{end_of_logs(node)}")


log = logging.getLogger("RocketmqTools")

F = TypeVar("F", bound=Callable[..., Any])

_HEADINGS = ("name", "role", "address", "pid", "state", "memory", "store")
_LOWEST_PORT = 1024


def folder_options(command: F) -> F:
    """--dir and --name: which cluster."""
    for option in (
            click.option("--name", help="A cluster by its name: a folder below $XDG_DATA_HOME/rmqha or "
                                        "~/.local/share/rmqha; `default` by default."),
            click.option("--dir", "folder", metavar="DIR",
                         help=f"A cluster by its folder; without --dir and --name that of ${DIR_ENV}, if it is set.")):
        command = option(command)
    return command


def chosen_folder(folder: str | None, name: str | None) -> Path:
    """The folder of --dir, --name and the environment."""
    if folder is not None and name is not None:
        raise click.UsageError("give either --dir or --name: a name is short for a folder")
    return cluster_folder.chosen(folder, name)


@click.command("up")
@folder_options
@click.option("--masters", type=click.IntRange(1, MAX_MASTERS), help="How many masters.  [default: 2]")
@click.option("--slaves", type=click.IntRange(0, MAX_SLAVES), help="How many slaves each master has.  [default: 1]")
@click.option("--sync/--async", "sync", default=None,
              help="Whether a master waits for a slave before it answers.  [default: --sync; --async with --slaves 0]")
@click.option("--auto-failover/--no-auto-failover", "auto_failover", default=None,
              help="Whether a controller decides which of a master and its slaves is the master, and chooses another "
                   "when that one is lost.  [default: --no-auto-failover]")
@click.option("--memory", type=click.Choice([SMALL, NORMAL]),
              help="small: small files, nothing allocated before it is needed; normal: RocketMQ's defaults, 1 GiB a "
                   "commit log file.  [default: small]")
@click.option("--metrics/--no-metrics", "metrics", default=None,
              help="Whether each server tells Prometheus its metrics, at a port of its own.  [default: --no-metrics]")
@click.option("--port", type=click.IntRange(_LOWEST_PORT, 65_535), metavar="BASE",
              help="The name server's port; brokers take those above, 4 each. By default free ones, chosen once.")
@click.option("--wait", is_flag=True, help="Return when all brokers are registered and all slaves connected.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, type=duration_type(0.1),
              help="Seconds that --wait may take.")
@click.option("--print-env", is_flag=True,
              help=f"Print only the lines `export {NAMESRV_ADDR_ENV}=...` and `export {DIR_ENV}=...`, quoted for a "
                   "shell: eval \"$(rmqha up --wait --print-env)\".")
@output_option
def up_command(folder: str | None, name: str | None, masters: int | None, slaves: int | None, sync: bool | None,
               auto_failover: bool | None, memory: str | None, metrics: bool | None, port: int | None, wait: bool,
               timeout_s: float, print_env: bool, output: str) -> None:
    """Start a cluster on this host that stays, or what does not run of it.

    It outlives this terminal. After `rmqha down` or a crash of the host the next `rmqha up` starts it again, with its
    data and on the same ports. The options from --masters to --port count when it is made.
    """
    path = chosen_folder(folder, name)
    wanted = {key: value for key, value in (("masters", masters), ("slaves", slaves), ("sync", sync),
                                            ("memory", memory), ("metrics", metrics),
                                            ("auto_failover", auto_failover)) if value is not None}
    cluster_folder.check_ours_or_empty(path)
    with cluster_folder.locked(path):
        layout = cluster_folder.make_or_load(path, wanted, port)
        BringUp(layout, lambda line: click.echo(line, err=True)).run(wait, timeout_s)
    exports = {NAMESRV_ADDR_ENV: layout.namesrv.address, DIR_ENV: str(path)}
    if print_env:
        _put_exports(exports)
        return
    _print_states(_states(layout), output)
    if output == "table":
        if path == cluster_folder.chosen(None, None):  # `ps`, `logs` and `down` find it without the variable
            del exports[DIR_ENV]
        put("")
        _put_exports(exports)


def _put_exports(variables: dict[str, str]) -> None:
    """Print a command a line that sets a variable, for this shell and for what it starts."""
    for name, value in variables.items():
        put(f"export {name}={shlex.quote(value)}")


@click.command("down")
@folder_options
@click.option("--purge", is_flag=True,
              help="Delete the folder too, with all data. On a terminal it asks first, unless --dir, --name or --yes "
                   "is given.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, type=duration_type(0),
              help="Seconds that servers may take to end, before they are killed.")
def down_command(folder: str | None, name: str | None, purge: bool, yes: bool, timeout_s: float) -> None:
    """Stop a cluster: the slaves, the masters, the name server; a controller first. Its data stays."""
    path = chosen_folder(folder, name)
    shape = cluster_folder.load(path).shape
    if purge:
        _announce_purge(path, f"{shape}", ask=folder is None and name is None and not yes)
    with cluster_folder.locked(path):
        layout = cluster_folder.load(path)
        killed = []
        for group in layout.stop_groups:
            for node, result in processes.stop(group, timeout_s).items():
                put(f"{node} {result}")
                killed += [node] if result == "killed" else []
        if purge:
            cluster_folder.purge(path)
            put(f"deleted {path}")
    if killed:
        click.echo(f"{', '.join(killed)} did not end within {timeout_s:g} s and had to be killed; the next start looks "
                   "over the end of the log", err=True)


def _announce_purge(path: Path, shape: str, ask: bool) -> None:
    """Name the folder that is about to be deleted; with `ask`, and somebody at a terminal, ask before.

    click.Abort when the answer is no.
    """
    found = f"the cluster in {path} ({shape})"
    if ask and sys.stdin.isatty():
        click.confirm(f"Stop {found}, and delete it with all data?", abort=True, err=True)
    else:
        click.echo(f"deleting {found} with all data", err=True)


@click.command("ps")
@folder_options
@output_option
def ps_command(folder: str | None, name: str | None, output: str) -> None:
    """Show the servers of a cluster: role, address, pid, state, memory (RSS), store folder.

    Exit code 1 when one of them does not do what it should.
    """
    states = _states(cluster_folder.load(chosen_folder(folder, name)))
    _print_states(states, output)
    if any(each.state is not State.RUNNING for each in states):
        raise SystemExit(1)


def _states(layout: Layout) -> list[NodeState]:
    with Observer(layout) as observer:
        return observer.states()


def _print_states(states: list[NodeState], output: str) -> None:
    if output == "table":
        put(render_table(_HEADINGS, [_cells(each) for each in states], {"pid", "memory"}))
        return
    nodes = [{"name": each.node.name, "role": each.role, "address": each.node.address, "pid": each.pid,
              "state": each.state.value, "rss": each.rss, "store": str(each.node.store),
              "config": str(each.node.config_file), "logs": str(each.node.log_folder),
              "metricsPort": each.node.metrics_port} for each in states]
    value = {NAMESRV_ADDR_ENV: states[0].node.address, "dir": str(states[0].node.folder), "nodes": nodes}
    emit(value, output)


def _cells(each: NodeState) -> tuple[str, ...]:
    return (each.node.name, each.role, each.node.address, str(each.pid or ""), each.state.value,
            size_text(each.rss) if each.rss is not None else "", cell(str(each.node.store)))


STOP_TIMEOUT_S = 15


@dataclass
class Server(Node):
    """One server, and its process while it runs."""

    command: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.command = self.start_command()


class LocalCluster:
    """A name server, and one broker for each file of a conf folder, with ports and store folders of their own.

        with LocalCluster(Path("conf/2m-2s-sync"), Path("/tmp/play"), first_port=21000) as cluster:
            cluster.start(cluster.name_server)
            for broker in cluster.brokers:
                cluster.start(broker)

    Where the files have enableControllerMode=true there is a controller, too. On leaving all processes are ended.
    """

    def __init__(self, conf_folder: Path, folder: Path, first_port: int) -> None:
        files = sorted(conf_folder.glob("*.properties"))
        if not files:
            raise ClusterError(f"no .properties files in {conf_folder}")
        self.folder = folder
        self.segment_size = SMALL_FILES["mappedFileSizeCommitLog"]
        self.name_server = Server(folder, "namesrv", NAMESRV, first_port)
        last_port = first_port + (len(files) + 1) * PORTS_PER_BROKER
        self.controller = Server(folder, "controller", CONTROLLER, last_port) if any(map(_is_controlled, files)) else (
            None)
        self.brokers = [self._broker(file, first_port + (index + 1) * PORTS_PER_BROKER, index)
                        for index, file in enumerate(files)]
        first = (self.name_server, *filter(None, [self.controller]))
        whole = Layout((*first, *self.brokers), layout.SMALL)
        for server in first:
            layout.write_config(server, layout.properties_of(server, whole))
        layout.write(folder, whole)

    @staticmethod
    def ports_needed(conf_folder: Path) -> int:
        """How many ports in a row a cluster of this conf folder takes."""
        files = list(conf_folder.glob("*.properties"))
        return (1 + len(files) + any(map(_is_controlled, files))) * PORTS_PER_BROKER

    @property
    def masters(self) -> list[Server]:
        """The brokers that take messages."""
        return [broker for broker in self.brokers if broker.role != "SLAVE"]

    @property
    def slaves(self) -> list[Server]:
        """The brokers that copy."""
        return [broker for broker in self.brokers if broker.role == "SLAVE"]

    def _broker(self, file: Path, port: int, index: int) -> Server:
        properties: dict[str, object] = dict(read_config_file(str(file)))
        name, role, broker_id = (str(properties[key]) for key in ("brokerName", "brokerRole", "brokerId"))
        server = Server(self.folder, file.stem, role, port, name, int(broker_id))
        if self.controller is not None:
            server.role, server.broker_id = REPLICA, index
            properties["controllerAddr"] = self.controller.address
        layout.write_config(server, properties | SMALL_FILES | layout.QUICK | {
            "namesrvAddr": self.name_server.address,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "listenPort": port,
            "storePathRootDir": server.store,
            "storePathCommitLog": server.commit_log,
        })
        return server

    def start(self, server: Server) -> None:
        """Start a server's process; its home is the cluster's folder."""
        with open(server.output_file, "ab") as output:
            server.process = subprocess.Popen(
                server.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=server.environment(), cwd=self.folder, start_new_session=True)

    def check_alive(self) -> None:
        """ClusterError when a process that was started has ended by itself."""
        for server in [self.name_server, *filter(None, [self.controller]), *self.brokers]:
            code = server.process.poll() if server.process is not None else None
            if code is not None:
                raise ClusterError(f"{server.name} ended with code {code}; it printed:\n{server.tail()}")

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for a condition (`what`, for people); ClusterError when time is over or a server ends meanwhile."""
        deadline = time.monotonic() + timeout_s
        while not predicate():
            self.check_alive()
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout_s:.0f} s in vain for: {what}")
            time.sleep(0.05)

    def kill(self, server: Server) -> None:
        """End a server as a crash does: SIGKILL."""
        if server.process is not None:
            server.process.kill()
            server.process.wait()
            server.process = None

    def stop(self) -> None:
        """End all: slaves first, the name server last; what does not end within 15 s is killed. Idempotent."""
        controllers = [self.controller] if self.controller is not None else []
        for group in (controllers, self.slaves, self.masters, [self.name_server]):
            running = [(server, server.process) for server in group if server.process is not None]
            for _server, process in running:
                process.send_signal(signal.SIGTERM)
            for server, process in running:
                self._wait_for_end(server, process)

    def pairs(self) -> list[tuple[Server, Server]]:
        """Each slave with its master: (master, slave)."""
        return [(master, slave) for master in self.masters for slave in self.slaves
                if slave.broker_name == master.broker_name]

    def _wait_for_end(self, server: Server, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(STOP_TIMEOUT_S)
            server.process = None
        except subprocess.TimeoutExpired:
            self.kill(server)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_controlled(file: Path) -> bool:
    return read_config_file(str(file)).get("enableControllerMode") == "true"
