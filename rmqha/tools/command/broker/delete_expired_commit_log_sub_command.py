"""mqadmin deleteExpiredCommitLog."""
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.broker.clean_expired_cq_sub_command import CleaningSubCommand
from rmqha.tools.command.commons_cli import option


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
