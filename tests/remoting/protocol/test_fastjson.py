"""fastjson's dialect: accepted texts, refused texts, and the dataclasses read from them."""
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common.futures import AtomicLong
from rmqha.common.message.message import MessageQueue
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError, FrozenList, FrozenObject, java_double, parse, quote
from tests.support.tiers import drawn

READ = {
    "{0:100,1:200}": {0: 100, 1: 200},
    "{-1:2}": {-1: 2},
    "{'a':1}": {"a": 1},
    "{a:1,$b:2}": {"a": 1, "$b": 2},
    '{"a":1,}': {"a": 1},
    "[1,2,]": [1, 2],
    '{"a":"x\ny"}': {"a": "x\ny"},
    '{"a":"\\x41\\u0042\\/"}': {"a": "AB/"},
    "{'a':'\\'\"'}": {"a": "'\""},
    '{"a":+1}': {"a": 1},
    "{true:1,null:2}": {"true": 1, "null": 2},
    '{{"topic":"T","queueId":3}:{0:1}}': {FrozenObject(topic="T", queueId=3): {0: 1}},
    "{[1,{}]:2}": {FrozenList([1, FrozenObject()]): 2},
    '{"a":1.5e3,b:[true,false,null]}': {"a": 1500.0, "b": [True, False, None]},
    " {\n} ": {},
    "{0:{}}": {0: {}},
    "{'a':[]}": {"a": []},
    '{"a":1,"a":2}': {"a": 2},
    '{"a":{"x":[1,{"y":2}]},"b":{"$ref":"$.a.x[1]"},"c":{"$ref":"$"}}': None,
}
REFUSED = [
    "", " ", "{", "}", "[", "]", "{]", "[}", '{"a"}', '{"a":}', "{1}", '{"a":1}x', '{"a":1}}', "[1 2]", '{"a":1 "b":2}',
    "{:1}", '{"a":NaN}', "{a:NaN}", "[Infinity]", "[-Infinity]", "[undefined]", '{"a":TRUE}', '{"a":.5}', "[1.2.3]",
    '"\\q"', "{a:'\\q'}", '{"a":"', "{'a", "nul", "1 2", "{0:1", "[" * 600 + "]" * 600, "{a:" * 600 + "1" + "}" * 600,
    "{0:" * 600, "9" * 5000, "{a:" + "9" * 5000 + "}", '{"a":{"$ref":"$.nothing"}}', '{"a":{"$ref":"$.a"}}',
    "\ud800x", "a",
]


@pytest.mark.parametrize("text", READ)
def test_dialect_is_read(text):
    expected = READ[text]
    if expected is None:
        value = fastjson.loads(text)
        assert value["b"] == {"y": 2} and value["c"]["a"] == value["a"]
    else:
        assert fastjson.loads(text) == expected
        assert fastjson.loads(text.encode()) == expected


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_invalid_json_is_refused(text):
    with pytest.raises(FastjsonError):
        fastjson.loads(text)


def test_depth_limit_is_512_levels_for_both_parsers():
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        inner = "" if opening == "[" else "1"
        fine = opening * 512 + inner + closing * 512
        assert fastjson.loads(fine) == parse(fine)
        for read in (fastjson.loads, parse):
            with pytest.raises(FastjsonError):
                read(opening * 513 + inner + closing * 513)


def test_many_shallow_objects_are_accepted():
    assert len(fastjson.loads("[" + ",".join(["{}"] * 5000) + "]")) == 5000


def test_200_000_brackets_are_refused_at_once():
    for text in ("[" * 200_000, '{"a":' * 200_000, "{" * 200_000, "[" * 100_000 + "]" * 100_000):
        with pytest.raises(FastjsonError):
            fastjson.loads(text)


def test_invalid_utf8_becomes_replacement_characters():
    assert fastjson.loads(b'{"a":"\xff\xc3"}') == {"a": "\ufffd\ufffd"}


def test_error_names_the_position():
    with pytest.raises(FastjsonError) as error:
        fastjson.loads('{"a":1,b:?}')
    assert error.value.position == 9


SCALARS = st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1) | st.text() | st.floats(allow_nan=False,
                                                                                          allow_infinity=False)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is slow
@given(VALUES)
def test_slow_parser_agrees_with_the_standard_library(value):
    text = json.dumps(value)
    assert parse(text) == json.loads(text) == fastjson.loads(text)
    assert parse(json.dumps(value, ensure_ascii=False, indent=1)) == json.loads(text)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.integers(-2**63, 2**63 - 1) | st.text(), VALUES.filter(lambda value: value is not None)))
def test_written_json_is_read_back(value):
    for pretty in (False, True):
        again = fastjson.loads(fastjson.dumps(value, pretty))
        assert list(again) == list(value)


@settings(max_examples=drawn(300))
@given(st.text(alphabet='{}[]",:\'0123456789.-+eEtrufalsn\\x \n$') | st.text())
def test_any_text_is_read_or_refused(text):
    try:
        fastjson.loads(text)
    except FastjsonError as error:
        assert 0 <= error.position <= len(text)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        fastjson.loads(data)
    except FastjsonError as error:
        assert str(error)


@given(st.text())
def test_quoted_text_is_json(text):
    assert json.loads(quote(text), strict=False) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_is_read_back_unchanged(number):
    assert float(java_double(number)) == number


@pytest.mark.parametrize("text, value", [
    ('{"a":"\\ud800x","b":["\\ud83d\\ude00"],"\\uDFFF":1}', {"a": "?x", "b": ["\U0001f600"], "?": 1}),
    ('{{"t":"\\ud800"}:1}', {FrozenObject(t="?"): 1}), ("{'a':'\\udc00'}", {"a": "?"}),
])
def test_lone_surrogate_becomes_a_question_mark(text, value):
    """As Java does when it encodes to bytes: a name that can't be written would keep a table from being saved."""
    assert fastjson.loads(text) == value


def test_value_without_a_json_form_is_a_type_error():
    with pytest.raises(TypeError):
        fastjson.dumps(object())


# Dataclasses read from JSON and typed by their annotations.


@dataclass
class Thing:
    """Most kinds of fields."""

    number: int = 5
    ratio: float = 0.0
    name: str | None = "n"
    flag: bool = False
    kind: TopicFilterType | None = TopicFilterType.SINGLE_TAG
    queues: list[MessageQueue] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    by_queue: dict[MessageQueue, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    count: AtomicLong = field(default_factory=AtomicLong)
    data: bytes | None = None
    anything: Any = None
    hidden: int = field(default=1, metadata={"json": False})
    _private: int = 0


def read(text: str) -> Thing:
    return remoting_serializable.from_json(Thing, text)


def test_fields_of_all_kinds_are_read_and_written():
    text = ('{"anything":{"x":[1]},"count":9,"data":"AQI=","flag":true,"kind":"MULTI_TAG","name":"x","names":["a"],'
            '"number":7,"offsets":{0:1,10:2},"queues":[{"brokerName":"b","queueId":1,"topic":"t"}],"ratio":1.5,'
            '"by_queue":{{"brokerName":"b","queueId":1,"topic":"t"}:5}}')
    thing = read(text)
    assert thing.by_queue == {MessageQueue("t", "b", 1): 5} and thing.queues == [MessageQueue("t", "b", 1)]
    assert thing.kind is TopicFilterType.MULTI_TAG and thing.data == b"\x01\x02" and thing.count.get() == 9
    assert thing.offsets == {0: 1, 10: 2} and thing.names == {"a"}
    again = remoting_serializable.from_json(Thing, remoting_serializable.encode(thing))
    again.count = thing.count
    assert again == thing
    text = remoting_serializable.to_json(thing)
    assert "hidden" not in text and "_private" not in text


def test_quoted_numbers_and_keys_are_read_as_numbers():
    thing = read('{"number":"7","ratio":"1.5","flag":"true","offsets":{"3":"4"},"name":5}')
    assert (thing.number, thing.ratio, thing.flag, thing.offsets, thing.name) == (7, 1.5, True, {3: 4}, "5")


def test_unknown_fields_are_ignored_and_null_keeps_the_default():
    thing = read('{"nobody":{"a":[]},"number":null,"name":null,"queues":null,"hidden":7,"_private":7}')
    assert (thing.number, thing.name, thing.queues, thing.hidden, thing._private) == (5, None, [], 1, 0)


def test_unknown_enum_name_is_null_as_in_java():
    assert read('{"kind":"NOPE"}').kind is None


@pytest.mark.parametrize("text", [
    '{"number":"x"}', '{"number":[]}', '{"number":{}}', '{"number":9223372036854775808}', '{"number":1e999}',
    '{"ratio":"x"}', '{"ratio":[]}', '{"flag":"perhaps"}', '{"flag":[]}', '{"kind":99}', '{"kind":[]}',
    '{"queues":{}}', '{"queues":[5]}', '{"queues":"x"}', '{"offsets":[]}', '{"offsets":{"a":1}}', '{"names":5}',
    '{"by_queue":{"a":1}}', '{"data":5}', "[]", "5", '"x"', "null",
])
def test_wrong_types_are_refused(text):
    with pytest.raises(FastjsonError):
        read(text)


def test_plain_types_are_read_too():
    assert remoting_serializable.from_json(dict[str, int], '{"a":1}') == {"a": 1}
    assert remoting_serializable.decode(list[str], b'["a"]') == ["a"]


def test_class_without_a_json_form_is_a_type_error():
    with pytest.raises(TypeError):
        remoting_serializable.from_json(object.__class__, "{}")


def test_lone_surrogate_is_written_as_a_question_mark():
    assert remoting_serializable.encode({"a": "\ud83d!"}) == b'{"a":"?!"}'


@given(st.dictionaries(st.sampled_from(list(Thing.__dataclass_fields__)), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)))
def test_any_object_is_read_or_refused(value):
    try:
        assert isinstance(remoting_serializable.from_value(Thing, value), Thing)
    except FastjsonError as error:
        assert str(error)


def test_slotted_dataclass_is_read():
    assert remoting_serializable.from_json(TopicConfig, '{"topicName":"T","perm":2}') == TopicConfig("T", perm=2)
