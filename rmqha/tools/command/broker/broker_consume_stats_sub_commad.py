"""mqadmin brokerConsumeStats."""
from collections.abc import Iterator

from rmqha.common import util_all
from rmqha.common.protocol.table_bodies import ConsumeStats
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

PLACES = Table("%-64.64s  %-64s  %-32.32s  %-4d  %-20d  %-20d  %-20d  %s\n", {
    "topic": "#Topic", "group": "#Group", "brokerName": "#Broker Name", "queueId": "#QID",
    "brokerOffset": "#Broker Offset", "consumerOffset": "#Consumer Offset", "diff": "#Diff", "lastTime": "#LastTime"})
TIMEOUT_MILLIS = 50_000


class BrokerConsumeStatsSubCommad(SubCommand):
    """How far all groups of a broker have come.

    Java: org.apache.rocketmq.tools.command.broker.BrokerConsumeStatsSubCommad (4.9.8)
    """

    command_name = "brokerConsumeStats"
    command_desc = "Fetch broker consume stats data"
    options = (
        option("b", "brokerAddr", "Broker address", required=True),
        option("t", "timeoutMillis", "request timeout Millis"),
        option("l", "level", "threshold of print diff"),
        option("o", "order", "order topic"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the broker; queues that are behind by less than -l, or of which nothing was consumed, are left out."""
        level = command_line.integer("l")
        stats = admin.fetch_consume_stats_in_broker(
            command_line.required("b"), command_line.boolean("o"), command_line.integer("t", TIMEOUT_MILLIS))
        yield PLACES.heading()
        for by_group in stats.consumeStatsList:
            for group, by_topic in by_group.items():
                for each in by_topic:
                    yield from _rows(group, each, level)
        yield f"\nDiff Total: {stats.totalDiff}\n"


def _rows(group: str, stats: ConsumeStats, level: int) -> Iterator[Part]:
    for queue, place in sorted(stats.offsetTable.items(), key=lambda item: item[0]):
        diff = place.brokerOffset - place.consumerOffset
        if diff >= level and place.lastTimestamp > 0:
            yield PLACES.row(queue.topic, group, queue.brokerName, queue.queueId, place.brokerOffset,
                             place.consumerOffset, diff, util_all.format_date(place.lastTimestamp),
                             lastTime=place.lastTimestamp)
