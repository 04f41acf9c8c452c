"""A consistent-hash ring. Each node has several places on it; a key belongs to the first place at or after its hash."""
from bisect import bisect_left
from collections.abc import Callable, Iterable

HashFunction = Callable[[str], int]


def md5_hash(key: str) -> int:
    """Return the first 4 bytes of the MD5 sum, as an unsigned number.

    Java: org.apache.rocketmq.common.consistenthash.ConsistentHashRouter$MD5Hash (4.9.8)
    """
    # Imported late: it loads OpenSSL, and only one strategy of rebalancing needs it.
    import hashlib

    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


class ConsistentHashRouter:
    """Routes keys to node names; each node has `virtual_node_count` places. On equal hashes the later node wins.

    Java: org.apache.rocketmq.common.consistenthash.ConsistentHashRouter (4.9.8)
    """

    def __init__(
        self, nodes: Iterable[str], virtual_node_count: int, hash_function: HashFunction = md5_hash
    ) -> None:
        self._hash_function = hash_function
        ring: dict[int, str] = {}
        for node in nodes:
            first = sum(owner == node for owner in ring.values())
            for index in range(first, first + virtual_node_count):
                ring[hash_function(f"{node}-{index}")] = node
        self._places = sorted(ring)
        self._ring = ring

    def route_node(self, key: str) -> str | None:
        """Return the node that `key` belongs to; None without nodes."""
        if not self._places:
            return None
        index = bisect_left(self._places, self._hash_function(key)) % len(self._places)
        return self._ring[self._places[index]]
