"""mqadmin commands for consumer offsets and message statistics.

Commands: cloneGroupOffset, resetOffsetByTime, skipAccumulatedMessage, statsAll.
"""
import logging
from collections.abc import Iterator

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import mix_all, stats, util_all
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.table_bodies import BrokerStatsData, RollbackStats
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, flag, option, parse_long
from rmqha.tools.command.sub_command import JavaException, Part, SubCommand, Table


class CloneGroupOffsetCommand(SubCommand):
    """Copies the offsets of one group to another.

    Java: org.apache.rocketmq.tools.command.offset.CloneGroupOffsetCommand (4.9.8)
    """

    command_name = "cloneGroupOffset"
    command_desc = "clone offset from other group."
    options = (
        option("s", "srcGroup", "set source consumer group", required=True),
        option("d", "destGroup", "set destination consumer group", required=True),
        option("t", "topic", "set the topic", required=True),
        option("o", "offline", "the group or the topic is offline"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Read the source group's offsets of all queues, and store each on its broker.

        As in the original, the topic only determines the brokers; the offsets of all topics are copied.
        """
        source, target, topic = command_line.required("s"), command_line.required("d"), command_line.required("t")
        places = admin.examine_consume_stats(source).offsetTable
        addrs = {broker.brokerName: broker.select_broker_addr()
                 for broker in admin.examine_topic_route_info(topic).brokerDatas}
        for queue, place in places.items():
            if place.consumerOffset >= 0:
                addr = addrs.get(queue.brokerName)
                if addr is None:
                    # Differs: cloneGroupOffset reports a queue whose broker has no address, where the original sends
                    # the offset to a name server, which refuses it
                    raise JavaException(f"{queue}: the route of topic {topic} has no address of this broker")
                admin.update_consume_offset(addr, target, queue, place.consumerOffset)
        yield f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"


OFFSETS = Table("%-40.32s  %-40d  %-40d\n", {"brokerName": "#brokerName", "queueId": "#queueId", "offset": "#offset"})
THE_END = -1  # instead of a time
QUEUES = Table("%-20.32s  %-20d  %-20d  %-20d  %-20d  %-20d\n", {
    "brokerName": "#brokerName", "queueId": "#queueId", "brokerOffset": "#brokerOffset",
    "consumerOffset": "#consumerOffset", "timestampOffset": "#timestampOffset", "rollbackOffset": "#rollbackOffset"})


class ResetOffsetByTimeCommand(SubCommand):
    """Resets a group's offsets to the messages stored at a time; a running group needs no restart.

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
        """Send the request to the brokers; if the group is not running, set its offsets one by one."""
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
    """Return ms for `now` (the end: -1), a number, or yyyy-MM-dd#HH:mm:ss:SSS; JavaException for any other text."""
    if text == "now":
        return THE_END
    try:
        return parse_long(text)
    except NumberFormatException as error:
        # Differs: resetOffsetByTime reports an invalid time, where Java fails with a NullPointerException
        timestamp = util_all.parse_date(text)
        if timestamp is None:
            raise JavaException(f"-s {text}: give now, ms, or yyyy-MM-dd#HH:mm:ss:SSS") from error
        return timestamp


def offset_rows(offsets: dict[MessageQueue, int]) -> Iterator[Part]:
    """Yield the queues with their new offsets."""
    # Differs: queues are sorted, where Java prints them in the order of its hash table
    yield OFFSETS.heading()
    for queue, offset in sorted(offsets.items()):
        yield OFFSETS.row(queue.brokerName, queue.queueId, offset, topic=queue.topic)


def rolled_back(stats: list[RollbackStats]) -> Iterator[Part]:
    """Yield the queues with their old and new offsets.

    Java: org.apache.rocketmq.tools.command.offset.ResetOffsetByTimeOldCommand#resetOffset (4.9.8)
    """
    # Differs: queues are sorted, where Java prints them in the order of its hash table
    yield QUEUES.heading()
    for each in sorted(stats, key=lambda one: (one.brokerName, one.queueId)):
        yield QUEUES.row(each.brokerName, each.queueId, each.brokerOffset, each.consumerOffset, each.timestampOffset,
                         each.rollbackOffset)


class SkipAccumulationSubCommand(SubCommand):
    """Moves a group's offsets to the end of each queue.

    Java: org.apache.rocketmq.tools.command.offset.SkipAccumulationSubCommand (4.9.8)
    """

    command_name = "skipAccumulatedMessage"
    command_desc = "Skip all messages that are accumulated (not consumed) currently"
    options = (
        option("g", "group", "set the consumer group", required=True),
        option("t", "topic", "set the topic", required=True),
        option("f", "force", "set the force rollback by timestamp switch[true|false]"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send the request to the brokers; if the group is not running, set its offsets one by one."""
        group, topic, force = command_line.required("g"), command_line.required("t"), command_line.boolean("f", True)
        try:
            offsets = admin.reset_offset_by_timestamp(topic, group, THE_END, force)
        except MQClientException as error:
            if error.response_code != response_code.CONSUMER_NOT_ONLINE:
                raise
            yield from rolled_back(admin.reset_offset_by_timestamp_old(group, topic, THE_END, force))
            return
        yield from offset_rows(offsets)


log = logging.getLogger("RocketmqTools")

TOPICS = Table("%-64.64s  %-64.64s %12d %11.2f %11.2f %14d %14d\n", {
    "topic": "#Topic", "consumerGroup": "#Consumer Group", "accumulation": "#Accumulation", "inTps": "#InTPS",
    "outTps": "#OutTPS", "inMsg24Hour": "#InMsg24Hour", "outMsg24Hour": "#OutMsg24Hour"})
TOPICS_WITHOUT_CONSUMER = Table("%-64.64s  %-64s %12d %11.2f %11s %14d %14s\n", TOPICS.columns)
SPECIAL = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX)
NO_ANSWER = (MQClientException, MQBrokerException, RemotingException)


class StatsAllSubCommand(SubCommand):
    """Prints messages in and out of all topics, and how far their groups are behind.

    Java: org.apache.rocketmq.tools.command.stats.StatsAllSubCommand (4.9.8)
    """

    command_name = "statsAll"
    command_desc = "Topic and Consumer tps stats"
    options = (
        flag("a", "activeTopic", "print active topic only"),
        option("t", "topic", "print select topic only"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers of each topic; a topic whose brokers do not answer is omitted."""
        topics = admin.fetch_all_topic_list().topicList
        yield TOPICS.heading()
        selected = command_line.get_option_value("t")
        # Differs: topics and groups are sorted, where Java prints them in the order of its hash table
        for topic in sorted(topics):
            if topic.startswith(SPECIAL) or selected and topic != selected:
                continue
            try:
                yield from _topic_detail(admin, topic, command_line.has_option("a"))
            except NO_ANSWER as error:
                log.info("statistics of %s: %s", topic, error)


def _topic_detail(admin: DefaultMQAdminExt, topic: str, active_only: bool) -> Iterator[Part]:
    masters = [broker.brokerAddrs[mix_all.MASTER_ID] for broker in admin.examine_topic_route_info(topic).brokerDatas
               if mix_all.MASTER_ID in broker.brokerAddrs]
    groups = admin.query_topic_consume_by_who(topic)
    in_tps, in_count = _rate_and_count(admin, masters, stats.TOPIC_PUT_NUMS, topic)
    for group in sorted(groups.groupList) if groups is not None else ():
        out_tps, out_count = _rate_and_count(admin, masters, stats.GROUP_GET_NUMS, f"{topic}@{group}")
        accumulated = _accumulated(admin, group, topic)
        if not active_only or in_count > 0 or out_count > 0:
            yield TOPICS.row(topic, group, accumulated, in_tps, out_tps, in_count, out_count)
    if (groups is None or not groups.groupList) and (not active_only or in_count > 0):
        yield TOPICS_WITHOUT_CONSUMER.row(topic, "", 0, in_tps, "", in_count, "NO_CONSUMER",
                                          consumerGroup=None, outTps=None, outMsg24Hour=None)


def _rate_and_count(admin: DefaultMQAdminExt, masters: list[str], name: str, key: str) -> tuple[float, int]:
    """Return messages per second of the last minute, and messages of 24 hours, over all masters.

    A master without the counter counts as 0.
    """
    rate, count = 0.0, 0
    for addr in masters:
        try:
            data = admin.view_broker_stats_data(addr, name, key)
        except NO_ANSWER as error:
            log.debug("%s of %s on %s: %s", name, key, addr, error)
            continue
        rate += data.statsMinute.tps
        count += compute_24_hour_sum(data)
    return rate, count


def _accumulated(admin: DefaultMQAdminExt, group: str, topic: str) -> int:
    try:
        return max(admin.examine_consume_stats(group, topic).compute_total_diff(), 0)
    except NO_ANSWER as error:
        log.debug("places of %s in %s: %s", group, topic, error)
        return 0


def compute_24_hour_sum(data: BrokerStatsData) -> int:
    """Return the sum of the day; while there is no such sum yet, that of the hour or the minute."""
    return data.statsDay.sum or data.statsHour.sum or data.statsMinute.sum
