"""Which brokers a controller hears, and whose mastership may be given to another one.

    heartbeats, closed connections  -->  BrokerLiveness  --> elections
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_NS_PER_MS = 1_000_000
NOT_TOLD_EPOCH = NOT_TOLD_OFFSET = -1
LAST_PRIORITY = (1 << 31) - 1

BrokerIdentity = tuple[str, str, int]  # cluster, name, broker id


@dataclass(frozen=True)
class BrokerLiveInfo:
    """What a broker's last heartbeat said; `channel` is the connection that it came over, compared by identity.

    Java: org.apache.rocketmq.controller.impl.heartbeat.BrokerLiveInfo (5.1.4)
    """

    identity: BrokerIdentity
    address: str
    heard_ns: int
    timeout_ms: int
    channel: object
    ha_address: str | None = None  # `host:port` where slaves find it; only ours tell it
    epoch: int = NOT_TOLD_EPOCH
    max_offset: int = NOT_TOLD_OFFSET
    confirm_offset: int = NOT_TOLD_OFFSET
    priority: int = LAST_PRIORITY


class BrokerLiveness:
    """The last heartbeat of each broker. A broker is alive until its time-out or until its connection ends.

    Being dead here does not free a master's place yet: `may_replace` says when no lease of its can hold any more.

    Java: org.apache.rocketmq.controller.impl.heartbeat.DefaultBrokerHeartbeatManager (5.1.4)
    """

    def __init__(self, max_lease_ms: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._max_lease_ms = max_lease_ms  # no lease is granted for longer
        self._clock = clock
        self._lock = threading.Lock()  # guards both below
        self._heard: dict[BrokerIdentity, BrokerLiveInfo] = {}
        self._closed_ns: dict[BrokerIdentity, int] = {}  # when their connection ended, until they are heard again

    def lease_ms(self, timeout_ms: int) -> int:
        """For how long a master that counts as dead after `timeout_ms` may be granted its lease."""
        return min(timeout_ms, self._max_lease_ms)

    def heartbeat(self, info: BrokerLiveInfo) -> None:
        """A broker lives, over a connection that stands."""
        with self._lock:
            self._closed_ns.pop(info.identity, None)
            self._heard[info.identity] = info

    def closed(self, channel: object) -> list[BrokerIdentity]:
        """A connection has ended, and with it the brokers that were heard over it. Returns them."""
        with self._lock:
            ended = [identity for identity, info in self._heard.items() if info.channel is channel]
            for identity in ended:
                del self._heard[identity]
                self._closed_ns[identity] = self._clock()
            return ended

    def expired(self) -> list[BrokerLiveInfo]:
        """Forget the brokers that have been silent for their time-out. Returns what they said last."""
        with self._lock:
            silent = [info for info in self._heard.values() if self._is_silent(info)]
            for info in silent:
                del self._heard[info.identity]
            return silent

    def _is_silent(self, info: BrokerLiveInfo) -> bool:
        return self._clock() > info.heard_ns + info.timeout_ms * _NS_PER_MS

    def get(self, identity: BrokerIdentity) -> BrokerLiveInfo | None:
        """The last heartbeat of a broker that is alive, or None."""
        with self._lock:
            info = self._heard.get(identity)
            return None if info is None or self._is_silent(info) else info

    def is_alive(self, identity: BrokerIdentity) -> bool:
        """Whether its last heartbeat is not older than its time-out, and its connection stands."""
        return self.get(identity) is not None

    def may_replace(self, master: BrokerIdentity, leads_since_ns: int) -> bool:
        """Whether no lease of this master can hold any more, by whichever controller it was granted.

        Its connection to this controller has ended since this one leads: a broker gives up its lease before it closes
        any connection to a controller, and whenever it sees one end, and only this one could have granted another. Or
        it is silent here for its time-out, and this controller leads for longer than a lease of those that led before.
        """
        with self._lock:
            info = self._heard.get(master)
            if info is not None and not self._is_silent(info):
                return False
            if self._closed_ns.get(master, leads_since_ns - 1) >= leads_since_ns:
                return True
            return self._clock() > leads_since_ns + self._max_lease_ms * _NS_PER_MS

    def all(self) -> list[BrokerLiveInfo]:
        """The last heartbeats of all that are alive."""
        with self._lock:
            return [info for info in self._heard.values() if not self._is_silent(info)]
