"""Codec of the express lane: splitting simple sends out of received bytes, reading their headers and writing their
answers; the compiled and the Python version agree."""
import functools
import struct
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.broker.processor import send_codec
from rmqha.broker.processor.send_codec import (
    SendAnswers,
    cluster_property,
    json_in_python,
    read_simple_header,
    sends_in_python,
)
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message_layout import body_crc32
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageRow
from tests.support.tiers import drawn

# Reading the header of a simple send gives the same values as the general path.

CLUSTER = cluster_property("DefaultCluster")
WAIT = message_const.PROPERTY_WAIT_STORE_MSG_OK


def frame(properties: str = "", body: bytes = b"body", kind: SerializeType = SerializeType.JSON, **fields) -> bytes:
    """Return a send's frame without its length field."""
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
def test_header_equals_that_of_the_general_path(props, body, serialize_type):
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
def test_only_simple_sends_are_read(kind):
    send = functools.partial(frame, kind=kind)
    for good in (send(), send("TAGS\x01a\x02WAIT\x01true\x02UNIQ_KEY\x01AB"), send(l=16), send(k=True),
                 send(n="b")):
        assert read_simple_header(good, CLUSTER) is not None
    for other in (send("WAIT\x01false"), send("DELAY\x013"), send(m=True), send("é\x01a"), send(e=-1),
                  send(a="é"), send("a\x01b\x02a\x01c"), send(b="t" * 128), send("k\x01" + "v" * 33_000)):
        assert read_simple_header(other, CLUSTER) is None


# Splitting simple sends out of received bytes: the compiled and the Python version agree.

BORN_HOST = bytes((10, 0, 0, 1, 0, 0, 0, 80))
ROUTES = {"Topic": ("Topic-0", "Topic-1", "Topic-2", "Topic-3"), "Other": ("Other-0",)}
MANY = 1 << 20


@pytest.fixture(scope="module")
def compiled():
    """The compiled twin."""
    module = pytest.importorskip("rmqha.native._express_send", reason="no C compiler was there at the install")
    return module.read_simple_sends


@pytest.fixture(params=["compiled", "python"])
def read(request):
    """Both versions."""
    return sends_in_python if request.param == "python" else request.getfixturevalue("compiled")


def framed(*frames: bytes) -> memoryview:
    """Return frames with their length fields."""
    return memoryview(b"".join(struct.pack(">i", len(one)) + one for one in frames))


def both(compiled, data, position=0, routes=ROUTES, max_body=MANY, most=MANY) -> tuple:
    """Read with both versions, which must agree."""
    arguments = data, position, CLUSTER, BORN_HOST, routes, max_body, most, MessageRow
    found = compiled(*arguments)
    assert found == sends_in_python(*arguments)
    assert all(type(send) is MessageRow for send in found[0])
    return found


@settings(max_examples=drawn(400))
@given(st.lists(st.tuples(st.sampled_from(["Topic", "Other", "unknown"]), properties, bodies, st.integers(-1, 5),
                          st.sampled_from([0, 0, 1, 4, 8, 16, 32]), kinds), max_size=5),
       st.integers(0, 80), st.integers(0, 4), st.integers(0, 60), st.sampled_from([None, 0, 5]), st.booleans(),
       st.sampled_from([None, "broker-a", ""]))
def test_compiled_and_python_read_the_same(compiled, many, max_body, most, cut, limit, unit, broker):
    frames = [frame(props, body, kind, b=topic, e=queue_id, f=flags, l=limit, k=unit, n=broker)
              for topic, props, body, queue_id, flags, kind in many]
    data = framed(*frames)
    both(compiled, data)
    both(compiled, data[:max(0, len(data) - cut)], max_body=max_body, most=most)
    for position in accumulate((4 + len(one) for one in frames), initial=0):
        both(compiled, data, position)


@settings(max_examples=drawn(600))
@given(st.data())
def test_damaged_frames_are_read_the_same(compiled, data):
    whole = bytearray(framed(frame(body=b"before"), frame("TAGS\x01a\x02WAIT\x01true", b"xy", data.draw(kinds))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["change", "cut", "insert"]))
        if kind == "change":
            whole[at] = data.draw(st.sampled_from(b'0"1a\\{},\x00\x01\xff '))
        elif kind == "cut":
            del whole[at:at + data.draw(st.integers(1, 5))]
        else:
            whole[at:at] = data.draw(st.binary(max_size=4))
        if not whole:
            break
    both(compiled, memoryview(whole))


@settings(max_examples=drawn(300))
@given(st.binary(max_size=60), st.integers(0, 70))
@example(b"", 0)
@example(b"\0\0\0", 0)
@example(b"\0\0\0\0", 0)
@example(b"\0\0\0\3\0\0\0", 0)
@example(b"\xff\xff\xff\xff", 0)
@example(b"\x7f\xff\xff\xff\0", 4)
def test_arbitrary_bytes_are_not_a_simple_send(compiled, data, position):
    assert both(compiled, memoryview(data), position) == ([], [], [], 0, position, None)


def test_sends_of_one_kind_are_read_together(read):
    first, other = frame("TAGS\x01a", b"one", e=3), frame("", b"", b="Other", e=0)
    binary = frame(kind=SerializeType.ROCKETMQ)
    data = framed(first, other, other, binary)
    sends, opaques, topics, kind, end, unknown = read(data, 0, CLUSTER, BORN_HOST, ROUTES, MANY, MANY, MessageRow)
    assert [(send.topic, send.queue_id, send.queue_key, bytes(send.body)) for send in sends] == [
        ("Topic", 3, "Topic-3", b"one"), ("Other", 0, "Other-0", b""), ("Other", 0, "Other-0", b"")]
    assert (opaques, topics, kind, unknown) == ([4711] * 3, ["Topic", "Other"], SerializeType.JSON, None)
    assert end == len(data) - 4 - len(binary)
    assert [send.born_host for send in sends] == [BORN_HOST] * 3
    assert sends[0].size == MessageRow.record_size(3, len(sends[0].tail))
    sends, _, _, kind, end, _ = read(data, end, CLUSTER, BORN_HOST, ROUTES, MANY, MANY, MessageRow)
    assert len(sends) == 1 and kind == SerializeType.ROCKETMQ and end == len(data)


@pytest.mark.parametrize("second", [
    frame(e=4), frame(f=8), frame(f=16), frame(f=32), frame(body=b"long" * 9), frame("WAIT\x01false"), b"", b"\0\0"],
    ids=["no such queue", "transaction", "born host in IPv6", "store host in IPv6", "long body", "does not wait",
         "empty", "short"])
def test_another_kind_ends_the_run(read, second):
    first = frame()
    data = framed(first, second, first)
    sends, opaques, topics, _, end, unknown = read(data, 0, CLUSTER, BORN_HOST, ROUTES, 30, MANY, MessageRow)
    assert (len(sends), opaques, topics, end, unknown) == (1, [4711], ["Topic"], 4 + len(first), None)


def test_topic_without_a_route_is_named(read):
    data = framed(frame(), frame(b="New"))
    sends, _, _, _, end, unknown = read(data, 0, CLUSTER, BORN_HOST, ROUTES, MANY, MANY, MessageRow)
    assert (len(sends), unknown) == (1, "New") and bytes(data[end + 4:]) == frame(b="New")


@pytest.mark.parametrize("arguments, error", [
    (("text", 0, CLUSTER, BORN_HOST, ROUTES, 1, 1, MessageRow), TypeError),
    ((b"", -1, CLUSTER, BORN_HOST, ROUTES, 1, 1, MessageRow), ValueError),
    ((b"", 0, CLUSTER, BORN_HOST, ROUTES, 1, 1, int), ValueError),
    ((b"", 0, CLUSTER, BORN_HOST, [], 1, 1, MessageRow), TypeError),
    ((framed(frame()), 0, CLUSTER, BORN_HOST, {"Topic": 4}, 99, 1, MessageRow), TypeError)])
def test_invalid_arguments_are_refused(compiled, arguments, error):
    with pytest.raises(error):
        compiled(*arguments)


# The answers to simple sends: the compiled, the Python and the general encoder agree.

HOST = b"7F00000100002A9F"
LONG = st.integers(-2**63, 2**63 - 1)


@pytest.fixture(scope="module")
def answers_compiled():
    """The compiled encoder."""
    module = pytest.importorskip("rmqha.native._express_send", reason="no C compiler was there at the install")
    return module.json_answers


def sends(queue_ids: list[int]) -> list[MessageRow]:
    """Return one send to each of the queues."""
    return [MessageRow("T", queue_id, f"T-{queue_id}", 0, 0, 0, 0, 0, b"", 0, b"", b"") for queue_id in queue_ids]


@settings(max_examples=drawn(300))
@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), LONG, LONG), max_size=5),
       st.permutations(range(4)), st.lists(st.binary(max_size=9), min_size=5, max_size=5), st.binary(max_size=20))
def test_compiled_and_python_write_the_same(answers_compiled, answers, order, between, host):
    offsets, queue_ids, queue_offsets, opaques = map(list, zip(*answers, strict=True)) if answers else ([], [], [], [])
    arguments = tuple(between), tuple(order), host, offsets, sends(queue_ids), queue_offsets, opaques
    assert answers_compiled(*arguments) == json_in_python(*arguments)


@pytest.mark.parametrize("json", ["compiled", "python"])
@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("region", ["DefaultRegion", 'a "%s" @é@'])
def test_general_decoder_reads_the_answers(request, monkeypatch, json, kind, region):
    monkeypatch.setattr(send_codec, "_json_answers",
                        json_in_python if json == "python" else request.getfixturevalue("answers_compiled"))
    config = BrokerConfig()
    config.regionId = region
    data = SendAnswers(config).encode(10, kind, HOST, [0, 2**40 + 5], sends([3, 0]), [0, 2**33], [7, 1_234_567_891])
    for queue_id, queue_offset, opaque, msg_id in (
            (3, 0, 7, "7F00000100002A9F0000000000000000"),
            (0, 2**33, 1_234_567_891, "7F00000100002A9F0000010000000005")):
        length = int.from_bytes(data[:4])
        command, data = RemotingCommand.decode(data[4:4 + length]), data[4 + length:]
        assert (command.code, command.opaque, command.is_response_type, command.serialize_type) == (
            10, opaque, True, kind)
        assert command.ext_fields == {"msgId": msg_id, "queueId": str(queue_id), "queueOffset": str(queue_offset),
                                      "MSG_REGION": region, "TRACE_ON": "true"}
    assert data == b""


@pytest.mark.parametrize("arguments", [
    ((b"",) * 4, (0, 1, 2, 3), HOST, [], [], [], []), ((b"",) * 4 + ("",), (0, 1, 2, 3), HOST, [], [], [], []),
    ((b"",) * 5, (0, 1, 2, 4), HOST, [], [], [], []), ((b"",) * 5, (0, 1, 2, -1), HOST, [], [], [], []),
    ((b"",) * 5, (0, 1, 2, 3), HOST, [1], [], [1], [1]), ((b"",) * 5, (0, 1, 2, 3), HOST, [1], ["x"], [1], [1]),
    ((b"",) * 5, (0, 1, 2, 3), HOST, [2**70], sends([1]), [1], [1]), ((b"",) * 5, (0, 1), HOST, [], [], [], [])])
def test_compiled_encoder_refuses_other_arguments(answers_compiled, arguments):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        answers_compiled(*arguments)
