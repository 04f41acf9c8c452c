"""Who produces as a group."""
from dataclasses import dataclass, field

from rmqha.common.protocol.body.connection import Connection


@dataclass(slots=True)
class ProducerConnection:
    """The answer of GET_PRODUCER_CONNECTION_LIST.

    Java: org.apache.rocketmq.common.protocol.body.ProducerConnection (4.9.8)
    """

    connectionSet: set[Connection] = field(default_factory=set)
