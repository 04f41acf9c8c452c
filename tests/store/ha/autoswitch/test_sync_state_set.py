"""The sync-state set and the confirm offset, with and without a controller, and the master's handling of slaves."""
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha.autoswitch import auto_switch_transfer as transfer
from rmqha.store.ha.autoswitch.sync_state_set import Ask, ControlledSyncStateSet, SyncStateSet
from rmqha.store.results import PutMessageStatus
from tests.store.ha.autoswitch.support import SEGMENT, WAIT_MS, SlavePeer, master_of
from tests.store.support import bodies, message, put, wait_dispatched
from tests.support.tiers import drawn
from tests.support.wait import wait_until

# Members of the set, and the confirm offset.

MASTER, SLAVE, OTHER = 1, 2, 3


class Log:
    """A sync-state set, and the end of its master's log."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self.set = SyncStateSet(lambda: self.end)
        self.set.become_master(MASTER)

    def ack(self, slave: int, offset: int, caught_up: bool = True, may_join: bool = True) -> None:
        """Acknowledge for a slave everything below `offset`."""
        self.set.acknowledged(slave, offset, time.monotonic_ns() if caught_up else None, caught_up and may_join)


def test_a_master_alone_confirms_all_that_it_has():
    log = Log(100)
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 100
    log.end = 150
    assert log.set.confirm_offset() == 150


def test_a_slave_in_sync_holds_the_confirm_offset_back():
    log = Log(100)
    log.ack(SLAVE, 100)
    assert log.set.members == {MASTER, SLAVE}
    log.end = 200
    assert log.set.confirm_offset() == 100
    log.ack(SLAVE, 170, caught_up=False)
    assert log.set.confirm_offset() == 170


def test_a_slave_becomes_a_member_only_with_all_confirmed_bytes():
    log = Log(100)
    assert log.set.confirm_offset() == 100
    # The slave had caught up with the bytes sent to it.
    log.ack(SLAVE, 90)
    log.end = 200
    assert log.set.members == {MASTER}
    # The slave already holds the confirm offset back.
    assert log.set.confirm_offset() == 100
    log.ack(SLAVE, 99, caught_up=False)
    assert log.set.members == {MASTER}
    log.ack(SLAVE, 120, caught_up=False)
    assert log.set.members == {MASTER, SLAVE} and log.set.confirm_offset() == 120


def test_a_learner_never_joins():
    log = Log(100)
    log.ack(SLAVE, 100, may_join=False)
    log.end = 200
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 200


def test_a_slave_that_leaves_holds_nothing_back():
    log = Log(100)
    log.ack(SLAVE, 100)
    log.end = 200
    log.set.left(SLAVE)
    assert log.set.members == {MASTER} and log.set.confirm_offset() == 200


def test_a_slave_that_has_been_behind_for_too_long_leaves():
    log = Log(100)
    log.ack(SLAVE, 100)
    log.ack(OTHER, 100)
    # Both slaves hold the whole log.
    assert log.set.shrink(0) == frozenset()
    log.end = 200
    log.ack(OTHER, 200)
    assert log.set.shrink(60_000) == frozenset()
    assert log.set.shrink(0) == {SLAVE} and log.set.members == {MASTER, OTHER}
    assert log.set.confirm_offset() == 200


def test_a_slave_takes_its_masters_confirm_offset_up_to_the_end_of_its_log():
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
def test_every_member_holds_all_confirmed_bytes(events):
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


# Members of the set, and the confirm offset, when a controller decides them and may not answer.

CONTROLLED_MASTER, CONTROLLED_SLAVE, CONTROLLED_OTHER = 1, 2, 3


class ControlledLog:
    """A sync-state set, the end of its master's log, and a clock."""

    def __init__(self, decided: tuple[int, ...] = (CONTROLLED_MASTER,), end: int = 100, confirmed: int = -1) -> None:
        self.end, self.now = end, 1_000_000_000_000
        self.set = ControlledSyncStateSet(lambda: self.end, lambda: self.now)
        self.set.learn(confirmed)
        self.set.become_master_of(CONTROLLED_MASTER, decided, 7)

    def ack(self, slave: int, offset: int, may_join: bool = True) -> None:
        """Acknowledge everything below `offset` for a slave that is not far behind."""
        self.set.acknowledged(slave, offset, self.now, may_join)

    def ask(self, least: int = 1) -> Ask | None:
        """Return the next request to the controller."""
        assert self.set.needs_ask(least) == ((ask := self.set.next_ask(least)) is not None)
        return ask

    def decided(self, ask: Ask) -> None:
        """Let the controller agree."""
        assert self.set.decide(ask.members, ask.epoch + 1)
        self.set.answered(ask, True)


def test_an_added_slave_counts_before_the_controller_is_notified():
    log = ControlledLog()
    assert log.set.members == {CONTROLLED_MASTER} and log.set.confirm_offset() == 100
    log.ack(CONTROLLED_SLAVE, 100)
    assert log.set.members == log.set.wanted == {CONTROLLED_MASTER, CONTROLLED_SLAVE}
    assert log.set.decided == {CONTROLLED_MASTER}
    log.end = 200
    assert log.set.confirm_offset() == 100
    ask = log.ask()
    assert ask == ({CONTROLLED_MASTER, CONTROLLED_SLAVE}, 7) and log.set.next_ask(1) is None
    log.decided(ask)
    assert log.set.decided == {CONTROLLED_MASTER, CONTROLLED_SLAVE} and log.set.epoch == 8 and log.ask() is None


def test_a_requested_addition_counts_after_its_slave_is_gone():
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    ask = log.ask()
    log.set.left(CONTROLLED_SLAVE)
    log.end = 200
    assert log.set.wanted == {CONTROLLED_MASTER} and log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE}
    assert log.set.confirm_offset() == 100
    log.decided(ask)
    assert log.ask() == ({CONTROLLED_MASTER}, 8) and log.set.confirm_offset() == 100


def test_a_removal_counts_only_when_the_controller_has_agreed():
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    log.decided(log.ask())
    log.end = 200
    log.set.left(CONTROLLED_SLAVE)
    assert log.set.wanted == {CONTROLLED_MASTER} and log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE}
    assert log.set.confirm_offset() == 100
    ask = log.ask()
    assert ask == ({CONTROLLED_MASTER}, 8) and log.set.confirm_offset() == 100
    log.decided(ask)
    assert log.set.members == {CONTROLLED_MASTER} and log.set.confirm_offset() == 200


def test_an_unanswered_request_counts_until_its_epoch_is_over():
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    ask = log.ask()
    log.set.answered(ask, False)
    log.end = 200
    log.set.left(CONTROLLED_SLAVE)
    assert log.set.wanted == {CONTROLLED_MASTER} and log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE}
    assert log.set.confirm_offset() == 100
    # The controller carried it out.
    log.set.decide((CONTROLLED_MASTER, CONTROLLED_SLAVE), 8)
    assert log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE} and log.ask() == ({CONTROLLED_MASTER}, 8)


def test_an_unanswered_request_is_forgotten_when_a_much_later_one_is_refused():
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    log.set.answered(log.ask(), False)
    log.set.left(CONTROLLED_SLAVE)
    for seconds, members in ((5, {CONTROLLED_MASTER, CONTROLLED_SLAVE}), (6, {CONTROLLED_MASTER})):
        log.now += seconds * 1_000_000_000
        ask = log.ask()
        assert ask == ({CONTROLLED_MASTER}, 7)
        log.set.answered(ask, True)
        assert log.set.members == members
    assert log.ask() is None


def test_a_refused_addition_is_retried_and_dropped_when_its_slave_leaves():
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    log.set.answered(log.ask(), True)
    assert log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE}
    assert log.ask() == ({CONTROLLED_MASTER, CONTROLLED_SLAVE}, 7)
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    log.set.answered(log.ask(), True)
    log.set.left(CONTROLLED_SLAVE)
    assert log.set.members == {CONTROLLED_MASTER} and log.ask() is None


def test_a_set_too_small_to_acknowledge_is_not_requested():
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    log.decided(log.ask(2))
    log.end = 200
    log.set.left(CONTROLLED_SLAVE)
    assert log.ask(2) is None and log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE}
    assert log.set.confirm_offset() == 100
    log.ack(CONTROLLED_OTHER, 200)
    assert log.ask(2) == ({CONTROLLED_MASTER, CONTROLLED_OTHER}, 8)


def test_a_slave_that_returns_with_less_is_removed_even_if_too_few_remain():
    log = ControlledLog()
    log.ack(CONTROLLED_SLAVE, 100)
    log.decided(log.ask(2))
    log.set.left(CONTROLLED_SLAVE)
    log.ack(CONTROLLED_SLAVE, 50, may_join=False)
    log.set.left(CONTROLLED_SLAVE)
    log.end = 200
    assert log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE} and log.set.confirm_offset() == 100
    ask = log.ask(2)
    assert ask == ({CONTROLLED_MASTER}, 8)
    log.decided(ask)
    assert log.set.confirm_offset() == 200


def test_a_restarted_master_confirms_the_bytes_that_the_others_hold():
    log = ControlledLog((CONTROLLED_MASTER, CONTROLLED_SLAVE), 100, 60)
    assert log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE} and log.set.confirm_offset() == 60
    log.ack(CONTROLLED_SLAVE, 80)
    assert log.set.confirm_offset() == 80
    log.ack(CONTROLLED_SLAVE, 100)
    assert log.set.confirm_offset() == 100 and log.ask() is None


def test_a_resumed_master_is_settled_by_an_answer():
    log = ControlledLog((CONTROLLED_MASTER, CONTROLLED_SLAVE))
    log.set.become_master_of(CONTROLLED_MASTER, (CONTROLLED_MASTER, CONTROLLED_SLAVE), 7, goes_on=True)
    assert not log.set.is_settled
    ask = log.ask()
    assert ask == ({CONTROLLED_MASTER, CONTROLLED_SLAVE}, 7)
    log.set.answered(ask, False)
    assert not log.set.is_settled
    log.set.left(CONTROLLED_SLAVE)
    log.set.answered(log.ask(), True)  # refused
    assert not log.set.is_settled
    ask = log.ask(2)
    # A set of one would be useless when two replicas have to be in sync.
    assert ask == ({CONTROLLED_MASTER, CONTROLLED_SLAVE}, 7)
    # 5.1.4 refuses a set that it already has.
    log.set.answered(ask, True)
    assert log.set.is_settled and log.ask(2) is None
    log.set.become_master_of(CONTROLLED_MASTER, (CONTROLLED_MASTER, CONTROLLED_SLAVE), 7, goes_on=True)
    log.decided(log.ask())
    assert log.set.is_settled and log.set.epoch == 8


def test_a_reelected_master_keeps_the_slaves_that_hold_all_confirmed_bytes():
    log = ControlledLog()
    for slave in (CONTROLLED_SLAVE, CONTROLLED_OTHER):
        log.ack(slave, 100)
        log.decided(log.ask())
    log.end = 200
    log.ack(CONTROLLED_OTHER, 200)
    log.set.re_elected(CONTROLLED_MASTER, (CONTROLLED_MASTER,), 12)
    assert log.set.decided == {CONTROLLED_MASTER}
    assert log.set.wanted == log.set.members == {CONTROLLED_MASTER, CONTROLLED_SLAVE, CONTROLLED_OTHER}
    assert log.set.confirm_offset() == 100
    assert log.ask() == ({CONTROLLED_MASTER, CONTROLLED_SLAVE, CONTROLLED_OTHER}, 12)


def test_outdated_decisions_and_decisions_sent_to_a_slave_change_nothing():
    log = ControlledLog()
    assert not log.set.decide((CONTROLLED_MASTER, CONTROLLED_SLAVE), 7) and log.set.members == {CONTROLLED_MASTER}
    log.ack(CONTROLLED_SLAVE, 100)
    ask = log.ask()
    log.set.resign()
    log.set.answered(ask, False)
    assert not log.set.decide((CONTROLLED_MASTER, CONTROLLED_SLAVE), 20) and log.set.members == frozenset()
    assert log.ask() is None
    log.set.become_master_of(CONTROLLED_MASTER, (CONTROLLED_MASTER,), 21)
    log.set.answered(ask, False)
    assert log.set.members == {CONTROLLED_MASTER}


SLAVES = st.sampled_from([CONTROLLED_SLAVE, CONTROLLED_OTHER])
CONTROLLED_EVENTS = st.lists(st.one_of(
    st.tuples(st.just("put"), st.just(10)),
    st.tuples(st.just("ack"), SLAVES, st.sampled_from([5, 1000, 1000]), st.just(True)),
    st.tuples(st.just("left"), SLAVES),
    st.tuples(st.sampled_from(["ask", "ask", "no answer"])),
    st.tuples(st.just("carry out"), st.sampled_from([0, 0, 1])),
    st.sampled_from([("answer",), ("look",), ("re-elect",), ("shrink", 0)])), max_size=40)


class Cluster(ControlledLog):
    """A master, the controller's set, the requests on their way to it, and the bytes that the slaves hold."""

    def __init__(self, least: int) -> None:
        super().__init__(end=0)
        self.least, self.confirmed = least, 0
        self.members, self.epoch = frozenset((CONTROLLED_MASTER,)), 7
        self.held = {CONTROLLED_SLAVE: 0, CONTROLLED_OTHER: 0}
        self.under_way: list[Ask] = []
        # The request whose answer the master waits for.
        self.asked: Ask | None = None

    def happens(self, event: tuple) -> None:
        """Apply one event."""
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
                self.members, self.epoch = frozenset((CONTROLLED_MASTER,)), self.epoch + 1
                self.set.re_elected(CONTROLLED_MASTER, self.members, self.epoch)
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
@given(CONTROLLED_EVENTS, st.sampled_from([1, 2]))
def test_every_electable_replica_holds_all_confirmed_bytes(events, least):
    cluster = Cluster(least)
    for event in events:
        cluster.happens(event)
        before, cluster.confirmed = cluster.confirmed, cluster.set.confirm_offset()
        assert before <= cluster.confirmed <= cluster.end
        for slave in cluster.members - {CONTROLLED_MASTER}:
            assert cluster.held[slave] >= cluster.confirmed, (event, slave)


# A master's handling of slaves, and of peers that are not slaves.


def log_of(store) -> bytes:
    """Return the whole commit log."""
    return b"".join(bytes(file.slice_byte_buffer()) for file in store.commit_log.mapped_file_queue.mapped_files)


@pytest.fixture
def master(tmp_path):
    with master_of(tmp_path / "master") as store:
        put(store, *[message("T", 0, b"%03d" % index * 50) for index in range(20)])
        yield store


def test_a_slave_gets_the_epochs_and_the_log(master):
    with SlavePeer.connect(master) as peer:
        end = master.get_max_phy_offset()
        assert peer.greet() == (end, 1, [(1, 0, (1 << 63) - 1)])
        peer.say(0)
        frames = peer.data(end)
        assert b"".join(frame[4] for frame in frames) == log_of(master)[:end]
        assert {frame[1:3] for frame in frames} == {(1, 0)}
        heartbeat = peer.frame()
        assert heartbeat == (end, 1, 0, master.ha_service.confirm_offset(), b"")


def test_a_frame_never_crosses_an_epoch(tmp_path):
    with master_of(tmp_path, haTransferBatchSize=1000) as store:
        starts = {1: 0}
        for epoch in (2, 3, 5):
            put(store, *[message("T", 0, b"x" * 300) for _ in range(9)])
            starts[epoch] = store.get_max_phy_offset()
            assert store.ha_service.change_to_master(epoch)
        put(store, message("T", 0, b"x" * 300))
        with SlavePeer.connect(store) as peer:
            assert [entry[:2] for entry in peer.greet()[2]] == list(starts.items())
            peer.say(0)
            frames = peer.data(store.get_max_phy_offset())
        assert {frame[1]: frame[2] for frame in frames} == starts
        for offset, epoch, start, _confirm, data in frames:
            following = [other for other in starts.values() if other > start]
            assert start <= offset and offset + len(data) <= min(following, default=1 << 60), epoch


def test_a_slave_is_disconnected_when_its_epoch_is_deleted_during_the_transfer(master, caplog):
    caplog.set_level("INFO", "RocketmqStore")
    with SlavePeer.connect(master) as peer:
        peer.greet()
        service, epoch_cache = master.ha_service.connection_list[0].write_socket_service, master.ha_service.epoch_cache
        end_of_run = service._end_of_run

        def end_of_deleted_run(offset: int) -> int:
            end = end_of_run(offset)
            epoch_cache.truncate_suffix_by_offset(0)
            return end

        service._end_of_run = end_of_deleted_run
        peer.say(0)
        assert peer.is_closed()
    wait_until(lambda: "the epoch of commit log offset 0 was deleted" in caplog.text, WAIT_MS)
    assert "service has exception" not in caplog.text


@pytest.mark.parametrize("last_file, start", [(0, 0), (1, 2 * SEGMENT)])
def test_an_empty_slave_begins_at_the_file_that_it_asks_for(tmp_path, last_file, start):
    with master_of(tmp_path) as store:
        while store.get_max_phy_offset() < 2 * SEGMENT + 500:
            put(store, message("T", 0, b"x" * 1000))
        with SlavePeer.connect(store) as peer:
            peer.greet(last_file=last_file)
            peer.say(0)
            assert peer.data(start + 1)[0][0] == start


def test_a_put_waits_for_all_in_sync_replicas_and_is_readable_only_then(tmp_path):
    with master_of(tmp_path, allAckInSyncStateSet=True) as store, SlavePeer.connect(store) as peer:
        put(store, message(body=b"alone"))
        peer.greet()
        peer.say(0, store.get_max_phy_offset())
        peer.is_in_sync(store)
        confirmed = store.get_max_phy_offset()
        waiting = store.async_put_message(message(body=b"together"))
        end = store.get_max_phy_offset()
        peer.data(end)
        assert not waiting.is_done and store.ha_service.confirm_offset() == confirmed
        wait_dispatched(store)
        assert bodies(store) == [b"alone"]
        peer.say(end - 1)
        wait_until(lambda: store.ha_service.confirm_offset() == end - 1, WAIT_MS, "acknowledged in part")
        assert not waiting.is_done and bodies(store) == [b"alone"]
        peer.say(end)
        assert waiting.get(WAIT_MS).is_ok
        wait_until(lambda: bodies(store) == [b"alone", b"together"], WAIT_MS, "read")


def test_a_put_is_refused_before_it_is_written_when_too_few_are_in_sync(tmp_path):
    with master_of(tmp_path, allAckInSyncStateSet=True, minInSyncReplicas=2) as store:
        assert store.put_message(message()).put_message_status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert store.get_max_phy_offset() == 0


def test_a_put_whose_slave_leaves_is_not_acknowledged_by_the_master_alone(tmp_path):
    keys = {"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "slaveTimeout": 500}
    with master_of(tmp_path, **keys) as store:
        with SlavePeer.connect(store) as peer:
            peer.greet()
            peer.say(0)
            peer.is_in_sync(store)
            waiting = store.async_put_message(message())
        wait_until(lambda: store.ha_service.sync_state_set.members == {1}, WAIT_MS, "the slave left")
        assert waiting.get(WAIT_MS).put_message_status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_a_put_whose_slave_leaves_is_acknowledged_when_one_is_enough(tmp_path):
    with master_of(tmp_path, allAckInSyncStateSet=True) as store:
        with SlavePeer.connect(store) as peer:
            peer.greet()
            peer.say(0)
            peer.is_in_sync(store)
            waiting = store.async_put_message(message())
            peer.data(store.get_max_phy_offset())
            assert not waiting.is_done
        assert waiting.get(WAIT_MS).is_ok


def test_a_put_pending_at_a_role_change_is_not_acknowledged_by_the_next_mastership(tmp_path):
    with master_of(tmp_path, allAckInSyncStateSet=True, slaveTimeout=600_000) as store:
        with SlavePeer.connect(store) as peer:
            peer.greet()
            peer.say(0)
            peer.is_in_sync(store)
            waiting = store.async_put_message(message())
            assert store.ha_service.change_to_slave(None)
            assert waiting.get(WAIT_MS).put_message_status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert store.ha_service.change_to_master(2)
        assert store.ha_service.group_transfer_service.waiting_requests() == 0
        assert store.put_message(message()).is_ok


def test_a_learner_gets_the_log_and_is_never_in_sync(master):
    with SlavePeer.connect(master) as peer:
        peer.greet(learner=1)
        end = master.get_max_phy_offset()
        peer.say(end)
        wait_until(lambda: master.ha_service.slave_count() == 1, WAIT_MS, "served")
        put(master, message())
        peer.say(peer.data(end + 1)[0][0])
        assert master.ha_service.sync_state_set.members == {1}


def test_a_silent_slave_is_removed_from_the_set(tmp_path):
    with master_of(tmp_path, haMaxTimeSlaveNotCatchup=300, allAckInSyncStateSet=True) as store, \
            SlavePeer.connect(store) as peer:
        peer.greet()
        peer.say(0)
        peer.is_in_sync(store)
        waiting = store.async_put_message(message())
        wait_until(lambda: store.ha_service.sync_state_set.members == {1}, WAIT_MS, "it leaves")
        assert waiting.get(WAIT_MS).is_ok


def test_a_reconnected_slave_replaces_its_older_connection(master):
    end = master.get_max_phy_offset()
    with SlavePeer.connect(master) as old, SlavePeer.connect(master) as new:
        old.greet()
        old.say(end)
        old.is_in_sync(master)
        new.greet()
        new.say(end)
        assert old.is_closed()
        wait_until(lambda: len(master.ha_service.connection_list) == 1, WAIT_MS, "one is left")
        new.is_in_sync(master)


HELLO = struct.pack(">ihhq", 1, 0, 0, 2)


@pytest.mark.parametrize("what", [
    struct.pack(">iq", 0, 0), struct.pack(">iq", 3, 0), struct.pack(">iq", -1, 0), b"GET / HTTP/1.1\r\n\r\n",
    transfer.encode_report(0), struct.pack(">ihhq", 1, 0, 0, 1), HELLO + transfer.encode_report(-1),
    HELLO + transfer.encode_report(1 << 40), HELLO + transfer.encode_report(100) + transfer.encode_report(99),
    HELLO + transfer.encode_report(0) + HELLO, HELLO + struct.pack(">iq", 4, 0),
], ids=["state 0", "state 3", "state -1", "http", "report before handshake", "the master's own id", "negative",
        "above max", "falling", "handshake again", "shutdown"])
def test_a_peer_that_is_not_a_slave_is_disconnected_and_not_counted(master, what):
    service = master.ha_service
    with SlavePeer.connect(master) as peer:
        peer.send(what)
        assert peer.is_closed()
    wait_until(lambda: not service.connection_list, WAIT_MS, "forgotten")
    assert service.push2_slave_max_offset.get() <= 100
    assert service.sync_state_set.members == {1}
    with SlavePeer.connect(master) as good:
        good.greet()
        good.say(master.get_max_phy_offset())
        good.is_in_sync(master)


def test_a_slave_that_reports_more_than_the_log_holds_is_disconnected(master):
    with SlavePeer.connect(master) as peer:
        peer.greet()
        peer.say(master.get_max_phy_offset())
        peer.is_in_sync(master)
        peer.say(master.get_max_phy_offset() + 1)
        assert peer.is_closed()


def test_a_broker_that_is_not_the_master_serves_no_slaves(master):
    assert master.ha_service.change_to_slave(None, 1)
    with SlavePeer.connect(master) as peer:
        peer.send(HELLO)
        assert peer.is_closed()


def test_a_slave_far_behind_joins_only_when_it_is_nearly_caught_up(tmp_path):
    with master_of(tmp_path, allAckInSyncStateSet=True) as store, SlavePeer.connect(store) as peer:
        results = put(store, *[message("T", 0, b"x" * 1000) for _ in range(10)])
        ends = [result.wrote_offset + result.wrote_bytes for result in results]
        peer.greet()
        peer.say(0, ends[0], ends[3])
        wait_until(lambda: store.ha_service.connection_list[0].slave_ack_offset == ends[3], WAIT_MS, "acknowledged")
        put(store, message("T", 0, b"not held back"))
        assert store.ha_service.confirm_offset() == store.get_max_phy_offset()
        assert store.ha_service.sync_state_set.members == {1}
        peer.data(store.get_max_phy_offset())
        peer.say(store.get_max_phy_offset())
        peer.is_in_sync(store)
