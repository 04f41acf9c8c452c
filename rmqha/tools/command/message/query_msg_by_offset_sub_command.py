"""mqadmin queryMsgByOffset."""
from collections.abc import Iterator

from rmqha.client.results import PullStatus
from rmqha.common.message.message import MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.message_report import print_msg
from rmqha.tools.command.message.tool_clients import pull_consumer
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class QueryMsgByOffsetSubCommand(SubCommand):
    """The message at an offset of a queue; nothing when there is none.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByOffsetSubCommand (4.9.8)
    """

    command_name = "queryMsgByOffset"
    command_desc = "Query Message by offset"
    options = (
        option("t", "topic", "topic name", required=True),
        option("b", "brokerName", "Broker Name", required=True),
        option("i", "queueId", "Queue Id", required=True),
        option("o", "offset", "Queue Offset", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Pull one message."""
        queue = MessageQueue(command_line.required("t"), command_line.required("b"), command_line.integer("i", bits=32))
        with pull_consumer(admin) as consumer:
            result = consumer.pull(queue, "*", command_line.integer("o"), 1)
        if result.pull_status is PullStatus.FOUND:
            yield from print_msg(admin, result.msg_found_list[0])
