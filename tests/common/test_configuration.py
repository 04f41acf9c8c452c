"""Configuration: all keys of a server, updated and saved while it runs."""
import logging

import pytest

from rmqha.common.configuration import ConfigError, Configuration
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.remoting.remoting_config import ServerConfig

LOG = logging.getLogger("RocketmqNamesrv")


@pytest.fixture
def parts(tmp_path):
    namesrv = NamesrvConfig(configStorePath=str(tmp_path / "namesrv.conf"))
    server = ServerConfig()
    configuration = Configuration(LOG, namesrv, server)
    configuration.set_store_path_from_config(namesrv, "configStorePath")
    return configuration, namesrv, server, tmp_path / "namesrv.conf"


def test_text_holds_the_keys_of_all_objects_and_of_the_file(parts):
    configuration, *_ = parts
    configuration.register_config({"unknownKey": "kept"}).register_config(None)
    lines = configuration.get_all_configs_format_string().splitlines()
    assert {"productEnvName=center", "listenPort=8888", "useEpollNativeSelector=false", "unknownKey=kept"} < set(lines)


def test_text_shows_what_the_objects_hold_now(parts):
    configuration, namesrv, *_ = parts
    namesrv.productEnvName = "changed"
    assert "productEnvName=changed\n" in configuration.get_all_configs_format_string()


def test_update_sets_objects_counts_and_saves(parts):
    configuration, namesrv, server, file = parts
    before = configuration.get_data_version().counter
    configuration.update({"serverWorkerThreads": "3", "orderMessageEnable": "true", "noSuchKey": "1"})
    assert (server.serverWorkerThreads, namesrv.orderMessageEnable) == (3, True)
    assert configuration.get_data_version().counter == before + 1
    text = file.read_text()
    assert "serverWorkerThreads=3\n" in text and "noSuchKey" not in text


def test_update_keeps_the_old_file(parts):
    configuration, _, _, file = parts
    file.write_text("listenPort=1\n")
    configuration.update({"listenPort": "2"})
    assert file.with_name("namesrv.conf.bak").read_text() == "listenPort=1\n"


def test_bad_value_changes_nothing(parts):
    configuration, namesrv, server, file = parts
    with pytest.raises(ConfigError, match="serverWorkerThreads"):
        configuration.update({"productEnvName": "x", "serverWorkerThreads": "many"})
    assert (namesrv.productEnvName, server.serverWorkerThreads) == ("center", 8)
    assert configuration.get_data_version().counter == 0 and not file.exists()


def test_failing_disk_is_logged(parts, caplog):
    configuration, namesrv, _, file = parts
    file.mkdir()
    configuration.update({"productEnvName": "x"})
    assert namesrv.productEnvName == "x" and "persist string2File error" in caplog.text


def test_no_store_path_is_logged(caplog):
    Configuration(LOG, ServerConfig()).persist()
    assert "no store path" in caplog.text


def test_store_path_of_an_attribute_must_exist():
    with pytest.raises(AttributeError):
        Configuration(LOG).set_store_path_from_config(ServerConfig(), "nothing")
