"""mqadmin commands that export a cluster's settings, metadata and metrics to JSON files.

Commands: exportConfigs, exportMetadata, exportMetrics.
"""
import logging
from collections.abc import Iterator
from typing import Any

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import java, mix_all, stats, topics, util_all
from rmqha.common.protocol.table_bodies import BrokerStatsData, SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rmqha.common.texts import first_real, whole
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import fastjson
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import sub_command
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.offset import compute_24_hour_sum
from rmqha.tools.command.sub_command import Document, JavaException, Part, SubCommand

DEFAULT_FILE_PATH = "/tmp/rocketmq/export"
KEYS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)


class ExportConfigsCommand(SubCommand):
    """Writes the main settings of a cluster's brokers, and the number of brokers, to `configs.json`.

    Java: org.apache.rocketmq.tools.command.export.ExportConfigsCommand (4.9.8)
    """

    command_name = "exportConfigs"
    command_desc = "export configs"
    options = (
        option("c", "clusterName", "choose a cluster to export", required=True),
        option("f", "filePath", "export configs.json path | default /tmp/rocketmq/export"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the masters, and write the file."""
        brokers = yield from sub_command.fetch_master_and_slave_distinguish(admin, command_line.required("c"))
        configs = {}
        # Differs: exportConfigs skips a broker without a master; the original asks a name server for its settings, and
        # fails
        masters = [master for master, _ in brokers if master is not None]
        for master in masters:
            settings = admin.get_broker_config(master)
            configs[settings["brokerName"]] = {key: settings[key] for key in KEYS if key in settings}
        yield from export({
            "brokerConfigs": configs,
            "clusterScale": {
                "namesrvSize": len(admin.get_name_server_address_list()),
                "masterBrokerSize": len(masters),
                "slaveBrokerSize": sum(len(slaves) for _, slaves in brokers),
            },
        }, f"{file_path(command_line)}/configs.json")


def file_path(command_line: CommandLine) -> str:
    """Return the folder to write to."""
    return command_line.text("f", DEFAULT_FILE_PATH)


def export(value: object, path: str, end: str = "") -> Iterator[Part]:
    """Write a value to a file; yield the output."""
    mix_all.string2file_not_safe(fastjson.dumps(value, pretty=True), path)
    yield Document(f"export {path} success{end}", {"file": path})


TIMEOUT_MILLIS = 10_000


class ExportMetadataCommand(SubCommand):
    """Writes topics and groups of a broker or a cluster to a file.

    The file is `topic.json` (-t), `subscriptionGroup.json` (-g), or, for both of a cluster, `metadata.json`.

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
        """Ask the broker, or all masters of the cluster, and write the file."""
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
        masters = yield from sub_command.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
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
    """Merge the topics of all brokers: each with the settings of its last broker, and the queues of all added up."""
    result: dict[str, TopicConfig] = {}
    for broker in brokers:
        for topic, config in broker.topicConfigTable.items():
            if topic in result:
                config.writeQueueNums += result[topic].writeQueueNums
                config.readQueueNums += result[topic].readQueueNums
            result[topic] = config
    return dict(sorted(result.items()))


def merged_groups(brokers: list[SubscriptionGroupWrapper]) -> dict[str, SubscriptionGroupConfig]:
    """Merge the groups of all brokers: each with the settings of its last broker, and the retry queues of all added up.
    """
    result: dict[str, SubscriptionGroupConfig] = {}
    for broker in brokers:
        for group, config in broker.subscriptionGroupTable.items():
            if group in result:
                config.retryQueueNums += result[group].retryQueueNums
            result[group] = config
    return dict(sorted(result.items()))


log = logging.getLogger("RocketmqTools")

# name of a broker's value -> name of the total over all brokers
TPS = {"normalInTps": "totalNormalInTps", "normalOutTps": "totalNormalOutTps", "transInTps": "totalTransInTps",
       "scheduleInTps": "totalScheduleInTps"}
ONE_DAY_NUM = {name: name for name in (
    "normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")}


class ExportMetricsCommand(SubCommand):
    """Writes the metrics of a cluster's masters, with totals, to `metrics.json`.

    Java: org.apache.rocketmq.tools.command.export.ExportMetricsCommand (4.9.8)
    """

    command_name = "exportMetrics"
    command_desc = "export metrics"
    options = (
        option("c", "clusterName", "choose a cluster to export", required=True),
        option("f", "filePath", "export metrics.json path | default /tmp/rocketmq/export"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the masters, and write the file."""
        info = admin.examine_broker_cluster_info()
        names = info.clusterAddrTable.get(command_line.required("c"))
        if names is None:
            # Differs: exportMetrics reports an unknown cluster, where Java fails with a NullPointerException
            raise JavaException(sub_command.ERROR_MESSAGE)
        addresses = {name: info.brokerAddrTable[name].brokerAddrs for name in sorted(names)
                     if name in info.brokerAddrTable}
        for name, of_ids in addresses.items():
            if mix_all.MASTER_ID not in of_ids:
                # Differs: exportMetrics names the broker without a master; the original asks a name server for its
                # values, and fails
                raise JavaException(f"{name} has no master now: its report would be missing")
        report = {name: _broker_info(admin, of_ids[mix_all.MASTER_ID]) for name, of_ids in addresses.items()}
        yield from export({
            "evaluateReport": report,
            "totalData": {"totalTps": _totals(report, "tps", TPS, 0.0),
                          "totalOneDayNum": _totals(report, "oneDayNum", ONE_DAY_NUM, 0)},
        }, f"{file_path(command_line)}/metrics.json")


def _totals(report: dict[str, Any], table: str, names: dict[str, str], zero: float) -> dict[str, float]:
    return {total: sum((broker["runtimeQuota"][table][name] for broker in report.values()), zero)
            for name, total in names.items()}


def _broker_info(admin: DefaultMQAdminExt, addr: str) -> dict[str, Any]:
    runtime = admin.fetch_broker_runtime_stats(addr).table
    settings = admin.get_broker_config(addr)
    groups = admin.get_user_subscription_group(addr, TIMEOUT_MILLIS)
    return {
        "runtimeEnv": {"cpuNum": settings.get("clientCallbackExecutorThreads"),
                       "totalMemKBytes": runtime.get("totalMemKBytes")},
        "runtimeQuota": _runtime_quota(admin, addr, runtime, groups),
        "runtimeVersion": {"rocketmqVersion": java.get_version_desc(java.CURRENT_VERSION),
                           "clientInfo": _client_info(admin, groups)},
    }


def _runtime_quota(
    admin: DefaultMQAdminExt, addr: str, runtime: dict[str, str], groups: SubscriptionGroupWrapper
) -> dict[str, Any]:
    transactions = _puts(admin, addr, topics.RMQ_SYS_TRANS_HALF_TOPIC)
    delayed = _puts(admin, addr, topics.RMQ_SYS_SCHEDULE_TOPIC)
    in_tps, out_tps = (first_real(runtime.get(key)) for key in ("putTps", "getTransferedTps"))
    in_num, out_num = (whole(runtime.get(f"{key}TodayMorning"), 0) - whole(runtime.get(f"{key}YesterdayMorning"), 0)
                       for key in ("msgPutTotal", "msgGetTotal"))
    tps = (in_tps, out_tps, *(data.statsMinute.tps if data else 0.0 for data in (transactions, delayed)))
    nums = (in_num, out_num, *(compute_24_hour_sum(data) if data else 0 for data in (transactions, delayed)))
    return {
        "diskRatio": {key: runtime.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "tps": dict(zip(TPS, tps)),
        "oneDayNum": dict(zip(ONE_DAY_NUM, nums)),
        "messageAverageSize": runtime.get("putMessageAverageSize"),
        "topicSize": len(admin.get_user_topic_config(addr, False, TIMEOUT_MILLIS).topicConfigTable),
        "groupSize": len(groups.subscriptionGroupTable),
    }


def _puts(admin: DefaultMQAdminExt, addr: str, topic: str) -> BrokerStatsData | None:
    """Return the counter of a topic's messages, or None when the broker has no such counter."""
    try:
        return admin.view_broker_stats_data(addr, stats.TOPIC_PUT_NUMS, topic)
    except MQClientException as error:
        log.debug("messages of %s on %s: %s", topic, addr, error)
        return None


def _client_info(admin: DefaultMQAdminExt, groups: SubscriptionGroupWrapper) -> list[str]:
    """Return the languages and versions of all consumers; groups that are not running are omitted."""
    result: set[str] = set()
    for group in groups.subscriptionGroupTable:
        try:
            connections = admin.examine_consumer_connection_info(group).connectionSet
        except (MQClientException, MQBrokerException, RemotingException) as error:
            log.debug("clients of %s: %s", group, error)
            continue
        result |= {f"{each.language}%{java.get_version_desc(each.version)}" for each in connections}
    return sorted(result)
