"""The model's rules: rmqha's own decisions, and its objects as values that a state can hold and hash."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from rmqha.broker.controller.controller_heartbeat import MasterLease
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import AlterSyncStateSetRequestHeader, ElectMasterRequestHeader
from rmqha.controller import replicas_info_manager as decisions
from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness
from rmqha.controller.replicas_info_manager import Heard, Replica, ReplicaSet
from rmqha.store.ha.autoswitch.auto_switch_transfer import EpochsDifferError, MasterHandshake, consistent_point
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.ha.autoswitch.sync_state_set import Ask, ControlledSyncStateSet

# Objects of rmqha as values: their fields, frozen, so that a state of the model can hold and hash them.
#
#     Frozen --thaw--> a real object --one call--> its result, and the object frozen again
#
# Times are relative to now: an int above `A_TIME` is one, and `aged` advances the clock.

NOW_NS = 1 << 60
A_TIME = 1 << 58
# Older times are all equal.
OLD_NS = 20_000_000_000
_KEPT_OUT = ("_lock", "_clock", "_max_offset")


class Time(NamedTuple):
    """A moment, in ns from now."""

    from_now_ns: int


class Frozen:
    """The frozen fields of an object, one instance per content, so that it is compared and hashed by identity.

    States are hashed at each step, and consist mostly of these.
    """

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[tuple[str, Any], ...]) -> None:
        self.fields = fields


@cache
def _frozen(fields: tuple[tuple[str, Any], ...]) -> Frozen:
    return Frozen(fields)


def freeze_value(value: Any) -> Any:
    """Return a hashable value that is equal for equal content."""
    if isinstance(value, int) and value > A_TIME:
        return Time(max(value - NOW_NS, -OLD_NS))
    if isinstance(value, dict):
        return ("dict", *sorted(((freeze_value(key), freeze_value(each)) for key, each in value.items()), key=repr))
    if isinstance(value, (set, frozenset)):
        return ("set", type(value), *sorted(map(freeze_value, value), key=repr))
    if hasattr(value, "heard_ns"):
        return ("info", type(value), *sorted((key, freeze_value(each)) for key, each in vars(value).items()))
    return value


def _thaw_value(value: Any) -> Any:
    if isinstance(value, Time):
        return NOW_NS + value.from_now_ns
    if isinstance(value, tuple) and value and value[0] == "dict":
        return {_thaw_value(key): _thaw_value(each) for key, each in value[1:]}
    if isinstance(value, tuple) and value and value[0] == "set":
        return value[1](map(_thaw_value, value[2:]))
    if isinstance(value, tuple) and value and value[0] == "info":
        return value[1](**{key: _thaw_value(each) for key, each in value[2:]})
    return value


def freeze(obj: object) -> Frozen:
    """Return the fields of an object, except its lock and its callbacks."""
    return _frozen(tuple((name, freeze_value(value)) for name, value in sorted(vars(obj).items())
                         if name not in _KEPT_OUT))


def thaw(frozen: Frozen, make: Callable[[], Any]) -> Any:
    """Return an object as it was when it was frozen."""
    obj = make()
    for name, value in frozen.fields:
        setattr(obj, name, _thaw_value(value))
    return obj


@cache
def aged(value: Any, passed_ns: int) -> Any:
    """Return the same value `passed_ns` later."""
    if isinstance(value, Time):
        return Time(max(value.from_now_ns - passed_ns, -OLD_NS))
    if isinstance(value, Frozen):
        return _frozen(aged(value.fields, passed_ns))
    if type(value) is tuple:
        return tuple([aged(each, passed_ns) for each in value])
    return value


# The model's rules are rmqha's own decisions. A planted fault is a subclass with one different decision.

LEASE_MS = 3000
# A low number lets more be acknowledged, and lost.
MIN_IN_SYNC = 1
CLUSTER, NAME = "cluster", "broker"


class Stored(NamedTuple):
    """The stored roles of the replicas."""

    master: int | None
    epoch: int
    members: frozenset[int]
    set_epoch: int


class Sync(NamedTuple):
    """The state of a master's sync-state set."""

    members: frozenset[int]
    confirm: int
    asks: bool
    is_settled: bool


def identity(broker: int) -> tuple[str, str, int]:
    """Return the identity of a broker for BrokerLiveness."""
    return CLUSTER, NAME, broker


class Rules:
    """rmqha's own decisions, with cached calls. Those made by threads and sockets are switches here."""

    lease = MasterLease
    liveness = BrokerLiveness
    sync = ControlledSyncStateSet
    # A controller that gets a heartbeat with another leadership confirms that it leads.
    asks_before_it_is_followed = True
    # An election and a grant of one name exclude each other.
    one_at_a_time = True
    # A leadership counts from when the previous leader knows that it no longer leads.
    waits_for_the_one_before = True
    # A write of a controller that no longer leads is refused.
    checks_leader = True
    # A broker renounces its lease before it closes a connection, and sends nothing over it afterwards.
    renounces_before_close = True
    renounces_with_role = True
    # A refusal because of another master says nothing about earlier requests.
    doubts_when_deposed = True
    # A master that continues its epoch accepts no messages before it knows its sync-state set.
    opens_when_settled = True
    # The old master renounces its lease before it is replaced.
    asks_before_switch = True
    tells_who_closed = True
    # A heartbeat that is handled after the end of its connection is ignored.
    unheard_ends = True

    def __init__(self) -> None:
        for name in ("sync_call", "sync_look", "live_call", "live_heard", "granted", "holds", "follows", "alter",
                     "elect", "point", "needs_election"):
            setattr(self, name, cache(getattr(self, name)))

    # Decisions of the broker.

    def sync_begin(self, local_id: int, end: int, stored: Stored, goes_on: bool = False) -> Frozen:
        """Return the sync-state set of a new master, or of a restarted one that continues its epoch."""
        return self.sync_call(None, end, "become_master_of", local_id, stored.members, stored.set_epoch, goes_on)[0]

    def sync_call(self, frozen: Frozen | None, end: int, name: str, *args: Any) -> tuple[Frozen, Any]:
        """Call a ControlledSyncStateSet whose log ends at `end`."""
        def make() -> ControlledSyncStateSet:
            return self.sync(lambda: end, lambda: NOW_NS)
        found = make() if frozen is None else thaw(frozen, make)
        if name == "answered" and found._asked == args[0]:
            args = (found._asked, *args[1:])
        result = getattr(found, name)(*args)
        return freeze(found), result

    def sync_look(self, frozen: Frozen, end: int) -> tuple[Frozen, Sync]:
        """Return the counted replicas and their progress."""
        found = thaw(frozen, lambda: self.sync(lambda: end, lambda: NOW_NS))
        confirm = found.confirm_offset()
        return freeze(found), Sync(found.members, confirm, found.needs_ask(MIN_IN_SYNC), found.is_settled)

    def granted(self, old: Time | None, asked: Time, is_fresh: bool) -> Time | None:
        """Return the request time of the lease that counts now. `is_fresh`: none was renounced since the request."""
        now = [NOW_NS + asked.from_now_ns - is_fresh]
        lease = self.lease(lambda: now[0])
        lease.renounced()
        lease.granted(NOW_NS + asked.from_now_ns, LEASE_MS)
        now[0] = NOW_NS
        return max(filter(None, (old, asked))) if lease.holds() else old

    def holds(self, asked: Time | None) -> bool:
        """Return whether a lease with this request time holds now."""
        if asked is None:
            return False
        lease = self.lease(lambda: NOW_NS)
        lease.granted(NOW_NS + asked.from_now_ns, LEASE_MS)
        return lease.holds()

    def follows(self, term: int, told: int, asked_of: int, may_follow: bool) -> tuple[bool, int, bool]:
        """Return whether an answer counts at a broker that follows `term`, the term it then follows, and whether its
        lease stays.

        `may_follow`: the broker already followed its present leader when it sent the request.
        """
        lease = self.lease(lambda: NOW_NS)
        lease.granted(NOW_NS, LEASE_MS)
        lease.term, lease._followed_ns = term, NOW_NS - may_follow
        counts = lease.granted(NOW_NS, 0, told, asked_of)
        return counts, lease.term, lease.holds()

    def point(self, master_log: int, master_epochs: tuple[EpochEntry, ...], log: int, epochs: tuple[EpochEntry, ...],
              expected: int) -> int | None:
        """Return the last common offset of a slave's and the master's logs; None if the slave may not follow."""
        last = master_epochs[-1].epoch if master_epochs else -1
        try:
            return consistent_point(MasterHandshake(master_log, last, list(master_epochs)), (log, epochs), expected)
        except EpochsDifferError:
            return None

    # Decisions of the controller.

    def live_call(self, frozen: Frozen | None, name: str, *args: Any) -> tuple[Frozen, Any]:
        """Call a BrokerLiveness."""
        def make() -> BrokerLiveness:
            return self.liveness(LEASE_MS, lambda: NOW_NS)
        found = make() if frozen is None else thaw(frozen, make)
        result = getattr(found, name)(*args)
        return freeze(found), result

    def beat(self, frozen: Frozen, broker: int, channel: object, term: int) -> Frozen:
        """Note a heartbeat over a connection, from a broker that follows leadership `term`."""
        info = BrokerLiveInfo(identity(broker), "", NOW_NS, LEASE_MS, channel, ha_address="", leader_term=term)
        return self.live_call(frozen, "heartbeat", info)[0]

    def live_heard(self, frozen: Frozen, stored: Stored, brokers: int, since: Time,
                   term: int) -> tuple[frozenset[int], bool]:
        """Return the brokers that the leader considers alive, and whether the master may be replaced."""
        found = thaw(frozen, lambda: self.liveness(LEASE_MS, lambda: NOW_NS))
        alive = frozenset(id_ for id_ in range(1, brokers + 1) if found.is_alive(identity(id_)))
        return alive, stored.master is not None and found.may_replace(
            identity(stored.master), NOW_NS + since.from_now_ns, term)

    def needs_election(self, stored: Stored, brokers: int, alive: frozenset[int], may_replace: bool) -> bool:
        """Return whether a controller starts an election on its own."""
        return decisions.needs_election(replica_set(stored, brokers), heard_of(alive, may_replace))

    def elect(self, stored: Stored, brokers: int, asking: int | None, designates: bool, alive: frozenset[int],
              may_replace: bool) -> Stored | None:
        """Return the record to write for an election, or None."""
        header = ElectMasterRequestHeader(clusterName=CLUSTER, brokerName=NAME, brokerId=asking,
                                          designateElect=designates)
        return _written(decisions.elect_master(replica_set(stored, brokers), header, heard_of(alive, may_replace)))

    def alter(self, stored: Stored, brokers: int, master: int, epoch: int, ask: Ask,
              alive: frozenset[int]) -> tuple[Stored | None, bool]:
        """Return the record to write, and whether the master must read the set because its request was outdated."""
        decision = decisions.alter_sync_state_set(
            replica_set(stored, brokers), AlterSyncStateSetRequestHeader(NAME, master, epoch),
            SyncStateSet(sorted(ask.members), ask.epoch), heard_of(alive, False))
        return _written(decision), decision.code in (response_code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
                                                     response_code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH)


@cache
def replica_set(stored: Stored, brokers: int) -> ReplicaSet:
    """Return the record that the decisions use."""
    replicas = {id_: Replica(f"127.0.0.1:{id_}", "") for id_ in range(1, brokers + 1)}
    return ReplicaSet(CLUSTER, NAME, replicas, brokers + 1, stored.master, stored.epoch, stored.members,
                      stored.set_epoch)


@cache
def heard_of(alive: frozenset[int], may_replace: bool) -> Heard:
    """Return heartbeats of these brokers."""
    return Heard({id_: BrokerLiveInfo(identity(id_), "", NOW_NS, LEASE_MS, 0) for id_ in alive}, may_replace)


def _written(decision: decisions.Decision) -> Stored | None:
    decided = decision.replica_set
    if not decision.writes or decided is None:
        return None
    return Stored(decided.master_id, decided.master_epoch, decided.sync_state_set, decided.sync_state_set_epoch)
