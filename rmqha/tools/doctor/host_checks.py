"""The doctor's findings, and its checks of a broker's config file and of the host.

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
    """The severity of a finding. ERROR: it does not work, or data is in danger; WARNING: it is likely to fail later."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    NOTE = "NOTE"
    OK = "OK"


# the longest name of a check
_CHECK_WIDTH = len("replication")


@dataclass(frozen=True)
class Finding:
    """A finding: `what` was found at `where`, and `todo`, what to do about it."""

    severity: Severity
    # ports, addresses, roles, clocks, disk, limits, offsets, store, config, nameserver, compiled
    check: str
    where: str
    what: str
    todo: str = ""

    def text(self) -> str:
        """Return the finding as one line, with `todo` on a second one."""
        line = f"{self.severity.value:<7} {self.check:<{_CHECK_WIDTH}} {self.where}: {self.what}"
        return f"{line}\n{'':<{7 + 1 + _CHECK_WIDTH + 1}}-> {self.todo}" if self.todo else line


@dataclass
class Report:
    """All findings, in the order of the checks."""

    findings: list[Finding] = field(default_factory=list)

    def error(self, check: str, where: str, what: str, todo: str) -> None:
        """Report that something does not work, or that data is in danger."""
        self.findings.append(Finding(Severity.ERROR, check, where, what, todo))

    def warning(self, check: str, where: str, what: str, todo: str) -> None:
        """Report something that is likely to fail later, or likely to be a mistake."""
        self.findings.append(Finding(Severity.WARNING, check, where, what, todo))

    def note(self, check: str, where: str, what: str, todo: str = "") -> None:
        """Report something worth knowing."""
        self.findings.append(Finding(Severity.NOTE, check, where, what, todo))

    def good(self, check: str, where: str, what: str) -> None:
        """Report a check that passed."""
        self.findings.append(Finding(Severity.OK, check, where, what))

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
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
        """The port for slaves; haListenPort has no effect."""
        return self.server.listenPort + 1

    @property
    def is_slave(self) -> bool:
        """True if the broker's role is SLAVE."""
        return self.store.brokerRole is BrokerRole.SLAVE

    @property
    def namesrv_addresses(self) -> list[str]:
        """The addresses of the name servers."""
        return [address.strip() for address in (self.broker.namesrvAddr or "").split(";") if address.strip()]

    @property
    def on_one_host(self) -> bool:
        """True if all its name servers have loopback addresses."""
        return bool(self.namesrv_addresses) and all(is_loopback(each.rpartition(":")[0])
                                                    for each in self.namesrv_addresses)

    def place(self, key: str) -> str:
        """Return the place of a key as file:line."""
        line = self.properties.lines.get(key)
        return f"{self.file}:{line}" if line else self.file


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_config_file(file: str, report: Report) -> LoadedConfig | None:
    """Read a file and check its keys; return None when it can't be read."""
    loaded = LoadedConfig(file, JavaProperties())
    warnings: list[str] = []
    try:
        loaded.properties = load_config_file(file, (loaded.broker, loaded.server, RemotingClientConfig(), loaded.store),
                                             _OTHER_KEYS, warn=warnings.append)
    except ConfigError as error:
        report.error("config", file, str(error).removeprefix(f"{file}: "), "correct the file: a broker does not start "
                     "with it")
        return None
    for text in warnings:
        place, _colon, what = text.partition(": ")
        report.warning("config", place, what, "correct the key or remove it: a broker ignores it")
    _check_role(loaded, report)
    _check_master_address(loaded, report)
    _check_replicas(loaded, report)
    _check_name_servers(loaded, report)
    ha_port = loaded.properties.get("haListenPort")
    if ha_port is not None and ha_port.strip() != str(loaded.ha_port):
        report.warning("ports", loaded.place("haListenPort"), f"haListenPort={ha_port} has no effect: slaves connect "
                       f"to {loaded.ha_port}, listenPort + 1", "remove the key, and open that port")
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
        report.error("roles", loaded.place("brokerId"), f"brokerRole=SLAVE with brokerId={broker_id}: 0 is reserved "
                     "for the master", "give each slave of a master its own brokerId above 0")
    elif not loaded.is_slave and broker_id != 0:
        report.error("roles", loaded.place("brokerId"), f"brokerRole={role} with brokerId={broker_id}: the broker "
                     "becomes master 0 regardless of its id", "set brokerRole=SLAVE for a slave, or brokerId=0 for a "
                     "master")
    else:
        report.good("roles", loaded.file, f"{loaded.broker.brokerName} {broker_id} is a {role}")


def _check_controllers(loaded: LoadedConfig, report: Report) -> None:
    """Check the controllers' addresses. The controller assigns role and id; those in the file have no effect."""
    addresses = [part.strip() for part in loaded.broker.controllerAddr.split(";") if part.strip()]
    if not addresses:
        report.error("roles", loaded.place("enableControllerMode"), "enableControllerMode=true without controllerAddr: "
                     "the broker never gets an id and a role", "set controllerAddr to host:port of all controllers, "
                     "separated by semicolons")
    else:
        report.good("roles", loaded.file, f"{loaded.broker.brokerName} asks {', '.join(addresses)} for its role")


def _check_master_address(loaded: LoadedConfig, report: Report) -> None:
    address = loaded.store.haMasterAddress
    if not loaded.is_slave or loaded.broker.enableControllerMode:
        return
    if not address:
        if not loaded.namesrv_addresses:
            report.error("roles", loaded.file, "a slave without haMasterAddress and without namesrvAddr can't find its "
                         "master", "set namesrvAddr, or haMasterAddress=<master's brokerIP2>:<its listenPort + 1>")
        return
    host, port = string2_socket_address(address)
    if port == loaded.ha_port and host in (loaded.broker.brokerIP2, loaded.broker.brokerIP1, "127.0.0.1", "localhost"):
        report.error("roles", loaded.place("haMasterAddress"), f"haMasterAddress={address} is this broker's own HA "
                     "port: it would follow itself", "set it to the master's HA port")


def _check_replicas(loaded: LoadedConfig, report: Report) -> None:
    store = loaded.store
    for key in ("inSyncReplicas", "minInSyncReplicas"):
        if "totalReplicas" in loaded.properties and getattr(store, key) > store.totalReplicas:
            report.warning("roles", loaded.place(key), f"{key}={getattr(store, key)} is more than "
                           f"totalReplicas={store.totalReplicas}: sends would wait for brokers that do not exist",
                           "raise totalReplicas or lower the key; the master itself counts")


def _check_name_servers(loaded: LoadedConfig, report: Report) -> None:
    if not loaded.namesrv_addresses:
        report.warning("nameserver", loaded.file, "no namesrvAddr: clients can't find this broker",
                       "set namesrvAddr=host:port, several separated by semicolons")


# fractions of a disk in use; the broker's defaults
CLEAN_FORCIBLY, WRITES_REFUSED = 0.85, 0.90
_SHOWN_ADDRESSES = 5
# fraction of a limit that counts as close to it
_NEAR = 0.8
_VOLATILE = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs", "glusterfs", "ceph")


def check_host(loaded: LoadedConfig, report: Report) -> None:
    """Run all checks that need no other server."""
    running = reading.is_held(paths.get_lock_file(loaded.store.storePathRootDir))
    _check_ports(loaded, running, report)
    for key in ("brokerIP1", "brokerIP2"):
        _check_ip(loaded, key, report)
    check_store_folders(loaded, running, report)
    _check_limits(paths.get_store_path_consume_queue(loaded.store.storePathRootDir), report)


def check_kernels(report: Report) -> None:
    """Check which modules of this installation are compiled."""
    for kernel in kernels.KERNELS:
        if kernel.module:
            report.good("compiled", str(kernels.FOLDER), kernel.told())
        else:
            report.warning("compiled", str(kernels.FOLDER), kernel.told(), kernels.MEND)


def _check_ports(loaded: LoadedConfig, running: bool, report: Report) -> None:
    port = loaded.server.listenPort
    if port == 0:
        report.note("ports", loaded.place("listenPort"), "listenPort=0: each start takes any free ports")
        return
    for number, use in ((port, LISTEN_PORT), (port + 1, HA_PORT), (port - 2, FAST_PORT)):
        where = loaded.place("listenPort")
        reason = why_not_listen(number)
        if reason is None:
            report.good("ports", where, f"{number}, {use}, is free")
        elif running and reason == "in use":
            report.good("ports", where, f"{number}, {use}, is in use, and the broker of this store is running")
        else:
            report.error("ports", where, f"{number}, {use}: {reason}{_users_of(number)}",
                         "stop what is listening there, or choose another listenPort: listenPort, listenPort + 1 and "
                         "listenPort - 2 must be free")


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
        report.note("addresses", where, f"{key}={value} is a host name: all clients and slaves must be able to resolve "
                    "it")
        return
    others = [text for text in local if not (ipaddress.ip_address(text).is_loopback
                                             or ipaddress.ip_address(text).is_link_local)]
    shown = ", ".join([*others[:_SHOWN_ADDRESSES], *(["..."] if len(others) > _SHOWN_ADDRESSES else [])])
    if address.is_unspecified:
        report.error("addresses", where, f"{key}={value} is an address to listen on, not to connect to",
                     f"set it to the address that {use}")
    elif address.is_loopback and loaded.on_one_host:
        report.note("addresses", where, f"{key}={value}: a cluster on one host; its name server is local, too")
    elif address.is_loopback and others:
        report.warning("addresses", where, f"{key}={value}: other hosts can't reach it",
                       f"set it to the address that {use}, one of {shown}; keep it for a cluster on one host")
    elif str(address) not in local:
        report.warning("addresses", where, f"{key}={value} is not one of this host's addresses: {shown}",
                       f"set it to the address that {use}; it is right only if it is translated (NAT) to this host")
    elif key not in loaded.properties and len(others) > 1:
        report.warning("addresses", loaded.file, f"{key} is not set, and this host has several addresses: "
                       f"{shown}; {value} is used", f"set {key} to the address that {use}")
    else:
        report.good("addresses", where, f"{key}={value} is an address of this host")


def check_store_folders(loaded: LoadedConfig, running: bool, report: Report) -> None:
    """Check folders, permissions and disks, and whether the last broker shut down cleanly."""
    root = loaded.store.storePathRootDir
    logs = [path.strip() for path in loaded.store.get_store_path_commit_log().split(MULTI_PATH_SPLITTER)]
    for existing in dict.fromkeys(_existing(path) for path in (root, *logs)):
        if not os.path.isdir(existing):
            report.error("store", existing, "is not a folder", "remove it, or choose another storePathRootDir")
            continue
        if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
            report.error("store", existing, "this user has no write permission here", "run the doctor as the broker's "
                         f"user; chown {existing}, or choose another storePathRootDir")
        _check_file_system(existing, report)
        _check_space(loaded, existing, report)
    _check_files(root, report)
    if running:
        report.note("store", root, "a broker runs on this store")
    elif os.path.exists(paths.get_abort_file(root)):
        report.warning("store", paths.get_abort_file(root), "the last broker of this store did not shut down cleanly: "
                       "a crash, a kill -9, or a power loss", "the next start recovers the store and may take longer; "
                       "check the store before with rmqha store verify")


def _check_limits(folder: str, report: Report) -> None:
    files = sum(len(names) for _path, _folders, names in os.walk(folder))
    # the hard limit: a broker raises its soft limit to it
    _soft, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    judge_limits(folder, files, max_mapped_files(descriptors), report)


def judge_limits(where: str, files: int, mapped: int, report: Report) -> None:
    """Compare the number of consume queue `files` with how many can be `mapped` at a time."""
    what = f"{files:,} consume queue files, of which {mapped:,} can be mapped at a time"
    if files > mapped * _NEAR:
        report.warning("limits", where, f"{what}: beyond that the broker unmaps idle files and maps them again, which "
                       "is slower", f"raise vm.max_map_count ({max_map_count():,}) and the file descriptor limit "
                       "(ulimit -n) of the broker's user to more than twice the number of files, or use fewer topics "
                       "or queues")
    else:
        report.good("limits", where, what)


def _existing(path: str) -> str:
    """Return the path itself if it exists, else the nearest existing parent, in which it would be created."""
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
        report.error("store", wrong[0], f"this user can't read and write it{more}",
                     "chown -R the store to the broker's user: a broker was once started as another user")


def _check_file_system(path: str, report: Report) -> None:
    mounts = [each for each in psutil.disk_partitions(all=True)
              if os.path.commonpath([each.mountpoint, os.path.realpath(path)]) == each.mountpoint]
    if not mounts:
        return
    mount = max(mounts, key=lambda each: len(each.mountpoint))
    if "ro" in mount.opts.split(","):
        report.error("disk", path, f"{mount.mountpoint} is mounted read-only", "remount it for writing; if the kernel "
                     "remounted it read-only, check dmesg for disk errors first")
    if mount.fstype in _VOLATILE:
        report.warning("disk", path, f"the file system is {mount.fstype}: all data is lost when the host restarts",
                       "choose a folder on a disk")
    elif mount.fstype in _REMOTE:
        report.warning("disk", path, f"the file system is {mount.fstype}, a network file system: mapped files and "
                       "fsync are slow there, and locks may not be reliable", "choose a folder on a local disk")
    else:
        report.good("disk", path, f"the file system is {mount.fstype}")


def _check_space(loaded: LoadedConfig, path: str, report: Report) -> None:
    judge_used(path, get_disk_partition_space_used_percent(path), loaded.store.get_disk_max_used_space_ratio(), report)
    disk = os.statvfs(path)
    free, needed = disk.f_bavail * disk.f_frsize, 2 * loaded.store.mappedFileSizeCommitLog
    if free < needed:
        report.warning("disk", path, f"{size_text(free)} free: less than two commit log files need "
                       f"({size_text(needed)})", "free up space, or choose a smaller mappedFileSizeCommitLog for a "
                       "new store")


def judge_used(where: str, used: float, max_used_percent: int, report: Report) -> None:
    """Check the usage of a disk. `used`: 0 to 1, negative when unknown."""
    percent = f"{used * 100:.0f}% used"
    if used > WRITES_REFUSED:
        report.error("disk", where, f"{percent}: above {WRITES_REFUSED * 100:.0f}% the broker refuses messages",
                     "free up space or lower fileReservedTime; writes resume automatically")
    elif used > max(CLEAN_FORCIBLY, max_used_percent / 100):
        report.warning("disk", where, f"{percent}: above {CLEAN_FORCIBLY * 100:.0f}% files are deleted before they "
                       "expire", "free up space or lower fileReservedTime")
    elif used * 100 > max_used_percent:
        report.warning("disk", where, f"{percent}: above diskMaxUsedSpaceRatio={max_used_percent} expired files are "
                       "deleted at any hour", "free up space, or raise the key")
    elif used >= 0:
        report.good("disk", where, f"{percent}, diskMaxUsedSpaceRatio={max_used_percent}")
