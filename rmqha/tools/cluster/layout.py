"""What a cluster consists of: from options, into cluster.json and the config files of its servers, and back."""
from __future__ import annotations

import json
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqha.common import mix_all
from rmqha.common.config_file import ConfigError, read_config_file
from rmqha.store.config.message_store_config import BrokerRole
from rmqha.tools.cluster.node import HOST, NAMESRV, PORTS_PER_BROKER, SMALL_FILES, ClusterError, Node
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
    each server has a port for them.
    """

    masters: int = 2
    slaves: int = 1
    sync: bool = True
    memory: str = SMALL
    metrics: bool = False

    def __str__(self) -> str:
        kind = "sync" if self.sync else "async"
        return f"{counted(self.masters, f'{kind} master')} with {counted(self.slaves, 'slave')} each, {self.memory}" + (
            ", with metrics" if self.metrics else "")

    @property
    def port_count(self) -> int:
        """How many ports in a row it takes."""
        return (1 + self.masters * (1 + self.slaves)) * PORTS_PER_BROKER


@dataclass(frozen=True)
class Layout:
    """A cluster's servers, the name server first, then each master with its slaves."""

    nodes: tuple[Node, ...]
    memory: str

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
    def shape(self) -> Shape:
        """As options would say it."""
        sync = any(node.role == BrokerRole.SYNC_MASTER.name for node in self.nodes)
        return Shape(len(self.masters), len(self.slaves) // max(len(self.masters), 1), sync, self.memory,
                     any(node.metrics_port for node in self.nodes))


def make(folder: Path, shape: Shape, first_port: int) -> Layout:
    """The servers of a new cluster: the name server at `first_port`, the brokers above it."""
    nodes = [Node(folder, "namesrv", NAMESRV, first_port)]
    role = (BrokerRole.SYNC_MASTER if shape.sync else BrokerRole.ASYNC_MASTER).name
    for letter in string.ascii_lowercase[:shape.masters]:
        for broker_id in range(shape.slaves + 1):
            suffix = "" if broker_id == 0 else "-s" if broker_id == 1 else f"-s{broker_id}"
            nodes.append(Node(folder, f"broker-{letter}{suffix}", role if broker_id == 0 else BrokerRole.SLAVE.name,
                              first_port + len(nodes) * PORTS_PER_BROKER, f"broker-{letter}", broker_id))
    for node in nodes if shape.metrics else ():
        node.metrics_port = node.spare_port
    return Layout(tuple(nodes), shape.memory)


def properties_of(node: Node, layout: Layout) -> dict[str, object]:
    """A server's config as it is first written."""
    metrics = {"metricsPort": node.metrics_port} if node.metrics_port else {}
    if node.is_namesrv:
        return {"listenPort": node.port, "kvConfigPath": node.store / "kvConfig.json", **metrics}
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
    }


def write_config(node: Node, properties: dict[str, object]) -> None:
    """Write a server's properties file."""
    node.config_file.parent.mkdir(parents=True, exist_ok=True)
    text = mix_all.properties2string({key: str(value) for key, value in properties.items()})
    mix_all.string2file(text, str(node.config_file))


def write(folder: Path, layout: Layout) -> None:
    """Write cluster.json."""
    nodes = [{"name": node.name, "role": node.role, "port": node.port, "brokerName": node.broker_name,
              "brokerId": node.broker_id, "metricsPort": node.metrics_port} for node in layout.nodes]
    data = {"rmqhaCluster": _FORMAT, "folder": str(folder), "memory": layout.memory, "nodes": nodes}
    mix_all.string2file(json.dumps(data, indent=1) + "\n", str(folder / DESCRIPTION))


def read(folder: Path) -> Layout | None:
    """The cluster of a folder, None when it has no cluster.json. ClusterError when that is not one of ours."""
    file = folder / DESCRIPTION
    try:
        data = json.loads(file.read_text("utf-8"))
        if data["rmqhaCluster"] != _FORMAT:
            raise ClusterError(f"{file} has format {data['rmqhaCluster']}, this rmqha knows {_FORMAT}: take the rmqha "
                               "that made it")
        return Layout(tuple(_node(folder, each) for each in data["nodes"]), str(data["memory"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ClusterError(f"{file} is none of `rmqha up`'s, or was damaged ({error!r}): give another --dir") from None


def _node(folder: Path, data: dict[str, Any]) -> Node:
    """A server; what its config file says is newer than cluster.json: roles change, and people edit files."""
    name = str(data["name"])
    if Path(name).name != name:
        raise ValueError(f"{name!r} is no server's name")
    node = Node(folder, name, str(data["role"]), int(data["port"]), str(data["brokerName"]), int(data["brokerId"]),
                int(data.get("metricsPort", 0)))
    if node.config_file.exists():
        properties = _read_config(node)
        node.port = int(properties.get("listenPort", node.port))
        node.metrics_port = int(properties.get("metricsPort", 0))
        if not node.is_namesrv:
            node.role = properties.get("brokerRole", node.role)
            node.broker_id = int(properties.get("brokerId", node.broker_id))
    return node


def _read_config(node: Node) -> dict[str, str]:
    try:
        return read_config_file(str(node.config_file))
    except ConfigError as error:
        raise ClusterError(str(error)) from None


def complete_configs(folder: Path, layout: Layout) -> None:
    """Write the config files that are missing; in those of a folder that was moved put its new place for the old."""
    written_for = str(json.loads((folder / DESCRIPTION).read_text("utf-8"))["folder"])
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
