"""Faults that are planted one at a time, each with bounds within which it must be found."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from rmqha.broker.controller.controller_heartbeat import MasterLease
from rmqha.controller.broker_liveness import BrokerIdentity, BrokerLiveInfo, BrokerLiveness
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.ha.autoswitch.sync_state_set import Ask, ControlledSyncStateSet
from tests.controller.explorer.model import Bounds
from tests.controller.explorer.rules import Rules, Stored, Time

_NS_PER_MS = 1_000_000


class Planted(NamedTuple):
    """One planted fault."""

    what: str
    rules: type[Rules]
    bounds: Bounds


# Logs and sync-state sets: no lease is waited for, and any replica may seem dead at any time.
LOGS = Bounds(leases=False, heartbeats=False, puts=1, elections=1, looks=1)
# Leases: no messages are written, and two replicas are enough.
LEASES = Bounds(brokers=2, in_sync=2, controllers=1, elections=1, looks=1, beats=1)
# Only the master's leases, under a new leader.
FOLLOWED = LEASES._replace(controllers=2, talkers=1, leaders=1, looks=0)


# Elections.


class ElectsAnybody(Rules):
    def elect(self, stored: Stored, brokers: int, asking: int | None, designates: bool, alive: frozenset[int],
              may_replace: bool) -> Stored | None:
        everybody = stored._replace(members=frozenset(range(1, brokers + 1)))
        return super().elect(everybody, brokers, asking, designates, alive, may_replace)


class EpochStays(Rules):
    def elect(self, stored: Stored, brokers: int, asking: int | None, designates: bool, alive: frozenset[int],
              may_replace: bool) -> Stored | None:
        written = super().elect(stored, brokers, asking, designates, alive, may_replace)
        return written and written._replace(epoch=stored.epoch)


class ElectsWhileALeaseHolds(Rules):
    def live_heard(self, frozen: Any, stored: Stored, brokers: int, since: Time,
                   term: int) -> tuple[frozenset[int], bool]:
        alive, _ = super().live_heard(frozen, stored, brokers, since, term)
        return alive, True


# The sync-state set, at the controller.


class AnySetEpoch(Rules):
    def alter(self, stored: Stored, brokers: int, master: int, epoch: int, ask: Ask,
              alive: frozenset[int]) -> tuple[Stored | None, bool]:
        return super().alter(stored, brokers, master, epoch, ask._replace(epoch=stored.set_epoch), alive)


class AnyMaster(Rules):
    def alter(self, stored: Stored, brokers: int, master: int, epoch: int, ask: Ask,
              alive: frozenset[int]) -> tuple[Stored | None, bool]:
        if stored.master is None:
            return None, False
        return super().alter(stored, brokers, stored.master, stored.epoch, ask._replace(
            epoch=stored.set_epoch, members=ask.members | {stored.master}), alive)


class _ForgetsByTheClock(ControlledSyncStateSet):
    def answered(self, ask: Ask, is_over: bool) -> None:
        super().answered(ask, is_over)
        if is_over:
            self._forget_old()
            self._derive()


class RefusesTheSameSet(Rules):
    sync = _ForgetsByTheClock

    def alter(self, stored: Stored, brokers: int, master: int, epoch: int, ask: Ask,
              alive: frozenset[int]) -> tuple[Stored | None, bool]:
        if ask.members == stored.members:
            return None, True
        return super().alter(stored, brokers, master, epoch, ask, alive)


# The sync-state set, at the master.


class _RemovesAtOnce(ControlledSyncStateSet):
    def _derive(self) -> None:
        self._members = self._wanted if self._local_id is not None else frozenset()


class _AddsWhenTold(ControlledSyncStateSet):
    def _derive(self) -> None:
        self._members = self._decided if self._local_id is not None else frozenset()


class _ForgetsUnanswered(ControlledSyncStateSet):
    def answered(self, ask: Ask, is_over: bool) -> None:
        super().answered(ask, is_over)
        self._unknown = {}
        self._derive()


class _TakesOldSets(ControlledSyncStateSet):
    def decide(self, members: Iterable[int], epoch: int) -> bool:
        self._epoch = min(self._epoch, epoch - 1)
        return super().decide(members, epoch)


class _AddsWhoLacksSome(ControlledSyncStateSet):
    def acknowledged(self, slave_id: int, ack_offset: int, caught_up_ns: int | None, may_join: bool) -> None:
        super().acknowledged(slave_id, ack_offset, caught_up_ns, may_join)
        self._wanted |= {slave_id}
        self._joining -= {slave_id}
        self._derive()


class _BeginsAlone(ControlledSyncStateSet):
    def become_master_of(self, local_id: int, decided: Iterable[int], epoch: int, goes_on: bool = False) -> None:
        super().become_master_of(local_id, (local_id,), epoch, goes_on)


class _GoesOnAtOnce(ControlledSyncStateSet):
    def become_master_of(self, local_id: int, decided: Iterable[int], epoch: int, goes_on: bool = False) -> None:
        super().become_master_of(local_id, decided, epoch)


class RemovesAtOnce(Rules):
    sync = _RemovesAtOnce


class AddsWhenTold(Rules):
    sync = _AddsWhenTold


class ForgetsUnanswered(Rules):
    sync = _ForgetsUnanswered


class TakesOldSets(Rules):
    sync = _TakesOldSets


class AddsWhoLacksSome(Rules):
    sync = _AddsWhoLacksSome


class KeepsSetAndBeginsAlone(Rules):
    sync = _BeginsAlone

    def elect(self, stored: Stored, brokers: int, asking: int | None, designates: bool, alive: frozenset[int],
              may_replace: bool) -> Stored | None:
        written = super().elect(stored, brokers, asking, designates, alive, may_replace)
        return written and written._replace(members=stored.members)


# Logs.


class ComparesLengths(Rules):
    def point(self, master_log: int, master_epochs: tuple[EpochEntry, ...], log: int, epochs: tuple[EpochEntry, ...],
              expected: int) -> int | None:
        return min(master_log, log)


class OpensAtOnce(Rules):
    opens_when_settled = False


class SettlesWhenDeposed(Rules):
    doubts_when_deposed = False


class GoesOnAtOnce(Rules):
    sync = _GoesOnAtOnce


# Leases, at the broker.


class _KeepsAll(MasterLease):
    def granted(self, asked_ns: int, lease_ms: int, term: int = 0, asked_of: int = 0) -> bool:
        return super().granted(asked_ns + lease_ms * _NS_PER_MS // 10, lease_ms, term, asked_of)


class _TakesWhatWasAskedBefore(MasterLease):
    def renounced(self) -> None:
        super().renounced()
        self._renounced_ns = -1


class KeepsAll(Rules):
    lease = _KeepsAll


class CountsFromTheAnswer(Rules):
    def granted(self, old: Time | None, asked: Time, is_fresh: bool) -> Time | None:
        return super().granted(old, Time(0) if is_fresh else asked, is_fresh)


class TakesWhatWasAskedBefore(Rules):
    lease = _TakesWhatWasAskedBefore


class _TakesLeasesOfAnyLeader(MasterLease):
    def granted(self, asked_ns: int, lease_ms: int, term: int = 0, asked_of: int = 0) -> bool:
        self._followed_ns = -1
        return super().granted(asked_ns, lease_ms, term, -1)


class _FollowsByAnOldAnswer(MasterLease):
    def granted(self, asked_ns: int, lease_ms: int, term: int = 0, asked_of: int = 0) -> bool:
        self._followed_ns = -1
        return super().granted(asked_ns, lease_ms, term, asked_of)


class TakesLeasesOfAnyLeader(Rules):
    lease = _TakesLeasesOfAnyLeader


class FollowsByAnOldAnswer(Rules):
    lease = _FollowsByAnOldAnswer


class ClosesFirst(Rules):
    renounces_before_close = False


# Leases, at the controller.


class _LeadsAtOnce(BrokerLiveness):
    def may_replace(self, master: BrokerIdentity, leads_since_ns: int, term: int = 0) -> bool:
        return super().may_replace(master, 0, term)


class _EndsByItself(BrokerLiveness):
    def closed(self, channel: object, by_peer: bool = True) -> list[BrokerIdentity]:
        return super().closed(channel, True)


class LeadsAtOnce(Rules):
    liveness = _LeadsAtOnce


class EndsByItself(Rules):
    liveness = _EndsByItself


class AnswersWhomItDidNotAsk(Rules):
    asks_before_it_is_followed = False


class _WhomeverItFollows(BrokerLiveness):
    def heartbeat(self, info: BrokerLiveInfo) -> bool:
        self._follows[info.identity] = -1
        return super().heartbeat(replace(info, leader_term=0))

    def may_replace(self, master: BrokerIdentity, leads_since_ns: int, term: int = 0) -> bool:
        return super().may_replace(master, leads_since_ns, -1)


class WhomeverItFollows(Rules):
    liveness = _WhomeverItFollows


class LeadsWithTheKey(Rules):
    waits_for_the_one_before = False


class GrantsAmidElections(Rules):
    one_at_a_time = False


class WritesAfterItLed(Rules):
    checks_leader = False


class SwitchesUnasked(Rules):
    asks_before_switch = False


class _RenouncedWhenItAnswered(BrokerLiveness):
    def renounced(self, master: BrokerIdentity, asked_ns: int) -> None:
        super().renounced(master, self._clock())


class SwitchesWhenItLeadsAgain(Rules):
    liveness = _RenouncedWhenItAnswered


class _LeasesOfABroker(BrokerLiveness):
    def closed(self, channel: object, by_peer: bool = True) -> list[BrokerIdentity]:
        dead = super().closed(channel, by_peer)
        if by_peer:
            for identity in dead:
                self._leased_until_ns.pop(identity, None)
        return dead


class _LastConnectionOnly(_LeasesOfABroker):
    def heartbeat(self, info: BrokerLiveInfo) -> bool:
        self._channels.pop(info.identity, None)
        return super().heartbeat(info)


class LastConnectionOnly(Rules):
    liveness = _LastConnectionOnly


class LeasesOfABroker(Rules):
    liveness = _LeasesOfABroker


# The third is about to join the set.
_ADDS = LOGS._replace(in_sync=2, elections=0, looks=0)

PLANTED = [
    Planted("one that is not in sync is elected", ElectsAnybody, LOGS._replace(unlinks=1, asks=1)),
    Planted("an election does not raise the epoch", EpochStays, LOGS),
    Planted("a removed replica stops counting at once", RemovesAtOnce, LOGS._replace(unlinks=1, asks=1)),
    Planted("an added replica counts only after the controller's answer", AddsWhenTold, _ADDS._replace(asks=1)),
    Planted("a request without an answer is forgotten", ForgetsUnanswered,
            _ADDS._replace(unlinks=1, asks=1, timeouts=1)),
    Planted("a controller that slept executes a forgotten request", RefusesTheSameSet,
            _ADDS._replace(unlinks=1, asks=2, timeouts=1, ticks=1, tick_ns=12_000_000_000)),
    Planted("an older set of the controller is taken for the newest", TakesOldSets,
            _ADDS._replace(unlinks=1, asks=1, looks=1)),
    Planted("a slave that lacks acknowledged messages is added", AddsWhoLacksSome, _ADDS._replace(asks=1)),
    Planted("the new master begins alone, the set is kept", KeepsSetAndBeginsAlone, LOGS),
    Planted("the controller accepts requests based on any set", AnySetEpoch,
            _ADDS._replace(unlinks=2, asks=2, timeouts=1)),
    Planted("the controller accepts the request of an earlier master", AnyMaster, LOGS._replace(unlinks=1, asks=1)),
    Planted("a slave compares lengths of logs, not epochs", ComparesLengths, LOGS._replace(puts=2, looks=2)),
    Planted("a restarted master does not wait for its earlier requests", GoesOnAtOnce,
            _ADDS._replace(asks=1, kills=1, looks=1)),
    Planted("a restarted master accepts messages before it knows its sync-state set", OpensAtOnce,
            _ADDS._replace(asks=2, kills=1, looks=1)),
    Planted("a refusal because of another master counts as news of the set", SettlesWhenDeposed,
            LOGS._replace(in_sync=2, kills=1, asks=2)),
    Planted("a master uses all of its lease", KeepsAll, LEASES._replace(ticks=3, beats=3)),
    Planted("a lease counts from the answer", CountsFromTheAnswer, LEASES._replace(ticks=3, beats=3)),
    Planted("a lease is accepted that was requested before one was renounced", TakesWhatWasAskedBefore,
            LEASES._replace(beats=2, breaks=1)),
    Planted("a broker closes a connection and keeps its lease", ClosesFirst, LEASES._replace(breaks=1, beats=2)),
    Planted("a new leader does not wait for the previous one's leases", LeadsAtOnce,
            LEASES._replace(controllers=2, leaders=1, breaks=1, beats=2)),
    Planted("a new leader does not wait until the previous one has stopped", LeadsWithTheKey,
            LEASES._replace(controllers=2, leaders=1, beats=3, ticks=1, tick_ns=4_000_000_000)),
    Planted("any heartbeat counts as one of a master that follows this leader", WhomeverItFollows,
            FOLLOWED._replace(breaks=1, beats=2)),
    Planted("a broker accepts leases from any controller that claims to lead", TakesLeasesOfAnyLeader,
            FOLLOWED._replace(breaks=1, beats=4)),
    Planted("a broker follows the sender of an answer to a request of an earlier leadership", FollowsByAnOldAnswer,
            FOLLOWED._replace(has_asked=False, breaks=1, beats=4)),
    Planted("a controller answers a broker that follows another one without confirming that it leads",
            AnswersWhomItDidNotAsk, FOLLOWED._replace(kills=1, looks=1, beats=3)),
    Planted("only the connection of the last heartbeat counts", LastConnectionOnly, LEASES._replace(breaks=1, beats=3)),
    Planted("a connection closed by the controller ends leases", EndsByItself, LEASES._replace(breaks=1, beats=2)),
    Planted("the end of the last connection ends leases granted over others", LeasesOfABroker,
            LEASES._replace(breaks=2, beats=2)),
    Planted("a lease is granted in the middle of an election", GrantsAmidElections, LEASES._replace(breaks=1, beats=3)),
    Planted("a controller that no longer leads writes", WritesAfterItLed,
            LEASES._replace(controllers=2, breaks=1, leaders=1, beats=2)),
    Planted("a switch does not wait for the master's answer", SwitchesUnasked, LEASES._replace(switches=1, beats=2)),
    Planted("a master that renounced its lease is replaced when the controller leads again", SwitchesWhenItLeadsAgain,
            LEASES._replace(controllers=2, switches=1, leaders=2, beats=2)),
    Planted("leases are not checked", ElectsWhileALeaseHolds, LEASES._replace(breaks=1, beats=2)),
]
