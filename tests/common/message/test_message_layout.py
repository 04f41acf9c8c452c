"""The stored record: bytes of a real broker, round trips, and damage."""
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.common.message.message_layout import MessageDecodeError
from tests.common.model_golden import golden

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
def test_records_come_back(numbers, flag, times, born, store, reconsume, prepared, body, topic, properties):
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
def test_no_flipped_byte_is_read_beyond_the_record(data):
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
def test_cut_records_are_errors(length):
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
def test_a_wrong_length_is_named(position, form, value, reason):
    damaged = bytearray(record())
    struct.pack_into(form, damaged, position, value)
    with pytest.raises(MessageDecodeError, match=reason) as caught:
        layout.decode_parts(bytes(5) + damaged, 5)
    assert caught.value.position == 5


def test_lengths_are_javas():
    assert layout.cal_msg_length(0, 0, 0, 0) == 91
    assert layout.cal_msg_length(0, -1, 5, -1) == 96
    assert layout.cal_msg_length(0x10, 10, 5, 3) == 91 + 12 + 18
    assert layout.cal_msg_length(0x30, 0, 0, 0) == 115


def test_blank_is_eight_bytes():
    assert layout.encode_blank(4096).hex() == "00001000cbd43194"
    assert layout.BLANK.unpack(layout.encode_blank(8)) == (8, layout.BLANK_MAGIC_CODE)


def test_crc_loses_its_top_bit():
    assert layout.body_crc32(b"") == 0
    assert layout.body_crc32(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


@pytest.mark.parametrize(("flag", "host"), [(0x10, V4_HOST), (0x20, V4_HOST), (0, layout.host_to_bytes(("::1", 1)))])
def test_ipv6_bits_that_do_not_fit_the_hosts_are_refused(flag, host):
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


def test_hosts_of_java_and_of_python_are_the_same_bytes():
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
def test_batches_come_back(messages):
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
def test_batches_whose_inner_sizes_lie_are_errors(position, form, value):
    damaged = bytearray(layout.encode_batch_message(0, b"body", b""))
    struct.pack_into(form, damaged, position, value)
    with pytest.raises(MessageDecodeError):
        list(layout.iterate_batch(damaged))


def test_a_batch_messages_own_total_size_is_ignored_as_in_java():
    damaged = bytearray(layout.encode_batch_message(9, b"body", b"p"))
    struct.pack_into(">iii", damaged, 0, -5, 77, 88)
    assert list(layout.iterate_batch(damaged)) == [(9, b"body", b"p")]
