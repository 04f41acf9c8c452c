"""Start a cluster's servers: persistently for `rmqha up`, or for the lifetime of a program.

- `BringUp`: starts the servers that are not running, in order: the name server, a controller, the masters, the slaves.
- `LocalCluster`: a whole cluster on this host, in its own folder, that ends with its program; for the quickstart and
  the drill. `rmqha up` can start the folder again.
"""
from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from rmqha.common.program import ending_signals
from rmqha.common.threads import wait_until
from rmqha.tools.local_cluster import layout, processes
from rmqha.tools.local_cluster.layout import ClusterError, Layout, Node
from rmqha.tools.local_cluster.log_lines import end_of_logs
from rmqha.tools.local_cluster.processes import Observer, State

# A slave that starts before its master, or a master that starts before the name server, retries only seconds later. So
# each group is given some time before the next, even without --wait.
PATIENCE_S = 5.0
_GOOD_ENOUGH = (State.RUNNING, State.NOT_CONNECTED)


class Servers:
    """The servers that this program has started as processes of their own; notices when one of them ends."""

    def __init__(self) -> None:
        # The servers that should run, by name.
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, node: Node) -> subprocess.Popen[bytes]:
        """Start a server."""
        self.processes[node.name] = process = processes.start(node)
        return process

    def ended(self, nodes: Iterable[Node]) -> tuple[Node, int] | None:
        """Return the first of `nodes` that has ended without being stopped, and its exit code; None if all run."""
        for node in nodes:
            process = self.processes.get(node.name)
            code = None if process is None else process.poll()
            if code is not None:
                return node, code
        return None

    def kill(self, node: Node) -> None:
        """Kill a server by SIGKILL, like a crash."""
        process = self.processes.pop(node.name, None)
        if process is not None:
            process.kill()
            process.wait()
            node.pid_file.unlink(missing_ok=True)

    def stop(self, nodes: Iterable[Node], timeout_s: float) -> None:
        """Stop servers in parallel; one that does not end in time is killed."""
        running = [(node, self.processes[node.name]) for node in nodes if node.name in self.processes]
        for _node, process in running:
            process.send_signal(signal.SIGTERM)
        for node, process in running:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill(node)
            else:
                del self.processes[node.name]
                node.pid_file.unlink(missing_ok=True)


class BringUp:
    """One run of `rmqha up`. `tell` is called with a line for each server that is started."""

    def __init__(self, layout: Layout, tell: Callable[[str], None]) -> None:
        self._layout = layout
        self._tell = tell
        self._servers = Servers()

    def run(self, wait: bool, timeout_s: float) -> None:
        """Start the missing servers; with `wait`, wait until all brokers are registered and all slaves connected.

        ClusterError with the end of its log when a server ends, or when waiting takes longer than `timeout_s`.
        """
        missing = [node for node in self._layout.nodes if processes.find(node) is None]
        layout.check_free(missing)
        deadline = time.monotonic() + timeout_s
        with Observer(self._layout) as observer:
            # Read now: the order depends on whether stores exist, and the servers create them.
            groups = self._layout.start_groups
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
        process = self._servers.start(node)
        self._tell(f"started {node.name}, {node.role}, {node.address}, pid {process.pid}")

    def _wait(self, observer: Observer, group: Sequence[Node], deadline: float) -> None:
        for node in group:
            state = State.STOPPED

            def runs(node: Node = node) -> bool:
                nonlocal state
                state = observer.state_of(node).state
                if state is not State.RUNNING:
                    self._check_lives()
                return state is State.RUNNING
            if not wait_until(runs, deadline - time.monotonic()):
                raise ClusterError(f"timed out waiting for {node.name} ({node.address}, state: {state}). Increase "
                                   f"--timeout, or see its output and log:\n{end_of_logs(node)}")

    def _give_time(self, observer: Observer, group: Sequence[Node]) -> None:
        def is_good_enough() -> bool:
            self._check_lives()
            return all(observer.state_of(node).state in _GOOD_ENOUGH for node in group)
        wait_until(is_good_enough, PATIENCE_S)

    def _check_lives(self) -> None:
        ended = self._servers.ended(self._layout.nodes)
        if ended is not None:
            node, code = ended
            raise ClusterError(f"{node.name} ended with exit code {code}; the other servers keep running (see `rmqha "
                               f"ps`). The end of its output and log:\n{end_of_logs(node)}")


STOP_TIMEOUT_S = 15


class LocalCluster:
    """A name server, and one broker per file of a conf folder, each with its own ports and store folder.

        with LocalCluster(Path("conf/2m-2s-sync"), Path("/tmp/play"), first_port=21000) as cluster:
            cluster.start(cluster.name_server)
            for broker in cluster.brokers:
                cluster.start(broker)

    If a file has enableControllerMode=true, there is a controller too. On exit all processes are stopped.
    """

    def __init__(self, conf_folder: Path, folder: Path, first_port: int) -> None:
        self.folder = folder
        self.layout = layout.make_from_files(conf_folder, folder, first_port)
        self.started = Servers()

    @property
    def name_server(self) -> Node:
        """The name server."""
        return self.layout.namesrv

    @property
    def controller(self) -> Node | None:
        """The controller, if there is one."""
        return next(iter(self.layout.controllers), None)

    @property
    def brokers(self) -> list[Node]:
        """All brokers, in the order of their files' names."""
        return [node for node in self.layout.nodes if node.is_broker]

    @property
    def masters(self) -> list[Node]:
        """The brokers that are masters, or may become one."""
        return [broker for broker in self.brokers if not broker.is_slave]

    @property
    def slaves(self) -> list[Node]:
        """The slaves."""
        return self.layout.slaves

    def start(self, server: Node) -> None:
        """Start a server's process, with the cluster's folder as its home."""
        self.started.start(server)

    def check_alive(self) -> None:
        """Check the started processes; ClusterError when one has ended without being stopped."""
        ended = self.started.ended(self.layout.nodes)
        if ended is not None:
            server, code = ended
            raise ClusterError(f"{server.name} ended with exit code {code}; its output:\n{server.tail()}")

    def wait_until(self, predicate: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for a condition, described by `what`; ClusterError after `timeout_s`, or when a server ends."""
        def come() -> bool:
            if predicate():
                return True
            self.check_alive()
            return False
        if not wait_until(come, timeout_s):
            raise ClusterError(f"timed out after {timeout_s:.0f} s waiting for: {what}")

    def kill(self, server: Node) -> None:
        """Kill a server by SIGKILL, like a crash."""
        self.started.kill(server)

    def stop(self) -> None:
        """Stop all servers: controllers first, the name server last; after 15 s they are killed. Idempotent."""
        for group in (self.layout.controllers, self.slaves, self.masters, [self.name_server]):
            self.started.stop(group, STOP_TIMEOUT_S)

    def pairs(self) -> list[tuple[Node, Node]]:
        """Return each slave with its master, as (master, slave)."""
        return [(master, slave) for master in self.masters for slave in self.slaves
                if slave.broker_name == master.broker_name]

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Within this context SIGTERM and SIGHUP raise SystemExit, so that everything is cleaned up."""
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        # A second signal must not interrupt the cleanup.
        if not came:
            came.append(number)
            sys.exit(128 + number)
    before = {number: signal.signal(number, end) for number in ending_signals() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
