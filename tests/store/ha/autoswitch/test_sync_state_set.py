"""Who is in sync, and what is confirmed."""
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha.autoswitch.sync_state_set import SyncStateSet

MASTER, SLAVE, OTHER = 1, 2, 3


class Log:
    """The end of a master's log, and its set."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self.set = SyncStateSet(lambda: self.end)
        self.set.become_master(MASTER)

    def ack(self, slave: int, offset: int, caught_up: bool = True, may_join: bool = True) -> None:
        """A slave holds everything below `offset`."""
        self.set.acknowledged(slave, offset, time.monotonic_ns() if caught_up else None, caught_up and may_join)


def test_a_master_alone_confirms_all_that_it_has():
    log = Log(100)
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 100
    log.end = 150
    assert log.set.confirm_offset() == 150


def test_a_slave_that_has_all_holds_the_confirm_offset_back():
    log = Log(100)
    log.ack(SLAVE, 100)
    assert log.set.members == {MASTER, SLAVE}
    log.end = 200
    assert log.set.confirm_offset() == 100
    log.ack(SLAVE, 170, caught_up=False)
    assert log.set.confirm_offset() == 170


def test_a_slave_becomes_a_member_only_with_all_that_was_confirmed_before():
    log = Log(100)
    assert log.set.confirm_offset() == 100
    log.ack(SLAVE, 90)  # it had caught up with what was sent to it
    log.end = 200
    assert log.set.members == {MASTER}
    assert log.set.confirm_offset() == 100  # already held back
    log.ack(SLAVE, 99, caught_up=False)
    assert log.set.members == {MASTER}
    log.ack(SLAVE, 120, caught_up=False)
    assert log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 120


def test_a_learner_never_joins():
    log = Log(100)
    log.ack(SLAVE, 100, may_join=False)
    log.end = 200
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 200


def test_who_leaves_holds_nothing_back():
    log = Log(100)
    log.ack(SLAVE, 100)
    log.end = 200
    log.set.left(SLAVE)
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 200


def test_who_has_not_caught_up_for_long_leaves():
    log = Log(100)
    log.ack(SLAVE, 100)
    log.ack(OTHER, 100)
    assert log.set.shrink(0) == frozenset()  # they hold all
    log.end = 200
    log.ack(OTHER, 200)
    assert log.set.shrink(60_000) == frozenset()
    assert log.set.shrink(0) == {SLAVE} and log.set.members == {MASTER, OTHER}
    assert log.set.confirm_offset() == 200


def test_a_slave_believes_what_its_master_confirms_as_far_as_its_log_goes():
    log = Log(100)
    log.set.resign()
    assert not log.set.is_master and log.set.members == frozenset()
    log.end = 300
    log.set.left(SLAVE)
    assert log.set.shrink(0) == frozenset()
    assert log.set.confirm_offset() == 100
    assert log.set.learn(250) and log.set.confirm_offset() == 250
    assert not log.set.learn(200) and log.set.confirm_offset() == 250
    log.set.learn(999)
    assert log.set.confirm_offset() == 300
    log.set.lower(120)
    assert log.set.confirm_offset() == 120
    log.ack(SLAVE, 300)
    assert log.set.members == frozenset()


EVENTS = st.lists(st.one_of(
    st.tuples(st.just("put"), st.integers(1, 50)),
    st.tuples(st.sampled_from(["ack", "ack behind"]), st.sampled_from([SLAVE, OTHER]), st.integers(0, 50)),
    st.tuples(st.just("left"), st.sampled_from([SLAVE, OTHER])),
    st.tuples(st.just("shrink"), st.sampled_from([0, 60_000]))), max_size=60)


@settings(deadline=None)
@given(EVENTS)
def test_whatever_was_confirmed_each_member_holds(events):
    log, acks, confirmed = Log(), {SLAVE: 0, OTHER: 0}, 0
    for event in events:
        if event[0] == "put":
            log.end += event[1]
        elif event[0] == "left":
            log.set.left(event[1])
        elif event[0] == "shrink":
            log.set.shrink(event[1])
        else:
            acks[event[1]] = min(acks[event[1]] + event[2], log.end)
            log.ack(event[1], acks[event[1]], caught_up=event[0] == "ack")
        before, confirmed = confirmed, log.set.confirm_offset()
        assert before <= confirmed <= log.end
        for slave in log.set.members - {MASTER}:
            assert acks[slave] >= confirmed, (event, slave)
