"""Byte equality with a real RocketMQ: tests/golden/remoting_*.json."""
import importlib
import inspect
import json
import pkgutil
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

import rmqha.common.protocol
from rmqha.common.data_version import DataVersion
from rmqha.common.futures import AtomicLong
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.protocol.topic_route_data import BrokerData, TopicRouteData
from rmqha.common.topics import TopicConfig
from rmqha.remoting.protocol import fastjson
from rmqha.remoting.protocol.header_codec import LanguageCode, SerializeType, plan_of
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.sources import ROOT


def golden(name: str) -> Any:
    return json.loads((ROOT / "tests" / "golden" / f"remoting_{name}.json").read_text("utf-8"))


def header_classes() -> dict[str, type[CommandCustomHeader]]:
    """All header classes by their Java name."""
    package = rmqha.common.protocol
    classes = {}
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for cls in vars(importlib.import_module(info.name)).values():
            if inspect.isclass(cls) and issubclass(cls, CommandCustomHeader) and cls.__module__ == info.name:
                java = re.search(r"Java: (\S+)", cls.__doc__)  # a few are rmqha's own
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
    """A header of texts, without the checks of a received one."""
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
    if kind == SerializeType.ROCKETMQ:  # where an empty text is null
        expected = {key: value for key, value in expected.items() if value}
    assert (command.ext_fields or {}) == expected


@dataclass
class Beans:
    """Every kind of value that a body may hold, as RemotingGolden.java's class of this name."""

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
    """Nothing to write."""

    a: str | None = None


def characters() -> str:
    return "".join(map(chr, range(0x180))) + "\u2027\u2028\u2029\u202a\u4e2d\u6587/<>&'\ufeff\U0001f600"


def values() -> dict[str, object]:
    """What RemotingGolden.java writes, by name."""
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
def test_json_of_fastjson_is_read_and_written_again(name, form):
    text = bytes.fromhex(TEXTS[name][form]).decode()
    value = fastjson.loads(text)
    again = fastjson.dumps(value, pretty=form == "pretty")
    if name in ("characters", "offsets", "topics", "route", "empty", "nested") and form != "standard":
        assert again == text  # nothing in it is null, a set or an array
    assert fastjson.loads(again) == without_null(value)


def without_null(value: object) -> object:
    """Null values of objects are not written."""
    if isinstance(value, list):
        return [without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_null(item) for key, item in value.items() if item is not None}
