"""mqadmin wipeWritePerm and addWritePerm."""
import abc
from collections.abc import Iterator

from rmqha.client.exception import MQClientException
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.stack_trace import print_stack_trace
from rmqha.tools.command.sub_command import SubCommand


class WritePermSubCommand(SubCommand):
    """Changes on each name server whether a broker's topics may be sent to."""

    options = (option("b", "brokerName", "broker name", required=True),)
    verb = ""

    @abc.abstractmethod
    def change(self, admin: DefaultMQAdminExt, namesrv_addr: str, broker_name: str) -> int:
        """Tell one name server; how many topics changed."""

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the name servers; one that refuses does not end it."""
        broker_name = command_line.required("b")
        for namesrv_addr in admin.get_name_server_address_list():
            place = f"{self.verb} write perm of broker[{broker_name}] in name server[{namesrv_addr}]"
            try:
                yield f"{place} OK, {self.change(admin, namesrv_addr, broker_name)}\n"
            except (MQClientException, RemotingException) as error:
                yield f"{place} Failed\n"
                print_stack_trace(error)


class WipeWritePermSubCommand(WritePermSubCommand):
    """Lets nobody send to a broker: each name server takes the permission from its topics.

    Java: org.apache.rocketmq.tools.command.namesrv.WipeWritePermSubCommand (4.9.8)
    """

    command_name = "wipeWritePerm"
    command_desc = "Wipe write perm of broker in all name server you defined in the -n param"
    verb = "wipe"

    def change(self, admin: DefaultMQAdminExt, namesrv_addr: str, broker_name: str) -> int:
        """Take it."""
        return admin.wipe_write_perm_of_broker(namesrv_addr, broker_name)


class AddWritePermSubCommand(WritePermSubCommand):
    """Lets all send to a broker again: each name server gives the permission to its topics.

    Java: org.apache.rocketmq.tools.command.namesrv.AddWritePermSubCommand (4.9.8)
    """

    command_name = "addWritePerm"
    command_desc = "Add write perm of broker in all name server you defined in the -n param"
    failure = "command failed"
    verb = "add"

    def change(self, admin: DefaultMQAdminExt, namesrv_addr: str, broker_name: str) -> int:
        """Give it."""
        return admin.add_write_perm_of_broker(namesrv_addr, broker_name)
