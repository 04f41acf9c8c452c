"""Properties as columns: both implementations say what the decoder of single messages says, whatever the bytes are."""
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import decode_text
from rmqha.store.bulk.bulk_python import MAX_WANTED, MapColumn, TextColumn, columns_in_python
from tests.support.tiers import drawn

NAMED = (b"KEYS", b"TAGS", b"UNIQ_KEY")
SCRAPS = (b"\1", b"\2", b"a", b"b", b"KEYS", b"TAGS", b"\0", b"\xff", b"\xfe", b"\xe5\x90", b"\xf0\x9f\x98",
          b"\xed\xa0\x80", b"KEYS\1k\2", b"TAGS\1t\2", b"WAIT\1true\2", "é\1主题".encode(), "\U0001f600\1x\2".encode())
texts = st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(SCRAPS), max_size=20).map(b"".join),
                  st.lists(st.tuples(st.integers(0, 80), st.integers(0, 9)), min_size=60, max_size=90).map(
                      lambda pairs: b"\2".join(b"%d\1%d" % pair for pair in pairs)))


def compiled():
    module = pytest.importorskip("rmqha.native._properties", reason="no C compiler was there at the install")
    return module.property_columns


@pytest.fixture(params=["python", "compiled"])
def columns(request):
    """columns(*texts, with_map) -> the properties of records with these texts: dicts, and a list for each of NAMED."""
    function = columns_in_python if request.param == "python" else compiled()
    return lambda *texts, with_map=True: read(function, texts, with_map)


def read(function, all_texts, with_map=True):
    data, begins, ends = b"behind", [], []
    for text in all_texts:
        begins.append(len(data))
        data += text
        ends.append(len(data))
        data += b"\1between\2"
    found, named = function(data, array("q", begins), array("q", ends), NAMED, with_map)
    assert (found is None) == (not with_map)
    named = [text_column(TextColumn(*each), len(begins)) for each in named]
    return (None if found is None else dicts(MapColumn(*found))), named


def numbers(data):
    return struct.unpack(f"={len(data) // 4}i", data)


def cut(offsets, data):
    places = numbers(offsets)
    assert places[0] == 0 and places[-1] == len(data)
    return [data[begin:end].decode() for begin, end in zip(places, places[1:], strict=False)]


def dicts(column):
    bounds = numbers(column.bounds)
    names, values = cut(column.name_offsets, column.names), cut(column.value_offsets, column.values)
    assert len(names) == len(values) == bounds[-1]
    return [list(zip(names[begin:end], values[begin:end], strict=True))
            for begin, end in zip(bounds, bounds[1:], strict=False)]


def text_column(column, count):
    values = cut(column.offsets, column.values)
    assert len(values) == count and len(column.valid) == -(-count // 8)
    bits = int.from_bytes(column.valid, "little")
    assert bits >> count == 0
    return [value if bits >> number & 1 else None for number, value in enumerate(values)]


@settings(max_examples=drawn(200), deadline=None)
@given(st.lists(texts, max_size=12), st.booleans())
def test_columns_are_what_the_decoder_says(all_texts, with_map):
    wanted = [string2message_properties(decode_text(text)) for text in all_texts]
    for function in (columns_in_python, compiled()):
        found, named = read(function, all_texts, with_map)
        assert found == ([list(each.items()) for each in wanted] if with_map else None)
        assert named == [[each.get(name.decode()) for each in wanted] for name in NAMED]


@settings(max_examples=drawn(200), deadline=None)
@given(st.binary(max_size=40))
def test_what_is_no_text_is_replaced_as_python_and_java_do(data):
    for function in (columns_in_python, compiled()):
        found, _ = read(function, [b"name\1v" + data.replace(b"\2", b"")])
        assert found == [[("name", "v" + str(data.replace(b"\2", b""), "utf-8", "replace"))]]


def test_equal_duplicates_of_a_batch_send_count_once(columns):
    """As Java's batch sends write them."""
    text = b"CLUSTER\1c\2WAIT\1true\2KEYS\1k\2TAGS\1t\2WAIT\1true\2CLUSTER\1c"
    assert columns(text) == ([[("CLUSTER", "c"), ("WAIT", "true"), ("KEYS", "k"), ("TAGS", "t")]],
                             [["k"], ["t"], [None]])


def test_of_unequal_duplicates_the_first_place_and_the_last_value_count(columns):
    text = b"TAGS\1old\2a\1x\2TAGS\1\2TAGS\1new"
    assert columns(text) == ([[("TAGS", "new"), ("a", "x")]], [[None], ["new"], [None]])


@pytest.mark.parametrize("count", [63, 64, 65, 66, 5000])
def test_records_of_any_number_of_properties(columns, count):
    entries = [(f"n{number * 7919 % 997}", f"v{number}") for number in range(count)]
    text = "\2".join(f"{name}\1{value}" for name, value in entries).encode()
    assert columns(b"", text, b"KEYS\1k") == ([[], list(dict(entries).items()), [("KEYS", "k")]],
                                             [[None, None, "k"], [None] * 3, [None] * 3])


def test_entries_cut_short_count_for_nothing(columns):
    assert columns(b"\2\2a\1\2\1b\2c\2KEYS\1k\1l\2TAGS", with_map=False) == (None, [["k\1l"], [None], [None]])


def test_names_that_become_equal_when_they_are_replaced_are_one(columns):
    assert columns(b"\xff\1a\2\xfe\1b\2x\1y") == ([[("�", "b"), ("x", "y")]], [[None]] * 3)


def test_no_records_have_columns_without_rows(columns):
    assert columns() == ([], [[], [], []])


@pytest.mark.parametrize("begins, ends, names", [
    ([-1], [1], NAMED), ([0], [5], NAMED), ([2], [1], NAMED), ([0, 1], [1], NAMED), ([0], [1], NAMED * MAX_WANTED)])
@pytest.mark.parametrize("function", [columns_in_python, None], ids=["python", "compiled"])
def test_places_outside_of_the_data_and_too_many_names_are_refused(function, begins, ends, names):
    with pytest.raises(ValueError):
        (function or compiled())(b"data", array("q", begins), array("q", ends), names, True)


def test_a_column_beyond_its_offsets_is_refused():
    data, count = b"n\1" + bytes(1 << 20), 2100
    with pytest.raises(OverflowError):
        compiled()(data, array("q", [0] * count), array("q", [len(data)] * count), NAMED, True)
