"""Every file of the conf folder: known keys only, explained line by line, and no two brokers in each other's way."""
import pytest

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import load_config_file, read_config_file
from rmqha.common.controller_config import ControllerConfig, ControllerStoreKind, peers_of
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.tools.config.config_command import check, kind_of
from tests.support.sources import ROOT

CONF = ROOT / "conf"
FOLDERS = ("2m-2s-async", "2m-2s-sync", "2m-noslave", "controller")
ALL_FILES = sorted(str(path.relative_to(CONF)) for path in CONF.rglob("*")
               if path.suffix in (".conf", ".properties") and "docker" not in path.parts)  # see test_docker.py
CONTROLLERS = {"controller/controller.conf", "controller/controller-etcd.conf"}
FILES = [file for file in ALL_FILES if file not in CONTROLLERS]
ROCKETMQ_NAMES = {
    "broker.conf",
    *(f"{folder}/broker-{name}.properties" for folder in FOLDERS[:2] for name in ("a", "a-s", "b", "b-s")),
    *(f"2m-noslave/broker-{name}.properties" for name in ("a", "b", "trace")),
    *(f"controller/broker-n{number}.conf" for number in range(3)),
}


def load(file):
    """The four config objects that a broker makes of a file."""
    unknown = []
    configs = BrokerConfig(), ServerConfig(), RemotingClientConfig(), MessageStoreConfig()
    load_config_file(str(CONF / file), configs, warn=unknown.append)
    assert unknown == []
    return configs


def folder(name):
    """Broker, server and store config of each file in a folder."""
    return {file: load(file) for file in FILES if file.startswith(name + "/")}


def test_names_are_rocketmqs():
    assert set(ALL_FILES) == ROCKETMQ_NAMES | CONTROLLERS


@pytest.mark.parametrize("file", FILES)
def test_file_has_known_keys_with_good_values_only(file):
    broker, server, _client, store = load(file)
    assert broker.brokerName.startswith("broker-") and broker.namesrvAddr == "127.0.0.1:9876"
    assert server.listenPort > 1024
    assert store.fileReservedTime == 48 and store.deleteWhen == "04"
    assert store.mappedFileSizeCommitLog == MessageStoreConfig().mappedFileSizeCommitLog, "defaults stay RocketMQ's"


@pytest.mark.parametrize("file", ALL_FILES)
def test_each_line_is_explained_by_a_comment(file):
    lines = (CONF / file).read_text("ascii").splitlines()
    for above, line in zip(lines, lines[1:]):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("# "), line


@pytest.mark.parametrize("name", FOLDERS)
def test_ports_of_a_folder_do_not_clash(name):
    taken = [port + step for _broker, server, _client, _store in folder(name).values()
             for port in (server.listenPort,) for step in (-2, 0, 1)]
    assert len(taken) == len(set(taken))


def test_store_folders_do_not_clash():
    stores = [load(file)[3] for file in FILES]
    roots = [store.storePathRootDir for store in stores]
    assert len(roots) == len(set(roots))
    for store in stores:
        assert store.storePathCommitLog == store.storePathRootDir + "/commitlog"


@pytest.mark.parametrize("name", FOLDERS)
def test_logs_of_a_folder_do_not_clash(name):
    brokers = [broker for broker, _server, _client, _store in folder(name).values()]
    assert all(broker.isolateLogEnable for broker in brokers)
    if name != "controller":  # there they are named by their ports
        assert len({(broker.brokerName, broker.brokerId) for broker in brokers}) == len(brokers)


@pytest.mark.parametrize("name, role", [
    ("2m-2s-async", BrokerRole.ASYNC_MASTER), ("2m-2s-sync", BrokerRole.SYNC_MASTER)])
def test_each_master_has_one_slave(name, role):
    brokers = [(broker.brokerName, broker.brokerId, store.brokerRole)
               for broker, _server, _client, store in folder(name).values()]
    assert sorted(brokers, key=lambda row: row[:2]) == [
        ("broker-a", 0, role), ("broker-a", 1, BrokerRole.SLAVE),
        ("broker-b", 0, role), ("broker-b", 1, BrokerRole.SLAVE)]


def test_folder_without_slaves_has_masters_only():
    assert {store.brokerRole for *_others, store in folder("2m-noslave").values()} == {BrokerRole.ASYNC_MASTER}
    assert load("2m-noslave/broker-trace.properties")[0].traceTopicEnable


def test_controllers_start_with_their_files_and_the_replicas_ask_the_local_one():
    for file in sorted(CONTROLLERS):
        assert check(str(CONF / file), "controller") == []
        assert kind_of(read_config_file(str(CONF / file))) == "controller"
    local, shared = ControllerConfig(), ControllerConfig()
    load_config_file(str(CONF / "controller" / "controller.conf"), (local,))
    load_config_file(str(CONF / "controller" / "controller-etcd.conf"), (shared,))
    assert (local.controllerStore, shared.controllerStore) == (ControllerStoreKind.local, ControllerStoreKind.etcd)
    for broker, _server, _client, store in folder("controller").values():
        assert broker.enableControllerMode and broker.controllerAddr == peers_of(local)["n0"]
        assert store.allAckInSyncStateSet and store.minInSyncReplicas == 2
    assert peers_of(local)["n0"] == peers_of(shared)["n0"]
