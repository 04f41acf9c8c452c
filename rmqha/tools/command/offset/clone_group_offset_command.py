"""mqadmin cloneGroupOffset."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class CloneGroupOffsetCommand(SubCommand):
    """Gives one group the offsets of another.

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
        """Read the offsets of all queues of the source, and store each on its broker.

        As in the original, the topic says only which brokers are asked; all topics of the source are copied.
        """
        source, target, topic = command_line.text("s"), command_line.text("d"), command_line.text("t")
        places = admin.examine_consume_stats(source).offsetTable
        addrs = {broker.brokerName: broker.select_broker_addr()
                 for broker in admin.examine_topic_route_info(topic).brokerDatas}
        for queue, place in places.items():
            if place.consumerOffset >= 0:
                admin.update_consume_offset(addrs.get(queue.brokerName), target, queue, place.consumerOffset)
        yield f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
