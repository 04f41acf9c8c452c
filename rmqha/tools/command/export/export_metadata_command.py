"""mqadmin exportMetadata."""
from collections.abc import Iterator

from rmqha.common import util_all
from rmqha.common.protocol.table_bodies import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.export.export_configs_command import export, file_path
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand

TIMEOUT_MILLIS = 10_000


class ExportMetadataCommand(SubCommand):
    """Writes topics and groups of a broker or a cluster into a file.

    `topic.json` (-t), `subscriptionGroup.json` (-g), or of a cluster both in `metadata.json`.

    Java: org.apache.rocketmq.tools.command.export.ExportMetadataCommand (4.9.8)
    """

    command_name = "exportMetadata"
    command_desc = "export metadata"
    options = (
        option("c", "clusterName", "choose a cluster to export"),
        option("b", "brokerAddr", "choose a broker to export"),
        option("f", "filePath", "export metadata.json path | default /tmp/rocketmq/export"),
        flag("t", "topic", "only export topic metadata"),
        flag("g", "subscriptionGroup", "only export subscriptionGroup metadata"),
        flag("s", "specialTopic", "need retryTopic and dlqTopic"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the broker, or all masters of the cluster, write the file."""
        folder, special = file_path(command_line), command_line.has_option("s")
        if command_line.has_option("b"):
            addr = command_line.required("b")
            if command_line.has_option("t"):
                yield from export(admin.get_user_topic_config(addr, special, TIMEOUT_MILLIS), f"{folder}/topic.json")
            elif command_line.has_option("g"):
                yield from export(
                    admin.get_user_subscription_group(addr, TIMEOUT_MILLIS), f"{folder}/subscriptionGroup.json")
        elif command_line.has_option("c"):
            yield from self._export_cluster(command_line, admin)
        else:
            yield self.help()

    @staticmethod
    def _export_cluster(command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        masters = yield from command_util.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
        special = command_line.has_option("s")
        topics = merged_topics([admin.get_user_topic_config(addr, special, TIMEOUT_MILLIS) for addr in masters])
        groups = merged_groups([admin.get_user_subscription_group(addr, TIMEOUT_MILLIS) for addr in masters])
        result: dict[str, object]
        if command_line.has_option("t"):
            name, result = "topic", {"topicConfigTable": topics}
        elif command_line.has_option("g"):
            name, result = "subscriptionGroup", {"subscriptionGroupTable": groups}
        else:
            name, result = "metadata", {"topicConfigTable": topics, "subscriptionGroupTable": groups}
        result["exportTime"] = util_all.current_time_millis()
        yield from export(result, f"{file_path(command_line)}/{name}.json", "\n")


def merged_topics(brokers: list[TopicConfigSerializeWrapper]) -> dict[str, TopicConfig]:
    """The topics of all brokers, each as its last broker has it, with all brokers' queues."""
    result: dict[str, TopicConfig] = {}
    for broker in brokers:
        for topic, config in broker.topicConfigTable.items():
            if topic in result:
                config.writeQueueNums += result[topic].writeQueueNums
                config.readQueueNums += result[topic].readQueueNums
            result[topic] = config
    return dict(sorted(result.items()))


def merged_groups(brokers: list[SubscriptionGroupWrapper]) -> dict[str, SubscriptionGroupConfig]:
    """The groups of all brokers, each as its last broker has it, with all brokers' retry queues."""
    result: dict[str, SubscriptionGroupConfig] = {}
    for broker in brokers:
        for group, config in broker.subscriptionGroupTable.items():
            if group in result:
                config.retryQueueNums += result[group].retryQueueNums
            result[group] = config
    return dict(sorted(result.items()))
