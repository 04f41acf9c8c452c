"""The brokers that a controller hears, the masters that may be replaced, and the controller's limits.

    heartbeats, closed connections  -->  BrokerLiveness  --> elections

Lease. A master may acknowledge messages only while it holds a lease, which the leading controller grants with each
answer to a heartbeat. A controller cannot distinguish a dead master from one that it merely does not hear; two
masters at the same time would both acknowledge messages, and those of one would be lost. So a new master is elected
only when no lease of the old one can hold any more (`may_replace`): silence is not enough, the lease must be over. It
is over

- when the master has given it up, because it was asked to (a planned switch) or because it closed the connection;
- or when its time has passed by this controller's clock, counted from its answer, so it ends later than by the
  master, which counts from its request. This includes leases of a previous leader, which this controller does not
  know: it waits for the longest possible lease after it began to lead, unless the master already follows this
  leadership (its term).
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.texts import too_long
from rmqha.remoting.exception import RemotingCommandException

# Names that were forgotten count, too.
MAX_BROKER_NAMES = 10_000
# Of one broker name; each is part of all the name's documents.
MAX_REPLICAS = 1000
MAX_BROKERS_HEARD = 10_000
# Brokers that one connection may report; a broker reports itself.
MAX_BROKERS_OF_CHANNEL = 1000


class ControllerLimitError(RemotingCommandException):
    """A request that exceeds a limit of the controller; nothing was changed."""


# Differs: the brokers of a controller are limited in number and length of names; 5.1.4's controller accepts any number
# of brokers, and names of any length, from any client
def check_names(*names: str | None) -> None:
    """Raise ControllerLimitError if a name is too long."""
    problem = too_long(*names)
    if problem is not None:
        raise ControllerLimitError(problem)


_NS_PER_MS = 1_000_000
NOT_TOLD_EPOCH = NOT_TOLD_OFFSET = -1
LAST_PRIORITY = (1 << 31) - 1

# Cluster, name, broker id.
BrokerIdentity = tuple[str, str, int]


@dataclass(frozen=True)
class BrokerLiveInfo:
    """A broker's last heartbeat; `channel` is the connection over which it arrived, compared by identity.

    Java: org.apache.rocketmq.controller.impl.heartbeat.BrokerLiveInfo (5.1.4)
    """

    identity: BrokerIdentity
    address: str
    heard_ns: int
    timeout_ms: int
    channel: object
    # `host:port` for slaves; only rmqha's brokers report it.
    ha_address: str | None = None
    epoch: int = NOT_TOLD_EPOCH
    max_offset: int = NOT_TOLD_OFFSET
    confirm_offset: int = NOT_TOLD_OFFSET
    priority: int = LAST_PRIORITY
    # The leadership whose leases it accepts; it accepts none of earlier ones. 0: none yet.
    leader_term: int = 0

    @property
    def takes_leases(self) -> bool:
        """True for a broker of rmqha: one of RocketMQ acknowledges without a lease."""
        return self.ha_address is not None


class BrokerLiveness:
    """The last heartbeat of each broker, and until when each master's lease may hold.

    A broker is alive until its timeout or until its connection ends. A master that is dead in this sense can't be
    replaced yet: `may_replace` is true once none of its leases can hold any more.

    Java: org.apache.rocketmq.controller.impl.heartbeat.DefaultBrokerHeartbeatManager (5.1.4)
    """

    def __init__(self, max_lease_ms: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        # No controller grants a lease for longer.
        self._max_lease_ms = max_lease_ms
        self._clock = clock
        # Guards all below.
        self._lock = threading.Lock()
        self._heard: dict[BrokerIdentity, BrokerLiveInfo] = {}
        # The connections over which it was heard and which have not ended.
        self._channels: dict[BrokerIdentity, set[object]] = {}
        # The same, in the other direction.
        self._of_channel: dict[object, set[BrokerIdentity]] = {}
        # Leases granted by this controller, by the connection over which they were sent: they end with it, or by the
        # clock.
        self._leased_until_ns: dict[BrokerIdentity, dict[object, int]] = {}
        # When this controller asked it to give up its lease; it did, and has not been granted one since.
        self._renounced_ns: dict[BrokerIdentity, int] = {}
        # The leadership that it last reported, dead or alive.
        self._follows: dict[BrokerIdentity, int] = {}

    def heartbeat(self, info: BrokerLiveInfo) -> bool:
        """Note that a broker is alive, over an open connection. (If the caller finds later that it has ended, it calls
        `closed`.)

        Returns whether the broker's time may now run out sooner than previously known. ControllerLimitError: one broker
        more than this connection, or all of them, may report.
        """
        with self._lock:
            self._take_place(info.identity, info.channel)
            before = self._heard.get(info.identity)
            is_sooner = before is None or _expiry_ns(info) < _expiry_ns(before)
            self._heard[info.identity] = info
            if info.leader_term:
                self._follows.pop(info.identity, None)
                self._follows[info.identity] = info.leader_term
                # A broker that is forgotten is only replaced later.
                if len(self._follows) > MAX_BROKERS_HEARD:
                    del self._follows[next(iter(self._follows))]
            return is_sooner

    def _take_place(self, identity: BrokerIdentity, channel: object) -> None:
        channels, told = self._channels.get(identity), self._of_channel.get(channel, ())
        if channels is None and len(self._channels) >= MAX_BROKERS_HEARD:
            raise ControllerLimitError(f"{MAX_BROKERS_HEARD} brokers are already heard")
        if identity not in told and len(told) >= MAX_BROKERS_OF_CHANNEL:
            raise ControllerLimitError(f"one connection may report at most {MAX_BROKERS_OF_CHANNEL} brokers")
        self._channels.setdefault(identity, set()).add(channel)
        self._of_channel.setdefault(channel, set()).add(identity)

    def grant(self, master: BrokerIdentity, channel: object) -> int:
        """Grant this master, heard over this connection, a lease that begins now. Returns its ms; 0: none granted.

        No other master may be elected between the caller's check that this is the master and this call.
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
        """Note that this master, asked at `asked_ns` (of the clock), gave up its lease, and accepts none granted
        before.

        The time of the answer would prove less: another controller that led at that time may have granted it a lease
        between the question and the answer.
        """
        with self._lock:
            self._leased_until_ns.pop(master, None)
            self._renounced_ns[master] = asked_ns

    def closed(self, channel: object, by_peer: bool = True) -> list[BrokerIdentity]:
        """Note that a connection has ended. Returns the brokers that are dead now: heard over it and no other open one.

        `by_peer`: the other side closed it, which ends the leases that were sent over it. If the network or this side
        closed it, the broker may not have noticed, whatever its other connections do.
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
        """Remove the brokers that were silent for their timeout, and return their last heartbeats."""
        with self._lock:
            silent = [info for info in self._heard.values() if self._is_silent(info)]
            for info in silent:
                del self._heard[info.identity]
            return silent

    def _is_silent(self, info: BrokerLiveInfo) -> bool:
        return self._clock() > _expiry_ns(info)

    def get(self, identity: BrokerIdentity) -> BrokerLiveInfo | None:
        """Return the last heartbeat of a broker that is alive, or None."""
        with self._lock:
            info = self._heard.get(identity)
            return None if info is None or self._is_silent(info) else info

    def is_of_rocketmq(self, channel: object) -> bool:
        """Return whether heartbeats of a RocketMQ broker, which takes no leases, arrive over this connection."""
        with self._lock:
            heard = (self._heard.get(identity) for identity in self._of_channel.get(channel, ()))
            return any(info is not None and not info.takes_leases for info in heard)

    def is_alive(self, identity: BrokerIdentity) -> bool:
        """Return whether its last heartbeat is not older than its timeout, and its connection is open."""
        return self.get(identity) is not None

    def may_replace(self, master: BrokerIdentity, leads_since_ns: int, term: int = 0) -> bool:
        """Return whether no lease of this master can hold any more, whichever controller granted it.

        Either the master said so when this controller, while leading, asked it. Or both hold:

        - No lease of this controller holds: each is over, or the master closed the connection over which it was sent. A
          broker gives up its lease before it closes any connection to a controller and when it sees one end, and then
          accepts no lease that it requested earlier. (The closing proves nothing about leases of other controllers: the
          news of it may have been on its way since before this one began to lead.)
        - No lease of an earlier leader holds: this controller has led for longer than the longest lease; or the
          master has reported that it follows this leadership, the one with this term. Then it has dropped earlier
          leases and accepts none of them. That is also true after a restart of the master, since it takes its first
          lease from the controller that leads then.
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
        """Return when `may_replace` becomes true if nothing more is heard from this master."""
        with self._lock:
            others_ns = 0 if self._is_followed(master, term) else leads_since_ns + self._max_lease_ms * _NS_PER_MS
            return 1 + max((others_ns, *self._leased_until_ns.get(master, {}).values()))

    def next_expiry_ns(self) -> int | None:
        """Return when the next broker's time runs out if nothing more is heard; None without brokers."""
        with self._lock:
            return min((_expiry_ns(info) + 1 for info in self._heard.values()), default=None)

    def all(self) -> list[BrokerLiveInfo]:
        """Return the last heartbeats of all brokers that are alive."""
        with self._lock:
            return [info for info in self._heard.values() if not self._is_silent(info)]


def _expiry_ns(info: BrokerLiveInfo) -> int:
    return info.heard_ns + info.timeout_ms * _NS_PER_MS
