"""mqadmin producerConnection."""
from collections.abc import Iterator

from rmqha.common.java import get_version_desc
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import examine_producer_connection_info
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Table
from rmqha.tools.command.sub_command import SubCommand

CONNECTIONS = Table("%04d  %-32s %-22s %-8s %s\n", {
    "index": "", "clientId": "", "clientAddr": "", "language": "", "version": ""})


class ProducerConnectionSubCommand(SubCommand):
    """Who produces as a group, as one of a topic's brokers tells.

    Java: org.apache.rocketmq.tools.command.connection.ProducerConnectionSubCommand (4.9.8)
    """

    command_name = "producerConnection"
    command_desc = "Query producer's socket connection and client version"
    options = (
        option("g", "producerGroup", "producer group name", required=True),
        option("t", "topic", "topic name", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the broker."""
        found = examine_producer_connection_info(admin, command_line.required("g"), command_line.required("t"))
        for index, one in enumerate(sorted(found.connectionSet, key=lambda each: each.clientId), 1):
            yield CONNECTIONS.row(index, one.clientId, one.clientAddr, one.language, get_version_desc(one.version))
