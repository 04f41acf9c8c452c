"""Strategies for records of every kind, and the single-record path's results, which the bulk kernel has to match."""
import re
from typing import NamedTuple

from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.common.sys_flags import TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from rmqha.store.bulk.bulk_layout import KEY, RECORD, Stop
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, pack_unit
from rmqha.store.index.index_layout import index_key_hash_method
from rmqha.store.index.index_service import build_key, keys_of
from rmqha.store.record_check import check_message_and_return_size

HOSTS = ("10.0.0.1", "2001:db8::1")
TEXT = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), max_size=12)
WORD = st.one_of(st.sampled_from(["a", "TagA", "\u6807\u7b7e", "\U0001f600x", "polygenelubricants", "k" * 40]), TEXT)
TOPIC = st.one_of(st.sampled_from(["T", "orders", "\u4e3b\u9898", "\U0001f600", RMQ_SYS_SCHEDULE_TOPIC, "%RETRY%g"]),
                  st.text(max_size=5).filter(lambda text: text.isprintable()))
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
DELAY = st.sampled_from(["0", "1", "3", "9", "-3", "+2", "2147483647", "2147483648", "x", "1 ", "00000000001",
                         "\u0661"])


class Levels:
    """The delay levels, as far as the single-record check uses them."""

    def __init__(self, delays):
        self.delays = delays
        self.max_level = len(delays)

    def deliver_timestamp(self, level, store_timestamp):
        """The time at which a message is due."""
        return store_timestamp + self.delays[level - 1]


class Expected(NamedTuple):
    """The result of the single-record path for a span."""

    count: int
    position: int
    success: bool
    size: int
    records: list
    units: dict  # by (topic, queue id): [(queue offset, unit)]
    keys: list  # (offset, store time, hash, record)


@st.composite
def properties(draw):
    """Draw a properties text: names that matter among others, also repeated, empty and malformed ones."""
    entries = draw(st.lists(st.one_of(
        st.tuples(st.sampled_from(["TAGS", "UNIQ_KEY"]), WORD),
        st.tuples(st.just("KEYS"), st.lists(WORD, max_size=4).map(" ".join)),
        st.tuples(st.just("DELAY"), DELAY),
        st.tuples(st.sampled_from(["WAIT", "CLUSTER", "XTAGS", "KEYSX", "", "INNER_MULTI_QUEUE_OFFSET"]), TEXT)),
        max_size=6))
    text = "\x02".join(
        draw(st.sampled_from([f"{name}\x01{value}"] * 9 + [name, f"\x01{value}", f"{name}\x01\x01{value}"]))
        for name, value in entries)
    return (text + draw(st.sampled_from(["", "", "\x02", "\x02\x02"]))).encode()


@st.composite
def records(draw, offset, sane=False):
    """Draw a record that is to be stored at `offset`."""
    born, store = (layout.host_to_bytes((draw(st.sampled_from(HOSTS)), 10911)) for _ in range(2))
    body = draw(st.one_of(st.just(b""), st.binary(max_size=70), st.integers(0, 300).map(bytes)))
    sys_flag = layout.host_flags(born, store) | draw(st.sampled_from([0, 0, 1, 4, 8, 12]))
    data = properties() if sane else st.one_of(properties(), properties(), st.binary(max_size=12))
    return layout.encode_record(
        layout.body_crc32(body), draw(st.integers(0, 2)), 7, draw(st.one_of(st.integers(0, 5), LONG)), offset, sys_flag,
        1, born, draw(st.one_of(st.integers(10**12, 10**12 + 10**6), LONG)), store, 0, 0, body,
        layout.encode_topic(draw(TOPIC)), draw(data))


@st.composite
def spans(draw):
    """Draw (buffer, start, end, file_from_offset): records, endings, flipped bits, and bytes around the span."""
    base = draw(st.sampled_from([0, 16384, 1 << 40]))
    buffer = bytearray(draw(st.binary(max_size=9)))
    start = len(buffer)
    for _ in range(draw(st.integers(0, 6))):
        buffer += draw(records(base + len(buffer), draw(st.booleans())))
    buffer += draw(st.sampled_from([b"", b"", layout.encode_blank(100), bytes(20), b"\1" * 20, bytes(3)]))
    end = len(buffer) - draw(st.one_of(st.just(0), st.just(0), st.integers(0, len(buffer) - start)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if len(buffer) > start:
            buffer[draw(st.integers(start, len(buffer) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(buffer), start, end, base


def expected(buffer, start, end, base, check_crc, delays, multi_dispatch=False, limit=1 << 30):
    """Check record by record, with the key rule and the unit, up to the first record that is not plain."""
    schedule = None if delays is None else Levels(delays)
    view = memoryview(buffer)[:end]
    position, rows, units, keys = start, [], {}, []
    while position < end and len(rows) < limit and len(keys) < limit * 8:
        request = check_message_and_return_size(view, position, check_crc, True, schedule)
        if not request.success or not request.msg_size:
            return Expected(len(rows), position, request.success, request.msg_size, rows, units, keys)
        if is_plain(view[position:position + request.msg_size], request, base + position, delays is not None,
                    multi_dispatch):
            break
        keys += [(request.commit_log_offset, request.store_timestamp,
                  index_key_hash_method(build_key(request.topic, key)), len(rows)) for key in keys_of(request)]
        if request.sys_flag & 12 not in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE):
            units.setdefault((request.topic, request.queue_id), []).append((request.consume_queue_offset, pack_unit(
                request.commit_log_offset, request.msg_size, request.tags_code)))
        rows.append((request.commit_log_offset, request.consume_queue_offset, request.tags_code,
                     request.store_timestamp, request.msg_size, request.queue_id, request.topic, request.sys_flag))
        position += request.msg_size
    return Expected(len(rows), position, True, 0, rows, units, keys)


def is_plain(record, request, offset, scheduled, multi_dispatch):
    """Return whether the kernel leaves a good record to the single-record path."""
    parts = layout.decode_parts(record)
    named = {}
    for entry in bytes(record[parts.properties_position:]).split(b"\x02"):
        name, _, value = entry.partition(b"\x01")
        if name and value:
            named[name] = value
    looked_at = [bytes(record[parts.topic_position:parts.topic_position + parts.topic_length]), named.get(b"TAGS", b"")]
    if request.sys_flag & 12 != 12:
        looked_at += [named.get(b"KEYS", b""), named.get(b"UNIQ_KEY", b"")]
    wrong_level = scheduled and request.topic == RMQ_SYS_SCHEDULE_TOPIC and _is_no_level(named.get(b"DELAY", b"0"))
    return (wrong_level or request.commit_log_offset != offset or not -(1 << 63) <= request.tags_code < 1 << 63
            or multi_dispatch and b"INNER_MULTI_DISPATCH" in named or not all(map(_is_text, looked_at)))


def _is_no_level(data):
    return not re.fullmatch(rb"[+-]?[0-9]{1,10}", data) or not -(1 << 31) <= int(data) < 1 << 31


def _is_text(data):
    try:
        return data.decode() is not None
    except UnicodeDecodeError:
        return False


def facts(span):
    """Convert a scan to the form of `Expected`."""
    names = [topic.name for topic in span.topics]
    rows = [(*row[:6], names[row[6]], row[7]) for row in RECORD.iter_unpack(span.records)]
    units = {}
    for run in span.runs:
        for number in range(run.count):
            at = (run.first_unit + number) * CQ_STORE_UNIT_SIZE
            units.setdefault((names[run.topic], run.queue_id), []).append(
                (run.queue_offset + number, span.units[at:at + CQ_STORE_UNIT_SIZE]))
    good = span.stop in (Stop.END, Stop.LIMIT, Stop.ODD, Stop.BLANK)
    return Expected(span.count, span.position, good, span.size, rows, units, list(KEY.iter_unpack(span.keys)))
