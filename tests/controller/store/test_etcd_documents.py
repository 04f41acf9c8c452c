"""What is read back from etcd may be anything: it is understood, or refused with one kind of error."""
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.controller.etcd_client import KeyValue, parse_endpoints, parse_txn
from rmqha.controller.etcd_leadership import Leader, held, held_seconds
from rmqha.controller.etcd_store import decode_record, encode_record
from rmqha.controller.replicas_info_manager import Replica, ReplicaSet, ReplicaSetError

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
WHOLE = st.integers(0, (1 << 63) - 1)
SETS = st.builds(ReplicaSet, TEXT, TEXT, st.dictionaries(WHOLE, st.builds(Replica, TEXT, TEXT), max_size=4), WHOLE,
                 st.none() | WHOLE, WHOLE, st.frozensets(WHOLE, max_size=4), WHOLE)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
                    max_leaves=12)


@given(SETS, st.from_regex(r"[0-9a-f]+-\d+", fullmatch=True))
def test_a_record_is_read_as_it_was_written(replica_set, token):
    assert decode_record(encode_record(token, replica_set)) == replica_set
    assert decode_record(encode_record(token, None)) is None
    assert encode_record(token, replica_set) != encode_record(token + "1", replica_set)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(data):
    _refused_or_read(data)
    _refused_or_read(b"token\n" + data)


def _refused_or_read(data):
    try:
        found = decode_record(data)
    except ReplicaSetError:
        return
    assert found is None or isinstance(found, ReplicaSet)


@given(SETS, st.data())
def test_a_damaged_record_is_a_record_or_refused(replica_set, data):
    value = bytearray(encode_record("t-1", replica_set))
    place = data.draw(st.integers(0, len(value) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "twice"]))
    if kind == "flip":
        value[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del value[place:]
    else:
        value[place:place] = value[place:]
    _refused_or_read(bytes(value))


@given(SETS, st.data())
def test_a_record_with_another_value_is_a_record_or_refused(replica_set, data):
    document = json.loads(replica_set.encode())
    document[data.draw(st.sampled_from(sorted(document)))] = data.draw(JSON)
    _refused_or_read(b"token\n" + json.dumps(document).encode())


@pytest.mark.parametrize("document", [b"[" * 200_000, b"1" * 5000, b'{"replicas": {"%s": 1}}' % (b"9" * 5000), b"NaN"])
def test_hard_documents_are_refused(document):
    with pytest.raises(ReplicaSetError):
        decode_record(b"token\n" + document)
    assert Leader.decode(document) is None and held_seconds(document, 7) == 7


@given(TEXT, TEXT, TEXT)
def test_a_leader_is_read_as_it_was_written(id_, address, nonce):
    leader = Leader(id_, address, nonce)
    assert Leader.decode(leader.encode()) == leader


@given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_leader_and_term_are_read_or_unknown(data):
    found = Leader.decode(data)
    assert found is None or Leader.decode(found.encode()) == found
    assert held_seconds(data, 9) == 9 or held_seconds(data, 9) >= 0


def test_terms():
    assert held_seconds(held(3), 9) == 3 and held_seconds(b'{"state": "free"}', 9) == 0
    assert held_seconds(b'{"state": "held", "seconds": -1}', 9) == 9
    assert held_seconds(b'{"state": "held", "seconds": "3"}', 9) == 9


ANSWER = {"header": {"revision": "17"}, "succeeded": True, "responses": [
    {"response_put": {"header": {"revision": "17"}}},
    {"response_range": {"kvs": [{"key": "aw==", "value": "dg==", "create_revision": "3", "mod_revision": "16",
                                 "version": "4", "lease": "9"}], "count": "1"}},
    {"response_range": {}}]}


def test_an_answer_to_a_transaction():
    answer = parse_txn(ANSWER)
    assert (answer.succeeded, answer.revision) == (True, 17)
    assert answer.ranges == ((KeyValue(b"k", b"v", 3, 16),), ())
    assert not parse_txn({"header": {"revision": 1}}).succeeded


@given(JSON, st.data())
def test_any_answer_is_one_or_refused(anything, data):
    _answer_or_refused(anything)
    damaged = json.loads(json.dumps(ANSWER))
    place = damaged
    for key in data.draw(st.sampled_from([["header"], ["header", "revision"], ["responses"], ["responses", 1],
                                          ["responses", 1, "response_range"], ["succeeded"],
                                          ["responses", 1, "response_range", "kvs"],
                                          ["responses", 1, "response_range", "kvs", 0],
                                          ["responses", 1, "response_range", "kvs", 0, "value"],
                                          ["responses", 1, "response_range", "kvs", 0, "mod_revision"]])):
        parent, place = place, place[key]
    parent[key] = anything
    _answer_or_refused(damaged)


def _answer_or_refused(answer):
    try:
        parsed = parse_txn(answer)
    except ValueError:
        return
    assert isinstance(parsed.revision, int) and all(isinstance(kv, KeyValue) for keys in parsed.ranges for kv in keys)


@pytest.mark.parametrize("text, endpoints", [
    ("127.0.0.1:2379", (("http", "127.0.0.1", 2379),)),
    ("https://etcd-1.example:2379/;b:1; [::1]:65535 ;",
     (("https", "etcd-1.example", 2379), ("http", "b", 1), ("http", "::1", 65535)))])
def test_endpoints(text, endpoints):
    assert parse_endpoints(text) == endpoints


@pytest.mark.parametrize("text", ["", ";", "host", "host:0", "host:65536", "ftp://host:1", "a:1,b:2", "http://a:1/path",
                                  "a b:1", "[::1:1", "user:secret@host:1"])
def test_endpoints_that_are_none(text):
    with pytest.raises(ValueError, match="etcdEndpoints"):
        parse_endpoints(text)
