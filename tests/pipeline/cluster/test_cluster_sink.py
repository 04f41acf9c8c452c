"""Rows are sent unchanged, in batches with others, or are refused with their number."""
import itertools
import random
import re

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, LongType, MapType, StringType, StructField, StructType

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendResult, SendStatus
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.common.message.message_layout import MAX_PROPERTIES_LENGTH
from rmqha.pipeline.cluster.cluster_sink import LONGEST_BODY, ClusterWriter, MessageMaker, MessageSender, check_columns
from rmqha.pipeline.cluster.cluster_source import COMMON_OPTIONS, READ_OPTIONS, WRITE_OPTIONS, ClusterReader
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.table import table_schema
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.pipeline.cluster.test_cluster import (
    cluster,  # noqa: F401, fixtures
    new_topic,
    real,  # noqa: F401, fixtures
    wait_readable,
)

# A row is sent unchanged, or is refused with its number, its column and a remedy.

SCHEMA = pa.schema([("topic", pa.string()), ("body", pa.binary()), ("keys", pa.string()), ("tags", pa.binary()),
                    ("flag", pa.int64()), ("delayLevel", pa.int32())])
HEADERS = SCHEMA.append(pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))))
MAP = SCHEMA.append(pa.field("properties", pa.map_(pa.string(), pa.string())))
OWN = message_const.STRING_HASH_SET
GIVEN_BY_SENDING = {"UNIQ_KEY", "WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON", "DELAY", "MIN_OFFSET",
                    "MAX_OFFSET"}
LEVELS = 18  # number of levels in a broker's messageDelayLevel


def options_of(**given) -> Options:
    return Options({"nameServer": "127.0.0.1:1", **given}, (*WRITE_OPTIONS, *COMMON_OPTIONS), "rocketmq")


def messages(row: dict, schema=HEADERS, **given):
    names = [field for field in schema if field.name in row]
    batch = pa.record_batch([pa.array([row[field.name]], field.type) for field in names], schema=pa.schema(names))
    return list(MessageMaker(options_of(**given)).messages(batch))


def is_text(value) -> bool:
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
    return True


def may_be_value(value) -> bool:
    """Return whether the format allows this value for a property."""
    data = value.encode() if isinstance(value, str) else value
    return bool(data) and b"\2" not in data and is_text(value)


def may_be_sent(row: dict, kind: str) -> bool:
    """Return whether a message can hold exactly the contents of the row: an oracle written from the format,
    independent of the code."""
    topic = row["topic"]
    if not topic or not re.fullmatch(r"[%|a-zA-Z0-9_-]{1,127}", topic) or topic == "SCHEDULE_TOPIC_XXXX":
        return False
    if not row["body"] or len(row["body"]) > LONGEST_BODY:
        return False
    if not all(row[name] is None or may_be_value(row[name]) for name in ("keys", "tags")):
        return False
    if row["flag"] is not None and not -1 << 31 <= row["flag"] < 1 << 31:
        return False
    if row["delayLevel"] is not None and not 0 <= row["delayLevel"] <= LEVELS:
        return False
    pairs = row[kind] or []
    if any(pair is None for pair in pairs):
        return False
    pairs = [(pair["key"], pair["value"]) if kind == "headers" else pair for pair in pairs]
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        return False
    for name, value in pairs:
        if not name or value is None or "\1" in name or "\2" in name or not may_be_value(value):
            return False
        text = value.decode() if isinstance(value, bytes) else value
        if name in ("KEYS", "TAGS"):
            own = row[name.lower()]
            own = own.decode() if isinstance(own, bytes) else own
            if own is not None and own != text:
                return False
        elif name in OWN:
            return False
    return True


def sent_properties(row: dict, kind: str) -> dict[str, str]:
    """Return the properties that the message must have."""
    pairs = [(pair["key"], pair["value"]) if kind == "headers" else pair for pair in row[kind] or []]
    found = {name: value.decode() if isinstance(value, bytes) else value for name, value in pairs}
    for column, name in (("keys", "KEYS"), ("tags", "TAGS")):
        if row[column] is not None:
            found[name] = row[column].decode() if isinstance(row[column], bytes) else row[column]
    return found


odd_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(
    ["", "\1", "\2", "a\1b", "a\2b", "k1 k2", "é", "\0", " "])
odd_values = odd_texts.map(str.encode) | st.binary(max_size=6)
names = odd_texts | st.sampled_from(["color", "KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", *sorted(OWN)])
cells = {
    "topic": st.sampled_from(["T", "T-1", "%DLQ%g", "t" * 127]) | st.sampled_from(
        [None, "", "t" * 128, "SCHEDULE_TOPIC_XXXX", "a b", "a\1b", "a\2"]) | odd_texts,
    "body": st.binary(min_size=1, max_size=9) | st.sampled_from([None, b""]),
    "keys": st.none() | odd_texts, "tags": st.none() | odd_values,
    "flag": st.none() | st.integers(-5, 5) | st.sampled_from(
        [(1 << 31) - 1, 1 << 31, -1 << 31, -(1 << 31) - 1, 1 << 62]),
    "delayLevel": st.none() | st.integers(-2, LEVELS + 2) | st.sampled_from([(1 << 31) - 1]),
}
header_lists = st.none() | st.lists(st.none() | st.fixed_dictionaries(
    {"key": st.none() | names, "value": st.none() | odd_values}), max_size=4)
maps = st.none() | st.lists(st.tuples(names, st.none() | odd_texts), max_size=4)
PLAIN = {"topic": "T", "body": b"b", "keys": None, "tags": None, "flag": None, "delayLevel": None}


@st.composite
def rows(draw):
    """Draw (kind, row); most columns are valid, so that each fault also occurs alone."""
    kind = draw(st.sampled_from(["headers", "properties"]))
    row = dict(PLAIN)
    for name in draw(st.sets(st.sampled_from([*cells]), max_size=3)):
        row[name] = draw(cells[name])
    row[kind] = draw(header_lists if kind == "headers" else maps)
    return kind, row


@settings(max_examples=600, deadline=None)
@given(rows())
@example(("headers", {**PLAIN, "headers": [None]}))
@example(("headers", {**PLAIN, "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]}))
@example(("headers", {**PLAIN, "headers": [{"key": "KEYS", "value": b"k"}], "keys": "k"}))
@example(("properties", {**PLAIN, "properties": [("a", "x\2y")]}))
@example(("properties", {**PLAIN, "properties": [("a", "x\1y")]}))
@example(("properties", {**PLAIN, "keys": "k\2l", "properties": None}))
def test_row_becomes_an_equal_message_or_is_refused(drawn):
    kind, row = drawn
    schema = HEADERS if kind == "headers" else MAP
    try:
        message, = messages(row, schema)
    except PipelineError as error:
        assert not may_be_sent(row, kind), error
        said = str(error)
        assert re.match(r"rocketmq: row 1[ ,(]", said) and said.isprintable() and len(said) < 900
        assert re.search(r", column (topic|body|keys|tags|flag|delayLevel|headers|properties): ", said)
        return
    assert may_be_sent(row, kind)
    # As it goes over the wire and into the log.
    stored = message_decoder.decode_message(message_decoder.encode_message(message))
    assert (message.topic, stored.body, stored.flag) == (row["topic"], row["body"], row["flag"] or 0)
    found = {name: value for name, value in stored.properties.items() if name not in ("WAIT", "DELAY")}
    assert found == sent_properties(row, kind)
    assert stored.delay_time_level == (row["delayLevel"] or 0)


@pytest.mark.parametrize("row, column, reason", [
    ({"headers": [None]}, "headers", r"is null: leave it out, with filter\(headers, h -> "),
    ({"headers": [{"key": "a", "value": None}]}, "headers", "'a' is null: leave it out"),
    ({"headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b"1"}]}, "headers", "'a' occurs twice"),
    ({"headers": [{"key": "a", "value": b"\xff"}]}, "headers", "'a' is not UTF-8 at byte 0, .* base64"),
    ({"headers": [{"key": "a", "value": b""}]}, "headers", "property 'a': the value is empty, .*: leave it out"),
    ({"headers": [{"key": "a\1", "value": b"v"}]}, "headers", r"property 'a\\x01': the characters \\x01 and \\x02"),
    ({"headers": [{"key": "a", "value": b"v\2"}]}, "headers", r"property 'a': the characters \\x01 and \\x02"),
    ({"headers": [{"key": "WAIT", "value": b"false"}]}, "headers", "WAIT is RocketMQ's own: .*systemProperties"),
    ({"headers": [{"key": "TAGS", "value": b"a"}], "tags": b"b"}, "tags", "b'b' contradicts the row's property TAGS"),
    ({"keys": "a\2b"}, "keys", r"the characters \\x01 and \\x02 separate properties on the wire"),
    ({"keys": ""}, "keys", "the value is empty, which no message can have: make it null"),
    ({"tags": b"\xc3"}, "tags", "is not UTF-8 at byte 0"),
    ({"topic": "a\1b"}, "topic", r"The specified topic\[a\\x01b\] contains illegal characters"),
    ({"topic": None}, "topic", "it is empty or null, and the option topic is not set"),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, "topic", "is forbidden"),
    ({"body": None}, "body", "it is null, and every message needs a body"),
    ({"body": b""}, "body", "it is empty, and every message needs a body"),
    ({"body": bytes(LONGEST_BODY + 1)}, "body", f"{LONGEST_BODY + 1} bytes, but a message has at most {LONGEST_BODY}"),
    ({"flag": 1 << 31}, "flag", f"{1 << 31} is not from {-(1 << 31)} to {(1 << 31) - 1}"),
    ({"delayLevel": -1}, "delayLevel", "-1 is not from 0 to"),
    ({"delayLevel": 19}, "delayLevel", "19 is above 18, .* set the option maxDelayLevel"),
    ({"keys": "k" * 22_000, "tags": b"t" * 20_000}, "keys", f"bytes together, but a message has room for "
                                                            f"{MAX_PROPERTIES_LENGTH}"),
    ({"tags": "é".encode() * 17_000}, "tags", "340.. bytes together"),
])
def test_error_names_column_and_reason(row, column, reason):
    with pytest.raises(PipelineError, match=f", column {column}: .*{reason}"):
        messages({**PLAIN, **row})


def test_row_is_named_by_its_number_in_the_task():
    maker = MessageMaker(options_of(topic="T"))
    batch = pa.record_batch({"body": pa.array([b"1", b"2", b"3"]), "key": pa.array(["a", "b", "c"])})
    assert len(list(maker.messages(batch))) == 3
    found = maker.messages(pa.record_batch({"body": pa.array([b"4", b""]), "key": pa.array(["d", "e"])}))
    assert next(found).keys == "d"
    with pytest.raises(PipelineError, match=r"row 5 \(key 'e'\), column body: it is empty"):
        next(found)


def test_text_that_is_not_utf8_is_reported_with_its_row():
    texts = pa.array([b"a", b"\xff\xff"], pa.binary()).view(pa.string())
    maker = MessageMaker(options_of(topic="T"))
    with pytest.raises(PipelineError, match="row 2, column keys: the text is not UTF-8 at byte 0: cast it to binary"):
        list(maker.messages(pa.record_batch({"body": pa.array([b"1", b"2"]), "keys": texts})))


def test_options_allow_other_values():
    row = {**PLAIN, "headers": [{"key": "UNIQ_KEY", "value": b"u"}, {"key": "a", "value": b"v"}], "delayLevel": 20}
    with pytest.raises(PipelineError, match="UNIQ_KEY is RocketMQ's own"):
        messages(row, maxDelayLevel="20")
    message, = messages(row, maxDelayLevel="20", systemProperties="drop")
    assert message.properties == {"WAIT": "true", "a": "v", "DELAY": "20"}
    with pytest.raises(PipelineError, match="systemProperties: 'keep' is not one of error, drop"):
        MessageMaker(options_of(systemProperties="keep"))
    for topic in ("a b", "t" * 128, "SCHEDULE_TOPIC_XXXX"):
        with pytest.raises(PipelineError, match="rocketmq, option topic: .* is not a topic to send to: "):
            MessageMaker(options_of(topic=topic))


@pytest.mark.parametrize("fields, message", [
    ([StructField("properties", MapType(StringType(), LongType()))],
     "column properties is map<string,bigint>, it must be map<string,string>"),
    ([StructField("properties", MapType(BinaryType(), StringType()))], "column properties is map<binary,string>"),
    ([StructField("headers", ArrayType(StringType()))], "column headers is array<string>, it must be array<struct<key"),
    ([StructField("body", BinaryType())], "there are two columns 'body'; select one"),
])
def test_tables_with_other_types_are_refused(fields, message):
    with pytest.raises(PipelineError, match=re.escape(message)):
        check_columns(StructType([StructField("body", BinaryType()), *fields]), options_of(topic="T"))


def _random_row(rand: random.Random, number: int) -> dict:
    text = lambda: "".join(rand.choice("aé\1\2 b名\0\U0001f600") for _ in range(rand.randint(0, 6)))  # noqa: E731
    row = {**PLAIN, "body": b"%d:" % number + rand.randbytes(rand.choice((0, 9, 9000))),
           "flag": rand.choice((None, 0, -1, 7, (1 << 31) - 1, 1 << 31)), "keys": rand.choice((None, "k", text())),
           "tags": rand.choice((None, b"t", text().encode(), b"\xff")),
           "headers": rand.choice((None, [])) or [rand.choice((None, {"key": text(), "value": text().encode()}))
                                                  if rand.random() < .2 else
                                                  {"key": rand.choice("abcdefgh") + text().strip("\1\2"), "value": b"v"}
                                                  for _ in range(rand.randint(0, 3))]}
    return row


def test_message_at_a_broker_equals_its_row(cluster):
    """Send many rows through a broker and the reader: none is changed on the way."""
    topic, rand = new_topic(), random.Random(37)
    good, refused = [], 0
    for number in range(700):
        row = {**_random_row(rand, number), "topic": topic}
        try:
            messages(row)
            good.append(row)
        except PipelineError:
            refused += 1
    assert refused > 100 and len(good) > 100
    batches = pa.Table.from_pylist(good, HEADERS).to_batches(64)
    sent = ClusterWriter(options_of(nameServer=cluster), from_arrow_schema(HEADERS)).write(iter(batches))
    assert sent.messages == len(good) and sent.requests < len(good)
    wait_readable(cluster, topic, len(good))
    options = Options({"nameServer": cluster, "subscribe": topic}, READ_OPTIONS, "rocketmq")
    reader = ClusterReader(options, table_schema(options))
    arrived = {row["body"]: row for part in reader.partitions() for batch in reader.read(part)
               for row in batch.to_pylist()}
    assert len(arrived) == len(good)
    for row in good:
        found = arrived[row["body"]]
        properties = {name: value for name, value in found["properties"] if name not in GIVEN_BY_SENDING}
        assert properties == sent_properties(row, "headers")
        assert (found["topic"], found["flag"]) == (topic, row["flag"] or 0)
        assert found["keys"] == row["keys"] and found["tags"] == (row["tags"] and row["tags"].decode())


def test_delayed_row_arrives_unchanged(servers):
    topic = new_topic()
    with DefaultMQProducer("delayed-rows", servers.namesrv) as producer:
        message, = messages({**PLAIN, "topic": topic, "delayLevel": 1, "headers": [{"key": "a", "value": b"x\1y"}]})
        producer.send(message)
    wait_readable(servers.namesrv, topic, 1)
    options = Options({"nameServer": servers.namesrv, "subscribe": topic}, READ_OPTIONS, "rocketmq")
    reader = ClusterReader(options, table_schema(options))
    found, = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert ("a", "x\1y") in found["properties"] and found["body"] == b"b"


# Batches of the sink: as much as a broker accepts, and no message that would make the others fail.

STORED = SendResult(SendStatus.SEND_OK, "0" * 32, MessageQueue("T", "b", 0), 0)


class Kept:
    """A producer that keeps the messages it is given."""

    def __init__(self):
        self.requests = []

    def send(self, message):
        self.requests.append([message])
        return STORED

    def send_batch(self, messages):
        self.requests.append(messages)
        return STORED


@pytest.mark.parametrize("wide", [20_000, 31_690, 31_760, 32_600, 32_700])
def test_batch_has_space_for_properties_added_by_brokers(wide):
    producer = Kept()
    sender = MessageSender(producer, 50, None)
    for number in range(120):
        message = Message("TU"[number % 2], b"%d" % number + b"x" * (0 if number % 5 else 100_000))
        if number % 7 == 0:
            message.put_property("p", "v" * wide)
        if number % 11 == 0:
            message.delay_time_level = 1
        sender.put(message)
    sent = sender.finish()
    assert (sent.messages, sent.requests) == (120, len(producer.requests)) and sent.requests < 80
    for topic in "TU":
        numbers = [int(each.body.rstrip(b"x")) for each in itertools.chain(*producer.requests)
                   if each.topic == topic and not each.delay_time_level]
        assert numbers == sorted(numbers) and numbers
    for batch in (each for each in producer.requests if len(each) > 1):
        for message in batch:
            message.put_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "0" * 32)
        assert len(MessageBatch.generate_from_list(batch).encode()) <= 1 << 20
        for message in batch:
            stored = {**message.properties, "CLUSTER": "c" * 200}
            assert len(message_decoder.message_properties2string(stored)) <= layout.MAX_PROPERTIES_LENGTH
