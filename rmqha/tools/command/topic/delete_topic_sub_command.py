"""mqadmin deleteTopic."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


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
        """Tell the brokers first, then the name servers."""
        yield from delete_topic(admin, command_line.required("c"), command_line.required("t"))


def delete_topic(admin: DefaultMQAdminExt, cluster_name: str, topic: str) -> Iterator[Part]:
    """Delete a topic everywhere in a cluster; what to print of it."""
    masters = yield from command_util.fetch_master_addr_by_cluster_name(admin, cluster_name)
    admin.delete_topic_in_broker(masters, topic)
    yield f"delete topic [{topic}] from cluster [{cluster_name}] success.\n"
    admin.delete_topic_in_name_server(None, topic, cluster_name)
    yield f"delete topic [{topic}] from NameServer success.\n"
