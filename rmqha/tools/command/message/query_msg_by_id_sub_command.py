"""mqadmin queryMsgById."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS, consume_message_directly
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.message_report import print_msg
from rmqha.tools.command.message.tool_clients import new_producer
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand


class QueryMsgByIdSubCommand(SubCommand):
    """Messages by their offset ids: shown, consumed by a client (-g, -d), or sent again (-s true).

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByIdSubCommand (4.9.8)
    """

    command_name = "queryMsgById"
    command_desc = "Query Message by Id"
    options = (
        option("i", "msgId", "Message Id", required=True),
        option("g", "consumerGroup", "consumer group name"),
        option("d", "clientId", "The consumer's client id"),
        option("s", "sendMessage", "resend message"),
        option("u", "unitName", "unit name"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Go through the ids."""
        msg_ids = split_ids(command_line.required("i"))
        if command_line.has_option("g") and command_line.has_option("d"):
            for msg_id in msg_ids:
                yield _push_msg(admin, command_line.required("g"), command_line.required("d"), msg_id)
        elif command_line.has_option("s"):
            if command_line.boolean("s"):
                yield from _send_again(admin, msg_ids, command_line.text("u"))
        else:
            for msg_id in msg_ids:
                yield from print_msg(admin, admin.mq_admin.view_message(msg_id))


def split_ids(text: str) -> list[str]:
    """The ids between the commas, without blanks around them and without empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _push_msg(admin: DefaultMQAdminExt, consumer_group: str, client_id: str, msg_id: str) -> Part:
    try:
        result = consume_message_directly(admin, consumer_group, client_id, msg_id)
    except ASK_ERRORS as error:
        return stack_trace(error)
    return Document(str(result), result)


def _send_again(admin: DefaultMQAdminExt, msg_ids: list[str], unit_name: str | None) -> Iterator[Part]:
    producer = new_producer(admin, "ReSendMsgById")
    producer.unit_name = unit_name
    with producer:
        for msg_id in msg_ids:
            try:
                msg = admin.mq_admin.view_message(msg_id)
                yield f"prepare resend msg. originalMsgId={msg_id}"
                result = producer.send(msg)
            except ASK_ERRORS as error:
                yield stack_trace(error)
            else:
                yield Document(str(result), {"originalMsgId": msg_id, "msgId": result.msg_id,
                                             "offsetMsgId": result.offset_msg_id,
                                             "sendStatus": result.send_status.name})
