"""A loss of power that leaves a last record whose properties are not all on the disk."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.config.broker_role import BrokerRole
from rmqha.store.torn_record import SECTOR_SIZE, find_torn_record
from tests.store.support import FILE_SIZE, bodies, crash, message, open_store, put, wait_dispatched

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
        assert f"the last record of the log, at {begin}, has lost a part of its properties" in caplog.text
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
    assert -1 <= find_torn_record(padded, end) <= end
