"""GET_MESSAGE_HEADS, compared with whole messages that are pulled and filtered here; its cost; hostile requests."""
import itertools
import mmap
import random
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.broker.processor import browsing
from rmqha.common import body_parts, sys_flags
from rmqha.common.compression import get_compressor
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import Message
from rmqha.common.protocol import message_heads, request_code, response_code
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader
from rmqha.common.protocol.message_heads import GetMessageHeadsRequestHeader, GetMessageHeadsResponseHeader
from rmqha.common.sys_flags import CompressionType
from rmqha.store.consume_queue_layout import PRE_BLANK_UNIT
from tests.broker.support import BrokerHarness, running_broker
from tests.common.protocol.test_message_heads import same_fields
from tests.support import tiers
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

MIB = 1 << 20
TOPICS = (f"Browsed{number}" for number in itertools.count())
NOISE = random.Random(2).randbytes(4 * MIB)
LAST = (1 << 63) - 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> BrokerHarness:
    """A broker with files that have space for the largest messages."""
    with running_broker(tmp_path_factory.mktemp("browsed"), mappedFileSizeCommitLog=32 * MIB,
                        mappedFileSizeConsumeQueue=2_000, maxMessageSize=4 * MIB, compressedRegister=True) as harness:
        yield harness


def ask(broker: BrokerHarness, topic: str, offset: int = 0, count: int = 100, body_bytes: int = 64, **fields: object):
    """Return the header and the heads of the answer."""
    response = answer_to(broker, topic, offset, count, body_bytes, **fields)
    assert response.code == response_code.SUCCESS, response.remark
    told = response.decode_command_custom_header(GetMessageHeadsResponseHeader)
    return told, message_heads.decode(response.body or b"", count)


def answer_to(broker: BrokerHarness, topic: str, offset: int = 0, count: int = 100, body_bytes: int = 64,
              queue_id: int = 0, **fields: object):
    """Return the response."""
    header = GetMessageHeadsRequestHeader(topic, queue_id, offset, count, body_bytes, **fields)
    return broker.call(request_code.GET_MESSAGE_HEADS, header)


def pulled(broker: BrokerHarness, topic: str, queue_id: int = 0, offset: int = 0) -> list:
    """Return all messages of a queue, with their bodies as they are stored."""
    found, end = [], broker.next_offset(topic, queue_id)
    while offset < end:
        data = broker.pull(topic, offset, queue_id=queue_id).body
        at = 0
        while at < len(data):
            found.append(message_decoder.decode(data, True, False, at))
            at += found[-1].store_size
        offset = found[-1].queue_offset + 1
    return found


def is_head_of(head, message, body_bytes: int) -> bool:
    """Return whether a head is that of a whole message."""
    size = body_parts.stored_size_for(message.body, message.sys_flag, body_bytes)
    return (same_fields(head, message) and head.queue_offset == message.queue_offset
            and head.body == message.body[:size] and head.body_length == len(message.body)
            and head.properties == message.properties and head.has_all_properties)


# The messages of a queue: plain and compressed, of all sizes, batches, retries, delayed ones, transactions.

KINDS = st.sampled_from([None, *CompressionType])
TEXTS = st.sampled_from([b"", b"{}", b"hello world " * 9, NOISE[:50], NOISE[:3_000], b"0123456789" * 30_000])


@st.composite
def sends(draw):
    """Return a function that sends one message, or a batch, to queue 0 of a topic."""
    properties = draw(st.dictionaries(st.sampled_from(["KEYS", "TAGS", "color", "größe"]),
                                      st.sampled_from(["a", "b", "k1 k2", "k2", "7"]), max_size=4))
    bodies, kind = draw(st.lists(TEXTS, min_size=1, max_size=3)), draw(KINDS)
    if kind is None and len(bodies) > 1:
        messages = [Message("", body) for body in bodies]
        for message in messages:
            message.properties = dict(properties)
        data = message_decoder.encode_messages(messages)
        return lambda broker, topic: broker.call(
            request_code.SEND_BATCH_MESSAGE, broker.send_header(topic, m=True), data)
    body = bodies[0] if kind is None else get_compressor(kind).compress(bodies[0], 5)
    flag = 0 if kind is None else sys_flags.COMPRESSED_FLAG | kind.compression_flag
    fields = {"f": flag, "h": draw(st.integers(0, 99)), "j": draw(st.integers(0, 3))}
    return lambda broker, topic: broker.send(topic, body, 0, properties, **fields)


def filled(broker: BrokerHarness, made) -> tuple[str, list]:
    """Send messages to a new topic; return its name, and the messages as they are pulled."""
    topic = next(TOPICS)
    for send in made:
        assert send(broker, topic).code == response_code.SUCCESS
    return topic, pulled(broker, topic)


@settings(max_examples=tiers.drawn(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sends(), max_size=8), st.integers(0, 5_000), st.booleans())
def test_heads_are_those_of_the_pulled_messages(broker, made, body_bytes, backwards):
    topic, messages = filled(broker, made)
    if not made:
        broker.send(topic)
        messages = pulled(broker, topic)
    told, heads = ask(broker, topic, len(messages) if backwards else 0, 200, body_bytes, backwards=backwards)
    assert (told.minOffset, told.maxOffset, told.examined) == (0, len(messages), len(messages))
    assert told.nextOffset == (-1 if backwards else len(messages))
    ordered = messages[::-1] if backwards else messages
    assert told.lastTimestamp == ordered[-1].store_timestamp
    assert len(heads) == len(messages)
    for head, message in zip(heads, ordered):
        assert is_head_of(head, message, body_bytes)


def test_largest_and_smallest_bodies(broker):
    topic = next(TOPICS)
    bodies = [b"", b"x", NOISE[:4 * MIB - 10_000], b"y" * (4 * MIB - 10_000)]
    for body in bodies:
        assert broker.send(topic, body).code == response_code.SUCCESS
    broker.next_offset(topic)
    _, heads = ask(broker, topic, body_bytes=1_000)
    assert [(head.body, head.body_length) for head in heads] == [(body[:1_000], len(body)) for body in bodies]
    _, heads = ask(broker, topic, body_bytes=0)
    assert [head.body for head in heads] == [b""] * 4


def test_half_and_committed_messages(broker):
    topic = next(TOPICS)
    broker.send(topic)
    half = "RMQ_SYS_TRANS_HALF_TOPIC"
    begin = broker.next_offset(half) if broker.store.get_consume_queue(half, 0) else 0
    sent = broker.send(topic, b"half", properties={"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "id"},
                       f=sys_flags.TRANSACTION_PREPARED_TYPE)
    assert sent.code == response_code.SUCCESS
    wait_until(lambda: broker.next_offset(half) > begin, 60_000, "the half message")
    _, (head,) = ask(broker, half, begin)
    assert (head.body, head.topic, head.properties["REAL_TOPIC"]) == (b"half", half, topic)
    ended = broker.call(request_code.END_TRANSACTION, EndTransactionRequestHeader(
        producerGroup="p", tranStateTableOffset=head.queue_offset, commitLogOffset=head.commit_log_offset,
        commitOrRollback=sys_flags.TRANSACTION_COMMIT_TYPE, fromTransactionCheck=False, msgId="id"))
    assert ended.code == response_code.SUCCESS, ended.remark
    message = pulled(broker, topic)[1]
    _, heads = ask(broker, topic)
    assert is_head_of(heads[1], message, 64)
    assert heads[1].sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE == sys_flags.TRANSACTION_COMMIT_TYPE


def test_delayed_message_is_found_by_its_tag_in_the_queue_of_its_level(broker):
    topic, waiting = next(TOPICS), "SCHEDULE_TOPIC_XXXX"
    assert broker.send(topic, b"later", properties={"DELAY": "18", "TAGS": "a"}).code == response_code.SUCCESS
    broker.next_offset(topic)
    _, (head,) = ask(broker, waiting, queue_id=17, tags="a")
    assert (head.properties["REAL_TOPIC"], head.properties["DELAY"], head.body) == (topic, "18", b"later")
    assert ask(broker, waiting, queue_id=17, tags="b")[1] == []


# Filters and limits: whatever a request's limits are, following `nextOffset` gives the same as filtering all messages.


def plain_of(message) -> bytes:
    if not message.sys_flag & sys_flags.COMPRESSED_FLAG:
        return message.body
    return get_compressor(sys_flags.get_compression_type(message.sys_flag)).decompress(message.body)


FILTERS = {
    "tags": ("a || b", lambda message: message.tags in ("a", "b")),
    "key": ("k2", lambda message: "k2" in (message.keys or "").split(" ")),
    "sql": ("color = 'b' OR color IS NULL", lambda message: message.properties.get("color") in ("b", None)),
    "text": ("world hello", lambda message: b"world hello" in plain_of(message)),
}
LIMITS = {"MAX_EXAMINED": st.integers(1, 4), "MAX_READ": st.integers(1, 4), "MAX_ANSWER_BYTES": st.integers(1, 500),
          "MAX_SEARCHED_BYTES": st.integers(1_000_000, 1_500_000), "MAX_WORK_MS": st.sampled_from([0, 1000])}


@settings(max_examples=tiers.drawn(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(sends(), min_size=1, max_size=10), st.sets(st.sampled_from(list(FILTERS))),
       st.fixed_dictionaries({}, optional=LIMITS), st.integers(1, 5), st.booleans())
def test_following_the_next_offset_finds_each_wanted_message_once(broker, made, filters, limits, count, backwards):
    topic, messages = filled(broker, made)
    wanted = [message.queue_offset for message in messages if all(FILTERS[name][1](message) for name in filters)]
    fields = {name: FILTERS[name][0] for name in filters}
    found, examined, offset = [], 0, LAST if backwards else 0
    with pytest.MonkeyPatch.context() as patched:
        for name, value in limits.items():
            patched.setattr(message_heads, name, value)
        patched.setattr(browsing, "_FIRST_BLOCK", 2)
        while True:
            told, heads = ask(broker, topic, offset, count, backwards=backwards, **fields)
            assert len(heads) <= count and told.unsearched == told.unreadable == 0
            found += [head.queue_offset for head in heads]
            examined += told.examined
            if (told.nextOffset < 0) if backwards else (told.nextOffset >= len(messages)):
                break
            assert told.examined > 0 and told.nextOffset != offset
            offset = told.nextOffset
    assert found == (wanted[::-1] if backwards else wanted)
    assert examined == len(messages)


def test_tags_are_found_in_an_extended_queue(tmp_path):
    with running_broker(tmp_path, enableConsumeQueueExt=True, enableCalcFilterBitMap=True) as broker:
        for number in range(10):
            broker.send("Ext", b"%d" % number, properties={"TAGS": "ab"[number % 2]})
        broker.next_offset("Ext")
        assert [head.body for head in ask(broker, "Ext", tags="b")[1]] == [b"1", b"3", b"5", b"7", b"9"]
        # Without its extension, an entry does not show the tag.
        broker.store.get_consume_queue("Ext", 0).consume_queue_ext.destroy()
        assert [head.body for head in ask(broker, "Ext", tags="b")[1]] == [b"1", b"3", b"5", b"7", b"9"]


def test_tag_with_the_same_hash_is_not_wanted_and_one_with_a_negative_hash_is_found(broker):
    topic = next(TOPICS)
    assert string_hash_code("Aa") == string_hash_code("BB") and string_hash_code("polygenelubricants") < 0
    for tag in ("Aa", "BB", "polygenelubricants"):
        broker.send(topic, tag.encode(), properties={"TAGS": tag})
    broker.next_offset(topic)
    assert [head.body for head in ask(broker, topic, tags="BB || polygenelubricants")[1]] == [
        b"BB", b"polygenelubricants"]


@pytest.mark.parametrize(("limit", "value", "fields", "examined"), [
    ("MAX_EXAMINED", 60, {"tags": "none"}, 250), ("MAX_READ", 7, {"key": "none"}, 7), ("MAX_READ", 7, {}, 7),
    ("MAX_ANSWER_BYTES", 1000, {}, 5), ("MAX_SEARCHED_BYTES", 400, {"text": "none"}, 4),
    ("MAX_WORK_MS", -1, {"key": "none"}, 1)])
def test_each_limit_ends_a_request(broker, monkeypatch, limit, value, fields, examined):
    topic = "BrowsedWithLimits"
    if broker.store.get_consume_queue(topic, 0) is None:
        for _ in range(300):
            broker.send(topic, b"x" * 100)
    end = broker.next_offset(topic)
    for backwards in (False, True):
        monkeypatch.setattr(message_heads, limit, value)
        told, _ = ask(broker, topic, LAST if backwards else 0, backwards=backwards, **fields)
        # Entries of the queue are read in blocks of 50 and 200.
        assert told.examined == examined
        assert told.nextOffset == (end - 1 - examined if backwards else examined)


def test_expression_that_fails_on_a_message_does_not_match_it(broker):
    topic = next(TOPICS)
    for value in ("x", "7"):
        broker.send(topic, value.encode(), properties={"a": value})
    broker.next_offset(topic)
    assert [head.body for head in ask(broker, topic, sql="a > 5")[1]] == [b"7"]


# Cost: neither the size of bodies nor their content matters.


def resident_kib(path: str) -> int:
    """Return how much of this process's map of a file is in its page table."""
    mine = False
    with open("/proc/self/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            if "-" in line.split(" ", 1)[0]:
                mine = line.rstrip().endswith(path)
            elif mine and line.startswith("Rss:"):
                return int(line.split()[1])
    return 0


def test_pages_of_large_bodies_are_not_touched(broker):
    topic = next(TOPICS)
    for _ in range(6):
        broker.send(topic, NOISE[:4 * MIB - 10_000], properties={"KEYS": "k"})
    broker.next_offset(topic)
    broker.store.flush()
    files = [file for file in broker.store.commit_log.mapped_file_queue.mapped_files if file._mmap is not None]
    for file in files:
        file._mmap.madvise(mmap.MADV_DONTNEED)
    before = sum(resident_kib(file.file_name) for file in files)
    _, heads = ask(broker, topic, key="k", body_bytes=256, backwards=True, offset=LAST)
    touched = sum(resident_kib(file.file_name) for file in files) - before
    assert len(heads) == 6
    # The kernel maps up to 64 KiB around each touched page: for the head, the end, and the next record.
    assert 0 < touched <= 6 * 3 * 64


def test_answer_is_limited_whatever_is_asked_for(broker):
    topic = next(TOPICS)
    for _ in range(40):
        broker.send(topic, NOISE[:100_000], properties={"KEYS": "k" * 20_000})
    broker.next_offset(topic)
    response = answer_to(broker, topic, count=1024, body_bytes=64 * 1024, propertyBytes=32_767)
    assert MIB <= len(response.body) < MIB + 100_000
    told = response.decode_command_custom_header(GetMessageHeadsResponseHeader)
    assert told.nextOffset == len(message_heads.decode(response.body, 1024)) == told.examined < 40
    _, heads = ask(broker, topic)
    assert len(heads) == 40 and not any(head.has_all_properties for head in heads)
    assert all(head.properties["KEYS"] == "k" * 512 for head in heads)


def test_body_that_decompresses_to_gigabytes_costs_a_list_nothing_and_a_search_its_limit(broker, monkeypatch):
    topic = next(TOPICS)
    stream = zlib.compressobj(9)
    bomb = b"".join(stream.compress(bytes(MIB)) for _ in range(300)) + stream.flush()
    flag = sys_flags.COMPRESSED_FLAG | CompressionType.ZLIB.compression_flag
    for body in (b"small", bomb, b"needle"):
        broker.send(topic, zlib.compress(body) if body is not bomb else bomb, f=flag)
    broker.next_offset(topic)
    _, heads = ask(broker, topic, body_bytes=100)
    assert len(heads[1].body) < 1_000 and heads[1].body_length == len(bomb)
    monkeypatch.setattr(message_heads, "MAX_SEARCHED_BYTES", 8 * MIB)
    # The search stops before the large body, gives up on it alone, and goes on after it.
    told, heads = ask(broker, topic, text="needle")
    assert (told.nextOffset, told.unsearched, heads) == (1, 0, []) and told.searchedBytes <= 9 * MIB
    told, heads = ask(broker, topic, 1, text="needle")
    assert (told.nextOffset, told.unsearched, heads) == (2, 1, []) and 8 * MIB < told.searchedBytes <= 9 * MIB
    told, heads = ask(broker, topic, 2, text="needle")
    assert (told.nextOffset, len(heads)) == (3, 1)


def test_body_that_can_not_be_decompressed_is_reported(broker):
    topic = next(TOPICS)
    for kind in CompressionType:
        broker.send(topic, b"not compressed", f=sys_flags.COMPRESSED_FLAG | kind.compression_flag)
    broker.send(topic, b"of an unknown type", f=sys_flags.COMPRESSED_FLAG | 7 << 8)
    broker.next_offset(topic)
    told, heads = ask(broker, topic, text="compressed")
    assert (told.examined, told.unsearched, heads) == (4, 4, [])
    assert len(ask(broker, topic)[1]) == 4


# Damaged, deleted and missing records.


def test_damaged_and_misplaced_records_are_counted_and_left_out(broker, monkeypatch):
    topic = next(TOPICS)
    for number in range(6):
        broker.send(topic, b"%d" % number)
    broker.next_offset(topic)
    _, heads = ask(broker, topic)
    log = broker.store.commit_log
    def overwrite(head, at: int, data: bytes) -> None:
        file = log.mapped_file_queue.find_mapped_file_by_offset(head.commit_log_offset)
        begin = head.commit_log_offset - file.file_from_offset + at
        file.slice_byte_buffer()[begin:begin + len(data)] = data
    overwrite(heads[1], layout.MESSAGE_MAGIC_CODE_POSITION, b"bad!")
    overwrite(heads[2], layout.BODY_LENGTH_POSITION, b"\x7f\xff\xff\xff")
    overwrite(heads[4], layout.PHYSICAL_OFFSET_POSITION, b"\0" * 8)
    for backwards in (False, True):
        told, found = ask(broker, topic, LAST if backwards else 0, backwards=backwards)
        assert (told.examined, told.unreadable) == (6, 3)
        assert [head.body for head in found] == ([b"5", b"3", b"0"] if backwards else [b"0", b"3", b"5"])


def test_entries_without_a_record_are_counted(broker):
    topic = next(TOPICS)
    for number in range(4):
        broker.send(topic, b"%d" % number, properties={"TAGS": "a"})
    broker.next_offset(topic)
    entries = broker.store.get_consume_queue(topic, 0).mapped_file_queue.mapped_files[0].slice_byte_buffer()
    entries[20:40], entries[60:80] = PRE_BLANK_UNIT, bytes(20)
    for tags in (None, "a"):
        told, heads = ask(broker, topic, tags=tags)
        assert [head.body for head in heads] == [b"0", b"2"]
        assert (told.examined, told.unreadable, told.lastTimestamp) == (4, 2, -1)
    assert ask(broker, topic, 2, backwards=True)[0].lastTimestamp == heads[0].store_timestamp


def test_deleted_messages_are_skipped(tmp_path):
    with running_broker(tmp_path) as broker:
        for number in range(12):
            broker.send("Short", b"%d" % number + b"-" * 200_000)
        assert broker.next_offset("Short") == 12
        log = broker.store.commit_log
        log.delete_expired_file(0, 0, 0, True)
        queue = broker.store.get_consume_queue("Short", 0)
        # Until the queue's minimum is corrected, its first entries have no records.
        told, heads = ask(broker, "Short", 0)
        assert told.minOffset == 0 and told.unreadable == 12 - len(heads) > 1
        queue.correct_min_offset(log.get_min_offset())
        first = 12 - len(heads)
        for offset in (0, first - 1, first):
            told, found = ask(broker, "Short", offset)
            assert (told.minOffset, told.nextOffset, told.examined, told.unreadable) == (first, 12, len(heads), 0)
            assert found == heads
        told, found = ask(broker, "Short", first - 1, backwards=True)
        assert (told.nextOffset, told.examined, found) == (first - 1, 0, [])
        told, found = ask(broker, "Short", LAST, backwards=True)
        assert (told.nextOffset, found) == (first - 1, heads[::-1])


def test_offsets_beyond_the_end_and_empty_queues(broker):
    topic = next(TOPICS)
    broker.send(topic, b"only")
    broker.next_offset(topic)
    for offset in (1, 2, LAST):
        told, heads = ask(broker, topic, offset)
        assert (told.maxOffset, told.nextOffset, told.examined, told.lastTimestamp, heads) == (1, offset, 0, -1, [])
        told, heads = ask(broker, topic, offset, backwards=True)
        assert (told.nextOffset, told.examined, len(heads)) == (-1, 1, 1)
    for backwards, following in ((False, 7), (True, -1)):
        told, heads = ask(broker, topic, 7, queue_id=3, backwards=backwards)
        assert (told.minOffset, told.maxOffset, told.nextOffset, heads) == (0, 0, following, [])


@pytest.mark.parametrize(("change", "code", "reason"), [
    ({"topic": "NoTopicAtAll"}, response_code.TOPIC_NOT_EXIST, "topic[NoTopicAtAll] not exist"),
    ({"topic": "../etc"}, response_code.TOPIC_NOT_EXIST, "not exist"),
    ({"topic": None}, response_code.SYSTEM_ERROR, "the custom field <topic> is null"),
    ({"queueId": 99}, response_code.SYSTEM_ERROR, "queueId[99] is illegal, topic:["),
    ({"queueId": -1}, response_code.SYSTEM_ERROR, "queueId is -1, and must be from 0"),
    ({"queueId": "x"}, response_code.SYSTEM_ERROR, "the custom field <queueId> is invalid"),
    ({"offset": -1}, response_code.SYSTEM_ERROR, "offset is -1, and must be from 0"),
    ({"offset": 1 << 63}, response_code.SYSTEM_ERROR, "the custom field <offset> is invalid"),
    ({"count": -1}, response_code.SYSTEM_ERROR, "count is -1, and must be from 1 to 1024"),
    ({"count": 1 << 31}, response_code.SYSTEM_ERROR, "the custom field <count> is invalid"),
    ({"count": None}, response_code.SYSTEM_ERROR, "the custom field <count> is null"),
    ({"bodyBytes": 1 << 30}, response_code.SYSTEM_ERROR, "bodyBytes is 1073741824, and must be from 0 to 65536"),
    ({"propertyBytes": "many"}, response_code.SYSTEM_ERROR, "the custom field <propertyBytes> is invalid"),
    ({"sql": "a >"}, response_code.SUBSCRIPTION_PARSE_FAILED, "parse the sql filter failed: "),
    ({"sql": "(" * 5_000}, response_code.SUBSCRIPTION_PARSE_FAILED, "parse the sql filter failed: "),
    ({"text": "x" * 2_000}, response_code.SYSTEM_ERROR, "text has 2000 characters"),
])
def test_invalid_request_is_refused_with_the_reason(broker, change, code, reason):
    topic = "BrowsedByMany"
    broker.send(topic)

    class Odd(GetMessageHeadsRequestHeader):
        def __init__(self):
            super().__init__(topic, 0, 0, 1, 0)
            for name, value in change.items():
                setattr(self, name, value)

    answer = broker.call(request_code.GET_MESSAGE_HEADS, Odd())
    assert (answer.code, reason in (answer.remark or "")) == (code, True), answer


def test_topic_that_consumers_may_not_read_is_shown(broker):
    topic = next(TOPICS)
    broker.send(topic, b"kept")
    broker.next_offset(topic)
    config = broker.controller.topic_config_manager.select_topic_config(topic)
    config.perm = sys_flags.PERM_WRITE
    assert broker.pull(topic, 0).code == response_code.NO_PERMISSION
    assert [head.body for head in ask(broker, topic)[1]] == [b"kept"]


def test_acknowledged_message_is_shown_at_once(broker):
    # The dispatch waits for a group of messages; see gathering in admin_handlers.
    topic = next(TOPICS)
    for number in range(50):
        broker.send(topic, b"%d" % number)
        assert ask(broker, topic)[0].maxOffset == number + 1


def test_slave_answers_like_its_master(tmp_path):
    from rmqha.store.message_store_config import BrokerRole

    with broker_at(tmp_path / "master", None) as master, broker_at(
            tmp_path / "slave", None, brokerRole=BrokerRole.SLAVE, brokerId=1,
            haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}") as slave:
        for number in range(5):
            master.send("T", b"%d" % number)
        end = master.store.get_max_phy_offset()
        wait_until(lambda: slave.store.get_max_phy_offset() == end and slave.next_offset("T") == 5, 60_000,
                   "the slave has all")
        slave.controller.topic_config_manager.update_topic_config(
            master.controller.topic_config_manager.select_topic_config("T"))
        assert ask(slave, "T") == ask(master, "T") and len(ask(slave, "T")[1]) == 5
