"""mqadmin getNamesrvConfig and updateNamesrvConfig."""
from collections.abc import Iterator, Mapping

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Heading, Part, Table
from rmqha.tools.command.sub_command import SubCommand

SETTINGS = Table("%-50s=  %s\n", {"key": "", "value": ""})


def settings_of(address_name: str, servers: Mapping[str, Mapping[str, str]]) -> Iterator[Part]:
    """The settings of each server, by address; `address_name` is the name of that in JSON."""
    # Differs: settings stand sorted, where Java's stand as its hash table has them
    for address, settings in servers.items():
        yield Heading(f"============{address}============\n")
        for key, value in sorted(settings.items()):
            yield SETTINGS.row(key, value, **{address_name: address})


class GetNamesrvConfigCommand(SubCommand):
    """All settings of the name servers.

    Java: org.apache.rocketmq.tools.command.namesrv.GetNamesrvConfigCommand (4.9.8)
    """

    command_name = "getNamesrvConfig"
    command_desc = "Get configs of name server."

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name servers."""
        yield from settings_of("namesrvAddr", admin.get_name_server_config(name_servers(command_line)))


class UpdateNamesrvConfigCommand(SubCommand):
    """Changes a setting of the name servers while they run.

    Java: org.apache.rocketmq.tools.command.namesrv.UpdateNamesrvConfigCommand (4.9.8)
    """

    command_name = "updateNamesrvConfig"
    command_desc = "Update configs of name server."
    options = (
        option("k", "key", "config key", required=True),
        option("v", "value", "config value", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the name servers."""
        key, value, servers = command_line.required("k"), command_line.required("v"), name_servers(command_line)
        admin.update_name_server_config({key: value}, servers)
        told = "" if servers is None else f"[{', '.join(servers)}]"
        yield f"update name server config success!{told}\n{key} : {value}\n"


def name_servers(command_line: CommandLine) -> list[str] | None:
    """Those of -n; None without it."""
    text = command_line.text("n")
    return text.split(";") if text else None
