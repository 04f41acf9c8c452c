"""mqadmin producer."""
from collections.abc import Iterator

from rmqha.common.java import hash_map_order
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Row
from rmqha.tools.command.sub_command import SubCommand


class ProducerSubCommand(SubCommand):
    """All producers that are connected to a broker.

    Java: org.apache.rocketmq.tools.command.producer.ProducerSubCommand (4.9.8)
    """

    command_name = "producer"
    command_desc = "Query producer's instances, connection, status, etc."
    options = (option("b", "broker", "broker address", required=True),)

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the broker."""
        groups = admin.api.get_all_producer_info(command_line.required("b"), admin.timeout_millis).data
        for group in hash_map_order(groups):
            if not groups[group]:
                yield f"producer group ({group}) instances are empty\n"
            for one in groups[group]:
                yield Row(f"producer group ({group}) instance : {one}\n", {
                    "group": group, "clientId": one.clientId, "remoteIP": one.remoteIP, "language": one.language,
                    "version": one.version, "lastUpdateTimestamp": one.lastUpdateTimestamp})
