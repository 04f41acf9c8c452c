"""mqadmin printMsg."""
from collections.abc import Iterator

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.results import PullStatus
from rmqha.common.message.message import MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.queue_reader import PULLED_AT_ONCE, bounds, in_java_order, print_messages
from rmqha.tools.command.message.tool_clients import pull_consumer
from rmqha.tools.command.output import Part
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand

_LINE = "--------------------------------------------------------\n"


class PrintMessageSubCommand(SubCommand):
    """All messages of a topic, or those of some time, or with some tags.

    Java: org.apache.rocketmq.tools.command.message.PrintMessageSubCommand (4.9.8)
    """

    command_name = "printMsg"
    command_desc = "Print Message Detail"
    options = (
        option("t", "topic", "topic name", required=True),
        option("c", "charsetName ", "CharsetName(eg: UTF-8,GBK)"),
        option("s", "subExpression ", "Subscribe Expression(eg: TagA || TagB)"),
        option("b", "beginTimestamp ", "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
        option("e", "endTimestamp ", "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
        option("d", "printBody ", "print body"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Pull queue by queue."""
        with pull_consumer(admin) as consumer:
            topic = command_line.required("t")
            queues = consumer.fetch_subscribe_message_queues(topic)
            for queue in in_java_order(queues, admin.examine_topic_route_info(topic)):
                low, high = bounds(consumer, queue, command_line)
                yield f"minOffset={low}, maxOffset={high}, {queue}\n"
                yield from _print_queue(consumer, queue, low, high, command_line)
                yield _LINE


def _print_queue(
    consumer: DefaultMQPullConsumer, queue: MessageQueue, offset: int, end: int, command_line: CommandLine
) -> Iterator[Part]:
    expression, charset_name = command_line.text("s", "*"), command_line.text("c", "UTF-8")
    print_body = command_line.boolean("d", True)
    while offset < end:
        try:
            result = consumer.pull(queue, expression, offset, PULLED_AT_ONCE)
        except ASK_ERRORS as error:
            yield stack_trace(error)
            return
        offset = result.next_begin_offset
        status = result.pull_status
        if status is PullStatus.FOUND:
            yield from print_messages(result.msg_found_list, charset_name, print_body)
        elif status is PullStatus.NO_MATCHED_MSG:
            yield f"{queue} no matched msg. status={status.name}, offset={offset}\n"
        else:
            yield f"{queue} print msg finished. status={status.name}, offset={offset}\n"
            return
