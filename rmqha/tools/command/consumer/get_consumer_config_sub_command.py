"""mqadmin getConsumerConfig."""
from collections.abc import Iterator
from dataclasses import asdict

from rmqha.common import mix_all
from rmqha.common.java import hash_map_order
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.sub_command import SubCommand

_RULE = "=" * 29


class GetConsumerConfigSubCommand(SubCommand):
    """A group's settings on each broker that has it.

    Java: org.apache.rocketmq.tools.command.consumer.GetConsumerConfigSubCommand (4.9.8)
    """

    command_name = "getConsumerConfig"
    command_desc = "Get consumer config by subscription group name!"
    options = (option("g", "groupName", "subscription group name", required=True),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask a broker of each name."""
        info = admin.examine_broker_cluster_info()
        for name in hash_map_order(sorted(info.brokerAddrTable)):
            addr = info.brokerAddrTable[name].select_broker_addr()
            # Differs: a broker without an address is passed over; the original asks a name server, and fails
            config = admin.examine_subscription_group_config(addr, command_line.required("g")) if addr else None
            if config is None:
                continue
            cluster = next((cluster for cluster, names in sorted(info.clusterAddrTable.items()) if name in names), None)
            settings = asdict(config)
            lines = [f"{key:<40}=  {'' if value is None else mix_all.property_text(value)}\n"
                     for key, value in settings.items()]
            yield Document(f"{_RULE}{cluster}:{name}{_RULE}\n{''.join(lines)}",
                           {"clusterName": cluster, "brokerName": name, **settings})
