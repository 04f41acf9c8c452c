"""mqadmin consumerProgress."""
import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from rmqha.common import mix_all, util_all
from rmqha.common.java import get_version_desc, hash_map_order
from rmqha.common.message.message import MessageQueue
from rmqha.common.subscriptions import ConsumeType
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS, get_consumer_running_info
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Document, Part, Row, Table
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.dialect.numbers import real

log = logging.getLogger("RocketmqClient")

_PLACE = {"topic": "#Topic", "brokerName": "#Broker Name", "queueId": "#QID", "brokerOffset": "#Broker Offset",
          "consumerOffset": "#Consumer Offset"}
_END = {"diff": "#Diff", "lastTime": "#LastTime"}
QUEUES = Table("%-64.64s  %-32.32s  %-4d  %-20d  %-20d  %-20d  %s\n", {**_PLACE, **_END})
QUEUES_AND_CLIENTS = Table("%-64.64s  %-32.32s  %-4d  %-20d  %-20d  %-20s %-20d  %s\n",
                           {**_PLACE, "clientIp": "#Client IP", **_END})
GROUPS = Table(
    "%-64.64s  %-6d  %-24s %-5s  %-14s  %-7d  %d\n",
    {"group": "#Group", "count": "#Count", "version": "#Version", "type": "#Type", "model": "#Model", "tps": "#TPS",
     "diffTotal": "#Diff Total"})

T = TypeVar("T")


class ConsumerProgressSubCommand(SubCommand):
    """How far a group has come, queue by queue; without one, how far all groups have come.

    Java: org.apache.rocketmq.tools.command.consumer.ConsumerProgressSubCommand (4.9.8)
    """

    command_name = "consumerProgress"
    command_desc = "Query consumers's progress, speed"
    options = (
        option("g", "groupName", "consumer group name"),
        option("s", "showClientIP", "Show Client IP per Queue"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers of the retry topics."""
        if command_line.has_option("g"):
            yield from _progress(admin, command_line.required("g"), command_line.boolean("s"))
            return
        yield GROUPS.heading()
        prefix = mix_all.RETRY_GROUP_TOPIC_PREFIX
        for topic in hash_map_order(sorted(admin.fetch_all_topic_list().topicList)):
            if topic.startswith(prefix):
                yield _group(admin, topic.removeprefix(prefix))


def _progress(admin: DefaultMQAdminExt, group: str, show_client_ip: bool) -> Iterator[Part]:
    stats = admin.examine_consume_stats(group)
    clients = _clients_by_queue(admin, group) if show_client_ip else {}
    yield (QUEUES_AND_CLIENTS if show_client_ip else QUEUES).heading()
    for queue, place in sorted(stats.offsetTable.items()):
        diff, millis = place.brokerOffset - place.consumerOffset, place.lastTimestamp
        time = util_all.format_date(millis) if millis else "N/A"
        cells = (queue.topic, queue.brokerName, queue.queueId, place.brokerOffset, place.consumerOffset)
        if show_client_ip:
            client = clients.get(queue)
            yield QUEUES_AND_CLIENTS.row(*cells, client or "N/A", diff, time, clientIp=client, lastTime=millis)
        else:
            yield QUEUES.row(*cells, diff, time, lastTime=millis)
    total = stats.compute_total_diff()
    text = f"\nConsume TPS: {stats.consumeTps:.2f}\nDiff Total: {total}\n"
    yield Document(text, {"consumeTps": stats.consumeTps, "diffTotal": total})


def _clients_by_queue(admin: DefaultMQAdminExt, group: str) -> dict[MessageQueue, str]:
    """Address of the client that has a queue, by queue; as far as clients answer."""
    clients: dict[MessageQueue, str] = {}
    try:
        for connection in admin.examine_consumer_connection_info(group).connectionSet:
            info = get_consumer_running_info(admin, group, connection.clientId, False)
            clients.update(dict.fromkeys(info.mqTable, connection.clientId.partition("@")[0]))
    except ASK_ERRORS as error:
        log.warning("who has which queue of group %s can't be told: %s", group, error)
    return clients


def _group(admin: DefaultMQAdminExt, group: str) -> Row:
    stats = _or_none("examineConsumeStats", group, admin.examine_consume_stats)
    connection = _or_none("examineConsumerConnectionInfo", group, admin.examine_consumer_connection_info)
    tps, diff = (int(real(stats.consumeTps) or 0), stats.compute_total_diff()) if stats is not None else (0, 0)
    if connection is None:
        return GROUPS.row(group, 0, "OFFLINE", "", "", tps, diff)
    kind, model = "PUSH", connection.messageModel.name if connection.messageModel is not None else "null"
    if connection.consumeType is ConsumeType.CONSUME_ACTIVELY:
        kind, model = "PULL", ""
    return GROUPS.row(group, len(connection.connectionSet), get_version_desc(connection.compute_min_version()), kind,
                      model, tps, diff)


def _or_none(what: str, group: str, ask: Callable[[str], T]) -> T | None:
    try:
        return ask(group)
    except ASK_ERRORS as error:
        log.warning("%s exception, %s: %s", what, group, error)
        return None
