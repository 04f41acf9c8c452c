"""A loss of power that leaves a last record whose properties are not all on the disk."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_layout import INT
from rmqha.store import store_checkpoint
from rmqha.store.append import MessageExtBrokerInner, MessageExtEncoder, records_in_python
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.record_check import (
    SECTOR_SIZE,
    check_message_and_return_size,
    may_be_torn,
    torn_at_the_end,
    torn_records,
)
from rmqha.store.results import PutMessageStatus
from tests.faults.stepped_store import SteppedStore
from tests.faults.synced_disk import NothingByChance, SyncedDisk, in_use
from tests.store.support import FILE_SIZE, bodies, config, crash, message, open_store, put, wait_dispatched

LONG = "p" * 1200  # properties that go over two sectors' ends, wherever they begin


def crashed(root, *messages) -> tuple[int, int]:
    """A crashed store with these messages: where the last of them begins, and where it ends."""
    with open_store(root) as store:
        last = put(store, *messages)[-1]
        wait_dispatched(store)
        crash(store)
    return last.wrote_offset, last.wrote_offset + last.wrote_bytes


def zero(root, begin: int, end: int) -> None:
    with open(root / "commitlog" / f"{begin // FILE_SIZE * FILE_SIZE:020d}", "r+b") as file:
        file.seek(begin % FILE_SIZE)
        file.write(bytes(end - begin))


@pytest.mark.parametrize("whole_tail", [True, False], ids=["all sectors behind", "one sector"])
@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
def test_torn_record_is_cut_off_with_its_unit_and_its_key(tmp_path, caplog, role, whole_tail):
    begin, end = crashed(tmp_path, message(body=b"first"), message(body=b"whole", KEYS="k1", long=LONG),
                         message(body=b"torn", KEYS="k2", long=LONG))
    sector = (end - 1) // SECTOR_SIZE * SECTOR_SIZE - (0 if whole_tail else SECTOR_SIZE)
    assert sector > begin + 200
    zero(tmp_path, sector, end if whole_tail else sector + SECTOR_SIZE)
    with open_store(tmp_path, brokerRole=role) as store:
        assert f"the record at {begin} has lost a part of itself" in caplog.text
        assert store.get_max_phy_offset() == begin and store.get_max_offset_in_queue("T", 0) == 2
        assert bodies(store) == [b"first", b"whole"]
        found = [store.query_message("T", key, 8, 0, 1 << 62).buffer_total_size for key in ("k1", "k2")]
        assert found[0] > 0 and found[1] == 0
        if role is not BrokerRole.SLAVE:
            assert put(store, message(body=b"next"))[0].wrote_offset == begin
            wait_dispatched(store)
            assert bodies(store) == [b"first", b"whole", b"next"]


@pytest.mark.parametrize("last", [
    message(body=b"x"), message(body=b"x", long=LONG), message(body=bytes(5000), long=LONG), message(body=bytes(1200)),
    message(body=b"x", zeros="\0" * 300), message(body=b"x", zeros="\0" * 300 + LONG)],
    ids=["short", "long", "zeros in the body", "zeros and few properties", "a value of NULs", "NULs in front"])
def test_whole_records_stay(tmp_path, last):
    crashed(tmp_path, message(body=b"first"), last)
    with open_store(tmp_path) as store:
        assert bodies(store) == [b"first", last.body]


def killed(root, *messages) -> int:
    """A store that was killed before anything of it was flushed; the end of its log."""
    store = SteppedStore(config(root))
    assert store.open()
    put(store, *messages)
    end = store.get_max_phy_offset()
    store.kill()
    return end


def nul_behind_an_edge() -> MessageExtBrokerInner:
    """A message whose last property ends with the only NUL, the first byte of the log's second sector."""
    found = next(message(body=b"x", last="p" * count + "\0") for count in range(SECTOR_SIZE)
                 if len(record_of(message(body=b"x", last="p" * count + "\0"))) == SECTOR_SIZE + 1)
    return found


def record_of(msg: MessageExtBrokerInner) -> bytes:
    """Its size is what counts."""
    return bytes(MessageExtEncoder(1 << 20).encode(msg).size)


def test_nul_behind_a_sectors_edge_is_no_torn_record_after_a_kill(tmp_path):
    first = nul_behind_an_edge()
    end = killed(tmp_path, first, message(body=b"second"))
    with open_store(tmp_path) as store:
        assert store.get_max_phy_offset() == end and bodies(store) == [b"x", b"second"]


def test_acknowledged_nul_behind_a_sectors_edge_stays_after_a_loss_of_power(tmp_path):
    """Of what the store writes beside the log to know that, nothing that it does not force to the disk is needed."""
    disk = SyncedDisk(tmp_path)
    with in_use(disk):
        store = SteppedStore(config(tmp_path, flushDiskType=FlushDiskType.SYNC_FLUSH))
        assert store.open()
        answer = store.async_put_message(nul_behind_an_edge())
        store.flush_log()
        assert answer.get().put_message_status is PutMessageStatus.PUT_OK
        store.kill()
        disk.lose_power(NothingByChance())
    with open_store(tmp_path) as again:
        assert bodies(again) == [b"x"]


def test_record_torn_before_the_last_is_cut_off_with_all_behind_it(tmp_path):
    killed(tmp_path, message(body=b"first"), message(body=b"torn", long=LONG + LONG), message(body=b"last"))
    begin = len(record_of(message(body=b"first")))
    zero(tmp_path, 2 * SECTOR_SIZE, 3 * SECTOR_SIZE)
    with open_store(tmp_path) as store:
        assert store.get_max_phy_offset() == begin and bodies(store) == [b"first"]


@pytest.mark.parametrize("power_lost", [True, False])
def test_heads_that_a_slave_has_in_pieces_are_doubted_once_the_machine_was_started_anew(
        tmp_path, monkeypatch, power_lost):
    """A sector ends in the head of the last record: what it holds before came with an earlier piece, or not at all."""
    killed(tmp_path / "master", message(body=bytes(SECTOR_SIZE - 91 - 1 - 25)), message(body=b"second"))
    data = (tmp_path / "master" / "commitlog" / f"{0:020d}").read_bytes()
    second = SECTOR_SIZE - 25
    size = INT.unpack_from(data, second)[0]
    assert data[SECTOR_SIZE - 1] == 0  # of its queue offset
    slave = SteppedStore(config(tmp_path / "slave", brokerRole=BrokerRole.SLAVE))
    assert slave.open()
    assert slave.append_to_commit_log(0, data, 0, second + size)
    slave.kill()
    if power_lost:
        monkeypatch.setattr(store_checkpoint, "boot_bits", lambda: 2)
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as again:
        assert again.get_max_phy_offset() == second + (0 if power_lost else size)


def test_a_record_in_front_is_no_last_one(tmp_path):
    begin, end = crashed(tmp_path, message(body=b"first", long=LONG))
    _, log_end = crashed(tmp_path, message(body=b"second"))
    sector = (end - 1) // SECTOR_SIZE * SECTOR_SIZE
    zero(tmp_path, sector, end)
    with open_store(tmp_path) as store:  # what it lost was lost later, and it has been told to be safe
        assert store.get_max_phy_offset() == log_end and begin == 0


def test_a_log_that_ends_with_a_files_end_stays(tmp_path):
    with open_store(tmp_path) as store:
        while store.get_max_phy_offset() <= FILE_SIZE:
            put(store, message(body=b"x" * 1000))
        wait_dispatched(store)
        count = len(bodies(store))
        crash(store)
    second = tmp_path / "commitlog" / f"{FILE_SIZE:020d}"
    second.write_bytes(bytes(FILE_SIZE))  # nothing of the second file had come to the disk
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == count - 1


@settings(deadline=None)
@given(st.binary(max_size=3000), st.data())
def test_any_bytes_are_looked_at_without_an_error(data, draw):
    end = draw.draw(st.integers(0, len(data)))
    padded = memoryview(data.ljust(len(data) + 200, b"\0"))
    assert -1 <= torn_at_the_end(padded, end) <= end


@settings(deadline=None)
@given(st.integers(0, 3 * SECTOR_SIZE), st.integers(0, 2000), st.data())
def test_a_record_that_lost_any_sectors_looks_torn_or_is_none(place, length, draw):
    """Unless all that it lost was zeros."""
    msg = message("Topic", body=b"b" * draw.draw(st.integers(0, 700)), long="p" * length, KEYS="k")
    part = MessageExtEncoder(1 << 20).encode(msg)
    record = records_in_python([part], part.size, {}, place, 1, bytes(8))[2]
    whole = bytes(place) + record
    lost = bytearray(whole)
    sectors = range(place // SECTOR_SIZE, (len(whole) - 1) // SECTOR_SIZE + 1)
    for number in draw.draw(st.sets(st.sampled_from(sectors), min_size=1)):
        begin, stop = number * SECTOR_SIZE, min((number + 1) * SECTOR_SIZE, len(whole))
        lost[begin:stop] = bytes(stop - begin)
    request = check_message_and_return_size(memoryview(lost), place, True)
    if bytes(lost) != whole and request.success and request.commit_log_offset == place:
        assert may_be_torn(memoryview(lost), place, len(record))
    assert not may_be_torn(memoryview(whole), place, len(record))
    assert list(torn_records(memoryview(record + bytes(200)), len(record), 0, False)) == []
