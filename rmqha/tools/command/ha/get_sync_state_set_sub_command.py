"""mqadmin getSyncStateSet."""
from collections.abc import Iterator

from rmqha.common.protocol.cluster_bodies import ReplicaIdentity, ReplicasInfo
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Row, java_text
from rmqha.tools.command.sub_command import SubCommand


class GetSyncStateSetSubCommand(SubCommand):
    """Master, epochs and replicas of a broker name, or of all of a cluster, as the controller has them.

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
        """Ask the leading controller; again and again with -i."""
        return command_util.again_with_interval(command_line, lambda: self._ask(command_line, admin), 3)

    def _ask(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        if command_line.has_option("b"):
            names = [command_line.required("b")]
        elif command_line.has_option("c"):
            names = command_util.fetch_broker_name_by_cluster_name(admin, command_line.required("c"))
        else:
            yield self.help()
            return
        controller = command_line.required("a").split(";")[0]
        # Differs: broker names stand sorted, where Java's stand as its hash table has them
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
