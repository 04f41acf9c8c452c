"""mqadmin cleanUnusedTopic."""
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.broker.clean_expired_cq_sub_command import CleaningSubCommand
from rmqha.tools.command.commons_cli import option


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
