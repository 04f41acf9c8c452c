"""mqadmin checkMsgSendRT."""
from collections.abc import Iterator

from rmqha.common.message.message import Message, MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.response_times import ResponseTimes
from rmqha.tools.command.message.tool_clients import body_of_size, new_producer
from rmqha.tools.command.output import Document, Part, Table
from rmqha.tools.command.sub_command import SubCommand

SENDS = Table("%-32s  %-4s  %-20s    %s\n", {
    "brokerName": "#Broker Name", "queueId": "#QID", "sendResult": "#Send Result", "rt": "#RT"})
DEFAULT_AMOUNT, DEFAULT_SIZE = 100, 128


class CheckMsgSendRTCommand(SubCommand):
    """Send messages to the queues of a topic in turn, and say how long each took (ms).

    Java: org.apache.rocketmq.tools.command.message.CheckMsgSendRTCommand (4.9.8)
    """

    command_name = "checkMsgSendRT"
    command_desc = "check message send response time"
    options = (
        option("t", "topic", "topic name", required=True),
        option("a", "amount", "message amount | default 100"),
        option("s", "size", "message size | default 128 Byte"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send one after the other."""
        amount = command_line.integer("a", DEFAULT_AMOUNT)
        msg = Message(command_line.required("t"), body_of_size(command_line.integer("s", DEFAULT_SIZE)))
        chosen, times = MessageQueue("", "", 0), ResponseTimes()

        def select(queues: list[MessageQueue], _msg: Message, number: int) -> MessageQueue:
            nonlocal chosen
            chosen = queues[number % len(queues)]
            return chosen

        yield SENDS.heading()
        with new_producer(admin) as producer:
            for number in range(amount):
                times.measure(lambda: producer.send(msg, selector=select, arg=number))  # noqa: B023, called at once
                ok = times.succeeded[-1]
                yield SENDS.row(chosen.brokerName, chosen.queueId, str(ok).lower(), times.millis[-1], sendResult=ok)
        yield Document(f"Avg RT: {times.average_text()}\n", {"avgRt": times.average()})
