"""mqadmin commands for access control: accounts, global white addresses and the versions of account files.

Commands: clusterAclConfigVersion, deleteAclConfig, updateAclConfig, updateGlobalWhiteAddr.
"""
from collections.abc import Generator, Iterator
from dataclasses import asdict

from rmqha.common import util_all
from rmqha.common.topics import PlainAccessConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import sub_command
from rmqha.tools.command.commons_cli import CommandLine, OptionGroup, option
from rmqha.tools.command.sub_command import Document, Part, SubCommand, Table


def chosen_brokers(admin: DefaultMQAdminExt, command_line: CommandLine) -> Generator[Part, None, list[str]]:
    """Return the broker of option b, else all brokers, masters and slaves, of the cluster of option c."""
    if command_line.has_option("b"):
        return [command_line.required("b")]
    addrs = yield from sub_command.fetch_master_and_slave_addr_by_cluster_name(admin, command_line.required("c"))
    return addrs


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
        """List the versions on a broker, or on all masters of a cluster."""
        if command_line.has_option("b"):
            yield from _files(admin, command_line.required("b"))
            yield "get broker's plain access config version success.\n"
            return
        addrs = yield from sub_command.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
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


class DeleteAccessConfigSubCommand(SubCommand):
    """Deletes an account from the brokers' files.

    Java: org.apache.rocketmq.tools.command.acl.DeleteAccessConfigSubCommand (4.9.8)
    """

    command_name = "deleteAclConfig"
    command_alias = "deleteAccessConfig"
    command_desc = "Delete Acl Config Account in broker"
    options = (
        OptionGroup((
            option("b", "brokerAddr", "delete acl config account from which broker"),
            option("c", "clusterName", "delete acl config account from which cluster"),
        )),
        option("a", "accessKey", "set accessKey in acl config file for deleting which account", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Delete the account on a broker, or on all brokers of a cluster."""
        access_key = command_line.required("a")
        addrs = yield from chosen_brokers(admin, command_line)
        for addr in addrs:
            admin.api.delete_access_config(addr, access_key, admin.timeout_millis)
            yield f"delete plain access config account from {addr} success.\n"
        yield f"account's accesskey is:{access_key}"


class UpdateAccessConfigSubCommand(SubCommand):
    """Creates an account in the brokers' files, or changes it.

    Java: org.apache.rocketmq.tools.command.acl.UpdateAccessConfigSubCommand (4.9.8)
    """

    command_name = "updateAclConfig"
    command_desc = "Update acl config yaml file in broker"
    options = (
        OptionGroup((
            option("b", "brokerAddr", "update acl config file to which broker"),
            option("c", "clusterName", "update acl config file to which cluster"),
        )),
        option("a", "accessKey", "set accessKey in acl config file", required=True),
        option("s", "secretKey", "set secretKey in acl config file", required=True),
        option("w", "whiteRemoteAddress", "set white ip Address for account in acl config file"),
        option("i", "defaultTopicPerm", "set default topicPerm in acl config file"),
        option("u", "defaultGroupPerm", "set default GroupPerm in acl config file"),
        option("t", "topicPerms", "set topicPerms list,eg: topicA=DENY,topicD=SUB"),
        option("g", "groupPerms", "set groupPerms list,eg: groupD=DENY,groupD=SUB"),
        option("m", "admin", "set admin flag in acl config file"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Store the account on a broker, or on all brokers of a cluster."""
        config = plain_access_config(command_line)
        addrs = yield from chosen_brokers(admin, command_line)
        for addr in addrs:
            admin.api.create_plain_access_config(addr, config, admin.timeout_millis)
            yield f"create or update plain access config to {addr} success.\n"
        fields = asdict(config)
        del fields["secretKey"]
        yield Document(str(config), fields)


def plain_access_config(command_line: CommandLine) -> PlainAccessConfig:
    """Return the account that the options describe."""
    topic_perms, group_perms = command_line.text("t"), command_line.text("g")
    return PlainAccessConfig(
        accessKey=command_line.text("a"),
        secretKey=command_line.text("s"),
        whiteRemoteAddress=command_line.text("w"),
        admin=command_line.boolean("m"),
        defaultTopicPerm=command_line.text("i"),
        defaultGroupPerm=command_line.text("u"),
        topicPerms=None if topic_perms is None else topic_perms.split(","),
        groupPerms=None if group_perms is None else group_perms.split(","),
    )


class UpdateGlobalWhiteAddrSubCommand(SubCommand):
    """Sets the addresses that need no account.

    Java: org.apache.rocketmq.tools.command.acl.UpdateGlobalWhiteAddrSubCommand (4.9.8)
    """

    command_name = "updateGlobalWhiteAddr"
    command_desc = "Update global white address for acl Config File in broker"
    options = (
        OptionGroup((
            option("b", "brokerAddr", "update global white address to which broker"),
            option("c", "clusterName", "update global white address to which cluster"),
        )),
        option("g", "globalWhiteRemoteAddresses", "set globalWhiteRemoteAddress list,eg: 10.10.103.*,192.168.0.*",
               required=True),
        option("p", "aclFileFullPath", "update global white address of specified acl file,eg: /xxx/plain_test.yml"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Set the addresses on a broker, or on all brokers of a cluster."""
        addresses, path = command_line.required("g"), command_line.text("p")
        addrs = yield from chosen_brokers(admin, command_line)
        for addr in addrs:
            admin.api.update_global_white_addrs_config(addr, addresses, path, admin.timeout_millis)
            yield f"update global white remote addresses to {addr} success.\n"
