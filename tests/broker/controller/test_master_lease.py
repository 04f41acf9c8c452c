"""Until when a master may acknowledge."""
from rmqha.broker.controller.controller_heartbeat import MasterLease

MS = 1_000_000


class Clock:
    """A clock that stands until it is set."""

    now = 0

    def __call__(self) -> int:
        return self.now


def test_it_counts_from_the_question_and_ends_a_little_early():
    clock = Clock()
    lease = MasterLease(clock)
    assert not lease.holds()
    clock.now = 500 * MS
    lease.granted(100 * MS, 1000)
    assert lease.holds() and lease.left_ms() == 500
    clock.now = 999 * MS
    assert lease.holds()
    clock.now = 1000 * MS
    assert not lease.holds() and lease.left_ms() == 0


def test_an_older_answer_does_not_shorten_it():
    clock = Clock()
    lease = MasterLease(clock)
    lease.granted(200 * MS, 1000)
    lease.granted(0, 1000)
    assert lease.left_ms() == 1100


def test_what_was_asked_before_it_was_renounced_grants_nothing():
    clock = Clock()
    lease = MasterLease(clock)
    lease.granted(1 * MS, 1000)
    clock.now = 10 * MS
    lease.renounced()
    assert not lease.holds()
    lease.granted(9 * MS, 1000)
    assert not lease.holds()
    lease.granted(11 * MS, 1000)
    assert lease.holds()


def test_what_is_handed_over_is_not_granted_again_for_a_while_but_to_a_new_role():
    clock = Clock()
    lease = MasterLease(clock)
    lease.renounced(1000)
    lease.renounced()
    lease.granted(1000 * MS, 5000)
    assert not lease.holds()
    lease.granted(1001 * MS, 5000)
    assert lease.holds()
    lease.renounced(1000)
    lease.role_changes()
    lease.granted(1 * MS, 1000)
    assert lease.holds()


def test_one_leadership_is_followed_and_a_later_one_ends_its_leases():
    clock = Clock()
    lease = MasterLease(clock)
    clock.now = 10 * MS
    assert lease.granted(9 * MS, 1000, 5) and lease.term == 5 and lease.holds()
    clock.now = 20 * MS
    assert not lease.granted(9 * MS, 1000, 6), "it was asked before 5 was followed"
    assert lease.granted(11 * MS, 0, 6, 5) and lease.term == 6 and not lease.holds()
    assert not lease.granted(19 * MS, 1000, 5, 5), "5 has not looked whether it leads"
    assert not lease.granted(21 * MS, 1000, 5, 5) and not lease.holds()
    assert not lease.granted(21 * MS, 1000, 0, 6), "of a controller of RocketMQ"
    assert lease.granted(19 * MS, 1000, 6, 5) and lease.holds(), "6 is followed, whatever the question named"
    clock.now = 30 * MS
    assert lease.granted(25 * MS, 1000, 7, 6) and lease.term == 7 and lease.left_ms() == 895


def test_a_lease_goes_on_when_another_leader_grants_it():
    clock, seen = Clock(), []

    class Watched(MasterLease):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "_until_ns":
                seen.append(self.holds())
    lease = Watched(clock)
    clock.now = 10 * MS
    lease.granted(9 * MS, 1000, 5)
    assert lease.granted(11 * MS, 1000, 6, 5) and seen == [False, True, True]


def test_who_is_forgotten_follows_whoever_answers_later_questions():
    clock = Clock()
    lease = MasterLease(clock)
    lease.granted(1 * MS, 1000, 5)
    clock.now = 10 * MS
    lease.follows_nobody()
    assert not lease.holds() and lease.term == 0
    assert not lease.granted(10 * MS, 1000, 4, 5)
    assert lease.granted(11 * MS, 1000, 4, 5) and lease.term == 4
