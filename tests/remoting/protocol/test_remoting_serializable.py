"""Dataclasses from JSON, typed by their annotations."""
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.futures import AtomicLong
from rmqha.common.message.message import MessageQueue
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError


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


def test_all_kinds_of_fields_are_read_and_written():
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


def test_quoted_numbers_and_keys_are_numbers():
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


def test_class_without_json_is_a_type_error():
    with pytest.raises(TypeError):
        remoting_serializable.from_json(object.__class__, "{}")


def test_half_a_surrogate_pair_is_written_as_a_question_mark():
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
