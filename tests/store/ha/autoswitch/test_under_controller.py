"""Stores whose master a controller elects: what they acknowledge, and when."""

import pytest

from rmqha.store.ha import ha_client
from rmqha.store.message_store_config import FlushDiskType
from rmqha.store.results import PutMessageStatus
from tests.store.ha.autoswitch.support import WAIT_MS, DecidingController, MasterPeer, SlavePeer, open_replica
from tests.store.ha.support import FakeMaster
from tests.store.support import bodies, crash, message, put, wait_dispatched
from tests.support.wait import at_least, wait_until

KEYS = {"controlled": True, "allAckInSyncStateSet": True}
NOT_AVAILABLE = PutMessageStatus.SERVICE_NOT_AVAILABLE


@pytest.fixture
def controller() -> DecidingController:
    return DecidingController()


@pytest.fixture
def master(tmp_path, controller):
    with open_replica(tmp_path / "master", **KEYS) as store:
        assert controller.elect(store, 5)
        yield store


def joined(store, controller: DecidingController, peer: SlavePeer, slave_id: int = 2) -> None:
    """Let the peer be in sync, for the controller too."""
    peer.greet(slave_id)
    peer.say(store.get_max_phy_offset())
    wait_until(lambda: slave_id in controller.members, WAIT_MS, "the controller knows")


def address(store) -> str:
    """Where slaves find it."""
    return f"127.0.0.1:{store.ha_service.ha_listen_port}"


def test_nobody_is_the_master_before_the_controller_says_so(tmp_path):
    with open_replica(tmp_path, **KEYS) as store:
        assert not store.ha_service.is_master
        assert store.put_message(message()).put_message_status is NOT_AVAILABLE
        assert "this broker is not the master" in store.ha_service.why_no_puts()
        store.ha_service.set_local_broker_id(4)
        assert DecidingController().elect(store, 1)
        assert store.ha_service.get_sync_state_set() == {4}
        assert store.put_message(message()).is_ok and store.ha_service.why_no_puts() is None


def test_who_catches_up_counts_at_once_and_the_controller_is_told_at_once(master, controller):
    put(master, message(body=b"alone"))
    with SlavePeer.connect(master) as peer:
        joined(master, controller, peer)
        assert controller.asked == [({1, 2}, 1)]
        waiting = master.async_put_message(message(body=b"together"))
        assert not waiting.is_done
        peer.data(master.get_max_phy_offset())
        peer.say(master.get_max_phy_offset())
        assert waiting.get(WAIT_MS).is_ok


def test_who_is_gone_is_waited_for_until_the_controller_has_taken_it_out(master, controller):
    with SlavePeer.connect(master) as peer:
        joined(master, controller, peer)
        controller.answers = False
        waiting = master.async_put_message(message())
    wait_until(lambda: master.ha_service.get_local_sync_state_set() == {1}, WAIT_MS, "it is gone")
    wait_until(lambda: controller.asked.count((frozenset((1,)), 2)) > 1, WAIT_MS, "asked again")
    assert not waiting.is_done and master.ha_service.get_sync_state_set() == {1, 2}
    controller.answers = True
    assert waiting.get(WAIT_MS).is_ok
    assert controller.members == {1}


def test_nothing_is_taken_or_acknowledged_without_the_lease(master, controller):
    leased = True
    master.ha_service.use_lease(lambda: leased)
    with SlavePeer.connect(master) as peer:
        joined(master, controller, peer)
        waiting = master.async_put_message(message())
        leased = False
        peer.data(master.get_max_phy_offset())
        peer.say(master.get_max_phy_offset())
        wait_until(lambda: master.ha_service.confirm_offset() == master.get_max_phy_offset(), WAIT_MS, "replicated")
        assert not waiting.is_done
        assert master.put_message(message()).put_message_status is NOT_AVAILABLE
        assert "no controller confirms" in master.ha_service.why_no_puts()
        leased = True
        master.ha_service.lease_granted()
        assert waiting.get(WAIT_MS).is_ok
        leased = False
        lost = master.async_put_message(message())
        leased = True
        assert lost.get(WAIT_MS).put_message_status is NOT_AVAILABLE


@pytest.mark.parametrize("keys", [{"inSyncReplicas": 1, "allAckInSyncStateSet": False}, {}],
                         ids=["the master alone", "all in sync"])
def test_what_is_flushed_without_the_lease_is_not_acknowledged(tmp_path, monkeypatch, controller, keys):
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


def test_a_fenced_store_takes_nothing(master):
    master.running_flags.make_fenced(True)
    assert master.running_flags.is_fenced
    assert master.put_message(message()).put_message_status is NOT_AVAILABLE
    master.running_flags.make_fenced(False)
    assert master.put_message(message()).is_ok and not master.running_flags.is_fenced


def test_a_master_that_is_elected_again_keeps_its_slaves_and_its_puts(master, controller):
    with SlavePeer.connect(master) as peer:
        joined(master, controller, peer)
        waiting = master.async_put_message(message(body=b"x" * 300))
        controller.members, controller.epoch = frozenset((1,)), controller.epoch + 1
        begin = master.get_max_phy_offset()
        assert master.ha_service.change_to_master_when_last_role_is_master(6, {1}, controller.epoch)
        wait_until(lambda: controller.members == {1, 2}, WAIT_MS, "it is in sync still")
        assert not waiting.is_done
        put_later = master.async_put_message(message())
        frames = peer.data(master.get_max_phy_offset())
        assert {(frame[1], frame[2]) for frame in frames} == {(5, 0), (6, begin)}
        peer.say(master.get_max_phy_offset())
        assert waiting.get(WAIT_MS).is_ok and put_later.get(WAIT_MS).is_ok
    assert not master.ha_service.change_to_master_when_last_role_is_master(5, {1}, 99)


def test_a_master_that_was_started_anew_goes_on_with_its_epoch(tmp_path, controller):
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
        assert "what it holds is not confirmed yet" in store.ha_service.why_no_puts()
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


def test_a_master_started_anew_takes_messages_when_the_others_are_out_of_the_set(tmp_path, controller):
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


def test_a_master_started_anew_takes_nothing_before_the_controller_has_answered(tmp_path, controller):
    """It may still carry out what the process before had asked for."""
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
    """Also before that one knows; and both take messages with two in sync, long before a slave of 4.9 asks again."""
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
        at_least(0.3)  # it is refused meanwhile
        assert controller.elect(new, 2)
        wait_until(lambda: new.put_message(message(body=b"behind")).is_ok, WAIT_MS, "acknowledged")
        for store in (new, third):
            wait_until(lambda store=store: bodies(store) == [b"before", b"behind"], WAIT_MS, "read")


def test_a_master_that_has_not_begun_its_epoch_is_not_followed(tmp_path):
    """It may be the old one, whose address the name server still gives."""
    with FakeMaster() as server, open_replica(tmp_path, 2, **KEYS) as store:
        assert store.ha_service.change_to_slave(None, 4)
        store.ha_service.update_master_address(server.address)
        for _ in range(2):
            with MasterPeer(server.accept().sock) as peer:
                peer.greeted()
                peer.answer(0, (3, 0))
                assert peer.is_closed()
        assert "has not begun epoch 4 yet, its last is 3" in store.ha_service.ha_client.last_error


def test_a_slave_stays_connected_when_its_master_is_elected_again(tmp_path):
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
