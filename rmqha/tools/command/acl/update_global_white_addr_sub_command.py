"""mqadmin updateGlobalWhiteAddr."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.acl.chosen_brokers import chosen_brokers
from rmqha.tools.command.commons_cli import CommandLine, OptionGroup, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class UpdateGlobalWhiteAddrSubCommand(SubCommand):
    """Set which addresses need no account.

    Java: org.apache.rocketmq.tools.command.acl.UpdateGlobalWhiteAddrSubCommand (4.9.8)
    """

    command_name = "updateGlobalWhiteAddr"
    command_desc = "Update global white address for acl Config File in broker"
    options = (
        OptionGroup((
            option("b", "brokerAddr", "update global white address to which broker"),
            option("c", "clusterName", "update global white address to which cluster"),
        )),
        option("g", "globalWhiteRemoteAddresses", "set globalWhiteRemoteAddress list,eg: 10.10.103.*,192.168.0.*",
               required=True),
        option("p", "aclFileFullPath", "update global white address of specified acl file,eg: /xxx/plain_test.yml"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """On a broker, or on all of a cluster."""
        addresses, path = command_line.required("g"), command_line.text("p")
        addrs = yield from chosen_brokers(admin, command_line)
        for addr in addrs:
            admin.api.update_global_white_addrs_config(addr, addresses, path, admin.timeout_millis)
            yield f"update global white remote addresses to {addr} success.\n"
