"""mqadmin consumerConnection."""
from collections.abc import Iterator
from enum import Enum

from rmqha.common.java import get_version_desc, hash_map_order
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Document, Part, Table
from rmqha.tools.command.sub_command import SubCommand

CONNECTIONS = Table("%-36s %-22s %-10s %s\n", {
    "clientId": "#ClientId", "clientAddr": "#ClientAddr", "language": "#Language", "version": "#Version"})
SUBSCRIPTIONS = Table("%-20s %s\n", {"topic": "#Topic", "subExpression": "#SubExpression"})


class ConsumerConnectionSubCommand(SubCommand):
    """Who consumes as a group, what, and how.

    Java: org.apache.rocketmq.tools.command.connection.ConsumerConnectionSubCommand (4.9.8)
    """

    command_name = "consumerConnection"
    command_desc = "Query consumer's socket connection, client version and subscription"
    options = (
        option("g", "consumerGroup", "consumer group name", required=True),
        option("b", "brokerAddr", "broker address"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask a broker."""
        found = admin.examine_consumer_connection_info(command_line.required("g"), command_line.text("b"))
        yield CONNECTIONS.heading()
        for one in sorted(found.connectionSet, key=lambda each: each.clientId):
            yield CONNECTIONS.row(one.clientId, one.clientAddr, one.language, get_version_desc(one.version))
        yield "\nBelow is subscription:\n"
        yield SUBSCRIPTIONS.heading()
        for topic in hash_map_order(found.subscriptionTable):
            subscription = found.subscriptionTable[topic]
            yield SUBSCRIPTIONS.row(subscription.topic, subscription.subString)
        kinds = {"ConsumeType": found.consumeType, "MessageModel": found.messageModel,
                 "ConsumeFromWhere": found.consumeFromWhere}
        lines = "".join(f"{name}: {_name(value)}\n" for name, value in kinds.items())
        yield Document(f"\n{lines}", {name[0].lower() + name[1:]: _name(value) for name, value in kinds.items()})


def _name(value: Enum | None) -> str:
    return "null" if value is None else value.name
