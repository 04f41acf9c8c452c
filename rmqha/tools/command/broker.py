"""mqadmin commands for brokers: settings, status, consume progress, epochs, send times and cleaning.

Commands: brokerConsumeStats, brokerStatus, cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog, getBrokerConfig,
getBrokerEpoch, sendMsgStatus, updateBrokerConfig. `CleaningSubCommand` is the base of the three that clean.
"""
import abc
import dataclasses
import time
from collections.abc import Iterator
from typing import ClassVar

from rmqha.client.exception import MQBrokerException
from rmqha.common import util_all
from rmqha.common.message.message import Message
from rmqha.common.protocol.cluster_bodies import EpochEntry
from rmqha.common.protocol.table_bodies import ConsumeStats
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_track import print_stack_trace
from rmqha.tools.command import sub_command
from rmqha.tools.command.commons_cli import CommandLine, Option, option
from rmqha.tools.command.message_send import body_of_size, new_producer
from rmqha.tools.command.sub_command import Heading, Part, Row, SubCommand, Table, java_text

PLACES = Table("%-64.64s  %-64s  %-32.32s  %-4d  %-20d  %-20d  %-20d  %s\n", {
    "topic": "#Topic", "group": "#Group", "brokerName": "#Broker Name", "queueId": "#QID",
    "brokerOffset": "#Broker Offset", "consumerOffset": "#Consumer Offset", "diff": "#Diff", "lastTime": "#LastTime"})
TIMEOUT_MILLIS = 50_000


class BrokerConsumeStatsSubCommad(SubCommand):
    """Prints the consume progress of all groups of a broker.

    Java: org.apache.rocketmq.tools.command.broker.BrokerConsumeStatsSubCommad (4.9.8)
    """

    command_name = "brokerConsumeStats"
    command_desc = "Fetch broker consume stats data"
    options = (
        option("b", "brokerAddr", "Broker address", required=True),
        option("t", "timeoutMillis", "request timeout Millis"),
        option("l", "level", "threshold of print diff"),
        option("o", "order", "order topic"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the broker; omit queues that are behind by less than -l, or of which nothing was consumed."""
        level = command_line.integer("l")
        stats = admin.fetch_consume_stats_in_broker(
            command_line.required("b"), command_line.boolean("o"), command_line.integer("t", TIMEOUT_MILLIS))
        yield PLACES.heading()
        for by_group in stats.consumeStatsList:
            for group, by_topic in by_group.items():
                for each in by_topic:
                    yield from _rows(group, each, level)
        yield f"\nDiff Total: {stats.totalDiff}\n"


def _rows(group: str, stats: ConsumeStats, level: int) -> Iterator[Part]:
    for queue, place in sorted(stats.offsetTable.items(), key=lambda item: item[0]):
        diff = place.brokerOffset - place.consumerOffset
        if diff >= level and place.lastTimestamp > 0:
            yield PLACES.row(queue.topic, group, queue.brokerName, queue.queueId, place.brokerOffset,
                             place.consumerOffset, diff, util_all.format_date(place.lastTimestamp),
                             lastTime=place.lastTimestamp)


VALUES = Table("%-32s: %s\n", {"key": "", "value": ""})
VALUES_OF_BROKERS = Table("%-24s %-32s: %s\n", {"brokerAddr": "", "key": "", "value": ""})


class BrokerStatusSubCommand(SubCommand):
    """Prints the runtime table of a broker, or of all brokers of a cluster.

    Java: org.apache.rocketmq.tools.command.broker.BrokerStatusSubCommand (4.9.8)
    """

    command_name = "brokerStatus"
    command_desc = "Fetch broker runtime status data"
    options = (
        option("b", "brokerAddr", "Broker address"),
        option("c", "clusterName", "which cluster"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers; with -c, a broker that does not answer does not end the command."""
        addr, cluster = command_line.text("b"), command_line.text("c")
        if addr is not None:
            for key, value in sorted(admin.fetch_broker_runtime_stats(addr).table.items()):
                yield VALUES.row(key, value, brokerAddr=addr)
        elif cluster is not None:
            brokers = yield from sub_command.fetch_master_and_slave_addr_by_cluster_name(admin, cluster)
            for broker in brokers:
                try:
                    table = admin.fetch_broker_runtime_stats(broker).table
                except (MQBrokerException, RemotingException) as error:
                    print_stack_trace(error)
                    continue
                for key, value in sorted(table.items()):
                    yield VALUES_OF_BROKERS.row(broker, key, value)


class CleaningSubCommand(SubCommand):
    """The base of commands that make a broker, all brokers of a cluster, or all brokers clean up."""

    options: ClassVar[tuple[Option, ...]] = (
        option("b", "brokerAddr", "Broker address"),
        option("c", "cluster", "clustername"),
    )

    @abc.abstractmethod
    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Clean up one broker."""

    @abc.abstractmethod
    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Clean up all brokers of a cluster, or of all clusters."""

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Clean up the chosen brokers."""
        addr = command_line.text("b")
        done = self.clean_cluster(admin, command_line.text("c")) if addr is None else self.clean_broker(admin, addr)
        yield "success" if done else "false"


class CleanExpiredCQSubCommand(CleaningSubCommand):
    """Deletes consume queues of unknown topics whose messages no longer exist.

    Java: org.apache.rocketmq.tools.command.broker.CleanExpiredCQSubCommand (4.9.8)
    """

    command_name = "cleanExpiredCQ"
    command_desc = "Clean expired ConsumeQueue on broker."

    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Clean up one broker."""
        return admin.clean_expired_consumer_queue_by_addr(addr)

    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Clean up all brokers of a cluster, or of all clusters."""
        return admin.clean_expired_consumer_queue(cluster)


class CleanUnusedTopicCommand(CleaningSubCommand):
    """Deletes the queues of deleted topics.

    Java: org.apache.rocketmq.tools.command.broker.CleanUnusedTopicCommand (4.9.8)
    """

    command_name = "cleanUnusedTopic"
    command_desc = "Clean unused topic on broker."
    options = (
        option("b", "brokerAddr", "Broker address"),
        option("c", "cluster", "cluster name"),
    )

    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Clean up one broker."""
        return admin.clean_unused_topic_by_addr(addr)

    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Clean up all brokers of a cluster, or of all clusters."""
        return admin.clean_unused_topic(cluster)


class DeleteExpiredCommitLogSubCommand(CleaningSubCommand):
    """Deletes expired commit log files.

    Java: org.apache.rocketmq.tools.command.broker.DeleteExpiredCommitLogSubCommand (4.9.8)
    """

    command_name = "deleteExpiredCommitLog"
    command_desc = "Delete expired CommitLog files"
    options = (option("n", "namesrvAddr", "Name server address"), *CleaningSubCommand.options)
    failure = " command execute failed."

    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Clean up one broker."""
        return admin.delete_expired_commit_log_by_addr(addr)

    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Clean up all brokers of a cluster, or of all clusters."""
        return admin.delete_expired_commit_log(cluster)


SETTINGS = Table("%-50s=  %s\n", {"key": "", "value": ""})


class GetBrokerConfigCommand(SubCommand):
    """Prints all settings of a broker, or of all brokers of a cluster.

    Java: org.apache.rocketmq.tools.command.broker.GetBrokerConfigCommand (4.9.8)
    """

    command_name = "getBrokerConfig"
    command_desc = "Get broker config by cluster or special broker!"
    options = (
        option("b", "brokerAddr", "get which broker"),
        option("c", "clusterName", "get which cluster"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the brokers, each master before its slaves."""
        if command_line.has_option("b"):
            addr = command_line.required("b")
            yield from _settings(admin, addr, f"============{addr}============\n")
        elif command_line.has_option("c"):
            brokers = yield from sub_command.fetch_master_and_slave_distinguish(admin, command_line.required("c"))
            for master, slaves in brokers:
                # Differs: slaves without a master are shown; the original asks a name server instead of the master, and
                # fails
                if master is not None:
                    yield from _settings(admin, master, f"============Master: {master}============\n")
                for slave in slaves:
                    yield from _settings(
                        admin, slave, f"============My Master: {master or 'null'}=====Slave: {slave}============\n")


def _settings(admin: DefaultMQAdminExt, addr: str, title: str) -> Iterator[Part]:
    yield Heading(title)
    # Differs: settings are sorted, where Java prints them in the order of its hash table
    for key, value in sorted(admin.get_broker_config(addr).items()):
        yield SETTINGS.row(key, value, brokerAddr=addr)
    yield Heading("\n")


class GetBrokerEpochSubCommand(SubCommand):
    """Prints the epochs of the replicas of a broker name, or of all brokers of a cluster.

    Java: org.apache.rocketmq.tools.command.broker.GetBrokerEpochSubCommand (5.1.4)
    """

    command_name = "getBrokerEpoch"
    command_desc = "Fetch broker epoch entries."
    options = (
        option("b", "brokerName", "which broker to fetch"),
        option("c", "clusterName", "which cluster"),
        option("i", "interval", "the interval(second) of get info"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the replicas; with -i, repeatedly."""
        return sub_command.again_with_interval(command_line, lambda: self._ask(command_line, admin), 3)

    def _ask(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        if command_line.has_option("b"):
            addresses = sub_command.fetch_master_and_slave_addr_by_broker_name(admin, command_line.required("b"))
        elif command_line.has_option("c"):
            addresses = yield from sub_command.fetch_master_and_slave_addr_by_cluster_name(
                admin, command_line.required("c"))
        else:
            yield self.help()
            return
        for address in addresses:
            yield from _parts(admin, address)


def _parts(admin: DefaultMQAdminExt, address: str) -> Iterator[Part]:
    cache = admin.get_broker_epoch_cache(address)
    entries = [dataclasses.replace(each) for each in cache.epochList]
    if entries:
        entries[-1].endOffset = cache.maxOffset
    yield Row(f"\n#clusterName\t{java_text(cache.clusterName)}\n#brokerName\t{java_text(cache.brokerName)}"
              f"\n#brokerAddr\t{address}\n#brokerId\t{cache.brokerId}" + "".join(map(_text, entries)) + "\n",
              {"clusterName": cache.clusterName, "brokerName": cache.brokerName, "brokerAddr": address,
               "brokerId": cache.brokerId, "epochs": [dataclasses.asdict(each) for each in entries]})


def _text(entry: EpochEntry) -> str:
    return f"\n#Epoch: EpochEntry{{epoch={entry.epoch}, startOffset={entry.startOffset}, endOffset={entry.endOffset}}}"


DEFAULT_SIZE, DEFAULT_COUNT = 128, 50
FIRST_SIZE = 16
_PIECE = b"hello jodie"


class SendMsgStatusCommand(SubCommand):
    """Sends messages to a broker's own topic, and prints how long each took (ms).

    Java: org.apache.rocketmq.tools.command.broker.SendMsgStatusCommand (4.9.8)
    """

    command_name = "sendMsgStatus"
    command_desc = "send msg to broker."
    options = (
        option("b", "brokerName", "Broker Name", required=True),
        option("s", "messageSize", "Message Size, Default: 128"),
        option("c", "count", "send message count, Default: 50"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send one message after the other; the first is not printed."""
        topic, size = command_line.required("b"), command_line.integer("s", DEFAULT_SIZE, 32)
        producer = new_producer(admin, "PID_SMSC")
        producer.instance_name = f"PID_SMSC_{util_all.current_time_millis()}"
        with producer:
            producer.send(build_message(topic, FIRST_SIZE))
            for _ in range(command_line.integer("c", DEFAULT_COUNT, 32)):
                begin_ns = time.monotonic_ns()
                result = producer.send(build_message(topic, size))
                millis = (time.monotonic_ns() - begin_ns) // 1_000_000
                yield Row(f"rt={millis}ms, SendResult={result}\n", {
                    "rt": millis, "sendStatus": result.send_status.name, "msgId": result.msg_id,
                    "offsetMsgId": result.offset_msg_id, "brokerName": result.message_queue.brokerName,
                    "queueId": result.message_queue.queueId, "queueOffset": result.queue_offset})


def build_message(topic: str, message_size: int) -> Message:
    """Return a message of at least `message_size` bytes."""
    return Message(topic, body_of_size(message_size, _PIECE))


class UpdateBrokerConfigSubCommand(SubCommand):
    """Changes a setting of a broker, or of all masters of a cluster, while they run.

    Java: org.apache.rocketmq.tools.command.broker.UpdateBrokerConfigSubCommand (4.9.8)
    """

    command_name = "updateBrokerConfig"
    command_desc = "Update broker's config"
    options = (
        option("b", "brokerAddr", "update which broker"),
        option("c", "clusterName", "update which cluster"),
        option("k", "key", "config key", required=True),
        option("v", "value", "config value", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Change the setting on the brokers; with -c, a broker that refuses does not end the command."""
        properties = {command_line.required("k"): command_line.required("v")}
        if command_line.has_option("b"):
            addr = command_line.required("b")
            admin.update_broker_config(addr, properties)
            yield f"update broker config success, {addr}\n"
        elif command_line.has_option("c"):
            masters = yield from sub_command.fetch_master_addr_by_cluster_name(admin, command_line.required("c"))
            for addr in masters:
                try:
                    admin.update_broker_config(addr, properties)
                    yield f"update broker config success, {addr}\n"
                except (MQBrokerException, RemotingException) as error:
                    print_stack_trace(error)
        else:
            yield self.help()
