"""Who lives, and whose lease may still hold."""
import pytest

from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness

A, B = ("c", "b", 1), ("c", "b", 2)
MS = 1_000_000
TIMEOUT_MS = 3000
LONG_AGO = -100_000 * MS


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def go_on(self, ms: float) -> None:
        self.now_ns += int(ms * MS)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def liveness(clock):
    return BrokerLiveness(3000, clock)


def beat(liveness, clock, identity=A, channel="k1", ha="h:1", timeout_ms=TIMEOUT_MS, term=0):
    return liveness.heartbeat(BrokerLiveInfo(identity, "h:1", clock(), timeout_ms, channel, ha, leader_term=term))


def test_silence_ends_a_broker(liveness, clock):
    assert beat(liveness, clock) and not beat(liveness, clock)
    clock.go_on(TIMEOUT_MS)
    assert liveness.is_alive(A) and liveness.expired() == []
    clock.go_on(1 / MS)
    assert not liveness.is_alive(A) and liveness.next_expiry_ns() == clock()
    assert [info.identity for info in liveness.expired()] == [A] and liveness.expired() == []


def test_end_of_the_connection_ends_a_broker_and_its_lease(liveness, clock):
    beat(liveness, clock)
    assert liveness.grant(A, "k1") == 3000 and not liveness.may_replace(A, LONG_AGO)
    assert liveness.closed("k1") == [A]
    assert not liveness.is_alive(A) and liveness.may_replace(A, LONG_AGO)


def test_connection_that_the_network_ended_leaves_the_lease(liveness, clock):
    beat(liveness, clock)
    liveness.grant(A, "k1")
    assert liveness.closed("k1", by_peer=False) == [A] and not liveness.may_replace(A, LONG_AGO)
    clock.go_on(3000.001)
    assert liveness.may_replace(A, LONG_AGO)


def test_late_heartbeat_of_an_older_connection_does_not_let_its_end_end_the_lease(liveness, clock):
    beat(liveness, clock, channel="k2")
    liveness.grant(A, "k2")
    beat(liveness, clock, channel="k1")  # was sent before, over a connection that has been closed since
    assert liveness.closed("k1") == [] and liveness.is_alive(A) and not liveness.may_replace(A, LONG_AGO)
    assert liveness.closed("k2") == [A] and liveness.may_replace(A, LONG_AGO)


def test_nothing_is_granted_over_a_connection_that_has_ended(liveness, clock):
    beat(liveness, clock)
    liveness.closed("k1")
    assert liveness.grant(A, "k1") == 0
    beat(liveness, clock, channel="k2")
    assert liveness.grant(A, "k1") == 0 and liveness.grant(A, "k2") == 3000


def test_shorter_time_out_does_not_shorten_a_lease_that_was_granted(liveness, clock):
    beat(liveness, clock)
    liveness.grant(A, "k1")
    clock.go_on(100)
    beat(liveness, clock, timeout_ms=500)
    assert liveness.grant(A, "k1") == 500
    clock.go_on(600)
    assert not liveness.is_alive(A) and not liveness.may_replace(A, LONG_AGO)
    assert liveness.replaceable_from_ns(A, LONG_AGO) == 3000 * MS + 1


def test_new_leader_waits_for_leases_of_others(liveness, clock):
    beat(liveness, clock)
    liveness.closed("k1")
    leads_since = clock()
    clock.go_on(3000)
    assert not liveness.may_replace(A, leads_since)
    assert liveness.replaceable_from_ns(A, leads_since) == clock() + 1
    clock.go_on(0.001)
    assert liveness.may_replace(A, leads_since)


def test_master_that_follows_this_leader_has_no_lease_of_others(liveness, clock):
    beat(liveness, clock, term=7)
    liveness.grant(A, "k1")
    assert not liveness.may_replace(A, clock(), 7), "this one's own holds"
    liveness.closed("k1")
    assert liveness.may_replace(A, clock(), 7) and liveness.replaceable_from_ns(A, clock(), 7) == 1
    assert not liveness.may_replace(A, clock(), 8) and not liveness.may_replace(A, clock())
    beat(liveness, clock, channel="k2")  # it was started again, and follows nobody yet: what it said remains
    liveness.grant(A, "k2")
    assert not liveness.may_replace(A, clock(), 7) and liveness.replaceable_from_ns(A, clock(), 7) == 3000 * MS + 1
    liveness.closed("k2")
    assert liveness.may_replace(A, clock(), 7)


def test_what_a_master_says_of_its_lease_frees_its_place_until_it_is_granted_another(liveness, clock):
    leads_since = clock()
    beat(liveness, clock)
    liveness.grant(A, "k1")
    liveness.renounced(A, clock())
    assert liveness.may_replace(A, leads_since)
    assert not liveness.may_replace(A, leads_since + 1)  # another has led meanwhile
    liveness.grant(A, "k1")
    assert not liveness.may_replace(A, leads_since)


def test_broker_of_rocketmq_has_no_lease(liveness, clock):
    beat(liveness, clock, ha=None)
    assert liveness.grant(A, "k1") == 0 and liveness.may_replace(A, clock())


def test_connection_may_carry_several_brokers(liveness, clock):
    beat(liveness, clock)
    beat(liveness, clock, B)
    assert {info.identity for info in liveness.all()} == {A, B}
    assert sorted(liveness.closed("k1")) == [A, B] and liveness.all() == []
