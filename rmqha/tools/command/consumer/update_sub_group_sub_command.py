"""mqadmin updateSubGroup."""
from collections.abc import Iterator

from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand


class UpdateSubGroupSubCommand(SubCommand):
    """Make a group, or set it anew: what is not given gets its default.

    Java: org.apache.rocketmq.tools.command.consumer.UpdateSubGroupSubCommand (4.9.8)
    """

    command_name = "updateSubGroup"
    command_desc = "Update or create subscription group"
    options = (
        option("b", "brokerAddr", "create subscription group to which broker"),
        option("c", "clusterName", "create subscription group to which cluster"),
        option("g", "groupName", "consumer group name", required=True),
        option("s", "consumeEnable", "consume enable"),
        option("m", "consumeFromMinEnable", "from min offset"),
        option("d", "consumeBroadcastEnable", "broadcast"),
        option("q", "retryQueueNums", "retry queue nums"),
        option("r", "retryMaxTimes", "retry max times"),
        option("i", "brokerId", "consumer from which broker id"),
        option("w", "whichBrokerWhenConsumeSlowly", "which broker id when consume slowly"),
        option("a", "notifyConsumerIdsChanged", "notify consumerId changed"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """On a broker, or on all masters of a cluster."""
        config = subscription_group_config(command_line)
        if command_line.has_option("b"):
            addr = command_line.required("b")
            admin.create_and_update_subscription_group_config(addr, config)
            yield f"create subscription group to {addr} success.\n"
        elif command_line.has_option("c"):
            addrs = yield from command_util.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
            for addr in addrs:
                try:
                    admin.create_and_update_subscription_group_config(addr, config)
                except ASK_ERRORS as error:
                    yield stack_trace(error)
                else:
                    yield f"create subscription group to {addr} success.\n"
        else:
            yield self.help()
            return
        yield Document(str(config), config)


def subscription_group_config(command_line: CommandLine) -> SubscriptionGroupConfig:
    """The group that the options describe."""
    default = SubscriptionGroupConfig(consumeFromMinEnable=False, consumeBroadcastEnable=False)
    return SubscriptionGroupConfig(
        groupName=command_line.required("g"),
        consumeEnable=command_line.boolean("s", default.consumeEnable),
        consumeFromMinEnable=command_line.boolean("m", default.consumeFromMinEnable),
        consumeBroadcastEnable=command_line.boolean("d", default.consumeBroadcastEnable),
        retryQueueNums=command_line.integer("q", default.retryQueueNums, 32),
        retryMaxTimes=command_line.integer("r", default.retryMaxTimes, 32),
        brokerId=command_line.integer("i", default.brokerId),
        whichBrokerWhenConsumeSlowly=command_line.integer("w", default.whichBrokerWhenConsumeSlowly),
        notifyConsumerIdsChangedEnable=command_line.boolean("a", default.notifyConsumerIdsChangedEnable),
    )
