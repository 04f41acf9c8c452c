"""A network of their own for the nodes of a cluster, each of which can be cut off from each other one, one way or both.

    node's namespace: eth0 10.77.N.2  --veth-- 10.77.N.1: this process' own network, which passes on what others send

A cut is a rule of routing in the middle, so packets are lost without a word, as in a switch that fails, and nobody who
sends is told. This process reaches every node whatever is cut. Needs root.
"""
import functools
import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from tests.faults.network import run
from tests.support.programs import not_installed

_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


@functools.cache
def why_not() -> str | None:
    """The reason why there can't be namespaces with cuts here; None when there can."""
    missing = not_installed("ip", "nsenter", "unshare")
    if missing is not None:
        return missing
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    try:
        run("unshare", "-n", "sh", "-ec", "ip link add s0 type veth peer name s1; "
            "ip rule add from 10.77.0.2 to 10.77.1.2 blackhole prio 100; echo 1 > /proc/sys/net/ipv4/ip_forward")
    except AssertionError as failure:
        return f"network namespaces with routes that drop do not work here: {failure}"
    return None


class Star:
    """The namespaces; the process that makes it is in a network of its own already."""

    def __init__(self, name: str):
        self._name = name
        self._ips: dict[str, str] = {}  # node -> address
        self._cuts: set[tuple[str, str]] = set()  # from, to

    def open(self) -> "Star":
        """Pass on packets between the nodes to come."""
        _FORWARD.write_text("1", encoding="ascii")
        return self

    def add(self, node: str) -> tuple[str, tuple[str, ...]]:
        """A namespace for a node: its address, and what goes before its command."""
        number = len(self._ips)
        namespace, mine, its = self._namespace(node), f"10.77.{number}.1", f"10.77.{number}.2"
        run("ip", "netns", "add", namespace)
        self._ips[node] = its
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "link", "add", f"star{number}", "type", "veth", "peer", "name", "eth0", "netns", namespace)
        run("ip", "addr", "add", f"{mine}/30", "dev", f"star{number}")
        run("ip", "link", "set", f"star{number}", "up")
        run("ip", "-n", namespace, "addr", "add", f"{its}/30", "dev", "eth0")
        run("ip", "-n", namespace, "link", "set", "eth0", "up")
        run("ip", "-n", namespace, "route", "add", "default", "via", mine)
        return its, ("nsenter", f"--net=/run/netns/{namespace}")

    def _namespace(self, node: str) -> str:
        return f"{self._name}-{node}"

    def cut(self, sources: Iterable[str], targets: Iterable[str], both_ways: bool = True) -> None:
        """From now on nothing comes from these nodes to those; with `both_ways` nothing from those to these either."""
        pairs = [(a, b) for a, b in product(tuple(sources), tuple(targets)) if a != b]
        if both_ways:
            pairs += [(b, a) for a, b in pairs]
        for pair in pairs:
            if pair not in self._cuts:
                self._cuts.add(pair)
                self._rule("add", *pair)

    def heal(self) -> None:
        """As at the beginning."""
        for pair in self._cuts:
            self._rule("del", *pair)
        self._cuts.clear()

    def _rule(self, verb: str, source: str, target: str) -> None:
        run("ip", "rule", verb, "from", self._ips[source], "to", self._ips[target], "blackhole", "prio", "100")

    def close(self) -> None:
        """Remove all."""
        for number, node in enumerate(self._ips):
            run("ip", "link", "del", f"star{number}", check=False)
            run("ip", "netns", "del", self._namespace(node), check=False)
        self._ips.clear()
