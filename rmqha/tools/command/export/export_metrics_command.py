"""mqadmin exportMetrics."""
import logging
from collections.abc import Iterator
from typing import Any

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import java, mix_all, stats, topics
from rmqha.common.protocol.table_bodies import BrokerStatsData, SubscriptionGroupWrapper
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.export.export_configs_command import export, file_path
from rmqha.tools.command.output import Part
from rmqha.tools.command.stats.stats_all_sub_command import compute_24_hour_sum
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.command.sub_command_exception import JavaException
from rmqha.tools.dialect.numbers import first_real, whole

log = logging.getLogger("RocketmqTools")

TIMEOUT_MILLIS = 10_000
# Of a broker -> summed over all brokers.
TPS = {"normalInTps": "totalNormalInTps", "normalOutTps": "totalNormalOutTps", "transInTps": "totalTransInTps",
       "scheduleInTps": "totalScheduleInTps"}
ONE_DAY_NUM = {name: name for name in (
    "normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")}


class ExportMetricsCommand(SubCommand):
    """Writes what the masters of a cluster tell of themselves, with sums, into `metrics.json`.

    Java: org.apache.rocketmq.tools.command.export.ExportMetricsCommand (4.9.8)
    """

    command_name = "exportMetrics"
    command_desc = "export metrics"
    options = (
        option("c", "clusterName", "choose a cluster to export", required=True),
        option("f", "filePath", "export metrics.json path | default /tmp/rocketmq/export"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the masters, write the file."""
        info = admin.examine_broker_cluster_info()
        names = info.clusterAddrTable.get(command_line.required("c"))
        if names is None:
            # Differs: says what is wrong, where Java fails with a NullPointerException
            raise JavaException(command_util.ERROR_MESSAGE)
        addresses = {name: info.brokerAddrTable[name].brokerAddrs for name in sorted(names)
                     if name in info.brokerAddrTable}
        for name, of_ids in addresses.items():
            if mix_all.MASTER_ID not in of_ids:
                # Differs: names the broker without a master; the original asks a name server for its figures, and fails
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
    """The counter of a topic's messages; None when the broker has none."""
    try:
        return admin.view_broker_stats_data(addr, stats.TOPIC_PUT_NUMS, topic)
    except MQClientException as error:
        log.debug("messages of %s on %s: %s", topic, addr, error)
        return None


def _client_info(admin: DefaultMQAdminExt, groups: SubscriptionGroupWrapper) -> list[str]:
    """Languages and versions of all consumers; groups that do not run are left out."""
    result: set[str] = set()
    for group in groups.subscriptionGroupTable:
        try:
            connections = admin.examine_consumer_connection_info(group).connectionSet
        except (MQClientException, MQBrokerException, RemotingException) as error:
            log.debug("clients of %s: %s", group, error)
            continue
        result |= {f"{each.language}%{java.get_version_desc(each.version)}" for each in connections}
    return sorted(result)
