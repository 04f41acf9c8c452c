"""mqadmin commands that find messages by id, key or queue offset, and their traces.

Commands: queryMsgById, queryMsgByKey, queryMsgByOffset, queryMsgByUniqueKey, queryMsgTraceById.

`print_msg` prints a message for users: its fields one per line, the path of a file with its body, and its consumption
state in each group.
"""
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.impl.mq_admin_impl import UNIQ_KEY_QUERY_MAX
from rmqha.client.results import PullStatus
from rmqha.client.trace import TraceType, TraceView
from rmqha.common import topics, util_all
from rmqha.common.compression import MissingBody
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.texts import is_folder_name
from rmqha.remoting.addresses import parse_socket_address_addr
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt, consume_message_directly
from rmqha.tools.admin.message_track import message_track_detail, stack_trace
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.message_print import message_fields, null, offset_msg_id, properties_text
from rmqha.tools.command.message_send import new_producer, pull_consumer
from rmqha.tools.command.sub_command import Document, Part, Row, SubCommand, Table

BODY_FOLDER = Path("/tmp/rocketmq/msgbodys")


def print_msg(
    admin: DefaultMQAdminExt, msg: MessageExt, with_offset_id: bool = True, number: int = 0
) -> Iterator[Part]:
    """Yield the description of a message. `number`: its position among several messages with the same id, whose bodies
    get separate files.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByIdSubCommand#printMsg (4.9.8)
    """
    path = create_body_file(msg, number)
    lines = [("OffsetID:", null(offset_msg_id(msg)))] if with_offset_id else []
    lines += [
        ("Topic:", msg.topic),
        ("Tags:", f"[{null(msg.tags)}]"),
        ("Keys:", f"[{null(msg.keys)}]"),
        ("Queue ID:", msg.queue_id),
        ("Queue Offset:", msg.queue_offset),
        ("CommitLog Offset:", msg.commit_log_offset),
        ("Reconsume Times:", msg.reconsume_times),
        ("Born Timestamp:", util_all.time_millis_to_human_string2(msg.born_timestamp)),
        ("Store Timestamp:", util_all.time_millis_to_human_string2(msg.store_timestamp)),
        ("Born Host:", parse_socket_address_addr(msg.born_host)),
        ("Store Host:", parse_socket_address_addr(msg.store_host)),
        ("System Flag:", msg.sys_flag),
        ("Properties:", properties_text(msg.properties)),
        ("Message Body Path:", path),
    ]
    text = "".join(f"{name:<20} {value}\n" for name, value in lines)
    yield Document(text, {**message_fields(msg), "bodyPath": str(path)})
    try:
        tracks = message_track_detail(admin, msg)
    except CLIENT_ERRORS as error:
        yield stack_trace(error)
        return
    yield "\n\n" if tracks else "\n\nWARN: No Consumer"
    for track in tracks:
        yield Document(str(track), {"consumerGroup": track.consumerGroup, "trackType": track.trackType.name,
                                    "exceptionDesc": track.exceptionDesc})


def create_body_file(msg: MessageExt, number: int = 0) -> Path:
    """Write the body to a file named after the message's id, replacing an existing one. May raise OSError."""
    # Differs: the file with a message's body is named after the id in the message's properties; if that is not a plain
    # file name, the offset id is used instead
    name = msg.msg_id or ""
    end = f"_{number}" if number > 0 else ""
    if not is_folder_name(name) or not is_folder_name(name + end):
        name = str(offset_msg_id(msg))
    path = BODY_FOLDER / (name + end)
    BODY_FOLDER.mkdir(parents=True, exist_ok=True)
    for folder in (BODY_FOLDER.parent, BODY_FOLDER):
        _check_owner(folder)
    _put_in_place(path, msg.body)
    return path


def _check_owner(folder: Path) -> None:
    """Raise OSError if the folder is a link made by another user: in a folder that all may write to, such a link can
    lead anywhere.
    """
    found = os.lstat(folder)
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, f"a link of user {found.st_uid}, which is not followed: remove it", str(folder))


def _put_in_place(path: Path, body: bytes | memoryview) -> None:
    """Write a temporary file and rename it to `path`. Differs: a link of that name is replaced, where the original
    writes to the file that it points to."""
    part = path.parent / f".body.{secrets.token_hex(8)}.part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(fd, "wb") as file:
            file.write(body)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


class QueryMsgByIdSubCommand(SubCommand):
    """Finds messages by their offset ids: prints them, lets a client consume them (-g, -d), or resends them (-s true).

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
        """Process the ids one by one."""
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
    """Split a text at commas into ids, without surrounding blanks and without empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _push_msg(admin: DefaultMQAdminExt, consumer_group: str, client_id: str, msg_id: str) -> Part:
    try:
        result = consume_message_directly(admin, consumer_group, client_id, msg_id)
    except CLIENT_ERRORS as error:
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
            except CLIENT_ERRORS as error:
                yield stack_trace(error)
            else:
                yield Document(str(result), {"originalMsgId": msg_id, "msgId": result.msg_id,
                                             "offsetMsgId": result.offset_msg_id,
                                             "sendStatus": result.send_status.name})


MESSAGES = Table("%-50s %4d %40d\n", {"msgId": "#Message ID", "queueId": "#QID", "queueOffset": "#Offset"})
MAX_MESSAGES = 64
FOREVER_MS = 0x7FFF_FFFF_FFFF_FFFF


class QueryMsgByKeySubCommand(SubCommand):
    """Finds the messages of a topic with a key, at most 64 per broker.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByKeySubCommand (4.9.8)
    """

    command_name = "queryMsgByKey"
    command_desc = "Query Message by Key"
    options = (
        option("t", "topic", "topic name", required=True),
        option("k", "msgKey", "Message Key", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Query the brokers' indexes."""
        found = admin.mq_admin.query_message(
            command_line.required("t"), command_line.required("k"), MAX_MESSAGES, 0, FOREVER_MS)
        yield MESSAGES.heading()
        for msg in found.message_list:
            yield MESSAGES.row(msg.msg_id, msg.queue_id, msg.queue_offset)


class QueryMsgByOffsetSubCommand(SubCommand):
    """Prints the message at an offset of a queue; nothing when there is no message.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgByOffsetSubCommand (4.9.8)
    """

    command_name = "queryMsgByOffset"
    command_desc = "Query Message by offset"
    options = (
        option("t", "topic", "topic name", required=True),
        option("b", "brokerName", "Broker Name", required=True),
        option("i", "queueId", "Queue Id", required=True),
        option("o", "offset", "Queue Offset", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Pull one message."""
        queue = MessageQueue(command_line.required("t"), command_line.required("b"), command_line.integer("i", bits=32))
        with pull_consumer(admin) as consumer:
            result = consumer.pull(queue, "*", command_line.integer("o"), 1)
        if result.pull_status is PullStatus.FOUND:
            yield from print_msg(admin, result.msg_found_list[0])


class QueryMsgByUniqueKeySubCommand(SubCommand):
    """Finds the message with a producer's unique id: prints it, or lets a client consume it (-g, -d).

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
        """Query the brokers' indexes."""
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


_FORMAT = "%-10s %-20s %-20s %-20s %-10s %-10s\n"
PRODUCED = Table(_FORMAT, {"type": "#Type", "producerGroup": "#ProducerGroup", "clientHost": "#ClientHost",
                           "sendTime": "#SendTime", "costTimes": "#CostTimes", "status": "#Status"})
CONSUMED = Table(_FORMAT, {"type": "#Type", "consumerGroup": "#ConsumerGroup", "clientHost": "#ClientHost",
                           "consumerTime": "#ConsumerTime", "costTimes": "#CostTimes", "status": "#Status"})


class QueryMsgTraceByIdSubCommand(SubCommand):
    """Prints the trace of a message: when it was sent, and when each group consumed it.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgTraceByIdSubCommand (4.9.8)
    """

    command_name = "queryMsgTraceById"
    command_alias = "QueryMsgTraceById"
    command_desc = "query a message trace"
    failure = "command failed"
    options = (
        option("i", "msgId", "Message Id", required=True),
        option("t", "traceTopic", "The name value of message trace topic"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Look up the trace messages by their key, the message's id."""
        msg_id = command_line.required("i")
        topic = command_line.text("t", topics.RMQ_SYS_TRACE_TOPIC)
        found = admin.mq_admin.query_message(topic, msg_id, MAX_MESSAGES, 0, util_all.current_time_millis())
        for msg in found.message_list:
            if isinstance(msg.body, MissingBody):
                yield f"trace message {msg.msg_id} can't be read: {msg.body.reason}\n"
        yield from _views([view for msg in found.message_list
                           for view in TraceView.decode_from_trace_trans_data(msg_id, msg)])


def _views(views: list[TraceView]) -> Iterator[Part]:
    consumed: dict[str, list[TraceView]] = {}
    for view in views:
        if view.msg_type == TraceType.Pub.name:
            yield PRODUCED.heading()
            yield _row(PRODUCED, "Pub", view)
            yield "\n"
        elif view.msg_type == TraceType.SubAfter.name:
            consumed.setdefault(str(view.group_name), []).append(view)
    for group in hash_map_order(consumed):
        yield CONSUMED.heading()
        for view in consumed[group]:
            yield _row(CONSUMED, "Sub", view)
        yield "\n"


def _row(table: Table, kind: str, view: TraceView) -> Row:
    time = util_all.format_date(view.time_stamp)
    return table.row(kind, view.group_name, view.client_host, time, f"{view.cost_time}ms", view.status,
                     timestamp=view.time_stamp, costMillis=view.cost_time)
