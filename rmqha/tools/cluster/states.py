"""How each server of a cluster does: its process, and what the others know of it."""
from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

import psutil

from rmqha.common.protocol.cluster_bodies import HARuntimeInfo
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
    NO_LEADER = "no leader"  # a controller that answers, and knows of none that leads
    STOPPED = "stopped"
    ENDED = "ended"  # by itself, or killed by somebody


@dataclass(frozen=True)
class NodeState:
    """A server at one moment; `rss` in bytes.

    `is_leading`: whether a broker whose role the controller decides is the master; None when it does not say, or when
    its role is its own.
    """

    node: Node
    state: State
    pid: int | None = None
    rss: int | None = None
    is_leading: bool | None = None

    @property
    def role(self) -> str:
        """What it is at this moment."""
        if self.is_leading is None:
            return self.node.role
        return "MASTER" if self.is_leading else "SLAVE"


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
        if node.is_namesrv:
            return NodeState(node, State.STARTING if registered is None else State.RUNNING, process.pid, rss)
        try:
            info = None if node.is_controller else self._admin.ha_runtime_info(node.address)
            state = self._controller_state(node) if node.is_controller else _broker_state(node, info, registered)
        except ReplicationToolError as error:
            log.info("%s", error.message)
            return NodeState(node, State.STARTING, process.pid, rss)
        return NodeState(node, state, process.pid, rss, info.master if info is not None and node.is_replica else None)

    def _controller_state(self, node: Node) -> State:
        return State.RUNNING if self._admin.controller_meta_data(node.address).controllerLeaderAddress else (
            State.NO_LEADER)


def _broker_state(node: Node, info: HARuntimeInfo | None, registered: set[str] | None) -> State:
    if node.address not in (registered or ()):
        return State.NOT_REGISTERED
    follows = node.is_slave or node.is_replica and info is not None and not info.master
    if follows and info is not None and info.haClientRuntimeInfo.state not in _CONNECTED:
        return State.NOT_CONNECTED
    return State.RUNNING
