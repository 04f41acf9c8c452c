"""RocketMQ in somebody's tests: a name server and brokers in the test's own process, or in one beside it.

    with EmbeddedRocketMQ() as mq:
        producer = DefaultMQProducer("group", mq.namesrv_addr)

The names are loaded when they are first used: pytest imports this package in every run of who has it installed.
"""
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.testing import factories
    from rmqha.testing.embedded import EmbeddedRocketMQ
    from rmqha.testing.faults import Fault
    from rmqha.testing.node import EmbeddedBroker, EmbeddedError
    from rmqha.testing.process import RemoteRocketMQ, RocketMQProcess

__all__ = ["EmbeddedBroker", "EmbeddedError", "EmbeddedRocketMQ", "Fault", "RemoteRocketMQ", "RocketMQProcess",
           "factories"]

_MODULES = {"EmbeddedBroker": "node", "EmbeddedError": "node", "EmbeddedRocketMQ": "embedded", "Fault": "faults",
            "RemoteRocketMQ": "process", "RocketMQProcess": "process"}


def __getattr__(name: str) -> object:
    if name == "factories":  # which need pytest
        return import_module(f"{__name__}.factories")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
