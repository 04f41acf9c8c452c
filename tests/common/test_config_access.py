"""Every config key of every server is shown or secret, and changeable or fixed, on purpose."""
import copy
import dataclasses
import json
import logging
import os
import pickle
import re

import pytest

from rmqha.common import mix_all
from rmqha.common.config_keys import (
    AnyText,
    Host,
    NamesrvAddresses,
    Path,
    Paths,
    Port,
    SecretText,
    base_type,
    config_keys,
)
from rmqha.common.configuration import (
    CHANGEABLE_TEXTS,
    FIXED_KEYS,
    SECRET_KEYS,
    ConfigError,
    Configuration,
    is_fixed,
    is_secret,
    load_config_file,
    refused_keys,
)
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.texts import Secret
from rmqha.remoting.tls_system_config import TlsSystemConfig
from tests.common.test_config_keys import CLASSES, keys

LOG = logging.getLogger("RocketmqNamesrv")
TLS_KEYS = {item.metadata["property"]: item for item in dataclasses.fields(TlsSystemConfig)}
_LOOKS_SECRET = re.compile("passw|secret|token|credential", re.IGNORECASE)
_LOOKS_FIXED = re.compile(r"Path$|Home$|Dir$|Port$|Role$|Name$|Addr$|Address$|IP\d$|Peers$|Endpoints$|Host$")


def wrong_of(key: str, kind) -> str | None:
    """Why a key and its annotation don't fit the lists; None when they do."""
    is_secret_type = base_type(kind) is Secret
    if (is_secret_type or _LOOKS_SECRET.search(key)) and not (key in SECRET_KEYS and is_secret_type):
        return "a secret has the type SecretText, and is in SECRET_KEYS"
    is_text = base_type(kind) is str or kind in (Path, Paths, Port, Host)
    if (is_text or _LOOKS_FIXED.search(key)) and key not in FIXED_KEYS | CHANGEABLE_TEXTS:
        return "a path, name, address, port or text is in one of the lists of FIXED_KEYS, or in CHANGEABLE_TEXTS"
    return None


def test_every_key_of_every_class_is_in_the_lists_it_belongs_to():
    assert {key: wrong for _class, key, kind, _default in keys() if (wrong := wrong_of(key, kind))} == {}


@pytest.mark.parametrize(("key", "kind"), [
    ("otherStorePath", Path), ("newName", AnyText), ("adminPort", Port), ("bindHost", Host), ("dirs", Paths),
    ("namesrvAddr2", NamesrvAddresses), ("kafkaPassword", AnyText), ("kafkaPassword", SecretText), ("key", SecretText)])
def test_a_new_key_that_is_in_no_list_fails(key, kind):
    assert wrong_of(key, kind) is not None


def test_the_lists_name_keys_that_there_are():
    known = {key for config_class in CLASSES for key in config_keys(config_class)}
    known |= {old for config_class in CLASSES for old in getattr(config_class, "key_aliases", {})} | set(TLS_KEYS)
    assert (FIXED_KEYS | CHANGEABLE_TEXTS) - known == {
        "brokerConfigPath", "rmqAddressServerDomain", "rmqAddressServerSubGroup"}
    assert not FIXED_KEYS & CHANGEABLE_TEXTS


def test_all_of_tls_is_fixed_and_its_passwords_are_secret():
    assert set(TLS_KEYS) <= FIXED_KEYS
    for key, item in TLS_KEYS.items():
        assert (key in SECRET_KEYS) == item.metadata["secret"] == bool(_LOOKS_SECRET.search(key)) == (not item.repr)
    shown = repr(TlsSystemConfig(tls_server_key_password="of-the-server", tls_client_key_password="of-the-client"))
    assert "of-the" not in shown and "tls_server_key_path" in shown


def test_passwords_of_tls_are_secrets_however_they_are_given_and_shown(tmp_path, monkeypatch, caplog):
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.keyPassword=of-the-server\ntls.client.keyPassword=of-the-client\n")
    monkeypatch.setenv("TLS_SERVER_KEYPASSWORD", "of-the-server")
    monkeypatch.setenv("TLS_CLIENT_KEYPASSWORD", "of-the-client")
    given = [TlsSystemConfig(), TlsSystemConfig(tls_config_file=str(file)).with_config_file(),
             TlsSystemConfig(tls_server_key_password="of-the-server", tls_client_key_password="of-the-client")]
    for settings in given:
        for each in dataclasses.fields(settings):
            if each.metadata["secret"]:
                value = getattr(settings, each.name)
                assert isinstance(value, Secret) and value.reveal().startswith("of-the-")
        with caplog.at_level(0, "RocketmqRemoting"):
            settings.log_final()
        shown = (f"{settings} {settings.__dict__} {dataclasses.asdict(settings)} {dataclasses.astuple(settings)} "
                 f"{dataclasses.replace(settings, tls_enable=True)} "
                 + json.dumps(dataclasses.asdict(settings), default=str) + caplog.text)
        assert "of-the" not in shown
        with pytest.raises(TypeError):
            pickle.dumps(settings)


@pytest.mark.parametrize("key", ["myPassword", "db.passwd", "accessToken", "SECRET_KEY", "ssl.privateKey"])
def test_a_key_that_nobody_knows_is_secret_by_its_name(key):
    assert is_secret(key) and is_fixed(key) and refused_keys([key, "traceOn"]) == [key]


def test_a_black_list_is_added():
    assert refused_keys(["traceOn", "longPollingEnable"], [" traceOn", " x"]) == ["traceOn"]


def test_a_secret_prints_as_stars_wherever_it_goes():
    secret = Secret("s3cret")
    config = ControllerConfig(etcdPassword=secret)
    for text in (str(secret), repr(secret), f"{secret}", "%s %r" % (secret, secret), str([secret]), repr(config),
                 mix_all.property_text(secret), str(mix_all.object2properties(config)),
                 str(dataclasses.asdict(config)), json.dumps({"password": secret}, default=str)):
        assert "***" in text and "s3cret" not in text
    with pytest.raises(TypeError):
        json.dumps({"password": secret})
    with pytest.raises(TypeError):
        pickle.dumps(config)
    assert secret.reveal() == "s3cret" and copy.deepcopy(secret) == secret == Secret("s3cret") != Secret("s3creT")
    assert ControllerConfig(etcdPassword="s3cret").etcdPassword == secret and not Secret("")


def test_a_bad_secret_is_refused_without_being_shown(tmp_path):
    file = tmp_path / "controller.conf"
    file.write_text("etcdPassword=s3cret\\u0007\n")
    with pytest.raises(ConfigError) as failure:
        load_config_file(str(file), (ControllerConfig(),))
    assert "s3cret" not in str(failure.value) and f"{file}:1: etcdPassword: expected" in str(failure.value)


def test_a_file_keeps_its_secrets_and_its_mode_and_no_other_file_gets_them(tmp_path, caplog):
    file = tmp_path / "controller.conf"
    file.write_text("etcdPassword=s3cret\nmyToken=t0ken\nunknown=1\n")
    file.chmod(0o600)
    config = ControllerConfig(configStorePath=str(file))
    properties = load_config_file(str(file), (config,), warn=lambda text: None)
    configuration = Configuration(LOG, config).register_config(properties)
    configuration.set_store_path_from_config(config, "configStorePath")
    with caplog.at_level("DEBUG"):
        configuration.update({"scanNotActiveBrokerInterval": "7000"})
    for text in (configuration.get_all_configs_format_string(), caplog.text):
        assert "s3cret" not in text and "t0ken" not in text and "***" not in text
    assert mix_all.string2properties(file.read_text()).items() >= {
        "etcdPassword": "s3cret", "myToken": "t0ken", "unknown": "1", "scanNotActiveBrokerInterval": "7000"}.items()
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "controller.conf": 0o600, "controller.conf.bak": 0o600}
    config.configStorePath = str(tmp_path / "other.conf")
    configuration.persist()
    assert "scanNotActiveBrokerInterval=7000" in (other := (tmp_path / "other.conf").read_text())
    assert "s3cret" not in other and "t0ken" not in other and "***" not in other


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode, monkeypatch):
    file = tmp_path / "conf"
    file.write_text("old")
    file.chmod(mode)
    mix_all.string2file("new", str(file))
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", mode)

    def no_links(*_names):
        raise OSError(1, "no hard links here")
    monkeypatch.setattr(os, "link", no_links)
    mix_all.string2file("newer", str(file))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}
