"""Headers of requests to a name server: its key-value store, broker registration, routes and topics."""
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol.command_custom_header import INTEGER, LONG, CommandCustomHeader, not_null, nullable


@dataclass
class PutKVConfigRequestHeader(CommandCustomHeader):
    """A request to set a value (PUT_KV_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.PutKVConfigRequestHeader (4.9.8)
    """

    namespace: str = not_null()
    key: str = not_null()
    value: str = not_null()


@dataclass
class GetKVConfigRequestHeader(CommandCustomHeader):
    """A query for a value (GET_KV_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.GetKVConfigRequestHeader (4.9.8)
    """

    namespace: str = not_null(lax=True)
    key: str = not_null(lax=True)


@dataclass
class GetKVConfigResponseHeader(CommandCustomHeader):
    """The value.

    Java: org.apache.rocketmq.common.protocol.header.namesrv.GetKVConfigResponseHeader (4.9.8)
    """

    value: str | None = None


@dataclass
class DeleteKVConfigRequestHeader(CommandCustomHeader):
    """A request to delete a value (DELETE_KV_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.DeleteKVConfigRequestHeader (4.9.8)
    """

    namespace: str = not_null(lax=True)
    key: str = not_null(lax=True)


@dataclass
class GetKVListByNamespaceRequestHeader(CommandCustomHeader):
    """A query for all values of a namespace (GET_KVLIST_BY_NAMESPACE).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.GetKVListByNamespaceRequestHeader (4.9.8)
    """

    namespace: str = not_null(lax=True)


@dataclass
class RegisterBrokerRequestHeader(CommandCustomHeader):
    """The registration of a broker and its topics (REGISTER_BROKER).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.RegisterBrokerRequestHeader (4.9.8)
    """

    brokerName: str = not_null()
    brokerAddr: str = not_null()
    clusterName: str = not_null()
    haServerAddr: str = not_null(lax=True)
    brokerId: int = not_null(LONG)
    compressed: bool = False
    bodyCrc32: int | None = nullable(INTEGER, default=0, lax=False)


@dataclass
class RegisterBrokerResponseHeader(CommandCustomHeader):
    """The master, for a slave. The body is the table of order topics.

    Java: org.apache.rocketmq.common.protocol.header.namesrv.RegisterBrokerResponseHeader (4.9.8)
    """

    haServerAddr: str | None = None
    masterAddr: str | None = None


@dataclass
class UnRegisterBrokerRequestHeader(CommandCustomHeader):
    """A broker unregisters (UNREGISTER_BROKER).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.UnRegisterBrokerRequestHeader (4.9.8)
    """

    brokerName: str = not_null(lax=True)
    brokerAddr: str = not_null(lax=True)
    clusterName: str = not_null(lax=True)
    brokerId: int = not_null(LONG)


@dataclass
class QueryDataVersionRequestHeader(CommandCustomHeader):
    """A broker's query whether its topics have changed since a DataVersion, which is the body (QUERY_DATA_VERSION).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.QueryDataVersionRequestHeader (4.9.8)
    """

    brokerName: str = not_null(lax=True)
    brokerAddr: str = not_null(lax=True)
    clusterName: str = not_null(lax=True)
    brokerId: int = not_null(LONG, lax=True)


@dataclass
class QueryDataVersionResponseHeader(CommandCustomHeader):
    """The answer whether the broker has to register again.

    Java: org.apache.rocketmq.common.protocol.header.namesrv.QueryDataVersionResponseHeader (4.9.8)
    """

    changed: bool = not_null()


@dataclass
class WipeWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """A request to remove the write permission of a broker's topics (WIPE_WRITE_PERM_OF_BROKER).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.WipeWritePermOfBrokerRequestHeader (4.9.8)
    """

    brokerName: str = not_null(lax=True)


@dataclass
class WipeWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """The number of changed topics.

    Java: org.apache.rocketmq.common.protocol.header.namesrv.WipeWritePermOfBrokerResponseHeader (4.9.8)
    """

    wipeTopicCount: int = not_null(INTEGER)


@dataclass
class AddWritePermOfBrokerRequestHeader(CommandCustomHeader):
    """A request to restore the write permission of a broker's topics (ADD_WRITE_PERM_OF_BROKER).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.AddWritePermOfBrokerRequestHeader (4.9.8)
    """

    brokerName: str = not_null(lax=True)


@dataclass
class AddWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """The number of changed topics.

    Java: org.apache.rocketmq.common.protocol.header.namesrv.AddWritePermOfBrokerResponseHeader (4.9.8)
    """

    addTopicCount: int = not_null(INTEGER)


@dataclass
class GetRouteInfoRequestHeader(CommandCustomHeader):
    """A query for a topic's route (GET_ROUTEINFO_BY_TOPIC).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.GetRouteInfoRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)
    acceptStandardJsonOnly: bool | None = None


@dataclass
class DeleteTopicFromNamesrvRequestHeader(CommandCustomHeader):
    """A request to delete a topic at the name server (DELETE_TOPIC_IN_NAMESRV).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.DeleteTopicFromNamesrvRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)
    clusterName: str | None = None


@dataclass
class RegisterOrderTopicRequestHeader(CommandCustomHeader):
    """The queues of an order topic. Unused.

    Java: org.apache.rocketmq.common.protocol.header.namesrv.RegisterOrderTopicRequestHeader (4.9.8)
    """

    topic: str = not_null()
    orderTopicString: str = not_null()
