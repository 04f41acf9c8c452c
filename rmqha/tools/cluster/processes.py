"""The processes of a cluster's servers: started so that they stay, found again, stopped.

A pid alone proves nothing, since another process may have it by now: the pid file holds the time at which the process
began, too, and its command line must name the server's config file.
"""
import json
import logging
import subprocess
import time
from collections.abc import Sequence

import psutil

from rmqha.common import mix_all
from rmqha.common.texts import parse_json
from rmqha.tools.cluster.node import ClusterError, Node

log = logging.getLogger("RocketmqTools")

_START_TOLERANCE_S = 2.0
_LOOK_S = 0.05
_EXEC_WAIT_S = 10  # a thread of the kernel never has a command line
_KILL_WAIT_S = 10


def start(node: Node) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, without a terminal; what it prints goes to its file."""
    node.log_folder.mkdir(parents=True, exist_ok=True)
    with open(node.output_file, "ab") as output:
        process = subprocess.Popen(
            node.start_command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=node.environment(), cwd=node.folder, start_new_session=True)
    began = _began(psutil.Process(process.pid))
    mix_all.string2file_not_safe(json.dumps({"pid": process.pid, "began": began}), str(node.pid_file))
    return process


def find(node: Node) -> psutil.Process | None:
    """A server's process; None when it does not run."""
    try:
        data = parse_json(node.pid_file.read_bytes(), "its text")
        process = psutil.Process(data["pid"])
        if abs(_began(process) - data["began"]) > _START_TOLERANCE_S:
            return None
        return process if _runs(process, node) else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        log.warning("%s is no pid file: %s", node.pid_file, error)
        return None
    except psutil.Error as error:
        log.info("%s: %s", node.name, error)
        return None


def _runs(process: psutil.Process, node: Node) -> bool:
    """Whether it runs the server. Waits for its command line: it has none for a moment after it was started."""
    deadline = time.monotonic() + _EXEC_WAIT_S
    while not (command := process.cmdline()):
        if process.status() == psutil.STATUS_ZOMBIE or time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return str(node.config_file) in command


def _began(process: psutil.Process) -> float:
    """Seconds after the host's start; the time of day at which it began changes when the clock is set."""
    boot_time = psutil.boot_time()  # first: psutil makes the other from it
    return process.create_time() - boot_time


def stop(nodes: Sequence[Node], timeout_s: float) -> dict[str, str]:
    """End servers in good order, and after a time-out at once: node -> "stopped", "killed" or "did not run"."""
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
                raise ClusterError(f"{name} (pid {process.pid}) does not end, not even by SIGKILL: is a disk stuck?")
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
        log.info("pid %d has ended already", process.pid)
    except psutil.AccessDenied:
        raise ClusterError(f"pid {process.pid} is {process.username()}'s, who alone may stop it") from None


def ends(process: psutil.Process, deadline: float) -> bool:
    """Wait for a process, somebody else's child, to end; False when it lives on."""
    while _lives(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
