"""Start what does not run of a cluster, in good order: the name server, a controller, the masters, the slaves."""
import subprocess
import time
from collections.abc import Callable, Sequence

from rmqha.tools.cluster import ports, processes
from rmqha.tools.cluster.layout import Layout
from rmqha.tools.cluster.log_lines import end_of_logs
from rmqha.tools.cluster.node import ClusterError, Node
from rmqha.tools.cluster.states import Observer, State

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
