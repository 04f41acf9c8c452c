"""mqadmin getControllerMetaData."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Row, java_text
from rmqha.tools.command.sub_command import SubCommand


class GetControllerMetaDataSubCommand(SubCommand):
    """The group of a controller, who leads it, and its members.

    Java: org.apache.rocketmq.tools.command.controller.GetControllerMetaDataSubCommand (5.1.4)
    """

    command_name = "getControllerMetaData"
    command_desc = "Get controller cluster's metadata."
    options = (option("a", "controllerAddress", "the address of controller", required=True),)
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the controller."""
        found = admin.get_controller_meta_data(command_line.required("a"))
        peers = [peer for peer in (found.peers or "").split(";") if peer]
        text = (f"\n#ControllerGroup\t{java_text(found.group)}"
                f"\n#ControllerLeaderId\t{java_text(found.controllerLeaderId)}"
                f"\n#ControllerLeaderAddress\t{java_text(found.controllerLeaderAddress)}")
        yield Row(text + "".join(f"\n#Peer:\t{peer}" for peer in peers) + "\n", {
            "group": found.group, "controllerLeaderId": found.controllerLeaderId,
            "controllerLeaderAddress": found.controllerLeaderAddress, "peers": peers})
