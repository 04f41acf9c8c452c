"""A put that stands still while the broker is no master for a while, and its bytes are cut off."""
import threading

import pytest

from rmqha.store.results import PutMessageStatus
from tests.store.ha.autoswitch.support import WAIT_MS, MasterPeer, SlavePeer, master_of
from tests.store.ha.support import FakeMaster
from tests.store.support import bodies, message, put
from tests.support.wait import wait_until


class HeldPut(threading.Thread):
    """A put on a thread of its own, that stops just before `method` of `owner`."""

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
        """Let it go on; what it is answered."""
        self._go.set()
        self.join(WAIT_MS / 1000)
        return self.status


def demote_and_cut(store, end: int) -> None:
    """Follow a master whose log is the same up to `end` only, until what lies behind is cut off."""
    with FakeMaster() as server:
        assert store.ha_service.change_to_slave(server.address, 2)
        with MasterPeer(server.accept().sock) as master:
            master.greeted()
            master.answer(end, (1, 0), (2, end))
            assert master.reported() == end
    assert store.get_max_phy_offset() == end


def acknowledged_by_a_slave(store, peer: SlavePeer) -> None:
    """The log grows under the next mastership, and a slave in sync holds all of it."""
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
def test_a_put_held_across_demotion_cut_and_promotion_is_not_acknowledged(tmp_path, monkeypatch, keys):
    with master_of(tmp_path, **keys) as store:
        with SlavePeer.connect(store) as peer:
            peer.greet()
            peer.say(0)
            peer.is_in_sync(store)
            begin = store.get_max_phy_offset()
            held = HeldPut(monkeypatch, store, store.commit_log, "submit_flush_request")  # it is appended
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
