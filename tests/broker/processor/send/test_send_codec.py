"""Cutting simple sends out of what a connection has brought: compiled and in Python the same."""
import struct
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.broker.processor.send_codec import sends_in_python
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.store.append import MessageRow
from tests.broker.processor.send.test_send_header import CLUSTER, bodies, frame, kinds, properties
from tests.support.tiers import drawn

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
    """Both."""
    return sends_in_python if request.param == "python" else request.getfixturevalue("compiled")


def framed(*frames: bytes) -> memoryview:
    """Frames with their length fields."""
    return memoryview(b"".join(struct.pack(">i", len(one)) + one for one in frames))


def both(compiled, data, position=0, routes=ROUTES, max_body=MANY, most=MANY) -> tuple:
    """What both read: the same."""
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
def test_any_bytes_are_no_simple_send(compiled, data, position):
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
def test_others_end_what_is_read(read, second):
    first = frame()
    data = framed(first, second, first)
    sends, opaques, topics, _, end, unknown = read(data, 0, CLUSTER, BORN_HOST, ROUTES, 30, MANY, MessageRow)
    assert (len(sends), opaques, topics, end, unknown) == (1, [4711], ["Topic"], 4 + len(first), None)


def test_topic_without_route_is_named(read):
    data = framed(frame(), frame(b="New"))
    sends, _, _, _, end, unknown = read(data, 0, CLUSTER, BORN_HOST, ROUTES, MANY, MANY, MessageRow)
    assert (len(sends), unknown) == (1, "New") and bytes(data[end + 4:]) == frame(b="New")


@pytest.mark.parametrize("arguments, error", [
    (("text", 0, CLUSTER, BORN_HOST, ROUTES, 1, 1, MessageRow), TypeError),
    ((b"", -1, CLUSTER, BORN_HOST, ROUTES, 1, 1, MessageRow), ValueError),
    ((b"", 0, CLUSTER, BORN_HOST, ROUTES, 1, 1, int), ValueError),
    ((b"", 0, CLUSTER, BORN_HOST, [], 1, 1, MessageRow), TypeError),
    ((framed(frame()), 0, CLUSTER, BORN_HOST, {"Topic": 4}, 99, 1, MessageRow), TypeError)])
def test_wrong_arguments_are_refused(compiled, arguments, error):
    with pytest.raises(error):
        compiled(*arguments)
