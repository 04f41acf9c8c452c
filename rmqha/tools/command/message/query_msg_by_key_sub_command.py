"""mqadmin queryMsgByKey."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

MESSAGES = Table("%-50s %4d %40d\n", {"msgId": "#Message ID", "queueId": "#QID", "queueOffset": "#Offset"})
MAX_MESSAGES = 64
FOREVER_MS = 0x7FFF_FFFF_FFFF_FFFF


class QueryMsgByKeySubCommand(SubCommand):
    """The messages of a topic with a key, 64 of each broker at most.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByKeySubCommand (4.9.8)
    """

    command_name = "queryMsgByKey"
    command_desc = "Query Message by Key"
    options = (
        option("t", "topic", "topic name", required=True),
        option("k", "msgKey", "Message Key", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers' indexes."""
        found = admin.mq_admin.query_message(
            command_line.required("t"), command_line.required("k"), MAX_MESSAGES, 0, FOREVER_MS)
        yield MESSAGES.heading()
        for msg in found.message_list:
            yield MESSAGES.row(msg.msg_id, msg.queue_id, msg.queue_offset)
