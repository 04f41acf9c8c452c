"""mqadmin getBrokerConfig."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Heading, Part, Table
from rmqha.tools.command.sub_command import SubCommand

SETTINGS = Table("%-50s=  %s\n", {"key": "", "value": ""})


class GetBrokerConfigCommand(SubCommand):
    """All settings of a broker, or of all brokers of a cluster.

    Java: org.apache.rocketmq.tools.command.broker.GetBrokerConfigCommand (4.9.8)
    """

    command_name = "getBrokerConfig"
    command_desc = "Get broker config by cluster or special broker!"
    options = (
        option("b", "brokerAddr", "get which broker"),
        option("c", "clusterName", "get which cluster"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers, each master before its slaves."""
        if command_line.has_option("b"):
            addr = command_line.required("b")
            yield from _settings(admin, addr, f"============{addr}============\n")
        elif command_line.has_option("c"):
            brokers = yield from command_util.fetch_master_and_slave_distinguish(admin, command_line.required("c"))
            for master, slaves in brokers:
                # Differs: slaves without a master are shown; the original asks a name server for it, and fails
                if master is not None:
                    yield from _settings(admin, master, f"============Master: {master}============\n")
                for slave in slaves:
                    yield from _settings(
                        admin, slave, f"============My Master: {master or 'null'}=====Slave: {slave}============\n")


def _settings(admin: DefaultMQAdminExt, addr: str, title: str) -> Iterator[Part]:
    yield Heading(title)
    # Differs: settings stand sorted, where Java's stand as its hash table has them
    for key, value in sorted(admin.get_broker_config(addr).items()):
        yield SETTINGS.row(key, value, brokerAddr=addr)
    yield Heading("\n")
