"""The admin client: calls about clusters, topics, groups, messages and clients.

Each call sends one or more requests to name servers, brokers or controllers.
"""
import logging
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException, MQClientException
from rmqha.client.impl.mq_admin_impl import MQAdminImpl
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.impl.mq_client_instance import MQClientInstance
from rmqha.client.impl.mq_client_manager import make_client_instance
from rmqha.common import filesystem, mix_all, topics
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageClientExt, MessageExt, MessageQueue
from rmqha.common.protocol import cluster_bodies, request_code, response_code
from rmqha.common.protocol.admin_headers import (
    HandoverMasterRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqha.common.protocol.client_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    QueueTimeSpan,
)
from rmqha.common.protocol.client_headers import ViewMessageRequestHeader
from rmqha.common.protocol.cluster_bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ClusterInfo,
    DepartedBroker,
    EpochEntryCache,
    HARuntimeInfo,
)
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.controller_headers import ElectMasterResponseHeader, GetMetaDataResponseHeader
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.common.protocol.namespace_util import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.common.protocol.table_bodies import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    KVTable,
    OffsetWrapper,
    RollbackStats,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from rmqha.common.protocol.topic_route_data import BrokerData, TopicRouteData
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.remoting.tls_system_config import TlsSystemConfig

if TYPE_CHECKING:
    from rmqha.common.protocol.message_heads import GetMessageHeadsRequestHeader, MessageHeads

log = logging.getLogger("RocketmqClient")

TIMEOUT_MILLIS = 5_000
SYSTEM_GROUPS = frozenset((
    mix_all.DEFAULT_CONSUMER_GROUP, mix_all.DEFAULT_PRODUCER_GROUP, mix_all.TOOLS_CONSUMER_GROUP,
    mix_all.FILTERSRV_CONSUMER_GROUP, mix_all.MONITOR_CONSUMER_GROUP, mix_all.CLIENT_INNER_PRODUCER_GROUP,
    mix_all.SELF_TEST_PRODUCER_GROUP, mix_all.SELF_TEST_CONSUMER_GROUP, mix_all.ONS_HTTP_PROXY_GROUP,
    mix_all.CID_ONSAPI_PERMISSION_GROUP, mix_all.CID_ONSAPI_OWNER_GROUP, mix_all.CID_ONSAPI_PULL_GROUP,
    mix_all.CID_SYS_RMQ_TRANS,
))


class DefaultMQAdminExt:
    """Admin calls over one client, which the first call starts and `shutdown` stops.

    Raises MQClientException, MQBrokerException and RemotingException as the requests do.

        admin = DefaultMQAdminExt("127.0.0.1:9876")
        try:
            admin.examine_topic_stats("orders")
        finally:
            admin.shutdown()

    With `tls` it connects with these TLS settings, otherwise as the system properties say.
    With `requests_only` there are only the connections that requests need: no route updates, no heartbeats. Then
    connecting may take up to the time-out, too, and `mq_admin` has a client of its own.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExt (4.9.8)
    """

    def __init__(self, namesrv_addr: str | None = None, rpc_hook: RPCHook | None = None,
                 timeout_millis: float = TIMEOUT_MILLIS, requests_only: bool = False,
                 tls: TlsSystemConfig | None = None) -> None:
        self.rpc_hook = rpc_hook
        self.timeout_millis = timeout_millis
        self._requests_only = requests_only
        self.client_config = ClientConfig()
        self.client_config.client_callback_executor_threads = 1
        if namesrv_addr is not None:
            self.client_config.namesrv_addr = namesrv_addr
        if tls is not None:
            self.client_config.use_tls, self.client_config.tls = True, tls
        self._instance: MQClientInstance | None = None
        # the client's, or a separate one with requests_only
        self._api: MQClientAPIImpl | None = None

    @property
    def namesrv_addr(self) -> str | None:
        """The name servers, separated by semicolons; None when none was given."""
        return self.client_config.namesrv_addr

    @property
    def instance(self) -> MQClientInstance:
        """The underlying client, started."""
        if self._instance is None:
            self.client_config.change_instance_name_to_pid()
            self._instance = make_client_instance(
                self.client_config, 0, self.client_config.build_mq_client_id(), self.rpc_hook)
            self._instance.start()
        return self._instance

    @property
    def api(self) -> MQClientAPIImpl:
        """The API for single requests, started."""
        if self._api is None:
            self.start()
        assert self._api is not None  # `start` has made it
        return self._api

    def start(self) -> None:
        """Start the client; only needed before several threads use it."""
        if self._api is None:
            self._api = self._started_api() if self._requests_only else self.instance.mq_client_api_impl

    def _started_api(self) -> MQClientAPIImpl:
        config, namesrv_addr = self.client_config, self.client_config.get_namesrv_addr()
        api = MQClientAPIImpl(
            RemotingClientConfig(clientCallbackExecutorThreads=config.client_callback_executor_threads,
                                 connectTimeoutMillis=int(self.timeout_millis), useTLS=config.use_tls),
            config, self.rpc_hook)
        if namesrv_addr:
            api.update_name_server_address_list(namesrv_addr)
        api.start()
        return api

    @property
    def mq_admin(self) -> MQAdminImpl:
        """Calls about queues and messages: search_offset, max_offset, query_message and the like."""
        return self.instance.mq_admin_impl

    def shutdown(self) -> None:
        """Close the connections, if there are any."""
        api, self._api = self._api, None
        if api is not None and self._requests_only:
            api.shutdown()
        if self._instance is not None:
            self._instance.shutdown()
            self._instance = None

    # ---- settings, topics and groups of a broker

    def update_broker_config(self, broker_addr: str, properties: dict[str, str]) -> None:
        """Change settings while the broker runs."""
        self.api.update_broker_config(broker_addr, properties, self.timeout_millis)

    def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """Return all settings of a broker."""
        return self.api.get_broker_config(broker_addr, self.timeout_millis)

    def create_and_update_topic_config(self, addr: str, config: TopicConfig) -> None:
        """Create a topic on a broker, or change it."""
        self.api.create_topic(addr, topics.AUTO_CREATE_TOPIC_KEY_TOPIC, config, self.timeout_millis)

    def create_and_update_subscription_group_config(self, addr: str, config: SubscriptionGroupConfig) -> None:
        """Create a group on a broker, or change it."""
        self.api.create_subscription_group(addr, config, self.timeout_millis)

    def examine_subscription_group_config(self, addr: str, group: str) -> SubscriptionGroupConfig | None:
        """Return a group's settings on a broker."""
        return self.api.get_all_subscription_group(addr, self.timeout_millis).subscriptionGroupTable.get(group)

    # ---- reading from brokers and name servers

    def examine_topic_stats(self, topic: str) -> TopicStatsTable:
        """Return the bounds of a topic's queues on all brokers; raise MQClientException when there are no queues."""
        result = TopicStatsTable()
        for _, addr in self._brokers_of(topic):
            result.offsetTable.update(self.api.get_topic_stats_info(addr, topic, self.timeout_millis).offsetTable)
        if not result.offsetTable:
            raise MQClientException("Not found the topic stats info")
        return result

    def fetch_all_topic_list(self) -> TopicList:
        """Return all topics."""
        return self.api.get_topic_list_from_name_server(self.timeout_millis)

    def fetch_broker_runtime_stats(self, broker_addr: str) -> KVTable:
        """Return a broker's runtime table: counters and sizes by name."""
        return self.api.get_broker_runtime_info(broker_addr, self.timeout_millis)

    def examine_consume_stats(self, consumer_group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's progress on all brokers; raise MQClientException (CONSUMER_NOT_ONLINE) when it has none."""
        result = ConsumeStats()
        for _, addr in self._brokers_of(mix_all.get_retry_topic(consumer_group)):
            stats = self.api.get_consume_stats(addr, consumer_group, self.timeout_millis * 3, topic)
            result.offsetTable.update(stats.offsetTable)
            result.consumeTps += stats.consumeTps
        if not result.offsetTable:
            raise MQClientException(
                "Not found the consumer group consume stats, because return offset table is empty, maybe the consumer "
                "not consume any message", response_code.CONSUMER_NOT_ONLINE)
        return result

    def examine_broker_cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers."""
        return self.api.get_broker_cluster_info(self.timeout_millis)

    def examine_topic_route_info(self, topic: str) -> TopicRouteData:
        """Return a topic's route; raise MQClientException (TOPIC_NOT_EXIST) when there is none."""
        return self.api.get_topic_route_info_from_name_server(topic, self.timeout_millis)

    def get_name_server_address_list(self) -> list[str]:
        """Return the addresses of the name servers."""
        return self.api.get_name_server_address_list()

    def wipe_write_perm_of_broker(self, namesrv_addr: str, broker_name: str) -> int:
        """Remove the write permission from a broker's topics; return how many topics changed."""
        return self.api.wipe_write_perm_of_broker(namesrv_addr, broker_name, self.timeout_millis)

    def add_write_perm_of_broker(self, namesrv_addr: str, broker_name: str) -> int:
        """Give a broker's topics their write permission back; return how many topics changed."""
        return self.api.add_write_perm_of_broker(namesrv_addr, broker_name, self.timeout_millis)

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        """Return a value of the name server's table."""
        return self.api.get_kv_config_value(namespace, key, self.timeout_millis)

    def get_kv_list_by_namespace(self, namespace: str) -> KVTable:
        """Return all values of a namespace."""
        return self.api.get_kv_list_by_namespace(namespace, self.timeout_millis)

    # ---- deleting

    def delete_topic_in_broker(self, addrs: Iterable[str], topic: str) -> None:
        """Delete a topic on brokers."""
        for addr in addrs:
            self.api.delete_topic_in_broker(addr, topic, self.timeout_millis)

    def delete_topic_in_name_server(self, addrs: Iterable[str] | None, topic: str, cluster_name: str | None) -> None:
        """Delete a topic's route on name servers (None: all)."""
        for addr in self.get_name_server_address_list() if addrs is None else addrs:
            self.api.delete_topic_in_name_server(addr, topic, self.timeout_millis, cluster_name)

    def delete_subscription_group(self, addr: str, group_name: str, remove_offset: bool = False) -> None:
        """Delete a group on a broker, with or without its offsets."""
        self.api.delete_subscription_group(addr, group_name, remove_offset, self.timeout_millis)

    def create_and_update_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value on all name servers."""
        self.api.put_kv_config_value(namespace, key, value, self.timeout_millis)

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Delete a value on all name servers."""
        self.api.delete_kv_config_value(namespace, key, self.timeout_millis)

    # ---- offsets

    def reset_offset_by_timestamp_old(
        self, consumer_group: str, topic: str, timestamp: int, force: bool
    ) -> list[RollbackStats]:
        """Set the offsets of a group that is not running to the messages stored at `timestamp` (ms; -1: the end).

        Without `force`, offsets only move back. A group that has consumed nothing gets offsets for all queues.
        """
        route = self.examine_topic_route_info(topic)
        read_queue_nums = {data.brokerName: data.readQueueNums for data in route.queueDatas}
        result: list[RollbackStats] = []
        for broker in route.brokerDatas:
            addr = broker.select_broker_addr()
            if addr is None:
                continue
            stats = self.api.get_consume_stats(addr, consumer_group, self.timeout_millis)
            places = {queue: place for queue, place in stats.offsetTable.items() if queue.topic == topic}
            if not places:
                bounds = self.api.get_topic_stats_info(addr, topic, self.timeout_millis).offsetTable
                queues = [MessageQueue(topic, broker.brokerName, queue_id)
                          for queue_id in range(read_queue_nums[broker.brokerName])]
                places = {queue: OffsetWrapper(bounds[queue].maxOffset, bounds[queue].minOffset) for queue in queues}
            result += [self._reset_offset_consume_offset(addr, consumer_group, queue, place, timestamp, force)
                       for queue, place in places.items()]
        return result

    def _reset_offset_consume_offset(
        self, broker_addr: str, consume_group: str, queue: MessageQueue, place: OffsetWrapper, timestamp: int,
        force: bool
    ) -> RollbackStats:
        if timestamp == -1:
            found = self.api.get_max_offset(broker_addr, queue, self.timeout_millis)
        else:
            found = self.api.search_offset(broker_addr, queue, timestamp, self.timeout_millis)
        stats = RollbackStats(queue.brokerName, queue.queueId, place.brokerOffset, place.consumerOffset, found,
                              place.consumerOffset)
        if force or found <= place.consumerOffset:
            stats.rollbackOffset = found
            self.update_consume_offset(broker_addr, consume_group, queue, found)
        return stats

    def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp: int, is_force: bool, is_c: bool = False
    ) -> dict[MessageQueue, int]:
        """Move a running group to the messages stored at `timestamp` (ms; -1: the end); return the offsets by queue.

        Raise MQClientException with CONSUMER_NOT_ONLINE when the group is not running. `is_c`: its clients are written
        in C++.
        """
        result: dict[MessageQueue, int] = {}
        for _, addr in self._brokers_of(topic):
            result.update(self.api.invoke_broker_to_reset_offset(
                addr, topic, group, timestamp, is_force, self.timeout_millis, is_c))
        return result

    def get_consume_status(self, topic: str, group: str, client_addr: str) -> dict[str, dict[MessageQueue, int]]:
        """Return the offsets that a group's clients hold, by client id; asked through the topic's first broker."""
        for _, addr in self._brokers_of(topic):
            return self.api.invoke_broker_to_get_consumer_status(addr, topic, group, client_addr, self.timeout_millis)
        return {}

    def update_consume_offset(self, broker_addr: str, consume_group: str, mq: MessageQueue, offset: int) -> None:
        """Store a group's offset in a queue."""
        header = UpdateConsumerOffsetRequestHeader(
            consumerGroup=consume_group, topic=mq.topic, queueId=mq.queueId, commitOffset=offset, bname=mq.brokerName)
        self.api.update_consumer_offset(broker_addr, header, self.timeout_millis)

    def clone_group_offset(self, src_group: str, dest_group: str, topic: str, is_offline: bool) -> None:
        """Give one group another group's offsets of a topic."""
        for _, addr in self._brokers_of(mix_all.get_retry_topic(src_group)):
            self.api.clone_group_offset(addr, src_group, dest_group, topic, is_offline, self.timeout_millis * 3)

    # ---- more calls

    def create_or_update_order_conf(self, key: str, value: str, is_cluster: bool) -> None:
        """Set the queues of an ordered topic: one broker's (`name:count`, the others are kept) or all brokers'."""
        if is_cluster:
            self.create_and_update_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, key, value)
            return
        try:
            old = self.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, key) or ""
        except (MQClientException, RemotingException) as error:
            # Differs: an error while the old configuration of an ordered topic is read, which does not end the call,
            # goes to the log and not to standard error
            log.warning("can't read the order conf of %s: %s", key, error)
            old = ""
        confs = {conf.partition(":")[0]: conf for conf in [*old.split(";"), value] if conf.strip()}
        # clients number the queues in this order
        self.create_and_update_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, key, ";".join(
            confs[name] for name in hash_map_order(confs)))

    def query_topic_consume_by_who(self, topic: str) -> GroupList | None:
        """Return the groups that consume a topic, according to its first broker."""
        for _, addr in self._brokers_of(topic):
            return self.api.query_topic_consume_by_who(addr, topic, self.timeout_millis)
        return None

    def query_consume_time_span(self, topic: str, group: str) -> list[QueueTimeSpan]:
        """Return the store times of the first, the last and the last consumed message of each queue."""
        return [span for _, addr in self._brokers_of(topic)
                for span in self.api.query_consume_time_span(addr, topic, group, self.timeout_millis)]

    def view_broker_stats_data(self, broker_addr: str, stats_name: str, stats_key: str) -> BrokerStatsData:
        """Return one counter of a broker."""
        return self.api.view_broker_stats_data(broker_addr, stats_name, stats_key, self.timeout_millis)

    def fetch_consume_stats_in_broker(
        self, broker_addr: str, is_order: bool, timeout_millis: float
    ) -> ConsumeStatsList:
        """Return the consume progress of all groups of a broker."""
        return self.api.fetch_consume_stats_in_broker(broker_addr, is_order, timeout_millis)

    def get_topic_cluster_list(self, topic: str) -> set[str]:
        """Return the clusters of a topic's first broker."""
        info = self.examine_broker_cluster_info()
        broker_name = self.examine_topic_route_info(topic).brokerDatas[0].brokerName
        return {cluster for cluster, names in info.clusterAddrTable.items() if broker_name in names}

    def examine_consumer_connection_info(
        self, consumer_group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Return a group's connected consumers, according to one of its brokers.

        Raise MQClientException (CONSUMER_NOT_ONLINE) when there are none.
        """
        addr = broker_addr or self._any_broker_of(mix_all.get_retry_topic(consumer_group))
        result = ConsumerConnection() if addr is None else self.api.get_consumer_connection_list(
            addr, consumer_group, self.timeout_millis)
        if not result.connectionSet:
            log.warning("the consumer group not online. brokerAddr=%s, group=%s", addr, consumer_group)
            raise MQClientException("Not found the consumer group connection", response_code.CONSUMER_NOT_ONLINE)
        return result

    # ---- cleaning

    def clean_expired_consumer_queue(self, cluster: str | None) -> bool:
        """Delete consume queue files without messages on all brokers of a cluster, or of all clusters."""
        return self._on_all(cluster, self.clean_expired_consumer_queue_by_addr)

    def clean_expired_consumer_queue_by_addr(self, addr: str) -> bool:
        """Do the same on one broker."""
        self.api.clean_expired_consume_queue(addr, self.timeout_millis)
        log.warning("clean expired ConsumeQueue on target %s broker true", addr)
        return True

    def delete_expired_commit_log(self, cluster: str | None) -> bool:
        """Delete expired commit log files on all brokers of a cluster, or of all clusters."""
        return self._on_all(cluster, self.delete_expired_commit_log_by_addr)

    def delete_expired_commit_log_by_addr(self, addr: str) -> bool:
        """Do the same on one broker."""
        self.api.delete_expired_commit_log(addr, self.timeout_millis)
        log.warning("Delete expired CommitLog on target %s broker true", addr)
        return True

    def clean_unused_topic(self, cluster: str | None) -> bool:
        """Delete the queues of deleted topics on all brokers of a cluster, or of all clusters."""
        return self._on_all(cluster, self.clean_unused_topic_by_addr)

    def clean_unused_topic_by_addr(self, addr: str) -> bool:
        """Do the same on one broker."""
        self.api.clean_unused_topic_by_addr(addr, self.timeout_millis)
        log.warning("clean expired ConsumeQueue on target %s broker true", addr)
        return True

    def _on_all(self, cluster: str | None, clean: Callable[[str], bool]) -> bool:
        """Call `clean` for each broker; return the last result, or False when there is no broker or no list of them."""
        result = False
        try:
            info = self.examine_broker_cluster_info()
            for name in [cluster] if cluster else info.retrieve_all_cluster_names():
                for addr in info.retrieve_all_addr_by_cluster(name):
                    result = clean(addr)
        except MQBrokerException:
            log.exception("cleaning failed")
        return result

    # ---- topics and groups of users

    def get_user_subscription_group(self, broker_addr: str, timeout_millis: float) -> SubscriptionGroupWrapper:
        """Return the groups of a broker, without system groups."""
        wrapper = self.api.get_all_subscription_group(broker_addr, timeout_millis)
        for group in list(wrapper.subscriptionGroupTable):
            if mix_all.is_sys_consumer_group(group) or group in SYSTEM_GROUPS:
                del wrapper.subscriptionGroupTable[group]
        return wrapper

    def get_user_topic_config(
        self, broker_addr: str, special_topic: bool, timeout_millis: float
    ) -> TopicConfigSerializeWrapper:
        """Return the topics of a broker, without system topics; retry and dead letter topics only with `special_topic`.
        """
        wrapper = self.api.get_all_topic_config(broker_addr, timeout_millis)
        system = self.api.get_system_topic_list_from_broker(broker_addr, timeout_millis).topicList
        special = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX)
        for topic in list(wrapper.topicConfigTable or ()):
            if topic in system or not special_topic and topic.startswith(special):
                del wrapper.topicConfigTable[topic]
        # concerns only a slave and its master
        wrapper.deletedTopics = None
        return wrapper

    def update_name_server_config(self, properties: dict[str, str], name_servers: list[str] | None) -> None:
        """Change settings of name servers (None: of all); the last error is raised after all were asked."""
        failure: MQClientException | None = None
        for addr in name_servers or self.get_name_server_address_list():
            try:
                self.api.update_name_server_config(addr, properties, self.timeout_millis)
            except MQClientException as error:
                failure = error
        if failure is not None:
            raise failure

    def get_name_server_config(self, name_servers: list[str] | None) -> dict[str, dict[str, str]]:
        """Return all settings of name servers (None: of all), by address."""
        return {addr: self.api.get_name_server_config(addr, self.timeout_millis)
                for addr in name_servers or self.get_name_server_address_list()}

    # ---- controllers

    def get_controller_meta_data(self, controller_addr: str) -> GetMetaDataResponseHeader:
        """Return the group of a controller, its members and its leader."""
        return self.api.get_controller_meta_data(controller_addr, self.timeout_millis)

    def get_in_sync_state_data(self, controller_addr: str, broker_names: list[str]) -> BrokerReplicasInfo:
        """Return master, epochs and replicas of broker names, according to the leading controller."""
        return self.api.get_in_sync_state_data(controller_addr, broker_names, self.timeout_millis)

    def elect_master(
        self, controller_addr: str, cluster_name: str, broker_name: str, broker_id: int
    ) -> tuple[ElectMasterResponseHeader, BrokerMemberGroup | None]:
        """Make the leading controller elect a replica as master."""
        return self.api.elect_master(controller_addr, cluster_name, broker_name, broker_id, self.timeout_millis)

    def clean_controller_broker_data(
        self, controller_addr: str, cluster_name: str | None, broker_name: str, broker_ids: str | None,
        clean_living_broker: bool
    ) -> None:
        """Make the leading controller forget replicas: their ids separated by `;`, None: all of the name."""
        self.api.clean_controller_broker_data(
            controller_addr, cluster_name, broker_name, broker_ids, clean_living_broker, self.timeout_millis)

    def get_controller_config(self, controllers: list[str]) -> dict[str, dict[str, str]]:
        """Return all settings of controllers, by address."""
        return {addr: self.api.get_controller_config(addr, self.timeout_millis) for addr in controllers}

    def update_controller_config(self, properties: dict[str, str], controllers: list[str]) -> None:
        """Change settings of controllers; the last error is raised after all were asked."""
        failure: MQClientException | None = None
        for addr in controllers:
            try:
                self.api.update_controller_config(addr, properties, self.timeout_millis)
            except MQClientException as error:
                failure = error
        if failure is not None:
            raise failure

    def get_broker_epoch_cache(self, broker_addr: str) -> EpochEntryCache:
        """Return a replica's id, the epochs of its log, and the log's end."""
        return self.api.get_broker_epoch_cache(broker_addr, self.timeout_millis)

    # ---- replication

    def get_broker_ha_status(self, broker_addr: str) -> HARuntimeInfo:
        """Return the state of replication at a broker; a 4.9 broker does not know the request."""
        response = self._ask(broker_addr, request_code.GET_BROKER_HA_STATUS)
        return remoting_serializable.from_json(HARuntimeInfo, response.body or b"{}")

    def notify_broker_role_changed(self, broker_addr: str, header: NotifyBrokerRoleChangedRequestHeader) -> None:
        """Notify a replica which broker is the master, as a controller does."""
        self._ask(broker_addr, request_code.NOTIFY_BROKER_ROLE_CHANGED, header)

    def handover_master(self, broker_addr: str, broker_id: int, timeout_millis: int) -> None:
        """Make a master refuse messages until that replica holds all."""
        header = HandoverMasterRequestHeader(brokerId=broker_id, timeoutMillis=timeout_millis)
        self._ask(broker_addr, request_code.HANDOVER_MASTER, header)

    def rejoin_master(self, broker_addr: str) -> None:
        """Make a slave truncate, at its next handshake, what its master does not have."""
        self._ask(broker_addr, request_code.REJOIN_MASTER)

    def view_record(self, broker_addr: str, offset: int) -> bytes:
        """Return the record that begins at a commit log offset, as it is stored."""
        response = self._ask(broker_addr, request_code.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
        return bytes(response.body or b"")

    def get_commit_log_checksums(
        self, broker_addr: str, offset: int, block_size: int, count: int
    ) -> LogChecksums | None:
        """Return the CRC32 of blocks of a broker's log; None when it does not know the request, like the original."""
        return self.api.get_commit_log_checksums(broker_addr, offset, block_size, count, self.timeout_millis)

    def get_commit_log_bytes(self, broker_addr: str, offset: int, size: int) -> bytes | None:
        """Return bytes of a broker's log; b"" if it does not hold them all, None if it does not know the request."""
        return self.api.get_commit_log_bytes(broker_addr, offset, size, self.timeout_millis)

    def get_message_heads(self, broker_addr: str, header: "GetMessageHeadsRequestHeader") -> "MessageHeads | None":
        """Return messages of a queue without their bodies; None when the broker does not know the request."""
        return self.api.get_message_heads(broker_addr, header, self.timeout_millis)

    def fetch_departed_brokers(self) -> list[DepartedBroker]:
        """Return the brokers that the name server expects but that are not registered; RocketMQ's reports none."""
        request = RemotingCommand.create_request_command(request_code.GET_BROKER_CLUSTER_INFO)
        request.add_ext_field(cluster_bodies.ASK_DEPARTED_BROKERS, "true")
        response = self.api.remoting_client.invoke_sync(None, request, self.timeout_millis)
        return cluster_bodies.decode_departed((response.ext_fields or {}).get(cluster_bodies.DEPARTED_BROKERS))

    def _ask(self, addr: str, code: int, header: CommandCustomHeader | None = None) -> RemotingCommand:
        """Send a request that only tools make, and return the answer."""
        response = self.api.remoting_client.invoke_sync(
            addr, RemotingCommand.create_request_command(code, header), self.timeout_millis)
        if response.code != response_code.SUCCESS:
            raise MQBrokerException(response.code, response.remark, addr)
        return response

    # ---- brokers

    def _brokers_of(self, topic: str) -> list[tuple[BrokerData, str]]:
        """Return the brokers of a topic, and the address to ask of each: its master's if it has one."""
        chosen = [(broker, broker.select_broker_addr()) for broker in self.examine_topic_route_info(topic).brokerDatas]
        return [(broker, addr) for broker, addr in chosen if addr is not None]

    def _any_broker_of(self, topic: str) -> str | None:
        chosen = self._brokers_of(topic)
        return random.choice(chosen)[1] if chosen else None


def examine_producer_connection_info(admin: DefaultMQAdminExt, producer_group: str, topic: str) -> ProducerConnection:
    """Return a group's connected producers, asked of any broker of the topic; MQClientException when there are none.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#examineProducerConnectionInfo (4.9.8)
    """
    addr, result = random.choice(_addrs_of(admin, topic)), ProducerConnection()
    if addr is not None:
        result = admin.api.get_producer_connection_list(addr, producer_group, admin.timeout_millis)
    if not result.connectionSet:
        log.warning("the producer group not online. brokerAddr=%s, group=%s", addr, producer_group)
        raise MQClientException("Not found the producer group connection")
    return result


def get_consumer_running_info(
    admin: DefaultMQAdminExt, consumer_group: str, client_id: str, jstack: bool
) -> ConsumerRunningInfo:
    """Return the running info of one client of a group, asked through the retry topic's first broker.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#getConsumerRunningInfo (4.9.8)
    """
    addrs = [addr for addr in _addrs_of(admin, mix_all.get_retry_topic(consumer_group)) if addr is not None]
    if not addrs:
        raise MQClientException(f"no broker of the group {consumer_group} has an address")
    return admin.api.get_consumer_running_info(addrs[0], consumer_group, client_id, jstack, admin.timeout_millis * 3)


def view_message(admin: DefaultMQAdminExt, msg_id: str, topic: str) -> MessageExt:
    """Return the message with an offset id or a unique id; raise MQClientException when there is no such message.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#viewMessage (4.9.8)
    """
    try:
        return admin.mq_admin.view_message(msg_id)
    except CLIENT_ERRORS as error:
        log.warning("the msgId maybe created by new client. msgId=%s: %s", msg_id, error)
    return admin.mq_admin.query_message_by_uniq_key(topic, msg_id).message_list[0]


def consume_message_directly(
    admin: DefaultMQAdminExt, consumer_group: str, client_id: str, msg_id: str, topic: str | None = None
) -> ConsumeMessageDirectlyResult:
    """Make one client of a group consume one message now. Without a topic, the id is an offset id.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#consumeMessageDirectly (4.9.8)
    """
    msg = admin.mq_admin.view_message(msg_id) if topic is None else view_message(admin, msg_id, topic)
    offset_msg_id = msg.offset_msg_id if isinstance(msg, MessageClientExt) else msg.msg_id
    assert offset_msg_id is not None  # a decoded message has one
    return admin.api.consume_message_directly(
        parse_socket_address_addr(msg.store_host), consumer_group, client_id, offset_msg_id, admin.timeout_millis * 3)


def _addrs_of(admin: DefaultMQAdminExt, topic: str) -> list[str | None]:
    return [broker.select_broker_addr() for broker in admin.examine_topic_route_info(topic).brokerDatas] or [None]


def tools_account() -> RPCHook | None:
    """Return the hook that signs requests with the account in conf/tools.yml below the home; None without that file."""
    file = filesystem.rocketmq_home() / "conf" / "tools.yml"
    if not file.exists():
        return None
    from rmqha.acl import acl_files  # most clusters have no accounts

    return acl_files.get_acl_rpc_hook(str(file))
