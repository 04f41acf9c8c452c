"""RocketMQ for tests: a name server and brokers in the test's own process, or in a separate one.

    with EmbeddedRocketMQ() as mq:
        producer = Producer("group", mq.namesrv_addr)

Each name is loaded on first use, because pytest imports this package in every run once it is installed.
"""
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.testing import factories
    from rmqha.testing.async_clients import AsyncClients
    from rmqha.testing.cluster_parts import EmbeddedError, NotSupportedError
    from rmqha.testing.embedded import EmbeddedRocketMQ
    from rmqha.testing.faults import Fault
    from rmqha.testing.isolated_topic import IsolatedTopic
    from rmqha.testing.node import EmbeddedBroker
    from rmqha.testing.process import RemoteRocketMQ, RocketMQProcess
    from rmqha.testing.transactions import ScriptedListener, Transactions

__all__ = ["AsyncClients", "EmbeddedBroker", "EmbeddedError", "EmbeddedRocketMQ", "Fault", "IsolatedTopic",
           "NotSupportedError", "RemoteRocketMQ", "RocketMQProcess", "ScriptedListener", "Transactions", "factories"]

_MODULES = {"AsyncClients": "async_clients", "EmbeddedBroker": "node", "EmbeddedError": "cluster_parts",
            "EmbeddedRocketMQ": "embedded", "Fault": "faults", "IsolatedTopic": "isolated_topic",
            "NotSupportedError": "cluster_parts", "RemoteRocketMQ": "process", "RocketMQProcess": "process",
            "ScriptedListener": "transactions", "Transactions": "transactions"}


def __getattr__(name: str) -> object:
    if name == "factories":  # needs pytest
        return import_module(f"{__name__}.factories")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
