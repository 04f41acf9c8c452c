"""mqadmin cloneGroupOffset."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.command.sub_command_exception import JavaException


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
        source, target, topic = command_line.required("s"), command_line.required("d"), command_line.required("t")
        places = admin.examine_consume_stats(source).offsetTable
        addrs = {broker.brokerName: broker.select_broker_addr()
                 for broker in admin.examine_topic_route_info(topic).brokerDatas}
        for queue, place in places.items():
            if place.consumerOffset >= 0:
                addr = addrs.get(queue.brokerName)
                if addr is None:
                    # Differs: says what is wrong, where the original tells a name server, which does not understand it
                    raise JavaException(f"{queue}: the route of topic {topic} has no address of this broker")
                admin.update_consume_offset(addr, target, queue, place.consumerOffset)
        yield f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
