"""mqadmin commands that send messages and measure the duration of sends.

Commands: sendMessage, checkMsgSendRT, clusterRT.

`pull_consumer` and `new_producer` create the clients of other commands, too. The clients use the name servers and the
RPC hook of the admin client.
"""
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common import mix_all, util_all
from rmqha.common.java import hash_map_order
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message.message import Message, MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.sub_command import Document, Part, Row, SubCommand, Table


@dataclass
class ResponseTimes:
    """Durations of sends in ms. The first send, which opens connections, does not count for the average."""

    millis: list[int] = field(default_factory=list)
    succeeded: list[bool] = field(default_factory=list)

    def measure(self, send: Callable[[], object]) -> None:
        """Call `send`, and record its duration and whether it succeeded."""
        begin_ns = time.monotonic_ns()
        try:
            send()
        except CLIENT_ERRORS:
            self.succeeded.append(False)
        else:
            self.succeeded.append(True)
        self.millis.append((time.monotonic_ns() - begin_ns) // 1_000_000)

    def average(self) -> float | None:
        """Return the average in ms; None for fewer than two sends."""
        counted = self.millis[1:]
        return sum(counted) / len(counted) if counted else None

    def average_text(self) -> str:
        """Return the average with two decimals; `NaN` for fewer than two sends."""
        average = self.average()
        return "NaN" if average is None else f"{average:.2f}"


_LONGEST_BODY = 4 << 20  # bytes; a producer's default limit


def pull_consumer(admin: DefaultMQAdminExt, group: str = mix_all.TOOLS_CONSUMER_GROUP) -> DefaultMQPullConsumer:
    """Return a pull consumer that is not started."""
    consumer = DefaultMQPullConsumer(group, admin.namesrv_addr, admin.rpc_hook)
    consumer.keep_bad_bodies = True
    return consumer


def new_producer(admin: DefaultMQAdminExt, group: str | None = None, trace: bool = False) -> DefaultMQProducer:
    """Return a producer that is not started; without a group name, the group is the current time in ms."""
    return DefaultMQProducer(group or str(util_all.current_time_millis()), admin.namesrv_addr, admin.rpc_hook,
                             enable_msg_trace=trace)


def body_of_size(size: int, piece: bytes = b"a") -> bytes:
    """Return a body of at least `size` bytes; beyond the producer's limit, only as large as needed to exceed it."""
    return piece * -(-min(size, _LONGEST_BODY + 1) // len(piece))


RESULT = Table("%-32s  %-4s  %-20s    %s\n", {
    "brokerName": "#Broker Name", "queueId": "#QID", "sendStatus": "#Send Result", "msgId": "#MsgId"})


class SendMessageCommand(SubCommand):
    """Sends one message, to any queue or to a given one.

    Java: org.apache.rocketmq.tools.command.message.SendMessageCommand (4.9.8)
    """

    command_name = "sendMessage"
    command_desc = "Send a message"
    options = (
        option("t", "topic", "Topic name", required=True),
        option("p", "body", "UTF-8 string format of the message body", required=True),
        option("k", "key", "Message keys"),
        option("c", "tags", "Message tags"),
        option("b", "broker", "Send message to target broker"),
        option("i", "qid", "Send message to target queue"),
        option("m", "msgTraceEnable", "Message Trace Enable, Default: false"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send the message, and print the queue that it went to."""
        topic, broker_name = command_line.required("t"), command_line.text("b")
        if command_line.has_option("i") and broker_name is None:
            yield "Broker name must be set if the queue is chosen!"
            return
        queue_id = command_line.integer("i", -1, 32)
        queue = MessageQueue(topic, broker_name, queue_id) if broker_name is not None and queue_id > -1 else None
        msg = Message(topic, command_line.required("p").encode("utf-8"), command_line.text("c"), command_line.text("k"))
        with new_producer(admin, trace=command_line.boolean("m")) as producer:
            result = producer.send(msg, queue=queue)
        yield RESULT.heading()
        yield RESULT.row(result.message_queue.brokerName, result.message_queue.queueId, result.send_status.name,
                         result.msg_id, offsetMsgId=result.offset_msg_id, queueOffset=result.queue_offset)


SENDS = Table("%-32s  %-4s  %-20s    %s\n", {
    "brokerName": "#Broker Name", "queueId": "#QID", "sendResult": "#Send Result", "rt": "#RT"})
DEFAULT_AMOUNT, DEFAULT_SIZE = 100, 128


class CheckMsgSendRTCommand(SubCommand):
    """Sends messages to the queues of a topic in turn, and prints how long each took (ms).

    Java: org.apache.rocketmq.tools.command.message.CheckMsgSendRTCommand (4.9.8)
    """

    command_name = "checkMsgSendRT"
    command_desc = "check message send response time"
    options = (
        option("t", "topic", "topic name", required=True),
        option("a", "amount", "message amount | default 100"),
        option("s", "size", "message size | default 128 Byte"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Send one message after the other."""
        amount = command_line.integer("a", DEFAULT_AMOUNT)
        msg = Message(command_line.required("t"), body_of_size(command_line.integer("s", DEFAULT_SIZE)))
        chosen, times = MessageQueue("", "", 0), ResponseTimes()

        def select(queues: list[MessageQueue], _msg: Message, number: int) -> MessageQueue:
            nonlocal chosen
            chosen = queues[number % len(queues)]
            return chosen

        yield SENDS.heading()
        with new_producer(admin) as producer:
            for number in range(amount):
                times.measure(lambda: producer.send(msg, selector=select, arg=number))  # noqa: B023, called at once
                ok = times.succeeded[-1]
                yield SENDS.row(chosen.brokerName, chosen.queueId, str(ok).lower(), times.millis[-1], sendResult=ok)
        yield Document(f"Avg RT: {times.average_text()}\n", {"avgRt": times.average()})


BROKERS = Table(
    "%-24s  %-24s  %-8s  %-16s  %-16s\n",
    {"clusterName": "#Cluster Name", "brokerName": "#Broker Name", "rt": "#RT", "successCount": "#successCount",
     "failCount": "#failCount"},
    "%-24s  %-24s  %-4s  %-8s  %-8s\n")
CLUSTER_RT_AMOUNT, CLUSTER_RT_SIZE, DEFAULT_INTERVAL_S = 100, 128, 10
# regardless of the machine's time zone
_GMT_8 = timezone(timedelta(hours=8))


class CLusterSendMsgRTCommand(SubCommand):
    """Repeatedly sends messages to each broker's own topic, and prints how long they took (ms) on average.

    Java: org.apache.rocketmq.tools.command.cluster.CLusterSendMsgRTCommand (4.9.8)
    """

    command_name = "clusterRT"
    command_desc = "List All clusters Message Send RT"
    options = (
        option("a", "amount", "message amount | default 100"),
        option("s", "size", "message size | default 128 Byte"),
        option("c", "cluster", "cluster name | default display all cluster"),
        option("p", "print log", "print as tlog | default false"),
        option("m", "machine room", "machine room name | default noname"),
        option("i", "interval", "print interval | default 10 seconds"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Measure all brokers, round by round, until interrupted."""
        names_by_cluster = admin.examine_broker_cluster_info().clusterAddrTable
        wanted = command_line.text("c")
        clusters = hash_map_order(sorted(names_by_cluster)) if wanted is None else [wanted]
        if not command_line.boolean("p"):
            yield BROKERS.heading()
        with new_producer(admin) as producer:
            while True:
                for cluster in clusters:
                    if cluster not in names_by_cluster:
                        # Differs: clusterRT ends at an unknown cluster; the original repeats its message at each
                        # interval
                        yield f"cluster [{cluster}] not exist"
                        return
                    for broker_name in hash_map_order(sorted(names_by_cluster[cluster])):
                        yield _measured(producer, cluster, broker_name, command_line)
                time.sleep(command_line.integer("i", DEFAULT_INTERVAL_S))


def _measured(producer: DefaultMQProducer, cluster: str, broker_name: str, command_line: CommandLine) -> Row:
    msg, times = Message(broker_name, body_of_size(command_line.integer("s", CLUSTER_RT_SIZE))), ResponseTimes()
    for _ in range(command_line.integer("a", CLUSTER_RT_AMOUNT)):
        times.measure(lambda: producer.send(msg))
    succeeded = sum(times.succeeded)
    row = BROKERS.row(cluster, broker_name, times.average_text(), succeeded, len(times.succeeded) - succeeded,
                      rt=times.average())
    if not command_line.boolean("p"):
        return row
    now = datetime.now(_GMT_8).strftime("%Y-%m-%d %H:%M:%S")
    # Differs: clusterRT prints NaN for fewer than two sends, where the original fails with a NumberFormatException
    average = times.average()
    rounded = "NaN" if average is None else Decimal(repr(average)).quantize(Decimal(1), ROUND_HALF_UP)
    return Row(f"{now}|{command_line.text('m', 'noname')}|{cluster}|{broker_name}|{rounded}\n", row.fields)
