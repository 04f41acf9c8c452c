"""Keys that OpenSSL wrote under RC4, and texts that are not such keys."""
import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.remoting.encrypted_key import decrypt_rc4_key
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


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """The key of both, in a file."""
    path = tmp_path_factory.mktemp("rc4") / "plain.key"
    path.write_text(decrypt_rc4_key(RC4_128, "123456"))
    return path


def test_openssl_takes_what_comes_out(key):
    assert "Key is valid" in openssl("pkey", "-in", key, "-check", "-noout")
    assert decrypt_rc4_key(RC4_40, "123456") == key.read_text()


@pytest.mark.parametrize("file", [RC4_128, RC4_40, b"# a comment\n" + RC4_128], ids=["128 bits", "40 bits", "comment"])
def test_server_serves_with_such_a_key(key, file, tmp_path):
    certificate, path = tmp_path / "cert.pem", tmp_path / "rc4.key"
    openssl("req", "-x509", "-key", key, "-subj", "/CN=rc4", "-days", "30", "-out", certificate)
    path.write_bytes(file)
    tls = TlsSystemConfig(tls_mode=TlsMode.ENFORCING, tls_test_mode_enable=False, tls_server_key_password="123456",
                          tls_server_cert_path=str(certificate), tls_server_key_path=str(path))
    with running_server(tls=tls) as server, running_client(useTLS=True) as client:
        assert client.invoke_sync(address(server), request(body=b"in"), 20_000).body == b"in"


def test_wrong_password_gives_nonsense(key):
    assert decrypt_rc4_key(RC4_128, "1234567") != key.read_text()


def test_other_files_are_left_to_openssl(key, tmp_path_factory):
    identity = Authority(tmp_path_factory.mktemp("other")).sign("other")
    for path in (key, identity.key, identity.certificate, encrypted(identity.key, "x")):
        assert decrypt_rc4_key(path.read_bytes(), "x") is None, path
    assert decrypt_rc4_key(b"", "x") is None
    assert decrypt_rc4_key(RC4_128[:200], "x") is None


@settings(max_examples=drawn(300), deadline=None)
@given(st.integers(0, 40), st.binary(min_size=1, max_size=3))
def test_damaged_keys_are_no_keys_or_nonsense(at, wrong):
    result = decrypt_rc4_key(pem(BODY[:at] + wrong + BODY[at + len(wrong):]), "123456")
    assert result is None or result.startswith("-----BEGIN PRIVATE KEY-----")


@settings(max_examples=drawn(300))
@given(st.binary(max_size=200))
def test_any_bytes_are_no_keys(data):
    assert decrypt_rc4_key(pem(data), "123456") is None
