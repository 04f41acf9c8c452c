"""mqadmin updateKvConfig and deleteKvConfig."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class UpdateKvConfigCommand(SubCommand):
    """Sets a value in the table of all name servers.

    Java: org.apache.rocketmq.tools.command.namesrv.UpdateKvConfigCommand (4.9.8)
    """

    command_name = "updateKvConfig"
    command_desc = "Create or update KV config."
    options = (
        option("s", "namespace", "set the namespace", required=True),
        option("k", "key", "set the key name", required=True),
        option("v", "value", "set the key value", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell all name servers."""
        namespace, key, value = (command_line.required(name) for name in "skv")
        admin.create_and_update_kv_config(namespace, key, value)
        yield "create or update kv config to namespace success.\n"


class DeleteKvConfigCommand(SubCommand):
    """Deletes a value in the table of all name servers.

    Java: org.apache.rocketmq.tools.command.namesrv.DeleteKvConfigCommand (4.9.8)
    """

    command_name = "deleteKvConfig"
    command_desc = "Delete KV config."
    options = (
        option("s", "namespace", "set the namespace", required=True),
        option("k", "key", "set the key name", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell all name servers."""
        admin.delete_kv_config(command_line.required("s"), command_line.required("k"))
        yield "delete kv config from namespace success.\n"
