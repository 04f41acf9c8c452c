"""mqadmin commands that print messages and units of consume queues.

Commands: consumeMessage, printMsgByQueue, printMsg, queryCq.

- `timestamp_format`: parses a point in time given on the command line.
- `message_text`, `message_fields`: a stored message as a line of text, and as fields for JSON.
- `print_messages`, `bounds`, `in_java_order`: shared by the commands that print the messages of queues.
"""
import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import CLIENT_ERRORS, MQClientException
from rmqha.client.results import PullStatus
from rmqha.common import mix_all, util_all
from rmqha.common.compression import MissingBody
from rmqha.common.java import hash_map_order, int32, string_hash_code
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message.message import MessageClientExt, MessageExt, MessageQueue
from rmqha.common.message.message_layout import Host
from rmqha.common.protocol.client_bodies import QueryConsumeQueueResponseBody
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_track import stack_trace
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, option
from rmqha.tools.command.message_send import pull_consumer
from rmqha.tools.command.sub_command import Document, Part, Row, SubCommand

_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})#([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,3})\Z")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")


class TimestampError(ValueError):
    """A text that is not a valid point in time."""


def timestamp_format(value: str) -> int:
    """Return ms for milliseconds since the epoch, or for `yyyy-MM-dd#HH:mm:ss:SSS` in local time; else TimestampError.

    Java: org.apache.rocketmq.tools.command.message.PrintMessageSubCommand#timestampFormat (4.9.8)
    """
    if _NUMBER.match(value) and -1 << 63 <= int(value) < 1 << 63:
        return int(value)
    found = _DATE.match(value)
    # Differs: an invalid text or date is reported; the original fails with a NullPointerException, or takes the 45th of
    # December for a day in January
    try:
        if found is not None:
            year, month, day, hour, minute, second, millis = map(int, found.groups())
            return int(datetime(year, month, day, hour, minute, second).timestamp()) * 1000 + millis
    except (ValueError, OverflowError) as error:
        raise TimestampError(f"{value!r} is not a valid time: {error}") from error
    raise TimestampError(f"{value!r} is not a valid time: give milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS")


def message_text(msg: MessageExt) -> str:
    """Return all fields of a message as text, the body as signed bytes.

    Java: org.apache.rocketmq.common.message.MessageExt#toString (4.9.8)
    """
    return (f"MessageExt [brokerName={null(msg.broker_name)}, queueId={msg.queue_id}, storeSize={msg.store_size}, "
            f"queueOffset={msg.queue_offset}, sysFlag={msg.sys_flag}, bornTimestamp={msg.born_timestamp}, "
            f"bornHost={host_text(msg.born_host)}, storeTimestamp={msg.store_timestamp}, "
            f"storeHost={host_text(msg.store_host)}, msgId={null(offset_msg_id(msg))}, "
            f"commitLogOffset={msg.commit_log_offset}, bodyCRC={msg.body_crc}, reconsumeTimes={msg.reconsume_times}, "
            f"preparedTransactionOffset={msg.prepared_transaction_offset}, "
            f"toString()=Message{{topic='{msg.topic}', flag={msg.flag}, properties={properties_text(msg.properties)}, "
            f"body={_bytes_text(msg.body)}, transactionId='{null(msg.transaction_id)}'}}]")


def offset_msg_id(msg: MessageExt) -> str | None:
    """Return the id that consists of the broker's address and the log offset."""
    return msg.offset_msg_id if isinstance(msg, MessageClientExt) else msg.msg_id


def null(value: object) -> object:
    """Return the value, or `null` for None."""
    return "null" if value is None else value


def properties_text(properties: dict[str, str]) -> str:
    """Return `{name=value, ...}` in the order of a Java HashMap."""
    return "{" + ", ".join(f"{name}={properties[name]}" for name in hash_map_order(properties)) + "}"


def host_text(host: Host | None) -> str:
    """Return an address as Java prints it without a host name: `/1.2.3.4:5`, `/[0:0:0:0:0:0:0:1]:5`."""
    if host is None:
        return "null"
    address = ipaddress.ip_address(host[0])
    if address.version == 4:
        return f"/{address}:{host[1]}"
    groups = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"/[{groups}]:{host[1]}"


def _bytes_text(body: bytes | memoryview) -> str:
    if isinstance(body, MissingBody):
        return repr(body)
    if not body:
        # in Java, the body of a record without a body stays null
        return "null"
    return "[" + ", ".join(map(str, memoryview(body).cast("b"))) + "]"


def message_fields(msg: MessageExt) -> dict[str, Any]:
    """Return a message's fields for JSON, without the body; times are ms since the epoch."""
    return {
        "msgId": msg.msg_id, "offsetMsgId": offset_msg_id(msg), "topic": msg.topic, "tags": msg.tags,
        "keys": msg.keys, "brokerName": msg.broker_name, "queueId": msg.queue_id, "queueOffset": msg.queue_offset,
        "commitLogOffset": msg.commit_log_offset, "storeSize": msg.store_size, "bodyCRC": msg.body_crc,
        "flag": msg.flag, "sysFlag": msg.sys_flag, "reconsumeTimes": msg.reconsume_times,
        "bornTimestamp": msg.born_timestamp, "bornHost": parse_socket_address_addr(msg.born_host),
        "storeTimestamp": msg.store_timestamp, "storeHost": parse_socket_address_addr(msg.store_host),
        "preparedTransactionOffset": msg.prepared_transaction_offset, "properties": dict(msg.properties),
    }


PULLED_AT_ONCE = 32
NOT_PRINTED = "NOT PRINT BODY"


def print_messages(messages: Iterable[MessageExt], charset_name: str, print_body: bool) -> Iterator[Row]:
    """Yield a line for each message; raise MQClientException for an unknown character set.

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
    """Return the body's text, or why it is missing; raise LookupError for an unknown character set."""
    return repr(body) if isinstance(body, MissingBody) else bytes(body).decode(charset_name, "replace")


def bounds(
    consumer: DefaultMQPullConsumer, queue: MessageQueue, command_line: CommandLine, begin: str = "b", end: str = "e"
) -> tuple[int, int]:
    """Return the first offset and the one after the last: the queue's, or those of the times in two options."""
    admin = consumer.admin
    low, high = admin.min_offset(queue), admin.max_offset(queue)
    if command_line.has_option(begin):
        low = admin.search_offset(queue, timestamp_format(command_line.required(begin)))
    if command_line.has_option(end):
        high = admin.search_offset(queue, timestamp_format(command_line.required(end)))
    return low, high


def in_java_order(queues: Iterable[MessageQueue], route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues in the order in which a HashSet, filled in the route's order, iterates over them.

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
    """Return the queue's hash code, like MessageQueue.hashCode in Java."""
    result = 31 + string_hash_code(queue.brokerName or "")
    result = 31 * result + queue.queueId
    return int32(31 * result + string_hash_code(queue.topic or ""))


DEFAULT_COUNT = 128


@dataclass(frozen=True)
class Wanted:
    """The messages to consume. `queue` None: all queues of the topic; times are ms, 0 for no limit."""

    topic: str
    count: int
    queue: MessageQueue | None
    offset: int
    begin: int
    end: int


class ConsumeMessageCommand(SubCommand):
    """Prints the oldest messages of a topic or a queue, or messages starting at an offset or a time.

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
        """Report what is wrong with the options, or pull and print messages."""
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
            except CLIENT_ERRORS as error:
                yield stack_trace(error)


def wanted_messages(command_line: CommandLine) -> Wanted | str:
    """Return the messages that the options select, or their error, in the original's order and words."""
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
            # like the original, which counts one more than there are
            left -= high - low + 1
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


class PrintMessageByQueueCommand(SubCommand):
    """Prints the messages of one queue (-p true), and the number of messages per tag (-f true).

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
        """Pull until a pull finds no more messages, or none that match."""
        queue = MessageQueue(command_line.required("t"), command_line.required("a"), command_line.integer("i", bits=32))
        expression, charset_name = command_line.text("s", "*"), command_line.text("c", "UTF-8")
        tags: Counter[str] = Counter()
        with pull_consumer(admin) as consumer:
            offset, end = bounds(consumer, queue, command_line)
            while offset < end:
                try:
                    result = consumer.pull(queue, expression, offset, PULLED_AT_ONCE)
                except CLIENT_ERRORS as error:
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


_LINE = "--------------------------------------------------------\n"


class PrintMessageSubCommand(SubCommand):
    """Prints all messages of a topic, or those of a time range or with certain tags.

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
        except CLIENT_ERRORS as error:
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


QUERY_CQ_COUNT = 10
_RULE = "======================================\n"


class QueryConsumeQueueCommand(SubCommand):
    """Prints units of a consume queue; with a group (-g), also whether its filter accepts them.

    Java: org.apache.rocketmq.tools.command.queue.QueryConsumeQueueCommand (4.9.8)
    """

    command_name = "queryCq"
    command_desc = "Query cq command."
    options = (
        option("t", "topic", "topic name", required=True),
        option("q", "queue", "queue num, ie. 1", required=True),
        option("i", "index", "start queue index.", required=True),
        option("c", "count", "how many."),
        option("b", "broker", "broker addr."),
        option("g", "consumer", "consumer group."),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the broker, or the topic's first master. Errors are printed to the output, as in the original."""
        try:
            topic, index = command_line.required("t"), command_line.integer("i")
            addr = command_line.text("b") or _master_of(admin, topic)
            body = admin.api.query_consume_queue(
                addr, topic, command_line.integer("q", bits=32), index, command_line.integer("c", QUERY_CQ_COUNT, 32),
                command_line.text("g"), admin.timeout_millis)
        except (*CLIENT_ERRORS, NumberFormatException) as error:
            yield stack_trace(error)
            return
        yield from _parts(body, index)


def _master_of(admin: DefaultMQAdminExt, topic: str) -> str:
    brokers = admin.examine_topic_route_info(topic).brokerDatas
    addr = brokers[0].brokerAddrs.get(mix_all.MASTER_ID) if brokers else None
    if addr is None:
        raise MQClientException("No topic route data!")
    return addr


def _parts(body: QueryConsumeQueueResponseBody, index: int) -> Iterator[Part]:
    if body.subscriptionData is not None:
        text = remoting_serializable.to_json(body.subscriptionData, True)
        yield Document(f"Subscription data: \n{text}\n{_RULE}", {"subscriptionData": body.subscriptionData})
    if body.filterData is not None:
        yield Document(f"Filter data: \n{body.filterData}\n{_RULE}", {"filterData": body.filterData})
    yield Document(f"Queue data: \nmax: {body.maxQueueIndex}, min: {body.minQueueIndex}\n{_RULE}",
                   {"maxQueueIndex": body.maxQueueIndex, "minQueueIndex": body.minQueueIndex})
    for number, unit in enumerate(body.queueData or (), index):
        yield Document(f"idx: {number}\n{unit}\n{_RULE}", {"index": number, "unit": unit})
