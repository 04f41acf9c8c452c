"""Columns made of whole blocks say what the decoder of single messages says, whatever is in the records."""
import os
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.filesystem import Segment
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_decoder import decode
from rmqha.common.sys_flags import COMPRESSED_FLAG
from rmqha.pipeline.format_options import Options
from rmqha.pipeline.log.columns import BlockColumns
from rmqha.pipeline.log.log_ends import file_end, log_end
from rmqha.pipeline.log.log_scan import (
    ROW,
    Block,
    ByteRange,
    Hole,
    LogFiles,
    find_record,
    scan_range,
    whole_file,
)
from rmqha.pipeline.table import FURTHER, ROCKETMQ, arrow_schema, table_schema

HOSTS = [layout.host_to_bytes(host) for host in (("127.0.0.1", 10911), ("10.1.2.3", 4), ("::1", 5), ("fe80::2", -1))]
ALL = Options({"columns": ",".join([*ROCKETMQ, *FURTHER])}, ("columns", "schema"), "test")
SCHEMA = arrow_schema(table_schema(ALL))

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\1\2"), max_size=12)
orderly = st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "名"]) | texts.filter(bool),
                          texts.filter(bool), max_size=5)
properties = st.one_of(
    orderly.map(lambda pairs: "\2".join(f"{name}\1{value}" for name, value in pairs.items()).encode()),
    orderly.map(lambda pairs: "".join(f"{name}\1{value}\2" for name, value in pairs.items()).encode()),
    st.lists(st.sampled_from([b"\1", b"\2", b"a", b"KEYS", b"TAGS", b"\0", b"\xff", "é".encode()]),
             max_size=12).map(b"".join))
numbers = st.integers(0, (1 << 31) - 1)
records = st.lists(st.tuples(
    st.sampled_from(HOSTS), st.sampled_from(HOSTS), st.binary(max_size=60), st.sampled_from(["T", "other", "主题"]),
    properties, numbers, st.integers(0, 7), st.booleans(), st.sampled_from([0, 1, 1_700_000_000_123, 1 << 62])),
    min_size=1, max_size=12)


def encode(described, begin: int) -> bytes:
    """A log from offset `begin` on."""
    data = b""
    for born, stored, body, topic, props, number, queue_id, packed, time in described:
        sys_flag = layout.host_flags(born, stored) | (COMPRESSED_FLAG if packed else 0)
        body = zlib.compress(body) if packed else body
        data += layout.encode_record(layout.body_crc32(body), queue_id, number, number * 2, begin + len(data), sys_flag,
                                     time, born, 1_700_000_000_000 + number, stored, number % 5, number * 3, body,
                                     layout.encode_topic(topic), props)
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("columns"))


def write(folder: str, data: bytes, start: int, size: int) -> str:
    path = os.path.join(folder, f"{start:020d}")
    with open(path, "wb") as file:
        file.write(data)
        file.truncate(size)
    return path


def text(host) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def check_row(row: dict, data: bytes, base: int) -> None:
    """One row against the decoder."""
    position = row["physicalOffset"] - base
    message = decode(data, position=position)
    got = {"topic": message.topic, "flag": message.flag, "body": bytes(message.body), "queueId": message.queue_id,
           "queueOffset": message.queue_offset, "storeSize": message.store_size, "sysFlag": message.sys_flag,
           "bodyCrc": message.body_crc, "reconsumeTimes": message.reconsume_times, "keys": message.keys,
           "preparedTransactionOffset": message.prepared_transaction_offset, "tags": message.tags,
           "bornHost": text(message.born_host), "storeHost": text(message.store_host), "crcOk": True,
           "uniqKey": message.properties.get("UNIQ_KEY"), "brokerName": "store"}
    assert {name: row[name] for name in got} == got
    assert dict(row["properties"]) == message.properties
    assert row["storeTimestamp"].timestamp() * 1000 == message.store_timestamp
    assert (row["bornTimestamp"] is None) == (message.born_timestamp > 1 << 60)
    head = layout.HEADS[message.sys_flag >> 4 & 3].size
    stored = bytes(row["envelope"][:head] + row["storedBody"] + row["envelope"][head:])
    assert stored == data[position:position + message.store_size]


@settings(max_examples=60, deadline=None)
@given(records, st.integers(0, 3))
def test_columns_are_what_the_decoder_says(folder, described, file_number):
    start = file_number * 100_000
    data = encode(described, start)
    path = write(folder, data, start, len(data))
    rows = []
    for block in scan_range(ByteRange(path, start, start, start + len(data), start + len(data), True), True):
        assert isinstance(block, Block)
        rows += BlockColumns(block, None, "store", True).batch(SCHEMA).to_pylist()
    assert len(rows) == len(described)
    for row in rows:
        check_row(row, data, start)


# Zeros, and high bits that make numbers of the head and lengths negative, as well as any bytes.
damage = st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=40) | st.integers(1, 200).map(bytes)
                   | st.integers(1, 8).map(lambda count: b"\x80" * count))


@settings(max_examples=60, deadline=None)
@given(records, st.lists(damage, max_size=4), st.integers(40, 900), st.booleans())
def test_damaged_logs_cut_anywhere_give_each_record_once_and_each_hole(folder, described, damages, size, check_crc):
    data = bytearray(encode(described, 0))
    for at, what in damages:
        data[at:at + len(what)] = what[:max(len(data) - at, 0)]
    path, length = write(folder, bytes(data), 0, len(data)), len(data)
    whole = list(_found(path, [(0, length)], length, check_crc))
    assert list(_found(path, _cut(length, size), length, check_crc)) == whole
    position = 0
    for _, offset, found_size, _ in whole:
        assert offset == position and found_size > 0
        position += found_size
    assert position == length


def _cut(length, size):
    return [(at, min(at + size, length)) for at in range(0, length, size)]


def _found(path, ranges, limit, check_crc):
    for begin, end in ranges:
        for found in scan_range(ByteRange(path, 0, begin, end, limit, begin == 0), check_crc):
            if isinstance(found, Hole):
                yield "hole", found.offset, found.size, found.reason
            else:
                for row in found.rows:
                    yield "record", int(row["offset"]), int(row["size"]), found.crc_ok if check_crc else None


def _plain(count, begin=0, body=b"x" * 50, time=1):
    return encode([(HOSTS[0], HOSTS[0], body, "T", b"", number, 0, False, time) for number in range(count)], begin)


@pytest.mark.parametrize("check_crc", [False, True])
def test_records_with_a_store_time_before_1970_are_read_wherever_ranges_are_cut(folder, check_crc):
    data = b""
    for time in (5, -1, -1 << 63, 6):
        data += _plain(1, len(data), time=time)
    path, length = write(folder, data, 0, len(data)), len(data)
    for size in range(1, length + 1):
        found = list(_found(path, _cut(length, size), length, check_crc))
        assert [each[:3] for each in found] == [("record", at, length // 4) for at in range(0, length, length // 4)]


def test_a_record_whose_first_zeros_lie_in_a_hole_of_a_sparse_file_is_read_once(folder):
    begin, page = (1 << 16) - 2, 1 << 16
    data = _plain(3, begin)
    assert data[:2] == b"\0\0"
    path, length = os.path.join(folder, "sparse"), begin + len(data)
    with open(path, "wb") as file:
        file.seek(page)
        file.write(data[2:])
    whole = list(_found(path, [(0, length)], length, True))
    assert whole[0] == ("hole", 0, begin, "nothing was written here") and len(whole) == 4
    for size in (1000, begin - 1, begin, begin + 1, page, page + 1):
        assert list(_found(path, _cut(length, size), length, True)) == whole


def test_a_file_that_became_shorter_gives_one_hole_up_to_its_planned_end_wherever_ranges_are_cut(folder):
    data = _plain(4)
    size = len(data) // 4
    for kept, reason in ((2 * size, "the file ends here"), (2 * size + 30, "the record is cut off"),
                         (3 * size - 1, "the record is cut off")):
        path = write(folder, data[:kept], 0, kept)
        wanted = [("record", 0, size, True), ("record", size, size, True), ("hole", 2 * size, 2 * size, reason)]
        for step in range(20, len(data) + 1, 7):
            assert list(_found(path, _cut(len(data), step), len(data), True)) == wanted


def test_a_record_within_the_body_of_another_is_the_only_thing_that_cuts_add(folder):
    first = _plain(2)
    inner_at = len(first) + layout.HEAD_LENGTH + 7
    inner = _plain(3, inner_at)
    outer = _plain(1, len(first), b"stored:" + inner + b"; and more")
    data = first + outer + _plain(3, len(first) + len(outer))
    path, length, size = write(folder, data, 0, len(data)), len(data), len(inner) // 3
    whole = list(_found(path, [(0, length)], length, True))
    assert [each[0] for each in whole] == ["record"] * 6
    added = set()
    for step in range(1, length + 1):
        cut = list(_found(path, _cut(length, step), length, True))
        assert [each for each in cut if each in whole] == whole
        more = [each for each in cut if each not in whole]
        assert len(set(more)) == len(more)
        assert all(len(first) < offset and offset + found_size <= len(first) + len(outer)
                   for _, offset, found_size, _ in more)
        added |= {offset for kind, offset, _, _ in more if kind == "record"}
    assert added == {inner_at, inner_at + size, inner_at + 2 * size}


def test_the_end_of_a_file_that_became_shorter_lies_behind_its_last_whole_record(folder):
    data = _plain(4)
    size = len(data) // 4
    for kept in (2 * size, 2 * size + 30, 3 * size - 1):
        path = write(folder, data[:kept], 0, kept)
        assert file_end(Segment(0, path, len(data)), 0) == 2 * size


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400), records)
def test_any_bytes_behind_a_log_do_not_move_its_end_back(folder, rest, described):
    data = encode(described, 0)
    path = write(folder, data + rest, 0, len(data) + len(rest) + 64)
    log = LogFiles("store", folder, [Segment(0, path, os.path.getsize(path))])
    # a last record whose properties end with a 0 may look unfinished
    assert log_end(log) >= len(data) or data.endswith(b"\0")


def test_a_record_is_found_wherever_it_begins(folder):
    data = encode([(HOSTS[0], HOSTS[0], b"x" * 50, "T", b"", number, 0, False, 1) for number in range(9)], 0)
    path, size = write(folder, data, 0, len(data)), len(data) // 9
    fd = os.open(path, os.O_RDONLY)
    try:
        span = whole_file(Segment(0, path, len(data)))
        for begin in range(len(data)):
            wanted = -(-begin // size) * size
            assert find_record(fd, span, begin, len(data)) == (wanted if wanted < len(data) else None)
    finally:
        os.close(fd)


def test_an_empty_block_has_every_column():
    block = Block(b"", 0, np.zeros(0, ROW), [], True)
    assert BlockColumns(block, None, None, False).batch(SCHEMA).num_rows == 0
