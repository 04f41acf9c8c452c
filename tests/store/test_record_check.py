"""Records: encoding of rows, checks at dispatch and recovery, torn records, search by time, and checksums."""
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common import sys_flags
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import BORNHOST_V6_FLAG, HEADS, INT, STOREHOSTADDRESS_V6_FLAG
from rmqha.store import store_checkpoint
from rmqha.store.append import MessageExtBrokerInner, MessageExtEncoder, MessageRow, records_in_python
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.record_check import (
    SECTOR_SIZE,
    block_checksums,
    check_message_and_return_size,
    first_store_timestamp,
    last_store_timestamp,
    may_be_torn,
    newest_store_timestamp,
    skip_good_records,
    store_timestamp_from,
    torn_at_the_end,
    torn_records,
)
from rmqha.store.results import PutMessageStatus
from rmqha.tools.store_files.reading import scan_block
from tests.faults.machine import NothingByChance, SteppedStore, SyncedDisk, in_use
from tests.store.support import FILE_SIZE, bodies, config, crash, message, open_store, put, wait_dispatched
from tests.support.tiers import drawn

# Reading records for dispatch and recovery: every field, and any bytes.


class Levels:
    """Delay levels of 10 s each."""

    max_level = 5

    @staticmethod
    def deliver_timestamp(level, store_timestamp):
        return store_timestamp + level * 10_000


def record(topic="T", body=b"body", properties="TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u", born="10.0.0.1",
           store="127.0.0.1", crc=None):
    born_host, store_host = layout.host_to_bytes((born, 1)), layout.host_to_bytes((store, 2))
    return layout.encode_record(
        layout.body_crc32(body) if crc is None else crc, 3, 4, 5, 600, layout.host_flags(born_host, store_host),
        7, born_host, 8000, store_host, 9, 10, body, layout.encode_topic(topic), properties.encode())


def check(data, **how):
    return check_message_and_return_size(memoryview(data), **how)


@pytest.mark.parametrize("born", ["10.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize("store", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("body", [b"", b"body", b"x" * 5000])
def test_every_field_is_read(born, store, body):
    data = record(born=born, store=store, body=body)
    for request in (check(data, check_crc=True), check(b"??" + data + b"rest", position=2)):
        assert request.success and request.msg_size == len(data)
        assert (request.topic, request.queue_id) == ("T", 3)
        assert (request.consume_queue_offset, request.commit_log_offset) == (5, 600)
        assert (request.store_timestamp, request.prepared_transaction_offset) == (8000, 10)
        assert (request.keys, request.uniq_key, request.tags_code) == ("k1 k2", "u", string_hash_code("a"))
        assert request.properties_map == {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "u"}


@pytest.mark.parametrize("properties, keys, uniq, tag", [
    ("", "", None, None), ("TAGS\x01", None, None, None), ("a\x01b", None, None, None),
    ("TAGS\x01x\x02TAGS\x01y\x02", None, None, "y"), ("XTAGS\x01x\x02KEYS\x01\x02UNIQ_KEYS\x01u", None, None, None),
    ("KEYS\x01\u00e4 \u00f6\x02TAGS\x01\u6807", "\u00e4 \u00f6", None, "\u6807")])
def test_properties_are_read_as_java_reads_them(properties, keys, uniq, tag):
    request = check(record(properties=properties))
    assert (request.keys, request.uniq_key) == (keys, uniq)
    assert request.tags_code == (string_hash_code(tag) if tag else 0)
    assert request.properties_map == (None if not properties else request.properties_map)


@pytest.mark.parametrize("level, expected", [("1", 18_000), ("5", 58_000), ("9", 58_000), ("0", string_hash_code("a")),
                                             ("-3", string_hash_code("a"))])
def test_scheduled_message_has_its_delivery_time_as_tags_code(level, expected):
    data = record("SCHEDULE_TOPIC_XXXX", properties=f"DELAY\x01{level}\x02TAGS\x01a")
    assert check(data, delay_levels=Levels).tags_code == expected
    assert check(record("other", properties=f"DELAY\x01{level}\x02TAGS\x01a"), delay_levels=Levels).tags_code == \
        string_hash_code("a")


def test_invalid_delay_level_counts_as_none():
    request = check(record("SCHEDULE_TOPIC_XXXX", properties="DELAY\x01x\x02TAGS\x01a"), delay_levels=Levels)
    assert request.success and request.tags_code == string_hash_code("a")


def test_blank_ends_a_file():
    request = check(layout.encode_blank(500))
    assert (request.success, request.msg_size) == (True, 0)


def test_crc_is_checked_on_request():
    data = record(crc=1)
    assert check(data).success and check(data, check_crc=True, read_body=False).success
    assert (check(data, check_crc=True).success, check(data, check_crc=True).msg_size) == (False, -1)


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 50, 87, 88, 90, 93, 95, 100])
def test_truncated_record_is_invalid(cut):
    request = check(record()[:cut])
    assert (request.success, request.msg_size) == (False, -1)


@pytest.mark.parametrize("total_size, size", [(90, 90), (5, 5), (2**31 - 1, 2**31 - 1), (0, -1), (-1, -1),
                                              (-2**31, -1)])
def test_inconsistent_size_is_reported(total_size, size):
    data = struct.pack(">i", total_size) + record()[4:]
    request = check(data)
    assert (request.success, request.msg_size) == (False, size)


@pytest.mark.parametrize("at, value", [(84, -1), (84, 2**31 - 1), (84, -2**31), (84, 10**6)])
def test_absurd_lengths_are_invalid(at, value):
    data = bytearray(record())
    data[at:at + 4] = struct.pack(">i", value)
    assert not check(data).success


@settings(max_examples=drawn(500))
@given(st.binary(max_size=200), st.integers(0, 50))
def test_any_bytes_are_handled(data, position):
    request = check(struct.pack(">ii", len(data) + 8, layout.MESSAGE_MAGIC_CODE) + data, position=position,
                    check_crc=True, delay_levels=Levels)
    assert request.msg_size >= -1


@settings(max_examples=drawn(500))
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6), st.integers(0, 3))
def test_flipped_bytes_are_handled(flips, kind):
    data = bytearray(record(born="::1" if kind & 1 else "1.2.3.4", store="::1" if kind & 2 else "1.2.3.4"))
    for at, value in flips:
        data[at % len(data)] = value
    request = check(data, check_crc=True, delay_levels=Levels)
    if request.success and request.msg_size:
        assert request.msg_size == len(data)
        layout.decode_parts(data)


def placed(records):
    """Concatenate records, and write its offset into each."""
    data = bytearray(b"".join(records))
    at = 0
    for each in records:
        data[at + 28:at + 36] = struct.pack(">q", 1000 + at)
        at += len(each)
    return data


@settings(max_examples=drawn(300))
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3), st.booleans(), st.integers(0, 5))
def test_fast_walk_skips_only_records_that_the_slow_one_accepts(flips, check_crc, v6_at):
    data = placed([record(body=b"x" * (number * 50), born="::1" if number == v6_at else "1.2.3.4")
                   for number in range(6)]) + layout.encode_blank(100)
    for at, value in flips:
        data[at % len(data)] = value
    view, position = memoryview(data), 0
    stop = skip_good_records(view, 0, len(data), 1000, check_crc, lambda *_args: True)
    while position < stop:
        request = check(data, position=position, check_crc=check_crc)
        assert request.success and request.msg_size > 0 and request.commit_log_offset == 1000 + position
        position += request.msg_size
    assert position == stop
    request = check(data, position=position, check_crc=check_crc)
    assert (not request.success or request.msg_size == 0 or request.sys_flag & 0x3C
            or request.commit_log_offset != 1000 + position)


def test_fast_walk_stops_at_an_undispatched_record():
    data = placed([record()] * 3)
    seen = []
    size = len(data) // 3

    def is_dispatched(*args):
        seen.append(args)
        return len(seen) < 3

    assert skip_good_records(memoryview(data), 0, len(data), 1000, True, is_dispatched) == 2 * size
    assert seen == [(b"T", 3, 5, (number + 1) * size) for number in range(3)]


# Store times, found from any offset of a log.

MAGIC = struct.pack(">i", -626843481)


def log_of(store):
    """Return (bytes, records) of all files, without the blanks."""
    records, parts, begin = [], [], 0
    while begin < store.get_max_phy_offset():
        with store.get_commit_log_data(begin) as result:
            parts.append(bytes(result.buffer[:result.size]))
        records += scan_block(parts[-1], begin).records
        begin += FILE_SIZE
    return b"".join(parts), records


def filled(store):
    for number in range(60):
        # The bodies look like beginnings of records.
        msg = message("T", 0, MAGIC * number * 4)
        if number % 3 == 0:
            msg.born_host = ("2001:db8::1", 40000)
        put(store, msg)
        store.clock = number
    return log_of(store)


def test_time_of_the_next_record_is_found_from_every_offset(tmp_path):
    with open_store(tmp_path) as store:
        data, records = filled(store)
        assert len(data) > 2 * FILE_SIZE
        for offset in range(0, len(data), 37):
            following = [record for record in records if record.offset >= offset]
            expected = following[0].store_timestamp if following else None
            assert store_timestamp_from(store, offset) == expected, offset
        assert newest_store_timestamp(store) == records[-1].store_timestamp


def test_empty_store_has_no_times(tmp_path):
    with open_store(tmp_path) as store:
        assert newest_store_timestamp(store) is None
        assert store_timestamp_from(store, 0) is None


def test_only_a_record_that_contains_its_own_offset_counts(tmp_path):
    with open_store(tmp_path) as store:
        data, records = filled(store)
    first = data[:FILE_SIZE]
    assert first_store_timestamp(first, 0) == records[0].store_timestamp
    # The same bytes at another offset.
    assert first_store_timestamp(first, 1) is None
    assert last_store_timestamp(first, 0) == [r for r in records if r.offset < FILE_SIZE][-1].store_timestamp


@settings(max_examples=drawn(200), deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 200), max_size=4), st.integers(0, 2**63 - 1))
def test_any_bytes_can_be_searched(data, places, offset):
    for place in places:
        data = data[:place] + MAGIC + data[place:]
    for search in (first_store_timestamp, last_store_timestamp):
        found = search(data, offset)
        assert found is None or MAGIC in data


# A loss of power that leaves a last record with incomplete properties.

# Long enough to cross two sector ends from any start.
LONG = "p" * 1200


def crashed(root, *messages) -> tuple[int, int]:
    """Make a crashed store with these messages; return the begin and the end of the last one."""
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
def test_torn_record_is_truncated_with_its_unit_and_its_key(tmp_path, caplog, role, whole_tail):
    begin, end = crashed(tmp_path, message(body=b"first"), message(body=b"whole", KEYS="k1", long=LONG),
                         message(body=b"torn", KEYS="k2", long=LONG))
    sector = (end - 1) // SECTOR_SIZE * SECTOR_SIZE - (0 if whole_tail else SECTOR_SIZE)
    assert sector > begin + 200
    zero(tmp_path, sector, end if whole_tail else sector + SECTOR_SIZE)
    with open_store(tmp_path, brokerRole=role) as store:
        assert f"incomplete record at {begin}; truncating the log there" in caplog.text
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
def test_complete_records_stay(tmp_path, last):
    crashed(tmp_path, message(body=b"first"), last)
    with open_store(tmp_path) as store:
        assert bodies(store) == [b"first", last.body]


def killed(root, *messages) -> int:
    """Make a store that is killed before anything is flushed; return the end of its log."""
    store = SteppedStore(config(root))
    assert store.open()
    put(store, *messages)
    end = store.get_max_phy_offset()
    store.kill()
    return end


def nul_behind_an_edge() -> MessageExtBrokerInner:
    """Make a message whose last property ends with the only NUL, the first byte of the log's second sector."""
    found = next(message(body=b"x", last="p" * count + "\0") for count in range(SECTOR_SIZE)
                 if len(record_of(message(body=b"x", last="p" * count + "\0"))) == SECTOR_SIZE + 1)
    return found


def record_of(msg: MessageExtBrokerInner) -> bytes:
    """Return bytes of the record's size; their content does not matter."""
    return bytes(MessageExtEncoder(1 << 20).encode(msg).size)


def test_nul_after_a_sector_boundary_is_not_a_torn_record_after_a_kill(tmp_path):
    first = nul_behind_an_edge()
    end = killed(tmp_path, first, message(body=b"second"))
    with open_store(tmp_path) as store:
        assert store.get_max_phy_offset() == end and bodies(store) == [b"x", b"second"]


def test_acknowledged_nul_after_a_sector_boundary_survives_a_loss_of_power(tmp_path):
    """The store must not depend on files beside the log that it has not forced to the disk."""
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


def test_torn_record_before_the_last_is_truncated_with_all_later_ones(tmp_path):
    killed(tmp_path, message(body=b"first"), message(body=b"torn", long=LONG + LONG), message(body=b"last"))
    begin = len(record_of(message(body=b"first")))
    zero(tmp_path, 2 * SECTOR_SIZE, 3 * SECTOR_SIZE)
    with open_store(tmp_path) as store:
        assert store.get_max_phy_offset() == begin and bodies(store) == [b"first"]


@pytest.mark.parametrize("power_lost", [True, False])
def test_heads_received_in_pieces_are_not_trusted_after_a_reboot(
        tmp_path, monkeypatch, power_lost):
    """A sector ends within the last record's head: the part before it arrived with an earlier piece, or is missing."""
    killed(tmp_path / "master", message(body=bytes(SECTOR_SIZE - 91 - 1 - 25)), message(body=b"second"))
    data = (tmp_path / "master" / "commitlog" / f"{0:020d}").read_bytes()
    second = SECTOR_SIZE - 25
    size = INT.unpack_from(data, second)[0]
    # A byte of its queue offset.
    assert data[SECTOR_SIZE - 1] == 0
    slave = SteppedStore(config(tmp_path / "slave", brokerRole=BrokerRole.SLAVE))
    assert slave.open()
    assert slave.append_to_commit_log(0, data, 0, second + size)
    slave.kill()
    if power_lost:
        monkeypatch.setattr(store_checkpoint, "boot_bits", lambda: 2)
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as again:
        assert again.get_max_phy_offset() == second + (0 if power_lost else size)


def test_only_the_last_record_is_checked_for_being_torn(tmp_path):
    begin, end = crashed(tmp_path, message(body=b"first", long=LONG))
    _, log_end = crashed(tmp_path, message(body=b"second"))
    sector = (end - 1) // SECTOR_SIZE * SECTOR_SIZE
    zero(tmp_path, sector, end)
    # This record was flushed, so it was damaged later.
    with open_store(tmp_path) as store:
        assert store.get_max_phy_offset() == log_end and begin == 0


def test_a_log_that_ends_at_the_end_of_a_file_is_kept(tmp_path):
    with open_store(tmp_path) as store:
        while store.get_max_phy_offset() <= FILE_SIZE:
            put(store, message(body=b"x" * 1000))
        wait_dispatched(store)
        count = len(bodies(store))
        crash(store)
    second = tmp_path / "commitlog" / f"{FILE_SIZE:020d}"
    # Nothing of the second file had reached the disk.
    second.write_bytes(bytes(FILE_SIZE))
    with open_store(tmp_path) as store:
        assert len(bodies(store)) == count - 1


@settings(deadline=None)
@given(st.binary(max_size=3000), st.data())
def test_any_bytes_are_checked_without_an_error(data, draw):
    end = draw.draw(st.integers(0, len(data)))
    padded = memoryview(data.ljust(len(data) + 200, b"\0"))
    assert -1 <= torn_at_the_end(padded, end) <= end


@settings(deadline=None)
@given(st.integers(0, 3 * SECTOR_SIZE), st.integers(0, 2000), st.data())
def test_a_record_that_lost_any_sectors_looks_torn_or_is_invalid(place, length, draw):
    """The exception is a record whose lost bytes were all zeros."""
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


# The records of rows: the compiled and the Python encoder agree, and the general decoder reads their records.

STORE_HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
HOST_V6 = bytes((0x20, 1, *bytes(13), 7, 0, 0, 0, 81))
HOSTS = st.sampled_from([STORE_HOST, HOST_V6])
ROWS_INT, ROWS_LONG = st.integers(0, 2**31 - 1), st.integers(0, 2**50)


@pytest.fixture(scope="module")
def compiled():
    """The compiled implementation."""
    module = pytest.importorskip("rmqha.native._message_rows", reason="no C compiler was there at the install")
    return module.records_of_rows


def send(queue_id: int = 0, body: bytes = b"body", size: int | None = None, **fields) -> MessageRow:
    """Make a row for the topic T."""
    tail = b"\1T\0\3k\1v"
    values = {"topic": "T", "queue_id": queue_id, "queue_key": f"T-{queue_id}",
              "size": size or HEADS[fields.get("sys_flag", 0) >> 4 & 3].size + len(body) + len(tail), "crc": 1,
              "flag": 2, "sys_flag": 0, "born_timestamp": 1_700_000_000_123,
              "born_host": bytes((10, 0, 0, 1, 0, 0, 0, 80)),
              "reconsume_times": 3, "body": body, "tail": tail} | fields
    return MessageRow(**values)


def total(sends: list[MessageRow]) -> int:
    """Return the total size of all records."""
    return sum(one.size for one in sends)


rows = st.lists(st.builds(send, st.integers(0, 2), st.binary(max_size=40).map(memoryview), crc=ROWS_INT, flag=ROWS_INT,
                          sys_flag=ROWS_INT, born_timestamp=ROWS_LONG, reconsume_times=ROWS_INT,
                          topic=st.sampled_from("TU"),
                          born_host=HOSTS),
                max_size=6)


@settings(max_examples=drawn(300))
@given(rows, st.dictionaries(st.sampled_from(["T-0", "T-1", "other"]), ROWS_LONG), ROWS_LONG, ROWS_LONG, HOSTS,
       ROWS_LONG)
def test_compiled_and_python_encoder_agree(compiled, sends, table, offset, now, store_host, prepared_offset):
    before = dict(table)
    arguments = sends, total(sends), table, offset, now, store_host, prepared_offset
    assert compiled(*arguments) == records_in_python(*arguments)
    assert table == before


@pytest.mark.parametrize("make", ["compiled", "python"])
def test_records_are_decoded_as_they_were_sent(request, make):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    sends = [send(1, b"first"), send(0, b""), send(1, b"x" * 300)]
    queue_offsets, physical_offsets, data, next_offsets, totals, with_nuls = records(
        sends, total(sends), {"T-1": 7}, 1000, 1_700_000_000_456, STORE_HOST)
    assert queue_offsets == [7, 0, 8] and next_offsets == {"T-1": 9, "T-0": 1}
    assert totals == {"T": (3, total(sends))} and with_nuls is None
    assert physical_offsets == [1000, 1000 + sends[0].size, 1000 + sends[0].size + sends[1].size]
    for one, queue_offset, offset in zip(sends, queue_offsets, physical_offsets, strict=True):
        message = message_decoder.decode(data[offset - 1000:offset - 1000 + one.size])
        assert (message.topic, message.queue_id, message.queue_offset, message.commit_log_offset) == (
            "T", one.queue_id, queue_offset, offset)
        assert (message.body or b"", message.flag, message.reconsume_times, message.properties["k"]) == (
            one.body, 2, 3, "v")
        assert (message.born_timestamp, message.store_timestamp) == (1_700_000_000_123, 1_700_000_000_456)
        assert (message.born_host, message.store_host) == (("10.0.0.1", 80), ("127.0.0.1", 10911))


@pytest.mark.parametrize("make", ["compiled", "python"])
@pytest.mark.parametrize("born_flag, born_host", [(0, ("127.0.0.1", 10911)), (BORNHOST_V6_FLAG, ("2001::7", 81))])
@pytest.mark.parametrize("store_flag, store_host", [(0, ("127.0.0.1", 10911)),
                                                    (STOREHOSTADDRESS_V6_FLAG, ("2001::7", 81))])
def test_records_of_other_hosts(request, make, born_flag, born_host, store_flag, store_host):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    one = send(sys_flag=born_flag | store_flag, born_host=HOST_V6 if born_flag else STORE_HOST)
    data = records([one], one.size, {}, 0, 1, HOST_V6 if store_flag else STORE_HOST)[2]
    message = message_decoder.decode(data)
    assert (message.born_host, message.store_host, message.body) == (born_host, store_host, b"body")


@pytest.mark.parametrize("make", ["compiled", "python"])
def test_prepared_and_rolled_back_messages_get_no_queue_offset(request, make):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    kinds = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_COMMIT_TYPE,
             sys_flags.TRANSACTION_ROLLBACK_TYPE, sys_flags.TRANSACTION_NOT_TYPE)
    sends = [send(sys_flag=kind) for kind in kinds]
    queue_offsets, _, data, next_offsets, *_ = records(sends, total(sends), {"T-0": 7}, 0, 1, STORE_HOST, 4711)
    assert queue_offsets == [0, 7, 0, 8] and next_offsets == {"T-0": 9}
    first = message_decoder.decode(data[:sends[0].size])
    assert (first.queue_offset, first.prepared_transaction_offset) == (0, 4711)
    assert records(sends[:1], sends[0].size, {}, 0, 1, STORE_HOST)[3] == {}


@pytest.mark.parametrize("make", ["compiled", "python"])
def test_rows_with_a_nul_in_their_properties_are_listed(request, make):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    tails = [b"", b"\1T\0\3k\1v", b"\1T\0\4k\1v\0", b"\1\0\0\3k\1v", b"\1T\0\0", b"\1T", b"\1T\0\1\0", b"\xff\0"]
    sends = [send(tail=tail, size=HEADS[0].size + 4 + len(tail)) for tail in tails]
    assert records(sends, total(sends), {}, 0, 1, STORE_HOST)[5] == [2, 6]


@pytest.mark.parametrize("make", ["compiled", "python"])
@pytest.mark.parametrize("more", [-1, 1])
def test_wrong_total_is_refused(request, make, more):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    sends = [send(), send()]
    with pytest.raises(ValueError, match="told as"):
        records(sends, total(sends) + more, {}, 0, 0, STORE_HOST)


@pytest.mark.parametrize("arguments, error", [
    ((([1],), 0, {}, 0, 0, STORE_HOST), TypeError), (([()], 0, {}, 0, 0, STORE_HOST), TypeError),
    (([send()], -1, {}, 0, 0, STORE_HOST), ValueError), (([send()], 100, {}, 0, 0, b"short"), ValueError),
    (([send(size=90)], 99, {}, 0, 0, STORE_HOST), ValueError),
    (([send(size=10**6)], 99, {}, 0, 0, STORE_HOST), ValueError),
    (([send(crc="no number")], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send(crc=2**70)], 99, {}, 0, 0, STORE_HOST), OverflowError),
    (([send(crc=2**31)], 99, {}, 0, 0, STORE_HOST), OverflowError),
    (([send(queue_id=-2**31 - 1)], 99, {}, 0, 0, STORE_HOST), OverflowError),
    (([send(body="text")], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send(tail=None)], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send(born_host=b"")], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send()], 99, {"T-0": -5}, 0, 0, STORE_HOST), ValueError),
    (([send()], 99, {"T-0": "x"}, 0, 0, STORE_HOST), TypeError),
], ids=str)
def test_compiled_encoder_refuses_invalid_arguments(compiled, arguments, error):
    with pytest.raises(error):
        compiled(*arguments)


# Checksums of blocks of the log, compared with zlib over its files.

# Files of the log; the first is deleted.
FILES = 5


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return a running store, the begin of its log, and the bytes of its files from there on."""
    root = tmp_path_factory.mktemp("log")
    with open_store(root) as store:
        size = 1
        while store.get_max_phy_offset() < FILES * FILE_SIZE - FILE_SIZE // 2:
            put(store, message(body=bytes(value % 251 for value in range(size))))
            size = size * 3 % 2003 + 1
        assert store.commit_log.delete_expired_file(0, 1, 0, True, lambda _ms: True) == 1
        store.commit_log.flush()
        begin, end = store.get_min_phy_offset(), store.get_max_phy_offset()
        assert 0 < begin < end
        files = sorted(Path(root, "commitlog").iterdir())
        yield store, begin, b"".join(file.read_bytes() for file in files)[:end - begin]


def by_zlib(begin: int, data: bytes, offset: int, block_size: int, count: int) -> list[int]:
    starts = (offset - begin + block_size * index for index in range(count)) if offset >= begin else ()
    return [zlib.crc32(data[start:start + block_size]) for start in starts if start + block_size <= len(data)]


@settings(max_examples=drawn(400), deadline=None)
@given(data=st.data())
def test_checksums_of_any_ranges_equal_zlibs(log, data):
    store, begin, held = log
    end = begin + len(held)
    edges = st.sampled_from([0, begin, end, *range(begin, end + 1, FILE_SIZE)])
    offset = max(0, data.draw(edges, "edge") + data.draw(st.integers(-40, 40), "beside"))
    block_size = data.draw(st.one_of(st.integers(1, 100), st.integers(1, 3 * FILE_SIZE)), "block size")
    count = data.draw(st.integers(1, 60), "count")
    crcs = by_zlib(begin, held, offset, block_size, count)
    assert block_checksums(store, offset, block_size, count) == crcs
    blocks = []
    assert block_checksums(store, offset, block_size, count, blocks) == crcs
    at = max(offset - begin, 0)
    assert b"".join(blocks) == held[at:at + block_size * len(crcs)] and len(blocks) == len(crcs)


def test_the_whole_log_can_be_one_block(log):
    store, begin, held = log
    assert block_checksums(store, begin, len(held), 1) == [zlib.crc32(held)]
    assert block_checksums(store, begin, len(held) + 1, 1) == []


def test_no_file_stays_in_use(log):
    store, begin, held = log
    block_checksums(store, begin, 777, 4096)
    assert {file.ref_count for file in store.commit_log.mapped_file_queue.mapped_files} == {1}
    assert block_checksums(store, 0, 8, 1) == []  # the first file begins later
    assert len(held) > 3 * FILE_SIZE
