"""mqadmin deleteSubGroup."""
from collections.abc import Iterator

from rmqha.common import mix_all
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.command.topic.delete_topic_sub_command import delete_topic


class DeleteSubscriptionGroupCommand(SubCommand):
    """Delete a group; in a whole cluster with its retry and dead letter topics.

    Java: org.apache.rocketmq.tools.command.consumer.DeleteSubscriptionGroupCommand (4.9.8)
    """

    command_name = "deleteSubGroup"
    command_desc = "Delete subscription group from broker."
    options = (
        option("b", "brokerAddr", "delete subscription group from which broker"),
        option("c", "clusterName", "delete subscription group from which cluster"),
        option("g", "groupName", "subscription group name", required=True),
        option("r", "removeOffset", "remove offset"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """On a broker, or on all masters of a cluster."""
        group, remove_offset = command_line.required("g"), command_line.boolean("r")
        if command_line.has_option("b"):
            addr = command_line.required("b")
            admin.delete_subscription_group(addr, group, remove_offset)
            yield f"delete subscription group [{group}] from broker [{addr}] success.\n"
        elif command_line.has_option("c"):
            cluster = command_line.required("c")
            addrs = yield from command_util.fetch_master_addr_by_cluster_name(admin, cluster)
            for addr in addrs:
                admin.delete_subscription_group(addr, group, remove_offset)
                yield f"delete subscription group [{group}] from broker [{addr}] in cluster [{cluster}] success.\n"
            try:
                yield from delete_topic(admin, cluster, mix_all.get_retry_topic(group))
                yield from delete_topic(admin, cluster, mix_all.DLQ_GROUP_TOPIC_PREFIX + group)
            except ASK_ERRORS as error:
                yield stack_trace(error)
        else:
            yield self.help()
