"""mqadmin clusterAclConfigVersion."""
from collections.abc import Iterator

from rmqha.common import util_all
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, OptionGroup, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

FILES = Table("%-16s  %-22s  %-22s  %-20s  %-22s  %-22s\n", {
    "clusterName": "#Cluster Name", "brokerName": "#Broker Name", "brokerAddr": "#Broker Addr",
    "aclFilePath": "#AclFilePath", "aclConfigVersionNum": "#AclConfigVersionNum",
    "aclLastUpdateTime": "#AclLastUpdateTime"})


class ClusterAclConfigVersionListSubCommand(SubCommand):
    """The versions of the brokers' account files.

    Java: org.apache.rocketmq.tools.command.acl.ClusterAclConfigVersionListSubCommand (4.9.8)
    """

    command_name = "clusterAclConfigVersion"
    command_desc = "List all of acl config version information in cluster"
    options = (OptionGroup((
        option("b", "brokerAddr", "query acl config version for which broker"),
        option("c", "clusterName", "query acl config version for specified cluster"),
    )),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Of a broker, or of all masters of a cluster."""
        if command_line.has_option("b"):
            yield from _files(admin, command_line.required("b"))
            yield "get broker's plain access config version success.\n"
            return
        addrs = yield from command_util.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
        yield FILES.heading()
        for addr in addrs:
            yield from _files(admin, addr)
        yield "get cluster's plain access config version success.\n"


def _files(admin: DefaultMQAdminExt, addr: str) -> Iterator[Part]:
    info = admin.api.get_broker_cluster_acl_info(addr, admin.timeout_millis)
    for path, version in sorted((info.allAclConfigDataVersion or {}).items()):
        time = util_all.format_date(version.timestamp)
        counter = version.counter
        yield FILES.row(info.clusterName, info.brokerName, info.brokerAddr, path, counter, time,
                        aclLastUpdateTime=version.timestamp)
