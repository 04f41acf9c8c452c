"""Facts of this host and this installation: versions, memory, disks, limits, the clock, threads of running servers."""
import ctypes
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import ssl
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any

import psutil

from rmqha import __version__
from rmqha.common import mix_all
from rmqha.native import kernels
from rmqha.tools.support.bundle import Found, Item, JsonItem, Missing
from rmqha.tools.support.commands import Outcome, run

_LIBRARIES = ("click", "psutil", "orjson", "lz4", "zstandard", "PyYAML", "cryptography", "prometheus-client", "etcd3gw",
              "urllib3", "textual", "starlette", "uvicorn", "pyspark", "pyarrow", "pandas", "pyiceberg", "grpcio",
              "py-spy")
_PACKAGE = "rmqha"
_FACTS = ("/etc/os-release", "/proc/sys/vm/max_map_count", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/swappiness",
          "/proc/sys/vm/dirty_ratio", "/proc/sys/vm/dirty_background_ratio", "/proc/sys/fs/file-nr",
          "/proc/sys/net/core/somaxconn", "/proc/sys/kernel/pid_max", "/proc/pressure/io", "/proc/pressure/memory",
          "/proc/pressure/cpu", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/memory.max",
          "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/pids.max",
          "/sys/devices/system/clocksource/clocksource0/current_clocksource")
_MAX_FACT = 4096
_LIMITS = ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_MEMLOCK", "RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_FSIZE",
           "RLIMIT_STACK")
# Commands that report whether the clock follows a time service; the first ones that exist are run.
_CLOCK = (("timedatectl", "show"), ("chronyc", "-n", "tracking"), ("ntpq", "-pn"))
# The beginning of struct timex on 64-bit Linux: modes, offset, freq, maxerror, esterror, status.
_TIMEX = struct.Struct("=I4xqqqqi")
_TIMEX_SIZE, _UNSYNCHRONIZED = 208, 0x40
_SERVER = re.compile(r"\b(?:mqbroker|mqnamesrv|mqcontroller|rmqha\.(?:broker|namesrv|controller)\.\w+_startup|"
                     r"BrokerStartup|NamesrvStartup|ControllerStartup)\b")
_MAX_PROCESSES = 50


def versions() -> list[Found]:
    """Return the versions of rmqha, Python, the libraries and the compiled parts."""
    libraries = {}
    for name in (_PACKAGE, *_LIBRARIES):
        try:
            libraries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return [JsonItem("versions.json", {
        "rmqha": __version__, "python": sys.version, "implementation": platform.python_implementation(),
        "executable": sys.executable, "platform": platform.platform(), "libc": " ".join(platform.libc_ver()),
        "openssl": ssl.OPENSSL_VERSION, "libraries": libraries,
        "compiled": {kernel.name: kernel.told() for kernel in kernels.KERNELS}}, "this installation")]


def host_facts(timeout_s: float, places: Iterable[str]) -> list[Found]:
    """Return memory, disks of `places`, limits, kernel settings, load, addresses and the state of the clock."""
    facts = {path: text for path in _FACTS if (text := _fact(path)) is not None}
    found: list[Found] = [JsonItem("host/facts.json", {
        "uname": list(platform.uname()), "cpus": os.cpu_count(), "usableCpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(), "memory": psutil.virtual_memory()._asdict(), "swap": psutil.swap_memory()._asdict(),
        "bootTime": psutil.boot_time(), "user": os.getuid(), "limits": {
            name: resource.getrlimit(getattr(resource, name)) for name in _LIMITS},
        "addresses": mix_all.get_local_inet_address(), "files": facts}, "this host")]
    disks = [disk for place in dict.fromkeys(places) if (disk := _disk(place)) is not None]
    found.append(JsonItem("host/disks.json", disks, "the file systems of stores, logs and config files"))
    return [*found, *_clock(timeout_s)]


def _fact(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_FACT).strip()
    except OSError:  # not on this kernel, or not for this user
        return None


def _disk(place: str) -> dict[str, Any] | None:
    path = os.path.abspath(place)
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        usage, status = psutil.disk_usage(path), os.statvfs(path)
        mounts = [each for each in psutil.disk_partitions(all=True)
                  if os.path.commonpath([each.mountpoint, os.path.realpath(path)]) == each.mountpoint]
    except (OSError, ValueError) as error:
        return {"path": place, "error": str(error)}
    mount = max(mounts, key=lambda each: len(each.mountpoint), default=None)
    return {"path": place, "exists": path == os.path.abspath(place), **usage._asdict(), "inodes": status.f_files,
            "freeInodes": status.f_favail, "mount": mount._asdict() if mount is not None else None}


def _clock(timeout_s: float) -> list[Found]:
    """Return what the kernel and the time service report about the clock."""
    found: list[Found] = [JsonItem("host/clock.json", {"timeZone": time.tzname, "utcOffset": time.localtime().tm_gmtoff,
                                                       "kernel": _kernel_clock()}, "adjtimex")]
    for command in _CLOCK:
        if shutil.which(command[0]):
            outcome = run(command, timeout_s)
            if outcome.code == 0:
                return [*found, Item("host/clock.txt", outcome.text(), " ".join(command))]
    return found


def _kernel_clock() -> dict[str, Any]:
    """Return whether a time service keeps the kernel's clock right, and its greatest error in microseconds."""
    timex = ctypes.create_string_buffer(_TIMEX_SIZE)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError) as error:  # a C library without it
        return {"error": str(error)}
    if state < 0:
        return {"error": os.strerror(ctypes.get_errno())}
    _modes, offset, _frequency, greatest, estimated, status = _TIMEX.unpack_from(timex)
    return {"synchronized": not status & _UNSYNCHRONIZED, "offsetUs": offset, "maxErrorUs": greatest,
            "estimatedErrorUs": estimated, "status": status, "state": state}


# ---- processes


def server_processes(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the given processes, or without any, those of this host that look like servers of rmqha or RocketMQ."""
    given, found = set(pids), {}
    for process in psutil.process_iter():
        try:
            is_server = process.pid in given if given else _SERVER.search(" ".join(process.cmdline())) is not None
            if is_server and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
        except psutil.Error:  # it has ended, or belongs to another user
            continue
    return [found[pid] for pid in sorted(found) if pid != os.getpid()][:_MAX_PROCESSES]


def process_items(process: psutil.Process, timeout_s: float) -> list[Found]:
    """Return a server's command line, memory, limits and threads, and its stacks if a tool for that is installed."""
    name = f"processes/{process.pid}"
    try:
        command = process.cmdline()
        facts = {"pid": process.pid, "command": command, "user": process.username(), "started": process.create_time(),
                 "status": process.status(), "memory": process.memory_info()._asdict(),
                 "cpu": process.cpu_times()._asdict(), "threads": _threads(process), "files": _count_files(process)}
    except psutil.Error as error:
        return [Missing(f"process {process.pid}", str(error))]
    found: list[Found] = [JsonItem(f"{name}/process.json", facts, f"process {process.pid}")]
    limits = _fact(f"/proc/{process.pid}/limits")
    if limits is not None:
        found.append(Item(f"{name}/limits.txt", limits + "\n", f"/proc/{process.pid}/limits"))
    return [*found, _stacks(process.pid, "java" in os.path.basename(command[0]), name, timeout_s)]


def _threads(process: psutil.Process) -> list[dict[str, Any]]:
    folder = f"/proc/{process.pid}/task"
    return [{"id": thread.id, "name": _fact(f"{folder}/{thread.id}/comm"), "user": thread.user_time,
             "system": thread.system_time, "waitsIn": _fact(f"{folder}/{thread.id}/wchan")}
            for thread in process.threads()]


def _count_files(process: psutil.Process) -> int | None:
    try:
        return process.num_fds()
    except psutil.Error:  # another user's process
        return None


def _stacks(pid: int, is_java: bool, name: str, timeout_s: float) -> Found:
    """Return the stacks of all threads, from py-spy or jstack; they only read."""
    tool = "jstack" if is_java else "py-spy"
    path = shutil.which(tool) or shutil.which(tool, path=os.path.dirname(sys.executable))
    if path is None:
        return Missing("the stacks of the servers", f"{tool} is not installed" + (
            "" if is_java else " (pip install py-spy)"))
    outcome: Outcome = run([path, str(pid)] if is_java else [path, "dump", "--pid", str(pid)], timeout_s)
    if outcome.code != 0:
        return Missing(f"the stacks of process {pid}", f"{tool}: {outcome.why()}")
    return Item(f"{name}/stacks.txt", outcome.text(), f"{tool}, process {pid}")
