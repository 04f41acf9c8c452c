"""mqadmin resetOffsetByTime."""
from collections.abc import Iterator

from rmqha.client.exception import MQClientException
from rmqha.common import util_all
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.table_bodies import RollbackStats
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, flag, option, parse_long
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.command.sub_command_exception import JavaException

OFFSETS = Table("%-40.32s  %-40d  %-40d\n", {"brokerName": "#brokerName", "queueId": "#queueId", "offset": "#offset"})
THE_END = -1  # instead of a time
QUEUES = Table("%-20.32s  %-20d  %-20d  %-20d  %-20d  %-20d\n", {
    "brokerName": "#brokerName", "queueId": "#queueId", "brokerOffset": "#brokerOffset",
    "consumerOffset": "#consumerOffset", "timestampOffset": "#timestampOffset", "rollbackOffset": "#rollbackOffset"})


class ResetOffsetByTimeCommand(SubCommand):
    """Sets a group's offsets to what was stored at a time, of a running group without its restart.

    Java: org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeCommand (4.9.8)
    """

    command_name = "resetOffsetByTime"
    command_desc = "Reset consumer offset by timestamp(without client restart)."
    options = (
        option("g", "group", "set the consumer group", required=True),
        option("t", "topic", "set the topic", required=True),
        option("s", "timestamp", "set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]", required=True),
        option("f", "force", "set the force rollback by timestamp switch[true|false]"),
        flag("c", "cplus", "reset c++ client offset"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the brokers; when the group does not run, set its offsets one by one."""
        group, topic, time = (command_line.required(name) for name in "gts")
        timestamp, force = parse_timestamp(time), command_line.boolean("f", True)
        told = (f"group[{group}], topic[{topic}], force[{str(force).lower()}], timestamp(string)[{time}], "
                f"timestamp(long)[{timestamp}]\n")
        try:
            offsets = admin.reset_offset_by_timestamp(topic, group, timestamp, force, command_line.has_option("c"))
        except MQClientException as error:
            if error.response_code != response_code.CONSUMER_NOT_ONLINE:
                raise
            stats = admin.reset_offset_by_timestamp_old(group, topic, timestamp, force)
            yield f"rollback consumer offset by specified consumerG{told[1:]}"
            yield from rolled_back(stats)
            return
        yield f"rollback consumer offset by specified {told}"
        yield from offset_rows(offsets)


def parse_timestamp(text: str) -> int:
    """ms of `now` (the end: -1), of a number, or of yyyy-MM-dd#HH:mm:ss:SSS; JavaException for another text."""
    if text == "now":
        return THE_END
    try:
        return parse_long(text)
    except NumberFormatException as error:
        # Differs: says what is wrong, where Java fails with a NullPointerException
        timestamp = util_all.parse_date(text)
        if timestamp is None:
            raise JavaException(f"-s {text}: give now, ms, or yyyy-MM-dd#HH:mm:ss:SSS") from error
        return timestamp


def offset_rows(offsets: dict[MessageQueue, int]) -> Iterator[Part]:
    """The queues with their new offsets."""
    # Differs: queues stand sorted, where Java's stand as its hash table has them
    yield OFFSETS.heading()
    for queue, offset in sorted(offsets.items()):
        yield OFFSETS.row(queue.brokerName, queue.queueId, offset, topic=queue.topic)


def rolled_back(stats: list[RollbackStats]) -> Iterator[Part]:
    """The queues with their offsets before and after.

    Java: org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeOldCommand#resetOffset (4.9.8)
    """
    # Differs: queues stand sorted, where Java's stand as its hash table has them
    yield QUEUES.heading()
    for each in sorted(stats, key=lambda one: (one.brokerName, one.queueId)):
        yield QUEUES.row(each.brokerName, each.queueId, each.brokerOffset, each.consumerOffset, each.timestampOffset,
                         each.rollbackOffset)
