"""The folder of a local cluster: its servers, their files and ports, and the lock for changes.

    <folder>/cluster.json             the cluster's servers; marks the folder as a cluster's
    <folder>/conf/<node>.properties   a server's config; the user may edit it
    <folder>/store/<node>/            a broker's store
    <folder>/logs/<node>/             its log files
    <folder>/<node>.out               its standard output and error
    <folder>/run/<node>.pid           its process, while it runs under `rmqha up`

- `Node`: one server. `Shape`, `Layout`: a cluster, from options to cluster.json and config files and back.
- `free_port_block`, `check_free`: find free consecutive ports on this host, and name the process that uses a taken one.
- `chosen`, `make_or_load`, `locked`: select the folder, check that it is a cluster's, and lock it for a change.
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shlex
import shutil
import site
import string
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rmqha
from rmqha.common import logs, metrics, mix_all
from rmqha.common.configuration import ConfigError, read_config_file
from rmqha.common.texts import folder_name, parse_json
from rmqha.remoting.addresses import holders, is_free
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.terminal import WorkFailedError, counted

HOST = "127.0.0.1"
# listenPort - 2, listenPort, listenPort + 1, and one for metrics.
PORTS_PER_BROKER = 4
NAMESRV, CONTROLLER = "NAME SERVER", "CONTROLLER"
# A broker whose role the controller decides.
REPLICA = "REPLICA"
CONTROLLER_ID = "n0"
TAIL_BYTES = 4_000

# Small files: four brokers of these take about 100 MB, where RocketMQ's defaults take some GiB each.
SMALL_FILES = {
    "mappedFileSizeCommitLog": 8 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 3_000 * 20,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}


class ClusterError(WorkFailedError):
    """A fault of a cluster or of one of its servers; the text says which one, why, and what to do."""


@dataclass
class Node:
    """A server of the cluster.

    `name` is the name of its files, `broker_name` the name that clients see. `role` is NAMESRV, CONTROLLER, REPLICA or
    a BrokerRole. The `broker_id` of a REPLICA only distinguishes it from the others: the controller assigns another id.
    """

    folder: Path
    name: str
    role: str
    port: int
    broker_name: str = ""
    broker_id: int = mix_all.MASTER_ID
    metrics_port: int = 0  # 0: none

    @property
    def address(self) -> str:
        """The address for clients, as "ip:port"."""
        return f"{HOST}:{self.port}"

    @property
    def is_namesrv(self) -> bool:
        """True if it is the name server."""
        return self.role == NAMESRV

    @property
    def is_controller(self) -> bool:
        """True if it is the controller."""
        return self.role == CONTROLLER

    @property
    def is_replica(self) -> bool:
        """True if it is a broker whose role the controller decides."""
        return self.role == REPLICA

    @property
    def is_broker(self) -> bool:
        """True if it is a broker of any role."""
        return not self.is_namesrv and not self.is_controller

    @property
    def is_slave(self) -> bool:
        """True if it is a slave."""
        return self.role == BrokerRole.SLAVE.name

    @property
    def is_master(self) -> bool:
        """True if it is a broker that is always a master."""
        return self.is_broker and not self.is_slave and not self.is_replica

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports that the server listens on."""
        ports = (self.port, self.port - 2, self.port + 1) if self.is_broker else (self.port,)
        return (*ports, self.metrics_port) if self.metrics_port else ports

    @property
    def spare_port(self) -> int:
        """The fourth port of the server, which metrics may use."""
        return self.port - 1 if self.is_broker else self.port + 1

    @property
    def config_file(self) -> Path:
        """The server's properties file."""
        return self.folder / "conf" / f"{self.name}.properties"

    @property
    def output_file(self) -> Path:
        """The file that receives the server's standard output and error."""
        return self.folder / f"{self.name}.out"

    @property
    def pid_file(self) -> Path:
        """The file that identifies the server's process."""
        return self.folder / "run" / f"{self.name}.pid"

    @property
    def log_folder(self) -> Path:
        """The folder of the server's log files."""
        return self.folder / "logs" / self.name

    @property
    def store(self) -> Path:
        """The server's data: a broker's store, a name server's tables, a controller's decisions."""
        return self.folder / (f"store/{self.name}" if self.is_broker else self.name)

    @property
    def commit_log(self) -> Path:
        """The folder of the commit log."""
        return self.store / "commitlog"

    def start_command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""
        kind = "namesrv" if self.is_namesrv else "controller" if self.is_controller else "broker"
        return [sys.executable, "-m", f"rmqha.{kind}.{kind}_startup", "-c", str(self.config_file)]

    def environment(self) -> dict[str, str]:
        """Return the server's environment: its home is the cluster's folder, and it imports this process's rmqha."""
        environment = {**os.environ, "HOME": str(self.folder), mix_all.ROCKETMQ_HOME_ENV: str(self.folder),
                       logs.LOG_DIR_ENV: str(self.log_folder), "PYTHONUNBUFFERED": "1"}
        environment.pop(mix_all.NAMESRV_ADDR_ENV, None)
        # NOTIFY_SOCKET belongs to the service that `rmqha up` may run in.
        environment.pop("NOTIFY_SOCKET", None)
        # Packages installed with `pip install --user` are below the home of this process.
        if site.USER_BASE:
            environment["PYTHONUSERBASE"] = site.USER_BASE
        package_folder = str(Path(rmqha.__file__).resolve().parents[1])
        # Not in site-packages: rmqha runs from a checkout.
        if package_folder not in [*site.getsitepackages(), site.getusersitepackages()]:
            path = [package_folder, *filter(None, [environment.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(path)
        return environment

    def tail(self) -> str:
        """Return the end of the server's output file."""
        if not self.output_file.exists():
            return ""
        return self.output_file.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").strip()


DESCRIPTION = "cluster.json"
CLUSTER_NAME = "DefaultCluster"
SMALL, NORMAL = "small", "normal"
MAX_MASTERS, MAX_SLAVES = len(string.ascii_lowercase), 9
_FORMAT = 1
# Shorter periods than RocketMQ's make a cluster ready sooner: a slave learns its master's address from the name server,
# and an empty master first shows that it is alive by a heartbeat.
QUICK = {"registerNameServerPeriod": 10_000, "haSendHeartbeatInterval": 500}  # ms
_SMALL = {**SMALL_FILES, "preallocateMappedFile": "false"}


@dataclass(frozen=True)
class Shape:
    """The number and kind of the brokers.

    `slaves` is per master. `memory` is SMALL or NORMAL. `metrics`: each server has a port for its metrics.
    `auto_failover`: a controller decides which broker of a name is the master.
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
        """The number of consecutive ports that the cluster needs."""
        return (1 + self.auto_failover + self.masters * (1 + self.slaves)) * PORTS_PER_BROKER


@dataclass(frozen=True)
class Layout:
    """A cluster's servers: the name server, the controller if there is one, then each master with its slaves."""

    nodes: tuple[Node, ...]
    memory: str
    # For brokers whose roles change: a message is acknowledged only when all in-sync replicas have it.
    sync_replicas: bool = True

    @property
    def namesrv(self) -> Node:
        """The name server."""
        return self.nodes[0]

    @property
    def masters(self) -> list[Node]:
        """The brokers that are always masters."""
        return [node for node in self.nodes if node.is_master]

    @property
    def slaves(self) -> list[Node]:
        """The slaves."""
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
        """The order in which servers start: each group after the servers that it asks.

        When the replicas are new, the first of each name starts before the others and becomes the master. Later the
        controller keeps the previous master, so all start together.
        """
        first, others = self.replicas, []
        if not any(node.store.exists() for node in self.replicas):
            first = [node for node in self.replicas if node.broker_id == mix_all.MASTER_ID]
            others = [node for node in self.replicas if node not in first]
        groups = [[self.namesrv], self.controllers, self.masters, self.slaves, first, others]
        return [group for group in groups if group]

    @property
    def stop_groups(self) -> list[list[Node]]:
        """The order in which servers stop: the controllers first, so that no slave is promoted meanwhile."""
        groups = [self.controllers, self.replicas, self.slaves, self.masters, [self.namesrv]]
        return [group for group in groups if group]

    @property
    def shape(self) -> Shape:
        """The cluster's shape, as the options of `rmqha up` describe it."""
        names = {node.broker_name for node in self.nodes if node.is_replica or node.is_master}
        followers = sum(node.is_broker for node in self.nodes) - len(names)
        sync = self.sync_replicas if self.replicas else any(
            node.role == BrokerRole.SYNC_MASTER.name for node in self.nodes)
        return Shape(len(names), followers // max(len(names), 1), sync, self.memory,
                     any(node.metrics_port for node in self.nodes), bool(self.controllers))


def make(folder: Path, shape: Shape, first_port: int) -> Layout:
    """Return the servers of a new cluster: the name server at `first_port`, the brokers above it."""
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
    """Return the initial config of a server."""
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
        **_place_of(node, layout),
        **metrics,
        **QUICK,
        **(_SMALL if layout.memory == SMALL else {}),
        **(_replica_properties(node, layout) if node.is_replica else {}),
    }


def _replica_properties(node: Node, layout: Layout) -> dict[str, object]:
    """Return the keys of a broker whose role the controller decides; they override the others.

    With 3 or more replicas a message is acknowledged when 2 of them have it.
    """
    count = sum(each.broker_name == node.broker_name for each in layout.replicas)
    return {"brokerId": -1, "brokerRole": BrokerRole.SLAVE.name, "enableControllerMode": "true",
            "controllerAddr": ";".join(each.address for each in layout.controllers),
            "allAckInSyncStateSet": str(layout.sync_replicas).lower(),
            "minInSyncReplicas": 2 if layout.sync_replicas and count > 2 else 1}


def make_from_files(conf_folder: Path, folder: Path, first_port: int) -> Layout:
    """Write a new cluster with one broker per file of a conf folder, and return its servers; keys are kept.

    A controller is added when a file has enableControllerMode=true.
    """
    files = sorted(conf_folder.glob("*.properties"))
    if not files:
        raise ClusterError(f"no .properties files in {conf_folder}")
    keys = [dict(read_config_file(str(file))) for file in files]
    nodes = [Node(folder, "namesrv", NAMESRV, first_port)]
    if any(map(_is_controlled, keys)):
        nodes.append(Node(folder, "controller", CONTROLLER, first_port + (len(files) + 1) * PORTS_PER_BROKER))
    first = len(nodes)
    for index, (file, own) in enumerate(zip(files, keys)):
        port = first_port + (index + 1) * PORTS_PER_BROKER
        role, broker_id = (REPLICA, index) if first > 1 else (own["brokerRole"], int(own["brokerId"]))
        nodes.append(Node(folder, file.stem, role, port, own["brokerName"], broker_id))
    layout = Layout(tuple(nodes), SMALL)
    for node in nodes[:first]:
        write_config(node, properties_of(node, layout))
    for node, own in zip(nodes[first:], keys):
        controllers = {"controllerAddr": nodes[1].address} if first > 1 else {}
        write_config(node, {**own, **controllers, **SMALL_FILES, **QUICK, **_place_of(node, layout)})
    write(folder, layout)
    return layout


def ports_needed(conf_folder: Path) -> int:
    """Return the number of consecutive ports that a cluster of this conf folder needs."""
    keys = [read_config_file(str(file)) for file in conf_folder.glob("*.properties")]
    return (1 + len(keys) + any(map(_is_controlled, keys))) * PORTS_PER_BROKER


def _is_controlled(keys: Mapping[str, str]) -> bool:
    return keys.get("enableControllerMode") == "true"


def _place_of(node: Node, layout: Layout) -> dict[str, object]:
    """Return the keys that place a broker: its addresses and its folders."""
    return {
        "namesrvAddr": layout.namesrv.address,
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "listenPort": node.port,
        "storePathRootDir": node.store,
        "storePathCommitLog": node.commit_log,
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
    data: dict[str, object] = {"rmqhaCluster": _FORMAT, "folder": str(folder), "memory": layout.memory, "nodes": nodes}
    if layout.controllers:
        data["syncReplicas"] = layout.sync_replicas
    mix_all.string2file(json.dumps(data, indent=1) + "\n", str(folder / DESCRIPTION))


def read(folder: Path) -> Layout | None:
    """Return the cluster of a folder, or None without a cluster.json. ClusterError when that file is not ours."""
    file = folder / DESCRIPTION
    try:
        data = parse_json(file.read_bytes(), "its text")
        if data["rmqhaCluster"] != _FORMAT:
            raise ClusterError(f"{file} has format {data['rmqhaCluster']}, but this rmqha supports {_FORMAT}: use the "
                               "rmqha version that created it")
        return Layout(tuple(_node(folder, each) for each in data["nodes"]), str(data["memory"]),
                      bool(data.get("syncReplicas", True)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise _foreign(file, error) from None


def _foreign(file: Path, error: Exception) -> ClusterError:
    return ClusterError(f"{file} was not written by `rmqha up`, or is damaged ({error!r}): use another --dir")


def _node(folder: Path, data: dict[str, Any]) -> Node:
    """Return a server. Its config file overrides cluster.json: roles change, and users edit config files."""
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
    """Write the missing config files. If the folder was moved, replace its old path in the existing ones."""
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


# Below the ephemeral ports that Linux assigns to clients.
PORTS = (20_000, 32_000)
_TRIES = 200


def free_port_block(count: int, reserved: Iterable[int] = ()) -> int:
    """Return the first of `count` consecutive free ports, none of them `reserved`.

    ClusterError when 200 random tries find none.
    """
    taken = set(reserved)
    for _ in range(_TRIES):
        first = random.randrange(PORTS[0], PORTS[1] - count)
        block = range(first, first + count)
        if taken.isdisjoint(block) and all(map(is_free, block)):
            return first
    raise ClusterError(f"found no {count} free consecutive ports between {PORTS[0]} and {PORTS[1]}")


def check_free(nodes: Iterable[Node]) -> None:
    """Check that the ports of servers that are about to start are free; ClusterError when one is taken."""
    for node in nodes:
        for port in node.ports:
            if not is_free(port):
                by = ", ".join(holders(port)) or "another user's process"
                raise ClusterError(f"{node.name} can't start: port {port} is in use by {by}. Stop that process, or "
                                   f"create a cluster on other ports: --port counts only when a cluster is created")


DIR_ENV = "RMQHA_DIR"
DEFAULT_NAME = "default"
_LOCK = ".lock"
_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_LOCK_TRIES = 10
_MAX_PORT = 65_535


def home() -> Path:
    """Return the folder of named clusters: $XDG_DATA_HOME/rmqha, or else ~/.local/share/rmqha."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data_home) if os.path.isabs(data_home) else Path.home() / ".local" / "share") / "rmqha"


def chosen(folder: str | None, name: str | None) -> Path:
    """Return the cluster's folder: from --dir, --name, $RMQHA_DIR, or the default name, in this order."""
    if folder is None and name is None:
        folder = os.environ.get(DIR_ENV) or None
    if folder is not None:
        # Path("") would be the working directory; --dir "$RMQHA_DIR" is empty when the variable is not set.
        if not folder.strip():
            raise ClusterError(f"--dir is empty: give a folder, or --name, or omit both to use ${DIR_ENV}")
        return Path(folder).expanduser().resolve()
    name = DEFAULT_NAME if name is None else name
    if not _NAME.fullmatch(name):
        raise ClusterError(f"--name {name!r} is not valid: use letters, digits, _ . and -, or give a folder with --dir")
    return (home() / name).resolve()


def load(folder: Path) -> Layout:
    """Return the cluster in a folder; ClusterError when it has none."""
    found = read(folder)
    if found is None:
        raise ClusterError(f"no cluster in {folder}; create one with `rmqha up`{_others(folder)}")
    return found


def _others(folder: Path) -> str:
    names = sorted(path.parent.name for path in home().glob(f"*/{DESCRIPTION}") if path.parent != folder)
    return f"; existing clusters for --name: {', '.join(names)}" if names else ""


def make_or_load(folder: Path, wanted: dict[str, Any], first_port: int | None) -> Layout:
    """Return the cluster of a folder, creating it if necessary; the caller holds the lock.

    `wanted`: the fields of its Shape that the user asked for. ClusterError when an existing cluster has others.
    """
    check_ours_or_empty(folder)
    found = read(folder)
    if found is None:
        return _make(folder, _shape_of(wanted), first_port)
    differing = [_option(key, value) for key, value in wanted.items() if value != getattr(found.shape, key)]
    if first_port not in (None, found.namesrv.port):
        differing.append(_option("port", first_port))
    if differing:
        raise ClusterError(
            f"{folder} already holds a cluster of {found.shape}, with its name server at port {found.namesrv.port}; "
            f"{' '.join(differing)} can't change it. Omit that, use another --name, or delete this cluster first: "
            f"`rmqha down --purge --dir {shlex.quote(str(folder))}`")
    complete_configs(folder, found)
    return found


def _shape_of(wanted: dict[str, Any]) -> Shape:
    """Return the shape of a new cluster; ClusterError when its masters would wait for slaves that don't exist."""
    if wanted.get("slaves") == 0:
        if wanted.get("sync"):
            raise ClusterError("--sync needs a slave: with --slaves 0 each send would return SLAVE_NOT_AVAILABLE. "
                               "Omit --sync, or use --slaves 1")
        wanted = {**wanted, "sync": False}
    return Shape(**wanted)


def _option(key: str, value: object) -> str:
    switches = {"sync": ("--async", "--sync"), "metrics": ("--no-metrics", "--metrics"),
                "auto_failover": ("--no-auto-failover", "--auto-failover")}
    return switches[key][bool(value)] if key in switches else f"--{key} {value}"


def _make(folder: Path, shape: Shape, first_port: int | None) -> Layout:
    if first_port is None:
        first_port = free_port_block(shape.port_count, _reserved_ports())
    elif first_port + shape.port_count > _MAX_PORT:
        raise ClusterError(f"--port {first_port}: the cluster needs {shape.port_count} ports from there, beyond "
                           f"{_MAX_PORT}")
    if shape.metrics and not metrics.is_available():
        raise ClusterError(f"--metrics: {metrics.HOW_TO_INSTALL}")
    made = make(folder, shape, first_port)
    check_free(made.nodes)
    # First: from now on the folder is recognized as a cluster's.
    write(folder, made)
    complete_configs(folder, made)
    return made


def check_ours_or_empty(folder: Path) -> None:
    """Check that a folder is new, empty or a cluster's; ClusterError otherwise."""
    if folder.exists() and not folder.is_dir():
        raise ClusterError(f"{folder} is not a folder; use another --dir")
    if folder.is_dir() and read(folder) is None and set(os.listdir(folder)) - {_LOCK}:
        raise ClusterError(f"{folder} is not empty and has no {DESCRIPTION} of `rmqha up`: give a new or empty folder "
                           "with --dir")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock for changes of the cluster; the folder is created. ClusterError when another process holds it."""
    for _ in range(_LOCK_TRIES):
        descriptor = _open_lock(folder)
        try:
            if _lock(folder, descriptor):
                yield
                return
        finally:
            os.close(descriptor)
    raise ClusterError(f"{folder} is repeatedly created and deleted: does `rmqha down --purge` run in a loop?")


def _open_lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ClusterError(f"can't write to {folder}: {error.strerror}; use another --dir") from None


def _lock(folder: Path, descriptor: int) -> bool:
    """Take the lock; return False when --purge has deleted the file meanwhile."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        raise ClusterError(f"another `rmqha up` or `down` (pid {pid or 'unknown'}) is running on {folder}: wait until "
                           "it ends, or use another --dir or --name") from None
    try:
        if os.stat(folder / _LOCK).st_ino != os.fstat(descriptor).st_ino:
            return False
    except FileNotFoundError:
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return True


def purge(folder: Path) -> None:
    """Delete a cluster's folder; ClusterError when it is not a cluster's."""
    load(folder)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise ClusterError(f"can't delete {error.filename or folder}: {error.strerror}") from None


def _reserved_ports() -> set[int]:
    """Return the ports of the other named clusters, which may be stopped now."""
    ports: set[int] = set()
    for file in home().glob(f"*/{DESCRIPTION}"):
        with contextlib.suppress(ClusterError):  # not a file of ours
            found = read(file.parent)
            ports.update(port for node in (found.nodes if found else ()) for port in node.ports)
    return ports
