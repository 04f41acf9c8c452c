"""A name server, a master and its slave within the test process, for tools that query running servers."""
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.rmqha_command import rmqha
from tests.broker.support import BrokerHarness, running_broker
from tests.store.support import wait_dispatched
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until


@contextmanager
def broker_at(folder: Path, namesrv: str | None, **config: object):
    """Return a broker on adjacent ports, as the command mqbroker assigns them."""
    port = ports.free_broker_port()
    with running_broker(folder, namesrv, listenPort=port, haListenPort=port + 1, **config) as broker:
        yield broker


@dataclass
class Cluster:
    """A master with a slave that is in sync."""

    namesrv: str
    master: BrokerHarness
    slave: BrokerHarness

    @property
    def ha_address(self) -> str:
        """The address at which the master serves its slaves."""
        return f"127.0.0.1:{self.master.store.ha_service.ha_listen_port}"

    def log(self) -> bytes:
        """Return all bytes of the master's log."""
        store, parts, offset = self.master.store, [], 0
        while offset < store.get_max_phy_offset():
            with store.get_commit_log_data(offset) as result:
                parts.append(bytes(result.buffer[:result.size]))
            offset += len(parts[-1])
        return b"".join(parts)

    def send(self, count: int, body: bytes = b"b" * 1000) -> None:
        """Send messages, and wait until the slave has acknowledged them and both brokers have dispatched them."""
        for _ in range(count):
            assert self.master.send("T", body).code in (0, 12)
        store = self.master.store
        wait_until(lambda: [one.slave_ack_offset for one in store.ha_service.connection_list] ==
                   [store.get_max_phy_offset()], 60_000, "the slave has all, and nobody else is connected")
        for broker in (self.master, self.slave):
            wait_dispatched(broker.store)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """A running cluster, shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        master = stack.enter_context(broker_at(folder / "master", namesrv, brokerClusterName="C"))
        ha_address = f"127.0.0.1:{master.store.ha_service.ha_listen_port}"
        slave = stack.enter_context(broker_at(
            folder / "slave", namesrv, brokerClusterName="C", brokerRole=BrokerRole.SLAVE, brokerId=1,
            haMasterAddress=ha_address))
        made = Cluster(namesrv, master, slave)
        made.send(50)
        yield made


@pytest.fixture
def run():
    """run(*arguments) -> the result of the command rmqha."""
    def invoke(*arguments: object):
        return CliRunner().invoke(rmqha, [str(argument) for argument in arguments], env={"NAMESRV_ADDR": ""})
    return invoke
