"""mqadmin updateTopicPerm."""
from collections.abc import Iterator

from rmqha.common import mix_all
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.sub_command import SubCommand


class UpdateTopicPermSubCommand(SubCommand):
    """Changes who may read and write a topic, on one broker or on all masters of a cluster.

    Java: org.apache.rocketmq.tools.command.topic.UpdateTopicPermSubCommand (4.9.8)
    """

    command_name = "updateTopicPerm"
    command_desc = "Update topic perm"
    options = (
        option("b", "brokerAddr", "create topic to which broker"),
        option("c", "clusterName", "create topic to which cluster"),
        option("t", "topic", "topic name", required=True),
        option("p", "perm", "set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Take the topic's settings from its route, and send them back with the new permission."""
        topic = command_line.required("t")
        route = admin.examine_topic_route_info(topic)
        first = route.queueDatas[0]
        config = TopicConfig(topicName=topic, readQueueNums=first.readQueueNums, writeQueueNums=first.writeQueueNums,
                             topicSysFlag=first.topicSysFlag, perm=command_line.integer("p", bits=32))
        if command_line.has_option("b"):
            yield from _on_broker(admin, command_line.required("b"), route, config)
        elif command_line.has_option("c"):
            masters = yield from command_util.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
            for addr in masters:
                admin.create_and_update_topic_config(addr, config)
                yield f"update topic perm from {first.perm} to {config.perm} in {addr} success.\n"
        else:
            yield self.help()


def _on_broker(admin: DefaultMQAdminExt, addr: str, route: TopicRouteData, config: TopicConfig) -> Iterator[Part]:
    names = [broker.brokerName for broker in route.brokerDatas if broker.brokerAddrs.get(mix_all.MASTER_ID) == addr]
    if not names:
        yield "updateTopicPerm error broker not exit or broker is not master!.\n"
        return
    old_perm = next((data.perm for data in route.queueDatas if data.brokerName == names[0]), 0)
    if old_perm == config.perm:
        yield "new perm equals to the old one!\n"
        return
    admin.create_and_update_topic_config(addr, config)
    yield f"update topic perm from {old_perm} to {config.perm} in {addr} success.\n"
    yield Document(f"{config}.\n", config)
