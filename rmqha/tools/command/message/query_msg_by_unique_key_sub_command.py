"""mqadmin queryMsgByUniqueKey."""
from collections.abc import Iterator

from rmqha.client.impl.mq_admin_impl import UNIQ_KEY_QUERY_MAX
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import consume_message_directly
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.message.message_report import print_msg
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.sub_command import SubCommand


class QueryMsgByUniqueKeySubCommand(SubCommand):
    """The message with its producer's unique id: shown, or consumed by a client (-g, -d).

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByUniqueKeySubCommand (4.9.8)
    """

    command_name = "queryMsgByUniqueKey"
    command_desc = "Query Message by Unique key"
    options = (
        option("i", "msgId", "Message Id", required=True),
        option("g", "consumerGroup", "consumer group name"),
        option("d", "clientId", "The consumer's client id"),
        option("t", "topic", "The topic of msg", required=True),
        flag("a", "showAll", "Print all message, the limit is 32"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers' indexes."""
        topic, msg_id = command_line.required("t"), command_line.required("i")
        if command_line.has_option("g") and command_line.has_option("d"):
            result = consume_message_directly(
                admin, command_line.required("g"), command_line.required("d"), msg_id, topic)
            yield Document(str(result), result)
            return
        found = admin.mq_admin.query_message_by_uniq_key(topic, msg_id, UNIQ_KEY_QUERY_MAX, begin=0)
        messages = sorted(found.message_list, key=lambda msg: msg.store_timestamp)
        for number, msg in enumerate(messages if command_line.has_option("a") else messages[:1]):
            yield from print_msg(admin, msg, with_offset_id=False, number=number)
