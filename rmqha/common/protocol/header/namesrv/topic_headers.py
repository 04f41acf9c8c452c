"""Headers of routes and topics at the name server."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import CommandCustomHeader, not_null


@dataclass
class GetRouteInfoRequestHeader(CommandCustomHeader):
    """A topic's route (GET_ROUTEINFO_BY_TOPIC).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.GetRouteInfoRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)
    acceptStandardJsonOnly: bool | None = None


@dataclass
class DeleteTopicFromNamesrvRequestHeader(CommandCustomHeader):
    """Forget a topic (DELETE_TOPIC_IN_NAMESRV).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.DeleteTopicFromNamesrvRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)
    clusterName: str | None = None


@dataclass
class RegisterOrderTopicRequestHeader(CommandCustomHeader):
    """An order topic's queues. Unused.

    Java: org.apache.rocketmq.common.protocol.header.namesrv.RegisterOrderTopicRequestHeader (4.9.8)
    """

    topic: str = not_null()
    orderTopicString: str = not_null()
