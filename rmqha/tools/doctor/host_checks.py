"""What is wrong with the host that a broker's config file is for: this one."""
import ipaddress
import os
import resource

import psutil

from rmqha.common import mix_all
from rmqha.common.process import max_map_count, max_mapped_files
from rmqha.common.util_all import get_disk_partition_space_used_percent
from rmqha.native import kernels
from rmqha.remoting.addresses import FAST_PORT, HA_PORT, LISTEN_PORT, holders, why_not_listen
from rmqha.store import store_path_config_helper as paths
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER
from rmqha.tools.doctor.config_checks import LoadedConfig
from rmqha.tools.doctor.findings import Report
from rmqha.tools.store import broker_lock
from rmqha.tools.store.output import size_text

CLEAN_FORCIBLY, WRITES_REFUSED = 0.85, 0.90  # used parts of a disk; the broker's defaults
_SHOWN_ADDRESSES = 5
_NEAR = 0.8  # part of a limit
_VOLATILE = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs", "glusterfs", "ceph")


def check_host(loaded: LoadedConfig, report: Report) -> None:
    """All that can be seen without asking anybody."""
    running = broker_lock.is_held(paths.get_lock_file(loaded.store.storePathRootDir))
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
