"""A name server and brokers in this process, at free ports, with small stores: what tests of clients talk to."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqha.broker.broker_controller import BrokerController
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.remoting_config import ServerConfig
from tests.broker.support import new_controller


@contextmanager
def running_name_server(folder: Path, port: int = 0) -> Iterator[str]:
    """A name server's address; it runs until the block is left."""
    config = NamesrvConfig(kvConfigPath=str(folder / "kv.json"), configStorePath=str(folder / "ns.properties"))
    name_server = NamesrvController(config, ServerConfig(listenPort=port))
    assert name_server.initialize()
    name_server.start()
    try:
        yield f"127.0.0.1:{name_server.local_listen_port}"
    finally:
        name_server.shutdown()


def start_broker(name: str, namesrv: str, folder: Path, **settings: object) -> BrokerController:
    """A running broker, its files in `folder`, which delays each level by a second. Shut it down in the end."""
    controller = new_controller(folder, namesrv, **{
        "brokerName": name, "brokerIP2": "127.0.0.1", "mappedFileSizeCommitLog": 4 << 20,
        "messageDelayLevel": "1s 1s 1s 1s 1s", **settings})
    assert controller.initialize()
    controller.start()
    return controller
