"""A name server and brokers in this process, at free ports, with small stores: what tests of clients talk to."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqha.broker.broker_controller import BrokerController
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.namesrv.namesrv_config import NamesrvConfig
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.client_config import ClientConfig
from rmqha.remoting.server_config import ServerConfig
from rmqha.store.config.message_store_config import MessageStoreConfig


@contextmanager
def running_name_server(folder: Path) -> Iterator[str]:
    """A name server's address; it runs until the block is left."""
    config = NamesrvConfig(kvConfigPath=str(folder / "kv.json"), configStorePath=str(folder / "ns.properties"))
    name_server = NamesrvController(config, ServerConfig(listenPort=0))
    assert name_server.initialize()
    name_server.start()
    try:
        yield f"127.0.0.1:{name_server.local_listen_port}"
    finally:
        name_server.shutdown()


def start_broker(name: str, namesrv: str, folder: Path, **settings: object) -> BrokerController:
    """A running master; `settings` go to the store's or the broker's config. Shut it down in the end."""
    in_store = {key: settings.pop(key) for key in list(settings) if key in MessageStoreConfig.__dataclass_fields__}
    broker_config = BrokerConfig(**{
        "brokerName": name, "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "namesrvAddr": namesrv,
        "rocketmqHome": str(folder), "waitTimeMillsInSendQueue": 60_000, "waitTimeMillsInPullQueue": 60_000,
        "waitTimeMillsInTransactionQueue": 60_000} | settings)
    store_config = MessageStoreConfig(**{
        "storePathRootDir": str(folder / name), "storePathCommitLog": str(folder / name / "commitlog"),
        "haListenPort": 0, "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20_000,
        "maxHashSlotNum": 1000, "maxIndexNum": 4000, "messageDelayLevel": "1s 1s 1s 1s 1s",
        "osPageCacheBusyTimeOutMills": 60_000} | in_store)
    controller = BrokerController(broker_config, ServerConfig(listenPort=0), ClientConfig(), store_config)
    assert controller.initialize()
    controller.start()
    return controller
