"""mqadmin sendMessage."""
from collections.abc import Iterator

from rmqha.common.message.message import Message, MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.tool_clients import new_producer
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

RESULT = Table("%-32s  %-4s  %-20s    %s\n", {
    "brokerName": "#Broker Name", "queueId": "#QID", "sendStatus": "#Send Result", "msgId": "#MsgId"})


class SendMessageCommand(SubCommand):
    """Send one message, to any queue or to one.

    Java: org.apache.rocketmq.tools.command.message.SendMessageCommand (4.9.8)
    """

    command_name = "sendMessage"
    command_desc = "Send a message"
    options = (
        option("t", "topic", "Topic name", required=True),
        option("p", "body", "UTF-8 string format of the message body", required=True),
        option("k", "key", "Message keys"),
        option("c", "tags", "Message tags"),
        option("b", "broker", "Send message to target broker"),
        option("i", "qid", "Send message to target queue"),
        option("m", "msgTraceEnable", "Message Trace Enable, Default: false"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send, and say where it went."""
        topic, broker_name = command_line.required("t"), command_line.text("b")
        if command_line.has_option("i") and broker_name is None:
            yield "Broker name must be set if the queue is chosen!"
            return
        queue_id = command_line.integer("i", -1, 32)
        queue = MessageQueue(topic, broker_name, queue_id) if broker_name is not None and queue_id > -1 else None
        msg = Message(topic, command_line.required("p").encode("utf-8"), command_line.text("c"), command_line.text("k"))
        with new_producer(admin, trace=command_line.boolean("m")) as producer:
            result = producer.send(msg, queue=queue)
        yield RESULT.heading()
        yield RESULT.row(result.message_queue.brokerName, result.message_queue.queueId, result.send_status.name,
                         result.msg_id, offsetMsgId=result.offset_msg_id, queueOffset=result.queue_offset)
