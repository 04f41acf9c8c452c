"""The slave's side of replication with epochs: masters of any epoch, and peers that are not masters."""
import contextlib
import shutil
import struct

import pytest

from rmqha.common.config_manager import CheckpointFileError
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.ha import ha_client
from rmqha.store.ha.autoswitch import auto_switch_transfer as transfer
from rmqha.store.ha.peers import HAConnectionState
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import PutMessageStatus
from tests.store.ha.autoswitch.support import SEGMENT, WAIT_MS, MasterPeer, master_of, open_replica
from tests.store.ha.support import FakeMaster
from tests.store.ha.test_trust import shown_by
from tests.store.support import bodies, crash, message, new_store, open_store, put
from tests.support.wait import wait_until

# A slave's handling of masters, and of peers that are not masters.


@pytest.fixture
def server():
    with FakeMaster() as made:
        yield made


def accept(server: FakeMaster) -> MasterPeer:
    """Accept the slave's next connection."""
    server.server.settimeout(60)
    return MasterPeer(server.server.accept()[0])


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> list[bytes]:
    """Return the records of a log."""
    with master_of(tmp_path_factory.mktemp("log")) as store:
        results = put(store, *[message("T", 0, b"%03d" % index * 50, KEYS=f"k{index}") for index in range(40)])
        data = bytes(store.commit_log.mapped_file_queue.mapped_files[0].slice_byte_buffer())
        return [data[one.wrote_offset:one.wrote_offset + one.wrote_bytes] for one in results]


def forget_waiting(server: FakeMaster) -> None:
    """Close the connections that are not accepted yet; the slave makes no new ones."""
    server.server.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            server.server.accept()[0].close()


def following(store, server: FakeMaster, epoch: int | None = None) -> MasterPeer:
    """Let the store follow the server; return the connection, after the slave's introduction."""
    assert store.ha_service.change_to_slave(None)
    forget_waiting(server)
    assert store.ha_service.change_to_slave(server.address, epoch)
    peer = accept(server)
    assert peer.greeted()[2] == store.ha_service.local_broker_id
    return peer


def wait_end(store, end: int) -> None:
    """Wait until the log ends at `end`."""
    wait_until(lambda: store.get_max_phy_offset() == end, WAIT_MS, f"the log ends at {end}")


def test_a_slave_stores_the_log_and_the_epochs_and_reports_its_end(tmp_path, server, log):
    two, four, six = (sum(map(len, log[:count])) for count in (2, 4, 6))
    with open_replica(tmp_path, 2, asyncLearner=True, syncFromLastFile=True) as store:
        assert store.ha_service.change_to_slave(server.address, 3)
        with accept(server) as peer:
            assert peer.greeted() == (1, 1, 2)
            peer.answer(six, (1, 0), (3, four))
            assert peer.reported() == 0
            peer.send_log(0, b"".join(log[:2]), 1, 0, two)
            assert peer.reported() == two
            peer.send_log(two, b"".join(log[2:4]), 1, 0, two)
            peer.send_log(four, b"".join(log[4:6]), 3, four, two)
            while peer.reported() != six:
                continue
            assert store.ha_service.confirm_offset() == two
            wait_until(lambda: len(bodies(store)) == 2, WAIT_MS, "confirmed messages are readable")
            peer.send_log(six, b"", 3, four, six)
            wait_until(lambda: len(bodies(store)) == 6, WAIT_MS, "the rest too")
        assert [entry[:2] for entry in store.ha_service.epoch_cache.get_all_entries()] == [(1, 0), (3, four)]


def filled(store, server: FakeMaster, log: list[bytes], *parts: tuple[int, int]) -> list[int]:
    """Fill the store with (epoch, number of records) in turn; return the end of each part."""
    with following(store, server) as peer:
        peer.answer(0)
        offset, at, ends = 0, 0, []
        assert peer.reported() == 0
        for epoch, count in parts:
            data = b"".join(log[at:at + count])
            peer.send_log(offset, data, epoch, offset, offset + len(data))
            offset, at = offset + len(data), at + count
            wait_end(store, offset)
            ends.append(offset)
    wait_until(lambda: store.dispatch_behind_bytes() == 0, WAIT_MS, "dispatched")
    return ends


def test_a_diverged_log_is_truncated_at_the_consistent_point(tmp_path, server, log):
    with open_replica(tmp_path, 2) as store:
        first, end = filled(store, server, log, (1, 10), (2, 20))
        assert len(bodies(store)) == 30 and found(store, "k12") == 1
        with following(store, server, 3) as peer:
            peer.answer(end + 999, (1, 0), (3, first))
            assert peer.reported() == first
            assert store.get_max_phy_offset() == first and len(bodies(store)) == 10
            peer.send_log(first, moved(log[30], first, 10), 3, first, 1 << 40)
            assert peer.reported() == first + len(log[30])
            wait_until(lambda: bodies(store)[10:] == [b"030" * 50], WAIT_MS, "the new one is read")
        assert [found(store, key) for key in ("k9", "k12", "k30")] == [1, 0, 1]
        segment = bytes(store.commit_log.mapped_file_queue.mapped_files[0].slice_byte_buffer())
        assert not any(segment[first + len(log[30]):])
        assert [entry[:2] for entry in store.ha_service.epoch_cache.get_all_entries()] == [(1, 0), (3, first)]


def found(store, key: str) -> int:
    """Return the number of stored messages with the key."""
    wait_until(lambda: store.dispatch_behind_bytes() <= 0, WAIT_MS, "all is indexed")
    result = store.query_message("T", key, 9, 0, 1 << 60)
    try:
        return len(result.message_buffer_list)
    finally:
        result.release()


def moved(record: bytes, offset: int, queue_offset: int) -> bytes:
    """Return the record as it would be at another offset."""
    return record[:20] + struct.pack(">qq", queue_offset, offset) + record[36:]


def test_an_incomplete_record_is_truncated_before_the_slave_reconnects(tmp_path, server, log):
    with open_replica(tmp_path, 2, haVerifyRecords=False) as store:
        (end,) = filled(store, server, log, (1, 3))
        with following(store, server) as peer:
            peer.answer(1 << 20, (1, 0))
            assert peer.reported() == end
            peer.send_log(end, log[3][:50], 1, 0, 0)
            assert peer.reported() == end + 50
        with accept(server) as peer:
            peer.greeted()
            peer.answer(1 << 20, (1, 0))
            assert peer.reported() == end


def test_an_incomplete_record_is_kept_until_the_rest_arrives(tmp_path, server, log):
    with open_replica(tmp_path, 2) as store:
        (end,) = filled(store, server, log, (1, 3))
        with following(store, server) as peer:
            peer.answer(1 << 20, (1, 0), (2, end))
            assert peer.reported() == end
            peer.send_log(end, log[3][:50], 2, end, 0)
            peer.send_log(end + 50, log[3][50:] + log[4][:60], 2, end, 0)
            assert peer.reported() == end + len(log[3])
            peer.send_log(end + len(log[3]) + 60, log[4][60:], 2, end, 0)
            assert peer.reported() == end + len(log[3]) + len(log[4])
        assert [entry[:2] for entry in store.ha_service.epoch_cache.get_all_entries()] == [(1, 0), (2, end)]


def refused(store, complaint: str) -> None:
    """Wait until the client reports the complaint."""
    client = store.ha_service.ha_client
    wait_until(lambda: complaint in client.last_error, WAIT_MS, f"{complaint!r}, it says {client.last_error!r}")


def test_a_master_with_no_epoch_in_common_is_refused(tmp_path, server, log):
    with open_replica(tmp_path, 2) as store:
        (end,) = filled(store, server, log, (1, 3))
        with following(store, server, 5) as peer:
            peer.answer(1 << 20, (5, 0))
            assert peer.is_closed()
        refused(store, "no epoch in common: MASTER: 5 from 0 SLAVE: 1 from 0")
        assert store.get_max_phy_offset() == end
        assert store.ha_service.ha_client.state is HAConnectionState.OFFSET_REFUSED


def test_a_stale_master_is_refused_unless_the_operator_names_a_newer_epoch(tmp_path, server, log):
    with open_replica(tmp_path, 2) as store:
        first, end = filled(store, server, log, (1, 3), (4, 3))
        with following(store, server) as peer:
            peer.answer(first, (1, 0))
            assert peer.is_closed()
        refused(store, "the master's last epoch is 1, but this log has messages of epoch 4")
        assert store.get_max_phy_offset() == end
        with following(store, server, 5) as peer:
            peer.answer(first, (1, 0))
            assert peer.reported() == first
        assert store.get_max_phy_offset() == first
        assert not store.ha_service.change_to_slave(server.address, 0)


def test_a_log_without_epochs_is_not_continued(tmp_path, server, log):
    with open_replica(tmp_path, 2) as store:
        filled(store, server, log, (1, 3))
        store.ha_service.change_to_slave(None, 9)
        store.ha_service.epoch_cache.truncate_suffix_by_offset(0)
        with following(store, server) as peer:
            peer.answer(1 << 20, (1, 0))
            assert peer.is_closed()
        refused(store, "has no epochs")


@pytest.mark.parametrize("bad, complaint", [
    (lambda end, log: transfer.encode_master_handshake(end, []), "state 1"),
    (lambda end, log: struct.pack(">iiqiqq", 2, 5 << 20, end, 2, end, 0), "impossible size"),
    (lambda end, log: struct.pack(">iiqiqq", 2, -1, end, 2, end, 0), "impossible size"),
    (lambda end, log: frame(end + 1, log[6], 2, end), "SLAVE"),
    (lambda end, log: frame(end, log[6], 1, 0), "names epoch 1, which begins at 0"),
    (lambda end, log: frame(end, log[6], 2, end - 1), "names epoch 2, which begins"),
    (lambda end, log: frame(end, log[6], 3, end - 1), "names epoch 3, which begins"),
    (lambda end, log: frame(end, b"no record at all", 3, end), "is not a valid record"),
    (lambda end, log: frame(end, b"x" * SEGMENT, 3, end), "beyond the end of a file"),
], ids=["handshake again", "too long", "negative", "hole", "epoch falls", "epoch moved", "epoch within the log",
        "no log", "beyond the file"])
def test_contradictory_frames_close_the_connection_and_change_nothing(tmp_path, server, log, bad, complaint):
    with open_replica(tmp_path, 2) as store:
        first, end = filled(store, server, log, (1, 3), (2, 3))
        with following(store, server) as peer:
            peer.answer(1 << 20, (1, 0), (2, first))
            assert peer.reported() == end
            peer.send(bad(end, log))
            assert peer.is_closed()
        refused(store, complaint)
        assert store.get_max_phy_offset() == end and len(bodies(store)) == 6
        assert [entry[:2] for entry in store.ha_service.epoch_cache.get_all_entries()] == [(1, 0), (2, first)]


def frame(offset: int, body: bytes, epoch: int, start: int) -> bytes:
    """Make one frame."""
    return struct.pack(">iiqiqq", 2, len(body), offset, epoch, start, 0) + body


def test_a_promoted_slave_continues_the_queues(tmp_path, server, log):
    with open_replica(tmp_path, 2) as store:
        (end,) = filled(store, server, log, (1, 3))
        assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert not store.ha_service.change_to_master(1)
        assert store.ha_service.change_to_master(2)
        (result,) = put(store, message("T", 0, b"new"))
        assert (result.wrote_offset, result.logics_offset) == (end, 3)
        wait_until(lambda: bodies(store)[3:] == [b"new"], WAIT_MS, "read")
        assert [entry[:2] for entry in store.ha_service.epoch_cache.get_all_entries()] == [(1, 0), (2, end)]


def test_an_incomplete_record_is_not_part_of_a_new_masters_log(tmp_path, server, log):
    with open_replica(tmp_path, 2, haVerifyRecords=False) as store:
        (end,) = filled(store, server, log, (1, 3))
        with following(store, server) as peer:
            peer.answer(1 << 20, (1, 0))
            peer.reported()
            peer.send_log(end, log[3][:77], 1, 0, 0)
            wait_end(store, end + 77)
        assert store.ha_service.change_to_master(2)
        assert store.get_max_phy_offset() == end
        assert store.ha_service.epoch_cache.last_entry()[:2] == (2, end)


@pytest.fixture(scope="module")
def blank(tmp_path_factory) -> tuple[int, bytes]:
    """Make a log of four records, the last in a new file; return where the first one's blank begins, and its bytes."""
    with master_of(tmp_path_factory.mktemp("blank")) as store:
        results = put(store, *[message("T", 0, bytes((index,)) * 5000) for index in range(4)])
        assert results[3].wrote_offset == SEGMENT
        files = [bytes(file.slice_byte_buffer()) for file in store.commit_log.mapped_file_queue.mapped_files]
        return results[2].wrote_offset + results[2].wrote_bytes, b"".join(files)


WHOLE = 3  # records before the blank
HELD = [0, 4, 8, 9, 500, -1, SEGMENT, SEGMENT + 1, SEGMENT + 5000]
"""The bytes that a slave has received: all of three records and never all of the fourth. Below SEGMENT the
number counts from the begin of the blank, otherwise from the begin of the log; a negative one counts from the end of
the file.
"""


def held(blank: tuple[int, bytes], much: int) -> bytes:
    """Return the part of the log given by `much`."""
    begin, data = blank
    return data[:much if much >= SEGMENT else begin + much if much >= 0 else SEGMENT + much]


def wait_seen(store) -> None:
    """Wait until the dispatch has reached the log's end, or an incomplete record."""
    reput = store.reput_message_service
    wait_until(lambda: reput.behind() <= 0 or reput.has_only_part_of_a_record(), WAIT_MS, "dispatched")


@pytest.mark.parametrize("much", HELD)
def test_a_new_master_appends_nothing_within_an_incomplete_blank(tmp_path, server, blank, much):
    data = held(blank, much)
    with open_replica(tmp_path, 2, haVerifyRecords=False) as store:
        with following(store, server) as peer:
            peer.answer(1 << 20, (1, 0))
            peer.reported()
            for begin in range(0, len(data), SEGMENT):
                peer.send_log(begin, data[begin:begin + SEGMENT], 1, 0, len(data))
            wait_end(store, len(data))
            wait_seen(store)
            assert store.dispatched_offset() <= len(data)
        assert store.ha_service.change_to_master(2)
        read_after_one_more(store)


@pytest.mark.parametrize("much", HELD)
@pytest.mark.parametrize("ending", [crash, DefaultMessageStore.shutdown])
def test_a_slave_restarted_as_a_master_appends_nothing_within_an_incomplete_blank(tmp_path, blank, much, ending):
    data = held(blank, much)
    slave = new_store(tmp_path, brokerRole=BrokerRole.SLAVE)
    assert slave.load()
    slave.start()
    for begin in range(0, len(data), SEGMENT):
        assert slave.append_to_commit_log(begin, data, begin, min(SEGMENT, len(data) - begin))
    wait_seen(slave)
    ending(slave)
    with open_store(tmp_path, brokerRole=BrokerRole.SYNC_MASTER) as store:
        read_after_one_more(store)


def read_after_one_more(store) -> None:
    """Put a message that fits into the blank: it is the next one of its queue, and is read."""
    (result,) = put(store, message("T", 0, b"new"))
    assert result.logics_offset == WHOLE
    wait_until(lambda: bodies(store) == [bytes((index,)) * 5000 for index in range(WHOLE)] + [b"new"], WAIT_MS,
               "all are read")


def test_a_restarted_master_accepts_no_puts_until_it_is_made_master_again(tmp_path):
    with master_of(tmp_path) as store:
        put(store, message("T", 0, b"before"))
    with master_of(tmp_path) as store:
        assert store.put_message(message()).put_message_status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert bodies(store) == [b"before"]
        assert store.message_store_config.brokerRole is BrokerRole.SLAVE
        assert store.ha_service.change_to_master(2)
        put(store, message("T", 0, b"after"))
        wait_until(lambda: bodies(store) == [b"before", b"after"], WAIT_MS, "read")


def test_the_name_servers_address_is_used_until_a_slave_gets_another(tmp_path, server):
    with open_replica(tmp_path, 2) as store:
        service = store.ha_service
        service.update_master_address("127.0.0.1:1")
        assert service.ha_client.master_address == "127.0.0.1:1"
        service.change_to_slave(server.address, 1)
        service.update_master_address("127.0.0.1:1")
        assert service.ha_client.master_address == server.address
        service.change_to_master(1)
        service.update_master_address("127.0.0.1:1")
        assert service.ha_client.master_address is None


def test_an_old_slaves_acknowledgement_does_not_count_for_a_new_master(tmp_path):
    with master_of(tmp_path) as store:
        put(store, message("T", 0, b"x" * 1000))
        store.ha_service.push2_slave_max_offset.set(store.get_max_phy_offset())
        store.ha_service.change_to_slave(None, 1)
        assert store.ha_service.change_to_master(2)
        assert store.ha_service.push2_slave_max_offset.get() == 0
        assert SEGMENT > store.get_max_phy_offset()


@pytest.mark.parametrize("crashed", [False, True])
def test_unconfirmed_messages_are_not_readable_after_a_restart_either(tmp_path, server, log, crashed):
    with open_replica(tmp_path, 2) as store:
        (end,) = filled(store, server, log, (1, 3))
        with following(store, server) as peer:
            peer.answer(1 << 20, (1, 0))
            assert peer.reported() == end
            longer = end + len(log[3]) + len(log[4])
            peer.send_log(end, log[3] + log[4], 1, 0, end)
            wait_end(store, longer)
        store.ha_service.change_to_slave(None)
        if crashed:
            crash(store)
    with open_replica(tmp_path, 2) as store:
        assert store.get_max_phy_offset() == longer and bodies(store) == [b"%03d" % index * 50 for index in range(3)]
        assert found(store, "k2") == 1
        assert store.ha_service.change_to_master(2)
        put(store, message("T", 0, b"new", KEYS="new"))
        wait_until(lambda: bodies(store)[3:] == [b"003" * 50, b"004" * 50, b"new"], WAIT_MS, "all is confirmed then")
        assert [found(store, key) for key in ("k2", "k3", "k4", "new")] == [1, 1, 1, 1]


def test_damaged_epochs_prevent_the_start(tmp_path):
    with master_of(tmp_path) as store:
        put(store, message())
    (tmp_path / "epochFileCheckpoint").write_bytes(b"1\n5\n1-0\n")
    with pytest.raises(CheckpointFileError, match="epochFileCheckpoint: its checksum 5 does"), open_replica(tmp_path):
        pytest.fail("it started")


# Two brokers that were made master with the same epoch number, and begin it at the same offset: their logs diverge.


@pytest.fixture
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 50)


def send(store, first: int, count: int, size: int = 300) -> None:
    put(store, *[message("T", 0, b"%03d|" % number + b"x" * size) for number in range(first, first + count)])


class Shown:
    """The log of a real store, as its main port serves it."""

    def __init__(self, store) -> None:
        self._store = store

    def log(self, offset: int) -> bytes:
        result = self._store.get_commit_log_data(offset)
        if result is None:
            return b""
        with result:
            return bytes(result.buffer)

    def get_min_phy_offset(self) -> int:
        return self._store.get_min_phy_offset()


@pytest.fixture(params=[300, 517], ids=["equal sizes", "other sizes"])
def two(request, tmp_path):
    """Return (this, other, end of the common log): both became masters of epoch 2 there, and have written since."""
    with contextlib.ExitStack() as stack:
        this = stack.enter_context(open_replica(tmp_path / "this", 1))
        assert this.ha_service.change_to_master(1)
        send(this, 0, 10)
        common = this.get_max_phy_offset()
        this.shutdown()
        shutil.copytree(tmp_path / "this", tmp_path / "other")
        (tmp_path / "other" / "brokerIdentity").unlink()
        this = stack.enter_context(open_replica(tmp_path / "this", 1))
        other = stack.enter_context(open_replica(tmp_path / "other", 2))
        for store, first, count, size in ((this, 100, 5, 300), (other, 200, 9, request.param)):
            assert store.ha_service.change_to_master(2)
            send(store, first, count, size)
        assert this.ha_service.epoch_cache.get_all_entries() == other.ha_service.epoch_cache.get_all_entries()
        this.ha_service.ha_client.ask_record = lambda _address, offset: shown_by(Shown(other))(offset)
        yield this, other, common


def follow(this, other) -> None:
    assert this.ha_service.change_to_slave(f"127.0.0.1:{other.ha_service.ha_listen_port}", 2)


@pytest.mark.usefixtures("quick_waits")
def test_slave_with_other_bytes_under_the_same_epoch_is_refused_and_reported(two):
    this, other, common = two
    end = this.get_max_phy_offset()
    follow(this, other)
    client = this.ha_service.ha_client
    wait_until(lambda: client.state is HAConnectionState.DIVERGED, WAIT_MS, "refused")
    found = this.ha_service.divergence.found
    assert found.offset == common and "two brokers were made the master" in found.reason
    assert this.get_max_phy_offset() == end
    assert not other.ha_service.slave_count() and other.ha_service.sync_state_set.members == {2}


@pytest.mark.usefixtures("quick_waits")
def test_slave_with_other_bytes_under_the_same_epoch_rejoins(two, tmp_path):
    this, other, common = two
    end = this.get_max_phy_offset()
    follow(this, other)
    client = this.ha_service.ha_client
    wait_until(lambda: client.state is HAConnectionState.DIVERGED, WAIT_MS, "refused")
    client.rejoin()
    wait_until(lambda: this.get_max_phy_offset() == other.get_max_phy_offset(), WAIT_MS, "the same end")
    assert Shown(this).log(0) == Shown(other).log(0)
    wait_until(lambda: len(bodies(this)) == len(bodies(other)) == 19, WAIT_MS, "dispatched")
    assert bodies(this) == bodies(other)
    (kept,) = (tmp_path / "this" / "diverged").iterdir()
    assert kept.stat().st_size == end - common
    assert this.ha_service.divergence.found is None


@pytest.mark.usefixtures("quick_waits")
def test_replica_of_a_diverged_master_is_refused_too(two, tmp_path):
    """It was never the master of the epoch: the comparison is of its bytes, not of its history."""
    this, other, common = two
    this.shutdown()
    shutil.copytree(tmp_path / "this", tmp_path / "third")
    (tmp_path / "third" / "brokerIdentity").unlink()
    with open_replica(tmp_path / "third", 3) as third:
        third.ha_service.ha_client.ask_record = lambda _address, offset: shown_by(Shown(other))(offset)
        follow(third, other)
        wait_until(lambda: third.ha_service.ha_client.state is HAConnectionState.DIVERGED, WAIT_MS, "refused")
        assert third.ha_service.divergence.found.offset == common


@pytest.mark.usefixtures("quick_waits")
def test_known_epoch_is_not_begun_again(two):
    this, _other, _common = two
    assert not this.ha_service.change_to_master(2)
    assert not this.ha_service.change_to_master(1)
    assert this.ha_service.is_master
