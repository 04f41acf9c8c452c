"""A message and one of the groups that consume its topic: what became of it there.

Errors as the original's users know them: Java's names and texts, cause by cause.

Questions about whole clusters, topics and groups, each of one or more requests.

Questions about messages and the clients that they went to, each of several requests of an admin client.
"""
import logging
import random
import re
import sys
from collections.abc import Callable, Iterable
from enum import Enum

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.mq_admin_impl import MQAdminImpl
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.impl.mq_client_instance import MQClientInstance
from rmqha.client.impl.mq_client_manager import make_client_instance
from rmqha.common import mix_all, topics
from rmqha.common.java import hash_map_order
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message.message import MessageClientExt, MessageExt, MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import UpdateConsumerOffsetRequestHeader
from rmqha.common.protocol.client_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    QueueTimeSpan,
)
from rmqha.common.protocol.cluster_bodies import BrokerMemberGroup, BrokerReplicasInfo, ClusterInfo, EpochEntryCache
from rmqha.common.protocol.controller_headers import ElectMasterResponseHeader, GetMetaDataResponseHeader
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
from rmqha.common.subscriptions import ConsumeType
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.interfaces import RPCHook


class TrackType(Enum):
    """CONSUMED by the group's offset; PULL groups keep their own; the rest says itself.

    Java: org.apache.rocketmq.tools.admin.api.TrackType (4.9.8)
    """

    CONSUMED = 0
    CONSUMED_BUT_FILTERED = 1
    PULL = 2
    NOT_CONSUME_YET = 3
    NOT_ONLINE = 4
    UNKNOWN = 5


@dataclass(slots=True)
class MessageTrack:
    """What became of a message in a group; `exceptionDesc` says why it could not be told.

    Java: org.apache.rocketmq.tools.admin.api.MessageTrack (4.9.8)
    """

    consumerGroup: str
    trackType: TrackType = TrackType.UNKNOWN
    exceptionDesc: str | None = None

    def __str__(self) -> str:
        why = "null" if self.exceptionDesc is None else self.exceptionDesc
        return (f"MessageTrack [consumerGroup={self.consumerGroup}, trackType={self.trackType.name}, "
                f"exceptionDesc={why}]")


_TWIN = re.compile(r"^\s*Java: ([\w.$]+)", re.MULTILINE)


def java_name(error: BaseException) -> str:
    """The name of the Java class that an exception stands for; its own when it has no twin."""
    found = _TWIN.search(type(error).__doc__ or "")
    return found.group(1) if found else f"{type(error).__module__}.{type(error).__qualname__}"


def stack_trace(error: BaseException) -> str:
    """`error` and its causes, a line each (or more, if its text has more), without the frames."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        lines.append(f"{'Caused by: ' if lines else ''}{java_name(cause)}: {cause}\n")
        cause = cause.__cause__
    return "".join(lines)


def print_stack_trace(error: BaseException) -> None:
    """Tell of an error that does not end the command, on standard error."""
    sys.stderr.write(stack_trace(error))


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
    """Admin questions over one client, which is started with the first of them; `shutdown` ends it.

    Raises MQClientException, MQBrokerException and RemotingException as the requests do.

        admin = DefaultMQAdminExt("127.0.0.1:9876")
        try:
            admin.examine_topic_stats("orders")
        finally:
            admin.shutdown()

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExt (4.9.8)
    """

    def __init__(self, namesrv_addr: str | None = None, rpc_hook: RPCHook | None = None,
                 timeout_millis: int = TIMEOUT_MILLIS) -> None:
        self.rpc_hook = rpc_hook
        self.timeout_millis = timeout_millis
        self.client_config = ClientConfig()
        self.client_config.client_callback_executor_threads = 1
        if namesrv_addr is not None:
            self.client_config.namesrv_addr = namesrv_addr
        self._instance: MQClientInstance | None = None

    @property
    def namesrv_addr(self) -> str | None:
        """The name servers, separated by semicolons; None when none was given."""
        return self.client_config.namesrv_addr

    @property
    def instance(self) -> MQClientInstance:
        """The client under it, started."""
        if self._instance is None:
            self.client_config.change_instance_name_to_pid()
            self._instance = make_client_instance(
                self.client_config, 0, self.client_config.build_mq_client_id(), self.rpc_hook)
            self._instance.start()
        return self._instance

    @property
    def api(self) -> MQClientAPIImpl:
        """Single requests."""
        return self.instance.mq_client_api_impl

    @property
    def mq_admin(self) -> MQAdminImpl:
        """Questions about queues and messages: search_offset, max_offset, query_message and the like."""
        return self.instance.mq_admin_impl

    def shutdown(self) -> None:
        """Close the connections, if there are any."""
        if self._instance is not None:
            self._instance.shutdown()
            self._instance = None

    # ---- settings, topics and groups of a broker

    def update_broker_config(self, broker_addr: str, properties: dict[str, str]) -> None:
        """Change settings while the broker runs."""
        self.api.update_broker_config(broker_addr, properties, self.timeout_millis)

    def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """All settings of a broker."""
        return self.api.get_broker_config(broker_addr, self.timeout_millis)

    def create_and_update_topic_config(self, addr: str, config: TopicConfig) -> None:
        """Make a topic on a broker, or change it."""
        self.api.create_topic(addr, topics.AUTO_CREATE_TOPIC_KEY_TOPIC, config, self.timeout_millis)

    def create_and_update_subscription_group_config(self, addr: str, config: SubscriptionGroupConfig) -> None:
        """Make a group on a broker, or change it."""
        self.api.create_subscription_group(addr, config, self.timeout_millis)

    def examine_subscription_group_config(self, addr: str, group: str) -> SubscriptionGroupConfig | None:
        """A group as a broker has it."""
        return self.api.get_all_subscription_group(addr, self.timeout_millis).subscriptionGroupTable.get(group)

    # ---- what brokers and name servers tell

    def examine_topic_stats(self, topic: str) -> TopicStatsTable:
        """Bounds of a topic's queues on all brokers; MQClientException when there are none."""
        result = TopicStatsTable()
        for _, addr in self._brokers_of(topic):
            result.offsetTable.update(self.api.get_topic_stats_info(addr, topic, self.timeout_millis).offsetTable)
        if not result.offsetTable:
            raise MQClientException("Not found the topic stats info")
        return result

    def fetch_all_topic_list(self) -> TopicList:
        """All topics."""
        return self.api.get_topic_list_from_name_server(self.timeout_millis)

    def fetch_broker_runtime_stats(self, broker_addr: str) -> KVTable:
        """Counters and sizes of a broker by name."""
        return self.api.get_broker_runtime_info(broker_addr, self.timeout_millis)

    def examine_consume_stats(self, consumer_group: str, topic: str | None = None) -> ConsumeStats:
        """How far a group has come on all brokers; MQClientException (CONSUMER_NOT_ONLINE) when it has nothing."""
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
        """All clusters and brokers."""
        return self.api.get_broker_cluster_info(self.timeout_millis)

    def examine_topic_route_info(self, topic: str) -> TopicRouteData:
        """Where a topic lives; MQClientException (TOPIC_NOT_EXIST) when nowhere."""
        return self.api.get_topic_route_info_from_name_server(topic, self.timeout_millis)

    def get_name_server_address_list(self) -> list[str]:
        """The name servers that are asked."""
        return self.api.get_name_server_address_list()

    def wipe_write_perm_of_broker(self, namesrv_addr: str, broker_name: str) -> int:
        """Let nobody send to a broker; how many topics changed."""
        return self.api.wipe_write_perm_of_broker(namesrv_addr, broker_name, self.timeout_millis)

    def add_write_perm_of_broker(self, namesrv_addr: str, broker_name: str) -> int:
        """Let all send to a broker again; how many topics changed."""
        return self.api.add_write_perm_of_broker(namesrv_addr, broker_name, self.timeout_millis)

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        """A value of the name server's table."""
        return self.api.get_kv_config_value(namespace, key, self.timeout_millis)

    def get_kv_list_by_namespace(self, namespace: str) -> KVTable:
        """All values of a namespace."""
        return self.api.get_kv_list_by_namespace(namespace, self.timeout_millis)

    # ---- deleting

    def delete_topic_in_broker(self, addrs: Iterable[str], topic: str) -> None:
        """Delete a topic on brokers."""
        for addr in addrs:
            self.api.delete_topic_in_broker(addr, topic, self.timeout_millis)

    def delete_topic_in_name_server(self, addrs: Iterable[str] | None, topic: str, cluster_name: str | None) -> None:
        """Forget a topic's route on name servers (None: all)."""
        for addr in self.get_name_server_address_list() if addrs is None else addrs:
            self.api.delete_topic_in_name_server(addr, topic, self.timeout_millis, cluster_name)

    def delete_subscription_group(self, addr: str, group_name: str, remove_offset: bool = False) -> None:
        """Delete a group on a broker, with its offsets or without."""
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
        """Set the offsets of a group that is not running to what was stored at `timestamp` (ms; -1: the end).

        Without `force` offsets only go back. A group that has consumed nothing gets offsets for all queues.
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
        """Let a running group go to what was stored at `timestamp` (ms; -1: the end); offsets by queue.

        MQClientException with CONSUMER_NOT_ONLINE when it does not run. `is_c`: its clients are written in C++.
        """
        result: dict[MessageQueue, int] = {}
        for _, addr in self._brokers_of(topic):
            result.update(self.api.invoke_broker_to_reset_offset(
                addr, topic, group, timestamp, is_force, self.timeout_millis, is_c))
        return result

    def get_consume_status(self, topic: str, group: str, client_addr: str) -> dict[str, dict[MessageQueue, int]]:
        """Offsets as the clients of a group see them, by client id, as the topic's first broker tells."""
        for _, addr in self._brokers_of(topic):
            return self.api.invoke_broker_to_get_consumer_status(addr, topic, group, client_addr, self.timeout_millis)
        return {}

    def update_consume_offset(self, broker_addr: str, consume_group: str, mq: MessageQueue, offset: int) -> None:
        """Store how far a group has come."""
        header = UpdateConsumerOffsetRequestHeader(
            consumerGroup=consume_group, topic=mq.topic, queueId=mq.queueId, commitOffset=offset, bname=mq.brokerName)
        self.api.update_consumer_offset(broker_addr, header, self.timeout_millis)

    def clone_group_offset(self, src_group: str, dest_group: str, topic: str, is_offline: bool) -> None:
        """Give one group another group's offsets of a topic."""
        for _, addr in self._brokers_of(mix_all.get_retry_topic(src_group)):
            self.api.clone_group_offset(addr, src_group, dest_group, topic, is_offline, self.timeout_millis * 3)

    # ---- more questions

    def create_or_update_order_conf(self, key: str, value: str, is_cluster: bool) -> None:
        """Set which queues an ordered topic has: of one broker (`name:count`, put beside the others) or of all."""
        if is_cluster:
            self.create_and_update_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, key, value)
            return
        try:
            old = self.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, key) or ""
        except (MQClientException, RemotingException) as error:
            # Differs: an error that does not end it goes to the log, not to standard error
            log.warning("no order conf of %s: %s", key, error)
            old = ""
        confs = {conf.partition(":")[0]: conf for conf in [*old.split(";"), value] if conf.strip()}
        # clients count the queues in this order
        self.create_and_update_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, key, ";".join(
            confs[name] for name in hash_map_order(confs)))

    def query_topic_consume_by_who(self, topic: str) -> GroupList | None:
        """The groups that consume a topic, as its first broker tells."""
        for _, addr in self._brokers_of(topic):
            return self.api.query_topic_consume_by_who(addr, topic, self.timeout_millis)
        return None

    def query_consume_time_span(self, topic: str, group: str) -> list[QueueTimeSpan]:
        """Store times of the first, the last and the consumed message, by queue."""
        return [span for _, addr in self._brokers_of(topic)
                for span in self.api.query_consume_time_span(addr, topic, group, self.timeout_millis)]

    def view_broker_stats_data(self, broker_addr: str, stats_name: str, stats_key: str) -> BrokerStatsData:
        """One counter of a broker."""
        return self.api.view_broker_stats_data(broker_addr, stats_name, stats_key, self.timeout_millis)

    def fetch_consume_stats_in_broker(self, broker_addr: str, is_order: bool, timeout_millis: int) -> ConsumeStatsList:
        """How far all groups of a broker have come."""
        return self.api.fetch_consume_stats_in_broker(broker_addr, is_order, timeout_millis)

    def get_topic_cluster_list(self, topic: str) -> set[str]:
        """The clusters of a topic's first broker."""
        info = self.examine_broker_cluster_info()
        broker_name = self.examine_topic_route_info(topic).brokerDatas[0].brokerName
        return {cluster for cluster, names in info.clusterAddrTable.items() if broker_name in names}

    def examine_consumer_connection_info(
        self, consumer_group: str, broker_addr: str | None = None
    ) -> ConsumerConnection:
        """Who consumes as a group, as one of its brokers tells; MQClientException (CONSUMER_NOT_ONLINE): nobody."""
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
        """The same on one broker."""
        self.api.clean_expired_consume_queue(addr, self.timeout_millis)
        log.warning("clean expired ConsumeQueue on target %s broker true", addr)
        return True

    def delete_expired_commit_log(self, cluster: str | None) -> bool:
        """Delete commit log files whose time is over on all brokers of a cluster, or of all clusters."""
        return self._on_all(cluster, self.delete_expired_commit_log_by_addr)

    def delete_expired_commit_log_by_addr(self, addr: str) -> bool:
        """The same on one broker."""
        self.api.delete_expired_commit_log(addr, self.timeout_millis)
        log.warning("Delete expired CommitLog on target %s broker true", addr)
        return True

    def clean_unused_topic(self, cluster: str | None) -> bool:
        """Delete queues of topics that are no more on all brokers of a cluster, or of all clusters."""
        return self._on_all(cluster, self.clean_unused_topic_by_addr)

    def clean_unused_topic_by_addr(self, addr: str) -> bool:
        """The same on one broker."""
        self.api.clean_unused_topic_by_addr(addr, self.timeout_millis)
        log.warning("clean expired ConsumeQueue on target %s broker true", addr)
        return True

    def _on_all(self, cluster: str | None, clean: Callable[[str], bool]) -> bool:
        """What the last broker answered; False when there is none, or no list of them."""
        result = False
        try:
            info = self.examine_broker_cluster_info()
            for name in [cluster] if cluster else info.retrieve_all_cluster_names():
                for addr in info.retrieve_all_addr_by_cluster(name):
                    result = clean(addr)
        except MQBrokerException:
            log.exception("cleaning failed")
        return result

    # ---- what users made

    def get_user_subscription_group(self, broker_addr: str, timeout_millis: int) -> SubscriptionGroupWrapper:
        """The groups of a broker without the system's."""
        wrapper = self.api.get_all_subscription_group(broker_addr, timeout_millis)
        for group in list(wrapper.subscriptionGroupTable):
            if mix_all.is_sys_consumer_group(group) or group in SYSTEM_GROUPS:
                del wrapper.subscriptionGroupTable[group]
        return wrapper

    def get_user_topic_config(
        self, broker_addr: str, special_topic: bool, timeout_millis: int
    ) -> TopicConfigSerializeWrapper:
        """The topics of a broker without the system's; retry and dead letter topics with `special_topic` only."""
        wrapper = self.api.get_all_topic_config(broker_addr, timeout_millis)
        system = self.api.get_system_topic_list_from_broker(broker_addr, timeout_millis).topicList
        special = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX)
        for topic in list(wrapper.topicConfigTable or ()):
            if topic in system or not special_topic and topic.startswith(special):
                del wrapper.topicConfigTable[topic]
        wrapper.deletedTopics = None  # between a slave and its master
        return wrapper

    def update_name_server_config(self, properties: dict[str, str], name_servers: list[str] | None) -> None:
        """Change settings of name servers (None: of all that are asked); the last error is raised behind all."""
        failure: MQClientException | None = None
        for addr in name_servers or self.get_name_server_address_list():
            try:
                self.api.update_name_server_config(addr, properties, self.timeout_millis)
            except MQClientException as error:
                failure = error
        if failure is not None:
            raise failure

    def get_name_server_config(self, name_servers: list[str] | None) -> dict[str, dict[str, str]]:
        """All settings of name servers (None: of all that are asked), by address."""
        return {addr: self.api.get_name_server_config(addr, self.timeout_millis)
                for addr in name_servers or self.get_name_server_address_list()}

    # ---- controllers

    def get_controller_meta_data(self, controller_addr: str) -> GetMetaDataResponseHeader:
        """The group of a controller, its members, and who leads."""
        return self.api.get_controller_meta_data(controller_addr, self.timeout_millis)

    def get_in_sync_state_data(self, controller_addr: str, broker_names: list[str]) -> BrokerReplicasInfo:
        """Master, epochs and replicas of broker names, as the leading controller has them."""
        return self.api.get_in_sync_state_data(controller_addr, broker_names, self.timeout_millis)

    def elect_master(
        self, controller_addr: str, cluster_name: str, broker_name: str, broker_id: int
    ) -> tuple[ElectMasterResponseHeader, BrokerMemberGroup | None]:
        """Have the leading controller make a replica the master."""
        return self.api.elect_master(controller_addr, cluster_name, broker_name, broker_id, self.timeout_millis)

    def clean_controller_broker_data(
        self, controller_addr: str, cluster_name: str | None, broker_name: str, broker_ids: str | None,
        clean_living_broker: bool
    ) -> None:
        """Have the leading controller forget replicas: their ids joined by `;`, None: all of the name."""
        self.api.clean_controller_broker_data(
            controller_addr, cluster_name, broker_name, broker_ids, clean_living_broker, self.timeout_millis)

    def get_controller_config(self, controllers: list[str]) -> dict[str, dict[str, str]]:
        """All settings of controllers, by address."""
        return {addr: self.api.get_controller_config(addr, self.timeout_millis) for addr in controllers}

    def update_controller_config(self, properties: dict[str, str], controllers: list[str]) -> None:
        """Change settings of controllers; the last error is raised behind all."""
        failure: MQClientException | None = None
        for addr in controllers:
            try:
                self.api.update_controller_config(addr, properties, self.timeout_millis)
            except MQClientException as error:
                failure = error
        if failure is not None:
            raise failure

    def get_broker_epoch_cache(self, broker_addr: str) -> EpochEntryCache:
        """A replica's id, the epochs of its log, and the log's end."""
        return self.api.get_broker_epoch_cache(broker_addr, self.timeout_millis)

    # ---- brokers

    def _brokers_of(self, topic: str) -> list[tuple[BrokerData, str]]:
        """The brokers of a topic, and the address at which each is asked: its master's if it has one."""
        chosen = [(broker, broker.select_broker_addr()) for broker in self.examine_topic_route_info(topic).brokerDatas]
        return [(broker, addr) for broker, addr in chosen if addr is not None]

    def _any_broker_of(self, topic: str) -> str | None:
        chosen = self._brokers_of(topic)
        return random.choice(chosen)[1] if chosen else None


ASK_ERRORS = (MQClientException, MQBrokerException, RemotingException)  # what any question may raise


def examine_producer_connection_info(admin: DefaultMQAdminExt, producer_group: str, topic: str) -> ProducerConnection:
    """Who produces as a group, asked of any of the topic's brokers; MQClientException when nobody does.

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
    """What one client of a group does now, asked through the retry topic's first broker.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#getConsumerRunningInfo (4.9.8)
    """
    addrs = [addr for addr in _addrs_of(admin, mix_all.get_retry_topic(consumer_group)) if addr is not None]
    if not addrs:
        raise MQClientException(f"no broker of the group {consumer_group} has an address")
    return admin.api.get_consumer_running_info(addrs[0], consumer_group, client_id, jstack, admin.timeout_millis * 3)


def view_message(admin: DefaultMQAdminExt, msg_id: str, topic: str) -> MessageExt:
    """The message of an offset id or of a unique id; MQClientException when there is none.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#viewMessage (4.9.8)
    """
    try:
        return admin.mq_admin.view_message(msg_id)
    except ASK_ERRORS as error:
        log.warning("the msgId maybe created by new client. msgId=%s: %s", msg_id, error)
    return admin.mq_admin.query_message_by_uniq_key(topic, msg_id).message_list[0]


def consume_message_directly(
    admin: DefaultMQAdminExt, consumer_group: str, client_id: str, msg_id: str, topic: str | None = None
) -> ConsumeMessageDirectlyResult:
    """Let one client of a group consume one message now. Without a topic the id is an offset id.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#consumeMessageDirectly (4.9.8)
    """
    msg = admin.mq_admin.view_message(msg_id) if topic is None else view_message(admin, msg_id, topic)
    offset_msg_id = msg.offset_msg_id if isinstance(msg, MessageClientExt) else msg.msg_id
    assert offset_msg_id is not None  # a decoded message has one
    return admin.api.consume_message_directly(
        parse_socket_address_addr(msg.store_host), consumer_group, client_id, offset_msg_id, admin.timeout_millis * 3)


def message_track_detail(admin: DefaultMQAdminExt, msg: MessageExt) -> list[MessageTrack]:
    """What became of a message in each group that consumes its topic.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#messageTrackDetail (4.9.8)
    """
    groups = admin.query_topic_consume_by_who(msg.topic)
    # Differs: no group instead of a NullPointerException when no broker has an address
    names = hash_map_order(sorted(groups.groupList)) if groups is not None else []
    return [_track(admin, msg, group) for group in names]


def _track(admin: DefaultMQAdminExt, msg: MessageExt, group: str) -> MessageTrack:
    track = MessageTrack(group)
    try:
        connection = admin.examine_consumer_connection_info(group)
    except MQBrokerException as error:
        return _failed(track, error)
    except (MQClientException, RemotingException) as error:
        track.exceptionDesc = simple_description(error)
        return track
    if connection.consumeType is ConsumeType.CONSUME_ACTIVELY:
        track.trackType = TrackType.PULL
        return track
    try:
        is_consumed = consumed(admin, msg, group)
    except (MQClientException, MQBrokerException) as error:
        return _failed(track, error)
    except RemotingException as error:
        track.exceptionDesc = simple_description(error)
        return track
    if not is_consumed:
        track.trackType = TrackType.NOT_CONSUME_YET
    elif _is_wanted(msg, connection):
        track.trackType = TrackType.CONSUMED
    else:
        track.trackType = TrackType.CONSUMED_BUT_FILTERED
    return track


def consumed(admin: DefaultMQAdminExt, msg: MessageExt, group: str) -> bool:
    """Whether a group's offset lies behind a message, in its queue on the master that stores it.

    Java: org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl#consumed (4.9.8)
    """
    stats = admin.examine_consume_stats(group)
    brokers = admin.examine_broker_cluster_info().brokerAddrTable
    stored_at = parse_socket_address_addr(msg.store_host)
    # Differs: a broker's address is compared as it is registered; the original looks host names up
    return any(place.consumerOffset > msg.queue_offset for mq, place in stats.offsetTable.items()
               if mq.topic == msg.topic and mq.queueId == msg.queue_id and mq.brokerName in brokers
               and brokers[mq.brokerName].brokerAddrs.get(mix_all.MASTER_ID) == stored_at)


def simple_description(error: BaseException) -> str:
    """`name: message`, with the name that the exception has in Java."""
    # Differs: not followed by the line of code that raised it
    return f"{java_name(error)}: {error}"


def _addrs_of(admin: DefaultMQAdminExt, topic: str) -> list[str | None]:
    return [broker.select_broker_addr() for broker in admin.examine_topic_route_info(topic).brokerDatas] or [None]


def _failed(track: MessageTrack, error: MQBrokerException | MQClientException) -> MessageTrack:
    if error.response_code == response_code.CONSUMER_NOT_ONLINE:
        track.trackType = TrackType.NOT_ONLINE
    message = "null" if error.error_message is None else error.error_message
    track.exceptionDesc = f"CODE:{error.response_code} DESC:{message}"
    return track


def _is_wanted(msg: MessageExt, connection: ConsumerConnection) -> bool:
    """False when the group subscribes to other tags of the topic."""
    subscription = connection.subscriptionTable.get(msg.topic)
    tags = subscription.tagsSet if subscription is not None else None
    return not tags or msg.tags in tags or "*" in tags
