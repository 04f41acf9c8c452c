"""What a master does with slaves, and with what is no slave."""
import struct

import pytest

from rmqha.store.ha.autoswitch import auto_switch_transfer as transfer
from rmqha.store.results import PutMessageStatus
from tests.store.ha.autoswitch.support import SEGMENT, WAIT_MS, SlavePeer, master_of
from tests.store.support import bodies, message, put, wait_dispatched
from tests.support.wait import wait_until


def log_of(store) -> bytes:
    """The whole commit log."""
    return b"".join(bytes(file.slice_byte_buffer()) for file in store.commit_log.mapped_file_queue.mapped_files)


@pytest.fixture
def master(tmp_path):
    with master_of(tmp_path / "master") as store:
        put(store, *[message("T", 0, b"%03d" % index * 50) for index in range(20)])
        yield store


def test_a_slave_is_told_the_epochs_and_gets_the_log_with_them(master):
    with SlavePeer.connect(master) as peer:
        end = master.get_max_phy_offset()
        assert peer.greet() == (end, 1, [(1, 0, (1 << 63) - 1)])
        peer.say(0)
        frames = peer.data(end)
        assert b"".join(frame[4] for frame in frames) == log_of(master)[:end]
        assert {frame[1:3] for frame in frames} == {(1, 0)}
        heartbeat = peer.frame()
        assert heartbeat == (end, 1, 0, master.ha_service.confirm_offset(), b"")


def test_a_frame_ends_with_its_epoch(tmp_path):
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


def test_a_slave_whose_epoch_is_deleted_while_its_bytes_are_sent_is_closed(master, caplog):
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
def test_an_empty_slave_begins_with_the_file_that_it_asks_for(tmp_path, last_file, start):
    with master_of(tmp_path) as store:
        while store.get_max_phy_offset() < 2 * SEGMENT + 500:
            put(store, message("T", 0, b"x" * 1000))
        with SlavePeer.connect(store) as peer:
            peer.greet(last_file=last_file)
            peer.say(0)
            assert peer.data(start + 1)[0][0] == start


def test_a_put_waits_for_all_that_are_in_sync_and_is_read_only_then(tmp_path):
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


def test_too_few_in_sync_refuse_a_put_before_it_is_written(tmp_path):
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


def test_a_put_that_waits_at_a_change_of_roles_is_not_acknowledged_by_the_next_mastership(tmp_path):
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


def test_a_silent_slave_leaves_the_set(tmp_path):
    with master_of(tmp_path, haMaxTimeSlaveNotCatchup=300, allAckInSyncStateSet=True) as store, \
            SlavePeer.connect(store) as peer:
        peer.greet()
        peer.say(0)
        peer.is_in_sync(store)
        waiting = store.async_put_message(message())
        wait_until(lambda: store.ha_service.sync_state_set.members == {1}, WAIT_MS, "it leaves")
        assert waiting.get(WAIT_MS).is_ok


def test_a_slave_that_comes_again_replaces_its_older_connection(master):
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
def test_what_is_no_slave_is_closed_and_counts_for_nothing(master, what):
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


def test_a_slave_that_reports_more_than_there_is_is_closed(master):
    with SlavePeer.connect(master) as peer:
        peer.greet()
        peer.say(master.get_max_phy_offset())
        peer.is_in_sync(master)
        peer.say(master.get_max_phy_offset() + 1)
        assert peer.is_closed()


def test_a_broker_that_is_no_master_serves_nobody(master):
    assert master.ha_service.change_to_slave(None, 1)
    with SlavePeer.connect(master) as peer:
        peer.send(HELLO)
        assert peer.is_closed()


def test_a_slave_far_behind_joins_only_when_it_is_near(tmp_path):
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
