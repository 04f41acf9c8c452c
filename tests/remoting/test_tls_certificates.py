"""TLS settings and trust: keys, certificates and authorities of both sides, and replacing them."""
import contextlib
import logging
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.common import java
from rmqha.common.configuration import ConfigError
from rmqha.common.file_watch_service import FileWatchService
from rmqha.remoting import tls as tls_helper
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.remoting_server import CertificateWatch, RemotingServer
from rmqha.remoting.tls import build_ssl_context
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig, use_tls
from tests.remoting.support import Raw, address, request, running_client, running_server
from tests.support.programs import OLD_SCHEME, Authority, Identity, encrypted, openssl
from tests.support.wait import wait_until

# Trust: keys, certificates and authorities of both sides, and replacing them while a server runs.

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
    """Return a client that checks the server if it is given anything to check with."""
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


def test_client_accepts_only_a_server_of_a_trusted_authority(authority, stranger, server_identity):
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
def test_server_requests_certificates_as_configured(authority, stranger, server_identity, client_identity, need,
                                                    no_certificate, strangers):
    with running_server(tls=server_tls(server_identity, need, authority.certificate)) as server:
        assert is_served(server, client_tls(authority.certificate, client_identity))
        assert is_served(server, client_tls(authority.certificate)) is no_certificate
        assert is_served(server, client_tls(authority.certificate, stranger.sign("other"))) is strangers
        assert is_served(server, client_tls(authority.certificate, client_identity))


@pytest.mark.parametrize("need, without", [("none", True), ("optional", True), ("require", False)])
def test_server_that_does_not_check_accepts_everything_except_a_missing_required_certificate(
        authority, server_identity, client_identity, need, without):
    with running_server(tls=server_tls(server_identity, need, authority.certificate, auth=False)) as server:
        assert is_served(server, client_tls(None, client_identity))
        assert is_served(server, client_tls()) is without


@pytest.mark.parametrize("scheme", [(), OLD_SCHEME], ids=["PBES2", "PKCS #12"])
def test_encrypted_keys_are_decrypted_with_their_passwords(authority, server_identity, client_identity, scheme):
    server_side = Identity(server_identity.certificate, encrypted(server_identity.key, "server secret", scheme))
    client_side = Identity(client_identity.certificate, encrypted(client_identity.key, "client secret"))
    tls = server_tls(server_side, "require", authority.certificate, "server secret")
    with running_server(tls=tls) as server:
        assert is_served(server, client_tls(authority.certificate, client_side, "client secret"))


def test_certificate_of_the_test_mode_is_valid_for_openssl(tmp_path):
    both = tmp_path / "both.pem"
    both.write_text(tls_helper._TEST_MODE_PAIR)
    openssl("verify", "-x509_strict", "-CAfile", both, both)
    openssl("ec", "-in", both, "-check", "-noout")
    shown = openssl("x509", "-in", both, "-noout", "-subject", "-issuer", "-enddate")
    assert "subject=CN = localhost" in shown and "issuer=CN = localhost" in shown and " 2126 " in shown


# Replaced certificates

def certificate_of(server) -> str:
    """Return the certificate that the server shows to a new connection, as PEM."""
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


def test_replaced_certificate_and_key_are_used_for_new_connections(tmp_path, authority, server_identity, monkeypatch):
    monkeypatch.setattr(FileWatchService, "watch_interval_ms", 20)
    old, new = server_identity, authority.sign("renewed")
    live = Identity(tmp_path / "live.pem", tmp_path / "live.key")
    shutil.copy(old.certificate, live.certificate)
    shutil.copy(old.key, live.key)
    with running_server(tls=server_tls(live)) as server, watched(server), \
            running_client(useTLS=True, tls=client_tls(authority.certificate)) as standing:
        assert standing.invoke_sync(address(server), request(body=b"1"), CALL_MS).body == b"1"
        assert certificate_of(server) == old.certificate.read_text()
        # Alone it does not match the key.
        shutil.copy(new.certificate, live.certificate)
        shutil.copy(new.key, live.key)
        wait_until(lambda: certificate_of(server) == new.certificate.read_text(), WAIT_MS, "the new one is shown")
        assert len(server.io.channels) >= 1
        assert standing.invoke_sync(address(server), request(body=b"2"), CALL_MS).body == b"2"


def test_mismatched_certificates_change_nothing_until_they_match(tmp_path, authority, server_identity, monkeypatch,
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


def test_watch_without_files_has_no_thread():
    with running_server() as server, watched(server) as watch:
        assert watch._service is None
    service = FileWatchService([None, "", "/no/such/file"], print)
    service.start()
    assert not service.is_alive() and service.watch_files == []


# The sources of the TLS settings, and the settings with which a server or client refuses to start.


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority) -> Identity:
    return authority.sign("server")


def test_defaults_are_the_originals():
    tls = TlsSystemConfig()
    assert (tls.tls_mode, tls.tls_enable, tls.tls_test_mode_enable) == (TlsMode.PERMISSIVE, False, True)
    assert (tls.tls_server_need_client_auth, tls.tls_server_auth_client, tls.tls_client_auth_server) \
        == ("none", False, False)
    assert tls.tls_config_file == "/etc/rocketmq/tls.properties"


@pytest.mark.parametrize("environment, expected", [
    ({}, None),
    ({"TLS_SERVER_KEYPATH": "/a"}, "/a"),
    ({"JAVA_OPT": "-Xmx1g -Dtls.server.keyPath=/b -server"}, "/b"),
    ({"JAVA_OPT": "-Dtls.server.keyPath=/b -Dtls.server.keyPath=/c"}, "/c"),
    ({"JAVA_OPT": "-Dtls.server.keyPath=/b", "JAVA_OPT_EXT": "-Dtls.server.keyPath=/d"}, "/d"),
    ({"JAVA_OPT": "-Dtls.server.keyPath=/b", "TLS_SERVER_KEYPATH": "/a"}, "/b"),
    ({"JAVA_OPT": "'-Dtls.server.keyPath=/with space'"}, "/with space"),
    ({"JAVA_OPT": "-Dtls.server.keyPath"}, ""),
    ({"JAVA_OPT": "-Dtls.server.keyPathX=/x -Dx=\"y"}, None),
])
def test_system_property_is_read_from_the_same_sources_as_by_the_start_scripts(environment, expected, monkeypatch):
    for name in ("JAVA_OPT", "JAVA_OPT_EXT", "TLS_SERVER_KEYPATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert java.get_property("tls.server.keyPath") == expected
    assert TlsSystemConfig().tls_server_key_path == expected


@pytest.mark.parametrize("text, expected", [("true", True), ("TRUE", True), ("True ", False), ("yes", False),
                                            ("", False)])
def test_only_true_enables_tls(text, expected, monkeypatch):
    monkeypatch.setenv("TLS_ENABLE", text)
    assert use_tls() is use_tls(default=True) is expected


def test_default_applies_when_nothing_is_set(monkeypatch):
    monkeypatch.delenv("TLS_ENABLE", raising=False)
    assert use_tls(default=True) is True and use_tls() is False


def test_file_overrides_the_properties(tmp_path, caplog):
    file = tmp_path / "tls.properties"
    file.write_text("tls.test.mode.enable=false\ntls.server.need.client.auth=REQUIRE\ntls.server.certpath=/typo\n"
                    "tls.server.mode=enforcing\ntls.client.keyPassword=secret\n")
    begun = TlsSystemConfig(tls_config_file=str(file), tls_server_key_path="/kept", tls_mode=TlsMode.PERMISSIVE)
    with caplog.at_level(logging.INFO, "RocketmqRemoting"):
        tls = begun.with_config_file()
        tls.log_final()
    assert (tls.tls_test_mode_enable, tls.tls_server_need_client_auth, tls.tls_server_key_path) \
        == (False, "require", "/kept")
    assert tls.tls_mode is TlsMode.PERMISSIVE and tls.tls_server_cert_path is None
    assert f"{file}:3: unknown key tls.server.certpath, did you mean tls.server.certPath?" in caplog.text
    assert f"{file}:4: tls.server.mode is a system property" in caplog.text
    assert "tls.client.keyPassword = ******" in caplog.text and "secret" not in caplog.text


def test_named_file_must_exist(tmp_path):
    with pytest.raises(ConfigError, match="tls.config.file: the file does not exist"):
        TlsSystemConfig(tls_config_file=str(tmp_path / "none")).with_config_file()


@pytest.mark.parametrize("name, value", [("TLS_SERVER_MODE", "ENFORCING"), ("TLS_SERVER_MODE", "on"),
                                         ("TLS_SERVER_NEED_CLIENT_AUTH", "required")])
def test_invalid_setting_is_refused(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name.lower().replace('_', '.')}: '{value}' is not one of"):
        TlsSystemConfig()


def test_invalid_setting_in_the_file_is_refused_with_its_line(tmp_path):
    file = tmp_path / "tls.properties"
    file.write_text("\ntls.server.need.client.auth=maybe\n")
    with pytest.raises(ConfigError, match=f"{file}:2: tls.server.need.client.auth: 'maybe'"):
        TlsSystemConfig(tls_config_file=str(file)).with_config_file()


REFUSED = {
    "no certificate": ({}, "tls.server.certPath: not set"),
    "missing certificate": ({"cert": "/no/such.pem"}, "/no/such.pem: tls.server.certPath: cannot be read"),
    "missing key": ({"cert": True, "key": "/no/such.key"}, "tls.server.keyPath: cannot be read"),
    "certificate without key": ({"cert": True}, "can't be loaded"),
    "key of another": ({"cert": True, "key": "other"}, "tls.server.keyPath: certificate and key .* can't be loaded"),
    "no PEM": ({"cert": "text", "key": True}, "can't be loaded"),
    "wrong password": ({"cert": True, "key": "encrypted", "password": "wrong"}, "tls.server.keyPassword"),
    "no password": ({"cert": True, "key": "encrypted"}, "tls.server.keyPassword"),
    "any client's certificate": ({"cert": True, "key": True, "need": "require"}, "tls.server.need.client.auth"),
    "missing authority": ({"cert": True, "key": True, "need": "require", "trust": "/no"}, "tls.server.trustCertPath"),
    "authority no PEM": ({"cert": True, "key": True, "need": "require", "trust": "text"}, "no PEM certificates"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_server_does_not_start_with_unusable_settings(what, authority, identity, tmp_path):
    given, message = REFUSED[what]
    text = tmp_path / "text"
    text.write_text("no PEM")
    paths = {"text": text, "other": authority.sign("other").key if given.get("key") == "other" else None,
             "encrypted": encrypted(identity.key, "right") if given.get("key") == "encrypted" else None}

    def path(what: str, own: object) -> str | None:
        asked = given.get(what)
        return str(own if asked is True else paths.get(asked) or asked) if asked else None

    tls = TlsSystemConfig(
        tls_mode=TlsMode.PERMISSIVE, tls_test_mode_enable=False,
        tls_server_cert_path=path("cert", identity.certificate), tls_server_key_path=path("key", identity.key),
        tls_server_key_password=given.get("password"),
        tls_server_need_client_auth=given.get("need", "none"), tls_server_trust_cert_path=path("trust", None))
    server = RemotingServer(ServerConfig(listenPort=0), tls=tls)
    with pytest.raises(ConfigError, match=message):
        server.start()
    server.shutdown()


def test_client_does_not_start_with_unusable_settings(identity):
    for given in ({"tls_client_key_path": str(identity.key)}, {"tls_client_cert_path": "/no/such"},
                  {"tls_client_auth_server": True, "tls_client_trust_cert_path": "/no/such"}):
        settings = TlsSystemConfig(tls_test_mode_enable=False, **given)
        client = RemotingClient(RemotingClientConfig(useTLS=True), tls=settings)
        with pytest.raises(ConfigError, match="tls.client"):
            client.start()
        client.shutdown()


def test_disabled_mode_reads_nothing(tmp_path):
    tls = TlsSystemConfig(tls_mode=TlsMode.DISABLED, tls_config_file=str(tmp_path / "none"))
    server = RemotingServer(ServerConfig(listenPort=0), tls=tls)
    server.start()
    server.shutdown()


def test_certificate_and_key_may_share_a_file(identity, tmp_path):
    both = tmp_path / "both.pem"
    both.write_text(identity.key.read_text() + identity.certificate.read_text())
    tls = TlsSystemConfig(tls_test_mode_enable=False, tls_server_cert_path=str(both))
    assert build_ssl_context(False, tls).get_ca_certs() == []


STARTUPS = {"namesrv": "rmqha.namesrv.namesrv_startup", "broker": "rmqha.broker.broker_startup"}


@pytest.mark.parametrize("server", STARTUPS)
@pytest.mark.parametrize("option, message", [
    ("-Dtls.server.mode=enforced", "tls.server.mode: 'enforced' is not one of disabled, permissive, enforcing"),
    ("-Dtls.test.mode.enable=false", "tls.server.certPath: not set")])
def test_servers_exit_with_code_2_and_the_reason(server, option, message, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_OPT", option)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "server.properties"
    config.write_text(f"listenPort=0\nstorePathRootDir={tmp_path}/store\n" if server == "broker" else "listenPort=0\n")
    done = subprocess.run([sys.executable, "-m", STARTUPS[server], "-c", str(config)], capture_output=True, text=True,
                          timeout=600, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
