"""mqadmin topicStatus."""
from collections.abc import Iterator

from rmqha.common import util_all
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

QUEUES = Table("%-32.32s  %-4d  %-20d  %-20d    %s\n", {
    "brokerName": "#Broker Name", "queueId": "#QID", "minOffset": "#Min Offset", "maxOffset": "#Max Offset",
    "lastUpdated": "#Last Updated"})


class TopicStatusSubCommand(SubCommand):
    """Bounds of a topic's queues, and when each was written last.

    Java: org.apache.rocketmq.tools.command.topic.TopicStatusSubCommand (4.9.8)
    """

    command_name = "topicStatus"
    command_desc = "Examine topic Status info"
    options = (option("t", "topic", "topic name", required=True),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask all its brokers."""
        stats = admin.examine_topic_stats(command_line.required("t"))
        yield QUEUES.heading()
        for queue, bounds in sorted(stats.offsetTable.items()):
            updated = bounds.lastUpdateTimestamp
            time = util_all.time_millis_to_human_string2(updated) if updated > 0 else ""
            yield QUEUES.row(queue.brokerName, queue.queueId, bounds.minOffset, bounds.maxOffset, time,
                             lastUpdated=updated)
