"""mqadmin allocateMQ."""
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueAveragely
from rmqha.client.impl.producer_parts import topic_route_data2_topic_subscribe_info
from rmqha.common import util_all
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageQueue
from rmqha.remoting.protocol import remoting_serializable
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.queue_reader import in_java_order
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.sub_command import SubCommand


@dataclass(slots=True)
class RebalanceResult:
    """Queues by consumer.

    Java: org.apache.rocketmq.tools.command.topic.RebalanceResult (4.9.8)
    """

    result: dict[str, list[MessageQueue]] = field(default_factory=dict)


class AllocateMQSubCommand(SubCommand):
    """Which queues each of some consumers would get if they shared a topic's.

    Java: org.apache.rocketmq.tools.command.topic.AllocateMQSubCommand (4.9.8)
    """

    command_name = "allocateMQ"
    command_desc = "Allocate MQ"
    options = (
        option("t", "topic", "topic name", required=True),
        option("i", "ipList", "ipList", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Compute it from the topic's route."""
        topic = command_line.required("t")
        ip_list = util_all.split(command_line.required("i"), ",")
        route = admin.examine_topic_route_info(topic)
        queues = in_java_order(topic_route_data2_topic_subscribe_info(topic, route), route)
        averagely = AllocateMessageQueueAveragely()
        shares = {ip: averagely.allocate("aa", ip, queues, ip_list) for ip in hash_map_order(ip_list)}
        result = RebalanceResult(shares)
        yield Document(f"{remoting_serializable.to_json(result)}\n", result)
