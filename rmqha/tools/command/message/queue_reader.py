"""Printing the messages of queues."""
from collections.abc import Iterable, Iterator

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import MQClientException
from rmqha.common.compression import MissingBody
from rmqha.common.java import int32, string_hash_code
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.tools.command.commons_cli import CommandLine
from rmqha.tools.command.message.message_text import message_fields, message_text
from rmqha.tools.command.message.message_times import timestamp_format
from rmqha.tools.command.output import Row

PULLED_AT_ONCE = 32
NOT_PRINTED = "NOT PRINT BODY"


def print_messages(messages: Iterable[MessageExt], charset_name: str, print_body: bool) -> Iterator[Row]:
    """A line for each; nothing for a character set that is not known.

    Java: org.apache.rocketmq.tools.command.message.PrintMessageSubCommand#printMessage (4.9.8)
    """
    for msg in messages:
        fields = message_fields(msg)
        body = NOT_PRINTED
        if print_body:
            try:
                body = fields["body"] = body_text(msg.body, charset_name)
            except LookupError as error:
                raise MQClientException(f"{charset_name}: {error}") from error
        yield Row(f"MSGID: {msg.msg_id} {message_text(msg)} BODY: {body}\n", fields)


def body_text(body: bytes | memoryview, charset_name: str) -> str:
    """The body's text, or why there is none; LookupError for a character set that is not known."""
    return repr(body) if isinstance(body, MissingBody) else bytes(body).decode(charset_name, "replace")


def bounds(
    consumer: DefaultMQPullConsumer, queue: MessageQueue, command_line: CommandLine, begin: str = "b", end: str = "e"
) -> tuple[int, int]:
    """First offset and the one behind the last: the queue's, or those of the moments in two options."""
    admin = consumer.admin
    low, high = admin.min_offset(queue), admin.max_offset(queue)
    if command_line.has_option(begin):
        low = admin.search_offset(queue, timestamp_format(command_line.required(begin)))
    if command_line.has_option(end):
        high = admin.search_offset(queue, timestamp_format(command_line.required(end)))
    return low, high


def in_java_order(queues: Iterable[MessageQueue], route: TopicRouteData) -> list[MessageQueue]:
    """The queues as a HashSet that got them in the route's order iterates over them.

    Java: java.util.HashSet
    """
    places = {data.brokerName: place for place, data in enumerate(route.queueDatas)}
    queues = sorted(queues, key=lambda queue: (places.get(queue.brokerName, len(places)), queue))
    capacity = 16
    while len(queues) > capacity * 3 // 4:
        capacity *= 2
    return sorted(queues, key=lambda queue: _spread(_hash_code(queue)) & (capacity - 1))


def _spread(hash_code: int) -> int:
    unsigned = hash_code & 0xFFFF_FFFF
    return unsigned ^ unsigned >> 16


def _hash_code(queue: MessageQueue) -> int:
    """MessageQueue.hashCode."""
    result = 31 + string_hash_code(queue.brokerName or "")
    result = 31 * result + queue.queueId
    return int32(31 * result + string_hash_code(queue.topic or ""))
