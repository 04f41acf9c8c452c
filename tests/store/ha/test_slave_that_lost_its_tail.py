"""An in-sync slave loses power and is back before its master notices: it lacks what it had acknowledged from memory."""
import struct
import time

import pytest

from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha import ha_handshake
from rmqha.store.ha.autoswitch.sync_state_set import SyncStateSet
from rmqha.store.ha.ha_handshake import Block, Finding, Question, Verdict, WhoCompares
from rmqha.store.ha.log_comparison import read_tail
from rmqha.store.results import PutMessageStatus
from tests.store.ha.support import FakeStore, Peer, running
from tests.support.wait import wait_until

RECORDS, END = 20, 20_000


@pytest.fixture
def master():
    store = FakeStore(haHousekeepingInterval=60_000)
    for seed in range(RECORDS):
        store.put(1000, seed)
    with running(store):
        yield store


def slave_at(master: FakeStore, end: int, name: str = "c/b/1") -> Peer:
    """A slave whose log is the master's up to `end`, behind its handshake and its first report."""
    peer = Peer.connect(master)
    question = Question(0, [Block(end, read_tail(master, 0, end))])
    peer.send(ha_handshake.ASK + ha_handshake.encode_who_compares(WhoCompares(name, 0, end))
              + ha_handshake.encode_question(question) + ha_handshake.encode_finding(Finding(Verdict.GOOD, end)))
    assert peer.read_frame()[0] == ha_handshake.HELLO_OFFSET
    assert peer.read_frame() == (ha_handshake.ANSWER_OFFSET, struct.pack(">ih", 1, 0))
    offset, verdict = peer.read_frame()
    assert (offset, verdict[:2]) == (ha_handshake.VERDICT_OFFSET, struct.pack(">h", Verdict.GOOD))
    peer.report(end)
    return peer


def told(master: FakeStore) -> dict[str, str]:
    stats: dict[str, str] = {}
    master.ha_service.build_running_stats(stats)
    return stats


def lost(master: FakeStore) -> list[str]:
    return [value for key, value in told(master).items() if key.startswith("haSlaveLost_")]


def test_what_it_lost_is_sent_again_and_not_counted_meanwhile(master, caplog):
    service = master.ha_service
    with slave_at(master, END) as before:
        wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": END}, 60_000)
        with slave_at(master, 12_000) as after:  # the connection from before its loss of power is still there
            assert before.is_closed()
            wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": 12_000}, 60_000)
            assert lost(master) == [f"12000,{END}"]
            assert service.ack_rule.acked_offset(2) == 12_000 and service.ack_rule.in_sync_replicas_nums(END) == 2
            (info,) = service.get_runtime_info(END).haConnectionInfo
            assert (info.slaveAckOffset, info.diff) == (12_000, 8000)
            data = b""
            while len(data) < END - 12_000:
                offset, body = after.read_data_frame()
                assert offset == 12_000 + len(data)
                data += body
            assert data == master.log(12_000)
            after.report(END)
            wait_until(lambda: not lost(master), 60_000, "it has all again")
    assert "had acknowledged 20000, and comes back with 12000" in caplog.text


def test_put_waits_for_what_the_slave_holds_now(master):
    """The offsets that it had acknowledged before do not count for a put behind them."""
    service = master.ha_service
    with slave_at(master, END):
        wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": END}, 60_000)
        with slave_at(master, 12_000) as after:
            wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": 12_000}, 60_000)
            end = master.put(1000, 50)
            request = GroupCommitRequest(end, 60_000)
            service.put_request(request)
            after.report(16_000)
            wait_until(lambda: service.counted_slaves.slave_acks() == {"c/b/1": 16_000}, 60_000)
            assert not request.future.is_done
            after.report(END, end)
            assert request.future.get(60_000) is PutMessageStatus.PUT_OK


def test_slave_that_has_gone_for_long_is_told_as_well(master):
    service = master.ha_service
    slave_at(master, END).close()
    wait_until(lambda: service.connection_count.get() == 0, 60_000)
    with slave_at(master, 5000):
        wait_until(lambda: lost(master) == [f"5000,{END}"], 60_000)


def test_other_slave_has_lost_nothing(master):
    with slave_at(master, END), slave_at(master, 5000, "c/b/2"):
        wait_until(lambda: len(master.ha_service.counted_slaves.slave_acks()) == 2, 60_000)
        assert not lost(master)


def test_peers_without_a_name_are_not_told_apart_and_nothing_is_said(master):
    with Peer.connect(master) as one, Peer.connect(master) as other:
        one.report(END)
        wait_until(lambda: master.ha_service.slave_count() == 1, 60_000)
        other.report(5000)
        wait_until(lambda: list(master.ha_service.counted_slaves.slave_acks().values()) == [5000], 60_000)
        assert not lost(master)


def test_member_of_the_sync_state_set_that_lost_its_tail_leaves_it_until_it_has_all_again():
    end = 1000
    members = SyncStateSet(lambda: end)
    members.become_master(1)
    members.acknowledged(2, 1000, time.monotonic_ns(), True)
    assert members.members == {1, 2} and members.confirm_offset() == 1000
    members.acknowledged(2, 400, None, False)
    assert members.members == {1} and members.confirm_offset() == 1000
    end = 1200
    members.acknowledged(2, 900, time.monotonic_ns(), True)
    assert members.members == {1}
    members.acknowledged(2, 1200, time.monotonic_ns(), True)
    assert members.members == {1, 2} and members.confirm_offset() == 1200
