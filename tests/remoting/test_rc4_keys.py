"""Keys that OpenSSL encrypted under RC4, as RocketMQ's guide has them made, and texts that are not such keys."""
import base64
import builtins
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.configuration import ConfigError
from rmqha.remoting.tls import _decrypt_rc4_key, build_ssl_context
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig
from tests.remoting.support import address, request, running_client, running_server
from tests.support.certificates import Authority, encrypted, openssl
from tests.support.tiers import drawn

# openssl pkcs8 -topk8 -v1 PBE-SHA1-RC4-128 -provider legacy -provider default -passout pass:123456
RC4_128 = b"""-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGrMBwGCiqGSIb3DQEMAQEwDgQIza0NWG4UKl8CAggABIGK+pxaoV/lpmJFOPzW
m44nxLjl2Ip1UtOap8fAqq0n/TJ+PXrbIqBrwwMw80uGKTuuBOf9vjgDJ2kDSTFp
A/743BNgBPJtsXQZMgp4KbSiWzDwrwFZ4OaNu8FjwId6PaY3Rkta4M1IDr0hLlMx
n8y8cjpDdXTwspkx3NEYs3VjjrYewgc59IYazuDP
-----END ENCRYPTED PRIVATE KEY-----
"""
RC4_40 = b"""-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGrMBwGCiqGSIb3DQEMAQIwDgQIv6DrzVij8JACAggABIGK1ffl99s0HnKdS1Ub
ykODOiXqt8L6Jgu05Jg1dLnswKBXB+Fbk3Jh6HfK/PFkU/tafhSAaOcGfzeLgltM
f7yRe9eVe+/PoWMZltz5GRKBAp9Fl5uXf0dWL5bDuDZzN5YgsgZwXe8zrq/9NXX/
4wtPM0/5uxZNpnMB2+h4us5J/JmiXSyACrFvHEs9
-----END ENCRYPTED PRIVATE KEY-----
"""
BODY = base64.b64decode(b"".join(RC4_128.splitlines()[1:-1]))


def pem(body: bytes) -> bytes:
    label = b"ENCRYPTED PRIVATE KEY-----\n"
    return b"-----BEGIN " + label + base64.encodebytes(body) + b"-----END " + label


def decrypted(data: bytes, password: str = "123456") -> str | None:
    """The key without encryption; None where the error is one that a user is shown."""
    try:
        return _decrypt_rc4_key(data, password)
    except ValueError:
        return None


@pytest.fixture
def pair(tmp_path):
    """Settings of a server whose key is `rc4.key`."""
    key, certificate = tmp_path / "plain.key", tmp_path / "cert.pem"
    key.write_text(_decrypt_rc4_key(RC4_128, "123456"))
    openssl("req", "-x509", "-key", key, "-subj", "/CN=rc4", "-days", "30", "-out", certificate)
    return TlsSystemConfig(
        tls_mode=TlsMode.ENFORCING, tls_test_mode_enable=False, tls_server_key_password="123456",
        tls_server_cert_path=str(certificate), tls_server_key_path=str(tmp_path / "rc4.key"))


def test_openssl_takes_what_comes_out(tmp_path):
    (tmp_path / "plain.key").write_text(_decrypt_rc4_key(RC4_128, "123456"))
    assert "Key is valid" in openssl("pkey", "-in", tmp_path / "plain.key", "-check", "-noout")


@pytest.mark.parametrize("file", [RC4_128, b"# a comment\n" + RC4_128], ids=["alone", "comment"])
def test_server_serves_with_such_a_key(pair, file, tmp_path):
    (tmp_path / "rc4.key").write_bytes(file)
    with running_server(tls=pair) as server, running_client(useTLS=True) as client:
        assert client.invoke_sync(address(server), request(body=b"in"), 20_000).body == b"in"


def test_wrong_password_is_a_config_error(pair, tmp_path):
    (tmp_path / "rc4.key").write_bytes(RC4_128)
    for password in ("1234567", "", None):
        with pytest.raises(ConfigError, match="can't be loaded"):
            build_ssl_context(False, dataclasses.replace(pair, tls_server_key_password=password))


def test_forty_bits_are_refused_with_what_to_do(pair, tmp_path):
    (tmp_path / "rc4.key").write_bytes(RC4_40)
    with pytest.raises(ConfigError, match="PBE-SHA1-RC4-40, which can't be read; encrypt the key as others: openssl"):
        build_ssl_context(False, pair)


def test_without_the_library_the_error_says_how_to_get_it(pair, tmp_path, monkeypatch):
    (tmp_path / "rc4.key").write_bytes(RC4_128)
    there = builtins.__import__

    def gone(name, *rest):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return there(name, *rest)

    monkeypatch.setattr(builtins, "__import__", gone)
    with pytest.raises(ConfigError, match=r"the library cryptography reads: .* -m pip install .*\[tls\]"):
        build_ssl_context(False, pair)


def test_other_files_are_left_to_openssl(tmp_path_factory):
    identity = Authority(tmp_path_factory.mktemp("other")).sign("other")
    for path in (identity.key, identity.certificate, encrypted(identity.key, "x")):
        assert _decrypt_rc4_key(path.read_bytes(), "x") == "", path
    assert _decrypt_rc4_key(b"", "x") == ""
    assert _decrypt_rc4_key(RC4_128[:200], "x") == ""


@settings(max_examples=drawn(300), deadline=None)
@given(st.integers(0, 40), st.binary(min_size=1, max_size=3))
def test_damaged_keys_are_keys_or_errors(at, wrong):
    result = decrypted(pem(BODY[:at] + wrong + BODY[at + len(wrong):]))
    assert not result or result.startswith("-----BEGIN PRIVATE KEY-----")


@settings(max_examples=drawn(300), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_no_keys(data):
    assert not decrypted(pem(data))
