"""A name server and two masters in this process, for the whole folder."""
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from rmqha.broker.broker_controller import BrokerController
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.namesrv.namesrv_config import NamesrvConfig
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.client_config import ClientConfig
from rmqha.remoting.server_config import ServerConfig
from rmqha.store.config.message_store_config import MessageStoreConfig

_NUMBERS = count(1)


@dataclass
class Servers:
    """The address of the name server, and the brokers by name."""

    namesrv: str
    brokers: dict[str, BrokerController]

    @staticmethod
    def unique(prefix: str) -> str:
        """A topic or group name that no other test uses."""
        return f"{prefix}{next(_NUMBERS)}"


def _broker(name: str, namesrv: str, folder) -> BrokerController:
    broker_config = BrokerConfig(brokerName=name, brokerIP1="127.0.0.1", brokerIP2="127.0.0.1", namesrvAddr=namesrv,
                                 rocketmqHome=str(folder), waitTimeMillsInSendQueue=60_000,
                                 waitTimeMillsInPullQueue=60_000, waitTimeMillsInTransactionQueue=60_000)
    store_config = MessageStoreConfig(
        storePathRootDir=str(folder / name), storePathCommitLog=str(folder / name / "commitlog"), haListenPort=0,
        mappedFileSizeCommitLog=4 << 20, mappedFileSizeConsumeQueue=20_000, maxHashSlotNum=1000, maxIndexNum=4000,
        messageDelayLevel="1s 1s 1s 1s 1s", osPageCacheBusyTimeOutMills=60_000)
    controller = BrokerController(broker_config, ServerConfig(listenPort=0), ClientConfig(), store_config)
    assert controller.initialize()
    controller.start()
    return controller


@pytest.fixture(scope="package")
def servers(tmp_path_factory) -> Iterator[Servers]:
    """Running servers; topics and groups come into being by use."""
    folder = tmp_path_factory.mktemp("client")
    namesrv_config = NamesrvConfig(kvConfigPath=str(folder / "kv.json"), configStorePath=str(folder / "ns.properties"))
    name_server = NamesrvController(namesrv_config, ServerConfig(listenPort=0))
    assert name_server.initialize()
    name_server.start()
    address = f"127.0.0.1:{name_server.local_listen_port}"
    brokers = {}
    try:
        for name in ("broker-a", "broker-b"):
            brokers[name] = _broker(name, address, folder)
        yield Servers(address, brokers)
    finally:
        for broker in brokers.values():
            broker.shutdown()
        name_server.shutdown()
