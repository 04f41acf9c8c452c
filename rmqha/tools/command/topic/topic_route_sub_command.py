"""mqadmin topicRoute."""
from collections.abc import Iterator

from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.output import Document, Part, Table
from rmqha.tools.command.sub_command import SubCommand

BROKERS = Table("%-45s %-32s %-50s %-10s %-11s %-5s\n", {
    "clusterName": "#ClusterName", "brokerName": "#BrokerName", "brokerAddrs": "#BrokerAddrs",
    "readQueue": "#ReadQueue", "writeQueue": "#WriteQueue", "perm": "#Perm"})
_LINE = "-" * 158 + "\n"


class TopicRouteSubCommand(SubCommand):
    """Where a topic lives, as JSON or (-l) a line for each broker.

    Java: org.apache.rocketmq.tools.command.topic.TopicRouteSubCommand (4.9.8)
    """

    command_name = "topicRoute"
    command_desc = "Examine topic route info"
    options = (
        option("t", "topic", "topic name", required=True),
        flag("l", "list", "Use list format to print data"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name server."""
        route = admin.examine_topic_route_info(command_line.required("t"))
        if command_line.has_option("l"):
            yield from _rows(route)
        else:
            yield Document(remoting_serializable.to_json(route, True) + "\n", route)


def _rows(route: TopicRouteData) -> Iterator[Part]:
    queues = {data.brokerName: data for data in route.queueDatas}
    yield BROKERS.heading()
    for broker in sorted(route.brokerDatas):
        data = queues[broker.brokerName]
        addrs = ", ".join(f"{broker_id}={addr}" for broker_id, addr in broker.brokerAddrs.items())
        yield BROKERS.row(broker.cluster, broker.brokerName, f"{{{addrs}}}", data.readQueueNums, data.writeQueueNums,
                          data.perm, brokerAddrs=broker.brokerAddrs)
    yield _LINE
    reads = sum(queues[broker.brokerName].readQueueNums for broker in route.brokerDatas)
    writes = sum(queues[broker.brokerName].writeQueueNums for broker in route.brokerDatas)
    yield BROKERS.row("Total:", len(queues), "", reads, writes, "").text
