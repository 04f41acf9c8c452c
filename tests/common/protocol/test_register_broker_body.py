"""The compressed registration, against a real broker's, and against hostile ones."""
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.data_version import DataVersion
from rmqha.common.protocol import cluster_bodies
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody, RegisterBrokerBodyError
from rmqha.common.topics import TopicConfig
from tests.common.model_golden import golden
from tests.common.protocol import samples

JAVA = bytes.fromhex(golden("bodies")["registerCompressed"])
VERSION = b'{"counter":1,"timestamp":2}'


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def body(version: bytes = VERSION, topics: tuple[bytes, ...] = (b"T 1 2 6 SINGLE_TAG",), count: int | None = None,
         filters: bytes = b"[]") -> bytes:
    count = len(topics) if count is None else count
    return zlib.compress(block(version) + struct.pack(">i", count) + b"".join(map(block, topics)) + block(filters))


def without_lost_fields(registration: RegisterBrokerBody) -> RegisterBrokerBody:
    for topic in registration.topicConfigSerializeWrapper.topicConfigTable.values():
        topic.topicSysFlag, topic.order = 0, False
    return registration


def test_java_registration_is_read():
    assert RegisterBrokerBody.decode_compressed(JAVA) == without_lost_fields(samples.registration())


def test_registration_inflates_to_javas_bytes():
    assert zlib.decompress(samples.registration().encode_compressed()) == zlib.decompress(JAVA)


@given(st.dictionaries(st.text("abc%_-|", min_size=1, max_size=20), st.integers(-2**31, 2**31 - 1), max_size=20),
       st.lists(st.text(max_size=20), max_size=3), st.integers(-2**63, 2**63 - 1))
def test_registrations_come_back(topics, filters, timestamp):
    registration = RegisterBrokerBody(filterServerList=[text.encode("utf-8", "replace").decode() for text in filters])
    wrapper = registration.topicConfigSerializeWrapper
    wrapper.topicConfigTable = {name: TopicConfig(name, number, number, number) for name, number in topics.items()}
    wrapper.dataVersion = DataVersion(timestamp, 3)
    assert RegisterBrokerBody.decode_compressed(registration.encode_compressed()) == registration


@pytest.mark.parametrize("data", [
    b"", b"no zlib", JAVA[:-9], JAVA[:20], zlib.compress(b""), zlib.compress(b"\0\0"),
    body(count=2**31 - 1), body(count=-1), body(count=2),
    zlib.compress(struct.pack(">i", 2**31 - 1) + VERSION), zlib.compress(struct.pack(">i", -1) + VERSION),
    body(version=b"null"), body(version=b"[1]"), body(version=b"{"), body(version=b'{"counter":"x"}'),
    body(version=b'{"counter":true}'), body(version=b"[" * 100_000),
    body(topics=(b"T 1 2 6",)), body(topics=(b"T x 2 6 SINGLE_TAG",)), body(topics=(b"T 1 2 6 ANY_TAG",)),
    body(topics=(b"T 1 2 99999999999 SINGLE_TAG",)), body(topics=(b"T 1_0 2 6 SINGLE_TAG",)),
    body(filters=b"{}"), body(filters=b"[1]"), body(filters=b"x"),
], ids=range(25))
def test_hostile_registrations_are_errors(data):
    with pytest.raises(RegisterBrokerBodyError):
        RegisterBrokerBody.decode_compressed(data)


def test_inflated_registrations_are_refused(monkeypatch):
    monkeypatch.setattr(cluster_bodies, "MAX_INFLATED_SIZE", 10_000)
    with pytest.raises(RegisterBrokerBodyError, match="inflates"):
        RegisterBrokerBody.decode_compressed(zlib.compress(bytes(100_000)))


def test_bodies_that_inflate_more_than_lists_of_topics_do_are_refused():
    with pytest.raises(RegisterBrokerBodyError, match="the body of 10.. bytes inflates to 3..... bytes and more"):
        RegisterBrokerBody.decode_compressed(zlib.compress(bytes(1 << 20)))
    for count in (1, 100, 50_000):
        sent = RegisterBrokerBody()
        names = [f"namespace-of-a-department%topic-{index}" for index in range(count)]
        sent.topicConfigSerializeWrapper.topicConfigTable = {name: TopicConfig(name) for name in names}
        read = RegisterBrokerBody.decode_compressed(sent.encode_compressed())
        assert list(read.topicConfigSerializeWrapper.topicConfigTable) == names


def test_too_many_topics_and_too_much_json_are_refused(monkeypatch):
    with pytest.raises(RegisterBrokerBodyError, match="10001 elements of JSON, the limit is 10000"):
        RegisterBrokerBody.decode_compressed(body(filters=b"[" * 10_001))
    monkeypatch.setattr(cluster_bodies, "MAX_TOPICS", 2)
    assert RegisterBrokerBody.decode_compressed(body(topics=(b"T 1 2 6 SINGLE_TAG",) * 2))
    with pytest.raises(RegisterBrokerBodyError, match="3 topics, the limit is 2"):
        RegisterBrokerBody.decode_compressed(body(topics=(b"T 1 2 6 SINGLE_TAG",) * 3))


@given(st.binary(max_size=80))
def test_any_inflated_bytes_are_a_registration_or_an_error(data):
    try:
        RegisterBrokerBody.decode_compressed(zlib.compress(data))
    except RegisterBrokerBodyError:
        assert True


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_damaged_registrations_are_a_registration_or_an_error(position, piece):
    plain = bytearray(zlib.decompress(JAVA))
    plain[position:position + len(piece)] = piece
    try:
        registration = RegisterBrokerBody.decode_compressed(zlib.compress(plain))
    except RegisterBrokerBodyError:
        return
    assert json.dumps(registration.filterServerList)
