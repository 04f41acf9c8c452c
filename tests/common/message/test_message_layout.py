"""The stored record: bytes of a real broker, round trips, damage, and walking from record to record."""
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import HEAD, MessageDecodeError, fits, is_blank, walk
from rmqha.store import record_check
from rmqha.store.ha.ha_transfer import RecordChain, RecordChainError, follow_records
from rmqha.store.ha.log_comparison import record_sizes, record_start
from tests.common.model_golden import golden
from tests.store.ha.support import FakeStore

# The stored record: bytes of a real broker, round trips, and damage.

INT = st.integers(-2**31, 2**31 - 1)
LONG = st.integers(-2**63, 2**63 - 1)
PORT = st.integers(0, 65535)
V4 = st.tuples(st.ip_addresses(v=4).map(str), PORT)
V6 = st.tuples(st.ip_addresses(v=6).filter(lambda address: address.ipv4_mapped is None).map(str), PORT)

RECORDS = golden("records")["records"]
V4_HOST = layout.host_to_bytes(("10.1.2.3", 40001))


def record(body: bytes = b"body", topic: str = "T", properties: bytes = b"a\x01b", sys_flag: int = 0) -> bytes:
    return layout.encode_record(layout.body_crc32(body), 1, 2, 3, 4, sys_flag, 5, V4_HOST, 6, V4_HOST, 7, 8, body,
                                layout.encode_topic(topic), properties)


@pytest.mark.parametrize("case", RECORDS, ids=lambda case: hex(case["sysFlag"]))
def test_head_of_java_records_is_read_field_by_field(case):
    data = bytes.fromhex(case["record"])
    parts = layout.decode_parts(data)
    head = parts.head
    assert head.total_size == len(data)
    assert head[1:10] == (layout.MESSAGE_MAGIC_CODE, case["bodyCrc"], 3, 7, 123456789012, 9876543210, case["sysFlag"],
                          1700000000123, layout.host_to_bytes((case["bornHost"], 40001)))
    assert head[10:14] == (1700000000456, layout.host_to_bytes((case["storeHost"], 10911)), 2, 55)
    assert data[parts.topic_position:parts.topic_position + parts.topic_length] == b"TopicTest"
    assert parts.properties_position + parts.properties_length == len(data)
    assert data[:4] + struct.pack(">i", layout.MESSAGE_MAGIC_CODE) == data[:8]


@pytest.mark.parametrize("case", RECORDS, ids=lambda case: hex(case["sysFlag"]))
def test_java_records_are_written_byte_for_byte(case):
    data = bytes.fromhex(case["record"])
    parts = layout.decode_parts(data)
    body = data[parts.body_position:parts.body_position + parts.head.body_length]
    topic = data[parts.topic_position - 1:parts.topic_position + parts.topic_length]
    assert layout.encode_record(*parts.head[2:14], body, topic, data[parts.properties_position:]) == data


@pytest.mark.parametrize("case", RECORDS, ids=lambda case: hex(case["sysFlag"]))
def test_positions_agree_with_the_head(case):
    data = bytes.fromhex(case["record"])
    head = layout.decode_header(data)
    flag = head.sys_flag
    assert layout.LONG.unpack_from(data, layout.store_timestamp_position(flag))[0] == head.store_timestamp
    assert layout.INT.unpack_from(data, layout.body_length_position(flag))[0] == head.body_length
    assert layout.OFFSETS.unpack_from(data, layout.QUEUE_OFFSET_POSITION) == (head.queue_offset, head.physical_offset)
    assert layout.PHYSICAL_OFFSET_POSITION == layout.QUEUE_OFFSET_POSITION + 8
    assert layout.INT.unpack_from(data, layout.SYSFLAG_POSITION)[0] == flag
    assert layout.LONG.unpack_from(data, layout.BORN_TIMESTAMP_POSITION)[0] == head.born_timestamp
    assert layout.INT.unpack_from(data, layout.QUEUE_ID_POSITION)[0] == head.queue_id
    assert layout.INT.unpack_from(data, layout.MESSAGE_FLAG_POSITION)[0] == head.flag
    assert layout.INT.unpack_from(data, layout.BODY_CRC_POSITION)[0] == head.body_crc
    assert data[layout.BORN_HOST_POSITION:][:len(head.born_host)] == head.born_host


@given(st.tuples(INT, INT, INT, LONG, LONG), INT, st.tuples(LONG, LONG), V4 | V6, V4 | V6, INT, LONG,
       st.binary(max_size=200), st.text("abcXYZ%-_|", max_size=40), st.binary(max_size=100))
def test_records_survive_a_round_trip(numbers, flag, times, born, store, reconsume, prepared, body, topic, properties):
    born_bytes, store_bytes = layout.host_to_bytes(born), layout.host_to_bytes(store)
    flag = flag & ~layout.V6_FLAGS | layout.host_flags(born_bytes, store_bytes)
    data = layout.encode_record(*numbers, flag, times[0], born_bytes, times[1], store_bytes, reconsume, prepared, body,
                                layout.encode_topic(topic), properties)
    padded = b"xyz" + data + b"behind"
    parts = layout.decode_parts(memoryview(padded), 3)
    head = parts.head
    assert len(data) == head.total_size == layout.cal_msg_length(flag, len(body), len(topic), len(properties))
    assert head[2:14] == (*numbers, flag, times[0], born_bytes, times[1], store_bytes, reconsume, prepared)
    assert padded[parts.body_position:][:head.body_length] == body
    assert padded[parts.topic_position:][:parts.topic_length].decode() == topic
    assert padded[parts.properties_position:][:parts.properties_length] == properties
    assert layout.bytes_to_host(head.born_host) == (born[0], born[1])
    assert layout.bytes_to_host(head.store_host) == (store[0], store[1])


@given(st.data())
def test_no_flipped_byte_causes_a_read_beyond_the_record(data):
    good = record()
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        parts = layout.decode_parts(damaged)
    except MessageDecodeError:
        return
    assert parts.properties_position + parts.properties_length == len(damaged)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_an_error(data):
    try:
        parts = layout.decode_parts(data)
    except MessageDecodeError:
        return
    assert parts.head.total_size <= len(data)


@pytest.mark.parametrize("length", range(len(record())))
def test_truncated_records_are_errors(length):
    with pytest.raises(MessageDecodeError):
        layout.decode_parts(record()[:length])


@pytest.mark.parametrize(("position", "form", "value", "reason"), [
    (0, ">i", 2**31 - 1, "total size 2147483647"),
    (0, ">i", -1, "total size -1"),
    (0, ">i", 90, "total size 90"),
    (4, ">i", layout.BLANK_MAGIC_CODE, "illegal magic code 0xcbd43194"),
    (84, ">i", -1, "body length -1"),
    (84, ">i", 2**31 - 1, "body length 2147483647"),
    (92, ">b", -1, "topic length 255"),
    (92, ">b", 127, "topic length 127"),
    (94, ">h", -1, "properties length -1"),
    (94, ">h", 2, "properties length 2"),
    (94, ">h", 32767, "properties length 32767"),
    (36, ">i", 0x30, "within the head"),
])
def test_invalid_length_is_named(position, form, value, reason):
    damaged = bytearray(record())
    struct.pack_into(form, damaged, position, value)
    with pytest.raises(MessageDecodeError, match=reason) as caught:
        layout.decode_parts(bytes(5) + damaged, 5)
    assert caught.value.position == 5


def test_lengths_equal_javas():
    assert layout.cal_msg_length(0, 0, 0, 0) == 91
    assert layout.cal_msg_length(0, -1, 5, -1) == 96
    assert layout.cal_msg_length(0x10, 10, 5, 3) == 91 + 12 + 18
    assert layout.cal_msg_length(0x30, 0, 0, 0) == 115


def test_blank_is_eight_bytes():
    assert layout.encode_blank(4096).hex() == "00001000cbd43194"
    assert layout.BLANK.unpack(layout.encode_blank(8)) == (8, layout.BLANK_MAGIC_CODE)


def test_crc_drops_its_top_bit():
    assert layout.body_crc32(b"") == 0
    assert layout.body_crc32(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


@pytest.mark.parametrize(("flag", "host"), [(0x10, V4_HOST), (0x20, V4_HOST), (0, layout.host_to_bytes(("::1", 1)))])
def test_ipv6_bits_that_contradict_the_hosts_are_refused(flag, host):
    with pytest.raises(ValueError, match="IPv6|fit"):
        layout.encode_record(0, 0, 0, 0, 0, flag, 0, host, 0, V4_HOST, 0, 0, b"", b"\x01T", b"")


def test_fields_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="does not fit"):
        record(properties=bytes(32768))
    with pytest.raises(ValueError, match="does not fit"):
        layout.encode_record(0, 2**31, 0, 0, 0, 0, 0, V4_HOST, 0, V4_HOST, 0, 0, b"", b"\x01T", b"")
    with pytest.raises(ValueError, match="128 bytes"):
        layout.encode_topic("t" * 128)
    assert len(record(properties=bytes(32767), topic="t" * 127)) == 91 + 4 + 127 + 32767


def test_hosts_of_java_and_of_python_have_the_same_bytes():
    assert layout.host_to_bytes(("192.168.0.1", 10911)).hex() == "c0a8000100002a9f"
    assert layout.host_to_bytes(("::ffff:192.168.0.1", 10911)).hex() == "c0a8000100002a9f"
    assert layout.host_to_bytes(("2001:db8::5", 1)).hex() == "20010db800000000000000000000000500000001"
    assert layout.bytes_to_host(bytes.fromhex("c0a8000100002a9f")) == ("192.168.0.1", 10911)
    for wrong in (b"", bytes(7), bytes(9), bytes(21)):
        with pytest.raises(ValueError, match="8 or 20"):
            layout.bytes_to_host(wrong)
    with pytest.raises(ValueError, match="broker"):
        layout.host_to_bytes(("broker.example", 1))


@given(st.lists(st.tuples(INT, st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_batches_survive_a_round_trip(messages):
    data = b"".join(layout.encode_batch_message(*message) for message in messages)
    assert [tuple(message) for message in layout.iterate_batch(data)] == messages


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_an_error(data):
    try:
        messages = list(layout.iterate_batch(data))
    except MessageDecodeError:
        return
    assert sum(22 + len(message.body) + len(message.properties) for message in messages) == len(data)


@pytest.mark.parametrize(("position", "form", "value"), [
    (16, ">i", -1), (16, ">i", 2**31 - 1), (16, ">i", 5), (24, ">h", -1), (24, ">h", 1), (24, ">h", 32767)])
def test_batches_with_wrong_inner_sizes_are_errors(position, form, value):
    damaged = bytearray(layout.encode_batch_message(0, b"body", b""))
    struct.pack_into(form, damaged, position, value)
    with pytest.raises(MessageDecodeError):
        list(layout.iterate_batch(damaged))


def test_total_size_inside_a_batched_message_is_ignored_as_in_java():
    damaged = bytearray(layout.encode_batch_message(9, b"body", b"p"))
    struct.pack_into(">iii", damaged, 0, -5, 77, 88)
    assert list(layout.iterate_batch(damaged)) == [(9, b"body", b"p")]


# All code that walks from record to record takes the same steps and applies the same checks. It is compared with
# readers written for this test alone, in logs of records, blanks and bytes that are neither.

MESSAGE, BLANK = struct.pack(">I", 0xDAA320A7), struct.pack(">I", 0xCBD43194)
SEGMENT = 512
HOST = layout.host_to_bytes(("10.0.0.1", 10911))


def good_record(body_length: int) -> bytes:
    body = b"b" * body_length
    return layout.encode_record(layout.body_crc32(body), 0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, body,
                                layout.encode_topic("T"), b"a\x01b\x02")


def head(size: int, magic: bytes, length: int) -> bytes:
    """Return a record or blank that claims `size` bytes and occupies `length`."""
    return struct.pack(">i", size) + magic + bytes(max(length - 8, 0))


SIZES = st.integers(-1, 120) | st.sampled_from([SEGMENT, SEGMENT + 1, 2**31 - 1, -2**31])
PIECES = st.one_of(
    st.integers(0, 60).map(good_record),
    st.integers(9, 120).map(lambda size: head(size, MESSAGE, size)),
    st.builds(head, SIZES, st.sampled_from([MESSAGE, BLANK, bytes(4), b"\xda\xa3 \xa8"]), st.integers(8, 120)),
    st.binary(max_size=20), st.integers(0, 40).map(bytes), st.just("to the end"))


@st.composite
def logs(draw):
    """Draw the bytes of one file, which may end anywhere."""
    data = b""
    for piece in draw(st.lists(PIECES, max_size=8)):
        data += head(SEGMENT - len(data), BLANK, SEGMENT - len(data)) if isinstance(piece, str) else piece
    return data[:draw(st.integers(0, SEGMENT) | st.just(SEGMENT))]


def number(data: bytes, position: int) -> int:
    return int.from_bytes(data[position:position + 4], "big", signed=True)


def size_there(data: bytes, position: int, room: int) -> int:
    """Return the size of the record or blank; 0 if there is none or its head is incomplete."""
    size, magic = number(data, position), data[position + 4:position + 8]
    whole = len(data) - position >= 8
    return size if whole and (magic == MESSAGE and 8 < size <= room or magic == BLANK and size == room) else 0


def store_of(data: bytes) -> FakeStore:
    store = FakeStore(mappedFileSizeCommitLog=SEGMENT)
    store.segments[0] = bytearray(data)
    return store


@settings(deadline=None)
@given(logs(), st.integers(0, SEGMENT))
def test_torn_record_check_visits_records_up_to_the_first_invalid_one(data, end):
    expected, at = [], 0
    while at < end and len(data) - at >= 8 and number(data, at) > 0 and data[at + 4:at + 8] == MESSAGE:
        expected.append((at, number(data, at)))
        at += number(data, at)
    assert list(record_check.records(memoryview(data), 0, end)) == expected


@settings(deadline=None)
@given(logs(), st.integers(1, SEGMENT - 1))
def test_comparison_finds_the_start_of_a_record(data, offset):
    limit, at, expected = min(offset, len(data)), 0, None
    while at < limit and expected is None:
        size = size_there(data, at, SEGMENT - at)
        if not size:
            expected = -1
        elif at + size > limit:
            expected = at
        at += size
    expected = at if expected is None else expected
    assert record_start(store_of(data), offset) == (expected if data else -1)


@settings(deadline=None)
@given(logs().filter(len), st.data())
def test_comparison_treats_everything_after_an_invalid_record_as_one_piece(data, choose):
    first = choose.draw(st.integers(0, len(data) - 1))
    end = choose.draw(st.integers(first, len(data)))
    expected, at = [], first
    while at < end:
        size = size_there(data, at, SEGMENT - at) or len(data) - at
        expected.append(min(size, len(data) - at))
        at += expected[-1]
    assert list(record_sizes(store_of(data), first, end)) == expected


@settings(deadline=None)
@given(logs(), st.lists(st.integers(0, SEGMENT)).map(sorted))
@example(head(SEGMENT, BLANK, SEGMENT), [3])
def test_slave_follows_the_chain_up_to_the_first_flaw(data, cuts):
    at = 0
    while len(data) - at >= 8 and size_there(data, at, SEGMENT - at):
        at += number(data, at)
    flaw = at if len(data) - at >= 8 else -1
    chain, begin, found = RecordChain(0), 0, -1
    try:
        for cut in [min(cut, len(data)) for cut in cuts] + [len(data)]:
            chain = follow_records(chain, begin, memoryview(data), begin, cut - begin, SEGMENT)
            begin = cut
    except RecordChainError as error:
        found = int(str(error).split()[7].rstrip(":"))
    assert found == flaw
    if flaw < 0:
        assert chain == RecordChain(at, data[at:])


@settings(deadline=None)
@given(logs(), st.integers(0, 100), st.integers(0, SEGMENT))
@example(head(20, MESSAGE, 8), 0, 8)
@example(head(20, MESSAGE, 8)[:7], 0, 8)
def test_walk_yields_heads_without_checks(data, position, end):
    expected, at = [], position
    while at < end and len(data) - at >= 8:
        expected.append((at, number(data, at), number(data, at + 4)))
        if number(data, at) <= 0:
            break
        at += number(data, at)
    assert list(walk(data, position, end)) == expected


@pytest.mark.parametrize("size, magic, room, does", [
    (9, MESSAGE, 9, True), (8, MESSAGE, 9, False), (10, MESSAGE, 9, False), (-9, MESSAGE, 9, False),
    (8, BLANK, 8, True), (9, BLANK, 10, False), (11, BLANK, 10, False), (9, bytes(4), 9, False)])
def test_fits(size, magic, room, does):
    assert fits(size, number(magic, 0), room) is does


def test_blank_is_recognised_by_its_magic_code_alone():
    assert is_blank(head(-5, BLANK, 8)) and not is_blank(head(8, MESSAGE, 8))
    assert not is_blank(head(8, BLANK, 8)[:7]) and HEAD.size == 8
