"""mqadmin clusterList."""
from collections.abc import Iterator

from rmqha.client.exception import MQBrokerException
from rmqha.common import util_all
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.stack_trace import print_stack_trace
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.dialect.numbers import first_real, real, whole

BROKERS = Table("%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s\n", {
    "clusterName": "#Cluster Name", "brokerName": "#Broker Name", "brokerId": "#BID", "brokerAddr": "#Addr",
    "version": "#Version", "inTps": "#InTPS(LOAD)", "outTps": "#OutTPS(LOAD)", "pageCacheLockTimeMills": "#PCWait(ms)",
    "hour": "#Hour", "space": "#SPACE"})
TOTALS = Table("%-16s  %-32s %14d %14d %14d %14d\n", {
    "clusterName": "#Cluster Name", "brokerName": "#Broker Name", "inTotalYest": "#InTotalYest",
    "outTotalYest": "#OutTotalYest", "inTotalToday": "#InTotalToday", "outTotalToday": "#OutTotalToday"})
MILLIS_PER_HOUR = 3_600_000


class ClusterListSubCommand(SubCommand):
    """All brokers with their load, or (-m) with their messages of yesterday and today; again and again with -i.

    Java: org.apache.rocketmq.tools.command.cluster.ClusterListSubCommand (4.9.8)
    """

    command_name = "clusterList"
    command_desc = "List all of clusters"
    options = (
        flag("m", "moreStats", "Print more stats"),
        option("i", "interval", "specify intervals numbers, it is in seconds"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name server, then each broker."""
        print_cluster = _more_stats if command_line.has_option("m") else _base_info
        return command_util.again_with_interval(command_line, lambda: print_cluster(admin))


def _brokers(admin: DefaultMQAdminExt) -> list[tuple[str, str, int, str]]:
    """Cluster, broker name, id and address of all."""
    info = admin.examine_broker_cluster_info()
    # Differs: clusters stand sorted, where Java's stand as its hash table has them
    return [(cluster, name, broker_id, addr)
            for cluster, names in sorted(info.clusterAddrTable.items())
            for name in sorted(names) if name in info.brokerAddrTable
            for broker_id, addr in sorted(info.brokerAddrTable[name].brokerAddrs.items())]


def _runtime(admin: DefaultMQAdminExt, addr: str) -> dict[str, str]:
    try:
        return admin.fetch_broker_runtime_stats(addr).table
    except (MQBrokerException, RemotingException) as error:
        print_stack_trace(error)
        return {}


def _more_stats(admin: DefaultMQAdminExt) -> Iterator[Part]:
    brokers = _brokers(admin)
    yield TOTALS.heading()
    for cluster, name, _, addr in brokers:
        runtime = _runtime(admin, addr)
        put, got = (
            [whole(runtime.get(f"{counter}{moment}"), 0) for moment in ("YesterdayMorning", "TodayMorning", "TodayNow")]
            for counter in ("msgPutTotal", "msgGetTotal"))
        yield TOTALS.row(cluster, name, put[1] - put[0], got[1] - got[0], put[2] - put[1], got[2] - got[1])


def _base_info(admin: DefaultMQAdminExt) -> Iterator[Part]:
    brokers = _brokers(admin)
    yield BROKERS.heading()
    for cluster, name, broker_id, addr in brokers:
        yield _broker_row(_runtime(admin, addr), cluster, name, broker_id, addr)


def _broker_row(runtime: dict[str, str], cluster: str, name: str, broker_id: int, addr: str) -> Part:
    def text(key: str) -> str:
        return runtime.get(key, "null" if runtime else "")

    in_tps, out_tps = (first_real(runtime.get(key)) for key in ("putTps", "getTransferedTps"))
    earliest = whole(runtime.get("earliestMessageTimeStamp"), 0)
    space = real(runtime.get("commitLogDiskRatio")) or 0.0
    hour = (util_all.current_time_millis() - earliest) / MILLIS_PER_HOUR if earliest else 0.0
    send_load, pull_load = (
        f"({text(f'{pool}ThreadPoolQueueSize')},{text(f'{pool}ThreadPoolQueueHeadWaitTimeMills')}ms)"
        for pool in ("send", "pull"))
    return BROKERS.row(
        cluster, name, broker_id, addr, text("brokerVersionDesc"), f"{in_tps:9.2f}{send_load}",
        f"{out_tps:9.2f}{pull_load}", text("pageCacheLockTimeMills"), f"{hour:2.2f}", f"{space:.4f}",
        inTps=in_tps, outTps=out_tps, hour=hour, space=space,
        sendThreadPoolQueueSize=text("sendThreadPoolQueueSize"),
        pullThreadPoolQueueSize=text("pullThreadPoolQueueSize"))
