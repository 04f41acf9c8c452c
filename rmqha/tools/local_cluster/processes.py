"""The processes of a cluster's servers: start, find and stop them, and report their state.

A pid alone does not identify a server, since another process may have it by now. So the pid file also holds the time
at which the process started, and the process's command line must contain the path of the server's config file.

`Observer` determines a server's state from its process and from what the other servers report about it. With
`aclEnable=true` it signs its requests with an admin's account of the cluster's own files; without one, a broker that
refuses to report its state has answered all the same.
"""
from __future__ import annotations

import json
import logging
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from rmqha.common import mix_all
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import HARuntimeInfo
from rmqha.common.texts import parse_json
from rmqha.common.threads import wait_until
from rmqha.tools.admin.cluster_admin import ClusterAdmin, RefusedError
from rmqha.tools.local_cluster.layout import ClusterError, Layout, Node
from rmqha.tools.terminal import CannotAnswerError

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook

log = logging.getLogger("RocketmqTools")

_START_TOLERANCE_S = 2.0
# A kernel thread never has a command line.
_EXEC_WAIT_S = 10
_KILL_WAIT_S = 10


def start(node: Node) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, without a terminal; its output goes to its file."""
    node.log_folder.mkdir(parents=True, exist_ok=True)
    with open(node.output_file, "ab") as output:
        process = subprocess.Popen(
            node.start_command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=node.environment(), cwd=node.folder, start_new_session=True)
    began = _began(psutil.Process(process.pid))
    mix_all.string2file_not_safe(json.dumps({"pid": process.pid, "began": began}), str(node.pid_file))
    return process


def find(node: Node) -> psutil.Process | None:
    """Return a server's process, or None when it does not run."""
    try:
        data = parse_json(node.pid_file.read_bytes(), "its text")
        process = psutil.Process(data["pid"])
        if abs(_began(process) - data["began"]) > _START_TOLERANCE_S:
            return None
        return process if _runs(process, node) else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        log.warning("%s is not a valid pid file: %s", node.pid_file, error)
        return None
    except psutil.Error as error:
        log.info("%s: %s", node.name, error)
        return None


def _runs(process: psutil.Process, node: Node) -> bool:
    """Return whether a process runs the server. Wait for its command line: just after its start it has none."""
    wait_until(lambda: process.cmdline() or process.status() == psutil.STATUS_ZOMBIE, _EXEC_WAIT_S)
    return str(node.config_file) in process.cmdline()


def _began(process: psutil.Process) -> float:
    """Return the start of a process in seconds after boot; setting the clock does not change this value."""
    # Read first: psutil derives the other value from it.
    boot_time = psutil.boot_time()
    return process.create_time() - boot_time


def stop(nodes: Sequence[Node], timeout_s: float) -> dict[str, str]:
    """Stop servers by SIGTERM, after a time-out by SIGKILL; map each to "stopped", "killed" or "did not run"."""
    running = {node.name: process for node in nodes if (process := find(node)) is not None}
    results = {node.name: "stopped" if node.name in running else "did not run" for node in nodes}
    for process in running.values():
        _signal(process, kill=False)
    deadline = time.monotonic() + timeout_s
    for name, process in running.items():
        if not ends(process, deadline):
            results[name] = "killed"
            _signal(process, kill=True)
            if not ends(process, time.monotonic() + _KILL_WAIT_S):
                raise ClusterError(f"{name} (pid {process.pid}) survives SIGKILL: is a disk hanging?")
    for node in nodes:
        node.pid_file.unlink(missing_ok=True)
    return results


def _signal(process: psutil.Process, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        log.info("pid %d has already ended", process.pid)
    except psutil.AccessDenied:
        raise ClusterError(f"no permission to stop pid {process.pid}: it belongs to {process.username()}") from None


def ends(process: psutil.Process, deadline: float) -> bool:
    """Wait for a process, not a child of ours, to end; return False when it still runs."""
    return wait_until(lambda: not _lives(process), deadline - time.monotonic())


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_ASK_TIMEOUT_MS = 2_000
# States of HAConnectionState.
_CONNECTED = ("TRANSFER", "SUSPEND")


class State(StrEnum):
    """The state of a server."""

    # It serves; a broker is registered, a slave is connected to its master too.
    RUNNING = "running"
    # Its process runs, but does not answer yet.
    STARTING = "starting"
    # It answers, but the name server does not list it.
    NOT_REGISTERED = "not registered"
    # A slave that receives nothing from its master.
    NOT_CONNECTED = "not connected"
    # A controller that answers, but knows no leader.
    NO_LEADER = "no leader"
    STOPPED = "stopped"
    # It crashed, or another process killed it.
    ENDED = "ended"


@dataclass(frozen=True)
class NodeState:
    """The state of a server at one moment; `rss` is in bytes.

    `is_leading`: whether a broker whose role the controller decides is the master; None when it does not report that,
    or when its role is fixed.
    """

    node: Node
    state: State
    pid: int | None = None
    rss: int | None = None
    is_leading: bool | None = None

    @property
    def role(self) -> str:
        """The current role of the server."""
        if self.is_leading is None:
            return self.node.role
        return "MASTER" if self.is_leading else "SLAVE"


def _admin_account(folder: Path) -> RPCHook | None:
    """Return the hook that signs with the first admin's account of a cluster's files; None if they have none."""
    conf = folder / "conf"
    if not (conf / "plain_acl.yml").exists() and not (conf / "acl").exists():
        return None
    from rmqha.acl.acl_files import AclFile, acl_files  # most clusters have no accounts
    from rmqha.acl.common import AclClientRPCHook, AclException, SessionCredentials

    try:
        read = [AclFile.read(path) for path in acl_files(str(conf / "acl"), str(conf / "plain_acl.yml"))]
    except (AclException, OSError) as error:
        log.info("the accounts below %s can't be read: %s", conf, error)
        return None
    return next((AclClientRPCHook(SessionCredentials(account.accessKey, account.secretKey))
                 for file in read if file is not None for account in file.accounts
                 if account.admin and account.accessKey and account.secretKey), None)


class Observer:
    """A context manager that asks the servers of a cluster for their states."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._admin = ClusterAdmin(layout.namesrv.address, _ASK_TIMEOUT_MS, _admin_account(layout.namesrv.folder))

    def __enter__(self) -> Observer:
        self._admin.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._admin.__exit__(*exc)

    def states(self) -> list[NodeState]:
        """Return the states of all servers, in the layout's order."""
        registered = self._registered()
        return [self._state_of(node, registered) for node in self._layout.nodes]

    def state_of(self, node: Node) -> NodeState:
        """Return the state of one server."""
        return self._state_of(node, self._registered())

    def _registered(self) -> set[str] | None:
        """Return the broker addresses that the name server lists, or None when it does not answer."""
        if find(self._layout.namesrv) is None:
            return None
        try:
            return {broker.address for broker in self._admin.brokers()}
        except CannotAnswerError as error:
            log.info("%s", error.message)
            return None

    def _state_of(self, node: Node, registered: set[str] | None) -> NodeState:
        process = find(node)
        if process is None:
            return NodeState(node, State.ENDED if node.pid_file.exists() else State.STOPPED)
        try:
            rss = process.memory_info().rss
        except psutil.Error as error:
            log.info("%s has just ended: %s", node.name, error)
            return NodeState(node, State.ENDED)
        if node.is_namesrv:
            return NodeState(node, State.STARTING if registered is None else State.RUNNING, process.pid, rss)
        try:
            info = None if node.is_controller else self._ha_info(node)
            state = self._controller_state(node) if node.is_controller else _broker_state(node, info, registered)
        except CannotAnswerError as error:
            log.info("%s", error.message)
            return NodeState(node, State.STARTING, process.pid, rss)
        return NodeState(node, state, process.pid, rss, info.master if info is not None and node.is_replica else None)

    def _ha_info(self, node: Node) -> HARuntimeInfo | None:
        """Return a broker's replication; None if it serves, but its access control refuses the request."""
        try:
            return self._admin.ha_runtime_info(node.address)
        except RefusedError as refusal:
            if refusal.code != response_code.NO_PERMISSION:
                raise
            return None

    def _controller_state(self, node: Node) -> State:
        return State.RUNNING if self._admin.get_controller_meta_data(node.address).controllerLeaderAddress else (
            State.NO_LEADER)


def _broker_state(node: Node, info: HARuntimeInfo | None, registered: set[str] | None) -> State:
    if node.address not in (registered or ()):
        return State.NOT_REGISTERED
    follows = node.is_slave or node.is_replica and info is not None and not info.master
    if follows and info is not None and info.haClientRuntimeInfo.state not in _CONNECTED:
        return State.NOT_CONNECTED
    return State.RUNNING
