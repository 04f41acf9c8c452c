"""A mastership that is handed over: nothing is taken meanwhile, and nothing lost."""
import threading

import pytest

from rmqha.store.ha.autoswitch import handover
from rmqha.store.ha.autoswitch.handover import HandoverError, hand_over
from rmqha.store.results import PutMessageStatus
from tests.store.ha.autoswitch.support import WAIT_MS, DecidingController, SlavePeer, master_of, open_replica
from tests.store.support import message, put
from tests.support.wait import wait_until


@pytest.fixture
def master(tmp_path):
    with open_replica(tmp_path, controlled=True, allAckInSyncStateSet=True) as store:
        assert DecidingController().elect(store, 1)
        put(store, message())
        yield store


def in_sync(store, peer: SlavePeer) -> None:
    """Let the peer be in sync."""
    peer.greet()
    peer.say(store.get_max_phy_offset())
    peer.is_in_sync(store)


def test_it_waits_for_the_heir_and_for_the_answers_and_renounces_the_lease(master):
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


def test_it_waits_for_an_heir_that_no_message_waits_for(tmp_path):
    with master_of(tmp_path) as store, SlavePeer.connect(store) as peer:
        in_sync(store, peer)
        assert store.put_message(message()).is_ok
        with pytest.raises(HandoverError, match="does not hold all"):
            hand_over(store.ha_service, 2, 20)
        peer.data(store.get_max_phy_offset())
        peer.say(store.get_max_phy_offset())
        assert hand_over(store.ha_service, 2, WAIT_MS) == store.get_max_phy_offset()


def test_messages_are_taken_again_when_the_role_stays(master, monkeypatch):
    monkeypatch.setattr(handover, "_ELECTION_MS", 50)
    with SlavePeer.connect(master) as peer:
        in_sync(master, peer)
        assert hand_over(master.ha_service, 2, 100) == master.get_max_phy_offset()
        wait_until(lambda: master.ha_service.why_no_puts() is None, WAIT_MS, "taken again")


def test_an_heir_that_does_not_get_there_leaves_the_master_as_it_was(master):
    with SlavePeer.connect(master) as peer:
        in_sync(master, peer)
        waiting = master.async_put_message(message())
        with pytest.raises(HandoverError, match="does not hold all of the log up to .* within 20 ms"):
            hand_over(master.ha_service, 2, 20)
        assert master.ha_service.why_no_puts() is None
        peer.data(master.get_max_phy_offset())
        peer.say(master.get_max_phy_offset())
        assert waiting.get(WAIT_MS).is_ok


def test_a_change_of_roles_ends_it(master):
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
def test_who_can_not_be_the_heir_is_named(master, heir, reason):
    with pytest.raises(HandoverError) as failure:
        hand_over(master.ha_service, heir, 100)
    assert str(failure.value) == reason and master.ha_service.why_no_puts() is None


def test_it_needs_a_master_and_no_controller(tmp_path):
    with master_of(tmp_path) as store:
        with SlavePeer.connect(store) as peer:
            in_sync(store, peer)
            assert hand_over(store.ha_service, 2, WAIT_MS) == store.get_max_phy_offset()
        assert store.ha_service.change_to_slave(None)
        with pytest.raises(HandoverError, match="this broker is not the master"):
            hand_over(store.ha_service, 2, 100)


def test_puts_go_on_while_the_heir_connects_anew(master):
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


def test_an_heir_that_does_not_come_on_is_no_reason_to_refuse_puts(master):
    with SlavePeer.connect(master) as before, SlavePeer.connect(master) as heir:
        in_sync(master, before)
        heir.greet()
        wait_until(lambda: master.ha_service.connection_list[-1].slave_id == 2, WAIT_MS, "greeted")
        with pytest.raises(HandoverError, match="is connecting, and was not sent the log within 20 ms"):
            hand_over(master.ha_service, 2, 20)
        assert master.ha_service.why_no_puts() is None


def test_no_thread_waits_for_states_that_nobody_asks_about(master):
    assert not master.ha_service.ha_connection_state_notification_service.is_alive()
