"""Ports of this host: free ones in a row, and who holds one that is not."""
import random
from collections.abc import Iterable

from rmqha.remoting.addresses import holders, is_free
from rmqha.tools.cluster.node import ClusterError, Node

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
