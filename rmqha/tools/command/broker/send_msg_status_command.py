"""mqadmin sendMsgStatus."""
import time
from collections.abc import Iterator

from rmqha.common import util_all
from rmqha.common.message.message import Message
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.tool_clients import body_of_size, new_producer
from rmqha.tools.command.output import Part, Row
from rmqha.tools.command.sub_command import SubCommand

DEFAULT_SIZE, DEFAULT_COUNT = 128, 50
FIRST_SIZE = 16
_PIECE = b"hello jodie"


class SendMsgStatusCommand(SubCommand):
    """Send messages to a broker's own topic, and say how long each took (ms).

    Java: org.apache.rocketmq.tools.command.broker.SendMsgStatusCommand (4.9.8)
    """

    command_name = "sendMsgStatus"
    command_desc = "send msg to broker."
    options = (
        option("b", "brokerName", "Broker Name", required=True),
        option("s", "messageSize", "Message Size, Default: 128"),
        option("c", "count", "send message count, Default: 50"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send one after the other; the first is not told."""
        topic, size = command_line.required("b"), command_line.integer("s", DEFAULT_SIZE, 32)
        producer = new_producer(admin, "PID_SMSC")
        producer.instance_name = f"PID_SMSC_{util_all.current_time_millis()}"
        with producer:
            producer.send(build_message(topic, FIRST_SIZE))
            for _ in range(command_line.integer("c", DEFAULT_COUNT, 32)):
                begin_ns = time.monotonic_ns()
                result = producer.send(build_message(topic, size))
                millis = (time.monotonic_ns() - begin_ns) // 1_000_000
                yield Row(f"rt={millis}ms, SendResult={result}\n", {
                    "rt": millis, "sendStatus": result.send_status.name, "msgId": result.msg_id,
                    "offsetMsgId": result.offset_msg_id, "brokerName": result.message_queue.brokerName,
                    "queueId": result.message_queue.queueId, "queueOffset": result.queue_offset})


def build_message(topic: str, message_size: int) -> Message:
    """A message of at least so many bytes."""
    return Message(topic, body_of_size(message_size, _PIECE))
