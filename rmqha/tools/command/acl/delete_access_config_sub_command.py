"""mqadmin deleteAclConfig."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.acl.chosen_brokers import chosen_brokers
from rmqha.tools.command.commons_cli import CommandLine, OptionGroup, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class DeleteAccessConfigSubCommand(SubCommand):
    """Delete an account from the brokers' files.

    Java: org.apache.rocketmq.tools.command.acl.DeleteAccessConfigSubCommand (4.9.8)
    """

    command_name = "deleteAclConfig"
    command_alias = "deleteAccessConfig"
    command_desc = "Delete Acl Config Account in broker"
    options = (
        OptionGroup((
            option("b", "brokerAddr", "delete acl config account from which broker"),
            option("c", "clusterName", "delete acl config account from which cluster"),
        )),
        option("a", "accessKey", "set accessKey in acl config file for deleting which account", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """On a broker, or on all of a cluster."""
        access_key = command_line.required("a")
        addrs = yield from chosen_brokers(admin, command_line)
        for addr in addrs:
            admin.api.delete_access_config(addr, access_key, admin.timeout_millis)
            yield f"delete plain access config account from {addr} success.\n"
        yield f"account's accesskey is:{access_key}"
