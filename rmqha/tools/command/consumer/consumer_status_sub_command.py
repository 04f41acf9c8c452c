"""mqadmin consumerStatus."""
from collections.abc import Iterator
from pathlib import Path

from rmqha.common import util_all
from rmqha.common.java import get_version_desc
from rmqha.common.protocol.client_bodies import Connection, ConsumerRunningInfo
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS, get_consumer_running_info
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.output import Document, Part, Table
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand

CLIENTS = Table("%-10d %-40s %-20s %s\n", {
    "index": "#Index", "clientId": "#ClientId", "version": "#Version",
    "consumerRunningInfoFile": "#ConsumerRunningInfoFile"})


class ConsumerStatusSubCommand(SubCommand):
    """What the clients of a group do: each in a file, or one of them (-i) at once.

    Java: org.apache.rocketmq.tools.command.consumer.ConsumerStatusSubCommand (4.9.8)
    """

    command_name = "consumerStatus"
    command_desc = "Query consumer's internal data structure"
    options = (
        option("g", "consumerGroup", "consumer group name", required=True),
        option("i", "clientId", "The consumer's client id"),
        option("b", "brokerAddr", "broker address"),
        flag("s", "jstack", "Run jstack command in the consumer progress"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask each client through a broker."""
        group, jstack = command_line.required("g"), command_line.has_option("s")
        connections = admin.examine_consumer_connection_info(group, command_line.text("b")).connectionSet
        if command_line.has_option("i"):
            info = get_consumer_running_info(admin, group, command_line.required("i"), jstack)
            yield Document(info.format_string(), info)
            return
        yield CLIENTS.heading()
        infos: dict[str, ConsumerRunningInfo] = {}
        folder = Path(str(util_all.current_time_millis()))
        for connection in sorted(connections, key=lambda each: each.clientId):
            try:
                info = get_consumer_running_info(admin, group, connection.clientId, jstack)
                file = write_info(folder, connection, info)
            except (*ASK_ERRORS, OSError) as error:
                yield stack_trace(error)
                continue
            infos[connection.clientId] = info
            yield CLIENTS.row(len(infos), connection.clientId, get_version_desc(connection.version), file)
        if infos:
            yield _findings(infos)


def write_info(folder: Path, connection: Connection, info: ConsumerRunningInfo) -> str:
    """Write what a client does into a file of its name; the file's path."""
    # Differs: a client calls itself what it likes; what would lead out of the folder is taken out of the file's name
    name = connection.clientId.replace("/", "_").replace("\0", "_")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (name if name.strip(".") else f"_{name}")
    file.write_text(info.format_string(), encoding="utf-8")
    return str(file)


def _findings(infos: dict[str, ConsumerRunningInfo]) -> Document:
    same = ConsumerRunningInfo.analyze_subscription(infos)
    if not same:
        return Document("\n\nWARN: Different subscription in the same group of consumer!!!",
                        {"sameSubscription": False})
    balanced = ConsumerRunningInfo.analyze_rebalance(infos)
    troubles = [ConsumerRunningInfo.analyze_process_queue(client_id, infos[client_id]) for client_id in sorted(infos)]
    text = ("\n\nSame subscription in the same group of consumer"
            f"\n\nRebalance {'OK' if balanced else 'Failed'}\n{''.join(troubles)}")
    return Document(text, {"sameSubscription": True, "rebalance": balanced,
                           "stuck": [line for trouble in troubles for line in trouble.splitlines()]})
