"""Messages found by key."""
from dataclasses import dataclass, field

from rmqha.common.message.message import MessageExt


@dataclass(slots=True)
class QueryResult:
    """The messages, and up to when (ms) the brokers' indexes reach.

    Java: org.apache.rocketmq.client.QueryResult (4.9.8)
    """

    index_last_update_timestamp: int
    message_list: list[MessageExt] = field(default_factory=list)
