"""mqadmin updateAclConfig."""
from collections.abc import Iterator
from dataclasses import asdict

from rmqha.common.topics import PlainAccessConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.acl.chosen_brokers import chosen_brokers
from rmqha.tools.command.commons_cli import CommandLine, OptionGroup, option
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.sub_command import SubCommand


class UpdateAccessConfigSubCommand(SubCommand):
    """Make an account in the brokers' files, or change it.

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
        """On a broker, or on all of a cluster."""
        config = plain_access_config(command_line)
        addrs = yield from chosen_brokers(admin, command_line)
        for addr in addrs:
            admin.api.create_plain_access_config(addr, config, admin.timeout_millis)
            yield f"create or update plain access config to {addr} success.\n"
        fields = asdict(config)
        del fields["secretKey"]
        yield Document(str(config), fields)


def plain_access_config(command_line: CommandLine) -> PlainAccessConfig:
    """The account that the options describe."""
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
