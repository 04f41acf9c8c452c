"""Hosts of the pages, 10.0.0.1 and so on: each has its own network, processes, /etc/rocketmq, /data and home.

A host has namespaces of its own for network, mounts, processes and host name. Its root is a tmpfs with the folders of
this machine but for those that are the host's; these lie in a folder of the test, where it can look at them and change
them. A bridge joins the hosts. Without root the same is made in a user namespace, where the kernel allows it.
"""
import contextlib
import functools
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import psutil

from tests.pages.fresh import environment
from tests.support.programs import not_installed
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

_TOOLS = ("ip", "unshare", "nsenter", "chroot", "mount")
_OWN = ("etc/rocketmq", "data", "operator")  # folders of a host
HOME = "/operator"
_BRIDGE = """set -e
ip link set lo up
ip link add name lan type bridge
ip link set lan up
echo ready
exec sleep infinity
"""
# $1: the folder of the host's own folders, $2: the folder of those that all have, $3: its name; then pairs: a folder,
# and what is to be seen at its place
_ROOT = """set -e
hostname "$3"
mount -t tmpfs -o mode=755 host /mnt
for entry in /*; do
    case ${entry#/} in backup|data|etc|mnt|operator|proc) continue ;; esac
    if [ -L "$entry" ]; then cp -P "$entry" "/mnt$entry"
    elif [ -d "$entry" ]; then mkdir "/mnt$entry"; mount --rbind "$entry" "/mnt$entry"; fi
done
mkdir -p /mnt/.etc /mnt/etc /mnt/proc
mount --rbind /etc /mnt/.etc
for entry in /etc/*; do
    case $entry in /etc/rocketmq) ;; *) ln -s "/.${entry#/}" "/mnt$entry" ;; esac
done
for own in etc/rocketmq data operator; do
    mkdir -p "/mnt/$own"
    mount --bind "$1/$own" "/mnt/$own"
done
shared=$2
shift 3
while [ $# -gt 0 ]; do
    mount --bind "$2" "/mnt$1"
    shift 2
done
mkdir /mnt/backup
mount --bind "$shared" /mnt/backup
mount -t proc proc /mnt/proc
exec chroot /mnt /bin/bash -c 'echo ready; while :; do sleep 1000 & wait; done'
"""


def _ended(process: subprocess.Popen) -> None:
    process.kill()
    process.wait(240)
    for stream in (process.stdout, process.stdin):
        if stream is not None:
            stream.close()


class Host:
    """One host; `folder` has its files, as /etc/rocketmq and /data are seen there."""

    def __init__(self, address: str, folder: Path, shared: Path, bridge: list[str],
                 places: Mapping[Path, Path]) -> None:
        self.address = address
        self.folder = folder
        self._bridge = bridge
        self._cable = f"host{address.rpartition('.')[2]}"
        for own in _OWN:
            (folder / own).mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            killed_with_parent([
                *bridge, "unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "sh", "-c", _ROOT,
                "sh", folder, shared, self._cable, *(path for place in places.items() for path in place)]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = self._process.stdout.readline()
        if said != "ready\n":
            raise OSError(f"no host {address}: {said}{self._process.stdout.read()}")
        (first,) = psutil.Process(self._process.pid).children()
        while [child for child in first.children() if first.name() in ("unshare", "nsenter")]:
            (first,) = first.children()
        self._first = first.pid  # its process 1

    def path(self, path: str) -> Path:
        """Where a file of the host is for the test."""
        own = next((own for own in _OWN if path.strip("/").startswith(own)), None)
        assert own is not None, f"{path} is not in a folder of the host's own: {_OWN}"
        return self.folder / path.strip("/")

    def inside(self, cwd: str = "/") -> list[str]:
        """The begin of a command that runs there."""
        return ["nsenter", "-t", str(self._first), *_USER, "-m", "-n", "-p", "-u", "-r", "env", "-i", "-C", cwd,
                *(f"{name}={value}" for name, value in environment(Path(HOME)).items())]

    def join(self) -> None:
        """Connect it to the bridge."""
        _run(*self._bridge, "ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns",
             str(self._first))
        _run(*self._bridge, "ip", "link", "set", self._cable, "master", "lan", "up")
        for words in (f"addr add {self.address}/24 dev eth0", "link set lo up", "link set eth0 up"):
            _run(*self.inside(), "ip", *words.split())

    @contextlib.contextmanager
    def unplugged(self) -> Iterator[None]:
        """Have its network cable pulled out for a while."""
        _run(*self._bridge, "ip", "link", "set", self._cable, "down")
        yield
        _run(*self._bridge, "ip", "link", "set", self._cable, "up")

    def processes(self) -> list[psutil.Process]:
        """Return what runs there, whoever has started it."""
        here = _namespace(self._first)
        return [each for each in psutil.process_iter() if here and _namespace(each.pid) == here]

    def close(self) -> None:
        """End it, with all that runs there."""
        _ended(self._process)


class Hosts:
    """The hosts of a page, and the bridge between them."""

    def __init__(self, folder: Path, addresses: Iterable[str], places: Mapping[Path, Path] | None = None) -> None:
        self._made: list[Host] = []
        unshare = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user", "--mount"]), "--net"]
        self._bridge = subprocess.Popen(killed_with_parent([*unshare, "sh", "-c", _BRIDGE]), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        try:
            said = self._bridge.stdout.readline()
            if said != "ready\n":
                raise OSError(f"no bridge: {said}{self._bridge.stdout.read()}")
            shared = folder / "backup"
            shared.mkdir(parents=True, exist_ok=True)
            bridge = ["nsenter", "-t", str(self._bridge.pid), *_USER, "-n"]
            for address in addresses:
                host = Host(address, folder / address, shared, bridge, places or {})
                self._made.append(host)
                host.join()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, address: str) -> Host:
        (host,) = (host for host in self._made if host.address == address)
        return host

    def __iter__(self):
        return iter(self._made)

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all hosts."""
        for host in reversed(self._made):
            host.close()
        _ended(self._bridge)


_USER = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]


def _namespace(process: int) -> str | None:
    """Return the namespace of processes in which a process is; None when it has ended."""
    try:
        return os.readlink(f"/proc/{process}/ns/pid")
    except OSError:  # ended, or somebody else's
        return None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise OSError(f"{shlex.join(command)}: {done.returncode} {done.stdout}{done.stderr}")
    return done.stdout


@functools.cache
def why_not() -> str | None:
    """The reason why there can't be hosts here; None when there can."""
    missing = not_installed(*_TOOLS)
    if missing is not None:
        return missing
    try:
        with tempfile.TemporaryDirectory() as folder, Hosts(Path(folder), ["10.0.0.1", "10.0.0.2"]) as hosts:
            wait_until(lambda: _reaches(hosts["10.0.0.1"], "10.0.0.2"), 60_000, "one host reaches the other")
    except (AssertionError, OSError, subprocess.SubprocessError) as failure:
        return f"hosts can't be made of namespaces here: {failure}"
    return None


def _reaches(host: Host, address: str) -> bool:
    """Whether a connection is refused, rather than lost."""
    done = subprocess.run([*host.inside(), "bash", "-c", f"exec 3<>/dev/tcp/{address}/1"], capture_output=True,
                          text=True, timeout=600, check=False)
    return "refused" in done.stderr
