"""Headers of access control."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import CommandCustomHeader, not_null


@dataclass
class CreateAccessConfigRequestHeader(CommandCustomHeader):
    """An account to be made or changed (UPDATE_AND_CREATE_ACL_CONFIG). Permission lists are separated by commas.

    Java: org.apache.rocketmq.common.protocol.header.CreateAccessConfigRequestHeader (4.9.8)
    """

    accessKey: str | None = not_null(lax=True)
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool = False
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: str | None = None
    groupPerms: str | None = None


@dataclass
class DeleteAccessConfigRequestHeader(CommandCustomHeader):
    """An account to be deleted (DELETE_ACL_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.DeleteAccessConfigRequestHeader (4.9.8)
    """

    accessKey: str | None = not_null(lax=True)


@dataclass
class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandCustomHeader):
    """New global white addresses, separated by commas (UPDATE_GLOBAL_WHITE_ADDRS_CONFIG).

    Java: org.apache.rocketmq.common.protocol.header.UpdateGlobalWhiteAddrsConfigRequestHeader (4.9.8)
    """

    globalWhiteAddrs: str | None = not_null(lax=True)
    aclFileFullPath: str | None = not_null(lax=True)  # the default file without


@dataclass
class GetBrokerAclConfigResponseHeader(CommandCustomHeader):
    """The versions of a broker's account files (GET_BROKER_CLUSTER_ACL_INFO).

    Java: org.apache.rocketmq.common.protocol.header.GetBrokerAclConfigResponseHeader (4.9.8)
    """

    version: str = not_null()
    allAclFileVersion: str | None = None
    brokerName: str = not_null()
    brokerAddr: str = not_null()
    clusterName: str = not_null()
