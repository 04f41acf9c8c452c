"""Where the settings of TLS come from, and which of them a server or client refuses to start with."""
import logging
import subprocess
import sys

import pytest

from rmqha.common import java
from rmqha.common.configuration import ConfigError
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.remoting.tls import build_ssl_context
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig, use_tls
from tests.support.certificates import Authority, Identity, encrypted


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority) -> Identity:
    return authority.sign("server")


def test_defaults_are_those_of_the_original():
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
def test_system_property_is_found_where_the_start_scripts_take_it(environment, expected, monkeypatch):
    for name in ("JAVA_OPT", "JAVA_OPT_EXT", "TLS_SERVER_KEYPATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert java.get_property("tls.server.keyPath") == expected
    assert TlsSystemConfig().tls_server_key_path == expected


@pytest.mark.parametrize("text, expected", [("true", True), ("TRUE", True), ("True ", False), ("yes", False),
                                            ("", False)])
def test_only_true_switches_tls_on(text, expected, monkeypatch):
    monkeypatch.setenv("TLS_ENABLE", text)
    assert use_tls() is use_tls(default=True) is expected


def test_default_counts_where_nobody_says(monkeypatch):
    monkeypatch.delenv("TLS_ENABLE", raising=False)
    assert use_tls(default=True) is True and use_tls() is False


def test_file_goes_over_the_properties(tmp_path, caplog):
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


def test_file_that_was_asked_for_has_to_be_there(tmp_path):
    with pytest.raises(ConfigError, match="tls.config.file: there is no such file"):
        TlsSystemConfig(tls_config_file=str(tmp_path / "none")).with_config_file()


@pytest.mark.parametrize("name, value", [("TLS_SERVER_MODE", "ENFORCING"), ("TLS_SERVER_MODE", "on"),
                                         ("TLS_SERVER_NEED_CLIENT_AUTH", "required")])
def test_word_that_no_setting_has_is_refused(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name.lower().replace('_', '.')}: '{value}' is none of"):
        TlsSystemConfig()


def test_bad_word_in_the_file_is_refused_with_its_line(tmp_path):
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
def test_server_does_not_start_with_what_cannot_work(what, authority, identity, tmp_path):
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


def test_client_does_not_start_with_what_cannot_work(identity):
    for given in ({"tls_client_key_path": str(identity.key)}, {"tls_client_cert_path": "/no/such"},
                  {"tls_client_auth_server": True, "tls_client_trust_cert_path": "/no/such"}):
        settings = TlsSystemConfig(tls_test_mode_enable=False, **given)
        client = RemotingClient(RemotingClientConfig(useTLS=True), tls=settings)
        with pytest.raises(ConfigError, match="tls.client"):
            client.start()
        client.shutdown()


def test_disabled_reads_nothing(tmp_path):
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
    ("-Dtls.server.mode=enforced", "tls.server.mode: 'enforced' is none of disabled, permissive, enforcing"),
    ("-Dtls.test.mode.enable=false", "tls.server.certPath: not set")])
def test_servers_end_with_code_2_and_say_why(server, option, message, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_OPT", option)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "server.properties"
    config.write_text(f"listenPort=0\nstorePathRootDir={tmp_path}/store\n" if server == "broker" else "listenPort=0\n")
    done = subprocess.run([sys.executable, "-m", STARTUPS[server], "-c", str(config)], capture_output=True, text=True,
                          timeout=600, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
