"""mqadmin commands for consumer groups and connected clients.

Commands: consumerProgress, consumerStatus, deleteSubGroup, getConsumerConfig, startMonitoring, updateSubGroup,
consumerConnection, producerConnection, producer.
"""
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TypeVar

from rmqha.client.exception import CLIENT_ERRORS
from rmqha.common import mix_all, util_all
from rmqha.common.java import get_version_desc, hash_map_order
from rmqha.common.message.message import MessageQueue
from rmqha.common.program import StopSignal
from rmqha.common.protocol.client_bodies import Connection, ConsumerRunningInfo
from rmqha.common.subscriptions import ConsumeType
from rmqha.common.texts import real
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.tools.admin.default_mq_admin_ext import (
    DefaultMQAdminExt,
    examine_producer_connection_info,
    get_consumer_running_info,
)
from rmqha.tools.admin.message_track import stack_trace
from rmqha.tools.command import sub_command
from rmqha.tools.command.commons_cli import CommandLine, flag, option
from rmqha.tools.command.sub_command import Document, Part, Row, SubCommand, Table
from rmqha.tools.command.topic import delete_topic
from rmqha.tools.monitor import DefaultMonitorListener, MonitorConfig, MonitorService

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
    """Prints a group's progress queue by queue; without a group, the progress of all groups.

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
    """Return the address of the client that consumes each queue, as far as the clients answer."""
    clients: dict[MessageQueue, str] = {}
    try:
        for connection in admin.examine_consumer_connection_info(group).connectionSet:
            info = get_consumer_running_info(admin, group, connection.clientId, False)
            clients.update(dict.fromkeys(info.mqTable, connection.clientId.partition("@")[0]))
    except CLIENT_ERRORS as error:
        log.warning("can't find the clients that consume the queues of group %s: %s", group, error)
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
    except CLIENT_ERRORS as error:
        log.warning("%s exception, %s: %s", what, group, error)
        return None


CLIENTS = Table("%-10d %-40s %-20s %s\n", {
    "index": "#Index", "clientId": "#ClientId", "version": "#Version",
    "consumerRunningInfoFile": "#ConsumerRunningInfoFile"})


class ConsumerStatusSubCommand(SubCommand):
    """Writes the running info of each of a group's clients to a file, or prints that of one client (-i).

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
            except (*CLIENT_ERRORS, OSError) as error:
                yield stack_trace(error)
                continue
            infos[connection.clientId] = info
            yield CLIENTS.row(len(infos), connection.clientId, get_version_desc(connection.version), file)
        if infos:
            yield _findings(infos)


def write_info(folder: Path, connection: Connection, info: ConsumerRunningInfo) -> str:
    """Write a client's running info to a file named after the client, and return the file's path."""
    # Differs: a file with a client's running info is named after the client, which chooses its own id; characters that
    # would lead out of the folder are replaced in the file name
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


class DeleteSubscriptionGroupCommand(SubCommand):
    """Deletes a group; in a whole cluster, also its retry and dead letter topics.

    Java: org.apache.rocketmq.tools.command.consumer.DeleteSubscriptionGroupCommand (4.9.8)
    """

    command_name = "deleteSubGroup"
    command_desc = "Delete subscription group from broker."
    options = (
        option("b", "brokerAddr", "delete subscription group from which broker"),
        option("c", "clusterName", "delete subscription group from which cluster"),
        option("g", "groupName", "subscription group name", required=True),
        option("r", "removeOffset", "remove offset"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Delete the group on a broker, or on all masters of a cluster."""
        group, remove_offset = command_line.required("g"), command_line.boolean("r")
        if command_line.has_option("b"):
            addr = command_line.required("b")
            admin.delete_subscription_group(addr, group, remove_offset)
            yield f"delete subscription group [{group}] from broker [{addr}] success.\n"
        elif command_line.has_option("c"):
            cluster = command_line.required("c")
            addrs = yield from sub_command.fetch_master_addr_by_cluster_name(admin, cluster)
            for addr in addrs:
                admin.delete_subscription_group(addr, group, remove_offset)
                yield f"delete subscription group [{group}] from broker [{addr}] in cluster [{cluster}] success.\n"
            try:
                yield from delete_topic(admin, cluster, mix_all.get_retry_topic(group))
                yield from delete_topic(admin, cluster, mix_all.DLQ_GROUP_TOPIC_PREFIX + group)
            except CLIENT_ERRORS as error:
                yield stack_trace(error)
        else:
            yield self.help()


_RULE = "=" * 29


class GetConsumerConfigSubCommand(SubCommand):
    """Prints a group's settings on each broker that has it.

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
            # Differs: a broker without an address is skipped; the original asks a name server, and fails
            config = admin.examine_subscription_group_config(addr, command_line.required("g")) if addr else None
            if config is None:
                continue
            cluster = next((cluster for cluster, names in sorted(info.clusterAddrTable.items()) if name in names), None)
            settings = asdict(config)
            lines = [f"{key:<40}=  {'' if value is None else mix_all.property_text(value)}\n"
                     for key, value in settings.items()]
            yield Document(f"{_RULE}{cluster}:{name}{_RULE}\n{''.join(lines)}",
                           {"clusterName": cluster, "brokerName": name, **settings})


class StartMonitoringSubCommand(SubCommand):
    """Monitors all groups until interrupted; findings go to the client's log.

    Java: org.apache.rocketmq.tools.command.consumer.StartMonitoringSubCommand (4.9.8)
    """

    command_name = "startMonitoring"
    command_desc = "Start Monitoring"

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Start the monitor, and wait until interrupted."""
        service = MonitorService(MonitorConfig(admin.namesrv_addr), DefaultMonitorListener(), admin.rpc_hook)
        try:
            service.start()
            self._ended.wait()
        finally:
            service.shutdown()
        yield from ()

    def __init__(self) -> None:
        # an Event may miss an interrupt that arrives while it begins to wait
        self._ended = StopSignal()

    def end(self) -> None:
        """Make `execute` return."""
        self._ended.set()


class UpdateSubGroupSubCommand(SubCommand):
    """Creates a group, or replaces its settings: options that are not given get their defaults.

    Java: org.apache.rocketmq.tools.command.consumer.UpdateSubGroupSubCommand (4.9.8)
    """

    command_name = "updateSubGroup"
    command_desc = "Update or create subscription group"
    options = (
        option("b", "brokerAddr", "create subscription group to which broker"),
        option("c", "clusterName", "create subscription group to which cluster"),
        option("g", "groupName", "consumer group name", required=True),
        option("s", "consumeEnable", "consume enable"),
        option("m", "consumeFromMinEnable", "from min offset"),
        option("d", "consumeBroadcastEnable", "broadcast"),
        option("q", "retryQueueNums", "retry queue nums"),
        option("r", "retryMaxTimes", "retry max times"),
        option("i", "brokerId", "consumer from which broker id"),
        option("w", "whichBrokerWhenConsumeSlowly", "which broker id when consume slowly"),
        option("a", "notifyConsumerIdsChanged", "notify consumerId changed"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Store the group on a broker, or on all masters of a cluster."""
        config = subscription_group_config(command_line)
        if command_line.has_option("b"):
            addr = command_line.required("b")
            admin.create_and_update_subscription_group_config(addr, config)
            yield f"create subscription group to {addr} success.\n"
        elif command_line.has_option("c"):
            addrs = yield from sub_command.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
            for addr in addrs:
                try:
                    admin.create_and_update_subscription_group_config(addr, config)
                except CLIENT_ERRORS as error:
                    yield stack_trace(error)
                else:
                    yield f"create subscription group to {addr} success.\n"
        else:
            yield self.help()
            return
        yield Document(str(config), config)


def subscription_group_config(command_line: CommandLine) -> SubscriptionGroupConfig:
    """Return the group that the options describe."""
    default = SubscriptionGroupConfig(consumeFromMinEnable=False, consumeBroadcastEnable=False)
    return SubscriptionGroupConfig(
        groupName=command_line.required("g"),
        consumeEnable=command_line.boolean("s", default.consumeEnable),
        consumeFromMinEnable=command_line.boolean("m", default.consumeFromMinEnable),
        consumeBroadcastEnable=command_line.boolean("d", default.consumeBroadcastEnable),
        retryQueueNums=command_line.integer("q", default.retryQueueNums, 32),
        retryMaxTimes=command_line.integer("r", default.retryMaxTimes, 32),
        brokerId=command_line.integer("i", default.brokerId),
        whichBrokerWhenConsumeSlowly=command_line.integer("w", default.whichBrokerWhenConsumeSlowly),
        notifyConsumerIdsChangedEnable=command_line.boolean("a", default.notifyConsumerIdsChangedEnable),
    )


CONNECTIONS = Table("%-36s %-22s %-10s %s\n", {
    "clientId": "#ClientId", "clientAddr": "#ClientAddr", "language": "#Language", "version": "#Version"})
SUBSCRIPTIONS = Table("%-20s %s\n", {"topic": "#Topic", "subExpression": "#SubExpression"})


class ConsumerConnectionSubCommand(SubCommand):
    """Prints a group's connected consumers and their subscriptions.

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


PRODUCERS = Table("%04d  %-32s %-22s %-8s %s\n", {
    "index": "", "clientId": "", "clientAddr": "", "language": "", "version": ""})


class ProducerConnectionSubCommand(SubCommand):
    """Prints a group's connected producers, according to one of the topic's brokers.

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
            yield PRODUCERS.row(index, one.clientId, one.clientAddr, one.language, get_version_desc(one.version))


class ProducerSubCommand(SubCommand):
    """Prints all producers that are connected to a broker.

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
