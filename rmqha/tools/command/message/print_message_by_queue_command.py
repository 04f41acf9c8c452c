"""mqadmin printMsgByQueue."""
from collections import Counter
from collections.abc import Iterator

from rmqha.client.results import PullStatus
from rmqha.common import util_all
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.queue_reader import PULLED_AT_ONCE, bounds, print_messages
from rmqha.tools.command.message.tool_clients import pull_consumer
from rmqha.tools.command.output import Part, Row
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand


class PrintMessageByQueueCommand(SubCommand):
    """The messages of one queue (-p true), and how many there are of each tag (-f true).

    Java: org.apache.rocketmq.tools.command.message.PrintMessageByQueueCommand (4.9.8)
    """

    command_name = "printMsgByQueue"
    command_desc = "Print Message Detail"
    options = (
        option("t", "topic", "topic name", required=True),
        option("a", "brokerName ", "broker name", required=True),
        option("i", "queueId ", "queue id", required=True),
        option("c", "charsetName ", "CharsetName(eg: UTF-8,GBK)"),
        option("s", "subExpression ", "Subscribe Expression(eg: TagA || TagB)"),
        option("b", "beginTimestamp ", "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
        option("e", "endTimestamp ", "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
        option("p", "print msg", "print msg. eg: true | false(default)"),
        option("d", "printBody ", "print body. eg: true | false(default)"),
        option("f", "calculate", "calculate by tag. eg: true | false(default)"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Pull until there is no more, or nothing that matches."""
        queue = MessageQueue(command_line.required("t"), command_line.required("a"), command_line.integer("i", bits=32))
        expression, charset_name = command_line.text("s", "*"), command_line.text("c", "UTF-8")
        tags: Counter[str] = Counter()
        with pull_consumer(admin) as consumer:
            offset, end = bounds(consumer, queue, command_line)
            while offset < end:
                try:
                    result = consumer.pull(queue, expression, offset, PULLED_AT_ONCE)
                except ASK_ERRORS as error:
                    yield stack_trace(error)
                    break
                offset = result.next_begin_offset
                if result.pull_status is not PullStatus.FOUND:
                    break
                tags.update(tag for msg in result.msg_found_list if (tag := msg.tags) and not util_all.is_blank(tag))
                if command_line.boolean("p"):
                    yield from print_messages(result.msg_found_list, charset_name, command_line.boolean("d"))
        if command_line.boolean("f"):
            yield from _counts(tags)


def _counts(tags: Counter[str]) -> Iterator[Row]:
    for tag in sorted(hash_map_order(tags), key=lambda tag: -tags[tag]):
        yield Row(f"Tag: {tag:<30} Count: {tags[tag]}\n", {"tag": tag, "count": tags[tag]})
