"""mqadmin cleanExpiredCQ, cleanUnusedTopic and deleteExpiredCommitLog, and what they share."""
import abc
from collections.abc import Iterator
from typing import ClassVar

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, Option, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class CleaningSubCommand(SubCommand):
    """Lets a broker, all brokers of a cluster, or all brokers clean up."""

    options: ClassVar[tuple[Option, ...]] = (
        option("b", "brokerAddr", "Broker address"),
        option("c", "cluster", "clustername"),
    )

    @abc.abstractmethod
    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Tell one broker."""

    @abc.abstractmethod
    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Tell all brokers of a cluster, or of all."""

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the brokers."""
        addr = command_line.text("b")
        done = self.clean_cluster(admin, command_line.text("c")) if addr is None else self.clean_broker(admin, addr)
        yield "success" if done else "false"


class CleanExpiredCQSubCommand(CleaningSubCommand):
    """Deletes consume queues whose messages are gone, of topics that the broker does not know.

    Java: org.apache.rocketmq.tools.command.broker.CleanExpiredCQSubCommand (4.9.8)
    """

    command_name = "cleanExpiredCQ"
    command_desc = "Clean expired ConsumeQueue on broker."

    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Tell one broker."""
        return admin.clean_expired_consumer_queue_by_addr(addr)

    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Tell all brokers of a cluster, or of all."""
        return admin.clean_expired_consumer_queue(cluster)


class CleanUnusedTopicCommand(CleaningSubCommand):
    """Deletes the queues of topics that are no more.

    Java: org.apache.rocketmq.tools.command.broker.CleanUnusedTopicCommand (4.9.8)
    """

    command_name = "cleanUnusedTopic"
    command_desc = "Clean unused topic on broker."
    options = (
        option("b", "brokerAddr", "Broker address"),
        option("c", "cluster", "cluster name"),
    )

    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Tell one broker."""
        return admin.clean_unused_topic_by_addr(addr)

    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Tell all brokers of a cluster, or of all."""
        return admin.clean_unused_topic(cluster)


class DeleteExpiredCommitLogSubCommand(CleaningSubCommand):
    """Deletes commit log files whose time is over.

    Java: org.apache.rocketmq.tools.command.broker.DeleteExpiredCommitLogSubCommand (4.9.8)
    """

    command_name = "deleteExpiredCommitLog"
    command_desc = "Delete expired CommitLog files"
    options = (option("n", "namesrvAddr", "Name server address"), *CleaningSubCommand.options)
    failure = " command execute failed."

    def clean_broker(self, admin: DefaultMQAdminExt, addr: str) -> bool:
        """Tell one broker."""
        return admin.delete_expired_commit_log_by_addr(addr)

    def clean_cluster(self, admin: DefaultMQAdminExt, cluster: str | None) -> bool:
        """Tell all brokers of a cluster, or of all."""
        return admin.delete_expired_commit_log(cluster)
