"""mqadmin statsAll."""
import logging
from collections.abc import Iterator

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import mix_all, stats
from rmqha.common.protocol.table_bodies import BrokerStatsData
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

log = logging.getLogger("RocketmqTools")

TOPICS = Table("%-64.64s  %-64.64s %12d %11.2f %11.2f %14d %14d\n", {
    "topic": "#Topic", "consumerGroup": "#Consumer Group", "accumulation": "#Accumulation", "inTps": "#InTPS",
    "outTps": "#OutTPS", "inMsg24Hour": "#InMsg24Hour", "outMsg24Hour": "#OutMsg24Hour"})
TOPICS_WITHOUT_CONSUMER = Table("%-64.64s  %-64s %12d %11.2f %11s %14d %14s\n", TOPICS.columns)
SPECIAL = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX)
NO_ANSWER = (MQClientException, MQBrokerException, RemotingException)


class StatsAllSubCommand(SubCommand):
    """Messages in and out of all topics, and how far their groups are behind.

    Java: org.apache.rocketmq.tools.command.stats.StatsAllSubCommand (4.9.8)
    """

    command_name = "statsAll"
    command_desc = "Topic and Consumer tps stats"
    options = (
        flag("a", "activeTopic", "print active topic only"),
        option("t", "topic", "print select topic only"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers of each topic; one that can't be answered for is left out."""
        topics = admin.fetch_all_topic_list().topicList
        yield TOPICS.heading()
        selected = command_line.get_option_value("t")
        # Differs: topics and groups stand sorted, where Java's stand as its hash table has them
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
    """Messages per second in the last minute, and of 24 hours, over all masters; one without the counter has 0."""
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
    """The day's sum; the hour's or the minute's while there is none yet."""
    return data.statsDay.sum or data.statsHour.sum or data.statsMinute.sum
