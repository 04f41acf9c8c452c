"""mqadmin queryMsgTraceById."""
from collections.abc import Iterator

from rmqha.client.trace import TraceType, TraceView
from rmqha.common import topics, util_all
from rmqha.common.compression import MissingBody
from rmqha.common.java import hash_map_order
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Row, Table
from rmqha.tools.command.sub_command import SubCommand

_FORMAT = "%-10s %-20s %-20s %-20s %-10s %-10s\n"
PRODUCED = Table(_FORMAT, {"type": "#Type", "producerGroup": "#ProducerGroup", "clientHost": "#ClientHost",
                           "sendTime": "#SendTime", "costTimes": "#CostTimes", "status": "#Status"})
CONSUMED = Table(_FORMAT, {"type": "#Type", "consumerGroup": "#ConsumerGroup", "clientHost": "#ClientHost",
                           "consumerTime": "#ConsumerTime", "costTimes": "#CostTimes", "status": "#Status"})
MAX_MESSAGES = 64


class QueryMsgTraceByIdSubCommand(SubCommand):
    """The trace of a message: when it was sent, and consumed in each group.

    Java: org.apache.rocketmq.tools.command.message.QueryMsgTraceByIdSubCommand (4.9.8)
    """

    command_name = "queryMsgTraceById"
    command_alias = "QueryMsgTraceById"
    command_desc = "query a message trace"
    failure = "command failed"
    options = (
        option("i", "msgId", "Message Id", required=True),
        option("t", "traceTopic", "The name value of message trace topic"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Look the trace messages up by their key, the message's id."""
        msg_id = command_line.required("i")
        topic = command_line.text("t", topics.RMQ_SYS_TRACE_TOPIC)
        found = admin.mq_admin.query_message(topic, msg_id, MAX_MESSAGES, 0, util_all.current_time_millis())
        for msg in found.message_list:
            if isinstance(msg.body, MissingBody):
                yield f"trace message {msg.msg_id} can't be read: {msg.body.reason}\n"
        yield from _views([view for msg in found.message_list
                           for view in TraceView.decode_from_trace_trans_data(msg_id, msg)])


def _views(views: list[TraceView]) -> Iterator[Part]:
    consumed: dict[str, list[TraceView]] = {}
    for view in views:
        if view.msg_type == TraceType.Pub.name:
            yield PRODUCED.heading()
            yield _row(PRODUCED, "Pub", view)
            yield "\n"
        elif view.msg_type == TraceType.SubAfter.name:
            consumed.setdefault(str(view.group_name), []).append(view)
    for group in hash_map_order(consumed):
        yield CONSUMED.heading()
        for view in consumed[group]:
            yield _row(CONSUMED, "Sub", view)
        yield "\n"


def _row(table: Table, kind: str, view: TraceView) -> Row:
    time = util_all.format_date(view.time_stamp)
    return table.row(kind, view.group_name, view.client_host, time, f"{view.cost_time}ms", view.status,
                     timestamp=view.time_stamp, costMillis=view.cost_time)
