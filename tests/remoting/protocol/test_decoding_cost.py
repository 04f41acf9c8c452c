"""Decoding takes time linear in the bytes, and header decoding is cheap enough for the reading thread."""
import json
import random
import struct

import pytest

from rmqha.common.protocol.client_bodies import LockBatchRequestBody, ResetOffsetBody
from rmqha.common.protocol.client_headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.subscriptions import HeartbeatData, SubscriptionData
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.header_codec import MAX_EXT_FIELDS, LanguageCode
from rmqha.remoting.protocol.remoting_command import MAX_DIALECT_LENGTH, MAX_HEADER_ELEMENTS, RemotingCommand
from tests.support import tiers
from tests.support.watch import assert_linear

# Decoding takes time linear in the bytes, whatever they contain.

P = 2**61 - 1  # Python hashes integers modulo this


def joined(parts):
    return ",".join(parts)


def heartbeat(subscriptions="", consumers=None, more=""):
    if consumers is None:
        consumers = '{"groupName":"g","subscriptionDataSet":[' + subscriptions + "]}"
    return '{"clientID":"c",' + more + '"consumerDataSet":[' + consumers + "]}"


def subscription(**fields):
    return '{"topic":"T",' + joined(f'"{name}":{value}' for name, value in fields.items()) + "}"


BIG = "[" + joined(["1"] * 400) + "]"
# Name -> (the class that is read, or None for any value; a function that makes the text of size n)
GROWING = {
    "references to a list": (None, lambda n: f'{{"a":[{joined(["1"] * n)}],"b":[{joined([REF] * n)}]}}'),
    "references to a text": (None, lambda n: f'{{"a":"{"x" * n}","b":[{joined([REF] * n)}]}}'),
    "references to an object as a key": (None, lambda n: (
        f'{{"a":{{{{"k":[{joined(["1"] * n)}]}}:1}},"b":[{joined([REF] * n)}]}}')),
    "references to references": (None, lambda n: (
        '{"a0":[1,1],' + joined(f'"a{i}":[{REF[:-2]}{i - 1}"}},{REF[:-2]}{i - 1}"}}]' for i in range(1, n)) + "}")),
    "references by long paths": (None, lambda n: (
        '{"a":' * 40 + "[1,2]" + "}" * 40).join(["[", joined(["", *['{"$ref":"$[0]' + ".a" * 40 + '"}'] * n])]) + "]"),
    "references in a heartbeat": (HeartbeatData, lambda n: heartbeat(
        more=f'"big":[{joined([subscription(subVersion=i) for i in range(n)])}],',
        consumers=joined(f'{{"groupName":"g{i}","subscriptionDataSet":{{"$ref":"$.big"}}}}' for i in range(n)))),
    "references in a registration": (RegisterBrokerBody, lambda n: (
        f'{{"big":{{{joined(f"{chr(34)}{i}{chr(34)}:{{}}" for i in range(n))}}},'
        f'"filterServerList":[{joined([REF.replace("a", "big")] * n)}]}}')),
    "subscriptions that differ in one number": (HeartbeatData, lambda n: heartbeat(
        joined(subscription(subVersion=i) for i in range(n)))),
    "subscriptions that differ in their codes": (HeartbeatData, lambda n: heartbeat(
        joined(subscription(codeSet=f"[{i}]") for i in range(n)))),
    "consumers of one name": (HeartbeatData, lambda n: heartbeat(consumers=joined(
        f'{{"groupName":"g","subscriptionDataSet":[{subscription(subVersion=i)}]}}' for i in range(n)))),
    "queues with hashes in one class": (LockBatchRequestBody, lambda n: (
        f'{{"mqSet":[{joined(f"{chr(123)}{chr(34)}queueId{chr(34)}:{i * P % 2**31}{chr(125)}" for i in range(n))}]}}')),
    "integers as keys": (None, lambda n: f"{{{joined(f'{i * P}:1' for i in range(n))}}}"),
    "integers in quotes as keys": (dict[int, int], lambda n: (
        "{" + joined(f'"{(i * P) % 2**63}":1' for i in range(n)) + "}")),
    "floats as keys": (None, lambda n: f"{{{joined(f'{i}e{i % 300}:1' for i in range(n))}}}"),
    "objects as keys": (None, lambda n: f"{{{joined(f'{{a:{i * P}}}:1' for i in range(n))}}}"),
    "objects with integers as keys": (None, lambda n: f"{{{joined(f'{{0:{i * P},1:{-i * P}}}:1' for i in range(n))}}}"),
    "lists as keys": (None, lambda n: f"{{{joined(f'[{i * P},[{i}]]:1' for i in range(n))}}}"),
    "keys of keys": (None, lambda n: "{" * 300 + f"a:[{joined(['1'] * n)}]" + "}:1" * 299 + "}"),
    "queues as keys": (ResetOffsetBody, lambda n: (
        f'{{"offsetTable":{{{joined(f"{{queueId:{i}}}:{i}" for i in range(n))}}}}}')),
    "empty lists": (None, lambda n: f"[{joined(['[]'] * n)}]"),
    "empty lists in the dialect": (None, lambda n: f"{{a:[{joined(['[]'] * n)}]}}"),
    "long integers": (None, lambda n: f"[{joined(['9' * 4000] * (n // 100))}]"),
    "one long integer": (None, lambda n: "9" * n * 10),
    "one long integer in the dialect": (None, lambda n: "{a:" + "9" * n * 10 + "}"),
    "digits without an end": (None, lambda n: "{a:1." + "9" * n * 10 + "e" + "9" * n * 10 + "x}"),
    "leading zeros": (dict[str, float], lambda n: f'{{"a":"{"0" * n * 10}.{"0" * n * 10}1"}}'),
    "large exponents": (None, lambda n: f"[{joined(['1.5e308'] * n)}]"),
    "escapes": (None, lambda n: '["' + "\\n" * n + '"]'),
    "escapes in the dialect": (None, lambda n: "{a:'" + "\\n" * n + "'}"),
    "escapes without an end": (None, lambda n: '{a:"' + "\\n" * n),
    "halves of surrogate pairs": (None, lambda n: '["' + "\\ud800" * n + '",[' + joined(['"\\udc00"'] * n) + "]]"),
    "blanks": (None, lambda n: " " * n * 10 + "?"),
    "base64": (dict[str, bytes], lambda n: f'{{"a":"{"=" * n * 10}"}}'),
    "one long name": (None, lambda n: "{" + "a" * n * 10 + ":" + "b" * n * 10 + "}"),
}
REF = '{"$ref":"$.a"}'
SIZE, SIZE_OF_KEYS = tiers.pick(100, long=300), tiers.pick(500, long=1500)


@pytest.mark.parametrize("name", GROWING)
def test_decoding_is_linear_in_bytes(name):
    cls, make = GROWING[name]
    read = fastjson.loads if cls is None else lambda data: remoting_serializable.from_json(cls, data)
    assert_linear(lambda n: make(n).encode(), read, SIZE_OF_KEYS if "keys" in name else SIZE)


def random_text(draw, n):
    """Return a text of a random shape with one of its levels repeated n times; the same `draw` gives the same shape."""
    level = draw.randrange(3)
    text = draw.choice(("1", "[]", "{}", '"x"', REF, '{"$ref":"$"}', '"\\ud800"', "1.5e300", f"{P}", "null", '"AAAA"'))
    for depth in range(3):
        count = n if depth == level else draw.randrange(1, 4)
        shape = draw.randrange(4)
        if shape == 0:
            text = f"[{joined([text] * count)}]"
        elif shape == 1:
            text = "{" + joined(f'"{"k" * draw.randrange(1, 3)}{i}":{text}' for i in range(count)) + "}"
        elif shape == 2:
            text = "{" + joined(f"{i * P % 2**63}:{text}" for i in range(count)) + "}"
        else:
            text = "{" + joined(f'{{"k":{i * P}}}:{text}' for i in range(count)) + "}"
    return f'{{"a":{text},"b":[{joined([REF] * (n if draw.random() < 0.3 else 1))}]}}'


@pytest.mark.parametrize("seed", range(tiers.pick(4, all=8, long=24)))
def test_text_of_random_shape_is_read_in_linear_time(seed):
    cls = random.Random(seed).choice((None, HeartbeatData, dict[str, list[str]], dict[str, dict[int, str]]))
    read = fastjson.loads if cls is None else lambda data: remoting_serializable.from_json(cls, data)
    assert_linear(lambda n: random_text(random.Random(seed), n).encode(), read, 100)


def test_subscriptions_are_not_compared_without_need(monkeypatch):
    compared = []
    equal = SubscriptionData.__eq__
    monkeypatch.setattr(SubscriptionData, "__eq__", lambda one, other: compared.append(1) or equal(one, other))
    text = heartbeat(joined(subscription(subVersion=i, codeSet=f"[{i % 7}]") for i in range(3000)))
    data = remoting_serializable.from_json(HeartbeatData, text)
    assert len(next(iter(data.consumerDataSet)).subscriptionDataSet) == 3000
    assert len(compared) < 10


def test_references_in_real_texts_are_resolved():
    text = '{"a":{"x":{"$ref":"$.c"},"y":[1]},"b":[{"$ref":"$.a"},{"$ref":"$.a.y"}],"c":[5]}'
    assert fastjson.loads(text) == {"a": {"x": [5], "y": [1]}, "b": [{"x": [5], "y": [1]}, [1]], "c": [5]}
    shared = heartbeat(consumers=joined([
        f'{{"groupName":"g","subscriptionDataSet":[{subscription(subVersion=1)}]}}',
        '{"groupName":"h","subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}']))
    data = remoting_serializable.from_json(HeartbeatData, shared)
    assert [one.topic for group in data.consumerDataSet for one in group.subscriptionDataSet] == ["T", "T"]


def test_references_that_expand_too_much_are_refused():
    with pytest.raises(FastjsonError, match="references expand to too many values"):
        fastjson.loads(f'{{"a":{BIG},"b":[{joined([REF] * 400)}]}}')


@pytest.mark.parametrize("text", [
    "{" * 500 + "a:1" + "}:1" * 499 + "}", "{" + "[" * 511 + "]" * 511 + ":1}", '{"a":' * 500 + '"\\ud800"' + "}" * 500,
    '{"a":' * 500 + '{"$ref":"$"}' + "}" * 500, '{"a":{"$ref":"$.a[99999999999999999999]"}}',
    '{"a":{"$ref":"$[' + "9" * 5000 + ']"}}', "{" + f"{2**63}:1" + "}", f"{{{-2**63 - 1}:1}}",
])
def test_deep_and_unusual_texts_are_read_or_refused(text):
    try:
        fastjson.loads(text)
    except FastjsonError as error:
        assert str(error)


class Unprintable(list):
    """A list of megabytes that must never be turned into a text."""

    def __repr__(self):
        raise AssertionError("the whole list was turned into a text")


@pytest.mark.parametrize("kind, value", [
    *((kind, Unprintable([1])) for kind in (int, float, bool, LanguageCode, HeartbeatData)),
    *((kind, {"a": Unprintable()}) for kind in (int, float, bool, LanguageCode, dict[str, int])),
    *((kind, "x" * 10_000) for kind in (int, float, bool, list[int], dict[str, int], HeartbeatData)),
    (list[int], [Unprintable()]), (HeartbeatData, {"clientID": 1, "producerDataSet": {"a": Unprintable()}}),
])
def test_invalid_value_is_shown_by_its_beginning(kind, value):
    with pytest.raises(FastjsonError) as caught:
        remoting_serializable.from_value(kind, value)
    assert len(str(caught.value)) < 200


# Headers are decoded on the reading thread: in linear time, and within a bounded time.


def json_header(ext):
    return b'{"code":11,"opaque":1,"extFields":' + ext + b"}"


def frame(header, kind=0):
    return struct.pack(">I", kind << 24 | len(header)) + header


def binary_header(fields):
    ext = b"".join(struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value for key, value in fields)
    return struct.pack(">hbhiii", 11, 0, 400, 1, 0, 0) + struct.pack(">i", len(ext)) + ext


def decode(header, kind=0):
    try:
        command = RemotingCommand.decode(frame(header, kind))
        command.decode_command_custom_header(PullMessageRequestHeader)
    except RemotingCommandException as error:
        raise ValueError from error
    return command


HEADER_COST_GROWING = {
    "fields": lambda n: json_header(json.dumps({f"k{i}": "v" for i in range(n)}).encode()),
    "one field again and again": lambda n: json_header(b"{" + b",".join([b'"k":"v"'] * n) + b"}"),
    "numbers": lambda n: json_header(json.dumps({f"k{i}": 1.5e300 for i in range(n)}).encode()),
    "lists": lambda n: json_header(b'{"k":[' + b",".join([b"[]"] * n) + b"]}"),
    "names without quotes": lambda n: json_header(b"{" + b",".join(b"k%d:'v'" % i for i in range(n)) + b"}"),
    "escapes": lambda n: json_header(b'{"k":"' + b"\\u0001" * n + b'"}'),
    "halves of surrogate pairs": lambda n: json_header(b'{"k":"' + b"\\ud800" * n + b'"}'),
    "long numbers": lambda n: json_header(b'{"queueId":"%b","queueOffset":"%b"}' % (b"9" * n * 10, b"0" * n * 10)),
    "blanks": lambda n: b" " * n * 10,
    "brackets": lambda n: b"[" * n,
    "remark": lambda n: b'{"remark":' + b"[" * n + b"]" * n + b"}",
}


@pytest.mark.parametrize("name", HEADER_COST_GROWING)
def test_json_header_is_decoded_in_linear_time(name):
    assert_linear(HEADER_COST_GROWING[name], decode, 1000)


def test_binary_header_is_decoded_in_linear_time():
    for fields in (lambda n: [(b"k%d" % i, b"v") for i in range(n)], lambda n: [(b"k", b"")] * n,
                   lambda n: [(b"", b"\xff")] * n, lambda n: [(b"k", b"\xff")] * n):
        assert_linear(lambda n: binary_header(fields(n)), lambda header: decode(header, 1), 1000)


def test_binary_header_with_too_many_fields_is_refused():
    most = [(b"k%d" % index, b"v") for index in range(MAX_EXT_FIELDS)]
    assert len(RemotingCommand.decode(frame(binary_header(most), 1)).ext_fields) == MAX_EXT_FIELDS
    for more in ((b"k", b"v"), (b"k", b"")):
        with pytest.raises(RemotingCommandException, match="more than 8192 extFields"):
            RemotingCommand.decode(frame(binary_header([*most, more]), 1))


def test_json_header_with_too_many_elements_is_refused():
    fields = b",".join(b'"%d":"v"' % index for index in range(MAX_HEADER_ELEMENTS // 2 - 3))
    assert len(RemotingCommand.decode(frame(json_header(b"{" + fields + b"}"))).ext_fields) > 32_000
    with pytest.raises(RemotingCommandException, match="header with .* elements"):
        RemotingCommand.decode(frame(json_header(b"{" + fields + b',"a":"v","b":"v","c":"v","d":"v"}')))


def test_non_string_fields_are_only_for_short_headers():
    nested = b'{"k":{"a":[1,2]}}'
    assert RemotingCommand.decode(frame(json_header(nested))).ext_fields == {"k": '{"a":[1,2]}'}
    with pytest.raises(RemotingCommandException, match="expect a text, actual dict"):
        RemotingCommand.decode(frame(json_header(nested[:-1] + b',"x":"' + b"x" * MAX_DIALECT_LENGTH + b'"}')))


def test_longest_properties_of_a_send_fit_into_a_header():
    """32 KiB of the shortest properties; each separator takes six bytes in JSON."""
    properties = "a\x01b\x02" * 8191
    request = RemotingCommand.create_request_command(310, SendMessageRequestHeaderV2(
        a="g", b="T", c="TBW102", d=4, e=0, f=0, g=1, h=0, i=properties))
    assert RemotingCommand.decode(request.encode()[4:]).ext_fields["i"] == properties
