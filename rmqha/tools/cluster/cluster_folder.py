"""The folder of a cluster: which one, whether it is ours, and the lock of who changes it."""
import contextlib
import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqha.common import metrics
from rmqha.tools.cluster import layout
from rmqha.tools.cluster.layout import Layout, Shape
from rmqha.tools.cluster.node import ClusterError
from rmqha.tools.cluster.ports import check_free, free_port_block

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
    found = layout.read(folder)
    if found is None:
        raise ClusterError(f"no cluster in {folder}: `rmqha up` makes one{_others(folder)}")
    return found


def _others(folder: Path) -> str:
    names = sorted(path.parent.name for path in home().glob(f"*/{layout.DESCRIPTION}") if path.parent != folder)
    return f"; --name takes one that is there: {', '.join(names)}" if names else ""


def make_or_load(folder: Path, wanted: dict[str, Any], first_port: int | None) -> Layout:
    """The cluster of a folder, made when there is none; under the lock.

    `wanted`: fields of its Shape that somebody asks for. ClusterError when they can't be had.
    """
    check_ours_or_empty(folder)
    found = layout.read(folder)
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
    layout.complete_configs(folder, found)
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
    made = layout.make(folder, shape, first_port)
    check_free(made.nodes)
    layout.write(folder, made)  # first: from now on the folder is known as ours
    layout.complete_configs(folder, made)
    return made


def check_ours_or_empty(folder: Path) -> None:
    """ClusterError when a folder holds something else than a cluster."""
    if folder.exists() and not folder.is_dir():
        raise ClusterError(f"{folder} is no folder: give another --dir")
    if folder.is_dir() and layout.read(folder) is None and set(os.listdir(folder)) - {_LOCK}:
        raise ClusterError(f"{folder} holds other things, and no {layout.DESCRIPTION} of `rmqha up`: give a folder "
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
    for file in home().glob(f"*/{layout.DESCRIPTION}"):
        with contextlib.suppress(ClusterError):  # somebody else's file
            found = layout.read(file.parent)
            ports.update(port for node in (found.nodes if found else ()) for port in node.ports)
    return ports
