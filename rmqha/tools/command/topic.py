"""mqadmin commands for topics: settings, permissions, routes, queues and their allocation.

Commands: allocateMQ, deleteTopic, topicClusterList, topicList, topicRoute, topicStatus, updateOrderConf,
updateTopicPerm, updateTopic.
"""
import logging
from collections.abc import Iterator

from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueAveragely
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_routes import topic_route_data2_topic_subscribe_info
from rmqha.common import mix_all, sys_flags, util_all
from rmqha.common.java import hash_map_order
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.common.protocol.namespace_util import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.common.topics import TopicConfig
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import sub_command
from rmqha.tools.command.commons_cli import CommandLine, OptionGroup, flag, option
from rmqha.tools.command.message_print import in_java_order
from rmqha.tools.command.sub_command import Document, JavaException, Part, SubCommand, Table


@dataclass(slots=True)
class RebalanceResult:
    """The queues of each consumer.

    Java: org.apache.rocketmq.tools.command.topic.RebalanceResult (4.9.8)
    """

    result: dict[str, list[MessageQueue]] = field(default_factory=dict)


class AllocateMQSubCommand(SubCommand):
    """Prints which queues of a topic each of the given consumers would get.

    Java: org.apache.rocketmq.tools.command.topic.AllocateMQSubCommand (4.9.8)
    """

    command_name = "allocateMQ"
    command_desc = "Allocate MQ"
    options = (
        option("t", "topic", "topic name", required=True),
        option("i", "ipList", "ipList", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Compute the allocation from the topic's route."""
        topic = command_line.required("t")
        ip_list = util_all.split(command_line.required("i"), ",")
        route = admin.examine_topic_route_info(topic)
        queues = in_java_order(topic_route_data2_topic_subscribe_info(topic, route), route)
        averagely = AllocateMessageQueueAveragely()
        shares = {ip: averagely.allocate("aa", ip, queues, ip_list) for ip in hash_map_order(ip_list)}
        result = RebalanceResult(shares)
        yield Document(f"{remoting_serializable.to_json(result)}\n", result)


class DeleteTopicSubCommand(SubCommand):
    """Deletes a topic on all masters of a cluster and on the name servers.

    Java: org.apache.rocketmq.tools.command.topic.DeleteTopicSubCommand (4.9.8)
    """

    command_name = "deleteTopic"
    command_desc = "Delete topic from broker and NameServer."
    options = (
        option("t", "topic", "topic name", required=True),
        option("c", "clusterName", "delete topic from which cluster", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Delete the topic on the brokers first, then on the name servers."""
        yield from delete_topic(admin, command_line.required("c"), command_line.required("t"))


def delete_topic(admin: DefaultMQAdminExt, cluster_name: str, topic: str) -> Iterator[Part]:
    """Delete a topic everywhere in a cluster; yield the output."""
    masters = yield from sub_command.fetch_master_addr_by_cluster_name(admin, cluster_name)
    admin.delete_topic_in_broker(masters, topic)
    yield f"delete topic [{topic}] from cluster [{cluster_name}] success.\n"
    admin.delete_topic_in_name_server(None, topic, cluster_name)
    yield f"delete topic [{topic}] from NameServer success.\n"


CLUSTERS = Table("%s\n", {"clusterName": ""})


class TopicClusterSubCommand(SubCommand):
    """Prints the clusters that have a topic.

    Java: org.apache.rocketmq.tools.command.topic.TopicClusterSubCommand (4.9.8)
    """

    command_name = "topicClusterList"
    command_desc = "get cluster info for topic"
    options = (option("t", "topic", "topic name", required=True),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name server."""
        for cluster in sorted(admin.get_topic_cluster_list(command_line.required("t"))):
            yield CLUSTERS.row(cluster)


log = logging.getLogger("RocketmqTools")

TOPICS = Table("%s\n", {"topic": ""})
GROUPS = Table("%-20.20s  %-64.64s  %-64.64s\n", {
    "clusterName": "#Cluster Name", "topic": "#Topic", "consumerGroup": "#Consumer Group"},
    heading_format="%-20s  %-48s  %-48s\n")
SPECIAL = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX)


class TopicListSubCommand(SubCommand):
    """Prints all topics; with -c, also their clusters and consumer groups.

    Java: org.apache.rocketmq.tools.command.topic.TopicListSubCommand (4.9.8)
    """

    command_name = "topicList"
    command_desc = "Fetch all topic list from name server"
    options = (flag("c", "clusterModel", "clusterModel"),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name server, and with -c, a broker of each topic."""
        # Differs: topics are sorted, where Java prints them in the order of its hash table
        if not command_line.has_option("c"):
            for topic in sorted(admin.fetch_all_topic_list().topicList):
                yield TOPICS.row(topic)
            return
        info = admin.examine_broker_cluster_info()
        yield GROUPS.heading()
        for topic in sorted(admin.fetch_all_topic_list().topicList):
            if not topic.startswith(SPECIAL):
                cluster, groups = _cluster_and_groups(admin, info, topic)
                for group in groups or [""]:
                    yield GROUPS.row(cluster, topic, group)


def _cluster_and_groups(admin: DefaultMQAdminExt, info: ClusterInfo, topic: str) -> tuple[str | None, list[str]]:
    cluster: str | None = ""
    try:
        broker_name = admin.examine_topic_route_info(topic).brokerDatas[0].brokerName
        cluster = next((name for name, brokers in info.clusterAddrTable.items() if broker_name in brokers), None)
        groups = admin.query_topic_consume_by_who(topic)
        return cluster, sorted(groups.groupList) if groups is not None else []
    except (MQClientException, MQBrokerException, RemotingException, IndexError) as error:
        log.info("groups of %s: %s", topic, error)
        return cluster, []


BROKERS = Table("%-45s %-32s %-50s %-10s %-11s %-5s\n", {
    "clusterName": "#ClusterName", "brokerName": "#BrokerName", "brokerAddrs": "#BrokerAddrs",
    "readQueue": "#ReadQueue", "writeQueue": "#WriteQueue", "perm": "#Perm"})
_LINE = "-" * 158 + "\n"


class TopicRouteSubCommand(SubCommand):
    """Prints a topic's route, as JSON or (-l) as one line per broker.

    Java: org.apache.rocketmq.tools.command.topic.TopicRouteSubCommand (4.9.8)
    """

    command_name = "topicRoute"
    command_desc = "Examine topic route info"
    options = (
        option("t", "topic", "topic name", required=True),
        flag("l", "list", "Use list format to print data"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name server."""
        route = admin.examine_topic_route_info(command_line.required("t"))
        if command_line.has_option("l"):
            yield from _rows(route)
        else:
            yield Document(remoting_serializable.to_json(route, True) + "\n", route)


def _rows(route: TopicRouteData) -> Iterator[Part]:
    queues = {data.brokerName: data for data in route.queueDatas}
    yield BROKERS.heading()
    for broker in sorted(route.brokerDatas):
        data = queues[broker.brokerName]
        addrs = ", ".join(f"{broker_id}={addr}" for broker_id, addr in broker.brokerAddrs.items())
        yield BROKERS.row(broker.cluster, broker.brokerName, f"{{{addrs}}}", data.readQueueNums, data.writeQueueNums,
                          data.perm, brokerAddrs=broker.brokerAddrs)
    yield _LINE
    reads = sum(queues[broker.brokerName].readQueueNums for broker in route.brokerDatas)
    writes = sum(queues[broker.brokerName].writeQueueNums for broker in route.brokerDatas)
    yield BROKERS.row("Total:", len(queues), "", reads, writes, "").text


QUEUES = Table("%-32.32s  %-4d  %-20d  %-20d    %s\n", {
    "brokerName": "#Broker Name", "queueId": "#QID", "minOffset": "#Min Offset", "maxOffset": "#Max Offset",
    "lastUpdated": "#Last Updated"})


class TopicStatusSubCommand(SubCommand):
    """Prints the bounds of a topic's queues, and when each was last written.

    Java: org.apache.rocketmq.tools.command.topic.TopicStatusSubCommand (4.9.8)
    """

    command_name = "topicStatus"
    command_desc = "Examine topic Status info"
    options = (option("t", "topic", "topic name", required=True),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask all its brokers."""
        stats = admin.examine_topic_stats(command_line.required("t"))
        yield QUEUES.heading()
        for queue, bounds in sorted(stats.offsetTable.items()):
            updated = bounds.lastUpdateTimestamp
            time = util_all.time_millis_to_human_string2(updated) if updated > 0 else ""
            yield QUEUES.row(queue.brokerName, queue.queueId, bounds.minOffset, bounds.maxOffset, time,
                             lastUpdated=updated)


class UpdateOrderConfCommand(SubCommand):
    """Sets, prints or deletes the queues of an ordered topic: `broker-a:4;broker-b:4`.

    Java: org.apache.rocketmq.tools.command.topic.UpdateOrderConfCommand (4.9.8)
    """

    command_name = "updateOrderConf"
    command_desc = "Create or update or delete order conf"
    options = (
        option("t", "topic", "topic name", required=True),
        option("v", "orderConf", "set order conf [eg. brokerName1:num;brokerName2:num]"),
        option("m", "method", "option type [eg. put|get|delete", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Read or change the value on the name servers."""
        topic, method = command_line.required("t"), command_line.required("m")
        if method == "get":
            conf = admin.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
            yield f"get orderConf success. topic=[{topic}], orderConf=[{conf}] "
        elif method == "put":
            conf = command_line.text("v", "")
            if not conf:
                raise JavaException("please set orderConf with option -v.")
            admin.create_or_update_order_conf(topic, conf, True)
            yield f"update orderConf success. topic=[{topic}], orderConf=[{conf}]"
        elif method == "delete":
            admin.delete_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
            yield f"delete orderConf success. topic=[{topic}]"
        else:
            yield self.help()


class UpdateTopicPermSubCommand(SubCommand):
    """Changes the read and write permission of a topic, on one broker or on all masters of a cluster.

    Java: org.apache.rocketmq.tools.command.topic.UpdateTopicPermSubCommand (4.9.8)
    """

    command_name = "updateTopicPerm"
    command_desc = "Update topic perm"
    options = (
        option("b", "brokerAddr", "create topic to which broker"),
        option("c", "clusterName", "create topic to which cluster"),
        option("t", "topic", "topic name", required=True),
        option("p", "perm", "set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Read the topic's settings from its route, and send them back with the new permission."""
        topic = command_line.required("t")
        route = admin.examine_topic_route_info(topic)
        first = route.queueDatas[0]
        config = TopicConfig(topicName=topic, readQueueNums=first.readQueueNums, writeQueueNums=first.writeQueueNums,
                             topicSysFlag=first.topicSysFlag, perm=command_line.integer("p", bits=32))
        if command_line.has_option("b"):
            yield from _perm_on_broker(admin, command_line.required("b"), route, config)
        elif command_line.has_option("c"):
            masters = yield from sub_command.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
            for addr in masters:
                admin.create_and_update_topic_config(addr, config)
                yield f"update topic perm from {first.perm} to {config.perm} in {addr} success.\n"
        else:
            yield self.help()


def _perm_on_broker(admin: DefaultMQAdminExt, addr: str, route: TopicRouteData, config: TopicConfig) -> Iterator[Part]:
    names = [broker.brokerName for broker in route.brokerDatas if broker.brokerAddrs.get(mix_all.MASTER_ID) == addr]
    if not names:
        yield "updateTopicPerm error broker not exit or broker is not master!.\n"
        return
    old_perm = next((data.perm for data in route.queueDatas if data.brokerName == names[0]), 0)
    if old_perm == config.perm:
        yield "new perm equals to the old one!\n"
        return
    admin.create_and_update_topic_config(addr, config)
    yield f"update topic perm from {old_perm} to {config.perm} in {addr} success.\n"
    yield Document(f"{config}.\n", config)


DEFAULT_QUEUES = 8


class UpdateTopicSubCommand(SubCommand):
    """Creates or changes a topic on a broker or on all masters of a cluster.

    Java: org.apache.rocketmq.tools.command.topic.UpdateTopicSubCommand (4.9.8)
    """

    command_name = "updateTopic"
    command_desc = "Update or create topic"
    options = (
        OptionGroup((
            option("b", "brokerAddr", "create topic to which broker"),
            option("c", "clusterName", "create topic to which cluster"),
        )),
        option("t", "topic", "topic name", required=True),
        option("r", "readQueueNums", "set read queue nums"),
        option("w", "writeQueueNums", "set write queue nums"),
        option("p", "perm", "set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]"),
        option("o", "order", "set topic's order(true|false)"),
        option("u", "unit", "is unit topic (true|false)"),
        option("s", "hasUnitSub", "has unit sub (true|false)"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Store the topic on the brokers, and with -o, its order on the name servers."""
        config = TopicConfig(
            topicName=command_line.required("t"),
            readQueueNums=command_line.integer("r", DEFAULT_QUEUES, bits=32),
            writeQueueNums=command_line.integer("w", DEFAULT_QUEUES, bits=32),
            perm=command_line.integer("p", TopicConfig().perm, bits=32),
            topicSysFlag=sys_flags.build_topic_sys_flag(command_line.boolean("u"), command_line.boolean("s")),
            order=command_line.boolean("o"),
        )
        if command_line.has_option("b"):
            yield from _on_broker(admin, command_line.required("b"), config)
        else:
            yield from _on_cluster(admin, command_line.required("c"), config)
        yield Document(str(config), config)


def _on_broker(admin: DefaultMQAdminExt, addr: str, config: TopicConfig) -> Iterator[Part]:
    admin.create_and_update_topic_config(addr, config)
    if config.order:
        conf = f"{sub_command.fetch_broker_name_by_addr(admin, addr)}:{config.writeQueueNums}"
        admin.create_or_update_order_conf(config.topicName, conf, False)
        yield f"set broker orderConf. isOrder=true, orderConf=[{conf}]"
    yield f"create topic to {addr} success.\n"


def _on_cluster(admin: DefaultMQAdminExt, cluster: str, config: TopicConfig) -> Iterator[Part]:
    masters = yield from sub_command.fetch_master_addr_by_cluster_name(admin, cluster)
    for addr in masters:
        admin.create_and_update_topic_config(addr, config)
        yield f"create topic to {addr} success.\n"
    if config.order:
        names = sub_command.fetch_broker_name_by_cluster_name(admin, cluster)
        conf = ";".join(f"{name}:{config.writeQueueNums}" for name in names)
        admin.create_or_update_order_conf(config.topicName, conf, True)
        yield f"set cluster orderConf. isOrder=true, orderConf=[{conf}]"
