"""mqadmin electMaster."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Row, java_text
from rmqha.tools.command.sub_command import SubCommand


class ReElectMasterSubCommand(SubCommand):
    """Has the controller make a replica the master.

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
        """Tell the leading controller."""
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
