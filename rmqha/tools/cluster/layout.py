"""What a cluster consists of: from options, into cluster.json and the config files of its servers, and back."""
from __future__ import annotations

import json
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqha.common import mix_all
from rmqha.common.configuration import ConfigError, read_config_file
from rmqha.common.texts import folder_name, parse_json
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.cluster.node import (
    CONTROLLER,
    CONTROLLER_ID,
    HOST,
    NAMESRV,
    PORTS_PER_BROKER,
    REPLICA,
    SMALL_FILES,
    ClusterError,
    Node,
)
from rmqha.tools.store.output import counted

DESCRIPTION = "cluster.json"
CLUSTER_NAME = "DefaultCluster"
SMALL, NORMAL = "small", "normal"
MAX_MASTERS, MAX_SLAVES = len(string.ascii_lowercase), 9
_FORMAT = 1
# Shorter than RocketMQ's, so that a cluster is soon ready: a slave learns of its master from the name server, and an
# empty master shows that it is there by its first heartbeat.
QUICK = {"registerNameServerPeriod": 10_000, "haSendHeartbeatInterval": 500}  # ms
_SMALL = {**SMALL_FILES, "preallocateMappedFile": "false"}


@dataclass(frozen=True)
class Shape:
    """How many brokers, and of what kind. `slaves` is for each master; `memory` is SMALL or NORMAL; `metrics`: whether
    each server has a port for them. `auto_failover`: a controller decides who of those of one name is the master.
    """

    masters: int = 2
    slaves: int = 1
    sync: bool = True
    memory: str = SMALL
    metrics: bool = False
    auto_failover: bool = False

    def __str__(self) -> str:
        kind = "sync" if self.sync else "async"
        return f"{counted(self.masters, f'{kind} master')} with {counted(self.slaves, 'slave')} each, {self.memory}" + (
            ", with metrics" if self.metrics else "") + (", with automatic failover" if self.auto_failover else "")

    @property
    def port_count(self) -> int:
        """How many ports in a row it takes."""
        return (1 + self.auto_failover + self.masters * (1 + self.slaves)) * PORTS_PER_BROKER


@dataclass(frozen=True)
class Layout:
    """A cluster's servers: the name server, the controller if there is one, then each master with its slaves."""

    nodes: tuple[Node, ...]
    memory: str
    sync_replicas: bool = True  # of brokers whose roles change: whether all in sync have what is acknowledged

    @property
    def namesrv(self) -> Node:
        """The name server."""
        return self.nodes[0]

    @property
    def masters(self) -> list[Node]:
        """The brokers that take messages."""
        return [node for node in self.nodes if node.is_master]

    @property
    def slaves(self) -> list[Node]:
        """The brokers that copy."""
        return [node for node in self.nodes if node.is_slave]

    @property
    def controllers(self) -> list[Node]:
        """The controller, if there is one."""
        return [node for node in self.nodes if node.is_controller]

    @property
    def replicas(self) -> list[Node]:
        """The brokers whose role the controller decides."""
        return [node for node in self.nodes if node.is_replica]

    @property
    def start_groups(self) -> list[list[Node]]:
        """The order in which they are started: who is asked before those who ask.

        Of new replicas the first of each name goes before the others, and becomes the master; later it is whoever was.
        """
        first, others = self.replicas, []
        if not any(node.store.exists() for node in self.replicas):
            first = [node for node in self.replicas if node.broker_id == mix_all.MASTER_ID]
            others = [node for node in self.replicas if node not in first]
        groups = [[self.namesrv], self.controllers, self.masters, self.slaves, first, others]
        return [group for group in groups if group]

    @property
    def stop_groups(self) -> list[list[Node]]:
        """The order in which they are stopped: without a controller nobody becomes the master meanwhile."""
        groups = [self.controllers, self.replicas, self.slaves, self.masters, [self.namesrv]]
        return [group for group in groups if group]

    @property
    def shape(self) -> Shape:
        """As options would say it."""
        names = {node.broker_name for node in self.nodes if node.is_replica or node.is_master}
        followers = sum(node.is_broker for node in self.nodes) - len(names)
        sync = self.sync_replicas if self.replicas else any(
            node.role == BrokerRole.SYNC_MASTER.name for node in self.nodes)
        return Shape(len(names), followers // max(len(names), 1), sync, self.memory,
                     any(node.metrics_port for node in self.nodes), bool(self.controllers))


def make(folder: Path, shape: Shape, first_port: int) -> Layout:
    """The servers of a new cluster: the name server at `first_port`, the brokers above it."""
    nodes = [Node(folder, "namesrv", NAMESRV, first_port)]
    if shape.auto_failover:
        nodes.append(Node(folder, "controller", CONTROLLER, first_port + PORTS_PER_BROKER))
    master = (BrokerRole.SYNC_MASTER if shape.sync else BrokerRole.ASYNC_MASTER).name
    roles = (REPLICA, REPLICA) if shape.auto_failover else (master, BrokerRole.SLAVE.name)
    for letter in string.ascii_lowercase[:shape.masters]:
        for broker_id in range(shape.slaves + 1):
            suffix = "" if broker_id == 0 else "-s" if broker_id == 1 else f"-s{broker_id}"
            nodes.append(Node(folder, f"broker-{letter}{suffix}", roles[broker_id > 0],
                              first_port + len(nodes) * PORTS_PER_BROKER, f"broker-{letter}", broker_id))
    for node in nodes if shape.metrics else ():
        node.metrics_port = node.spare_port
    return Layout(tuple(nodes), shape.memory, shape.sync or not shape.auto_failover)


def properties_of(node: Node, layout: Layout) -> dict[str, object]:
    """A server's config as it is first written."""
    metrics = {"metricsPort": node.metrics_port} if node.metrics_port else {}
    if node.is_namesrv:
        return {"listenPort": node.port, "kvConfigPath": node.store / "kvConfig.json", **metrics}
    if node.is_controller:
        return {"controllerDLegerGroup": CLUSTER_NAME, "controllerDLegerPeers": f"{CONTROLLER_ID}-{node.address}",
                "controllerDLegerSelfId": CONTROLLER_ID, "controllerStorePath": node.store, **metrics}
    return {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": node.broker_name,
        "brokerId": node.broker_id,
        "brokerRole": node.role,
        "flushDiskType": "ASYNC_FLUSH",
        "namesrvAddr": layout.namesrv.address,
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "listenPort": node.port,
        "storePathRootDir": node.store,
        "storePathCommitLog": node.commit_log,
        **metrics,
        **QUICK,
        **(_SMALL if layout.memory == SMALL else {}),
        **(_replica_properties(node, layout) if node.is_replica else {}),
    }


def _replica_properties(node: Node, layout: Layout) -> dict[str, object]:
    """Of a broker whose role the controller decides, over the others.

    Of three replicas and more two have to have what is acknowledged.
    """
    count = sum(each.broker_name == node.broker_name for each in layout.replicas)
    return {"brokerId": -1, "brokerRole": BrokerRole.SLAVE.name, "enableControllerMode": "true",
            "controllerAddr": ";".join(each.address for each in layout.controllers),
            "allAckInSyncStateSet": str(layout.sync_replicas).lower(),
            "minInSyncReplicas": 2 if layout.sync_replicas and count > 2 else 1}


def write_config(node: Node, properties: dict[str, object]) -> None:
    """Write a server's properties file."""
    node.config_file.parent.mkdir(parents=True, exist_ok=True)
    text = mix_all.properties2string({key: str(value) for key, value in properties.items()})
    mix_all.string2file(text, str(node.config_file))


def write(folder: Path, layout: Layout) -> None:
    """Write cluster.json."""
    nodes = [{"name": node.name, "role": node.role, "port": node.port, "brokerName": node.broker_name,
              "brokerId": node.broker_id, "metricsPort": node.metrics_port} for node in layout.nodes]
    data: dict[str, object] = {"rmqhaCluster": _FORMAT, "folder": str(folder), "memory": layout.memory, "nodes": nodes}
    if layout.controllers:
        data["syncReplicas"] = layout.sync_replicas
    mix_all.string2file(json.dumps(data, indent=1) + "\n", str(folder / DESCRIPTION))


def read(folder: Path) -> Layout | None:
    """The cluster of a folder, None when it has no cluster.json. ClusterError when that is not one of ours."""
    file = folder / DESCRIPTION
    try:
        data = parse_json(file.read_bytes(), "its text")
        if data["rmqhaCluster"] != _FORMAT:
            raise ClusterError(f"{file} has format {data['rmqhaCluster']}, this rmqha knows {_FORMAT}: take the rmqha "
                               "that made it")
        return Layout(tuple(_node(folder, each) for each in data["nodes"]), str(data["memory"]),
                      bool(data.get("syncReplicas", True)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise _foreign(file, error) from None


def _foreign(file: Path, error: Exception) -> ClusterError:
    return ClusterError(f"{file} is none of `rmqha up`'s, or was damaged ({error!r}): give another --dir")


def _node(folder: Path, data: dict[str, Any]) -> Node:
    """A server; what its config file says is newer than cluster.json: roles change, and people edit files."""
    name = folder_name(data["name"], "the server's name")
    node = Node(folder, name, str(data["role"]), int(data["port"]), str(data["brokerName"]), int(data["brokerId"]),
                int(data.get("metricsPort", 0)))
    if node.config_file.exists():
        properties = _read_config(node)
        node.port = _port(node, properties)
        node.metrics_port = int(properties.get("metricsPort", 0))
        if node.is_broker and not node.is_replica:
            node.role = properties.get("brokerRole", node.role)
            node.broker_id = int(properties.get("brokerId", node.broker_id))
    return node


def _port(node: Node, properties: dict[str, str]) -> int:
    if not node.is_controller:
        return int(properties.get("listenPort", node.port))
    for peer in properties.get("controllerDLegerPeers", "").split(";"):
        peer_id, _, address = peer.strip().partition("-")
        if peer_id == properties.get("controllerDLegerSelfId") and address:
            return int(address.rpartition(":")[2])
    return node.port


def _read_config(node: Node) -> dict[str, str]:
    try:
        return read_config_file(str(node.config_file))
    except ConfigError as error:
        raise ClusterError(str(error)) from None


def complete_configs(folder: Path, layout: Layout) -> None:
    """Write the config files that are missing; in those of a folder that was moved put its new place for the old."""
    file = folder / DESCRIPTION
    try:
        written_for = str(parse_json(file.read_bytes(), "its text")["folder"])
    except (ValueError, KeyError, TypeError) as error:
        raise _foreign(file, error) from None
    for node in layout.nodes:
        if not node.config_file.exists():
            write_config(node, properties_of(node, layout))
        elif written_for != str(folder):
            properties = _read_config(node).items()
            write_config(node, {key: _moved(value, written_for, str(folder)) for key, value in properties})
    if written_for != str(folder):
        write(folder, layout)


def _moved(value: str, old: str, new: str) -> str:
    return new + value[len(old):] if value.startswith(old + "/") else value
