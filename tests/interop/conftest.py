"""Brokers of each kind that the tests of clients share for the whole run, because starting a JVM takes seconds."""
from collections.abc import Callable, Iterator

import pytest

from tests.support.nodes import BrokerNode, NamesrvNode


@pytest.fixture(scope="session")
def client_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], BrokerNode]]:
    """Yield client_broker(kind) -> a running broker with its own rmqha name server, a trace topic and short delays.

    Its pool for queries has one thread and one place in its queue.
    """
    nodes: list = []
    started: dict[str, BrokerNode] = {}

    def running(kind: str) -> BrokerNode:
        if kind not in started:
            folder = tmp_path_factory.mktemp(f"client-{kind}")
            namesrv = NamesrvNode("rmqha", folder / "namesrv")
            broker = BrokerNode(kind, folder / "broker", namesrv.address, shared_jvm=True, traceTopicEnable="true",
                                messageDelayLevel="1s 1s 1s 1s 1s", mappedFileSizeCommitLog=8 << 20,
                                queryMessageThreadPoolNums=1, queryThreadPoolQueueCapacity=1)
            nodes.extend([namesrv, broker])
            namesrv.start()
            broker.start()
            started[kind] = broker
        return started[kind]
    yield running
    for node in reversed(nodes):
        node.kill()
