"""mqadmin commands for controllers, replication and the list of clusters.

Commands: cleanBrokerMetadata, getControllerConfig, updateControllerConfig, getControllerMetaData, electMaster,
getSyncStateSet, clusterList.
"""
from collections.abc import Iterator

from rmqha.client.exception import MQBrokerException
from rmqha.common import util_all
from rmqha.common.protocol.cluster_bodies import ReplicaIdentity, ReplicasInfo
from rmqha.common.texts import first_real, real, whole
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_track import print_stack_trace
from rmqha.tools.command import commons_cli, sub_command
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, flag, option
from rmqha.tools.command.namesrv import settings_of
from rmqha.tools.command.sub_command import JavaException, Part, Row, SubCommand, Table, java_text


class CleanControllerBrokerMetaSubCommand(SubCommand):
    """Makes the controller forget replicas.

    Java: org.apache.rocketmq.tools.command.controller.CleanControllerBrokerMetaSubCommand (5.1.4)
    """

    command_name = "cleanBrokerMetadata"
    command_desc = "Clean metadata of broker on controller."
    options = (
        option("a", "controllerAddress", "The address of controller", required=True),
        option("b", "brokerControllerIdsToClean",
               "The brokerController id list which requires to clean metadata. eg: 1;2;3, means that clean broker-1, "
               "broker-2 and broker-3"),
        option("bn", "brokerName", "The broker name of the replicas that require to be manipulated", required=True),
        option("c", "clusterName", "The clusterName of broker"),
        flag("l", "cleanLivingBroker", "Whether clean up living brokers,default value is false"),
    )
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send the request to the leading controller."""
        name, cluster, ids = command_line.required("bn"), command_line.text("c"), command_line.text("b")
        living = command_line.has_option("l")
        if ids is not None:
            _check(ids)
        if not living and not cluster:
            raise JavaException("cleanLivingBroker option is false, clusterName option can not be empty.")
        admin.clean_controller_broker_data(command_line.required("a"), cluster, name, ids, living)
        yield f"clear broker {name} metadata from controller success! \n"


def _check(ids: str) -> None:
    # Differs: an id that is not a number is refused here; in 5.1.4 the check never runs, and the controller fails
    try:
        for each in ids.split(";"):
            commons_cli.parse_long(each)
    except NumberFormatException as error:
        raise JavaException(
            "please set the option <brokerControllerIdsToClean> according to the format") from error


_ADDRESSES = option("a", "controllerAddress", "Controller address list, eg: 192.168.0.1:9878;192.168.0.2:9878",
                    required=True)


def _controllers(command_line: CommandLine) -> list[str]:
    return [each.strip() for each in command_line.required("a").split(";") if each.strip()]


class GetControllerConfigSubCommand(SubCommand):
    """Prints all settings of controllers.

    Java: org.apache.rocketmq.tools.command.controller.GetControllerConfigSubCommand (5.1.4)
    """

    command_name = "getControllerConfig"
    command_desc = "Get controller config."
    options = (_ADDRESSES,)
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the controllers."""
        yield from settings_of("controllerAddress", admin.get_controller_config(_controllers(command_line)))


class UpdateControllerConfigSubCommand(SubCommand):
    """Changes a setting of controllers while they run.

    Java: org.apache.rocketmq.tools.command.controller.UpdateControllerConfigSubCommand (5.1.4)
    """

    command_name = "updateControllerConfig"
    command_desc = "Update controller config."
    options = (
        _ADDRESSES,
        option("k", "key", "config key", required=True),
        option("v", "value", "config value", required=True),
    )
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Change the setting on the controllers."""
        key, value, controllers = command_line.required("k"), command_line.required("v"), _controllers(command_line)
        admin.update_controller_config({key: value}, controllers)
        yield f"update controller config success![{', '.join(controllers)}]\n{key} : {value}\n"


class GetControllerMetaDataSubCommand(SubCommand):
    """Prints the group of a controller, its leader and its members.

    Java: org.apache.rocketmq.tools.command.controller.GetControllerMetaDataSubCommand (5.1.4)
    """

    command_name = "getControllerMetaData"
    command_desc = "Get controller cluster's metadata."
    options = (option("a", "controllerAddress", "the address of controller", required=True),)
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the controller."""
        found = admin.get_controller_meta_data(command_line.required("a"))
        peers = [peer for peer in (found.peers or "").split(";") if peer]
        text = (f"\n#ControllerGroup\t{java_text(found.group)}"
                f"\n#ControllerLeaderId\t{java_text(found.controllerLeaderId)}"
                f"\n#ControllerLeaderAddress\t{java_text(found.controllerLeaderAddress)}")
        yield Row(text + "".join(f"\n#Peer:\t{peer}" for peer in peers) + "\n", {
            "group": found.group, "controllerLeaderId": found.controllerLeaderId,
            "controllerLeaderAddress": found.controllerLeaderAddress, "peers": peers})


class ReElectMasterSubCommand(SubCommand):
    """Makes the controller elect a replica as master.

    Java: org.apache.rocketmq.tools.command.controller.ReElectMasterSubCommand (5.1.4)
    """

    command_name = "electMaster"
    command_desc = "Re-elect the specified broker as master."
    options = (
        option("a", "controllerAddress", "The address of controller", required=True),
        option("b", "brokerId", "The id of the broker which requires to become master", required=True),
        option("bn", "brokerName", "The broker name of the replicas that require to be manipulated", required=True),
        option("c", "clusterName", "the clusterName of broker", required=True),
    )
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send the request to the leading controller."""
        cluster, name = command_line.required("c"), command_line.required("bn")
        elected, members = admin.elect_master(command_line.required("a"), cluster, name, command_line.integer("b"))
        yield Row(f"\n#ClusterName\t{cluster}\n#BrokerName\t{name}"
                  f"\n#BrokerMasterAddr\t{java_text(elected.masterAddress)}"
                  f"\n#MasterEpoch\t{java_text(elected.masterEpoch)}"
                  f"\n#SyncStateSetEpoch\t{java_text(elected.syncStateSetEpoch)}\n",
                  {"clusterName": cluster, "brokerName": name, "masterAddress": elected.masterAddress,
                   "masterEpoch": elected.masterEpoch, "syncStateSetEpoch": elected.syncStateSetEpoch})
        for broker_id, address in sorted((members.brokerAddrs if members else {}).items()):
            yield Row(f"\t#Broker\t{broker_id}\t{address}\n", {"brokerId": broker_id, "brokerAddress": address})


class GetSyncStateSetSubCommand(SubCommand):
    """Prints master, epochs and replicas of a broker name, or of all in a cluster, according to the controller.

    Java: org.apache.rocketmq.tools.command.ha.GetSyncStateSetSubCommand (5.1.4)
    """

    command_name = "getSyncStateSet"
    command_desc = "Fetch syncStateSet for target brokers."
    options = (
        option("a", "controllerAddress", "the address of controller", required=True),
        option("b", "brokerName", "which broker to fetch"),
        option("c", "clusterName", "which cluster"),
        option("i", "interval", "the interval(second) of get info"),
    )
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the leading controller; with -i, repeatedly."""
        return sub_command.again_with_interval(command_line, lambda: self._ask(command_line, admin), 3)

    def _ask(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        if command_line.has_option("b"):
            names = [command_line.required("b")]
        elif command_line.has_option("c"):
            names = sub_command.fetch_broker_name_by_cluster_name(admin, command_line.required("c"))
        else:
            yield self.help()
            return
        controller = command_line.required("a").split(";")[0]
        # Differs: broker names are sorted, where Java prints them in the order of its hash table
        for name, info in sorted(admin.get_in_sync_state_data(controller, names).replicasInfoTable.items()):
            yield from _parts(name, info)


def _parts(name: str, info: ReplicasInfo) -> Iterator[Part]:
    yield Row(f"\n#brokerName\t{name}\n#MasterBrokerId\t{java_text(info.masterBrokerId)}"
              f"\n#MasterAddr\t{java_text(info.masterAddress)}\n#MasterEpoch\t{java_text(info.masterEpoch)}"
              f"\n#SyncStateSetEpoch\t{java_text(info.syncStateSetEpoch)}"
              f"\n#SyncStateSetNums\t{len(info.inSyncReplicas)}\n",
              {"brokerName": name, "masterBrokerId": info.masterBrokerId, "masterAddress": info.masterAddress,
               "masterEpoch": info.masterEpoch, "syncStateSetEpoch": info.syncStateSetEpoch,
               "syncStateSetNums": len(info.inSyncReplicas)})
    for title, replicas in (("InSyncReplica", info.inSyncReplicas), ("NotInSyncReplica", info.notInSyncReplicas)):
        for replica in replicas:
            yield Row(f"\n{title}:\t{_text(replica)}\n",
                      {"brokerName": replica.brokerName, "brokerId": replica.brokerId,
                       "brokerAddress": replica.brokerAddress, "alive": replica.alive,
                       "inSync": replicas is info.inSyncReplicas})


def _text(replica: ReplicaIdentity) -> str:
    return (f"ReplicaIdentity{{brokerName='{java_text(replica.brokerName)}', brokerId={java_text(replica.brokerId)}, "
            f"brokerAddress='{java_text(replica.brokerAddress)}', alive={java_text(replica.alive)}}}")


BROKERS = Table("%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s\n", {
    "clusterName": "#Cluster Name", "brokerName": "#Broker Name", "brokerId": "#BID", "brokerAddr": "#Addr",
    "version": "#Version", "inTps": "#InTPS(LOAD)", "outTps": "#OutTPS(LOAD)", "pageCacheLockTimeMills": "#PCWait(ms)",
    "hour": "#Hour", "space": "#SPACE"})
TOTALS = Table("%-16s  %-32s %14d %14d %14d %14d\n", {
    "clusterName": "#Cluster Name", "brokerName": "#Broker Name", "inTotalYest": "#InTotalYest",
    "outTotalYest": "#OutTotalYest", "inTotalToday": "#InTotalToday", "outTotalToday": "#OutTotalToday"})
MILLIS_PER_HOUR = 3_600_000


class ClusterListSubCommand(SubCommand):
    """Prints all brokers with their load, or (-m) their messages of yesterday and today; with -i, repeatedly.

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
        return sub_command.again_with_interval(command_line, lambda: print_cluster(admin))


def _brokers(admin: DefaultMQAdminExt) -> list[tuple[str, str, int, str]]:
    """Return cluster, broker name, id and address of all brokers."""
    info = admin.examine_broker_cluster_info()
    # Differs: clusters are sorted, where Java prints them in the order of its hash table
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
