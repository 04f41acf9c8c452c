"""Who trusts whom: keys, certificates and authorities of both sides, and new ones while a server runs."""
import contextlib
import shutil
import ssl
from pathlib import Path

import pytest

from rmqha.common.file_watch_service import FileWatchService
from rmqha.remoting import tls as tls_helper
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.remoting_server import CertificateWatch
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig
from tests.remoting.support import Raw, address, request, running_client, running_server
from tests.support.certificates import OLD_SCHEME, Authority, Identity, encrypted, openssl
from tests.support.wait import wait_until

CALL_MS = 20_000
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory) -> Authority:
    """Another authority, which the servers do not trust."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def server_identity(authority) -> Identity:
    return authority.sign("server")


@pytest.fixture(scope="module")
def client_identity(authority) -> Identity:
    return authority.sign("client")


def server_tls(identity: Identity, need: str = "none", trusted: Path | None = None, password: str | None = None,
               auth: bool = True) -> TlsSystemConfig:
    return TlsSystemConfig(
        tls_mode=TlsMode.ENFORCING, tls_test_mode_enable=False, tls_server_cert_path=str(identity.certificate),
        tls_server_key_path=str(identity.key), tls_server_key_password=password, tls_server_need_client_auth=need,
        tls_server_auth_client=auth, tls_server_trust_cert_path=trusted and str(trusted))


def client_tls(trusted: Path | None = None, identity: Identity | None = None,
               password: str | None = None) -> TlsSystemConfig:
    """A client that checks the server when it has something to check with."""
    return TlsSystemConfig(
        tls_test_mode_enable=False, tls_client_auth_server=trusted is not None,
        tls_client_trust_cert_path=trusted and str(trusted), tls_client_key_password=password,
        tls_client_cert_path=identity and str(identity.certificate), tls_client_key_path=identity and str(identity.key))


def is_served(server, tls: TlsSystemConfig) -> bool:
    with running_client(useTLS=True, tls=tls) as client:
        try:
            return client.invoke_sync(address(server), request(body=b"x"), CALL_MS).body == b"x"
        except RemotingException:
            return False


def test_client_takes_only_a_server_whose_authority_it_trusts(authority, stranger, server_identity):
    with running_server(tls=server_tls(server_identity)) as server:
        assert is_served(server, client_tls(authority.certificate))
        assert not is_served(server, client_tls(stranger.certificate))
        assert is_served(server, client_tls())  # checks nothing
        assert is_served(server, TlsSystemConfig())  # test mode


def test_client_may_trust_the_servers_own_certificate(server_identity):
    with running_server(tls=server_tls(server_identity)) as server:
        assert is_served(server, client_tls(server_identity.certificate))


@pytest.mark.parametrize("need, no_certificate, strangers", [
    ("none", True, True), ("optional", True, False), ("require", False, False)])
def test_server_asks_for_certificates_as_told(authority, stranger, server_identity, client_identity, need,
                                              no_certificate, strangers):
    with running_server(tls=server_tls(server_identity, need, authority.certificate)) as server:
        assert is_served(server, client_tls(authority.certificate, client_identity))
        assert is_served(server, client_tls(authority.certificate)) is no_certificate
        assert is_served(server, client_tls(authority.certificate, stranger.sign("other"))) is strangers
        assert is_served(server, client_tls(authority.certificate, client_identity))


@pytest.mark.parametrize("need, without", [("none", True), ("optional", True), ("require", False)])
def test_server_that_does_not_check_takes_all_but_where_a_certificate_is_required(
        authority, server_identity, client_identity, need, without):
    with running_server(tls=server_tls(server_identity, need, authority.certificate, auth=False)) as server:
        assert is_served(server, client_tls(None, client_identity))
        assert is_served(server, client_tls()) is without


@pytest.mark.parametrize("scheme", [(), OLD_SCHEME], ids=["PBES2", "PKCS #12"])
def test_encrypted_keys_are_opened_with_their_passwords(authority, server_identity, client_identity, scheme):
    server_side = Identity(server_identity.certificate, encrypted(server_identity.key, "server secret", scheme))
    client_side = Identity(client_identity.certificate, encrypted(client_identity.key, "client secret"))
    tls = server_tls(server_side, "require", authority.certificate, "server secret")
    with running_server(tls=tls) as server:
        assert is_served(server, client_tls(authority.certificate, client_side, "client secret"))


def test_certificate_of_the_test_mode_is_one_that_openssl_takes(tmp_path):
    both = tmp_path / "both.pem"
    both.write_text(tls_helper._TEST_MODE_PAIR)
    openssl("verify", "-x509_strict", "-CAfile", both, both)
    openssl("ec", "-in", both, "-check", "-noout")
    shown = openssl("x509", "-in", both, "-noout", "-subject", "-issuer", "-enddate")
    assert "subject=CN = localhost" in shown and "issuer=CN = localhost" in shown and " 2126 " in shown


# ---- new certificates

def certificate_of(server) -> str:
    """What the server shows to a new connection, PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Raw(server) as raw:
        raw.socket = context.wrap_socket(raw.socket)
        return ssl.DER_cert_to_PEM_cert(raw.socket.getpeercert(binary_form=True))


@contextlib.contextmanager
def watched(server):
    watch = CertificateWatch((server,))
    watch.start()
    try:
        yield watch
    finally:
        watch.shutdown()


def test_new_certificate_and_key_are_taken_for_new_connections(tmp_path, authority, server_identity, monkeypatch):
    monkeypatch.setattr(FileWatchService, "watch_interval_ms", 20)
    old, new = server_identity, authority.sign("renewed")
    live = Identity(tmp_path / "live.pem", tmp_path / "live.key")
    shutil.copy(old.certificate, live.certificate)
    shutil.copy(old.key, live.key)
    with running_server(tls=server_tls(live)) as server, watched(server), \
            running_client(useTLS=True, tls=client_tls(authority.certificate)) as standing:
        assert standing.invoke_sync(address(server), request(body=b"1"), CALL_MS).body == b"1"
        assert certificate_of(server) == old.certificate.read_text()
        shutil.copy(new.certificate, live.certificate)  # alone it does not fit the key
        shutil.copy(new.key, live.key)
        wait_until(lambda: certificate_of(server) == new.certificate.read_text(), WAIT_MS, "the new one is shown")
        assert len(server.io.channels) >= 1
        assert standing.invoke_sync(address(server), request(body=b"2"), CALL_MS).body == b"2"


def test_certificates_that_do_not_fit_change_nothing_until_they_do(tmp_path, authority, server_identity, monkeypatch,
                                                                   caplog):
    monkeypatch.setattr(FileWatchService, "watch_interval_ms", 20)
    live = Identity(tmp_path / "live.pem", tmp_path / "live.key")
    shutil.copy(server_identity.certificate, live.certificate)
    shutil.copy(server_identity.key, live.key)
    new = authority.sign("late")
    with running_server(tls=server_tls(live)) as server, watched(server):
        live.certificate.write_text("no certificate")
        live.key.write_text("no key")
        wait_until(lambda: "can't be loaded" in caplog.text, WAIT_MS, "they were tried")
        assert certificate_of(server) == server_identity.certificate.read_text()
        shutil.copy(new.certificate, live.certificate)
        shutil.copy(new.key, live.key)
        wait_until(lambda: certificate_of(server) == new.certificate.read_text(), WAIT_MS, "the right ones are shown")


def test_new_authority_is_trusted(tmp_path, authority, stranger, server_identity, monkeypatch):
    monkeypatch.setattr(FileWatchService, "watch_interval_ms", 20)
    trusted = tmp_path / "trusted.pem"
    shutil.copy(authority.certificate, trusted)
    other = client_tls(None, stranger.sign("newcomer"))
    with running_server(tls=server_tls(server_identity, "require", trusted)) as server, watched(server):
        assert not is_served(server, other)
        trusted.write_text(authority.certificate.read_text() + stranger.certificate.read_text())
        wait_until(lambda: is_served(server, other), WAIT_MS, "the newcomer is served")


def test_watch_has_no_thread_where_there_are_no_files():
    with running_server() as server, watched(server) as watch:
        assert watch._service is None
    service = FileWatchService([None, "", "/no/such/file"], print)
    service.start()
    assert not service.is_alive() and service.watch_files == []
