"""fastjson's dialect: what is read, what is refused."""
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.remoting.protocol import fastjson
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
def test_what_is_no_json_is_refused(text):
    with pytest.raises(FastjsonError):
        fastjson.loads(text)


def test_depth_ends_at_512_levels_for_both_ways():
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        inner = "" if opening == "[" else "1"
        fine = opening * 512 + inner + closing * 512
        assert fastjson.loads(fine) == parse(fine)
        for read in (fastjson.loads, parse):
            with pytest.raises(FastjsonError):
                read(opening * 513 + inner + closing * 513)


def test_many_shallow_objects_are_not_deep():
    assert len(fastjson.loads("[" + ",".join(["{}"] * 5000) + "]")) == 5000


def test_200_000_brackets_are_refused_at_once():
    for text in ("[" * 200_000, '{"a":' * 200_000, "{" * 200_000, "[" * 100_000 + "]" * 100_000):
        with pytest.raises(FastjsonError):
            fastjson.loads(text)


def test_wrong_utf8_becomes_replacement_characters():
    assert fastjson.loads(b'{"a":"\xff\xc3"}') == {"a": "\ufffd\ufffd"}


def test_error_tells_the_position():
    with pytest.raises(FastjsonError) as error:
        fastjson.loads('{"a":1,b:?}')
    assert error.value.position == 9


SCALARS = st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1) | st.text() | st.floats(allow_nan=False,
                                                                                          allow_infinity=False)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@settings(suppress_health_check=[HealthCheck.too_slow])  # of the machine, when it is busy
@given(VALUES)
def test_the_slow_parser_agrees_with_the_standard_library(value):
    text = json.dumps(value)
    assert parse(text) == json.loads(text) == fastjson.loads(text)
    assert parse(json.dumps(value, ensure_ascii=False, indent=1)) == json.loads(text)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.integers(-2**63, 2**63 - 1) | st.text(), VALUES.filter(lambda value: value is not None)))
def test_what_is_written_is_read_again(value):
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
def test_a_quoted_text_is_json(text):
    assert json.loads(quote(text), strict=False) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_read_again_as_it_was(number):
    assert float(java_double(number)) == number


@pytest.mark.parametrize("text, value", [
    ('{"a":"\\ud800x","b":["\\ud83d\\ude00"],"\\uDFFF":1}', {"a": "?x", "b": ["\U0001f600"], "?": 1}),
    ('{{"t":"\\ud800"}:1}', {FrozenObject(t="?"): 1}), ("{'a':'\\udc00'}", {"a": "?"}),
])
def test_half_a_surrogate_pair_is_a_question_mark(text, value):
    """As in Java where bytes are needed: a name that can't be written would keep a table from being saved."""
    assert fastjson.loads(text) == value


def test_what_has_no_json_is_a_type_error():
    with pytest.raises(TypeError):
        fastjson.dumps(object())
