"""mqadmin updateNamesrvConfig."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.namesrv.get_namesrv_config_command import name_servers
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


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
        key, value, servers = command_line.text("k"), command_line.text("v"), name_servers(command_line)
        admin.update_name_server_config({key: value}, servers)
        told = "" if servers is None else f"[{', '.join(servers)}]"
        yield f"update name server config success!{told}\n{key} : {value}\n"
