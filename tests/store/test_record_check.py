"""Reading records for dispatch and recovery: every field, and any bytes."""
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.java import string_hash_code
from rmqha.common.message import message_layout as layout
from rmqha.store.record_check import check_message_and_return_size, skip_good_records
from tests.support.tiers import drawn


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
def test_properties_are_read_like_javas(properties, keys, uniq, tag):
    request = check(record(properties=properties))
    assert (request.keys, request.uniq_key) == (keys, uniq)
    assert request.tags_code == (string_hash_code(tag) if tag else 0)
    assert request.properties_map == (None if not properties else request.properties_map)


@pytest.mark.parametrize("level, expected", [("1", 18_000), ("5", 58_000), ("9", 58_000), ("0", string_hash_code("a")),
                                             ("-3", string_hash_code("a"))])
def test_scheduled_message_has_its_delivery_time_for_a_tags_code(level, expected):
    data = record("SCHEDULE_TOPIC_XXXX", properties=f"DELAY\x01{level}\x02TAGS\x01a")
    assert check(data, delay_levels=Levels).tags_code == expected
    assert check(record("other", properties=f"DELAY\x01{level}\x02TAGS\x01a"), delay_levels=Levels).tags_code == \
        string_hash_code("a")


def test_delay_level_that_is_no_number_counts_as_none():
    request = check(record("SCHEDULE_TOPIC_XXXX", properties="DELAY\x01x\x02TAGS\x01a"), delay_levels=Levels)
    assert request.success and request.tags_code == string_hash_code("a")


def test_blank_ends_a_file():
    request = check(layout.encode_blank(500))
    assert (request.success, request.msg_size) == (True, 0)


def test_crc_is_checked_when_asked():
    data = record(crc=1)
    assert check(data).success and check(data, check_crc=True, read_body=False).success
    assert (check(data, check_crc=True).success, check(data, check_crc=True).msg_size) == (False, -1)


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 50, 87, 88, 90, 93, 95, 100])
def test_record_that_is_cut_is_none(cut):
    request = check(record()[:cut])
    assert (request.success, request.msg_size) == (False, -1)


@pytest.mark.parametrize("total_size, size", [(90, 90), (5, 5), (2**31 - 1, 2**31 - 1), (0, -1), (-1, -1),
                                              (-2**31, -1)])
def test_size_that_does_not_add_up_is_told(total_size, size):
    data = struct.pack(">i", total_size) + record()[4:]
    request = check(data)
    assert (request.success, request.msg_size) == (False, size)


@pytest.mark.parametrize("at, value", [(84, -1), (84, 2**31 - 1), (84, -2**31), (84, 10**6)])
def test_absurd_lengths_are_no_record(at, value):
    data = bytearray(record())
    data[at:at + 4] = struct.pack(">i", value)
    assert not check(data).success


@settings(max_examples=drawn(500))
@given(st.binary(max_size=200), st.integers(0, 50))
def test_any_bytes_are_survived(data, position):
    request = check(struct.pack(">ii", len(data) + 8, layout.MESSAGE_MAGIC_CODE) + data, position=position,
                    check_crc=True, delay_levels=Levels)
    assert request.msg_size >= -1


@settings(max_examples=drawn(500))
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6), st.integers(0, 3))
def test_flipped_bytes_are_survived(flips, kind):
    data = bytearray(record(born="::1" if kind & 1 else "1.2.3.4", store="::1" if kind & 2 else "1.2.3.4"))
    for at, value in flips:
        data[at % len(data)] = value
    request = check(data, check_crc=True, delay_levels=Levels)
    if request.success and request.msg_size:
        assert request.msg_size == len(data)
        layout.decode_parts(data)


def placed(records):
    """Records one behind the other, each with its own place in it."""
    data = bytearray(b"".join(records))
    at = 0
    for each in records:
        data[at + 28:at + 36] = struct.pack(">q", 1000 + at)
        at += len(each)
    return data


@settings(max_examples=drawn(300))
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3), st.booleans(), st.integers(0, 5))
def test_fast_walk_skips_what_the_slow_one_finds_good(flips, check_crc, v6_at):
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


def test_fast_walk_stops_at_what_is_not_dispatched():
    data = placed([record()] * 3)
    seen = []
    size = len(data) // 3

    def is_dispatched(*args):
        seen.append(args)
        return len(seen) < 3

    assert skip_good_records(memoryview(data), 0, len(data), 1000, True, is_dispatched) == 2 * size
    assert seen == [(b"T", 3, 5, (number + 1) * size) for number in range(3)]
