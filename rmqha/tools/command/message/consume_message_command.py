"""mqadmin consumeMessage."""
from collections.abc import Iterator
from dataclasses import dataclass

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.results import PullStatus
from rmqha.common import mix_all, util_all
from rmqha.common.message.message import MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.message_times import timestamp_format
from rmqha.tools.command.message.queue_reader import in_java_order, print_messages
from rmqha.tools.command.message.tool_clients import pull_consumer
from rmqha.tools.command.output import Part
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand

DEFAULT_COUNT = 128


@dataclass(frozen=True)
class Wanted:
    """What to consume: `queue` None for all of the topic; times are ms, 0 for none."""

    topic: str
    count: int
    queue: MessageQueue | None
    offset: int
    begin: int
    end: int


class ConsumeMessageCommand(SubCommand):
    """Print the oldest messages of a topic, of a queue, or from an offset or a time on.

    Java: org.apache.rocketmq.tools.command.message.ConsumeMessageCommand (4.9.8)
    """

    command_name = "consumeMessage"
    command_desc = "Consume message"
    options = (
        option("t", "topic", "Topic name", required=True),
        option("b", "brokerName", "Broker name"),
        option("i", "queueId", "Queue Id"),
        option("o", "offset", "Queue offset"),
        option("g", "consumerGroup", "Consumer group name"),
        option("s", "beginTimestamp ", "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
        option("e", "endTimestamp ", "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
        option("c", "MessageNumber", "Number of message to be consumed"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Say what is wrong with the options, or pull."""
        wanted = wanted_messages(command_line)
        if isinstance(wanted, str):
            yield wanted
            return
        with pull_consumer(admin, command_line.text("g", mix_all.TOOLS_CONSUMER_GROUP)) as consumer:
            try:
                if wanted.queue is None:
                    yield from _consume_topic(admin, consumer, wanted)
                else:
                    yield from _consume_queue(consumer, wanted.queue, wanted)
            except ASK_ERRORS as error:
                yield stack_trace(error)


def wanted_messages(command_line: CommandLine) -> Wanted | str:
    """What the options ask for, or what is wrong with them, in the original's order and words."""
    topic = command_line.required("t")
    count = command_line.integer("c", DEFAULT_COUNT)
    if count <= 0:
        return "Please input a positive messageNumber!"
    if command_line.has_option("i") and not command_line.has_option("b"):
        return "Please set the brokerName before queueId!"
    if command_line.has_option("o") and not command_line.has_option("i"):
        return "Please set queueId before offset!"
    offset, now = command_line.integer("o"), util_all.current_time_millis()
    begin, end = (timestamp_format(command_line.required(name)) if command_line.has_option(name) else 0
                  for name in ("s", "e"))
    if begin > now:
        return "Please set the beginTimestamp before now!"
    if end > now:
        return "Please set the endTimestamp before now!"
    if command_line.has_option("e") and begin > end:
        return "Please make sure that the beginTimestamp is less than or equal to the endTimestamp"
    queue = None
    if command_line.has_option("i"):
        queue = MessageQueue(topic, command_line.required("b"), command_line.integer("i", bits=32))
    return Wanted(topic, count, queue, offset, begin, end)


def _bounds(consumer: DefaultMQPullConsumer, queue: MessageQueue, wanted: Wanted) -> tuple[int, int]:
    low, high = consumer.admin.min_offset(queue), consumer.admin.max_offset(queue)
    if wanted.begin > 0:
        low = consumer.admin.search_offset(queue, wanted.begin)
    if wanted.end > 0:
        high = consumer.admin.search_offset(queue, wanted.end)
    return low, high


def _consume_topic(admin: DefaultMQAdminExt, consumer: DefaultMQPullConsumer, wanted: Wanted) -> Iterator[Part]:
    left = wanted.count
    queues = consumer.fetch_subscribe_message_queues(wanted.topic)
    for queue in in_java_order(queues, admin.examine_topic_route_info(wanted.topic)):
        if left == 0:
            return
        low, high = _bounds(consumer, queue, wanted)
        if high - low > left:
            yield f"The older {left} message of the {queue.queueId} queue will be provided\n"
            high, left = low + left - 1, 0
        else:
            left -= high - low + 1  # as the original counts: one more than there are
        yield from _pull_message_by_queue(consumer, queue, low, high)


def _consume_queue(consumer: DefaultMQPullConsumer, queue: MessageQueue, wanted: Wanted) -> Iterator[Part]:
    low, high = _bounds(consumer, queue, wanted)
    if wanted.offset > high:
        yield f"{queue} no matched msg, offset={wanted.offset}\n"
        return
    low = max(low, wanted.offset)
    if high - low > wanted.count:
        yield f"The oldler {wanted.count} message will be provided\n"
        high = low + wanted.count - 1
    yield from _pull_message_by_queue(consumer, queue, low, high)


def _pull_message_by_queue(
    consumer: DefaultMQPullConsumer, queue: MessageQueue, offset: int, last: int
) -> Iterator[Part]:
    while offset <= last:
        result = consumer.pull(queue, "*", offset, last - offset + 1)
        offset = result.next_begin_offset
        status = result.pull_status
        if status is PullStatus.FOUND:
            yield "Consume ok\n"
            yield from print_messages(result.msg_found_list, "UTF-8", True)
        elif status is PullStatus.NO_MATCHED_MSG:
            yield f"{queue} no matched msg. status={status.name}, offset={offset}\n"
        else:
            yield f"{queue} print msg finished. status={status.name}, offset={offset}\n"
            return
