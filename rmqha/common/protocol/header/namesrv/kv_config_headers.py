"""Headers of the name server's key-value store."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import CommandCustomHeader, not_null


@dataclass
class PutKVConfigRequestHeader(CommandCustomHeader):
    """Set a value (PUT_KV_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.PutKVConfigRequestHeader (4.9.8)
    """

    namespace: str = not_null()
    key: str = not_null()
    value: str = not_null()


@dataclass
class GetKVConfigRequestHeader(CommandCustomHeader):
    """Get a value (GET_KV_CONFIG).

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
    """Delete a value (DELETE_KV_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.DeleteKVConfigRequestHeader (4.9.8)
    """

    namespace: str = not_null(lax=True)
    key: str = not_null(lax=True)


@dataclass
class GetKVListByNamespaceRequestHeader(CommandCustomHeader):
    """All values of a namespace (GET_KVLIST_BY_NAMESPACE).

    Java: org.apache.rocketmq.common.protocol.header.namesrv.GetKVListByNamespaceRequestHeader (4.9.8)
    """

    namespace: str = not_null(lax=True)
