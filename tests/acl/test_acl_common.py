"""Signatures, credentials, permissions' texts, and the hook of tools.yml."""
import base64

import pytest

from rmqha.acl import acl_files, common
from rmqha.acl.common import (
    AclClientRPCHook,
    AclException,
    PlainAccessResource,
    SessionCredentials,
)
from rmqha.acl.signing import SigningAlgorithm, cal_signature
from rmqha.common.protocol.client_headers import GetMaxOffsetRequestHeader
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.sources import ROOT


@pytest.mark.parametrize("algorithm, digest", [  # RFC 2202 and RFC 4231, test case 2
    (SigningAlgorithm.HmacSHA1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
    (SigningAlgorithm.HmacSHA256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    (SigningAlgorithm.HmacMD5, "750c783e6ab0b503eaa86e310a5db738"),
])
def test_signatures_are_those_of_the_standard(algorithm, digest):
    data, expected = "what do ya want for nothing?", base64.b64encode(bytes.fromhex(digest)).decode()
    assert cal_signature(data, "Jefe", algorithm) == cal_signature(data.encode(), "Jefe", algorithm) == expected


def test_hook_signs_header_fields_token_and_body():
    request = RemotingCommand.create_request_command(30, GetMaxOffsetRequestHeader("orders", 7))
    request.body = memoryview(b"body")
    AclClientRPCHook(SessionCredentials("aKey", "Jefe", "aToken")).do_before_request("", request)
    # AccessKey, SecurityToken, queueId, topic; then the body
    assert request.ext_fields["Signature"] == cal_signature(b"aKey" + b"aToken" + b"7" + b"orders" + b"body", "Jefe")
    received = RemotingCommand.decode(request.encode()[4:])
    assert received.ext_fields == request.ext_fields and received.ext_fields["topic"] == "orders"


def test_signing_twice_gives_the_same():
    """A request that is sent again, to another broker, is signed again."""
    request = RemotingCommand.create_request_command(30, GetMaxOffsetRequestHeader("orders", 7))
    hook = AclClientRPCHook(SessionCredentials("aKey", "Jefe"))
    hook.do_before_request("", request)
    first = request.ext_fields["Signature"]
    hook.do_before_request("", request)
    assert request.ext_fields["Signature"] == first


def test_credentials_show_no_secret():
    assert "Secret" not in repr(SessionCredentials("aKey", "aSecret", "aTokenSecret"))
    assert "aSecret" not in repr(PlainAccessResource("aKey", "aSecret", signature="aSecret", content=b"aSecret"))


def test_credentials_come_from_a_key_file(tmp_path):
    file = tmp_path / "key"
    with pytest.raises(ValueError, match="there is no such file"):
        SessionCredentials.from_key_file(str(file))
    file.write_text("AccessKey= aKey\nSecurityToken=aToken\n", "utf-8")
    with pytest.raises(ValueError, match="the lines AccessKey=... and SecretKey=... are needed"):
        SessionCredentials.from_key_file(str(file))
    file.write_text("AccessKey=\\u00", "utf-8")  # no properties
    with pytest.raises(ValueError, match="the lines AccessKey=... and SecretKey=... are needed"):
        SessionCredentials.from_key_file(str(file))
    file.write_text("AccessKey= aKey\nSecretKey=aSecret \nSecurityToken=aToken\n", "utf-8")
    assert SessionCredentials.from_key_file(str(file)) == SessionCredentials("aKey", "aSecret", "aToken")


def test_tools_file_gives_a_hook(tmp_path, caplog):
    file = tmp_path / "tools.yml"
    assert acl_files.get_acl_rpc_hook(str(file)) is None
    for text in ("", "accessKey: a\n", "accessKey: a\nsecretKey: ' '\n", "- a\n", "accessKey: [a]\nsecretKey: b\n"):
        file.write_text(text, "utf-8")
        caplog.clear()
        assert acl_files.get_acl_rpc_hook(str(file)) is None and caplog.text
    file.write_text("accessKey: rocketmq2\nsecretKey: 12345678\n", "utf-8")
    assert acl_files.get_acl_rpc_hook(str(file)).session_credentials == SessionCredentials("rocketmq2", "12345678")


def test_shipped_tools_file_has_no_account():
    assert acl_files.get_acl_rpc_hook(str(ROOT / "conf" / "tools.yml")) is None


@pytest.mark.parametrize("text, perm", [
    ("PUB", common.PUB), (" SUB\t", common.SUB), ("PUB|SUB", common.PUB | common.SUB),
    ("SUB|PUB", common.PUB | common.SUB), ("DENY", common.DENY), ("pub", common.DENY),
    ("", common.DENY), (None, common.DENY), ("PUB | SUB", common.DENY), ("\u00a0PUB", common.DENY)])
def test_permissions_are_parsed_as_the_original_does(text, perm):
    assert common.parse_perm_from_string(text) == perm


def test_what_is_needed_must_be_owned():
    both = common.PUB | common.SUB
    assert common.check_permission(common.PUB, both) and common.check_permission(common.SUB, both)
    assert not common.check_permission(common.PUB, common.SUB)
    assert not common.check_permission(common.PUB, both | common.DENY)
    assert common.check_permission(common.ANY, common.SUB)
    assert not common.check_permission(common.ANY, common.DENY)


@pytest.mark.parametrize("resource, message", [
    ("topicA", "Parse Resource format error for topicA.\nThe expected resource format is 'Res=Perm'. For example: "
               "topicA=SUB"),
    ("a=b=PUB", "Parse Resource format error for a=b=PUB.\n"),
    ("a=READ", "Parse resource permission error for a=READ.\nThe expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' "
               "or 'PUB|SUB'."),
])
def test_wrong_resources_are_named(resource, message):
    with pytest.raises(AclException) as failure:
        common.check_resource_perms(["fine=PUB", "also= DENY ", resource])
    assert str(failure.value).startswith(message)
