"""mqadmin clusterRT."""
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import Message
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.message.response_times import ResponseTimes
from rmqha.tools.command.message.tool_clients import body_of_size, new_producer
from rmqha.tools.command.output import Part, Row, Table
from rmqha.tools.command.sub_command import SubCommand

BROKERS = Table(
    "%-24s  %-24s  %-8s  %-16s  %-16s\n",
    {"clusterName": "#Cluster Name", "brokerName": "#Broker Name", "rt": "#RT", "successCount": "#successCount",
     "failCount": "#failCount"},
    "%-24s  %-24s  %-4s  %-8s  %-8s\n")
DEFAULT_AMOUNT, DEFAULT_SIZE, DEFAULT_INTERVAL_S = 100, 128, 10
_GMT_8 = timezone(timedelta(hours=8))  # whatever the machine's zone is


class CLusterSendMsgRTCommand(SubCommand):
    """Send messages to the own topic of each broker, again and again, and say how long they took (ms) on average.

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
        """Go round until the user ends it."""
        names_by_cluster = admin.examine_broker_cluster_info().clusterAddrTable
        wanted = command_line.text("c")
        clusters = hash_map_order(sorted(names_by_cluster)) if wanted is None else [wanted]
        if not command_line.boolean("p"):
            yield BROKERS.heading()
        with new_producer(admin) as producer:
            while True:
                for cluster in clusters:
                    if cluster not in names_by_cluster:
                        # Differs: ends; the original says so again each interval
                        yield f"cluster [{cluster}] not exist"
                        return
                    for broker_name in hash_map_order(sorted(names_by_cluster[cluster])):
                        yield _measured(producer, cluster, broker_name, command_line)
                time.sleep(command_line.integer("i", DEFAULT_INTERVAL_S))


def _measured(producer: DefaultMQProducer, cluster: str, broker_name: str, command_line: CommandLine) -> Row:
    msg, times = Message(broker_name, body_of_size(command_line.integer("s", DEFAULT_SIZE))), ResponseTimes()
    for _ in range(command_line.integer("a", DEFAULT_AMOUNT)):
        times.measure(lambda: producer.send(msg))
    succeeded = sum(times.succeeded)
    row = BROKERS.row(cluster, broker_name, times.average_text(), succeeded, len(times.succeeded) - succeeded,
                      rt=times.average())
    if not command_line.boolean("p"):
        return row
    now = datetime.now(_GMT_8).strftime("%Y-%m-%d %H:%M:%S")
    # Differs: NaN for less than two sends, where the original ends with a NumberFormatException
    average = times.average()
    rounded = "NaN" if average is None else Decimal(repr(average)).quantize(Decimal(1), ROUND_HALF_UP)
    return Row(f"{now}|{command_line.text('m', 'noname')}|{cluster}|{broker_name}|{rounded}\n", row.fields)
