"""One address that the clients always use: HAProxy's, or one that moves with the master; the files of conf/failover.

    10.77.0.1    the clients and the name server, in this process' own network
    10.77.0.2..  one host each: controllers, etcd's members, replicas, and HAProxy
    10.77.0.100  the floating address

A bridge joins the hosts. A host that is gone answers nothing, not even with a reset.
"""
from pathlib import Path

from tests.faults.failover.cluster import Star
from tests.faults.network import run
from tests.support.processes import ServerProcess
from tests.support.programs import not_installed
from tests.support.sources import ROOT

CONF = ROOT / "conf" / "failover"
WAYS = ("haproxy", "vip", "keepalived")
PORT = 10911
_METRICS_PORT = 5557
_FLOATING = "10.77.0.100"
_BRIDGE = "lan"
# How fast a host that is gone is noticed, as conf/failover/broker.properties has it.
_KEYS = ("brokerHeartbeatInterval", "controllerHeartBeatTimeoutMills", "sendHeartbeatTimeoutMillis",
         "haMaxTimeSlaveNotCatchup")
_BOOT_MS = 60_000


def why_not(way: str | None) -> str | None:
    """Return why this way is not possible here, or None if it is."""
    needed = {None: (), "haproxy": ("haproxy",), "vip": ("arping",), "keepalived": ("keepalived", "curl")}
    return not_installed(*needed[way]) if needed[way] else None


class Lan(Star):
    """One network for all nodes, in place of a link for each. Only `unplug` and `plug` affect packets."""

    def open(self) -> "Lan":
        """Create the bridge."""
        run("ip", "link", "add", "name", _BRIDGE, "type", "bridge")
        run("ip", "addr", "add", "10.77.0.1/24", "dev", _BRIDGE)
        run("ip", "link", "set", _BRIDGE, "up")
        return self

    def add(self, node: str) -> tuple[str, tuple[str, ...]]:
        """Create a host; return its address, and the prefix of its commands."""
        number, namespace = len(self._ips) + 2, self._namespace(node)
        ip = self._ips[node] = f"10.77.0.{number}"
        run("ip", "netns", "add", namespace)
        run("ip", "link", "add", self._cable(node), "type", "veth", "peer", "name", "eth0", "netns", namespace)
        run("ip", "link", "set", self._cable(node), "master", _BRIDGE, "up")
        for words in (f"addr add {ip}/24 dev eth0", "link set lo up", "link set eth0 up"):
            run("ip", "-n", namespace, *words.split())
        prefix = ("nsenter", f"--net=/run/netns/{namespace}")
        # As the page says: a host that still has the address does not name it in its questions for others.
        run(*prefix, "sh", "-c", "echo 2 >/proc/sys/net/ipv4/conf/eth0/arp_announce")
        return ip, prefix

    def _cable(self, node: str) -> str:
        return f"host{list(self._ips).index(node)}"

    def unplug(self, node: str) -> None:
        """Unplug the cable of a host."""
        run("ip", "link", "set", self._cable(node), "down")
        self.unplugged.add(node)

    def plug(self, node: str) -> None:
        """Undo `unplug`."""
        run("ip", "link", "set", self._cable(node), "up")
        self.unplugged.discard(node)

    def close(self) -> None:
        """Remove all hosts."""
        for node in self._ips:
            run("ip", "netns", "del", self._namespace(node), check=False)
        run("ip", "link", "del", _BRIDGE, check=False)
        self._ips.clear()


class Way:
    """The means to give clients one address: the properties that the replicas need, and the programs beside them."""

    def __init__(self, way: str, folder: Path):
        self.way, self._folder = way, folder
        self._programs: list[ServerProcess] = []
        self._proxy: tuple[str, tuple[str, ...]] = ("", ())

    def keys(self, lan: Star) -> dict[str, object]:
        """Return the properties of each replica. They start when HAProxy's host has its address."""
        lines = (line.partition("=") for line in (CONF / "broker.properties").read_text("utf-8").splitlines())
        keys: dict[str, object] = {key: value for key, _, value in lines if key in _KEYS}
        assert len(keys) == len(_KEYS), f"conf/failover/broker.properties lacks some of {_KEYS}"
        address = _FLOATING
        if self.way == "haproxy":
            self._proxy = lan.add("proxy")
            address = self._proxy[0]
        if self.way == "vip":
            keys["onRoleChange"] = f"{CONF / 'vip.sh'} {_FLOATING}/24 eth0"
        return {**keys, "listenPort": PORT, "masterAddress": f"{address}:{PORT}", "metricsPort": _METRICS_PORT,
                "metricsHost": "0.0.0.0"}

    def open(self, hosts: dict[str, tuple[str, ...]]) -> None:
        """Start the programs. `hosts`: address and prefix of each replica."""
        if self.way == "haproxy":
            text = (CONF / "haproxy.cfg").read_text("utf-8")
            for number, address in enumerate(hosts):
                text = text.replace(f" 10.0.0.{number + 2}:", f" {address}:")
            file = self._folder / "haproxy.cfg"
            file.write_text(text, "utf-8")
            self._start("haproxy", self._proxy[1], "haproxy", "-db", "-f", file)
        elif self.way == "keepalived":
            text = (CONF / "keepalived.conf").read_text("utf-8").replace("10.0.0.100", _FLOATING)
            file = self._folder / "keepalived.conf"
            file.write_text(text.replace("/etc/rocketmq/", f"{CONF}/"), "utf-8")
            file.chmod(0o644)
            for address, prefix in hosts.items():
                name = f"keepalived-{address}"
                self._start(name, prefix, "keepalived", "-n", "-l", "-P", "-f", file,
                            "-p", self._folder / f"{name}.pid", "-r", self._folder / f"{name}-vrrp.pid")

    def _start(self, name: str, prefix: tuple[str, ...], *command: object) -> None:
        program = ServerProcess(name, [*prefix, *map(str, command)], self._folder, "", warm_start=False)
        self._programs.append(program)
        program.start(_BOOT_MS)

    def check_alive(self) -> None:
        """Raise AssertionError if a program has ended."""
        for program in self._programs:
            assert program.is_alive, f"{program.name} has ended: {program.tail()}"

    def close(self) -> None:
        """End the programs. keepalived ends its own children only when it is asked to end."""
        for program in self._programs:
            program.stop()
