"""mqadmin deleteKvConfig."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


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
        admin.delete_kv_config(command_line.text("s"), command_line.text("k"))
        yield "delete kv config from namespace success.\n"
