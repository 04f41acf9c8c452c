"""mqadmin getNamesrvConfig."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine
from rmqha.tools.command.output import Heading, Part, Table
from rmqha.tools.command.sub_command import SubCommand

SETTINGS = Table("%-50s=  %s\n", {"key": "", "value": ""})


class GetNamesrvConfigCommand(SubCommand):
    """All settings of the name servers.

    Java: org.apache.rocketmq.tools.command.namesrv.GetNamesrvConfigCommand (4.9.8)
    """

    command_name = "getNamesrvConfig"
    command_desc = "Get configs of name server."

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name servers."""
        # Differs: settings stand sorted, where Java's stand as its hash table has them
        for addr, settings in admin.get_name_server_config(name_servers(command_line)).items():
            yield Heading(f"============{addr}============\n")
            for key, value in sorted(settings.items()):
                yield SETTINGS.row(key, value, namesrvAddr=addr)


def name_servers(command_line: CommandLine) -> list[str] | None:
    """Those of -n; None without it."""
    text = command_line.text("n")
    return text.split(";") if text else None
