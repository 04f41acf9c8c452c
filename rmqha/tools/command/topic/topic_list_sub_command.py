"""mqadmin topicList."""
import logging
from collections.abc import Iterator

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import mix_all
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, flag
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

log = logging.getLogger("RocketmqTools")

TOPICS = Table("%s\n", {"topic": ""})
GROUPS = Table("%-20.20s  %-64.64s  %-64.64s\n", {
    "clusterName": "#Cluster Name", "topic": "#Topic", "consumerGroup": "#Consumer Group"},
    heading_format="%-20s  %-48s  %-48s\n")
SPECIAL = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX)


class TopicListSubCommand(SubCommand):
    """All topics; with -c their clusters and consumer groups.

    Java: org.apache.rocketmq.tools.command.topic.TopicListSubCommand (4.9.8)
    """

    command_name = "topicList"
    command_desc = "Fetch all topic list from name server"
    options = (flag("c", "clusterModel", "clusterModel"),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name server, and with -c a broker of each topic."""
        # Differs: topics stand sorted, where Java's stand as its hash table has them
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
