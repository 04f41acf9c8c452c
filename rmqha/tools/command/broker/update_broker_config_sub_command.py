"""mqadmin updateBrokerConfig."""
from collections.abc import Iterator

from rmqha.client.exception import MQBrokerException
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.stack_trace import print_stack_trace
from rmqha.tools.command.sub_command import SubCommand


class UpdateBrokerConfigSubCommand(SubCommand):
    """Changes a setting of a broker, or of all masters of a cluster, while they run.

    Java: org.apache.rocketmq.tools.command.broker.UpdateBrokerConfigSubCommand (4.9.8)
    """

    command_name = "updateBrokerConfig"
    command_desc = "Update broker's config"
    options = (
        option("b", "brokerAddr", "update which broker"),
        option("c", "clusterName", "update which cluster"),
        option("k", "key", "config key", required=True),
        option("v", "value", "config value", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the brokers; with -c one that refuses does not end it."""
        properties = {command_line.required("k"): command_line.required("v")}
        if command_line.has_option("b"):
            addr = command_line.required("b")
            admin.update_broker_config(addr, properties)
            yield f"update broker config success, {addr}\n"
        elif command_line.has_option("c"):
            masters = yield from command_util.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
            for addr in masters:
                try:
                    admin.update_broker_config(addr, properties)
                    yield f"update broker config success, {addr}\n"
                except (MQBrokerException, RemotingException) as error:
                    print_stack_trace(error)
        else:
            yield self.help()
