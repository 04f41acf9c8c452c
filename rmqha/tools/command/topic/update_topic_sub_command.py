"""mqadmin updateTopic."""
from collections.abc import Iterator

from rmqha.common import sys_flags
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, OptionGroup, option
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.sub_command import SubCommand

DEFAULT_QUEUES = 8


class UpdateTopicSubCommand(SubCommand):
    """Makes a topic on a broker or on all masters of a cluster, or changes it.

    Java: org.apache.rocketmq.tools.command.topic.UpdateTopicSubCommand (4.9.8)
    """

    command_name = "updateTopic"
    command_desc = "Update or create topic"
    options = (
        OptionGroup((
            option("b", "brokerAddr", "create topic to which broker"),
            option("c", "clusterName", "create topic to which cluster"),
        )),
        option("t", "topic", "topic name", required=True),
        option("r", "readQueueNums", "set read queue nums"),
        option("w", "writeQueueNums", "set write queue nums"),
        option("p", "perm", "set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]"),
        option("o", "order", "set topic's order(true|false)"),
        option("u", "unit", "is unit topic (true|false)"),
        option("s", "hasUnitSub", "has unit sub (true|false)"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the brokers, and with -o the name servers."""
        config = TopicConfig(
            topicName=command_line.required("t"),
            readQueueNums=command_line.integer("r", DEFAULT_QUEUES, bits=32),
            writeQueueNums=command_line.integer("w", DEFAULT_QUEUES, bits=32),
            perm=command_line.integer("p", TopicConfig().perm, bits=32),
            topicSysFlag=sys_flags.build_topic_sys_flag(command_line.boolean("u"), command_line.boolean("s")),
            order=command_line.boolean("o"),
        )
        if command_line.has_option("b"):
            yield from _on_broker(admin, command_line.required("b"), config)
        else:
            yield from _on_cluster(admin, command_line.required("c"), config)
        yield Document(str(config), config)


def _on_broker(admin: DefaultMQAdminExt, addr: str, config: TopicConfig) -> Iterator[Part]:
    admin.create_and_update_topic_config(addr, config)
    if config.order:
        conf = f"{command_util.fetch_broker_name_by_addr(admin, addr)}:{config.writeQueueNums}"
        admin.create_or_update_order_conf(config.topicName, conf, False)
        yield f"set broker orderConf. isOrder=true, orderConf=[{conf}]"
    yield f"create topic to {addr} success.\n"


def _on_cluster(admin: DefaultMQAdminExt, cluster: str, config: TopicConfig) -> Iterator[Part]:
    masters = yield from command_util.fetch_master_addr_by_cluster_name(admin, cluster)
    for addr in masters:
        admin.create_and_update_topic_config(addr, config)
        yield f"create topic to {addr} success.\n"
    if config.order:
        names = command_util.fetch_broker_name_by_cluster_name(admin, cluster)
        conf = ";".join(f"{name}:{config.writeQueueNums}" for name in names)
        admin.create_or_update_order_conf(config.topicName, conf, True)
        yield f"set cluster orderConf. isOrder=true, orderConf=[{conf}]"
