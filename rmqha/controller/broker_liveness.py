"""How much a controller takes: of a name, of one broker name, of one connection, of all.

Which brokers a controller hears, and whose mastership may be given to another one.

    heartbeats, closed connections  -->  BrokerLiveness  --> elections
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.texts import too_long
from rmqha.remoting.exception import RemotingCommandException

MAX_BROKER_NAMES = 10_000  # those that were forgotten take a place, too
MAX_REPLICAS = 1000  # of one broker name; each is a part of all its documents
MAX_BROKERS_HEARD = 10_000
MAX_BROKERS_OF_CHANNEL = 1000  # that one connection tells of; a broker tells of itself


class ControllerLimitError(RemotingCommandException):
    """More than a controller takes; nothing was changed."""


# Differs: 5.1.4's controller takes any number of brokers and names of any length from whoever comes
def check_names(*names: str | None) -> None:
    """ControllerLimitError when one is too long."""
    problem = too_long(*names)
    if problem is not None:
        raise ControllerLimitError(problem)


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
    leader_term: int = 0  # the leadership of which it takes leases, none of before; 0: of no one yet

    @property
    def takes_leases(self) -> bool:
        """Whether it is one of ours: a broker of RocketMQ acknowledges without a lease."""
        return self.ha_address is not None


class BrokerLiveness:
    """The last heartbeat of each broker, and until when each master's lease may hold.

    A broker is alive until its time-out or until its connection ends. Being dead here does not free a master's place
    yet: `may_replace` says when no lease of its can hold any more.

    Java: org.apache.rocketmq.controller.impl.heartbeat.DefaultBrokerHeartbeatManager (5.1.4)
    """

    def __init__(self, max_lease_ms: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._max_lease_ms = max_lease_ms  # no lease is granted for longer, by any controller
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._heard: dict[BrokerIdentity, BrokerLiveInfo] = {}
        self._channels: dict[BrokerIdentity, set[object]] = {}  # over which it was heard, and which have not ended
        self._of_channel: dict[object, set[BrokerIdentity]] = {}  # the same, the other way round
        # by this controller, and by the connection over which it was told: ends when that does, or by the clock
        self._leased_until_ns: dict[BrokerIdentity, dict[object, int]] = {}
        # when it was asked to, by this controller, and did, and has not been granted one since
        self._renounced_ns: dict[BrokerIdentity, int] = {}
        self._follows: dict[BrokerIdentity, int] = {}  # which leadership, as it has said last, dead or alive

    def heartbeat(self, info: BrokerLiveInfo) -> bool:
        """A broker lives, over a connection that stands. (Who finds afterwards that it has ended calls `closed`.)

        Returns whether it may be silent for too long sooner than was known before. ControllerLimitError: one broker
        more than this connection, or all of them, may tell of.
        """
        with self._lock:
            self._take_place(info.identity, info.channel)
            before = self._heard.get(info.identity)
            is_sooner = before is None or _expiry_ns(info) < _expiry_ns(before)
            self._heard[info.identity] = info
            if info.leader_term:
                self._follows.pop(info.identity, None)
                self._follows[info.identity] = info.leader_term
                if len(self._follows) > MAX_BROKERS_HEARD:  # who is forgotten is replaced later
                    del self._follows[next(iter(self._follows))]
            return is_sooner

    def _take_place(self, identity: BrokerIdentity, channel: object) -> None:
        channels, told = self._channels.get(identity), self._of_channel.get(channel, ())
        if channels is None and len(self._channels) >= MAX_BROKERS_HEARD:
            raise ControllerLimitError(f"{MAX_BROKERS_HEARD} brokers are heard already")
        if identity not in told and len(told) >= MAX_BROKERS_OF_CHANNEL:
            raise ControllerLimitError(f"one connection tells of {MAX_BROKERS_OF_CHANNEL} brokers")
        self._channels.setdefault(identity, set()).add(channel)
        self._of_channel.setdefault(channel, set()).add(identity)

    def grant(self, master: BrokerIdentity, channel: object) -> int:
        """Grant this master, heard over this connection, its lease, from now on. Returns for how many ms; 0: none.

        Nobody may elect another one between the look who is the master and this call.
        """
        with self._lock:
            info = self._heard.get(master)
            if info is None or not info.takes_leases or channel not in self._channels.get(master, ()):
                return 0
            lease_ms = min(info.timeout_ms, self._max_lease_ms)
            now = self._clock()
            until_ns = now + lease_ms * _NS_PER_MS
            leases = {each: ns for each, ns in self._leased_until_ns.get(master, {}).items() if ns >= now}
            self._leased_until_ns[master] = {**leases, channel: max(until_ns, leases.get(channel, 0))}
            self._renounced_ns.pop(master, None)
            return lease_ms

    def renounced(self, master: BrokerIdentity, asked_ns: int) -> None:
        """This master, asked at `asked_ns` (of the clock), has given up its lease, and takes none of before.

        When it answered says less: another controller that led then may have granted it a lease in between.
        """
        with self._lock:
            self._leased_until_ns.pop(master, None)
            self._renounced_ns[master] = asked_ns

    def closed(self, channel: object, by_peer: bool = True) -> list[BrokerIdentity]:
        """A connection has ended. Returns the brokers that were heard over it and no other one that stands: dead now.

        `by_peer`: the other side has closed it, which ends the leases that were told over it; when the network or this
        side did, the broker may not have noticed, whatever its other connections do.
        """
        with self._lock:
            if by_peer:
                for leases in self._leased_until_ns.values():
                    leases.pop(channel, None)
            dead = []
            for identity in self._of_channel.pop(channel, ()):
                self._channels[identity].discard(channel)
                if not self._channels[identity]:
                    del self._channels[identity]
                    self._heard.pop(identity, None)
                    dead.append(identity)
            return dead

    def expired(self) -> list[BrokerLiveInfo]:
        """Forget the brokers that have been silent for their time-out. Returns what they said last."""
        with self._lock:
            silent = [info for info in self._heard.values() if self._is_silent(info)]
            for info in silent:
                del self._heard[info.identity]
            return silent

    def _is_silent(self, info: BrokerLiveInfo) -> bool:
        return self._clock() > _expiry_ns(info)

    def get(self, identity: BrokerIdentity) -> BrokerLiveInfo | None:
        """The last heartbeat of a broker that is alive, or None."""
        with self._lock:
            info = self._heard.get(identity)
            return None if info is None or self._is_silent(info) else info

    def is_of_rocketmq(self, channel: object) -> bool:
        """Whether heartbeats of a broker without leases, one of RocketMQ's own, arrive over this connection."""
        with self._lock:
            heard = (self._heard.get(identity) for identity in self._of_channel.get(channel, ()))
            return any(info is not None and not info.takes_leases for info in heard)

    def is_alive(self, identity: BrokerIdentity) -> bool:
        """Whether its last heartbeat is not older than its time-out, and its connection stands."""
        return self.get(identity) is not None

    def may_replace(self, master: BrokerIdentity, leads_since_ns: int, term: int = 0) -> bool:
        """Whether no lease of this master can hold any more, by whichever controller it was granted.

        It has said so when this controller asked, since that leads. Or else those that led before have none that holds;
        and those that this one has granted are over, or the master has closed the connections over which they were
        told: a broker gives up its lease before it closes any connection to a controller and when it sees one end, and
        takes none that it has asked for before. (That it closed them says nothing of leases of other controllers: the
        news may have been on its way since before this one began to lead.)

        Leases of those that led before are over when this one leads for longer than the longest of them; or the master
        has said that it follows this leadership, the one of that term. Then it has none of before, and gets none: not
        when it is started anew, either, since it takes its first one of somebody who leads by then.
        """
        with self._lock:
            info = self._heard.get(master)
            if info is not None and not info.takes_leases:
                return True
            if self._renounced_ns.get(master, leads_since_ns - 1) >= leads_since_ns:
                return True
            now = self._clock()
            if not self._is_followed(master, term) and now <= leads_since_ns + self._max_lease_ms * _NS_PER_MS:
                return False
            return all(now > until_ns for until_ns in self._leased_until_ns.get(master, {}).values())

    def _is_followed(self, master: BrokerIdentity, term: int) -> bool:
        return term != 0 and self._follows.get(master) == term

    def replaceable_from_ns(self, master: BrokerIdentity, leads_since_ns: int, term: int = 0) -> int:
        """When `may_replace` becomes true if nothing more is heard from this master."""
        with self._lock:
            others_ns = 0 if self._is_followed(master, term) else leads_since_ns + self._max_lease_ms * _NS_PER_MS
            return 1 + max((others_ns, *self._leased_until_ns.get(master, {}).values()))

    def next_expiry_ns(self) -> int | None:
        """When the next broker is silent for too long if nothing more is heard; None: there are none."""
        with self._lock:
            return min((_expiry_ns(info) + 1 for info in self._heard.values()), default=None)

    def all(self) -> list[BrokerLiveInfo]:
        """The last heartbeats of all that are alive."""
        with self._lock:
            return [info for info in self._heard.values() if not self._is_silent(info)]


def _expiry_ns(info: BrokerLiveInfo) -> int:
    return info.heard_ns + info.timeout_ms * _NS_PER_MS
