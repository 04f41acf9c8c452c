"""How each server of a cluster does: its process, and what the others know of it."""
from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

import psutil

from rmqha.tools.cluster import processes
from rmqha.tools.cluster.layout import Layout
from rmqha.tools.cluster.node import Node
from rmqha.tools.ha.broker_admin import BrokerAdmin, ReplicationToolError

log = logging.getLogger("RocketmqTools")

_ASK_TIMEOUT_MS = 2_000
_CONNECTED = ("TRANSFER", "SUSPEND")  # of HAConnectionState


class State(StrEnum):
    """Of a server."""

    RUNNING = "running"  # serves; a broker is registered, a slave connected to its master too
    STARTING = "starting"  # its process lives, but does not answer yet
    NOT_REGISTERED = "not registered"  # it answers, but the name server does not list it
    NOT_CONNECTED = "not connected"  # a slave that gets nothing from its master
    STOPPED = "stopped"
    ENDED = "ended"  # by itself, or killed by somebody


@dataclass(frozen=True)
class NodeState:
    """A server at one moment; `rss` in bytes."""

    node: Node
    state: State
    pid: int | None = None
    rss: int | None = None


class Observer:
    """Asks the servers of a cluster; a context manager."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._admin = BrokerAdmin(layout.namesrv.address, _ASK_TIMEOUT_MS)

    def __enter__(self) -> Observer:
        self._admin.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._admin.__exit__(*exc)

    def states(self) -> list[NodeState]:
        """Of all servers, in the layout's order."""
        registered = self._registered()
        return [self._state_of(node, registered) for node in self._layout.nodes]

    def state_of(self, node: Node) -> NodeState:
        """Of one server."""
        return self._state_of(node, self._registered())

    def _registered(self) -> set[str] | None:
        """The brokers' addresses that the name server lists; None when it gives no answer."""
        if processes.find(self._layout.namesrv) is None:
            return None
        try:
            return {broker.address for broker in self._admin.brokers()}
        except ReplicationToolError as error:
            log.info("%s", error.message)
            return None

    def _state_of(self, node: Node, registered: set[str] | None) -> NodeState:
        process = processes.find(node)
        if process is None:
            return NodeState(node, State.ENDED if node.pid_file.exists() else State.STOPPED)
        try:
            rss = process.memory_info().rss
        except psutil.Error as error:
            log.info("%s has just ended: %s", node.name, error)
            return NodeState(node, State.ENDED)
        return NodeState(node, self._live_state(node, registered), process.pid, rss)

    def _live_state(self, node: Node, registered: set[str] | None) -> State:
        if node.is_namesrv:
            return State.STARTING if registered is None else State.RUNNING
        try:
            info = self._admin.ha_runtime_info(node.address)
        except ReplicationToolError as error:
            log.info("%s", error.message)
            return State.STARTING
        if node.address not in (registered or ()):
            return State.NOT_REGISTERED
        if node.is_slave and info is not None and info.haClientRuntimeInfo.state not in _CONNECTED:
            return State.NOT_CONNECTED
        return State.RUNNING
