"""Headers of the filter server, which 4.9 no longer has."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import INTEGER, LONG, CommandCustomHeader, not_null


@dataclass
class RegisterFilterServerRequestHeader(CommandCustomHeader):
    """A filter server registers (REGISTER_FILTER_SERVER). Unhandled.

    Java: org.apache.rocketmq.common.protocol.header.filtersrv.RegisterFilterServerRequestHeader (4.9.8)
    """

    filterServerAddr: str = not_null()


@dataclass
class RegisterFilterServerResponseHeader(CommandCustomHeader):
    """Its broker.

    Java: org.apache.rocketmq.common.protocol.header.filtersrv.RegisterFilterServerResponseHeader (4.9.8)
    """

    brokerName: str = not_null()
    brokerId: int = not_null(LONG, default=0)


@dataclass
class RegisterMessageFilterClassRequestHeader(CommandCustomHeader):
    """A filter class (REGISTER_MESSAGE_FILTER_CLASS). Unhandled.

    Java: org.apache.rocketmq.common.protocol.header.filtersrv.RegisterMessageFilterClassRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    topic: str = not_null()
    className: str = not_null()
    classCRC: int = not_null(INTEGER)
