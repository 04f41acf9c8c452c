"""Two network namespaces, the master's and the slave's, connected by a link that can be cut. Needs root.

    this namespace --up0/up1-- master's namespace --ha0/ha1-- slave's namespace
      10.x.y.1      10.x.y.2        10.255.0.1      10.255.0.2
"""
import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tests.support.programs import not_installed

T = TypeVar("T")

MASTER_HA_IP, SLAVE_HA_IP = "10.255.0.1", "10.255.0.2"
_TOOLS = ("ip", "tc", "nsenter")
_TABLE = "inet faults"
_CLONE_NEWNET = 0x40000000


def run(*command: str, check: bool = True) -> str:
    """Run a command and return its output. Raise AssertionError with the output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode} {done.stdout}{done.stderr}"
    return done.stdout


@functools.cache
def why_not() -> str | None:
    """Return why namespaces with a link that can be cut are not available here, or None if they are."""
    missing = not_installed(*_TOOLS)
    if missing is not None:
        return missing
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    try:
        network = Network(f"probe{os.getpid()}")
        try:
            network.open()
            network.down()
            network.heal()
        finally:
            network.close()
    except (AssertionError, OSError, subprocess.SubprocessError) as failure:
        return f"network namespaces, veth or nft do not work here: {failure}"
    return None


def isolate() -> bool:
    """Give this thread, and the threads and processes that it starts later, their own network, in which no other
    process uses ports. Return False if that is not possible."""
    if os.geteuid() != 0 or shutil.which("ip") is None or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        return False
    run("ip", "link", "set", "lo", "up")
    return True


def can_drop() -> bool:
    """Return whether packets can be dropped and reset. Without nft only the cable can be out, and the link slow."""
    return shutil.which("nft") is not None


class Network:
    """The namespaces of one pair. Cuts and slowness affect the link between master and slave; `heal` ends them all."""

    def __init__(self, name: str):
        pid = os.getpid()
        self._master_ns, self._slave_ns = f"{name}m", f"{name}s"
        self._up = f"rq{pid}"[:15]
        net = f"10.{64 + (pid >> 8 & 127)}.{pid & 255}"  # parallel processes have different networks
        self._outside_ip, self.master_ip = f"{net}.1", f"{net}.2"
        self.master_prefix = ("nsenter", f"--net=/run/netns/{self._master_ns}")
        self.slave_prefix = ("nsenter", f"--net=/run/netns/{self._slave_ns}")

    def open(self) -> None:
        """Create namespaces and links."""
        for namespace in (self._master_ns, self._slave_ns):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            if can_drop():
                self._nft(namespace, "add", "table", *_TABLE.split())
        run("ip", "link", "add", self._up, "type", "veth", "peer", "name", "up1", "netns", self._master_ns)
        run("ip", "addr", "add", f"{self._outside_ip}/30", "dev", self._up)
        run("ip", "link", "set", self._up, "up")
        run("ip", "-n", self._master_ns, "addr", "add", f"{self.master_ip}/30", "dev", "up1")
        run("ip", "-n", self._master_ns, "link", "set", "up1", "up")
        run("ip", "-n", self._master_ns, "link", "add", "ha0", "type", "veth", "peer", "name", "ha1",
            "netns", self._slave_ns)
        ends = ((self._master_ns, "ha0", MASTER_HA_IP), (self._slave_ns, "ha1", SLAVE_HA_IP))
        for namespace, device, address in ends:
            run("ip", "-n", namespace, "addr", "add", f"{address}/30", "dev", device)
            run("ip", "-n", namespace, "link", "set", device, "up")

    def near_slave(self, action: Callable[[], T]) -> T:
        """Call `action` in a thread of the slave's namespace, where it makes its sockets, and return its result."""
        def act_there() -> T:
            with open(Path("/run/netns") / self._slave_ns, "rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"no entry to the namespace {self._slave_ns}")
            return action()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(act_there).result()

    def close(self) -> None:
        """Remove all namespaces, if there are any."""
        run("ip", "link", "del", self._up, check=False)
        for namespace in (self._master_ns, self._slave_ns):
            run("ip", "netns", "del", namespace, check=False)

    def _nft(self, namespace: str, *rule: str) -> None:
        run("nsenter", f"--net=/run/netns/{namespace}", "nft", *rule)

    def _on_input(self, namespace: str, device: str, *verdict: str) -> None:
        self._nft(namespace, "add", "chain", *_TABLE.split(), "incoming",
                  "{ type filter hook input priority 0; policy accept; }")
        self._nft(namespace, "add", "rule", *_TABLE.split(), "incoming", "iifname", device, *verdict)

    def down(self) -> None:
        """Pull the cable: no carrier on either side."""
        run("ip", "-n", self._master_ns, "link", "set", "ha0", "down")

    def drop(self, way: str) -> None:
        """Drop packets silently: `way` is to-slave, to-master or both."""
        if way in ("to-slave", "both"):
            self._on_input(self._slave_ns, "ha1", "drop")
        if way in ("to-master", "both"):
            self._on_input(self._master_ns, "ha0", "drop")

    def reset(self) -> None:
        """Answer each packet to the master with RST."""
        self._on_input(self._master_ns, "ha0", "meta", "l4proto", "tcp", "reject", "with", "tcp", "reset")

    def slow(self, kbit: int) -> None:
        """Limit the link to the slave to `kbit` kilobits per second."""
        run("tc", "-n", self._master_ns, "qdisc", "add", "dev", "ha0", "root", "tbf", "rate", f"{kbit}kbit",
            "burst", "4kb", "limit", "64kb")

    def heal(self) -> None:
        """Restore the original state."""
        run("tc", "-n", self._master_ns, "qdisc", "del", "dev", "ha0", "root", check=False)
        run("ip", "-n", self._master_ns, "link", "set", "ha0", "up")
        for namespace in (self._master_ns, self._slave_ns) if can_drop() else ():
            self._nft(namespace, "flush", "table", *_TABLE.split())
            run("nsenter", f"--net=/run/netns/{namespace}", "nft", "delete", "chain", *_TABLE.split(), "incoming",
                check=False)
