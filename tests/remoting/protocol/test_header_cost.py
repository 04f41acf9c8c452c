"""Headers are decoded on the thread that reads: in linear time, and no more than it can do in passing."""
import json
import struct

import pytest

from rmqha.common.protocol.client_headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.header_codec import MAX_EXT_FIELDS
from rmqha.remoting.protocol.remoting_command import MAX_DIALECT_LENGTH, MAX_HEADER_ELEMENTS, RemotingCommand
from tests.support.cost import assert_linear


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


GROWING = {
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


@pytest.mark.parametrize("name", GROWING)
def test_json_header_is_decoded_in_linear_time(name):
    assert_linear(GROWING[name], decode, 1000)


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


def test_fields_that_are_no_texts_are_for_short_headers():
    nested = b'{"k":{"a":[1,2]}}'
    assert RemotingCommand.decode(frame(json_header(nested))).ext_fields == {"k": '{"a":[1,2]}'}
    with pytest.raises(RemotingCommandException, match="expect a text, actual dict"):
        RemotingCommand.decode(frame(json_header(nested[:-1] + b',"x":"' + b"x" * MAX_DIALECT_LENGTH + b'"}')))


def test_longest_properties_of_a_send_fit_in_a_header():
    """32 KiB of the shortest properties, whose separators are six bytes each in JSON."""
    properties = "a\x01b\x02" * 8191
    request = RemotingCommand.create_request_command(310, SendMessageRequestHeaderV2(
        a="g", b="T", c="TBW102", d=4, e=0, f=0, g=1, h=0, i=properties))
    assert RemotingCommand.decode(request.encode()[4:]).ext_fields["i"] == properties
