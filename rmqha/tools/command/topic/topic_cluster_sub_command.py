"""mqadmin topicClusterList."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

CLUSTERS = Table("%s\n", {"clusterName": ""})


class TopicClusterSubCommand(SubCommand):
    """The clusters that have a topic.

    Java: org.apache.rocketmq.tools.command.topic.TopicClusterSubCommand (4.9.8)
    """

    command_name = "topicClusterList"
    command_desc = "get cluster info for topic"
    options = (option("t", "topic", "topic name", required=True),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name server."""
        for cluster in sorted(admin.get_topic_cluster_list(command_line.required("t"))):
            yield CLUSTERS.row(cluster)
