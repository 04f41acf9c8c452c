"""Admin requests: topics, groups, settings, statistics, one method each.

MQClientAPIImpl inherits these methods; as there, each takes an address and a timeout in ms. An error answer is raised
as an MQClientException for some requests and as an MQBrokerException for the others, as in Java.
"""
import zlib
from typing import TYPE_CHECKING, TypeVar

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_remoting_processor import ClientRemoting
from rmqha.common import java, mix_all, util_all
from rmqha.common.data_version import DataVersion
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import log_checksums, request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    CreateAccessConfigRequestHeader,
    CreateTopicRequestHeader,
    DeleteAccessConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetBrokerAclConfigResponseHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ResetOffsetRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rmqha.common.protocol.client_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    ResetOffsetBody,
    UnlockBatchRequestBody,
)
from rmqha.common.protocol.client_headers import QueryConsumeQueueRequestHeader, ResumeCheckHalfMessageRequestHeader
from rmqha.common.protocol.cluster_bodies import ClusterAclVersionInfo, ClusterInfo
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.controller_headers import (
    GetCommitLogChecksumsRequestHeader,
    GetCommitLogChecksumsResponseHeader,
)
from rmqha.common.protocol.namesrv_headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rmqha.common.protocol.table_bodies import (
    BrokerStatsData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from rmqha.common.topics import PlainAccessConfig, SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.header_codec import LanguageCode
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.common.protocol.message_heads import GetMessageHeadsRequestHeader, MessageHeads

T = TypeVar("T")

# Requests whose errors are raised as MQClientException; other errors are MQBrokerException, which names the broker.
CLIENT_EXCEPTION_CODES = frozenset((
    request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, request_code.UPDATE_AND_CREATE_TOPIC,
    request_code.UPDATE_AND_CREATE_ACL_CONFIG, request_code.DELETE_ACL_CONFIG,
    request_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    request_code.WIPE_WRITE_PERM_OF_BROKER, request_code.ADD_WRITE_PERM_OF_BROKER,
    request_code.DELETE_TOPIC_IN_BROKER, request_code.DELETE_TOPIC_IN_NAMESRV,
    request_code.DELETE_SUBSCRIPTIONGROUP, request_code.GET_KV_CONFIG, request_code.PUT_KV_CONFIG,
    request_code.DELETE_KV_CONFIG, request_code.GET_KVLIST_BY_NAMESPACE,
    request_code.INVOKE_BROKER_TO_RESET_OFFSET, request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    request_code.GET_TOPICS_BY_CLUSTER, request_code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    request_code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, request_code.CLEAN_EXPIRED_CONSUMEQUEUE,
    request_code.DELETE_EXPIRED_COMMITLOG, request_code.CLEAN_UNUSED_TOPIC,
    request_code.GET_CONSUMER_RUNNING_INFO, request_code.CONSUME_MESSAGE_DIRECTLY,
    request_code.CLONE_GROUP_OFFSET, request_code.VIEW_BROKER_STATS_DATA, request_code.GET_BROKER_CONSUME_STATS,
    request_code.UPDATE_NAMESRV_CONFIG, request_code.GET_NAMESRV_CONFIG, request_code.QUERY_CONSUME_QUEUE,
))


class MQClientAPIAdmin:
    """The part of MQClientAPIImpl with the admin requests.

    Java: org.apache.rocketmq.client.impl.MQClientAPIImpl (4.9.8)
    """

    client_config: ClientConfig
    remoting_client: ClientRemoting

    # ---- topics and groups on a broker

    def create_subscription_group(self, addr: str, config: SubscriptionGroupConfig, timeout_ms: float) -> None:
        """Create a group, or change it."""
        body = remoting_serializable.encode(config)
        self._ask(addr, request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, timeout_ms, body)

    def create_topic(self, addr: str, default_topic: str, config: TopicConfig, timeout_ms: float) -> None:
        """Create a topic, or change it."""
        header = CreateTopicRequestHeader(
            topic=config.topicName,
            defaultTopic=default_topic,
            readQueueNums=config.readQueueNums,
            writeQueueNums=config.writeQueueNums,
            perm=config.perm,
            topicFilterType=config.topicFilterType.name,
            topicSysFlag=config.topicSysFlag,
            order=config.order,
        )
        self._ask(addr, request_code.UPDATE_AND_CREATE_TOPIC, header, timeout_ms)

    def delete_topic_in_broker(self, addr: str, topic: str, timeout_ms: float) -> None:
        """Delete a topic on one broker."""
        self._ask(addr, request_code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic), timeout_ms)

    def delete_subscription_group(
        self, addr: str, group_name: str, remove_offset: bool, timeout_ms: float
    ) -> None:
        """Delete a group on one broker, with or without its offsets."""
        header = DeleteSubscriptionGroupRequestHeader(groupName=group_name, removeOffset=remove_offset)
        self._ask(addr, request_code.DELETE_SUBSCRIPTIONGROUP, header, timeout_ms)

    def get_all_topic_config(self, addr: str, timeout_ms: float) -> TopicConfigSerializeWrapper:
        """Return all topics of a broker."""
        return self._ask_for(TopicConfigSerializeWrapper, addr, request_code.GET_ALL_TOPIC_CONFIG, None, timeout_ms)

    def get_all_subscription_group(self, addr: str, timeout_ms: float) -> SubscriptionGroupWrapper:
        """Return all groups of a broker."""
        return self._ask_for(
            SubscriptionGroupWrapper, addr, request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None, timeout_ms)

    def get_all_consumer_offset(self, addr: str, timeout_ms: float) -> ConsumerOffsetSerializeWrapper:
        """Return the offsets of all groups on a broker."""
        return self._ask_for(
            ConsumerOffsetSerializeWrapper, addr, request_code.GET_ALL_CONSUMER_OFFSET, None, timeout_ms)

    def get_system_topic_list_from_broker(self, addr: str, timeout_ms: float) -> TopicList:
        """Return the system topics of a broker."""
        return self._ask_for(TopicList, addr, request_code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, timeout_ms)

    # ---- information from a broker

    def get_broker_runtime_info(self, addr: str, timeout_ms: float) -> KVTable:
        """Return counters and sizes by name."""
        return self._ask_for(KVTable, addr, request_code.GET_BROKER_RUNTIME_INFO, None, timeout_ms)

    def get_broker_config(self, addr: str, timeout_ms: float) -> dict[str, str]:
        """Return all settings."""
        response = self._ask(addr, request_code.GET_BROKER_CONFIG, None, timeout_ms)
        return java.loads(bytes(response.body or b"").decode("utf-8"))

    def update_broker_config(self, addr: str, properties: dict[str, str], timeout_ms: float) -> None:
        """Change settings while the broker runs."""
        body = mix_all.properties2string(properties).encode("utf-8")
        if body:
            self._ask(addr, request_code.UPDATE_BROKER_CONFIG, None, timeout_ms, body)

    def get_topic_stats_info(self, addr: str, topic: str, timeout_ms: float) -> TopicStatsTable:
        """Return the bounds of the topic's queues."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        return self._ask_for(TopicStatsTable, addr, request_code.GET_TOPIC_STATS_INFO, header, timeout_ms)

    def get_consume_stats(
        self, addr: str, consumer_group: str, timeout_ms: float, topic: str | None = None
    ) -> ConsumeStats:
        """Return the progress of a group."""
        header = GetConsumeStatsRequestHeader(consumerGroup=consumer_group, topic=topic)
        return self._ask_for(ConsumeStats, addr, request_code.GET_CONSUME_STATS, header, timeout_ms)

    def fetch_consume_stats_in_broker(self, addr: str, is_order: bool, timeout_ms: float) -> ConsumeStatsList:
        """Return the progress of all groups."""
        header = GetConsumeStatsInBrokerHeader(isOrder=is_order)
        return self._ask_for(ConsumeStatsList, addr, request_code.GET_BROKER_CONSUME_STATS, header, timeout_ms)

    def get_producer_connection_list(self, addr: str, producer_group: str, timeout_ms: float) -> ProducerConnection:
        """Return the connected producers of a group."""
        header = GetProducerConnectionListRequestHeader(producerGroup=producer_group)
        return self._ask_for(
            ProducerConnection, addr, request_code.GET_PRODUCER_CONNECTION_LIST, header, timeout_ms)

    def get_all_producer_info(self, addr: str, timeout_ms: float) -> ProducerTableInfo:
        """Return the connected producers of all groups."""
        return self._ask_for(ProducerTableInfo, addr, request_code.GET_ALL_PRODUCER_INFO,
                             GetAllProducerInfoRequestHeader(), timeout_ms)

    def get_consumer_connection_list(self, addr: str, consumer_group: str, timeout_ms: float) -> ConsumerConnection:
        """Return the connected consumers of a group."""
        header = GetConsumerConnectionListRequestHeader(consumerGroup=consumer_group)
        return self._ask_for(
            ConsumerConnection, addr, request_code.GET_CONSUMER_CONNECTION_LIST, header, timeout_ms)

    def query_topic_consume_by_who(self, addr: str, topic: str, timeout_ms: float) -> GroupList:
        """Return the groups that consume a topic."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        return self._ask_for(GroupList, addr, request_code.QUERY_TOPIC_CONSUME_BY_WHO, header, timeout_ms)

    def query_consume_time_span(
        self, addr: str, topic: str, group: str, timeout_ms: float
    ) -> list[QueueTimeSpan]:
        """Return the store times of the first, the last and the consumed message of each queue."""
        header = QueryConsumeTimeSpanRequestHeader(topic=topic, group=group)
        body = self._ask_for(QueryConsumeTimeSpanBody, addr, request_code.QUERY_CONSUME_TIME_SPAN, header, timeout_ms)
        return list(body.consumeTimeSpanSet or ())

    def view_broker_stats_data(
        self, addr: str, stats_name: str, stats_key: str, timeout_ms: float
    ) -> BrokerStatsData:
        """Return one counter of a broker."""
        header = ViewBrokerStatsDataRequestHeader(statsName=stats_name, statsKey=stats_key)
        return self._ask_for(BrokerStatsData, addr, request_code.VIEW_BROKER_STATS_DATA, header, timeout_ms)

    def query_consume_queue(
        self, addr: str, topic: str, queue_id: int, index: int, count: int, consumer_group: str | None,
        timeout_ms: float
    ) -> QueryConsumeQueueResponseBody:
        """Return units of a consume queue."""
        header = QueryConsumeQueueRequestHeader(
            topic=topic, queueId=queue_id, index=index, count=count, consumerGroup=consumer_group)
        return self._ask_for(
            QueryConsumeQueueResponseBody, addr, request_code.QUERY_CONSUME_QUEUE, header, timeout_ms)

    def get_commit_log_checksums(
        self, addr: str, offset: int, block_size: int, count: int, timeout_ms: float
    ) -> log_checksums.LogChecksums | None:
        """Return the CRC32 of `count` blocks of the commit log from `offset`, only of blocks that the log has entirely.

        None if the broker, like the original, does not know the request. ValueError for a malformed answer.
        """
        response = self._ask_for_blocks(addr, offset, block_size, count, timeout_ms, False)
        if response is None:
            return None
        told = response.decode_command_custom_header(GetCommitLogChecksumsResponseHeader)
        return log_checksums.LogChecksums(told.minOffset, told.maxOffset,
                                          log_checksums.decode(response.body or b"", count))

    def get_commit_log_bytes(self, addr: str, offset: int, size: int, timeout_ms: float) -> bytes | None:
        """Return `size` bytes (at most MAX_BYTES) of the commit log at `offset`; b"" if the log does not have them all.

        None if the broker, like the original, does not know the request. ValueError for a malformed answer.
        """
        response = self._ask_for_blocks(addr, offset, size, 1, timeout_ms, True)
        if response is None:
            return None
        crcs, data = log_checksums.decode_with_bytes(response.body or b"", 1, size)
        if any(zlib.crc32(data) != crc for crc in crcs):
            raise ValueError(f"the checksum of the {size} bytes at {offset} differs from the one that the broker sent")
        return data

    def _ask_for_blocks(
        self, addr: str, offset: int, block_size: int, count: int, timeout_ms: float, with_bytes: bool
    ) -> RemotingCommand | None:
        header = GetCommitLogChecksumsRequestHeader(offset, block_size, count, with_bytes)
        try:
            return self._ask(addr, request_code.GET_COMMIT_LOG_CHECKSUMS, header, timeout_ms)
        except MQBrokerException as answer:
            if answer.response_code == response_code.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise

    def get_message_heads(
        self, addr: str, header: "GetMessageHeadsRequestHeader", timeout_ms: float
    ) -> "MessageHeads | None":
        """Return messages of a queue without their bodies.

        None if the broker, like the original, does not know the request. ValueError for a malformed answer.
        """
        # Imported late: only tools that browse use it.
        from rmqha.common.protocol import message_heads

        try:
            response = self._ask(addr, request_code.GET_MESSAGE_HEADS, header, timeout_ms)
        except MQBrokerException as answer:
            if answer.response_code == response_code.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        body = response.body or b""
        return message_heads.MessageHeads(
            response.decode_command_custom_header(message_heads.GetMessageHeadsResponseHeader),
            message_heads.decode(body, header.count), len(body))

    # ---- accounts of a broker

    def create_plain_access_config(self, addr: str, config: PlainAccessConfig, timeout_ms: float) -> None:
        """Create an account, or change it."""
        header = CreateAccessConfigRequestHeader(
            accessKey=config.accessKey,
            secretKey=config.secretKey,
            whiteRemoteAddress=config.whiteRemoteAddress,
            admin=config.admin,
            defaultTopicPerm=config.defaultTopicPerm,
            defaultGroupPerm=config.defaultGroupPerm,
            topicPerms=util_all.join(config.topicPerms, ","),
            groupPerms=util_all.join(config.groupPerms, ","),
        )
        self._ask(addr, request_code.UPDATE_AND_CREATE_ACL_CONFIG, header, timeout_ms)

    def delete_access_config(self, addr: str, access_key: str, timeout_ms: float) -> None:
        """Delete an account."""
        header = DeleteAccessConfigRequestHeader(accessKey=access_key)
        self._ask(addr, request_code.DELETE_ACL_CONFIG, header, timeout_ms)

    def update_global_white_addrs_config(
        self, addr: str, global_white_addrs: str, acl_file_full_path: str | None, timeout_ms: float
    ) -> None:
        """Set the addresses (separated by commas) that don't need an account, in one of the broker's files."""
        header = UpdateGlobalWhiteAddrsConfigRequestHeader(
            globalWhiteAddrs=global_white_addrs, aclFileFullPath=acl_file_full_path)
        self._ask(addr, request_code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header, timeout_ms)

    def get_broker_cluster_acl_info(self, addr: str, timeout_ms: float) -> ClusterAclVersionInfo:
        """Return the versions of the broker's account files, by path."""
        response = self._ask(addr, request_code.GET_BROKER_CLUSTER_ACL_INFO, None, timeout_ms)
        header = response.decode_command_custom_header(GetBrokerAclConfigResponseHeader)
        return ClusterAclVersionInfo(
            brokerName=header.brokerName,
            brokerAddr=header.brokerAddr,
            aclConfigDataVersion=remoting_serializable.from_json(DataVersion, header.version),
            allAclConfigDataVersion=remoting_serializable.from_json(
                dict[str, DataVersion], header.allAclFileVersion or "{}"),
            clusterName=header.clusterName,
        )

    # ---- actions of a broker

    def clean_expired_consume_queue(self, addr: str, timeout_ms: float) -> None:
        """Delete consume queue files without messages."""
        self._ask(addr, request_code.CLEAN_EXPIRED_CONSUMEQUEUE, None, timeout_ms)

    def clean_unused_topic_by_addr(self, addr: str, timeout_ms: float) -> None:
        """Delete the queues of topics that no longer exist."""
        self._ask(addr, request_code.CLEAN_UNUSED_TOPIC, None, timeout_ms)

    def delete_expired_commit_log(self, addr: str, timeout_ms: float) -> None:
        """Delete expired commit log files."""
        self._ask(addr, request_code.DELETE_EXPIRED_COMMITLOG, None, timeout_ms)

    def invoke_broker_to_reset_offset(
        self, addr: str, topic: str, group: str, timestamp: int, is_force: bool, timeout_ms: float, is_c: bool = False
    ) -> dict[MessageQueue, int]:
        """Reset a running group back to the messages stored at `timestamp` (ms; -1: the end); with force, also forward.

        `is_c`: the group's clients are written in C++ and expect the offsets as a list.
        """
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp, isForce=is_force)
        request = RemotingCommand.create_request_command(request_code.INVOKE_BROKER_TO_RESET_OFFSET, header)
        if is_c:
            request.language = LanguageCode.CPP
        response = self._checked(self.remoting_client.invoke_sync(self._admin_addr(addr), request, timeout_ms), addr,
                                 request_code.INVOKE_BROKER_TO_RESET_OFFSET)
        if response.body is None:
            raise MQClientException(response.remark, response.code)
        return remoting_serializable.from_json(ResetOffsetBody, response.body).offsetTable or {}

    def invoke_broker_to_get_consumer_status(
        self, addr: str, topic: str, group: str, client_addr: str | None, timeout_ms: float
    ) -> dict[str, dict[MessageQueue, int]]:
        """Return the offsets in the memory of the group's clients, by client id."""
        header = GetConsumerStatusRequestHeader(topic=topic, group=group, clientAddr=client_addr)
        body = self._ask_for(
            GetConsumerStatusBody, addr, request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, timeout_ms)
        return body.consumerTable or {}

    def get_consumer_running_info(
        self, addr: str, consumer_group: str, client_id: str, jstack: bool, timeout_ms: float
    ) -> ConsumerRunningInfo:
        """Return the current state of one client of a group."""
        header = GetConsumerRunningInfoRequestHeader(
            consumerGroup=consumer_group, clientId=client_id, jstackEnable=jstack)
        return self._ask_for(ConsumerRunningInfo, addr, request_code.GET_CONSUMER_RUNNING_INFO, header, timeout_ms)

    def consume_message_directly(
        self, addr: str, consumer_group: str, client_id: str, msg_id: str, timeout_ms: float
    ) -> ConsumeMessageDirectlyResult:
        """Have one client of a group consume one message now."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumerGroup=consumer_group, clientId=client_id, msgId=msg_id)
        return self._ask_for(
            ConsumeMessageDirectlyResult, addr, request_code.CONSUME_MESSAGE_DIRECTLY, header, timeout_ms)

    def clone_group_offset(
        self, addr: str, src_group: str, dest_group: str, topic: str, is_offline: bool, timeout_ms: float
    ) -> None:
        """Copy one group's offsets of a topic to another group."""
        header = CloneGroupOffsetRequestHeader(
            srcGroup=src_group, destGroup=dest_group, topic=topic, offline=is_offline)
        self._ask(addr, request_code.CLONE_GROUP_OFFSET, header, timeout_ms)

    def resume_check_half_message(self, addr: str, msg_id: str, timeout_ms: float) -> bool:
        """Have the broker check a half message again; return False if it can't."""
        request = RemotingCommand.create_request_command(
            request_code.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(msgId=msg_id))
        return self.remoting_client.invoke_sync(addr, request, timeout_ms).code == response_code.SUCCESS

    def lock_batch_mq(self, addr: str, body: LockBatchRequestBody, timeout_ms: float) -> set[MessageQueue]:
        """Lock queues for one client; return those that it got."""
        answer = self._ask_for(LockBatchResponseBody, addr, request_code.LOCK_BATCH_MQ, None, timeout_ms,
                               remoting_serializable.encode(body))
        return set(answer.lockOKMQSet)

    def unlock_batch_mq(self, addr: str, body: UnlockBatchRequestBody, timeout_ms: float) -> None:
        """Release locks."""
        self._ask(addr, request_code.UNLOCK_BATCH_MQ, None, timeout_ms, remoting_serializable.encode(body))

    # ---- the name server

    def get_broker_cluster_info(self, timeout_ms: float) -> ClusterInfo:
        """Return all clusters and brokers."""
        return self._ask_for(ClusterInfo, None, request_code.GET_BROKER_CLUSTER_INFO, None, timeout_ms)

    def get_topic_list_from_name_server(self, timeout_ms: float) -> TopicList:
        """Return all topics."""
        return self._ask_for(TopicList, None, request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, timeout_ms)

    def get_topics_by_cluster(self, cluster: str, timeout_ms: float) -> TopicList:
        """Return the topics of a cluster."""
        header = GetTopicsByClusterRequestHeader(cluster=cluster)
        return self._ask_for(TopicList, None, request_code.GET_TOPICS_BY_CLUSTER, header, timeout_ms)

    def get_system_topic_list(self, timeout_ms: float) -> TopicList:
        """Return the names of clusters and brokers, which are topics, with the system topics of a broker."""
        topics = self._ask_for(TopicList, None, request_code.GET_SYSTEM_TOPIC_LIST_FROM_NS, None, timeout_ms)
        if topics.topicList and topics.brokerAddr and topics.brokerAddr.strip():
            topics.topicList |= self.get_system_topic_list_from_broker(topics.brokerAddr, timeout_ms).topicList
        return topics

    def delete_topic_in_name_server(
        self, addr: str | None, topic: str, timeout_ms: float, cluster_name: str | None = None
    ) -> None:
        """Delete a topic's route, in one cluster or in all."""
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, clusterName=cluster_name)
        self._ask(addr, request_code.DELETE_TOPIC_IN_NAMESRV, header, timeout_ms)

    def wipe_write_perm_of_broker(self, namesrv_addr: str, broker_name: str, timeout_ms: float) -> int:
        """Remove the write permission of a broker; return the number of changed topics."""
        header = WipeWritePermOfBrokerRequestHeader(brokerName=broker_name)
        response = self._ask(namesrv_addr, request_code.WIPE_WRITE_PERM_OF_BROKER, header, timeout_ms)
        return response.decode_command_custom_header(WipeWritePermOfBrokerResponseHeader).wipeTopicCount

    def add_write_perm_of_broker(self, namesrv_addr: str, broker_name: str, timeout_ms: float) -> int:
        """Restore the write permission of a broker; return the number of changed topics."""
        header = AddWritePermOfBrokerRequestHeader(brokerName=broker_name)
        response = self._ask(namesrv_addr, request_code.ADD_WRITE_PERM_OF_BROKER, header, timeout_ms)
        return response.decode_command_custom_header(AddWritePermOfBrokerResponseHeader).addTopicCount

    def get_kv_config_value(self, namespace: str, key: str, timeout_ms: float) -> str | None:
        """Return a value of the name server's key-value table."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        response = self._ask(None, request_code.GET_KV_CONFIG, header, timeout_ms)
        return response.decode_command_custom_header(GetKVConfigResponseHeader).value

    def put_kv_config_value(self, namespace: str, key: str, value: str, timeout_ms: float) -> None:
        """Set a value on all name servers; if some of them fail, raise the last error."""
        self._ask_all_name_servers(
            request_code.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace=namespace, key=key, value=value), timeout_ms)

    def delete_kv_config_value(self, namespace: str, key: str, timeout_ms: float) -> None:
        """Delete a value on all name servers; if some of them fail, raise the last error."""
        self._ask_all_name_servers(
            request_code.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace=namespace, key=key), timeout_ms)

    def get_kv_list_by_namespace(self, namespace: str, timeout_ms: float) -> KVTable:
        """Return all values of a namespace."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        return self._ask_for(KVTable, None, request_code.GET_KVLIST_BY_NAMESPACE, header, timeout_ms)

    def get_name_server_config(self, addr: str, timeout_ms: float) -> dict[str, str]:
        """Return all settings of one name server."""
        response = self._ask(addr, request_code.GET_NAMESRV_CONFIG, None, timeout_ms)
        return java.loads(bytes(response.body or b"").decode("utf-8"))

    def update_name_server_config(self, addr: str, properties: dict[str, str], timeout_ms: float) -> None:
        """Change settings of one name server."""
        body = mix_all.properties2string(properties).encode("utf-8")
        if body:
            self._ask(addr, request_code.UPDATE_NAMESRV_CONFIG, None, timeout_ms, body)

    # ---- sending the requests

    def _ask(
        self, addr: str | None, code: int, header: CommandCustomHeader | None, timeout_ms: float,
        body: bytes | None = None
    ) -> RemotingCommand:
        request = RemotingCommand.create_request_command(code, header)
        request.body = body
        response = self.remoting_client.invoke_sync(self._admin_addr(addr), request, timeout_ms)
        return self._checked(response, addr, code)

    def _ask_for(
        self, kind: type[T], addr: str | None, code: int, header: CommandCustomHeader | None, timeout_ms: float,
        body: bytes | None = None
    ) -> T:
        response = self._ask(addr, code, header, timeout_ms, body)
        if response.body is None:
            raise _failure(code, response.code, response.remark or "the answer has no body", addr)
        return remoting_serializable.from_json(kind, response.body)

    def _ask_all_name_servers(self, code: int, header: CommandCustomHeader, timeout_ms: float) -> None:
        failure: MQClientException | None = None
        for addr in self.remoting_client.get_name_server_address_list() or ():
            response = self.remoting_client.invoke_sync(
                addr, RemotingCommand.create_request_command(code, header), timeout_ms)
            if response.code != response_code.SUCCESS:
                failure = MQClientException(response.remark, response.code)
        if failure is not None:
            raise failure

    def _admin_addr(self, addr: str | None) -> str | None:
        if addr is None or not self.client_config.vip_channel_enabled:
            return addr
        return mix_all.broker_vip_channel(True, addr)

    @staticmethod
    def _checked(response: RemotingCommand, addr: str | None, request: int | None = None) -> RemotingCommand:
        if response.code != response_code.SUCCESS:
            raise _failure(request, response.code, response.remark, addr)
        return response


def _failure(
    request: int | None, code: int, remark: str | None, addr: str | None
) -> MQClientException | MQBrokerException:
    if request in CLIENT_EXCEPTION_CODES:
        return MQClientException(remark, code)
    return MQBrokerException(code, remark, addr)
