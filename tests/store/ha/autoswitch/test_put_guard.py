"""Puts across role changes: during a handover, held up in between, and under a controller that elects the master."""
import threading

import pytest

from rmqha.store.ha import ha_client
from rmqha.store.ha.autoswitch import handover
from rmqha.store.ha.autoswitch.handover import HandoverError, hand_over
from rmqha.store.message_store_config import FlushDiskType
from rmqha.store.results import PutMessageStatus
from tests.store.ha.autoswitch.support import (
    WAIT_MS,
    DecidingController,
    MasterPeer,
    SlavePeer,
    master_of,
    open_replica,
)
from tests.store.ha.support import FakeMaster
from tests.store.support import bodies, crash, message, put, wait_dispatched
from tests.support.wait import at_least, wait_until

# A planned handover: no put is accepted meanwhile, and none is lost.


@pytest.fixture
def master(tmp_path):
    with open_replica(tmp_path, controlled=True, allAckInSyncStateSet=True) as store:
        assert DecidingController().elect(store, 1)
        put(store, message())
        yield store


def in_sync(store, peer: SlavePeer) -> None:
    """Bring the peer into sync."""
    peer.greet()
    peer.say(store.get_max_phy_offset())
    peer.is_in_sync(store)


def test_handover_waits_for_the_heir_and_for_pending_puts_and_renounces_the_lease(master):
    said = []
    master.ha_service.use_lease(lambda: True, lambda ms: said.append(f"renounced for {ms}"))
    with SlavePeer.connect(master) as peer:
        in_sync(master, peer)
        waiting = master.async_put_message(message())
        end = master.get_max_phy_offset()
        thread = threading.Thread(target=lambda: said.append(hand_over(master.ha_service, 2, WAIT_MS)))
        thread.start()
        wait_until(lambda: master.ha_service.role.guard.is_handing_over, WAIT_MS, "begun")
        assert master.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert "handed over to broker 2" in master.ha_service.why_no_puts()
        assert not said
        peer.data(end)
        peer.say(end)
        assert waiting.get(WAIT_MS).is_ok
        thread.join(WAIT_MS / 1000)
        assert said == ["renounced for 1000", end]
        assert master.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE


def test_handover_waits_for_the_heir_without_pending_puts(tmp_path):
    with master_of(tmp_path) as store, SlavePeer.connect(store) as peer:
        in_sync(store, peer)
        assert store.put_message(message()).is_ok
        with pytest.raises(HandoverError, match="does not hold all"):
            hand_over(store.ha_service, 2, 20)
        peer.data(store.get_max_phy_offset())
        peer.say(store.get_max_phy_offset())
        assert hand_over(store.ha_service, 2, WAIT_MS) == store.get_max_phy_offset()


def test_puts_are_accepted_again_when_no_election_follows(master, monkeypatch):
    monkeypatch.setattr(handover, "_ELECTION_MS", 50)
    with SlavePeer.connect(master) as peer:
        in_sync(master, peer)
        assert hand_over(master.ha_service, 2, 100) == master.get_max_phy_offset()
        wait_until(lambda: master.ha_service.why_no_puts() is None, WAIT_MS, "taken again")


def test_an_heir_that_does_not_catch_up_leaves_the_master_unchanged(master):
    with SlavePeer.connect(master) as peer:
        in_sync(master, peer)
        waiting = master.async_put_message(message())
        with pytest.raises(HandoverError, match="does not hold all of the log up to .* within 20 ms"):
            hand_over(master.ha_service, 2, 20)
        assert master.ha_service.why_no_puts() is None
        peer.data(master.get_max_phy_offset())
        peer.say(master.get_max_phy_offset())
        assert waiting.get(WAIT_MS).is_ok


def test_a_role_change_ends_the_handover(master):
    failed = []

    def run() -> None:
        try:
            hand_over(master.ha_service, 2, WAIT_MS)
        except HandoverError as error:
            failed.append(str(error))
    with SlavePeer.connect(master) as peer:
        in_sync(master, peer)
        master.async_put_message(message())
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: master.ha_service.role.guard.is_handing_over, WAIT_MS, "begun")
        assert master.ha_service.change_to_slave(None, 2)
        thread.join(WAIT_MS / 1000)
    assert failed == ["this broker's role has changed meanwhile"]
    assert not master.ha_service.role.guard.is_handing_over


@pytest.mark.parametrize("heir, reason", [(1, "broker 1 is the master"), (2, "broker 2 is not in sync, only [1]")])
def test_invalid_heir_is_named_in_the_error(master, heir, reason):
    with pytest.raises(HandoverError) as failure:
        hand_over(master.ha_service, heir, 100)
    assert str(failure.value) == reason and master.ha_service.why_no_puts() is None


def test_handover_needs_a_master_but_no_controller(tmp_path):
    with master_of(tmp_path) as store:
        with SlavePeer.connect(store) as peer:
            in_sync(store, peer)
            assert hand_over(store.ha_service, 2, WAIT_MS) == store.get_max_phy_offset()
        assert store.ha_service.change_to_slave(None)
        with pytest.raises(HandoverError, match="this broker is not the master"):
            hand_over(store.ha_service, 2, 100)


def test_puts_continue_while_the_heir_reconnects(master):
    said = []
    with SlavePeer.connect(master) as before, SlavePeer.connect(master) as heir:
        in_sync(master, before)
        heir.greet()
        wait_until(lambda: master.ha_service.connection_list[-1].slave_id == 2, WAIT_MS, "greeted")
        thread = threading.Thread(target=lambda: said.append(hand_over(master.ha_service, 2, WAIT_MS)))
        thread.start()
        service = master.ha_service.ha_connection_state_notification_service
        wait_until(service.is_alive, WAIT_MS, "waits for the connection")
        waiting = master.async_put_message(message())
        assert not said and master.ha_service.why_no_puts() is None
        end = master.get_max_phy_offset()
        heir.say(0)
        heir.data(end)
        heir.say(end)
        assert waiting.get(WAIT_MS).is_ok
        thread.join(WAIT_MS / 1000)
        assert said == [end]


def test_puts_continue_when_the_heir_does_not_finish_connecting(master):
    with SlavePeer.connect(master) as before, SlavePeer.connect(master) as heir:
        in_sync(master, before)
        heir.greet()
        wait_until(lambda: master.ha_service.connection_list[-1].slave_id == 2, WAIT_MS, "greeted")
        with pytest.raises(HandoverError, match="is connecting, and its transfer did not begin within 20 ms"):
            hand_over(master.ha_service, 2, 20)
        assert master.ha_service.why_no_puts() is None


def test_no_notification_thread_runs_without_a_request(master):
    assert not master.ha_service.ha_connection_state_notification_service.is_alive()


# A put that is held up while the broker loses and regains the master role, and its bytes are truncated.


class HeldPut(threading.Thread):
    """A put on its own thread that stops just before `method` of `owner`."""

    def __init__(self, monkeypatch, store, owner: object, method: str) -> None:
        super().__init__(daemon=True)
        self._store, self._original = store, getattr(owner, method)
        self._reached, self._go = threading.Event(), threading.Event()
        self.status: PutMessageStatus | None = None
        monkeypatch.setattr(owner, method, self._hold)
        self.start()
        assert self._reached.wait(WAIT_MS / 1000)

    def _hold(self, *arguments):
        if threading.current_thread() is self:
            self._reached.set()
            assert self._go.wait(WAIT_MS / 1000)
        return self._original(*arguments)

    def run(self) -> None:
        self.status = self._store.async_put_message(message(body=b"held" * 10)).get(WAIT_MS).put_message_status

    def released(self) -> PutMessageStatus:
        """Release the put, and return its status."""
        self._go.set()
        self.join(WAIT_MS / 1000)
        return self.status


def demote_and_cut(store, end: int) -> None:
    """Follow a master that shares the log only up to `end`, until the rest is truncated."""
    with FakeMaster() as server:
        assert store.ha_service.change_to_slave(server.address, 2)
        with MasterPeer(server.accept().sock) as master:
            master.greeted()
            master.answer(end, (1, 0), (2, end))
            assert master.reported() == end
    assert store.get_max_phy_offset() == end


def acknowledged_by_a_slave(store, peer: SlavePeer) -> None:
    """Grow the log under the next mastership; a slave in sync holds all of it."""
    peer.greet()
    peer.say(store.get_max_phy_offset())
    peer.is_in_sync(store)
    waiting = store.async_put_message(message(body=b"of the next mastership" * 30))
    peer.data(store.get_max_phy_offset())
    peer.say(store.get_max_phy_offset())
    assert waiting.get(WAIT_MS).is_ok


@pytest.mark.parametrize("keys", [
    {"allAckInSyncStateSet": True}, {"inSyncReplicas": 2}, {},
], ids=["all in sync", "two replicas", "the master alone"])
def test_a_put_held_across_demotion_truncation_and_promotion_is_not_acknowledged(tmp_path, monkeypatch, keys):
    with master_of(tmp_path, **keys) as store:
        with SlavePeer.connect(store) as peer:
            peer.greet()
            peer.say(0)
            peer.is_in_sync(store)
            begin = store.get_max_phy_offset()
            # The put is appended by now.
            held = HeldPut(monkeypatch, store, store.commit_log, "submit_flush_request")
            end = store.get_max_phy_offset()
            assert end > begin
            demote_and_cut(store, begin)
        assert store.ha_service.change_to_master(3)
        with SlavePeer.connect(store) as peer:
            acknowledged_by_a_slave(store, peer)
            wait_until(lambda: store.ha_service.confirm_offset() > end, WAIT_MS, "confirmed beyond the held put")
            assert held.released() is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            wait_until(lambda: bodies(store) == [b"of the next mastership" * 30], WAIT_MS, "it is the only one")


def test_a_put_checked_before_a_demotion_is_not_written_under_the_next_mastership(tmp_path, monkeypatch):
    with master_of(tmp_path, allAckInSyncStateSet=True) as store:
        put(store, message())
        end = store.get_max_phy_offset()
        held = HeldPut(monkeypatch, store, store.ha_service.ack_rule, "need_ack_nums")
        assert store.ha_service.change_to_slave(None)
        assert store.ha_service.change_to_master(2)
        assert held.released() is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert store.get_max_phy_offset() == end


# Stores whose master is elected by a controller: the messages that they acknowledge, and when.

KEYS = {"controlled": True, "allAckInSyncStateSet": True}
NOT_AVAILABLE = PutMessageStatus.SERVICE_NOT_AVAILABLE


@pytest.fixture
def controller() -> DecidingController:
    return DecidingController()


@pytest.fixture
def under_controller_master(tmp_path, controller):
    with open_replica(tmp_path / "master", **KEYS) as store:
        assert controller.elect(store, 5)
        yield store


def joined(store, controller: DecidingController, peer: SlavePeer, slave_id: int = 2) -> None:
    """Bring the peer into sync, also in the controller's set."""
    peer.greet(slave_id)
    peer.say(store.get_max_phy_offset())
    wait_until(lambda: slave_id in controller.members, WAIT_MS, "the controller knows")


def address(store) -> str:
    """Return the address that slaves connect to."""
    return f"127.0.0.1:{store.ha_service.ha_listen_port}"


def test_no_replica_is_master_before_the_controller_decides(tmp_path):
    with open_replica(tmp_path, **KEYS) as store:
        assert not store.ha_service.is_master
        assert store.put_message(message()).put_message_status is NOT_AVAILABLE
        assert "this broker is not the master" in store.ha_service.why_no_puts()
        store.ha_service.set_local_broker_id(4)
        assert DecidingController().elect(store, 1)
        assert store.ha_service.get_sync_state_set() == {4}
        assert store.put_message(message()).is_ok and store.ha_service.why_no_puts() is None


def test_caught_up_slave_counts_at_once_and_is_reported_to_the_controller(under_controller_master, controller):
    put(under_controller_master, message(body=b"alone"))
    with SlavePeer.connect(under_controller_master) as peer:
        joined(under_controller_master, controller, peer)
        assert controller.asked == [({1, 2}, 1)]
        waiting = under_controller_master.async_put_message(message(body=b"together"))
        assert not waiting.is_done
        peer.data(under_controller_master.get_max_phy_offset())
        peer.say(under_controller_master.get_max_phy_offset())
        assert waiting.get(WAIT_MS).is_ok


def test_puts_wait_for_a_lost_slave_until_the_controller_has_removed_it(under_controller_master, controller):
    with SlavePeer.connect(under_controller_master) as peer:
        joined(under_controller_master, controller, peer)
        controller.answers = False
        waiting = under_controller_master.async_put_message(message())
    wait_until(lambda: under_controller_master.ha_service.get_local_sync_state_set() == {1}, WAIT_MS, "it is gone")
    wait_until(lambda: controller.asked.count((frozenset((1,)), 2)) > 1, WAIT_MS, "asked again")
    assert not waiting.is_done and under_controller_master.ha_service.get_sync_state_set() == {1, 2}
    controller.answers = True
    assert waiting.get(WAIT_MS).is_ok
    assert controller.members == {1}


def test_nothing_is_accepted_or_acknowledged_without_the_lease(under_controller_master, controller):
    leased = True
    under_controller_master.ha_service.use_lease(lambda: leased)
    with SlavePeer.connect(under_controller_master) as peer:
        joined(under_controller_master, controller, peer)
        waiting = under_controller_master.async_put_message(message())
        leased = False
        peer.data(under_controller_master.get_max_phy_offset())
        peer.say(under_controller_master.get_max_phy_offset())
        wait_until(lambda: under_controller_master.ha_service.confirm_offset() ==
                   under_controller_master.get_max_phy_offset(), WAIT_MS, "replicated")
        assert not waiting.is_done
        assert under_controller_master.put_message(message()).put_message_status is NOT_AVAILABLE
        assert "no controller currently confirms" in under_controller_master.ha_service.why_no_puts()
        leased = True
        under_controller_master.ha_service.lease_granted()
        assert waiting.get(WAIT_MS).is_ok
        leased = False
        lost = under_controller_master.async_put_message(message())
        leased = True
        assert lost.get(WAIT_MS).put_message_status is NOT_AVAILABLE


@pytest.mark.parametrize("keys", [{"inSyncReplicas": 1, "allAckInSyncStateSet": False}, {}],
                         ids=["the master alone", "all in sync"])
def test_put_flushed_without_the_lease_is_not_acknowledged(tmp_path, monkeypatch, controller, keys):
    with open_replica(tmp_path, flushDiskType=FlushDiskType.SYNC_FLUSH, **{**KEYS, **keys}) as store:
        controller.elect(store, 5)
        leased = [True]
        store.ha_service.use_lease(lambda: leased[0])
        assert store.put_message(message()).is_ok
        queue = store.commit_log.mapped_file_queue
        flush = queue.flush

        def flush_late(least_pages: int) -> object:
            leased[0] = False
            return flush(least_pages)
        monkeypatch.setattr(queue, "flush", flush_late)
        assert store.async_put_message(message()).get(WAIT_MS).put_message_status is \
            PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_a_fenced_store_accepts_no_puts(under_controller_master):
    under_controller_master.running_flags.make_fenced(True)
    assert under_controller_master.running_flags.is_fenced
    assert under_controller_master.put_message(message()).put_message_status is NOT_AVAILABLE
    under_controller_master.running_flags.make_fenced(False)
    assert under_controller_master.put_message(message()).is_ok and not under_controller_master.running_flags.is_fenced


def test_a_reelected_master_keeps_its_slaves_and_its_pending_puts(under_controller_master, controller):
    with SlavePeer.connect(under_controller_master) as peer:
        joined(under_controller_master, controller, peer)
        waiting = under_controller_master.async_put_message(message(body=b"x" * 300))
        controller.members, controller.epoch = frozenset((1,)), controller.epoch + 1
        begin = under_controller_master.get_max_phy_offset()
        assert under_controller_master.ha_service.change_to_master_when_last_role_is_master(6, {1}, controller.epoch)
        wait_until(lambda: controller.members == {1, 2}, WAIT_MS, "it is in sync still")
        assert not waiting.is_done
        put_later = under_controller_master.async_put_message(message())
        frames = peer.data(under_controller_master.get_max_phy_offset())
        assert {(frame[1], frame[2]) for frame in frames} == {(5, 0), (6, begin)}
        peer.say(under_controller_master.get_max_phy_offset())
        assert waiting.get(WAIT_MS).is_ok and put_later.get(WAIT_MS).is_ok
    assert not under_controller_master.ha_service.change_to_master_when_last_role_is_master(5, {1}, 99)


def test_a_restarted_master_continues_with_its_epoch(tmp_path, controller):
    with open_replica(tmp_path, **KEYS) as store:
        controller.elect(store, 5)
        put(store, message(body=b"confirmed"))
        with SlavePeer.connect(store) as peer:
            joined(store, controller, peer)
            confirmed = store.get_max_phy_offset()
            for body in (b"tail", b"end"):
                store.async_put_message(message(body=body))
            wait_dispatched(store)
            assert bodies(store) == [b"confirmed"]
            controller.answers = False
            crash(store)
    with open_replica(tmp_path, **KEYS) as store:
        assert controller.resumes(store, 5)
        controller.answers = True
        end = store.get_max_phy_offset()
        assert end > confirmed == store.ha_service.confirm_offset()
        assert store.put_message(message()).put_message_status is NOT_AVAILABLE
        assert "its log is not confirmed yet" in store.ha_service.why_no_puts()
        with SlavePeer.connect(store) as peer:
            assert peer.greet()[1:] == (5, [(5, 0, (1 << 63) - 1)])
            peer.say(confirmed)
            peer.data(end)
            assert bodies(store) == [b"confirmed"]
            peer.say(end)
            wait_until(lambda: store.ha_service.why_no_puts() is None, WAIT_MS, "open")
            waiting = store.async_put_message(message(body=b"new"))
            peer.data(store.get_max_phy_offset())
            peer.say(store.get_max_phy_offset())
            assert waiting.get(WAIT_MS).append_message_result.logics_offset == 3
            wait_until(lambda: bodies(store) == [b"confirmed", b"tail", b"end", b"new"], WAIT_MS, "all of them")


def test_a_restarted_master_accepts_messages_once_the_others_are_out_of_the_set(tmp_path, controller):
    with open_replica(tmp_path, **KEYS) as store:
        controller.elect(store, 5)
        with SlavePeer.connect(store) as peer:
            joined(store, controller, peer)
            store.async_put_message(message(body=b"tail"))
            controller.answers = False
            crash(store)
    controller.answers = True
    with open_replica(tmp_path, **KEYS) as store:
        service = store.ha_service
        assert controller.resumes(store, 5)
        assert store.put_message(message()).put_message_status is NOT_AVAILABLE
        wait_until(lambda: service.why_no_puts() is None, WAIT_MS, "open")
        assert store.put_message(message(body=b"new")).append_message_result.logics_offset == 1


def test_a_restarted_master_accepts_no_puts_before_the_controller_has_answered(tmp_path, controller):
    """The controller may still carry out a request of the previous process."""
    with open_replica(tmp_path, **KEYS) as store:
        controller.elect(store, 5)
        assert store.put_message(message()).is_ok
        crash(store)
    controller.answers = False
    with open_replica(tmp_path, **KEYS) as store:
        assert controller.resumes(store, 5)
        wait_until(lambda: controller.asked, WAIT_MS, "asked")
        assert store.put_message(message()).put_message_status is NOT_AVAILABLE
        controller.answers = True
        wait_until(lambda: store.put_message(message()).is_ok, WAIT_MS, "open")
        assert controller.epoch == 2 and store.ha_service.epoch_cache.last_epoch() == 5


def test_a_replica_follows_the_new_master_at_once(tmp_path, controller, monkeypatch):
    """It follows even before the new master knows its role; both accept messages long before 4.9's retry."""
    monkeypatch.setattr(ha_client, "_RETRY_MS", 2 * WAIT_MS)
    keys = {**KEYS, "minInSyncReplicas": 2}
    with open_replica(tmp_path / "1", 1, **keys) as old, open_replica(tmp_path / "2", 2, **keys) as new, \
            open_replica(tmp_path / "3", 3, **keys) as third:
        controller.elect(old, 1)
        for store in (new, third):
            assert store.ha_service.change_to_slave(address(old), 1)
        wait_until(lambda: controller.members == {1, 2, 3}, WAIT_MS, "all in sync")
        assert old.put_message(message(body=b"before")).is_ok
        old.ha_service.shutdown()
        assert third.ha_service.change_to_slave(address(new), 2)
        # The connection is refused meanwhile.
        at_least(0.3)
        assert controller.elect(new, 2)
        wait_until(lambda: new.put_message(message(body=b"behind")).is_ok, WAIT_MS, "acknowledged")
        for store in (new, third):
            wait_until(lambda store=store: bodies(store) == [b"before", b"behind"], WAIT_MS, "read")


def test_a_master_that_has_not_begun_its_epoch_is_not_followed(tmp_path):
    """It may be the old master, whose address the name server still returns."""
    with FakeMaster() as server, open_replica(tmp_path, 2, **KEYS) as store:
        assert store.ha_service.change_to_slave(None, 4)
        store.ha_service.update_master_address(server.address)
        for _ in range(2):
            with MasterPeer(server.accept().sock) as peer:
                peer.greeted()
                peer.answer(0, (3, 0))
                assert peer.is_closed()
        assert "has not begun epoch 4 yet, its last is 3" in store.ha_service.ha_client.last_error


def test_a_slave_stays_connected_when_its_master_is_reelected(tmp_path):
    with FakeMaster() as server, open_replica(tmp_path, 2, **KEYS) as store:
        service = store.ha_service
        service.set_local_broker_id(2)
        assert service.change_to_slave(server.address, 3)
        with MasterPeer(server.accept().sock) as peer:
            peer.greeted()
            peer.answer(0, (3, 0))
            assert peer.reported() == 0
            assert service.change_to_slave_when_master_not_change(server.address, 4)
            assert service.ha_client.expected_epoch == 4 and service.ha_client.is_alive()
            peer.send_log(0, b"", 3, 0)
            wait_until(lambda: service.ha_client.state.value == "TRANSFER", WAIT_MS)
            assert not service.change_to_slave_when_master_not_change(server.address, 1)
