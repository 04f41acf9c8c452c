"""Reading the header of a simple send: what the general way makes of it."""
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.broker.processor.send_codec import cluster_property, read_simple_header
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message_layout import body_crc32
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.tiers import drawn

CLUSTER = cluster_property("DefaultCluster")
WAIT = message_const.PROPERTY_WAIT_STORE_MSG_OK


def frame(properties: str = "", body: bytes = b"body", kind: SerializeType = SerializeType.JSON, **fields) -> bytes:
    """A send's frame, without its length field."""
    values = {"a": "producer", "b": "Topic", "c": "TBW102", "d": 4, "e": 3, "f": 0, "g": 1_700_000_000_123, "h": 7,
              "i": properties, "j": 2, "k": False, "m": False} | fields
    command = RemotingCommand.create_request_command(request_code.SEND_MESSAGE_V2, SendMessageRequestHeaderV2(**values))
    command.opaque, command.body, command.serialize_type = 4711, body or None, kind
    return command.encode()[4:]


names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "CLUSTER", "own", "other", "B",
                         "b" * 9, "INSTANCE_ID", "INNER_MULTI_DISPATCH", "é", ""])
values = st.one_of(st.sampled_from(["true", "false", "1", "TagA", "", "a\x01b", "with space"]), st.text(max_size=6))
properties = st.one_of(
    st.dictionaries(names, values, max_size=5).map(lambda some: "\x02".join(f"{k}\x01{v}" for k, v in some.items())),
    st.dictionaries(st.text("abcXYZ_19", min_size=1, max_size=5), st.text("abc", min_size=1), max_size=14).map(
        message_decoder.message_properties2string),
    st.text("a\x01\x02\\\"", max_size=7),
    st.sampled_from(["\x02", "a\x01b\x02", "a\x01b\x02\x02", "k\x01" + "v" * 2000]))
bodies = st.binary(max_size=70)
kinds = st.sampled_from(list(SerializeType))


@settings(max_examples=drawn(300))
@given(properties, bodies, kinds)
def test_what_is_read_is_what_the_general_way_reads(props, body, serialize_type):
    data = frame(props, body, serialize_type, n="broker-a")
    found = read_simple_header(data, CLUSTER)
    if found is None:
        return
    topic, queue_id, sys_flag, born, flag, tail, reconsumed, opaque, end, crc, kind = found
    assert (topic, queue_id, sys_flag, born, flag, reconsumed, opaque, kind) == (
        "Topic", 3, 0, 1_700_000_000_123, 7, 2, 4711, serialize_type)
    assert data[end:] == body and crc == (body_crc32(body) if body else 0)
    wanted = message_decoder.string2message_properties(props)
    wanted[message_const.PROPERTY_CLUSTER] = "DefaultCluster"
    assert wanted.pop(WAIT, "true") == "true"
    stored = message_decoder.message_properties2string(wanted).encode()
    assert tail == b"\5Topic" + len(stored).to_bytes(2) + stored


@pytest.mark.parametrize("kind", SerializeType)
def test_simple_sends_are_read_and_others_are_not(kind):
    send = functools.partial(frame, kind=kind)
    for good in (send(), send("TAGS\x01a\x02WAIT\x01true\x02UNIQ_KEY\x01AB"), send(l=16), send(k=True),
                 send(n="b")):
        assert read_simple_header(good, CLUSTER) is not None
    for other in (send("WAIT\x01false"), send("DELAY\x013"), send(m=True), send("é\x01a"), send(e=-1),
                  send(a="é"), send("a\x01b\x02a\x01c"), send(b="t" * 128), send("k\x01" + "v" * 33_000)):
        assert read_simple_header(other, CLUSTER) is None
