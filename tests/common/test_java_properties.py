"""The `.properties` reader against the rules of java.util.Properties."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import java
from rmqha.common.java import PropertiesError

CASES = {
    b"a=b": {"a": "b"},
    b"a = b": {"a": "b"},
    b"a:b": {"a": "b"},
    b"a b": {"a": "b"},
    b"a\tb c": {"a": "b c"},
    b"  a   :   b  ": {"a": "b  "},
    b"a": {"a": ""},
    b"a=": {"a": ""},
    b"=b": {"": "b"},
    b"a==b": {"a": "=b"},
    b"a = : b": {"a": ": b"},
    b"# comment\n! comment\n\n \t\n  # comment\na=1": {"a": "1"},
    b"a=1 # no comment": {"a": "1 # no comment"},
    b"a=1\r\nb=2\rc=3": {"a": "1", "b": "2", "c": "3"},
    b"a=one\\\n   two\\\r\n\tthree": {"a": "onetwothree"},
    b"a=one\\\n# part of it": {"a": "one# part of it"},
    b"a=one\\\n\nb=2": {"a": "one", "b": "2"},
    b"a=one\\\\\nb=2": {"a": "one\\", "b": "2"},
    b"# no continuation \\\na=1": {"a": "1"},
    b"a\\ b=1\nc\\=d=2\ne\\:f=3": {"a b": "1", "c=d": "2", "e:f": "3"},
    b"a=\\t\\n\\r\\f\\\\\\z": {"a": "\t\n\r\f\\z"},
    b"a=\\u00e9\\u4e2d": {"a": "é中"},
    b"a=\\ud83d\\ude00": {"a": "\U0001f600"},
    b"a=caf\xe9": {"a": "café"},
    b"a=1\na=2": {"a": "2"},
    b"a=x\x0cy": {"a": "x\x0cy"},
    b"a=x\x85y\x1cz": {"a": "x\x85y\x1cz"},
    b"namesrvAddr=127.0.0.1:9876;127.0.0.1:9877": {"namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877"},
    b"": {},
    b"\\": {},
    b"a=b\\": {"a": "b"},
}


@pytest.mark.parametrize("data", CASES, ids=repr)
def test_text_reads_as_java_reads_it(data):
    assert java.load(data) == CASES[data]


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\u12g4", b"a=1\nb=\\u\n", b"\\u+123=a"])
def test_malformed_unicode_escape_is_an_error_with_its_line(data):
    with pytest.raises(PropertiesError) as raised:
        java.load(data)
    assert raised.value.line == (2 if b"\n" in data else 1)


def test_each_key_knows_the_line_that_set_it():
    properties = java.load(b"# c\na=1\nb=2\\\n 3\n\nc=4\na=5")
    assert properties.lines == {"a": 7, "b": 3, "c": 6}


@given(st.binary(max_size=200))
def test_any_bytes_give_properties_or_a_properties_error(data):
    try:
        properties = java.load(data)
    except PropertiesError as error:
        assert error.line >= 1
        return
    assert set(properties.lines) == set(properties)
    assert all(1 <= line <= data.count(b"\n") + data.count(b"\r") + 1 for line in properties.lines.values())


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=5))
def test_escaped_properties_read_back(properties):
    text = "".join(f"{java.escape(key, is_key=True)}={java.escape(value)}\n"
                   for key, value in properties.items())
    assert text.isascii()
    assert java.load(text.encode("ascii")) == properties


def test_plain_text_is_not_escaped():
    assert java.escape("/home/x/store;a=b:c d") == "/home/x/store;a=b:c d"
