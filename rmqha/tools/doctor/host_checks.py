"""Findings of the doctor, and its checks of a broker's config file and of the host.

- `Report`, `Finding`: the findings, and their text.
- `check_config_file`: problems within the config file alone.
- `check_host`: problems of this host, for which the config file is meant.
"""
import ipaddress
import os
import resource
from dataclasses import dataclass, field
from enum import Enum

import psutil

from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import ConfigError, load_config_file
from rmqha.common.java import JavaProperties
from rmqha.common.process import max_map_count, max_mapped_files
from rmqha.common.units import size_text
from rmqha.common.util_all import get_disk_partition_space_used_percent
from rmqha.native import kernels
from rmqha.remoting.addresses import FAST_PORT, HA_PORT, LISTEN_PORT, holders, string2_socket_address, why_not_listen
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store import store_path_config_helper as paths
from rmqha.store.message_store_config import (
    AUTO_SWITCH,
    MULTI_PATH_SPLITTER,
    BrokerRole,
    MessageStoreConfig,
    waits_for_promotion,
)
from rmqha.tools.store_files import reading


class Severity(Enum):
    """ERROR: it does not work, or data is in danger; WARNING: it will not some day; OK: looked at, and good."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    NOTE = "NOTE"
    OK = "OK"


_CHECK_WIDTH = len("replication")  # the longest name of a check


@dataclass(frozen=True)
class Finding:
    """`what` is so, at `where`; `todo` says what to do about it."""

    severity: Severity
    check: str  # ports, addresses, roles, clocks, disk, limits, offsets, store, config, nameserver, compiled
    where: str
    what: str
    todo: str = ""

    def text(self) -> str:
        """One line, and a second one with what to do."""
        line = f"{self.severity.value:<7} {self.check:<{_CHECK_WIDTH}} {self.where}: {self.what}"
        return f"{line}\n{'':<{7 + 1 + _CHECK_WIDTH + 1}}-> {self.todo}" if self.todo else line


@dataclass
class Report:
    """All findings, in the order in which things were looked at."""

    findings: list[Finding] = field(default_factory=list)

    def error(self, check: str, where: str, what: str, todo: str) -> None:
        """Something does not work, or data is in danger."""
        self.findings.append(Finding(Severity.ERROR, check, where, what, todo))

    def warning(self, check: str, where: str, what: str, todo: str) -> None:
        """Something that will hurt some day, or is likely a mistake."""
        self.findings.append(Finding(Severity.WARNING, check, where, what, todo))

    def note(self, check: str, where: str, what: str, todo: str = "") -> None:
        """Something to know."""
        self.findings.append(Finding(Severity.NOTE, check, where, what, todo))

    def good(self, check: str, where: str, what: str) -> None:
        """A check that passed."""
        self.findings.append(Finding(Severity.OK, check, where, what))

    def count(self, severity: Severity) -> int:
        """How many findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)


_DEFAULT_LISTEN_PORT = 10911
_OTHER_KEYS = ("rmqAddressServerDomain", "rmqAddressServerSubGroup")


@dataclass
class LoadedConfig:
    """A broker's config file, read as the broker reads it."""

    file: str
    properties: JavaProperties
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    server: ServerConfig = field(default_factory=lambda: ServerConfig(listenPort=_DEFAULT_LISTEN_PORT))
    store: MessageStoreConfig = field(default_factory=MessageStoreConfig)

    @property
    def ha_port(self) -> int:
        """Whatever haListenPort says."""
        return self.server.listenPort + 1

    @property
    def is_slave(self) -> bool:
        """Whether its role is a slave's."""
        return self.store.brokerRole is BrokerRole.SLAVE

    @property
    def namesrv_addresses(self) -> list[str]:
        """The name servers."""
        return [address.strip() for address in (self.broker.namesrvAddr or "").split(";") if address.strip()]

    @property
    def on_one_host(self) -> bool:
        """Whether all its name servers are of this host by their addresses."""
        return bool(self.namesrv_addresses) and all(is_loopback(each.rpartition(":")[0])
                                                    for each in self.namesrv_addresses)

    def place(self, key: str) -> str:
        """Where a key stands: file:line."""
        line = self.properties.lines.get(key)
        return f"{self.file}:{line}" if line else self.file


def is_loopback(host: str) -> bool:
    """Whether an address means the host itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_config_file(file: str, report: Report) -> LoadedConfig | None:
    """Read a file and judge its keys; None when it can't be read."""
    loaded = LoadedConfig(file, JavaProperties())
    warnings: list[str] = []
    try:
        loaded.properties = load_config_file(file, (loaded.broker, loaded.server, RemotingClientConfig(), loaded.store),
                                             _OTHER_KEYS, warn=warnings.append)
    except ConfigError as error:
        report.error("config", file, str(error).removeprefix(f"{file}: "), "a broker does not start with this: "
                     "correct the file")
        return None
    for text in warnings:
        place, _colon, what = text.partition(": ")
        report.warning("config", place, what, "correct the key or remove it: a broker goes on without it")
    _check_role(loaded, report)
    _check_master_address(loaded, report)
    _check_replicas(loaded, report)
    _check_name_servers(loaded, report)
    ha_port = loaded.properties.get("haListenPort")
    if ha_port is not None and ha_port.strip() != str(loaded.ha_port):
        report.warning("ports", loaded.place("haListenPort"), f"haListenPort={ha_port} has no effect: slaves are "
                       f"served on {loaded.ha_port}, listenPort + 1", "remove the key, and open that port")
    return loaded


def _check_role(loaded: LoadedConfig, report: Report) -> None:
    role, broker_id = loaded.store.brokerRole.name, loaded.broker.brokerId
    waits = waits_for_promotion(loaded.broker, loaded.store)
    if waits is not None:
        report.warning("roles", loaded.place(AUTO_SWITCH), f"{AUTO_SWITCH}: {waits}", "remove the key, or promote the "
                       "broker after each start; with controllers set enableControllerMode and controllerAddr")
    if loaded.broker.enableControllerMode:
        _check_controllers(loaded, report)
    elif loaded.is_slave and broker_id <= 0:
        report.error("roles", loaded.place("brokerId"), f"brokerRole=SLAVE with brokerId={broker_id}: 0 is the "
                     "master's", "give each slave of a master its own brokerId above 0")
    elif not loaded.is_slave and broker_id != 0:
        report.error("roles", loaded.place("brokerId"), f"brokerRole={role} with brokerId={broker_id}: the broker will "
                     "be master 0 all the same", "a slave needs brokerRole=SLAVE, a master brokerId=0")
    else:
        report.good("roles", loaded.file, f"{loaded.broker.brokerName} {broker_id} is a {role}")


def _check_controllers(loaded: LoadedConfig, report: Report) -> None:
    """Role and id are the controller's to give; what the file says of them does not matter."""
    addresses = [part.strip() for part in loaded.broker.controllerAddr.split(";") if part.strip()]
    if not addresses:
        report.error("roles", loaded.place("enableControllerMode"), "enableControllerMode=true without controllerAddr: "
                     "nobody gives it an id and a role", "set controllerAddr, host:port of all controllers joined by ;")
    else:
        report.good("roles", loaded.file, f"{loaded.broker.brokerName} asks {', '.join(addresses)} for its role")


def _check_master_address(loaded: LoadedConfig, report: Report) -> None:
    address = loaded.store.haMasterAddress
    if not loaded.is_slave or loaded.broker.enableControllerMode:
        return
    if not address:
        if not loaded.namesrv_addresses:
            report.error("roles", loaded.file, "a slave without haMasterAddress and without namesrvAddr finds no "
                         "master", "set namesrvAddr, or haMasterAddress=<master's brokerIP2>:<its listenPort + 1>")
        return
    host, port = string2_socket_address(address)
    if port == loaded.ha_port and host in (loaded.broker.brokerIP2, loaded.broker.brokerIP1, "127.0.0.1", "localhost"):
        report.error("roles", loaded.place("haMasterAddress"), f"haMasterAddress={address} is this broker's own HA "
                     "port: it would follow itself", "give the master's")


def _check_replicas(loaded: LoadedConfig, report: Report) -> None:
    store = loaded.store
    for key in ("inSyncReplicas", "minInSyncReplicas"):
        if "totalReplicas" in loaded.properties and getattr(store, key) > store.totalReplicas:
            report.warning("roles", loaded.place(key), f"{key}={getattr(store, key)} is more than "
                           f"totalReplicas={store.totalReplicas}: sends would wait for brokers that there are not",
                           "raise totalReplicas or lower the key; the master itself counts")


def _check_name_servers(loaded: LoadedConfig, report: Report) -> None:
    if not loaded.namesrv_addresses:
        report.warning("nameserver", loaded.file, "no namesrvAddr: no client finds this broker",
                       "set namesrvAddr=host:port, several separated by semicolons")


CLEAN_FORCIBLY, WRITES_REFUSED = 0.85, 0.90  # used parts of a disk; the broker's defaults
_SHOWN_ADDRESSES = 5
_NEAR = 0.8  # part of a limit
_VOLATILE = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs", "glusterfs", "ceph")


def check_host(loaded: LoadedConfig, report: Report) -> None:
    """All that can be seen without asking anybody."""
    running = reading.is_held(paths.get_lock_file(loaded.store.storePathRootDir))
    _check_ports(loaded, running, report)
    for key in ("brokerIP1", "brokerIP2"):
        _check_ip(loaded, key, report)
    check_store_folders(loaded, running, report)
    _check_limits(paths.get_store_path_consume_queue(loaded.store.storePathRootDir), report)


def check_kernels(report: Report) -> None:
    """What brokers that run from this installation have compiled."""
    for kernel in kernels.KERNELS:
        if kernel.module:
            report.good("compiled", str(kernels.FOLDER), kernel.told())
        else:
            report.warning("compiled", str(kernels.FOLDER), kernel.told(), kernels.MEND)


def _check_ports(loaded: LoadedConfig, running: bool, report: Report) -> None:
    port = loaded.server.listenPort
    if port == 0:
        report.note("ports", loaded.place("listenPort"), "listenPort=0: any free ports are taken at each start")
        return
    for number, use in ((port, LISTEN_PORT), (port + 1, HA_PORT), (port - 2, FAST_PORT)):
        where = loaded.place("listenPort")
        reason = why_not_listen(number)
        if reason is None:
            report.good("ports", where, f"{number}, {use}, is free")
        elif running and reason == "in use":
            report.good("ports", where, f"{number}, {use}, is in use, and the broker of this store runs")
        else:
            report.error("ports", where, f"{number}, {use}: {reason}{_users_of(number)}",
                         "stop what listens there, or choose another listenPort: it, the port above and the second "
                         "below have to be free")


def _users_of(port: int) -> str:
    by = holders(port)
    return f" by {', '.join(by)}" if by else ""


def _check_ip(loaded: LoadedConfig, key: str, report: Report) -> None:
    value, where = getattr(loaded.broker, key), loaded.place(key)
    use = "clients connect to" if key == "brokerIP1" else "slaves connect to"
    local = mix_all.get_local_inet_address()
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        report.note("addresses", where, f"{key}={value} is a name: all clients and slaves have to know it")
        return
    others = [text for text in local if not (ipaddress.ip_address(text).is_loopback
                                             or ipaddress.ip_address(text).is_link_local)]
    shown = ", ".join([*others[:_SHOWN_ADDRESSES], *(["..."] if len(others) > _SHOWN_ADDRESSES else [])])
    if address.is_unspecified:
        report.error("addresses", where, f"{key}={value} is where to listen, not where to connect",
                     f"give the address that {use}")
    elif address.is_loopback and loaded.on_one_host:
        report.note("addresses", where, f"{key}={value}: a cluster on one host, as its name server is there too")
    elif address.is_loopback and others:
        report.warning("addresses", where, f"{key}={value}: nobody on another host reaches it",
                       f"give the address that {use}, one of {shown}; leave it for a cluster on one host")
    elif str(address) not in local:
        report.warning("addresses", where, f"{key}={value} is none of this host's addresses: {shown}",
                       f"give the address that {use}; it is right only when that one is translated to this host")
    elif key not in loaded.properties and len(others) > 1:
        report.warning("addresses", loaded.file, f"{key} is not set, and this host has several addresses: "
                       f"{shown}; {value} is chosen", f"set {key} to the one that {use}")
    else:
        report.good("addresses", where, f"{key}={value} is this host's")


def check_store_folders(loaded: LoadedConfig, running: bool, report: Report) -> None:
    """Folders, permissions, disks, and how the last broker ended."""
    root = loaded.store.storePathRootDir
    logs = [path.strip() for path in loaded.store.get_store_path_commit_log().split(MULTI_PATH_SPLITTER)]
    for existing in dict.fromkeys(_existing(path) for path in (root, *logs)):
        if not os.path.isdir(existing):
            report.error("store", existing, "is no folder", "remove it, or choose another storePathRootDir")
            continue
        if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            report.error("store", existing, "this user may not write here", "run the doctor as the broker's user; "
                         f"chown {existing}, or choose another storePathRootDir")
        _check_file_system(existing, report)
        _check_space(loaded, existing, report)
    _check_files(root, report)
    if running:
        report.note("store", root, "a broker runs on this store")
    elif os.path.exists(paths.get_abort_file(root)):
        report.warning("store", paths.get_abort_file(root), "the last broker of this store did not stop by itself: a "
                       "crash, a kill -9, or a power loss", "the next start recovers and may take longer; look at it "
                       "before with rmqha store verify")


def _check_limits(folder: str, report: Report) -> None:
    files = sum(len(names) for _path, _folders, names in os.walk(folder))
    _soft, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)  # a broker raises its own to that
    judge_limits(folder, files, max_mapped_files(descriptors), report)


def judge_limits(where: str, files: int, mapped: int, report: Report) -> None:
    """`files` of consume queues, of which so many may be `mapped` at a time."""
    what = f"{files:,} files of consume queues, of which {mapped:,} may be in use at a time"
    if files > mapped * _NEAR:
        report.warning("limits", where, f"{what}: with more, maps go and come back, which slows them down",
                       f"raise vm.max_map_count ({max_map_count():,}) and the limit of descriptors (ulimit -n) of the "
                       "broker's user to more than twice as many, or have fewer topics or queues")
    else:
        report.good("limits", where, what)


def _existing(path: str) -> str:
    """The folder itself, or the nearest one above in which it would be made."""
    path = os.path.abspath(path)
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _check_files(root: str, report: Report) -> None:
    wrong = []
    for folder in ("", "config", "commitlog", "consumequeue", "index"):
        path = os.path.join(root, folder)
        for entry in os.scandir(path) if os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK) else ():
            if not os.access(entry.path, os.R_OK | os.W_OK):
                wrong.append(entry.path)
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        report.error("store", wrong[0], f"this user may not read and write it{more}",
                     "chown -R the store to the broker's user: a broker was once started as somebody else")


def _check_file_system(path: str, report: Report) -> None:
    mounts = [each for each in psutil.disk_partitions(all=True)
              if os.path.commonpath([each.mountpoint, os.path.realpath(path)]) == each.mountpoint]
    if not mounts:
        return
    mount = max(mounts, key=lambda each: len(each.mountpoint))
    if "ro" in mount.opts.split(","):
        report.error("disk", path, f"{mount.mountpoint} is mounted read-only", "mount it for writing; when the kernel "
                     "did this by itself, look for disk errors with dmesg first")
    if mount.fstype in _VOLATILE:
        report.warning("disk", path, f"the file system is {mount.fstype}: all is gone after a restart of the host",
                       "choose a folder on a disk")
    elif mount.fstype in _REMOTE:
        report.warning("disk", path, f"the file system is {mount.fstype}, over the network: mapped files and fsync are "
                       "slow there, and locks may not hold", "choose a folder on a local disk")
    else:
        report.good("disk", path, f"the file system is {mount.fstype}")


def _check_space(loaded: LoadedConfig, path: str, report: Report) -> None:
    judge_used(path, get_disk_partition_space_used_percent(path), loaded.store.get_disk_max_used_space_ratio(), report)
    disk = os.statvfs(path)
    free, needed = disk.f_bavail * disk.f_frsize, 2 * loaded.store.mappedFileSizeCommitLog
    if free < needed:
        report.warning("disk", path, f"{size_text(free)} free: less than two commit log files "
                       f"({size_text(needed)}) fit", "make space, or choose a smaller mappedFileSizeCommitLog for a "
                       "new store")


def judge_used(where: str, used: float, max_used_percent: int, report: Report) -> None:
    """`used` is a part of 1; less than 0 is unknown."""
    percent = f"{used * 100:.0f}% used"
    if used > WRITES_REFUSED:
        report.error("disk", where, f"{percent}: above {WRITES_REFUSED * 100:.0f}% the broker refuses to store",
                     "make space or lower fileReservedTime; writes resume by themselves")
    elif used > max(CLEAN_FORCIBLY, max_used_percent / 100):
        report.warning("disk", where, f"{percent}: above {CLEAN_FORCIBLY * 100:.0f}% files are deleted before their "
                       "time", "make space or lower fileReservedTime")
    elif used * 100 > max_used_percent:
        report.warning("disk", where, f"{percent}: above diskMaxUsedSpaceRatio={max_used_percent} old files are "
                       "deleted at any hour", "make space, or raise the key")
    elif used >= 0:
        report.good("disk", where, f"{percent}, diskMaxUsedSpaceRatio={max_used_percent}")
