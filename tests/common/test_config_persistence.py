"""An update writes only its own key to a server's config file, and no value that the program derived."""
import argparse
import dataclasses
import logging
import os
import stat
from enum import Enum

import pytest

from rmqha.broker import broker_startup
from rmqha.common import java, logs, mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import base_type, config_keys, key_types
from rmqha.common.configuration import Configuration, is_fixed, load_config_file
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.controller import controller_startup
from rmqha.namesrv import namesrv_startup
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import MessageStoreConfig

LOG = logging.getLogger("RocketmqNamesrv")
SERVERS = {
    "broker": (BrokerConfig, ServerConfig, RemotingClientConfig, MessageStoreConfig),
    "namesrv": (NamesrvConfig, ServerConfig),
    "controller": (ControllerConfig, ServerConfig),
    "namesrv with a controller": (NamesrvConfig, ServerConfig, ControllerConfig),
}


@pytest.fixture(autouse=True)
def no_log_files(monkeypatch):
    """Keep the test run's log configuration."""
    for name in ("setup_broker_logging", "setup_namesrv_logging", "setup_controller_logging"):
        monkeypatch.setattr(logs, name, lambda *_: None)


def another(config: object, attribute: str) -> object:
    """Return a value of the attribute's type that differs from the current one."""
    now, kind = getattr(config, attribute), base_type(key_types(type(config))[attribute])
    if kind is bool:
        return not now
    if issubclass(kind, Enum):
        return next(member for member in kind if member is not now)
    return f"{now}x" if kind is str else kind((now or 0) + 1)


@pytest.mark.parametrize("server", SERVERS)
def test_no_key_set_by_the_program_is_written(server, tmp_path):
    """Sets each key of each class as the program would; an update of another key does not write it."""
    file, written = tmp_path / "server.conf", "# kept\nserverWorkerThreads=8\n"
    for number, config_class in enumerate(SERVERS[server]):
        for key, item in config_keys(config_class).items():
            configs = [each() for each in SERVERS[server]]
            configuration = Configuration(LOG, *configs, store_path=str(file))
            file.write_text(written)
            configuration.register_config(java.load(file.read_bytes()))
            setattr(configs[number], item.name, another(configs[number], item.name))
            configuration.update({"serverSelectorThreads": "5"})
            assert file.read_text() == written + "serverSelectorThreads=5\n", key


@pytest.mark.parametrize("server", SERVERS)
def test_every_updated_key_is_loaded_at_the_next_start(server, tmp_path):
    """Also if the key's name in a file differs from the attribute's."""
    file = tmp_path / "server.conf"
    for number, config_class in enumerate(SERVERS[server]):
        for key, item in config_keys(config_class).items():
            configs = [each() for each in SERVERS[server]]
            file.write_text("# an operator's\n")
            value = getattr(config_class(), item.name)
            if value is None or base_type(key_types(config_class)[item.name]) is str:
                # Texts have formats of their own, and most can't be updated.
                continue
            Configuration(LOG, *configs, store_path=str(file)).update({key: mix_all.property_text(value)})
            again = [each() for each in SERVERS[server]]
            setattr(again[number], item.name, another(again[number], item.name))
            load_config_file(str(file), again)
            assert getattr(again[number], item.name) == value, key


def started(server: str, file) -> tuple[Configuration, list[object]]:
    """Return a server's configuration as its start makes it, and its config objects."""
    line = argparse.Namespace(words=[], configFile=str(file), printConfigItem=False, printImportantConfig=False,
                              namesrvAddr="127.0.0.1:1", logDir=str(file.parent / "logs"))
    if server == "broker":
        broker = broker_startup.create_broker_controller(line)
        assert broker.initialize()
        broker.shutdown()
        return broker.configuration, list(broker.configs)
    if server == "controller":
        manager = controller_startup.create_controller_manager(line)
        return manager.configuration, [manager.controller_config, manager.server_config]
    namesrv = namesrv_startup.create_namesrv_controller(line)
    if server == "namesrv":
        return namesrv.configuration, [namesrv.namesrv_config, namesrv.server_config]
    manager = namesrv.controller_manager
    return manager.configuration, [manager.controller_config, manager.server_config]


@pytest.mark.parametrize("server, text", [
    ("broker", "storePathRootDir={folder}/store\nlistenPort=0\n"),
    ("broker", "storePathRootDir={folder}/store\nlistenPort=0\nenableControllerMode=true\ncontrollerAddr=127.0.0.1:1\n"
               "brokerRole=SYNC_MASTER\nbrokerId=3\n"),
    ("broker", "storePathRootDir={folder}/store\nlistenPort=0\nbrokerRole=SYNC_MASTER\nbrokerId=7\nhaListenPort=99\n"),
    ("namesrv", "kvConfigPath={folder}/kv.json\nlistenPort=0\n"),
    ("controller", "controllerDLegerPeers=n0-127.0.0.1:9878\ncontrollerDLegerSelfId=n0\n"
                   "controllerStorePath={folder}/c\n"),
    ("controller in a namesrv", "enableControllerInNamesrv=true\ncontrollerDLegerPeers=n0-127.0.0.1:9878\n"
                                "controllerDLegerSelfId=n0\ncontrollerStorePath={folder}/c\n"),
])
def test_update_of_a_started_server_adds_one_line(server, text, tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:2")
    file = tmp_path / "server.conf"
    file.write_text("# an operator's\n" + text.format(folder=tmp_path))
    before = file.read_text()
    configuration, configs = started(server, file)
    assert any(getattr(config, item.name) != item.default for config in configs
               for item in dataclasses.fields(config)), "the start should derive some values"
    configuration.update({"serverWorkerThreads": "9"})
    assert file.read_text() == before + "serverWorkerThreads=9\n"
    again, _configs = started(server, file)
    assert "serverWorkerThreads=9\n" in again.get_all_configs_format_string()


def test_every_key_that_requests_may_change_is_loaded_again(tmp_path):
    """The keys that UPDATE_BROKER_CONFIG allows, all at once."""
    configs = [each() for each in SERVERS["broker"]]
    file = tmp_path / "broker.conf"
    keys = sorted(key for config in configs for key in config_keys(type(config)) if not is_fixed(key))
    values = {key: mix_all.property_text(value) for config in configs
              for key, item in config_keys(type(config)).items()
              if key in keys and (value := getattr(config, item.name)) is not None}
    Configuration(LOG, *configs, store_path=str(file)).update(values)
    assert dict(java.load(file.read_bytes())) == values


@pytest.fixture
def edited_file(tmp_path):
    config = NamesrvConfig()
    file = tmp_path / "namesrv.conf"
    configuration = Configuration(LOG, config, ServerConfig(), store_path=str(file))

    def edited(text: bytes, **values: str) -> bytes:
        file.write_bytes(text)
        configuration.update(values)
        return file.read_bytes()
    return edited


@pytest.mark.parametrize("before, after", [
    (b"", b"productEnvName=b\n"),
    (b"productEnvName=a", b"productEnvName=b\n"),
    (b"# caf\xe9 \xc3\xa9\n\n  productEnvName : a\nclusterTest=false\n", b"# caf\xe9 \xc3\xa9\n\nproductEnvName=b\n"
     b"clusterTest=false\n"),
    (b"productEnvName=1\nx=y\nproductEnvName=2\n", b"productEnvName=1\nx=y\nproductEnvName=b\n"),
    (b"x=y\r\nproductEnvName=a\\\r\n  a\r\nz=\r\n", b"x=y\r\nproductEnvName=b\r\nz=\r\n"),
    (b"x=y\\", b"x=y\\\n\nproductEnvName=b\n"),
    (b"x=y\\\n", b"x=y\\\n\nproductEnvName=b\n"),
    (b"product\\u0045nvName=a\n#productEnvName=c\n", b"productEnvName=b\n#productEnvName=c\n"),
])
def test_rest_of_the_file_is_unchanged(edited_file, before, after):
    assert edited_file(before, productEnvName="b") == after
    assert java.load(after)["productEnvName"] == "b"
    others = [{key: value for key, value in java.load(text).items() if key != "productEnvName"}
              for text in (before, after)]
    assert others[0] == others[1]


def test_concurrent_edits_by_a_person_are_kept(edited_file):
    edited_file(b"", productEnvName="b")
    assert edited_file(b"productEnvName=c\nlistenPort=1\n", clusterTest="true") == \
        b"productEnvName=c\nlistenPort=1\nclusterTest=true\n"


def test_damaged_file_is_left_alone_and_the_update_written_later(edited_file, caplog):
    broken = b"x=\\u12\n"
    assert edited_file(broken, productEnvName="b") == broken
    assert "line 1" in caplog.text and "namesrv.conf is left as it is" in caplog.text
    assert edited_file(b"x=1\n", clusterTest="true") == b"x=1\nproductEnvName=b\nclusterTest=true\n"


def test_deleted_file_is_recreated_from_the_given_keys(tmp_path):
    file = tmp_path / "namesrv.conf"
    configuration = Configuration(LOG, NamesrvConfig(), ServerConfig(), store_path=str(file))
    configuration.register_config({"listenPort": "1", "nobodyKnows": "it"})
    configuration.update({"clusterTest": "true"})
    assert file.read_text() == "listenPort=1\nnobodyKnows=it\nclusterTest=true\n"


def test_permissions_of_the_file_are_kept(tmp_path):
    file = tmp_path / "controller.conf"
    file.write_text("etcdPassword=secret\n")
    os.chmod(file, 0o600)
    Configuration(LOG, ControllerConfig(), store_path=str(file)).update({"logLevel": "WARN"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and "logLevel=WARN" in file.read_text()
