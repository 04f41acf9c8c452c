"""A name server and two masters in this process, shared by the whole folder."""
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from rmqha.broker.broker_controller import BrokerController
from tests.support.in_process import running_name_server, start_broker

_NUMBERS = count(1)


@dataclass
class Servers:
    """The address of the name server, and the brokers by name."""

    namesrv: str
    brokers: dict[str, BrokerController]

    @staticmethod
    def unique(prefix: str) -> str:
        """Return a topic or group name that no other test uses."""
        return f"{prefix}{next(_NUMBERS)}"


@pytest.fixture(scope="package")
def servers(tmp_path_factory) -> Iterator[Servers]:
    """Run the servers; topics and groups are created on first use."""
    folder = tmp_path_factory.mktemp("client")
    brokers: dict[str, BrokerController] = {}
    with running_name_server(folder) as address:
        try:
            for name in ("broker-a", "broker-b"):
                brokers[name] = start_broker(name, address, folder / name)
            yield Servers(address, brokers)
        finally:
            for broker in brokers.values():
                broker.shutdown()
