"""mqadmin cleanExpiredCQ, and what it shares with its like."""
import abc
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class CleaningSubCommand(SubCommand):
    """Lets a broker, all brokers of a cluster, or all brokers clean up."""

    options = (
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
        if command_line.has_option("b"):
            done = self.clean_broker(admin, command_line.text("b"))
        else:
            done = self.clean_cluster(admin, command_line.text("c"))
        yield "success" if done else "false"


class CleanExpiredCQSubCommand(CleaningSubCommand):
    """Deletes consume queue files whose messages are gone.

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
