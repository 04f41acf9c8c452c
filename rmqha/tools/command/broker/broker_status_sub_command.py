"""mqadmin brokerStatus."""
from collections.abc import Iterator

from rmqha.client.exception import MQBrokerException
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.stack_trace import print_stack_trace
from rmqha.tools.command.sub_command import SubCommand

VALUES = Table("%-32s: %s\n", {"key": "", "value": ""})
VALUES_OF_BROKERS = Table("%-24s %-32s: %s\n", {"brokerAddr": "", "key": "", "value": ""})


class BrokerStatusSubCommand(SubCommand):
    """What a broker, or all brokers of a cluster, tell of themselves.

    Java: org.apache.rocketmq.tools.command.broker.BrokerStatusSubCommand (4.9.8)
    """

    command_name = "brokerStatus"
    command_desc = "Fetch broker runtime status data"
    options = (
        option("b", "brokerAddr", "Broker address"),
        option("c", "clusterName", "which cluster"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers; with -c one that does not answer does not end it."""
        addr, cluster = command_line.text("b"), command_line.text("c")
        if addr is not None:
            for key, value in sorted(admin.fetch_broker_runtime_stats(addr).table.items()):
                yield VALUES.row(key, value, brokerAddr=addr)
        elif cluster is not None:
            brokers = yield from command_util.fetch_master_and_slave_addr_by_cluster_name(admin, cluster)
            for broker in brokers:
                try:
                    table = admin.fetch_broker_runtime_stats(broker).table
                except (MQBrokerException, RemotingException) as error:
                    print_stack_trace(error)
                    continue
                for key, value in sorted(table.items()):
                    yield VALUES_OF_BROKERS.row(broker, key, value)
