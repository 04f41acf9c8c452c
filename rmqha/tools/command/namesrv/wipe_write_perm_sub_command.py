"""mqadmin wipeWritePerm."""
from collections.abc import Iterator

from rmqha.client.exception import MQClientException
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.stack_trace import print_stack_trace
from rmqha.tools.command.sub_command import SubCommand


class WipeWritePermSubCommand(SubCommand):
    """Lets nobody send to a broker: each name server takes the permission from its topics.

    Java: org.apache.rocketmq.tools.command.namesrv.WipeWritePermSubCommand (4.9.8)
    """

    command_name = "wipeWritePerm"
    command_desc = "Wipe write perm of broker in all name server you defined in the -n param"
    options = (option("b", "brokerName", "broker name", required=True),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the name servers; one that refuses does not end it."""
        broker_name = command_line.text("b")
        for namesrv_addr in admin.get_name_server_address_list():
            place = f"wipe write perm of broker[{broker_name}] in name server[{namesrv_addr}]"
            try:
                yield f"{place} OK, {admin.wipe_write_perm_of_broker(namesrv_addr, broker_name)}\n"
            except (MQClientException, RemotingException) as error:
                yield f"{place} Failed\n"
                print_stack_trace(error)
