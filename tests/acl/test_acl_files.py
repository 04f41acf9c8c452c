"""YAML with SnakeYAML's rules, signatures, the texts of permissions, and address patterns."""
import base64
import builtins
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.acl import acl_files, common
from rmqha.acl.acl_files import AclFile
from rmqha.acl.common import AclClientRPCHook, AclException, PlainAccessResource, SessionCredentials
from rmqha.acl.remote_address_strategy_factory import RemoteAddressStrategyFactory
from rmqha.acl.signing import SigningAlgorithm, cal_signature
from rmqha.common.filesystem import how_to_install
from rmqha.common.protocol.client_headers import GetMaxOffsetRequestHeader
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.acl.support import ADDRESSES, KNOWN, generated
from tests.acl.support import generated_patterns as remote_address_strategy_factory_generated
from tests.support.sources import ROOT
from tests.support.tiers import drawn

# YAML with SnakeYAML's rules: scalars, written files, and arbitrary input.


@pytest.mark.parametrize("text, value", [
    ("12345678", "12345678"), ("01234567", "342391"), ("0123456789", "0123456789"), ("'0777'", "0777"),
    ("1e3", "1000.0"), ("12345678e3", "1.2345678E10"), ("1_000", "1000"), ("0x1F", "31"), ("12:30", "750"),
    ("1e999", "Infinity"), ("~", None), ("yes", "true"), ("Off", "false"), ("2001-01-01", "2001-01-01"), ("=", "="),
    ("*", AclException), ("[a]", AclException),
])
def test_scalars_become_javas_strings(text, value):
    if value is AclException:
        with pytest.raises(AclException):
            acl_files.text_of(acl_files.loads(f"a: {text}\n".encode())["a"])
    else:
        assert acl_files.text_of(acl_files.loads(f"a: {text}\n".encode())["a"]) == value


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x85\u2028\u2029"), max_size=30)
SCALARS = st.one_of(TEXTS, st.integers(-2**63, 2**63), st.booleans(), st.none(),
                    st.sampled_from(("1e3", "0777", "12345678", "yes", "null", "2001-01-01", "=", "- a", "a: b", "*",
                                     "{x}")))


@settings(max_examples=drawn(200), deadline=None)
@given(st.dictionaries(TEXTS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4))
def test_written_file_is_read_back(data):
    written = acl_files.dumps(data)
    assert acl_files.loads(written) == data
    # Any other reader finds the same keys.
    assert yaml.safe_load(written).keys() == data.keys()


@settings(max_examples=drawn(400), deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text("{}[]:-,&*!|>'\"#%@`\n\t a1", max_size=60).map(str.encode)))
def test_any_bytes_are_a_value_or_an_acl_exception(content):
    try:
        acl_files.loads(content)
    except AclException as error:
        assert str(error).startswith("not valid YAML: ")


def test_generated_files_are_read_or_refused_with_their_name(tmp_path):
    path, outcomes = tmp_path / "some.yml", {"read": 0, "refused": 0}
    for text in [*KNOWN, *generated(3, 300)]:
        path.write_text(text, "utf-8")
        try:
            AclFile.read(str(path))
            outcomes["read"] += 1
        except AclException as error:
            assert str(error).startswith(f"{path}: ")
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 30


@pytest.mark.parametrize("content", [b"[" * 10_000, b"{a: " * 5_000, b"- " * 5_000, b"? " * 5_000, b"a: 0b_\n",
                                     b"\xff\xfe\x00", b"a: \x00", b"a: 9" + b"9" * 5000, b"&a [*a", b"<<: 1\n"])
def test_hostile_documents_are_refused(content):
    with pytest.raises(AclException, match="^not valid YAML: "):
        acl_files.loads(content)


def test_folder_in_place_of_a_file_is_named(tmp_path):
    (tmp_path / "folder.yml").mkdir()
    with pytest.raises(AclException, match="folder.yml: .*Is a directory"):
        acl_files.get_yaml_data_object(str(tmp_path / "folder.yml"))


def test_error_without_pyyaml_names_what_to_install(monkeypatch):
    real = builtins.__import__

    def without_yaml(name, *args):
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(AclException, match=re.escape(how_to_install("acl"))):
        acl_files.loads(b"a: b")


# Signatures, credentials, the texts of permissions, and the hook of tools.yml.


# RFC 2202 and RFC 4231, test case 2.
@pytest.mark.parametrize("algorithm, digest", [
    (SigningAlgorithm.HmacSHA1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
    (SigningAlgorithm.HmacSHA256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    (SigningAlgorithm.HmacMD5, "750c783e6ab0b503eaa86e310a5db738"),
])
def test_signatures_equal_those_of_the_standard(algorithm, digest):
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


def test_signing_twice_gives_the_same_signature():
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
    with pytest.raises(ValueError, match="file not found"):
        SessionCredentials.from_key_file(str(file))
    file.write_text("AccessKey= aKey\nSecurityToken=aToken\n", "utf-8")
    with pytest.raises(ValueError, match="it must contain the lines AccessKey=... and SecretKey=..."):
        SessionCredentials.from_key_file(str(file))
    # Not valid properties.
    file.write_text("AccessKey=\\u00", "utf-8")
    with pytest.raises(ValueError, match="it must contain the lines AccessKey=... and SecretKey=..."):
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


def test_required_permission_must_be_granted():
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
def test_invalid_resources_are_named(resource, message):
    with pytest.raises(AclException) as failure:
        common.check_resource_perms(["fine=PUB", "also= DENY ", resource])
    assert str(failure.value).startswith(message)


# Address patterns; tests/interop compares thousands of them with the original's classes.


def matches(pattern, address):
    strategy = RemoteAddressStrategyFactory().get_remote_address_strategy(pattern)
    return strategy.match(PlainAccessResource(white_remote_address=address))


@pytest.mark.parametrize("pattern, inside, outside", [
    ("", [], ["1.2.3.4", "::1", "", None]),
    (None, [], ["1.2.3.4"]),
    ("*", ["1.2.3.4", "::1", "", None], []),
    ("*.*.*.*", ["1.2.3.4", "::1"], []),
    ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2", "::1", "", None]),
    ("127.0.0.1,::1", ["127.0.0.1", "::1", "0:0:0:0:0:0:0:1"], ["127.0.0.2", None]),
    ("127.0.0.{1,3}", ["127.0.0.1", "127.0.0.3"], ["127.0.0.2"]),
    ("127.0.0.1-9", ["127.0.0.1", "127.0.0.9"], ["127.0.0.0", "127.0.0.10", "127.0.1.1"]),
    ("127.0.1-3.*", ["127.0.1.255", "127.0.3.0"], ["127.0.0.1", "127.0.4.1"]),
    ("127.1-3.*.*", ["127.1.0.0", "127.3.9.9"], ["127.0.0.1", "12.7.1.3"]),
    ("::1", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"], ["::2", "127.0.0.1"]),
    ("FE80::1", ["fe80::1", "fe80::1%eth0"], ["fe80::2"]),
    ("5::7:6:1-200:*", ["5::7:6:1:9", "5::7:6:200:ffff"], ["5::7:6:201:1", "5::7:7:1:1"]),
    ("1050::5:600:300c:*", ["1050:0:0:0:5:600:300c:1"], ["1050::5:600:300d:1"]),
    ("1050::5:600:300c:{1,b}", ["1050::5:600:300c:B"], ["1050::5:600:300c:2"]),
])
def test_pattern_matches_these_addresses(pattern, inside, outside):
    assert all(matches(pattern, address) for address in inside)
    assert not any(matches(pattern, address) for address in outside)


@pytest.mark.parametrize("pattern, message", [
    ("1.2.3", "Netaddress examine Exception netaddress is 1.2.3"),
    ("1.2.3.4, 1.2.3.5", "Netaddress examine Exception netaddress is  1.2.3.5"),
    ("1.2.3.9-1", "RangeRemoteAddressStrategy netaddress examine scope Exception start is 9 , end is 1"),
    ("1.2.3.-1", "RangeRemoteAddressStrategy netaddress examine scope Exception value -1 "),
    ("1.2.3.0-0", "Netaddress examine scope Exception netaddress is 1.2.3.0-0"),
    ("1.2.3.a-b", "Netaddress examine scope Exception: 'a' is not a number"),
    ("1.2.*", "Netaddress examine scope Exception netaddress is 1.2.*"),
    ("1.2.{3,4}", "MultipleRemoteAddressStrategy has got a/some wrong format IP(s) "),
    ("{1,2}.2.3.4}", "MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress"),
    ("*:1", "Netaddress examine scope Exception netaddress is *:1"),
    (":1-2:*", "Netaddress examine scope Exception netaddress is :1-2:*"),
])
def test_invalid_pattern_is_named(pattern, message):
    with pytest.raises(AclException) as failure:
        matches(pattern, "1.2.3.4")
    assert str(failure.value) == message


@settings(max_examples=drawn(500), deadline=None)
@given(st.text("0123456789abcf.:*-{},/% ", max_size=40), st.one_of(st.sampled_from(ADDRESSES), st.text(max_size=20)))
def test_any_text_is_a_pattern_or_an_acl_exception(pattern, address):
    try:
        assert matches(pattern, address) in (True, False)
    except AclException as error:
        assert str(error)


def test_generated_patterns_never_match_an_invalid_address():
    for pattern in remote_address_strategy_factory_generated(5, 500):
        for address in ("", "x", "1.2.3", "::g", "::ffff:1.2.3.4"):
            try:
                assert not matches(pattern, address), (pattern, address)
            except AclException as error:
                assert str(error)
