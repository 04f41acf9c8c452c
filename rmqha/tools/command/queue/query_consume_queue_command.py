"""mqadmin queryCq."""
from collections.abc import Iterator

from rmqha.client.exception import MQClientException
from rmqha.common import mix_all
from rmqha.common.protocol.client_bodies import QueryConsumeQueueResponseBody
from rmqha.remoting.protocol import remoting_serializable
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_questions import ASK_ERRORS
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, option
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.sub_command import SubCommand

DEFAULT_COUNT = 10
_RULE = "======================================\n"


class QueryConsumeQueueCommand(SubCommand):
    """Units of a consume queue; with a group (-g) also whether its filter takes them.

    Java: org.apache.rocketmq.tools.command.queue.QueryConsumeQueueCommand (4.9.8)
    """

    command_name = "queryCq"
    command_desc = "Query cq command."
    options = (
        option("t", "topic", "topic name", required=True),
        option("q", "queue", "queue num, ie. 1", required=True),
        option("i", "index", "start queue index.", required=True),
        option("c", "count", "how many."),
        option("b", "broker", "broker addr."),
        option("g", "consumer", "consumer group."),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the broker, or the topic's first master. Errors are part of what is printed, as in the original."""
        try:
            topic, index = command_line.required("t"), command_line.integer("i")
            addr = command_line.text("b") or _master_of(admin, topic)
            body = admin.api.query_consume_queue(
                addr, topic, command_line.integer("q", bits=32), index, command_line.integer("c", DEFAULT_COUNT, 32),
                command_line.text("g"), admin.timeout_millis)
        except (*ASK_ERRORS, NumberFormatException) as error:
            yield stack_trace(error)
            return
        yield from _parts(body, index)


def _master_of(admin: DefaultMQAdminExt, topic: str) -> str:
    brokers = admin.examine_topic_route_info(topic).brokerDatas
    addr = brokers[0].brokerAddrs.get(mix_all.MASTER_ID) if brokers else None
    if addr is None:
        raise MQClientException("No topic route data!")
    return addr


def _parts(body: QueryConsumeQueueResponseBody, index: int) -> Iterator[Part]:
    if body.subscriptionData is not None:
        text = remoting_serializable.to_json(body.subscriptionData, True)
        yield Document(f"Subscription data: \n{text}\n{_RULE}", {"subscriptionData": body.subscriptionData})
    if body.filterData is not None:
        yield Document(f"Filter data: \n{body.filterData}\n{_RULE}", {"filterData": body.filterData})
    yield Document(f"Queue data: \nmax: {body.maxQueueIndex}, min: {body.minQueueIndex}\n{_RULE}",
                   {"maxQueueIndex": body.maxQueueIndex, "minQueueIndex": body.minQueueIndex})
    for number, unit in enumerate(body.queueData or (), index):
        yield Document(f"idx: {number}\n{unit}\n{_RULE}", {"index": number, "unit": unit})
