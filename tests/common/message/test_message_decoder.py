"""Encoding and decoding messages, compared with those of a real RocketMQ."""
import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import sys_flags
from rmqha.common.message import message_decoder, message_layout
from rmqha.common.message.message import Message, MessageClientExt, MessageExt
from rmqha.common.message.message_layout import MessageDecodeError
from tests.common.model_golden import golden

RECORDS = golden("records")
PROPERTIES = golden("properties")
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
TYPE_LIBRARIES = {0x100: "lz4", 0x200: "zstandard"}


def needs_library(case):
    name = TYPE_LIBRARIES.get(case["sysFlag"] & sys_flags.COMPRESSION_TYPE_COMPARATOR)
    return name is not None and importlib.util.find_spec(name) is None


def message(case) -> MessageExt:
    ext = MessageExt("TopicTest", bytes.fromhex(case["body"]))
    ext.body_crc, ext.flag, ext.queue_id, ext.queue_offset = case["bodyCrc"], 7, 3, 123456789012
    ext.commit_log_offset, ext.sys_flag = 9876543210, case["sysFlag"]
    ext.born_timestamp, ext.store_timestamp = 1700000000123, 1700000000456
    ext.born_host, ext.store_host = (case["bornHost"], 40001), (case["storeHost"], 10911)
    ext.reconsume_times, ext.prepared_transaction_offset = 2, 55
    ext.keys, ext.tags = "k1 k2", "TagA"
    ext.put_user_property("user", "\u503c")
    ext.put_property("UNIQ_KEY", "7F00000100012A9F0000000000000001")
    return ext


@pytest.mark.parametrize("case", RECORDS["records"], ids=lambda case: hex(case["sysFlag"]))
def test_records_are_encoded_as_java_does(case):
    # Compressed bytes depend on the library's build, so they are only decoded.
    if not case["compress"]:
        assert message_decoder.encode(message(case)).hex() == case["record"]


@pytest.mark.parametrize("case", RECORDS["records"], ids=lambda case: hex(case["sysFlag"]))
def test_java_records_are_decoded(case):
    if needs_library(case):
        pytest.skip("the library of the compression type is not installed")
    data = bytes.fromhex(case["record"])
    decoded, expected = message_decoder.decode(data), message(case)
    for name in MessageExt.__slots__:
        if name not in ("msg_id", "store_size"):
            assert getattr(decoded, name) == getattr(expected, name), name
    assert (decoded.topic, decoded.body, decoded.flag) == (expected.topic, expected.body, 7)
    assert decoded.properties == expected.properties == case["offsetProperties"]
    assert decoded.msg_id == case["msgId"]
    assert decoded.store_size == len(data)
    assert message_decoder.decode_properties(data) == case["offsetProperties"]


@pytest.mark.parametrize("flag", [0x1, 0x301, 0x101, 0x201])
def test_compressed_bodies_survive_a_round_trip(flag):
    if needs_library({"sysFlag": flag}):
        pytest.skip("the library of the compression type is not installed")
    ext = message(RECORDS["records"][0])
    ext.sys_flag, ext.body = flag, b"many many many many many words " * 50
    data = message_decoder.encode(ext, need_compress=True)
    assert len(data) < len(ext.body)
    assert message_decoder.decode(data).body == ext.body
    assert len(message_decoder.decode(data, decompress=False).body) < len(ext.body)
    assert message_decoder.decode(data, read_body=False).body == b""


@pytest.mark.parametrize(("flag", "name"), [(0x101, "lz4"), (0x201, "zstd")])
def test_missing_compression_library_is_named(flag, name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, {"lz4": "lz4.frame", "zstd": "zstandard"}[name], None)
    ext = message(RECORDS["records"][0])
    ext.sys_flag = flag
    with pytest.raises(MessageDecodeError, match=f"extra `{name}`"):
        message_decoder.decode(message_decoder.encode(ext))


@pytest.mark.parametrize("flag", [0x1, 0x401, 0x701])
def test_body_that_does_not_decompress_is_an_error(flag):
    ext = message(RECORDS["records"][0])
    ext.sys_flag = flag
    with pytest.raises(MessageDecodeError, match="does not decompress"):
        message_decoder.decode(message_decoder.encode(ext))


def test_pull_answer_is_decoded_record_by_record():
    data = b"".join(bytes.fromhex(case["record"]) for case in RECORDS["records"][:4])
    messages = message_decoder.decodes(memoryview(data))
    assert [type(each) for each in messages] == [MessageClientExt] * 4
    assert [each.offset_msg_id for each in messages] == [case["msgId"] for case in RECORDS["records"][:4]]
    assert {each.msg_id for each in messages} == {"7F00000100012A9F0000000000000001"}
    assert message_decoder.decodes(b"") == []


def test_consumed_message_without_a_unique_id_has_its_offset_id():
    ext = message(RECORDS["records"][0])
    ext.properties = {}
    decoded = message_decoder.client_decode(message_decoder.encode(ext))
    assert decoded.msg_id == decoded.offset_msg_id == RECORDS["records"][0]["msgId"]
    assert message_decoder.decode_properties(message_decoder.encode(ext)) is None


def test_truncated_pull_answer_is_an_error_that_names_the_place():
    data = bytes.fromhex(RECORDS["records"][0]["record"])
    with pytest.raises(MessageDecodeError) as caught:
        message_decoder.decodes(data + data[:-1])
    assert caught.value.position == len(data)


@pytest.mark.parametrize("case", RECORDS["messageIds"], ids=lambda case: case["id"])
def test_message_ids_equal_javas(case):
    host = (case["host"], case["port"])
    assert message_decoder.create_message_id(host, case["offset"]) == case["id"]
    assert message_decoder.create_message_id(message_layout.host_to_bytes(host), case["offset"]) == case["id"]
    assert message_decoder.decode_message_id(case["id"]) == (host, case["offset"])
    assert message_decoder.decode_message_id(case["id"].lower()) == (host, case["offset"])


@pytest.mark.parametrize("text", ["", "00", "zz" * 16, "0" * 31, "0" * 33, "0" * 34, "0" * 55, "0 " * 16,
                                  "\u0660" * 32])
def test_invalid_message_id_is_an_error(text):
    with pytest.raises(MessageDecodeError):
        message_decoder.decode_message_id(text)


@given(st.text(max_size=60))
def test_any_text_is_a_message_id_or_an_error(text):
    try:
        message_decoder.decode_message_id(text)
    except MessageDecodeError:
        assert True


@pytest.mark.parametrize("case", PROPERTIES["written"], ids=lambda case: str(len(case["names"])))
def test_properties_are_written_in_the_order_of_a_java_hash_map(case):
    properties = dict(zip(case["names"], case["values"], strict=True))
    assert message_decoder.message_properties2string(properties) == case["text"]


@pytest.mark.parametrize("case", PROPERTIES["parsed"], ids=lambda case: repr(case["text"]))
def test_properties_are_parsed_as_java_does(case):
    assert message_decoder.string2message_properties(case["text"]) == case["map"]


def test_no_properties_are_written_as_an_empty_text():
    assert message_decoder.message_properties2string(None) == ""
    assert message_decoder.message_properties2string({"a": None}) == ""
    assert message_decoder.string2message_properties(None) == {}


@given(st.dictionaries(NAMES, NAMES, max_size=30))
def test_properties_survive_a_round_trip(properties):
    text = message_decoder.message_properties2string(properties)
    assert message_decoder.string2message_properties(text) == properties
    assert message_decoder.string2message_properties(text + "\x02") == properties


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=40))
def test_any_text_is_parsed_as_properties(text):
    properties = message_decoder.string2message_properties(text)
    again = message_decoder.message_properties2string(properties)
    assert message_decoder.string2message_properties(again) == properties


def batch_messages() -> list[Message]:
    first = Message("TopicTest", b"body-1", "TagA", "key1", 5)
    second = Message("TopicTest", b"body-2")
    second.put_user_property("color", "red")
    return [first, second, Message("TopicTest", b"")]


def test_batches_are_encoded_as_java_does():
    assert message_decoder.encode_messages(batch_messages()).hex() == RECORDS["batch"]


def test_java_batches_are_decoded():
    decoded = message_decoder.decode_messages(bytes.fromhex(RECORDS["batch"]))
    assert [(each.flag, each.body, each.properties) for each in decoded] == [
        (each.flag, each.body, each.properties) for each in batch_messages()]
    first = message_decoder.decode_message(bytes.fromhex(RECORDS["batch"]))
    assert first.body == b"body-1"
    with pytest.raises(MessageDecodeError, match="empty"):
        message_decoder.decode_message(b"")


def test_properties_too_long_for_a_short_are_refused_in_batches():
    with pytest.raises(ValueError, match="Properties size of message exceeded"):
        message_decoder.encode_message(Message("T", b"", "t" * 32768))


def test_lone_surrogate_becomes_a_question_mark_as_in_java():
    ext = message(RECORDS["records"][0])
    ext.properties = {"a": "\ud800"}
    assert message_decoder.decode(message_decoder.encode(ext)).properties == {"a": "?"}


def test_malformed_utf8_is_replaced():
    data = bytearray(message_decoder.encode(message(RECORDS["records"][0])))
    data[-1] = 0xFF
    assert message_decoder.decode(data).tags == "Tag\ufffd"


@given(st.data())
def test_damaged_records_are_a_message_or_an_error(data):
    damaged = bytearray.fromhex(RECORDS["records"][0]["record"])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = message_decoder.decode(damaged)
    except MessageDecodeError:
        return
    assert decoded.store_size == len(damaged)
