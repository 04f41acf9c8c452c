"""Brokers that left without unregistering, or were replaced by another: for tools that watch a cluster.

A broker whose connection ends is taken out of all routes at once, and its name is forgotten. Whoever asks then can't
know that there should be one more.
"""
from collections.abc import Callable

from rmqha.common.protocol.cluster_bodies import DepartedBroker

MAX_DEPARTED = 1000
_REMEMBERED_MS = 7 * 24 * 3_600_000


class DepartedBrokers:
    """At most 1000, for seven days. Guarded by its owner's lock; `clock` gives monotonic ms."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._gone: dict[tuple[str, str, int], tuple[str, int]] = {}  # (cluster, name, id) -> (address, gone at)

    def gone(self, cluster: str, name: str, broker_id: int, address: str) -> None:
        """It has not said that it leaves."""
        self._gone.pop((cluster, name, broker_id), None)
        while len(self._gone) >= MAX_DEPARTED:
            del self._gone[next(iter(self._gone))]
        self._gone[cluster, name, broker_id] = address, self._clock()

    def forget(self, cluster: str, name: str, broker_id: int) -> None:
        """It is there again, another one is in its place, or it has said that it leaves."""
        self._gone.pop((cluster, name, broker_id), None)

    def all(self) -> list[DepartedBroker]:
        """Those that are still away."""
        now = self._clock()
        self._gone = {key: gone for key, gone in self._gone.items() if now - gone[1] < _REMEMBERED_MS}
        return [DepartedBroker(*key, address, now - at) for key, (address, at) in self._gone.items()]
