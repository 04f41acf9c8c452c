"""The bulk kernel: its two implementations agree with each other and with the single-record path."""
import mmap
import random
import struct
import sys
import threading
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.java import string_hash_code
from rmqha.common.message import message_layout as layout
from rmqha.store.bulk import bulk, bulk_python
from rmqha.store.bulk.bulk_layout import KEY, MAX_LIMIT, RECORD, IndexCounters, Run, Stop, TopicShare, Walk
from rmqha.store.consume_queue_layout import pack_unit
from rmqha.store.record_check import check_message_and_return_size
from tests.store.bulk.records import LONG, expected, facts, spans
from tests.support.tiers import drawn

DELAYS = st.one_of(st.none(), st.just(()), st.just((1000, 5000, 10_000)), st.just((-1, (1 << 62), 7)))


def pytest_generate_tests(metafunc):
    if "kernel" in metafunc.fixturenames:
        metafunc.parametrize("kernel", ["python", "compiled"], indirect=True)


@pytest.fixture
def kernel(request, monkeypatch):
    """`bulk` with one of the implementations."""
    monkeypatch.setattr(bulk, "_kernel", bulk_python if request.param == "python" else compiled_kernel())
    return bulk


def compiled_kernel():
    return pytest.importorskip("rmqha.native._bulk", reason="the compiled kernel is not there: no C compiler")


def record(at=0, topic="T", body=b"body", properties="TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u", queue_offset=5,
           queue_id=3, sys_flag=0, crc=None, host="10.0.0.1", store_timestamp=8000):
    address = layout.host_to_bytes((host, 1))
    data = properties if isinstance(properties, bytes) else properties.encode()
    return layout.encode_record(
        layout.body_crc32(body) if crc is None else crc, queue_id, 4, queue_offset, at,
        sys_flag | layout.host_flags(address, address), 7, address, store_timestamp, address, 9, 10, body,
        layout.encode_topic(topic) if isinstance(topic, str) else bytes([len(topic)]) + topic, data)


def log_of(*records_without_place):
    """Concatenate records, given by their arguments."""
    data = b""
    for arguments in records_without_place:
        data += record(len(data), **arguments)
    return data


def whole(kernel, data, **how):
    return kernel.scan(data, 0, len(data), 0, **how)


# Random spans.

@settings(max_examples=drawn(150), deadline=None)
@given(spans(), st.booleans(), DELAYS, st.booleans(), st.sampled_from([1, 2, 1000]))
def test_both_implementations_scan_as_the_single_record_path(span, check_crc, delays, multi_dispatch, limit):
    results = []
    for kernel in (bulk_python, compiled_kernel()):
        results.append(kernel.scan(*span, check_crc, delays, multi_dispatch, limit))
    assert results[0] == results[1]
    assert facts(bulk.scan(*span, check_crc, delays, multi_dispatch, limit)) == \
        expected(*span, check_crc, delays, multi_dispatch, limit)


@settings(max_examples=drawn(150), deadline=None)
@given(spans(), st.booleans())
def test_both_implementations_walk_as_the_single_record_check(span, check_crc):
    buffer, start, end, _ = span
    view, position, count = memoryview(buffer)[:end], start, 0
    success, size = True, 0
    while position < end:
        request = check_message_and_return_size(view, position, check_crc)
        success, size = request.success, request.msg_size
        if not success or size == 0:
            break
        position, count, size = position + size, count + 1, 0
    for kernel in (bulk_python, compiled_kernel()):
        found = kernel.walk(buffer, start, end, check_crc, -1, False)
        assert (found[0], found[1], found[3]) == (count, position, size)
        assert (found[2] in (Stop.END, Stop.BLANK)) == success


@settings(max_examples=drawn(150), deadline=None)
@given(st.binary(max_size=300), st.integers(0, 40), st.booleans())
def test_any_bytes_after_a_magic_code_are_handled(data, start, check_crc):
    buffer = bytes(start) + struct.pack(">ii", len(data) + 8, layout.MESSAGE_MAGIC_CODE) + data
    results = [kernel.scan(buffer, start, len(buffer), 0, check_crc, (1,), True, 10)
               for kernel in (bulk_python, compiled_kernel())]
    assert results[0] == results[1]


@settings(max_examples=drawn(150), deadline=None)
@given(st.binary(max_size=40), st.booleans())
def test_valid_utf8_is_recognized_as_python_does(data, as_topic):
    buffer = record(topic=data, properties=b"") if as_topic else record(properties=b"TAGS\x01" + data)
    results = [kernel.scan(buffer, 0, len(buffer), 0, True, None, False, 10)
               for kernel in (bulk_python, compiled_kernel())]
    assert results[0] == results[1]
    assert facts(bulk.scan(buffer, 0, len(buffer), 0)) == expected(buffer, 0, len(buffer), 0, False, None)


@pytest.mark.parametrize("lengths", [range(1, 300), range(4000, 4070, 3), [70_001]], ids=str)
def test_crc_of_a_body_equals_zlibs_for_any_length_and_alignment(lengths):
    pick = random.Random(len(lengths))
    for length in lengths:
        before, body = pick.randrange(64), pick.randbytes(length)
        good = bytes(before) + record(body=body)
        assert compiled_kernel().walk(good, before, len(good), True, -1, False)[2] == Stop.END
        bad, place = bytearray(good), before + layout.HEAD_LENGTH + pick.choice((0, length - 1, pick.randrange(length)))
        bad[place] ^= 1 << pick.randrange(8)
        assert compiled_kernel().walk(bad, before, len(bad), True, -1, False)[2] == Stop.BAD_CRC


# Results of a scan.

def test_rows_hold_the_fields_of_the_record(kernel):
    data = record()
    span = whole(kernel, data, check_crc=True)
    assert span[:4] == (1, len(data), Stop.END, 0)
    assert span.topics == [TopicShare("T", 1, len(data))]
    tags_code = string_hash_code("a")
    assert list(RECORD.iter_unpack(span.records)) == [(0, 5, tags_code, 8000, len(data), 3, 0, 0)]
    assert (span.runs, span.units) == ([Run(5, 8000, 0, 3, 0, 1)], pack_unit(0, len(data), tags_code))
    assert list(KEY.iter_unpack(span.keys)) == [
        (0, 8000, abs(string_hash_code(key)), 0) for key in ("T#u", "T#k1", "T#k2")]


@pytest.mark.parametrize("tag", ["TagA", "\u6807\u7b7e", "\U0001f600", "\u00e9\U0001f468\u200d\U0001f469", "a" * 1000])
@pytest.mark.parametrize("host", ["10.0.0.1", "::1"])
def test_tags_code_and_keys_are_hashed_as_java_hashes_utf16(kernel, tag, host):
    data = log_of({"topic": "\u4e3b\u9898", "properties": f"TAGS\x01{tag}\x02KEYS\x01{tag} x", "host": host})
    span = whole(kernel, data)
    assert RECORD.unpack(span.records)[2] == string_hash_code(tag)
    assert [row[2] for row in KEY.iter_unpack(span.keys)] == [
        abs(string_hash_code(f"\u4e3b\u9898#{key}")) for key in (tag, "x")]


def test_hash_of_the_lowest_integer_is_0_in_the_index(kernel):
    lowest = "!ybriwe"  # "T#!ybriwe".hashCode() is Integer.MIN_VALUE
    assert string_hash_code("T#" + lowest) == string_hash_code("polygenelubricants") == -(1 << 31)
    span = whole(kernel, record(properties=f"UNIQ_KEY\x01{lowest}\x02TAGS\x01polygenelubricants"))
    assert RECORD.unpack(span.records)[2] == -(1 << 31)
    assert KEY.unpack(span.keys)[2] == 0


@pytest.mark.parametrize("data", [
    "80", "bf", "c080", "c1bf", "c2", "c27f", "e08080", "e09fbf", "e282", "e28228", "eda080", "edbfbf", "f0808080",
    "f08fbfbf", "f09f98", "f09f9828", "f4908080", "f5808080", "ff", "61c2", "6161616161c3"])
def test_malformed_utf8_is_left_to_the_single_record_path(kernel, data):
    for tail in (b"", b" b", b"abcdef"):
        for name in (b"TAGS", b"KEYS", b"UNIQ_KEY"):
            span = whole(kernel, record(properties=name + b"\x01" + bytes.fromhex(data) + tail))
            assert (span.count, span.stop) == (0, Stop.ODD)


@pytest.mark.parametrize("text", ["\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000",
                                  "\U0010ffff"])
def test_boundary_code_points_of_utf8_are_valid(kernel, text):
    span = whole(kernel, record(properties=f"TAGS\x01abcdefg{text}h{text}"))
    assert RECORD.unpack(span.records)[2] == string_hash_code(f"abcdefg{text}h{text}")


def test_units_are_grouped_by_queue_and_run(kernel):
    numbers = [(0, 10), (1, 7), (0, 11), (1, 9), (0, 12), (1, 10), (0, 12)]
    data = log_of(*({"queue_id": queue_id, "queue_offset": number} for queue_id, number in numbers))
    span = whole(kernel, data)
    size = len(data) // len(numbers)
    assert [(run.queue_id, run.queue_offset, run.first_unit, run.count) for run in span.runs] == [
        (0, 10, 0, 3), (1, 7, 3, 1), (1, 9, 4, 2), (0, 12, 6, 1)]
    assert [unit[0] // size for unit in struct.iter_unpack(">qiq", span.units)] == [0, 2, 4, 1, 3, 5, 6]


def test_queue_offset_does_not_overflow(kernel):
    data = log_of({"queue_offset": (1 << 63) - 1}, {"queue_offset": -(1 << 63)})
    assert [run.queue_offset for run in whole(kernel, data).runs] == [(1 << 63) - 1, -(1 << 63)]


@pytest.mark.parametrize("sys_flag, units, keys", [(0, 1, 3), (4, 0, 3), (8, 1, 3), (12, 0, 0)])
def test_transactions_have_units_and_keys_as_dispatching_gives_them(kernel, sys_flag, units, keys):
    span = whole(kernel, record(sys_flag=sys_flag))
    assert (len(span.units) // 20, len(span.keys) // KEY.size, span.count) == (units, keys, 1)


@pytest.mark.parametrize("level, code", [("1", 9000), ("2", 13_000), ("99", 13_000), ("0", 97), ("-1", 97)])
def test_scheduled_record_has_its_delivery_time(kernel, level, code):
    data = record(topic="SCHEDULE_TOPIC_XXXX", properties=f"DELAY\x01{level}\x02TAGS\x01a")
    assert RECORD.unpack(whole(kernel, data, delays=(1000, 5000)).records)[2] == code
    assert RECORD.unpack(whole(kernel, data, delays=()).records)[2] == 97
    assert RECORD.unpack(whole(kernel, data).records)[2] == 97


@pytest.mark.parametrize("stop, size, tail", [
    (Stop.BLANK, 0, layout.encode_blank(500)), (Stop.UNWRITTEN, -1, bytes(100)), (Stop.BAD_MAGIC, -1, b"\1" * 100),
    (Stop.TRUNCATED, -1, b"\0" * 7), (Stop.TRUNCATED, -1, record()[:-1]), (Stop.TRUNCATED, -1, record()[:60]),
    (Stop.BAD_CRC, -1, record(crc=1)), (Stop.LENGTH_MISMATCH, 90, struct.pack(">i", 90) + record()[4:]),
    (Stop.LENGTH_MISMATCH, -1, struct.pack(">i", -90) + record()[4:])])
def test_stop_is_reported_with_its_position(kernel, stop, size, tail):
    data = log_of({}, {})
    buffer = data + tail
    span = whole(kernel, buffer, check_crc=True)
    assert span[:4] == (2, len(data), stop, size)
    assert kernel.walk(buffer, 0, len(buffer), True) == Walk(2, len(data), stop, size)


@pytest.mark.parametrize("arguments", [
    {"topic": b"\xff"}, {"properties": b"TAGS\x01\xff"}, {"properties": b"KEYS\x01a \xed\xa0\x80"},
    {"properties": b"UNIQ_KEY\x01\xc3"}, {"properties": "INNER_MULTI_DISPATCH\x01%LMQ%a"},
    {"topic": "SCHEDULE_TOPIC_XXXX", "properties": "DELAY\x01x"},
    {"topic": "SCHEDULE_TOPIC_XXXX", "properties": "DELAY\x011", "store_timestamp": (1 << 63) - 1}])
def test_record_that_the_kernel_cannot_handle_is_left_to_the_single_record_path(kernel, arguments):
    data = log_of({}, arguments, {})
    span = whole(kernel, data, multi_dispatch=True, delays=(1000,))
    assert (span.count, span.position, span.stop, span.size) == (1, len(record()), Stop.ODD, 0)
    assert (len(span.records) // RECORD.size, len(span.units) // 20, len(span.keys) // KEY.size) == (1, 1, 3)
    assert [topic.name for topic in span.topics] == ["T"]
    assert kernel.walk(data, 0, len(data)).stop == Stop.END


def test_record_at_a_wrong_offset_is_left_to_the_single_record_path(kernel):
    data = record(100)
    assert kernel.scan(data, 0, len(data), 0).stop == Stop.ODD
    assert kernel.scan(data, 0, len(data), 100).stop == Stop.END
    assert kernel.walk(data, 0, len(data), file_from_offset=0) == Walk(0, 0, Stop.ODD, 0)
    assert kernel.walk(data, 0, len(data), file_from_offset=100).stop == Stop.END


def test_limits_end_a_scan_between_records(kernel):
    data = log_of({}, {}, {})
    span = whole(kernel, data, limit=2)
    assert (span.count, span.stop) == (2, Stop.LIMIT)
    rest = kernel.scan(data, span.position, len(data), 0, limit=2)
    assert (rest.count, rest.stop, rest.position) == (1, Stop.END, len(data))
    many = log_of({"properties": "KEYS\x01" + "a " * 20}, {}, {})
    assert (whole(kernel, many, limit=2).count, whole(kernel, many, limit=2).stop) == (1, Stop.LIMIT)


@pytest.mark.parametrize("start, end", [(-1, 5), (5, 4), (0, 1 << 40), (1 << 40, 1 << 40)])
def test_span_outside_the_buffer_is_refused(kernel, start, end):
    for call in (lambda: kernel.walk(bytes(100), start, end), lambda: kernel.scan(bytes(100), start, end, 0)):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):
        kernel.scan(b"", 0, 0, 0, limit=MAX_LIMIT + 1)
    for call in (lambda: kernel.scan(b"", 0, 0, -1), lambda: kernel.walk(b"", 0, 0, False, 1 << 63)):
        with pytest.raises(ValueError):
            call()


def test_compiled_kernel_checks_spans_itself():
    compiled = compiled_kernel()
    for start, end in ((-1, 5), (5, 4), (0, 101)):
        with pytest.raises(ValueError):
            compiled.walk(bytes(100), start, end, False, -1, False)
        with pytest.raises(ValueError):
            compiled.scan(bytes(100), start, end, 0, False, None, False, 5)
    with pytest.raises(ValueError):
        compiled.scan(b"", 0, 0, 0, False, None, False, 0)
    with pytest.raises((TypeError, OverflowError)):
        compiled.scan(b"", 0, 0, 0, False, ["x"], False, 5)


def test_mapped_file_is_read_in_place_and_released(kernel, tmp_path):
    data = log_of({}, {})
    (tmp_path / "log").write_bytes(data)
    with open(tmp_path / "log", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        for buffer in (mapped, memoryview(mapped)):
            assert kernel.scan(buffer, 0, len(data), 0).count == 2
            assert kernel.walk(buffer, 0, len(data)).count == 2
        # Without this, closing the map raises BufferError.
        buffer.release()


def test_other_threads_run_while_the_compiled_kernel_works():
    compiled = compiled_kernel()
    data = record(body=bytes(32 << 20))
    rounds, stop, interval = [0], threading.Event(), sys.getswitchinterval()

    def work():
        while not stop.is_set():
            # zlib releases the GIL here, which lets the main thread continue: nothing else in this thread does.
            zlib.crc32(data[:8192])
            rounds[0] += 1

    thread = threading.Thread(target=work)
    # Seconds: the interpreter does not force a thread switch during the test.
    sys.setswitchinterval(10)
    thread.start()
    try:
        for _ in range(100):
            before = rounds[0]
            compiled.walk(data, 0, len(data), True, 0, False)
            if rounds[0] > before:
                break
        assert rounds[0] > before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        thread.join()


def test_many_topics_and_queues_keep_their_indexes(kernel):
    data = log_of(*({"topic": f"t{number % 300}", "queue_id": number % 7, "queue_offset": number // 2100}
                    for number in range(4200)))
    span = whole(kernel, data)
    assert [(topic.name, topic.count) for topic in span.topics] == [(f"t{number}", 14) for number in range(300)]
    assert (len(span.runs), {run.count for run in span.runs}) == (2100, {2})
    assert facts(span) == expected(data, 0, len(data), 0, False, None)


# The index file.

@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(0, 30), st.lists(st.tuples(LONG, LONG, st.integers(-(1 << 31), (1 << 31) - 1)),
       max_size=40), st.data())
def test_both_implementations_add_keys_to_any_file_alike(slots, entries, rows, data):
    keys = b"".join(KEY.pack(*row, 0) for row in rows)
    index_count = data.draw(st.integers(1, entries + 2))
    first_entry = data.draw(st.integers(0, index_count))
    size = 40 + 4 * slots + 20 * max(entries - first_entry, 0)
    old = data.draw(st.one_of(st.just(bytes(size)), st.binary(min_size=size, max_size=size)))
    times = st.one_of(st.integers(0, 10**13), LONG)
    counters = IndexCounters(*(data.draw(times) for _ in range(4)), data.draw(st.integers(0, slots)),
                             index_count)
    first = data.draw(st.integers(0, len(rows)))
    results = []
    for kernel in (bulk_python, compiled_kernel()):
        file = bytearray(old)
        results.append((kernel.put_keys(file, slots, entries, tuple(counters), keys, first, len(rows), first_entry),
                        file))
    assert results[0] == results[1]


def test_keys_can_be_added_with_only_a_window_of_the_entries(kernel):
    rows = b"".join(KEY.pack(offset, 1_700_000_000_000 + offset, offset % 7, 0) for offset in range(30))
    whole_file = bytearray(40 + 4 * 5 + 20 * 40)
    _, counters = kernel.put_keys(whole_file, 5, 40, IndexCounters(0, 0, 0, 0, 0, 1), rows)
    window, found, first, now = bytearray(40 + 4 * 5 + 20 * 8), b"", 0, IndexCounters(0, 0, 0, 0, 0, 1)
    while first < 30:
        begin = now.index_count
        first, now = kernel.put_keys(window, 5, begin + 8, now, rows, first, first_entry=begin)
        found += window[60:60 + (now.index_count - begin) * 20]
    assert (window[:60] + bytes(20) + found, now) == (whole_file[:-20 * 9], counters)


@pytest.mark.parametrize("wrong", [
    {"hash_slot_num": 0}, {"index_num": -1}, {"index_num": 6}, {"first": -1}, {"first": 2, "last": 1}, {"last": 4},
    {"first_entry": -1}, {"first_entry": 2},
    {"counters": IndexCounters(0, 0, 0, 0, 0, 0)}, {"counters": IndexCounters(0, 0, 0, 0, -1, 1)},
    {"counters": IndexCounters(0, 0, 0, 0, (1 << 31) - 1, 1)}])
def test_impossible_index_file_is_refused_untouched(kernel, wrong):
    file = bytearray(40 + 4 * 5 + 20 * 5)
    arguments = {"buffer": file, "hash_slot_num": 5, "index_num": 5, "counters": IndexCounters(0, 0, 0, 0, 0, 1),
                 "keys": KEY.pack(1, 2, 3, 0) * 3} | wrong
    with pytest.raises(ValueError):
        kernel.put_keys(**arguments)
    assert not any(file)
