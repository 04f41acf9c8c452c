"""A name server and brokers in this process, at free ports, and a dispatch that waits for more messages."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqha.broker.broker_controller import BrokerController
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store import reput_message_service
from rmqha.store.default_message_store import DefaultMessageStore
from tests.broker.support import new_controller
from tests.support.wait import wait_until

# A dispatch that waits for more messages, however fast the machine is.


@contextmanager
def gathering(store: DefaultMessageStore) -> Iterator[None]:
    """Hold back the dispatch of messages that are appended in the block and that nothing waits for, until something
    needs them or the block ends."""
    service = store.reput_message_service
    wait = service.wait_for_running
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "wait_for_running", lambda ms: wait(600_000 if service._gathering else ms))
        patch.setattr(reput_message_service, "_IDLE_MS", 10)
        service.run_between_records(lambda: None)  # ends a shorter wait that had begun
        service._woken_ns = 1 << 62  # it expects more messages
        wait_until(lambda: service._gathering, 60_000, "gathering")
        try:
            yield
        finally:
            patch.undo()
            service.wakeup()


# A name server and brokers in this process, at free ports, with small stores, for tests of clients.


@contextmanager
def running_name_server(folder: Path, port: int = 0) -> Iterator[str]:
    """Yield a name server's address; it runs until the block ends."""
    config = NamesrvConfig(kvConfigPath=str(folder / "kv.json"), configStorePath=str(folder / "ns.properties"))
    name_server = NamesrvController(config, ServerConfig(listenPort=port))
    assert name_server.initialize()
    name_server.start()
    try:
        yield f"127.0.0.1:{name_server.local_listen_port}"
    finally:
        name_server.shutdown()


def start_broker(name: str, namesrv: str, folder: Path, **settings: object) -> BrokerController:
    """Start a broker with its files in `folder` and delay levels of one second each. The caller has to shut it down."""
    controller = new_controller(folder, namesrv, **{
        "brokerName": name, "brokerIP2": "127.0.0.1", "mappedFileSizeCommitLog": 4 << 20,
        "messageDelayLevel": "1s 1s 1s 1s 1s", **settings})
    assert controller.initialize()
    controller.start()
    return controller
