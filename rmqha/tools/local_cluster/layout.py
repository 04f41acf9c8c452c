"""The folder of a local cluster: its servers, their files and ports, and the lock for changes.

    <folder>/cluster.json             the cluster's servers; marks the folder as a cluster's
    <folder>/conf/<node>.properties   a server's config, which the user may change
    <folder>/store/<node>/            a broker's store
    <folder>/logs/<node>/             its log files
    <folder>/<node>.out               its output
    <folder>/run/<node>.pid           its process, while `rmqha up` has it running

- `Node`: one server. `Shape`, `Layout`: a cluster, from options to cluster.json and config files and back.
- `free_port_block`, `check_free`: free consecutive ports of this host, and the process that holds a taken one.
- `chosen`, `make_or_load`, `locked`: which folder, whether it is a cluster's, and the lock that a change holds.
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
PORTS_PER_BROKER = 4  # listenPort - 2, listenPort, listenPort + 1, and one for metrics
NAMESRV, CONTROLLER = "NAME SERVER", "CONTROLLER"
REPLICA = "REPLICA"  # a broker whose role the controller decides
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
    """A cluster or one of its servers is not as it should be; the text says which, why, and what to do."""


@dataclass
class Node:
    """A server. `name` is its file's, `broker_name` what clients see; `role`: NAMESRV, CONTROLLER, REPLICA or a
    BrokerRole. `broker_id` of a REPLICA only tells it from the others: the controller gives it another one.
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
        """ "ip:port" for clients."""
        return f"{HOST}:{self.port}"

    @property
    def is_namesrv(self) -> bool:
        """Whether it is the name server."""
        return self.role == NAMESRV

    @property
    def is_controller(self) -> bool:
        """Whether it is the controller."""
        return self.role == CONTROLLER

    @property
    def is_replica(self) -> bool:
        """Whether it is a broker whose role the controller decides."""
        return self.role == REPLICA

    @property
    def is_broker(self) -> bool:
        """Whether it is a broker, whatever its role."""
        return not self.is_namesrv and not self.is_controller

    @property
    def is_slave(self) -> bool:
        """Whether it is a broker that copies."""
        return self.role == BrokerRole.SLAVE.name

    @property
    def is_master(self) -> bool:
        """Whether it is a broker that always takes messages."""
        return self.is_broker and not self.is_slave and not self.is_replica

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports that it listens on."""
        ports = (self.port, self.port - 2, self.port + 1) if self.is_broker else (self.port,)
        return (*ports, self.metrics_port) if self.metrics_port else ports

    @property
    def spare_port(self) -> int:
        """The fourth of its ports."""
        return self.port - 1 if self.is_broker else self.port + 1

    @property
    def config_file(self) -> Path:
        """Its properties file."""
        return self.folder / "conf" / f"{self.name}.properties"

    @property
    def output_file(self) -> Path:
        """What it prints."""
        return self.folder / f"{self.name}.out"

    @property
    def pid_file(self) -> Path:
        """Which process it is."""
        return self.folder / "run" / f"{self.name}.pid"

    @property
    def log_folder(self) -> Path:
        """Its log files."""
        return self.folder / "logs" / self.name

    @property
    def store(self) -> Path:
        """What it keeps: a broker's store, a name server's tables, a controller's decisions."""
        return self.folder / (f"store/{self.name}" if self.is_broker else self.name)

    @property
    def commit_log(self) -> Path:
        """The folder of the commit log."""
        return self.store / "commitlog"

    def start_command(self) -> list[str]:
        """The command that runs it in the foreground."""
        kind = "namesrv" if self.is_namesrv else "controller" if self.is_controller else "broker"
        return [sys.executable, "-m", f"rmqha.{kind}.{kind}_startup", "-c", str(self.config_file)]

    def environment(self) -> dict[str, str]:
        """What it runs with: its home is the cluster's folder, and it finds the package that this process uses."""
        environment = {**os.environ, "HOME": str(self.folder), mix_all.ROCKETMQ_HOME_ENV: str(self.folder),
                       logs.LOG_DIR_ENV: str(self.log_folder), "PYTHONUNBUFFERED": "1"}
        environment.pop(mix_all.NAMESRV_ADDR_ENV, None)
        environment.pop("NOTIFY_SOCKET", None)  # of the service that `rmqha up` may run in
        if site.USER_BASE:  # what was installed with pip's --user is below the home that this process has
            environment["PYTHONUSERBASE"] = site.USER_BASE
        package_folder = str(Path(rmqha.__file__).resolve().parents[1])
        if package_folder not in [*site.getsitepackages(), site.getusersitepackages()]:  # a checkout
            path = [package_folder, *filter(None, [environment.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(path)
        return environment

    def tail(self) -> str:
        """The end of what it printed."""
        if not self.output_file.exists():
            return ""
        return self.output_file.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").strip()


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
        **_place_of(node, layout),
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


def make_from_files(conf_folder: Path, folder: Path, first_port: int) -> Layout:
    """The servers of a new cluster with a broker for each file of a conf folder, whose keys it keeps; all is written.

    Where the files have enableControllerMode=true there is a controller, too.
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
    """How many ports in a row a cluster of this conf folder takes."""
    keys = [read_config_file(str(file)) for file in conf_folder.glob("*.properties")]
    return (1 + len(keys) + any(map(_is_controlled, keys))) * PORTS_PER_BROKER


def _is_controlled(keys: Mapping[str, str]) -> bool:
    return keys.get("enableControllerMode") == "true"


def _place_of(node: Node, layout: Layout) -> dict[str, object]:
    """Where a broker is: its addresses and its folders."""
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


PORTS = (20_000, 32_000)  # below those that Linux gives to clients
_TRIES = 200


def free_port_block(count: int, reserved: Iterable[int] = ()) -> int:
    """The first of `count` ports in a row that nobody listens at, none of them `reserved`.

    ClusterError when 200 random tries find none.
    """
    taken = set(reserved)
    for _ in range(_TRIES):
        first = random.randrange(PORTS[0], PORTS[1] - count)
        block = range(first, first + count)
        if taken.isdisjoint(block) and all(map(is_free, block)):
            return first
    raise ClusterError(f"found no {count} free ports in a row between {PORTS[0]} and {PORTS[1]}")


def check_free(nodes: Iterable[Node]) -> None:
    """ClusterError when a port of a server that is to be started is taken."""
    for node in nodes:
        for port in node.ports:
            if not is_free(port):
                by = ", ".join(holders(port)) or "a process of somebody else"
                raise ClusterError(f"{node.name} can't start: port {port} is taken by {by}. Stop that, or change the "
                                   f"ports of this cluster: they are chosen when it is made (--port)")


DIR_ENV = "RMQHA_DIR"
DEFAULT_NAME = "default"
_LOCK = ".lock"
_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_LOCK_TRIES = 10
_MAX_PORT = 65_535


def home() -> Path:
    """Where named clusters are: $XDG_DATA_HOME/rmqha, else ~/.local/share/rmqha."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data_home) if os.path.isabs(data_home) else Path.home() / ".local" / "share") / "rmqha"


def chosen(folder: str | None, name: str | None) -> Path:
    """The folder that options and environment mean: --dir, --name, $RMQHA_DIR, the default name's."""
    if folder is None and name is None:
        folder = os.environ.get(DIR_ENV) or None
    if folder is not None:
        if not folder.strip():  # "$RMQHA_DIR" that is not set would be the working directory
            raise ClusterError(f"--dir is empty: give a folder, or leave it out for that of ${DIR_ENV}, or --name")
        return Path(folder).expanduser().resolve()
    name = DEFAULT_NAME if name is None else name
    if not _NAME.fullmatch(name):
        raise ClusterError(f"--name {name!r}: letters, digits, _ . and - make a name; --dir takes any folder")
    return (home() / name).resolve()


def load(folder: Path) -> Layout:
    """The cluster in a folder; ClusterError when there is none."""
    found = read(folder)
    if found is None:
        raise ClusterError(f"no cluster in {folder}: `rmqha up` makes one{_others(folder)}")
    return found


def _others(folder: Path) -> str:
    names = sorted(path.parent.name for path in home().glob(f"*/{DESCRIPTION}") if path.parent != folder)
    return f"; --name takes one that is there: {', '.join(names)}" if names else ""


def make_or_load(folder: Path, wanted: dict[str, Any], first_port: int | None) -> Layout:
    """The cluster of a folder, made when there is none; under the lock.

    `wanted`: fields of its Shape that somebody asks for. ClusterError when they can't be had.
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
            f"{folder} holds a cluster of {found.shape}, its name server at port {found.namesrv.port}, which "
            f"{' '.join(differing)} can't change: leave that out, give another --name, or delete this one first with "
            f"`rmqha down --purge --dir {shlex.quote(str(folder))}`")
    complete_configs(folder, found)
    return found


def _shape_of(wanted: dict[str, Any]) -> Shape:
    """The shape of a new cluster; ClusterError for one whose masters would wait for slaves that they don't have."""
    if wanted.get("slaves") == 0:
        if wanted.get("sync"):
            raise ClusterError("--sync needs a slave: with --slaves 0 each send would be answered SLAVE_NOT_AVAILABLE. "
                               "Leave out --sync, or give --slaves 1")
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
        raise ClusterError(f"--port {first_port}: {shape.port_count} ports from there on end beyond {_MAX_PORT}")
    if shape.metrics and not metrics.is_available():
        raise ClusterError(f"--metrics: {metrics.HOW_TO_INSTALL}")
    made = make(folder, shape, first_port)
    check_free(made.nodes)
    write(folder, made)  # first: from now on the folder is known as ours
    complete_configs(folder, made)
    return made


def check_ours_or_empty(folder: Path) -> None:
    """ClusterError when a folder holds something else than a cluster."""
    if folder.exists() and not folder.is_dir():
        raise ClusterError(f"{folder} is no folder: give another --dir")
    if folder.is_dir() and read(folder) is None and set(os.listdir(folder)) - {_LOCK}:
        raise ClusterError(f"{folder} holds other things, and no {DESCRIPTION} of `rmqha up`: give a folder "
                           "that is new or empty with --dir")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others from changing the cluster meanwhile; the folder is made. ClusterError when somebody is at it."""
    for _ in range(_LOCK_TRIES):
        descriptor = _open_lock(folder)
        try:
            if _lock(folder, descriptor):
                yield
                return
        finally:
            os.close(descriptor)
    raise ClusterError(f"{folder} comes and goes: is `rmqha down --purge` called again and again?")


def _open_lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ClusterError(f"{folder} can't be written: {error.strerror}; give another --dir") from None


def _lock(folder: Path, descriptor: int) -> bool:
    """Take the lock; False when the file was deleted meanwhile, by --purge."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        raise ClusterError(f"another `rmqha up` or `down` (pid {pid or 'unknown'}) is at work in {folder}: wait for "
                           "its end, or give another --dir or --name") from None
    try:
        if os.stat(folder / _LOCK).st_ino != os.fstat(descriptor).st_ino:
            return False
    except FileNotFoundError:
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return True


def purge(folder: Path) -> None:
    """Delete a cluster's folder. ClusterError unless it is one."""
    load(folder)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise ClusterError(f"{error.filename or folder} can't be deleted: {error.strerror}") from None


def _reserved_ports() -> set[int]:
    """Ports of the other named clusters, which may be down just now."""
    ports: set[int] = set()
    for file in home().glob(f"*/{DESCRIPTION}"):
        with contextlib.suppress(ClusterError):  # somebody else's file
            found = read(file.parent)
            ports.update(port for node in (found.nodes if found else ()) for port in node.ports)
    return ports
