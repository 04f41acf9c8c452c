"""`quickstart`, the first command to run: a local cluster of two masters and two slaves, messages, and a crash.

    name server, 2 masters, 2 slaves: one process each, in a temporary folder
    send --> table of brokers --> SIGKILL a master --> consume everything, the dead master's share from its slave

The table of brokers shows each broker's role and maximum offset, and whether a slave's log equals its master's.
"""
import contextlib
import logging
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.exception import CLIENT_ERRORS, MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common import topics
from rmqha.common.filesystem import checkout, open_regular, templates
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.program import examples
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.exception import RemotingException
from rmqha.tools.local_cluster.layout import ClusterError, Node, free_port_block, ports_needed
from rmqha.tools.local_cluster.start import LocalCluster, ended_in_order
from rmqha.tools.terminal import HELP_OPTIONS, WorkFailedError, render_table

CHUNK = 1 << 20
HEADINGS = ("name", "role", "address", "max offset", "lag", "bytes identical")
RIGHT_ALIGNED = {"max offset", "lag"}


@dataclass(frozen=True)
class BrokerRow:
    """A row of the table: one broker. `lag` is in bytes of commit log; `lag` and `identical` are None for masters."""

    name: str
    role: str
    address: str
    max_offset: int
    lag: int | None = None
    identical: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the row's cells."""
        lag = "" if self.lag is None else f"{self.lag:,}"
        identical = {None: "", True: "yes", False: "NO"}[self.identical]
        return self.name, self.role, self.address, f"{self.max_offset:,}", lag, identical


def render(rows: Sequence[BrokerRow]) -> str:
    """Return the table as text, with aligned columns."""
    return render_table(HEADINGS, [row.cells() for row in rows], RIGHT_ALIGNED)


class CommitLogFiles:
    """The files of a commit log folder, read as one sequence of bytes while a broker may still append to it.

    Each file's name is the offset of its first byte, and the next file begins where it ends.
    """

    def __init__(self, folder: Path) -> None:
        names = [entry for entry in folder.iterdir() if len(entry.name) == 20 and entry.name.isdigit()]
        self._files = {int(entry.name): entry for entry in sorted(names)}

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 when there are no files."""
        return min(self._files, default=0)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes starting at `offset`; fewer where the files end."""
        parts = []
        for start, path in self._files.items():
            length = path.stat().st_size
            first, last = max(offset, start), min(offset + size, start + length)
            if first < last:
                with open(open_regular(path), "rb") as file:
                    file.seek(first - start)
                    parts.append(file.read(last - first))
        return b"".join(parts)


def first_difference(master: Path, slave: Path, end: int) -> int | None:
    """Return the first offset below `end` at which two commit logs differ in the range that both hold, or None."""
    master_files, slave_files = CommitLogFiles(master), CommitLogFiles(slave)
    offset = max(master_files.min_offset, slave_files.min_offset)
    while offset < end:
        size = min(CHUNK, end - offset)
        ours, theirs = master_files.read(offset, size), slave_files.read(offset, size)
        if ours != theirs or len(ours) < size:
            common = min(len(ours), len(theirs))
            return offset + next((place for place in range(common) if ours[place] != theirs[place]), common)
        offset += size
    return None


log = logging.getLogger("RocketmqTools")

CONF = "2m-2s-sync"
TOPIC = "Quickstart"
PROBE_TOPIC = "QuickstartProbe"
GROUP = "quickstart_consumers"
QUEUES_PER_BROKER = 4
TIMEOUT_MS = 10_000
PROBE_TIMEOUT_MS = 10_000  # longer than the broker's slaveTimeout
WAIT_S = 60
LATECOMERS_S = 0.5

NEXT = """What to try next:
  bin/quickstart --keep           the same, but keep the configs, stores and logs; `rmqha up` can restart it
  bin/rmqha up --wait             start a persistent local cluster (then ps, logs, down)
  bin/mqnamesrv                   start a name server on port 9876
  bin/mqbroker -c conf/2m-2s-sync/broker-a.properties     and a broker (then broker-a-s, broker-b, ...)
  docs/design.md                  how it works inside
Any RocketMQ 4.9 client can talk to these servers, and a RocketMQ 4.9 broker can be master or slave of one of them."""
NEXT_INSTALLED = """What to try next:
  rmqha quickstart --keep         the same, but keep the configs, stores and logs
  rmqha config init               create your own configuration files; prints how to start servers with them
  rmqha --help, mqadmin           list all other commands
Any RocketMQ 4.9 client can talk to these servers, and a RocketMQ 4.9 broker can be master or slave of one of them."""


@contextlib.contextmanager
def step(title: str) -> Iterator[list[str]]:
    """Print a step's title, and when it ends its duration and notes on the same line."""
    click.echo(f"{title} ... ", nl=False)
    notes: list[str] = []
    begin = time.monotonic()
    try:
        yield notes
    except BaseException:
        click.echo("FAILED")
        raise
    click.echo("; ".join([f"{time.monotonic() - begin:.1f} s", *notes]))


class Quickstart:
    """The steps, one after the other. A failure is raised as WorkFailedError or one of the client's errors."""

    def __init__(self, cluster: LocalCluster, messages: int) -> None:
        self._cluster = cluster
        self._messages = messages
        self._victim = cluster.masters[0]
        self._producer = DefaultMQProducer("quickstart_producers", cluster.name_server.address)
        # key -> name of the broker that stored it
        self._sent: dict[str, str] = {}

    def run(self) -> None:
        """Run all steps."""
        try:
            self._start()
            with step(f"send {self._messages:,} messages, each acknowledged by a master and its slave") as notes:
                notes.append(self._send())
            with step("compare the commit logs"):
                table = self._table()
            click.echo(f"\n{table}\n")
            with step(f"kill -9 {self._victim.name}"):
                self._kill_a_master()
            with step("consume everything") as notes:
                notes.append(self._consume())
        finally:
            self._producer.shutdown()

    # ---- starting

    def _start(self) -> None:
        cluster = self._cluster
        with step("start the name server"):
            cluster.start(cluster.name_server)
            cluster.wait_until(self._name_server_listens, WAIT_S, "the name server to listen")
            self._producer.start()
        with step(f"start {len(cluster.masters)} masters"):
            self._start_brokers(cluster.masters)
        with step(f"create the topic {TOPIC}"):
            self._create_topic(TOPIC, QUEUES_PER_BROKER)
            self._create_topic(PROBE_TOPIC, 1)
        with step(f"start {len(cluster.slaves)} slaves, until each is a copy of its master"):
            self._start_brokers(cluster.slaves)
            self._wait_for_replication()

    def _name_server_listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._cluster.name_server.port)) == 0

    def _start_brokers(self, brokers: list[Node]) -> None:
        for broker in brokers:
            self._cluster.start(broker)
        wanted = {broker.address for broker in brokers}
        self._cluster.wait_until(lambda: wanted <= self._registered(), WAIT_S, "the name server to know the brokers")

    def _registered(self) -> set[str]:
        info = self._producer.api.get_broker_cluster_info(TIMEOUT_MS)
        return {address for broker in info.brokerAddrTable.values() for address in broker.brokerAddrs.values()}

    def _create_topic(self, topic: str, queues: int) -> None:
        self._producer.admin.create_topic(topics.AUTO_CREATE_TOPIC_KEY_TOPIC, topic, queues)
        self._cluster.wait_until(
            lambda: self._brokers_of(topic) == len(self._cluster.masters), WAIT_S, f"a route of {topic} to each master")

    def _brokers_of(self, topic: str) -> int:
        try:
            return len({queue.brokerName for queue in self._producer.fetch_publish_message_queues(topic)})
        except MQClientException as error:
            log.info("no route of %s yet: %s", topic, error)
            return 0

    def _wait_for_replication(self) -> None:
        queues = self._producer.fetch_publish_message_queues(PROBE_TOPIC)
        self._cluster.wait_until(
            lambda: all(self._reaches_slave(queue) for queue in queues), WAIT_S, "masters to reach their slaves")
        self._cluster.wait_until(
            lambda: all(self._knows_topic(slave) for slave in self._cluster.slaves), WAIT_S,
            f"slaves to know the topic {TOPIC}")

    def _reaches_slave(self, queue: MessageQueue) -> bool:
        try:
            result = self._producer.send(Message(PROBE_TOPIC, b"is a slave there?"), PROBE_TIMEOUT_MS, queue)
        except RemotingException as error:
            log.info("no answer yet: %s", error)
            return False
        return result.send_status is SendStatus.SEND_OK

    def _knows_topic(self, slave: Node) -> bool:
        return TOPIC in self._producer.api.get_all_topic_config(slave.address, TIMEOUT_MS).topicConfigTable

    # ---- sending

    def _send(self) -> str:
        begin, late = time.monotonic(), 0
        for number in range(self._messages):
            key = f"order-{number}"
            result = self._producer.send(Message(TOPIC, b"%d apples" % number, tags="fruit", keys=key), TIMEOUT_MS)
            broker_name = result.message_queue.brokerName
            # may happen on a busy host
            if result.send_status is SendStatus.FLUSH_SLAVE_TIMEOUT:
                late += 1
                self._wait_for_slave(broker_name)
            elif result.send_status is not SendStatus.SEND_OK:
                raise WorkFailedError(f"message {number} is {result.send_status.name}, not SEND_OK")
            self._sent[key] = broker_name
        rate = self._messages / (time.monotonic() - begin)
        text = f"{rate:,.0f} per second, one after the other; {shares(self._sent.values())}"
        return f"{text}; {late:,} FLUSH_SLAVE_TIMEOUT, replicated a moment later" if late else text

    def _wait_for_slave(self, broker_name: str) -> None:
        pairs = [pair for pair in self._cluster.pairs() if pair[0].broker_name == broker_name]
        self._cluster.wait_until(lambda: all(self._lag(*pair) == 0 for pair in pairs), WAIT_S,
                                 f"{broker_name}'s slave to catch up")

    # ---- comparing

    def _table(self) -> str:
        self._cluster.wait_until(
            lambda: all(self._lag(*pair) == 0 for pair in self._cluster.pairs()), WAIT_S, "the slaves to catch up")
        rows = [row for pair in self._cluster.pairs() for row in self._rows(*pair)]
        table = render(rows)
        if any(row.identical is False for row in rows):
            raise WorkFailedError(f"a slave's commit log differs from its master's\n{table}")
        return table

    def _lag(self, master: Node, slave: Node) -> int:
        slave_max = self._max_offset(slave)
        return max(0, self._max_offset(master) - slave_max)

    def _rows(self, master: Node, slave: Node) -> list[BrokerRow]:
        slave_max, master_max = self._max_offset(slave), self._max_offset(master)
        end = min(master_max, slave_max)
        identical = first_difference(master.commit_log, slave.commit_log, end) is None
        return [
            BrokerRow(master.name, master.role, master.address, master_max),
            BrokerRow(slave.name, slave.role, slave.address, slave_max, master_max - end, identical),
        ]

    def _max_offset(self, broker: Node) -> int:
        table = self._producer.api.get_broker_runtime_info(broker.address, TIMEOUT_MS).table
        return int(table["commitLogMaxOffset"])

    # ---- the crash, and reading what remains

    def _kill_a_master(self) -> None:
        address = self._victim.address
        self._cluster.kill(self._victim)
        self._cluster.wait_until(lambda: address not in self._registered(), WAIT_S, "the name server to notice")

    def _consume(self) -> str:
        received: Counter[str] = Counter()
        brokers: dict[str, str] = {}
        lock = threading.Lock()  # guards both

        def listener(messages: list[MessageExt]) -> ConsumeConcurrentlyStatus:
            with lock:
                received.update(message.keys or "" for message in messages)
                brokers.update((message.keys or "", message.broker_name or "") for message in messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        consumer = DefaultMQPushConsumer(GROUP, self._cluster.name_server.address, listener)
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe(TOPIC)
        with consumer:
            try:
                self._cluster.wait_until(lambda: len(received) >= len(self._sent), WAIT_S, "all messages to arrive")
            except ClusterError as error:
                raise WorkFailedError(f"{error}; received only {len(received)} of {len(self._sent)}") from error
            # a message delivered twice would arrive in this time
            time.sleep(LATECOMERS_S)
        return self._check_received(received, brokers)

    def _check_received(self, received: Counter[str], brokers: dict[str, str]) -> str:
        twice = sum(times > 1 for times in received.values())
        missing, foreign = len(self._sent.keys() - received), len(received.keys() - self._sent)
        if twice or missing or foreign:
            raise WorkFailedError(f"{twice} messages arrived twice, {missing} never, {foreign} were not sent by this "
                                  "run")
        from_slave = sum(broker == self._victim.broker_name for broker in brokers.values())
        return f"all {len(received):,}, none twice; {self._victim.name}'s {from_slave:,} came from its slave"


def shares(brokers: Iterable[str]) -> str:
    """Return how many messages each broker got, as text."""
    return ", ".join(f"{count:,} to {broker}" for broker, count in sorted(Counter(brokers).items()))


def find_conf() -> Path:
    """Return the folder of the configuration files that rmqha comes with; raise ClusterError when it is missing."""
    folder = templates() / CONF
    if not folder.is_dir():
        raise ClusterError(f"{folder} is missing: the installation of rmqha is incomplete; reinstall the wheel")
    return folder


@contextlib.contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Send the client's log lines to a file for the duration of the block."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s - %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


@click.command("quickstart", context_settings={"help_option_names": HELP_OPTIONS}, epilog=examples(
    "rmqha quickstart",
    "rmqha quickstart --keep    # and keep the stores, to look into them"))
@click.option("--messages", default=1_000, show_default=True, type=click.IntRange(1, 1_000_000),
              help="How many messages to send.")
@click.option("--keep", is_flag=True, help="Keep the folder with configs, stores and logs.")
def main(messages: int, keep: bool) -> None:
    """Start 2 masters and 2 slaves, kill a master, lose no message.

    The servers run on this host, in a temporary folder. The command sends messages, compares the logs of each master
    and its slave, kills a master, and consumes everything, the dead master's messages from its slave. Prints each step
    with its duration. Exit code 1 if a step fails.
    """
    begin = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="rmqha-quickstart-"))
    try:
        with ended_in_order(), logging_to(home / "client.log"):
            failure = _run(home, messages)
    finally:
        if keep:
            click.echo(f"kept: {home}; start it again with: rmqha up --wait --dir {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)
    if failure is not None:
        click.echo(f"\n{failure}" + ("" if keep else "\nRun again with --keep to read the servers' logs."), err=True)
        sys.exit(1)
    click.echo(f"done in {time.monotonic() - begin:.1f} s; nothing is left running\n\n"
               f"{NEXT if checkout() else NEXT_INSTALLED}")


def _run(home: Path, messages: int) -> str | None:
    """Run the steps, stop the cluster in any case, and return why they failed; None when they succeeded."""
    try:
        conf = find_conf()
        with LocalCluster(conf, home, free_port_block(ports_needed(conf))) as cluster:
            Quickstart(cluster, messages).run()
            with step("stop all"):
                cluster.stop()
    except (WorkFailedError, OSError, *CLIENT_ERRORS) as error:
        log.exception("the quickstart failed")
        return str(error)
    return None


if __name__ == "__main__":
    main()
