"""Remoting commands: refused input, what survives a round trip, both header encodings, and byte equality with a real
RocketMQ."""
import importlib
import inspect
import json
import pkgutil
import re
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmqha.common.protocol
from rmqha.common.data_version import DataVersion
from rmqha.common.futures import AtomicLong
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.client_headers import (
    EndTransactionRequestHeader,
    PullMessageRequestHeader,
    QueryConsumeQueueRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.protocol.topic_route_data import BrokerData, TopicRouteData
from rmqha.common.topics import TopicConfig
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import fastjson, remoting_command
from rmqha.remoting.protocol.header_codec import LanguageCode, SerializeType, plan_of
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.sources import ROOT
from tests.support.tiers import drawn

TYPES = pytest.mark.parametrize("kind", list(SerializeType), ids=lambda kind: kind.name)


def frame(header: bytes, kind: int = 0, body: bytes = b"", header_length: int | None = None) -> bytes:
    length = len(header) if header_length is None else header_length
    return struct.pack(">I", kind << 24 | length) + header + body


def json_frame(**fields: object) -> bytes:
    return frame(json.dumps(fields).encode())


def refused(data: bytes) -> None:
    with pytest.raises(RemotingCommandException):
        RemotingCommand.decode(data)


BINARY_START = struct.pack(">hbhii", 10, 0, 409, 7, 0)


@pytest.mark.parametrize("data", [
    b"", b"\0\0", frame(b"{}", header_length=3), frame(b"{}", header_length=0xFFFFFF), frame(b"{}", kind=2),
    frame(b"{}", kind=255), frame(b""), frame(b"null"), frame(b"[]"), frame(b"5"), frame(b"\xff\xfe"), frame(b"{}x"),
    frame(b"{" * 100_000), frame(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"), frame(b'{"code":NaN}'),
    frame(b'{"code":' + b"9" * 5000 + b"}"), json_frame(code="x"), json_frame(code=[]), json_frame(code=2**31),
    json_frame(opaque=-2**31 - 1), json_frame(extFields=[]), json_frame(extFields=5), json_frame(extFields="x"),
    frame(b'{"extFields":{1:"x"}}'), frame(b'{"a":"' + b"x" * (1 << 20) + b'"}'), frame(b"[1," * 300_000),
    frame(BINARY_START, 1), frame(BINARY_START + struct.pack(">ii", 2**31 - 1, 0), 1),
    frame(BINARY_START + struct.pack(">ii", -1, 0), 1), frame(BINARY_START + struct.pack(">ii", 0, 2**31 - 1), 1),
    frame(BINARY_START + struct.pack(">iih", 0, 6, -1) + bytes(4), 1),
    frame(BINARY_START + struct.pack(">iihi", 0, 6, 0, -1), 1),
    frame(BINARY_START + struct.pack(">iih", 0, 2, 0), 1),
    frame(BINARY_START + struct.pack(">iihi", 0, 6, 0, 100), 1, b"x" * 200),
], ids=range(34))
def test_invalid_command_is_refused(data):
    refused(data)
    refused(memoryview(data))


def test_header_may_end_the_frame_without_a_body():
    command = RemotingCommand.decode(json_frame(code=5, opaque=9))
    assert (command.code, command.opaque, command.body) == (5, 9, None)


@pytest.mark.parametrize("fields, expected", [
    ({"code": "10"}, 10), ({"code": 1.7}, 1), ({"code": None}, 0), ({"code": True}, 1), ({"code": ""}, 0), ({}, 0),
    ({"code": -7}, -7),
])
def test_code_is_read_as_fastjson_reads_it(fields, expected):
    assert RemotingCommand.decode(json_frame(**fields)).code == expected


def test_ext_fields_are_strings():
    data = frame(b'{"extFields":{"a":1,"b":null,"c":true,"e":{"x":1},"f":[1],"g":"t"}}')
    assert RemotingCommand.decode(data).ext_fields == {
        "a": "1", "c": "true", "e": '{"x":1}', "f": "[1]", "g": "t"}


@pytest.mark.parametrize("module", ["orjson", None])
def test_unquoted_numbers_keep_their_digits(module, monkeypatch):
    monkeypatch.setattr(remoting_command, "orjson", module and pytest.importorskip(
        module, reason="orjson, of the extra `fast`, is not installed"))
    long, row = "123456789012345678901234567890", "[18446744073709551616,1]"
    text = f'{{"remark":{long},"extFields":{{"a":{long},"b":{row},"c":"{long}"}}}}'
    command = RemotingCommand.decode(frame(text.encode()))
    assert command.remark == long and command.ext_fields == {"a": long, "b": row, "c": long}


def test_long_header_may_be_surrounded_by_white_space():
    text = "x" * remoting_command.MAX_DIALECT_LENGTH
    command = RemotingCommand.decode(frame(f'\r\n {{"extFields":{{"a":"{text}"}}}}\t\n'.encode()))
    assert command.ext_fields == {"a": text}


def test_header_in_fastjsons_dialect_is_read():
    assert RemotingCommand.decode(frame(b"{code:5,'opaque':7,extFields:{},}")).opaque == 7


@pytest.mark.parametrize("language, expected", [("CPP", LanguageCode.CPP), ("KLINGON", None), (3, LanguageCode.PYTHON),
                                                (None, None)])
def test_unknown_language_is_null(language, expected):
    assert RemotingCommand.decode(json_frame(language=language)).language is expected


@pytest.mark.parametrize("language", [[], {}, -1, 99, 1.5])
def test_invalid_language_is_refused(language):
    with pytest.raises(RemotingCommandException, match="enum"):
        RemotingCommand.decode(json_frame(language=language))


def test_unknown_binary_language_is_null_and_can_be_written_back():
    command = RemotingCommand.decode(frame(struct.pack(">hbhiiii", 10, 99, 409, 7, 0, 0, 0), 1))
    assert command.language is None
    assert "language" not in repr(command.encode()) and len(command.encode()) > 8
    command.serialize_type = SerializeType.JSON
    assert b"language" not in command.encode()


def test_decoded_body_is_independent_of_the_read_buffer():
    buffer = bytearray(frame(b'{"code":1}', body=b"body"))
    command = RemotingCommand.decode(memoryview(buffer))
    buffer[:] = b"x" * len(buffer)
    assert command.body == b"body" and isinstance(command.body, bytes)


def test_unknown_codes_flags_and_fields_survive_a_round_trip():
    command = RemotingCommand.decode(json_frame(code=-1, flag=7, opaque=-9, version=3, nobody=[1]))
    assert (command.code, command.flag, command.opaque, command.version) == (-1, 7, -9, 3)
    assert command.is_response_type and command.is_oneway_rpc


SEND = {"a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}


def with_fields(**changes: str | None) -> RemotingCommand:
    command = RemotingCommand.create_request_command(310)
    command.ext_fields = {key: value for key, value in {**SEND, **changes}.items() if value is not None}
    return command


def test_custom_header_is_read_with_defaults():
    header = with_fields(k="TRUE", l="16", x="ignored").decode_command_custom_header(SendMessageRequestHeaderV2)
    assert header == SendMessageRequestHeaderV2("g", "t", "TBW102", 4, 0, 0, 1, 0, k=True, l=16)


@pytest.mark.parametrize("changes, field", [
    ({"e": None}, "e"), ({"e": "x"}, "e"), ({"e": ""}, "e"), ({"e": "2147483648"}, "e"), ({"e": " 1"}, "e"),
    ({"e": "1_0"}, "e"), ({"e": "0x1"}, "e"), ({"e": "1.0"}, "e"), ({"g": str(2**63)}, "g"), ({"g": "9" * 5000}, "g"),
    ({"j": "-"}, "j"), ({"e": "\u00b2"}, "e"),
])
def test_missing_or_malformed_field_is_named(changes, field):
    with pytest.raises(RemotingCommandException, match=f"<{field}>"):
        with_fields(**changes).decode_command_custom_header(SendMessageRequestHeaderV2)


def test_signs_are_read_as_java_reads_them():
    header = with_fields(e="-1", f="+2").decode_command_custom_header(SendMessageRequestHeaderV2)
    assert (header.e, header.f) == (-1, 2)


def test_optional_field_may_be_malformed():
    """As in 4.9, the field keeps its default."""
    command = RemotingCommand()
    command.ext_fields = {"topic": "T", "queueId": "x", "index": "1.5", "count": "7"}
    assert command.decode_command_custom_header(QueryConsumeQueueRequestHeader) == QueryConsumeQueueRequestHeader(
        "T", 0, 0, 7)


def test_lone_surrogate_in_a_header_becomes_a_question_mark():
    head = b'{"code":10,"extFields":{"topic":"\\ud800"},"flag":0,"opaque":1}'
    command = RemotingCommand.decode(len(head).to_bytes(4, "big") + head)
    assert command.ext_fields == {"topic": "?"}


def test_lone_surrogate_becomes_a_question_mark_in_a_header_of_any_length():
    text = b"x" * remoting_command.MAX_DIALECT_LENGTH
    head = b'{"code":10,"extFields":{"topic":"\\ud800"},"flag":0,"opaque":1,"remark":"' + text + b'"}'
    command = RemotingCommand.decode(len(head).to_bytes(4, "big") + head)
    assert (command.ext_fields, len(command.remark)) == ({"topic": "?"}, len(text))


def test_header_without_fields_lacks_the_required_field():
    with pytest.raises(RemotingCommandException):
        RemotingCommand().decode_command_custom_header(PullMessageRequestHeader)


def test_check_of_the_header_class_is_called():
    command = RemotingCommand()
    command.custom_header = EndTransactionRequestHeader("g", 1, 1, 5, False, "m")
    command.make_custom_header_to_net()
    with pytest.raises(RemotingCommandException, match="commitOrRollback"):
        command.decode_command_custom_header(EndTransactionRequestHeader)


def test_response_starts_as_a_system_error_without_a_code():
    response = RemotingCommand.create_response_command(custom_header=SendMessageResponseHeader)
    assert (response.code, response.remark) == (1, "not set any response code")
    assert response.is_response_type and response.custom_header == SendMessageResponseHeader()


def test_request_opaques_are_distinct_and_wrap():
    first = RemotingCommand.create_request_command(1)
    assert RemotingCommand.create_request_command(1).opaque != first.opaque
    remoting_command._request_id, before = iter([2**31]), remoting_command._request_id
    try:
        assert RemotingCommand.create_request_command(1).opaque == -2**31
    finally:
        remoting_command._request_id = before


def test_file_region_is_sent_as_the_body():
    command = RemotingCommand.create_response_command(0, None)
    command.set_file_region([memoryview(b"abc"), b"", b"de"])
    assert RemotingCommand.decode(command.encode()[4:]).body == b"abcde"
    assert command.encode()[:-5] == command.encode_header()


FIELDS = st.dictionaries(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=40), max_size=30)
INT32 = st.integers(-2**31, 2**31 - 1)


@TYPES
@given(code=st.integers(-2**15, 2**15 - 1), opaque=INT32, flag=INT32, remark=st.none() | st.text(min_size=1),
       fields=FIELDS, body=st.binary(max_size=50))
def test_command_is_read_back_as_written(kind, code, opaque, flag, remark, fields, body):
    command = RemotingCommand(code, flag, remark, opaque)
    command.serialize_type, command.ext_fields, command.body = kind, fields, body
    data = command.encode()
    again = RemotingCommand.decode(memoryview(data)[4:])
    assert len(data) == 4 + int.from_bytes(data[:4], "big")
    assert (again.code, again.flag, again.remark, again.opaque) == (code, flag, remark, opaque)
    assert (again.ext_fields or {}, again.body or b"", again.serialize_type) == (fields, body, kind)


@settings(max_examples=drawn(300))
@given(st.binary(max_size=120), st.integers(0, 2), st.binary(max_size=20))
def test_any_frame_is_a_command_or_refused(header, kind, body):
    for data in (header, frame(header, kind, body), frame(BINARY_START + header, 1, body)):
        try:
            assert isinstance(RemotingCommand.decode(data), RemotingCommand)
        except RemotingCommandException as error:
            assert str(error)


@given(FIELDS | st.dictionaries(st.sampled_from("abcdefghijklmn"), st.text()))
def test_any_fields_are_a_header_or_refused(fields):
    command = RemotingCommand()
    command.ext_fields = fields
    try:
        assert isinstance(command.decode_command_custom_header(SendMessageRequestHeaderV2), SendMessageRequestHeaderV2)
    except RemotingCommandException as error:
        assert "custom field" in str(error)


def test_huge_field_count_in_a_binary_header_is_bounded():
    pair = struct.pack(">hi", 0, 0)
    command = RemotingCommand.decode(frame(BINARY_START + struct.pack(">ii", 0, len(pair) * 8192) + pair * 8192, 1))
    assert command.ext_fields == {}
    for count in (8193, 150_000, 300_000):
        refused(frame(BINARY_START + struct.pack(">ii", 0, len(pair) * count) + pair * count, 1))


def test_invalid_utf8_in_a_binary_header_becomes_replacement_characters():
    pairs = b"".join(struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
                     for key, value in ((b"a", b"1"), (b"b", b"\xff"), (b"\xc3", b"3")))
    command = RemotingCommand.decode(frame(BINARY_START + struct.pack(">ii", 0, len(pairs)) + pairs, 1))
    assert command.ext_fields == {"a": "1", "b": "\ufffd", "\ufffd": "3"}


def test_text_of_a_request_has_no_secret_and_no_signature():
    command = RemotingCommand()
    assert "extFields=None" in repr(command)
    command.ext_fields = {"topic": "T", "AccessKey": "key", "Signature": "s1", "SecurityToken": "s2", "secretKey": "s3"}
    text = repr(command)
    assert "'topic': 'T', 'AccessKey': 'key', 'Signature': '...'" in text
    assert not any(secret in text for secret in ("s1", "s2", "s3"))


# Byte equality with a real RocketMQ: tests/golden/remoting_*.json.


def golden(name: str) -> Any:
    return json.loads((ROOT / "tests" / "golden" / f"remoting_{name}.json").read_text("utf-8"))


def header_classes() -> dict[str, type[CommandCustomHeader]]:
    """Return all header classes by their Java name."""
    package = rmqha.common.protocol
    classes = {}
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for cls in vars(importlib.import_module(info.name)).values():
            if inspect.isclass(cls) and issubclass(cls, CommandCustomHeader) and cls.__module__ == info.name:
                # A few are rmqha's own.
                java = re.search(r"Java: (\S+)", cls.__doc__)
                if java is not None:
                    classes[java[1]] = cls
    return classes


CLASSES = header_classes()
BY_SIMPLE_NAME = {name.rsplit(".", 1)[1]: cls for name, cls in CLASSES.items()}
HEADERS = [row for row in golden("headers") if row["class"] in CLASSES]
COMMANDS = {row["name"]: row for row in golden("commands")}
TEXTS = golden("fastjson")[0]
TYPES = pytest.mark.parametrize("kind", list(SerializeType), ids=lambda kind: kind.name)


def header_of(cls: type[CommandCustomHeader], fields: dict[str, str]) -> CommandCustomHeader:
    """Return a header of strings, without the checks of a received one."""
    plan = plan_of(cls)
    return cls(**{name: convert(fields[name]) for name, convert in plan.converters if name in fields})


def command_of(row: dict[str, Any]) -> RemotingCommand:
    command = RemotingCommand(row["code"], row["flag"], row["remark"], row["opaque"])
    command.language = LanguageCode[row["language"]]
    command.version = row["version"]
    command.ext_fields = row["ext"]
    command.body = bytes.fromhex(row["body"]) if row["body"] else None
    if row["header"]:
        command.custom_header = header_of(BY_SIMPLE_NAME[row["header"]], row["fields"])
    return command


def test_nearly_all_headers_are_compared():
    assert len(HEADERS) > 150


@TYPES
@pytest.mark.parametrize("row", HEADERS, ids=lambda row: f"{row['class'].rsplit('.', 1)[1]}-{row['full']}")
def test_header_is_written_as_java_writes_it(row, kind):
    command = RemotingCommand(12, opaque=34, custom_header=header_of(CLASSES[row["class"]], row["fields"]))
    command.serialize_type = kind
    assert command.encode().hex() == row[kind.name.lower()]


@TYPES
@pytest.mark.parametrize("row", HEADERS, ids=lambda row: f"{row['class'].rsplit('.', 1)[1]}-{row['full']}")
def test_header_is_read_as_java_wrote_it(row, kind):
    cls = CLASSES[row["class"]]
    command = RemotingCommand.decode(bytes.fromhex(row[kind.name.lower()])[4:])
    names = plan_of(cls).fast_names if kind == SerializeType.ROCKETMQ else None
    expected = {name: text for name, text in row["fields"].items() if name in (names or plan_of(cls).defaults)}
    assert header_of(cls, command.ext_fields or {}) == header_of(cls, expected)
    assert command.serialize_type == kind and command.opaque == 34


@TYPES
@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_written_as_java_writes_it(name, kind):
    command = command_of(COMMANDS[name])
    command.serialize_type = kind
    assert command.encode().hex() == COMMANDS[name][kind.name.lower()]


@TYPES
@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_read_as_java_wrote_it(name, kind):
    row = COMMANDS[name]
    command = RemotingCommand.decode(memoryview(bytes.fromhex(row[kind.name.lower()]))[4:])
    assert (command.code, command.flag, command.opaque, command.version) == (
        row["code"], row["flag"], row["opaque"], row["version"])
    assert command.language is LanguageCode[row["language"]]
    assert command.remark == (row["remark"] if kind == SerializeType.JSON else row["remark"] or None)
    assert (command.body or b"").hex() == (row["body"] or "")
    expected = {**(row["ext"] or {}), **row["fields"]}
    # In this encoding an empty string is null.
    if kind == SerializeType.ROCKETMQ:
        expected = {key: value for key, value in expected.items() if value}
    assert (command.ext_fields or {}) == expected


@dataclass
class Beans:
    """Every kind of value that a body may hold, like RemotingGolden.java's class of this name."""

    l: list = field(  # noqa: E741, the name in RemotingGolden.java
        default_factory=lambda: [MessageQueue("t", "b", 1), MessageQueue("t", "b", 2)])
    s: frozenset = frozenset()
    sarr: tuple = ("a", "b")
    mqs: frozenset = frozenset({MessageQueue("t", "b", 1)})
    d: tuple = (1.5, 1e20, 0.0001, 100.0, 0.0, -0.0, 0.001, 9999999.5, 1e7, -1.25e-9, 123456789.125, float("nan"))
    inf: float = float("inf")
    b: bool = True
    bytes: bytes = b"\x01\x02\x03\xff"
    al: AtomicLong = field(default_factory=lambda: AtomicLong(7))
    big: int = 2**63 - 1
    nothing: str | None = None
    ml: dict = field(default_factory=lambda: {"a": [1, 2], "b": []})
    imq: dict = field(default_factory=lambda: {1: MessageQueue("t", "b", 1), 2: MessageQueue("t", "b", 2)})
    mm: dict = field(default_factory=lambda: {MessageQueue("t", "b", 1): 5, MessageQueue("t", "b", 2): 6})
    mn: dict = field(default_factory=lambda: {"a": None, "b": "x"})
    ll: dict = field(default_factory=lambda: {1: None, 20: 3000000000, 3: 1})
    bb: dict = field(default_factory=lambda: {True: "t"})
    lang: LanguageCode = LanguageCode.JAVA


@dataclass
class Nulls:
    """No value to write."""

    a: str | None = None


def characters() -> str:
    return "".join(map(chr, range(0x180))) + "\u2027\u2028\u2029\u202a\u4e2d\u6587/<>&'\ufeff\U0001f600"


def values() -> dict[str, object]:
    """Return the values that RemotingGolden.java writes, by name."""
    brokers = {0: "127.0.0.1:10911", 2: "127.0.0.1:10931", 10: "127.0.0.1:10921"}
    route = TopicRouteData(brokerDatas=[BrokerData("c\u00fc", "b", brokers)], queueDatas=[], filterServerTable=None)
    beans = Beans()
    beans.s = dict.fromkeys("xy").keys()  # a set in order
    return {
        "characters": {"k": characters(), characters(): "v"},
        "beans": beans,
        "nulls": Nulls(),
        "empty": {"map": {}, "list": [], "set": set()},
        "nested": [{"a": 1}, [], [1, ["x"]], "s", 5, None],
        "topics": TopicConfigSerializeWrapper(topicConfigTable={"T": TopicConfig("T")},
                                              dataVersion=DataVersion(1000, 3)),
        "offsets": {"offsetTable": {"T@g": {0: 100, 1: 100}, "e@g": {}}},
        "route": route,
    }


def test_all_texts_are_compared():
    assert sorted(values()) == sorted(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_json_is_written_as_fastjson_writes_it(name):
    value = values()[name]
    assert fastjson.dumps(value) == bytes.fromhex(TEXTS[name]["compact"]).decode()
    assert fastjson.dumps(value, pretty=True) == bytes.fromhex(TEXTS[name]["pretty"]).decode()


@pytest.mark.parametrize("name", TEXTS)
def test_standard_json_is_written_as_fastjson_writes_it(name):
    text = fastjson.dumps(values()[name], quote_field_names=True, browser_compatible=True, sort_keys=name == "route")
    assert text == bytes.fromhex(TEXTS[name]["standard"]).decode()


@pytest.mark.parametrize("form", ["compact", "pretty", "standard"])
@pytest.mark.parametrize("name", TEXTS)
def test_fastjsons_json_is_read_and_written_back(name, form):
    text = bytes.fromhex(TEXTS[name][form]).decode()
    value = fastjson.loads(text)
    again = fastjson.dumps(value, pretty=form == "pretty")
    if name in ("characters", "offsets", "topics", "route", "empty", "nested") and form != "standard":
        # It contains neither null nor a set nor an array.
        assert again == text
    assert fastjson.loads(again) == without_null(value)


def without_null(value: object) -> object:
    """Return the value without the null values of objects, which are not written."""
    if isinstance(value, list):
        return [without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_null(item) for key, item in value.items() if item is not None}
