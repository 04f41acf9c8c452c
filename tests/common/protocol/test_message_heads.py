"""The body of the answer to GET_MESSAGE_HEADS, compared with whole records; the limits of a request; the filters."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.message import message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.protocol import message_heads
from rmqha.common.protocol.command_custom_header import HeaderFieldError
from rmqha.common.protocol.message_heads import (
    GetMessageHeadsRequestHeader,
    decode,
    encode,
    has_key,
    has_tag,
    shortened,
    tag_names,
)

HOSTS = [("10.1.2.3", 40000), ("fe80::1", 7)]
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1, max_size=20)
PROPERTIES = st.dictionaries(
    st.one_of(NAMES, st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "REAL_TOPIC"])),
    st.one_of(NAMES, NAMES.map(lambda text: text * 30)), max_size=12)


@st.composite
def records(draw):
    """Return a record, with the fields and properties that it was made of."""
    body, properties = draw(st.binary(max_size=400)), draw(PROPERTIES)
    born, stored = (layout.host_to_bytes(draw(st.sampled_from(HOSTS))) for _ in range(2))
    text = message_decoder.message_properties2string(properties).encode()
    numbers = st.integers(0, 1 << 30)
    record = layout.encode_record(
        draw(numbers), draw(numbers), draw(numbers), draw(numbers), draw(numbers), layout.host_flags(born, stored),
        draw(numbers), born, draw(numbers), stored, draw(numbers), draw(numbers), body,
        layout.encode_topic(draw(NAMES)), text)
    return record, body, properties


def same_fields(head, message) -> bool:
    """Return whether a head has the fields of a whole message, except body and properties."""
    return all(getattr(head, name) == getattr(message, name) for name in (
        "queue_id", "commit_log_offset", "store_size", "flag", "sys_flag", "body_crc", "born_timestamp", "born_host",
        "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "topic"))


@given(st.lists(records(), max_size=5), st.integers(0, 500), st.integers(0, 600), st.integers(0, 1 << 40))
def test_head_equals_the_whole_message(made, body_bytes, property_bytes, index):
    answer = b"".join(encode(memoryview(record), layout.decode_parts(record), index + number, body_bytes,
                             property_bytes) for number, (record, _, _) in enumerate(made))
    heads = decode(answer, len(made))
    assert len(heads) == len(made)
    for number, (head, (record, body, properties)) in enumerate(zip(heads, made)):
        message = message_decoder.decode(record, True, False)
        assert head.queue_offset == index + number and same_fields(head, message)
        assert (head.body, head.body_length) == (body[:body_bytes], len(body))
        assert head.message_id == message.msg_id
        if head.properties_length <= property_bytes:
            assert head.has_all_properties and head.properties == properties
        else:
            assert not head.has_all_properties
            assert all(properties[name].startswith(value) for name, value in head.properties.items())


@given(PROPERTIES, st.integers(0, 4_000))
def test_shortened_properties_fit_and_begin_with_those_of_a_list(properties, most):
    text = message_decoder.message_properties2string(properties).encode()
    short = shortened(text, most)
    assert len(short) <= most
    found = message_decoder.string2message_properties(short.decode())
    first = [name for name in message_heads._KEPT_FIRST if name in properties]
    if first and most > 2_200:  # a name, and 512 characters of up to 4 bytes
        assert first[0] in found
    if max(map(len, properties.values()), default=0) <= message_heads._MAX_VALUE and len(text) <= most:
        assert found == properties


def test_long_keys_do_not_hide_the_tag():
    text = message_decoder.message_properties2string({"KEYS": "k" * 30_000, "a": "b" * 900, "TAGS": "t"}).encode()
    found = message_decoder.string2message_properties(shortened(text, 1024).decode())
    assert found == {"TAGS": "t", "KEYS": "k" * 512}


@given(st.lists(records(), min_size=1, max_size=3), st.lists(
    st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=3), st.integers(0, 700))
def test_malformed_answer_is_an_error_or_bounded(made, changes, cut):
    answer = bytearray(b"".join(encode(record, layout.decode_parts(record), 0, 50, 50) for record, _, _ in made))
    for at, value in changes:
        if at < len(answer):
            answer[at] = value
    for wrong in (bytes(answer), bytes(answer[:cut])):
        try:
            heads = decode(wrong, 2)
        except ValueError:
            continue
        assert len(heads) <= 2 and sum(len(head.body) for head in heads) <= len(wrong)


def test_answer_with_too_many_or_half_messages_is_an_error():
    record = layout.encode_record(1, 0, 0, 0, 0, 0, 0, layout.host_to_bytes(HOSTS[0]), 0,
                                  layout.host_to_bytes(HOSTS[0]), 0, 0, b"body", layout.encode_topic("T"), b"")
    answer = encode(record, layout.decode_parts(record), 7, 10, 10)
    assert len(decode(answer * 2, 2)) == 2
    with pytest.raises(ValueError, match="more than 1 messages"):
        decode(answer * 2, 1)
    for cut in range(1, len(answer)):
        with pytest.raises(ValueError, match="ends within|total size|buffer ends"):
            decode(answer[:cut], 1)
    with pytest.raises(ValueError, match="more of the message than there is"):
        decode(answer[:12] + (3).to_bytes(4, "big") + answer[16:], 1)


# The limits of a request.


@pytest.mark.parametrize(("change", "reason"), [
    ({"queueId": -1}, "queueId is -1, and must be from 0"),
    ({"offset": -1}, "offset is -1, and must be from 0"),
    ({"count": 0}, "count is 0, and must be from 1 to 1024"),
    ({"count": 1025}, "count is 1025, and must be from 1 to 1024"),
    ({"bodyBytes": -1}, "bodyBytes is -1, and must be from 0 to 65536"),
    ({"bodyBytes": 65537}, "bodyBytes is 65537, and must be from 0 to 65536"),
    ({"propertyBytes": 32768}, "propertyBytes is 32768, and must be from 0 to 32767"),
    ({"key": ""}, "key has 0 characters, and must have 1 to 1024"),
    ({"text": "x" * 1025}, "text has 1025 characters, and must have 1 to 1024"),
    ({"sql": "x" * 65537}, "sql has 65537 characters, and must have 1 to 65536"),
    ({"tags": " || "}, r"tags must be 1 to 100 names of at most 1024 characters, separated by \|\|"),
    ({"tags": "||".join(map(str, range(101)))}, "tags must be 1 to 100 names"),
    ({"tags": "x" * 1025}, "tags must be 1 to 100 names of at most 1024 characters"),
])
def test_request_beyond_a_limit_is_refused(change, reason):
    header = GetMessageHeadsRequestHeader("T", 0, 0, 1, 0)
    header.check_fields()
    for name, value in change.items():
        setattr(header, name, value)
    with pytest.raises(HeaderFieldError, match=reason):
        header.check_fields()


# The filters.


def test_tags_keys_and_ids_match_exactly():
    assert tag_names(None) is tag_names(" * ") is None
    assert tag_names("a || b||a|| ") == {"a", "b"}
    properties = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "id"}
    assert has_tag(properties, frozenset("ab")) and not has_tag(properties, frozenset("b"))
    assert not has_tag({}, frozenset("a"))
    assert [has_key(properties, key) for key in ("k1", "k2", "id", "k", "k1 k2", "i")] == [True] * 3 + [False] * 3
    assert not has_key({}, "k")
