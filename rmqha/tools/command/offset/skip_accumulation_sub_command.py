"""mqadmin skipAccumulatedMessage."""
from collections.abc import Iterator

from rmqha.client.exception import MQClientException
from rmqha.common.protocol import response_code
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.offset.reset_offset_by_time_command import THE_END, offset_rows, rolled_back
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand


class SkipAccumulationSubCommand(SubCommand):
    """Sets a group's offsets to the end of each queue.

    Java: org.apache.rocketmq.tools.command.offset.SkipAccumulationSubCommand (4.9.8)
    """

    command_name = "skipAccumulatedMessage"
    command_desc = "Skip all messages that are accumulated (not consumed) currently"
    options = (
        option("g", "group", "set the consumer group", required=True),
        option("t", "topic", "set the topic", required=True),
        option("f", "force", "set the force rollback by timestamp switch[true|false]"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the brokers; when the group does not run, set its offsets one by one."""
        group, topic, force = command_line.required("g"), command_line.required("t"), command_line.boolean("f", True)
        try:
            offsets = admin.reset_offset_by_timestamp(topic, group, THE_END, force)
        except MQClientException as error:
            if error.response_code != response_code.CONSUMER_NOT_ONLINE:
                raise
            yield from rolled_back(admin.reset_offset_by_timestamp_old(group, topic, THE_END, force))
            return
        yield from offset_rows(offsets)
