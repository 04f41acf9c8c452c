"""Who is in sync, and what is confirmed, when a controller decides it, and is not always heard."""
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha.autoswitch.sync_state_set import Ask, ControlledSyncStateSet
from tests.support.tiers import drawn

MASTER, SLAVE, OTHER = 1, 2, 3


class Log:
    """The end of a master's log, its set, and the time."""

    def __init__(self, decided: tuple[int, ...] = (MASTER,), end: int = 100, confirmed: int = -1) -> None:
        self.end, self.now = end, 1_000_000_000_000
        self.set = ControlledSyncStateSet(lambda: self.end, lambda: self.now)
        self.set.learn(confirmed)
        self.set.become_master_of(MASTER, decided, 7)

    def ack(self, slave: int, offset: int, may_join: bool = True) -> None:
        """A slave that is not far behind holds everything below `offset`."""
        self.set.acknowledged(slave, offset, self.now, may_join)

    def ask(self, least: int = 1) -> Ask | None:
        """What the controller is to be asked for."""
        assert self.set.needs_ask(least) == ((ask := self.set.next_ask(least)) is not None)
        return ask

    def decided(self, ask: Ask) -> None:
        """The controller has agreed."""
        assert self.set.decide(ask.members, ask.epoch + 1)
        self.set.answered(ask, True)


def test_an_addition_counts_before_the_controller_has_heard_of_it():
    log = Log()
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 100
    log.ack(SLAVE, 100)
    assert log.set.members == log.set.wanted == {MASTER, SLAVE} and log.set.decided == {MASTER}
    log.end = 200
    assert log.set.confirm_offset() == 100
    ask = log.ask()
    assert ask == ({MASTER, SLAVE}, 7) and log.set.next_ask(1) is None
    log.decided(ask)
    assert log.set.decided == {MASTER, SLAVE} and log.set.epoch == 8 and log.ask() is None


def test_an_addition_that_is_asked_for_counts_when_its_slave_is_gone():
    log = Log()
    log.ack(SLAVE, 100)
    ask = log.ask()
    log.set.left(SLAVE)
    log.end = 200
    assert log.set.wanted == {MASTER} and log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 100
    log.decided(ask)
    assert log.ask() == ({MASTER}, 8) and log.set.confirm_offset() == 100


def test_a_removal_counts_only_when_the_controller_has_agreed():
    log = Log()
    log.ack(SLAVE, 100)
    log.decided(log.ask())
    log.end = 200
    log.set.left(SLAVE)
    assert log.set.wanted == {MASTER} and log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 100
    ask = log.ask()
    assert ask == ({MASTER}, 8) and log.set.confirm_offset() == 100
    log.decided(ask)
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 200


def test_an_ask_without_an_answer_counts_until_its_epoch_is_over():
    log = Log()
    log.ack(SLAVE, 100)
    ask = log.ask()
    log.set.answered(ask, False)
    log.end = 200
    log.set.left(SLAVE)
    assert log.set.wanted == {MASTER} and log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 100
    log.set.decide((MASTER, SLAVE), 8)  # it was carried out
    assert log.set.members == {MASTER, SLAVE} and log.ask() == ({MASTER}, 8)


def test_an_ask_without_an_answer_is_forgotten_when_a_much_later_one_is_refused():
    log = Log()
    log.ack(SLAVE, 100)
    log.set.answered(log.ask(), False)
    log.set.left(SLAVE)
    for seconds, members in ((5, {MASTER, SLAVE}), (6, {MASTER})):
        log.now += seconds * 1_000_000_000
        ask = log.ask()
        assert ask == ({MASTER}, 7)
        log.set.answered(ask, True)
        assert log.set.members == members
    assert log.ask() is None


def test_a_refused_addition_is_asked_for_again_and_leaves_with_its_slave():
    log = Log()
    log.ack(SLAVE, 100)
    log.set.answered(log.ask(), True)
    assert log.set.members == {MASTER, SLAVE}
    assert log.ask() == ({MASTER, SLAVE}, 7)
    log = Log()
    log.ack(SLAVE, 100)
    log.set.answered(log.ask(), True)
    log.set.left(SLAVE)
    assert log.set.members == {MASTER} and log.ask() is None


def test_a_set_that_acknowledges_nothing_stays_as_it_was():
    log = Log()
    log.ack(SLAVE, 100)
    log.decided(log.ask(2))
    log.end = 200
    log.set.left(SLAVE)
    assert log.ask(2) is None and log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 100
    log.ack(OTHER, 200)
    assert log.ask(2) == ({MASTER, OTHER}, 8)


def test_who_comes_back_with_less_is_out_whatever_is_left():
    log = Log()
    log.ack(SLAVE, 100)
    log.decided(log.ask(2))
    log.set.left(SLAVE)
    log.ack(SLAVE, 50, may_join=False)
    log.set.left(SLAVE)
    log.end = 200
    assert log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 100
    ask = log.ask(2)
    assert ask == ({MASTER}, 8)
    log.decided(ask)
    assert log.set.confirm_offset() == 200


def test_a_master_that_was_started_anew_confirms_what_the_others_hold():
    log = Log((MASTER, SLAVE), 100, 60)
    assert log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 60
    log.ack(SLAVE, 80)
    assert log.set.confirm_offset() == 80
    log.ack(SLAVE, 100)
    assert log.set.confirm_offset() == 100 and log.ask() is None


def test_a_master_that_goes_on_is_settled_by_an_answer():
    log = Log((MASTER, SLAVE))
    log.set.become_master_of(MASTER, (MASTER, SLAVE), 7, goes_on=True)
    assert not log.set.is_settled
    ask = log.ask()
    assert ask == ({MASTER, SLAVE}, 7)
    log.set.answered(ask, False)
    assert not log.set.is_settled
    log.set.left(SLAVE)
    log.set.answered(log.ask(), True)  # refused
    assert not log.set.is_settled
    ask = log.ask(2)
    assert ask == ({MASTER, SLAVE}, 7)  # one alone would do nothing with two that have to be in sync
    log.set.answered(ask, True)  # 5.1.4 refuses the set that it has
    assert log.set.is_settled and log.ask(2) is None
    log.set.become_master_of(MASTER, (MASTER, SLAVE), 7, goes_on=True)
    log.decided(log.ask())
    assert log.set.is_settled and log.set.epoch == 8


def test_who_is_elected_again_keeps_the_slaves_that_hold_all():
    log = Log()
    for slave in (SLAVE, OTHER):
        log.ack(slave, 100)
        log.decided(log.ask())
    log.end = 200
    log.ack(OTHER, 200)
    log.set.re_elected(MASTER, (MASTER,), 12)
    assert log.set.decided == {MASTER} and log.set.wanted == log.set.members == {MASTER, SLAVE, OTHER}
    assert log.set.confirm_offset() == 100 and log.ask() == ({MASTER, SLAVE, OTHER}, 12)


def test_old_news_and_what_is_told_to_a_slave_change_nothing():
    log = Log()
    assert not log.set.decide((MASTER, SLAVE), 7) and log.set.members == {MASTER}
    log.ack(SLAVE, 100)
    ask = log.ask()
    log.set.resign()
    log.set.answered(ask, False)
    assert not log.set.decide((MASTER, SLAVE), 20) and log.set.members == frozenset() and log.ask() is None
    log.set.become_master_of(MASTER, (MASTER,), 21)
    log.set.answered(ask, False)
    assert log.set.members == {MASTER}


SLAVES = st.sampled_from([SLAVE, OTHER])
EVENTS = st.lists(st.one_of(
    st.tuples(st.just("put"), st.just(10)),
    st.tuples(st.just("ack"), SLAVES, st.sampled_from([5, 1000, 1000]), st.just(True)),
    st.tuples(st.just("left"), SLAVES),
    st.tuples(st.sampled_from(["ask", "ask", "no answer"])),
    st.tuples(st.just("carry out"), st.sampled_from([0, 0, 1])),
    st.sampled_from([("answer",), ("look",), ("re-elect",), ("shrink", 0)])), max_size=40)


class Cluster(Log):
    """A master, the controller's set, asks on their way to it, and what the slaves hold."""

    def __init__(self, least: int) -> None:
        super().__init__(end=0)
        self.least, self.confirmed = least, 0
        self.members, self.epoch = frozenset((MASTER,)), 7
        self.held = {SLAVE: 0, OTHER: 0}
        self.under_way: list[Ask] = []
        self.asked: Ask | None = None  # the master waits for the answer

    def happens(self, event: tuple) -> None:
        """One event."""
        match event:
            case "put", size:
                self.end += size
                self.now += 1_000_000
            case "ack", slave, more, near:
                self.held[slave] = min(self.held[slave] + more, self.end)
                self.ack(slave, self.held[slave], near)
            case "left", slave:
                self.set.left(slave)
            case "shrink", behind_ms:
                self.set.shrink(behind_ms)
            case ("ask",) if self.asked is None:
                self.asked = self.set.next_ask(self.least)
                if self.asked is not None:
                    self.under_way.append(self.asked)
            case "carry out", at if at < len(self.under_way):
                self._carry_out(self.under_way.pop(at))
            case ("answer",) if self.asked is not None and self.asked not in self.under_way:
                self._look()
                self._over(True)
            case ("no answer",) if self.asked is not None:
                self._over(False)
            case ("look",):
                self._look()
            case ("re-elect",):
                self.members, self.epoch = frozenset((MASTER,)), self.epoch + 1
                self.set.re_elected(MASTER, self.members, self.epoch)
                self.asked = None

    def _carry_out(self, ask: Ask) -> None:
        if ask.epoch == self.epoch and ask.members != self.members:
            self.members, self.epoch = ask.members, ask.epoch + 1

    def _look(self) -> None:
        self.set.decide(self.members, self.epoch)

    def _over(self, is_over: bool) -> None:
        self.set.answered(self.asked, is_over)
        self.asked = None


@settings(deadline=None, max_examples=drawn(400))
@given(EVENTS, st.sampled_from([1, 2]))
def test_whatever_was_confirmed_each_one_that_may_be_elected_holds(events, least):
    cluster = Cluster(least)
    for event in events:
        cluster.happens(event)
        before, cluster.confirmed = cluster.confirmed, cluster.set.confirm_offset()
        assert before <= cluster.confirmed <= cluster.end
        for slave in cluster.members - {MASTER}:
            assert cluster.held[slave] >= cluster.confirmed, (event, slave)
