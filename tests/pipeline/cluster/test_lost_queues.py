"""Queues that lose messages or vanish under a stream, and servers that are down or do not answer."""
import json
import re
import shutil
import socket
import time
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rmqha.client.exception import MQBrokerException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.topics import TopicConfig
from rmqha.pipeline.cluster.cluster_queues import ClusterQueues
from rmqha.pipeline.cluster.cluster_sink import ClusterWriter
from rmqha.pipeline.cluster.cluster_source import COMMON_OPTIONS, READ_OPTIONS, WRITE_OPTIONS, ClusterReader
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.table import table_schema
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.pipeline.cluster.fake_cluster import DrivenQuery
from tests.pipeline.cluster.test_cluster import (
    FORMAT,
    cluster,  # noqa: F401, fixtures
    new_topic,
    real,  # noqa: F401, fixtures
    wait_readable,
)
from tests.pipeline.support import run_to_end
from tests.support import ports
from tests.support.in_process import running_name_server, start_broker
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

# Streams whose queues lose messages, vanish or are replaced, at the real RocketMQ and at rmqha. A reader is called as
# Spark calls it. Spark itself is used once for its handling of the result, and where its own files are changed.

MADE_AGAIN = "the topic was deleted and created again, or its broker came back with another store"


class Topic:
    """A topic with one queue at one broker."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name, self.sent = address, name, 0
        self.admin = DefaultMQAdminExt(address)
        cluster = self.admin.examine_broker_cluster_info()
        self.broker = sorted(cluster.brokerAddrTable)[0]
        self.broker_address = cluster.brokerAddrTable[self.broker].brokerAddrs[0]

    def make(self) -> "Topic":
        self.admin.create_and_update_topic_config(self.broker_address, TopicConfig(
            self.name, readQueueNums=1, writeQueueNums=1))
        wait_until(self.is_known, what="the topic to be known")
        return self

    def is_known(self) -> bool:
        return self.name in self.admin.fetch_all_topic_list().topicList

    def send(self, count: int, end: int) -> list[str]:
        """Send `count` messages, after which the queue ends at `end`; return their keys."""
        keys = [f"k{number}" for number in range(self.sent, self.sent + count)]
        self.sent += count
        with DefaultMQProducer("lost-queues", self.address) as producer:
            for key in keys:
                producer.send(Message(self.name, b"body", keys=key))
        wait_readable(self.address, self.name, end)
        return keys

    def delete(self) -> None:
        self.admin.delete_topic_in_broker([self.broker_address], self.name)
        self.admin.delete_topic_in_name_server(None, self.name, None)
        wait_until(lambda: not self.is_known(), what="the topic to be forgotten")


class Query(DrivenQuery):
    """A query that reads the available messages and ends, repeatedly, with one checkpoint; each time in a new
    process."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.taken: list[str] = []
        super().__init__(**self.options_of())

    def options_of(self, **more: str) -> dict[str, str]:
        """Return the options: the cluster, the topic, and `more`."""
        return {"nameServer": self.topic.address, "subscribe": self.topic.name, "startingOffsets": "earliest", **more}

    def run(self, **options: str) -> list[str]:
        """Return the keys of the new messages."""
        self.taken, self.given = [], self.options_of(**options)
        self.restart()
        try:
            self.reader.prepareForTriggerAvailableNow()
            while self.plan():
                self.taken += [key for _, key in sorted(self.read())]
        finally:
            self.reader.stop()
        return self.taken

    def fails(self, said: str) -> None:
        """Check that a strict run ends with an error, and that the next one does, too."""
        for _ in range(2):
            with pytest.raises(Exception, match=said):
                self.run()
            assert self.taken == []


class SparkQuery(Query):
    """The same with Spark, whose checkpoint is in a folder."""

    def __init__(self, spark, topic: Topic, folder) -> None:
        super().__init__(topic)
        self.spark, self.folder = spark, folder

    def run(self, **options: str) -> list[str]:
        """Return the keys of the new messages."""
        stream = self.spark.readStream.format(FORMAT).options(**self.options_of(**options)).load()
        self.taken = []
        writer = (stream.writeStream.foreachBatch(lambda batch, _: self.taken.extend(
            row.keys for row in batch.select("keys").orderBy("queueOffset").collect()))
            .option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True))
        run_to_end(writer.start)
        return self.taken


@pytest.fixture
def topic_at():
    """topic_at(address, name) -> a Topic whose admin is shut down at the end."""
    with ExitStack() as ends:
        def make(address, name):
            topic = Topic(address, name)
            ends.callback(topic.admin.shutdown)
            return topic
        yield make


def begin(topic: Topic, query: Query) -> tuple[Topic, Query]:
    """Return a topic with five messages, and a query that has read them."""
    keys = topic.make().send(5, 5)
    assert query.run() == keys
    return topic, query


@pytest.fixture
def begun(cluster, topic_at):
    topic = topic_at(cluster, new_topic())
    return begin(topic, Query(topic))


@pytest.fixture
def begun_with_spark(spark, servers, tmp_path, topic_at):
    topic = topic_at(servers.namesrv, new_topic())
    return begin(topic, SparkQuery(spark, topic, tmp_path))


@pytest.mark.parametrize("count, said", [
    (8, "has another message at offset 4 than the one stored at .* that was there when the stream was at 5"),
    (5, "has another message at offset 4 than the one stored at .* that was there when the stream was at 5"),
    (2, "ends at offset 2, the stream has read up to 5"),
])
def test_topic_that_was_created_again_is_noticed(begun, count, said):
    assert_noticed_when_made_again(*begun, count, said)


def test_spark_shows_the_readers_message(begun_with_spark):
    assert_noticed_when_made_again(*begun_with_spark, 2, "ends at offset 2, the stream has read up to 5")


def assert_noticed_when_made_again(topic: Topic, query: Query, count: int, said: str) -> None:
    topic.delete()
    topic.make()
    again = topic.send(count, count)
    query.fails(f"topic {topic.name}, queue 0 of {topic.broker} {said}: {MADE_AGAIN}.*With failOnDataLoss=false the "
                "query reads the queue from its beginning, offset 0")
    assert query.run(failOnDataLoss="false") == again
    more = topic.send(3, count + 3)
    assert query.run() == more


def test_vanished_topic_is_noticed_and_read_after_its_return(begun):
    topic, query = begun
    topic.delete()
    query.fails(f"topic {topic.name}, queue 0 of {topic.broker} no longer exists, the stream has read up to offset 5")
    assert query.run(failOnDataLoss="false") == []
    topic.make()
    again = topic.send(7, 7)
    assert query.run(failOnDataLoss="false") == again
    assert query.run() == []


def test_checkpoint_of_an_earlier_release_can_be_continued(begun_with_spark):
    topic, query = begun_with_spark
    for folder in ("offsets", "commits"):
        assert (query.folder / "checkpoint" / folder / "0").exists()
    last = max((query.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = last.read_text("utf-8").splitlines()
    offset = json.loads(lines[-1])
    assert offset.pop("last")
    last.write_text("\n".join([*lines[:-1], json.dumps(offset)]), "utf-8")
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    more = topic.send(2, 7)
    assert query.run() == more
    topic.delete()
    topic.make()
    again = topic.send(9, 9)
    query.fails("has another message at offset 6 than the one stored at")
    assert query.run(failOnDataLoss="false") == again


def test_moved_beginning_is_noticed(servers, topic_at):
    topic = topic_at(servers.namesrv, new_topic()).make()
    query = Query(topic)
    assert query.run() == []
    keys = topic.send(20, 20)
    queue = servers.brokers[topic.broker].message_store.consume_queue_table[topic.name][0]
    # As if the log had been cleaned; in bytes: six units.
    queue.min_logic_offset = 20 * 6
    query.fails(f"topic {topic.name}, queue 0 of {topic.broker}: offsets 0 to 6 are gone, the queue begins at 6")
    assert query.run(failOnDataLoss="false") == keys[6:]


def test_broker_that_returns_with_another_store_is_noticed(tmp_path, topic_at):
    with running_name_server(tmp_path) as address:
        broker = start_broker("broker-a", address, tmp_path / "broker")
        try:
            topic = topic_at(address, new_topic()).make()
            query = Query(topic)
            topic.send(4, 4)
            assert len(query.run()) == 4
            broker.shutdown()
            query.fails("no longer exists, the stream has read up to offset 4: .*or the name server no longer knows")
            broker = start_broker("broker-a", address, tmp_path / "broker")
            topic = query.topic = topic_at(address, topic.name)
            wait_until(topic.is_known, what="the broker to be back")
            assert query.run() == []  # the same store
            broker.shutdown()
            shutil.rmtree(tmp_path / "broker")
            broker = start_broker("broker-a", address, tmp_path / "broker")
            topic = query.topic = topic_at(address, topic.name).make()
            topic.sent = 10
            again = topic.send(6, 6)
            query.fails(f"has another message at offset 3 than the one stored at .*: {MADE_AGAIN}")
            assert query.run(failOnDataLoss="false") == again
        finally:
            broker.shutdown()


# Name servers, masters and slaves that are down or do not answer: a one-line error soon, or another server answers.

UNREACHABLE_FORMAT = "rocketmq"
# With the defaults the client would wait for minutes, or forever.
MOST_SECONDS = 60


def reader(**given) -> ClusterReader:
    options = Options(given, READ_OPTIONS, UNREACHABLE_FORMAT)
    return ClusterReader(options, table_schema(options))


def read(part: ClusterReader) -> list[bytes]:
    """Return the bodies."""
    return [body for span in part.partitions() for batch in part.read(span) for body in batch["body"].to_pylist()]


@contextmanager
def nobody():
    """Yield an address where nothing listens."""
    yield f"127.0.0.1:{ports.free_port()}"


@contextmanager
def silent():
    """Yield an address that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def black_hole():
    """Yield an address where packets vanish: its queue of unaccepted connections is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, \
            socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def write(address: str, topic: str) -> None:
    """Send one message, as a task does."""
    options = Options({"nameServer": address, "topic": topic}, (*COMMON_OPTIONS, *WRITE_OPTIONS), UNREACHABLE_FORMAT)
    writer = ClusterWriter(options, StructType([StructField("body", BinaryType())]))
    writer.write(iter([pa.record_batch({"body": pa.array([b"one"], pa.binary())})]))


def plan(address: str, topic: str) -> None:
    """Plan a table."""
    reader(nameServer=address, subscribe=topic).partitions()


@pytest.mark.own_timeouts
@pytest.mark.parametrize("somewhere, act, said", [
    (nobody, plan, "name server {address}: connect to .{address}. failed"),
    (nobody, write, "1 messages for topic T were not sent: .*{address}"),
    (silent, plan, "name server {address}: .*<{address}>.*set rocketmq.tls.enable=true.$"),
    pytest.param(silent, write, "1 messages for topic T were not sent: .*{address}", marks=in_long),
    pytest.param(black_hole, plan, "name server {address}: connect to .{address}. failed", marks=in_long),
    pytest.param(black_hole, write, "1 messages for topic T were not sent: .*{address}", marks=in_long),
])
def test_name_server_that_does_not_answer_is_reported_soon(somewhere, act, said):
    with somewhere() as address:
        begin = time.monotonic()
        with pytest.raises(PipelineError) as error:
            act(address, "T")
        assert time.monotonic() - begin < MOST_SECONDS
        assert re.match(said.format(address=address), str(error.value)) and "\n" not in str(error.value)


def has_all(queues: ClusterQueues, address: str, topic: str, count: int) -> bool:
    """Return whether a broker has `count` messages of a topic, which it may not know yet."""
    try:
        table = queues.consumer.api.get_topic_stats_info(address, topic, 6_000).offsetTable
    except MQBrokerException:
        return False
    return sum(offsets.maxOffset for offsets in table.values()) == count


@pytest.mark.parametrize("kind", ["rmqha", pytest.param("java", marks=pytest.mark.java)])
def test_slave_answers_for_a_master_that_is_down(kind, nodes, tmp_path):
    namesrv = NamesrvNode(kind, tmp_path / "namesrv", shared_jvm=True)
    master = BrokerNode(kind, tmp_path / "master", namesrv.address, "master")
    slave = BrokerNode(kind, tmp_path / "slave", namesrv.address, "slave", shared_jvm=True, brokerRole="SLAVE",
                       brokerId=1, haMasterAddress=master.ha_address)
    nodes += [namesrv, master, slave]
    namesrv.start()
    master.start()
    topic = new_topic()
    with DefaultMQProducer("test-producer", namesrv.address) as producer:
        for number in range(40):
            producer.send(Message(topic, b"%d" % number))
    wait_readable(namesrv.address, topic, 40)
    slave.start()
    given = {"nameServer": namesrv.address, "subscribe": topic}
    planned = reader(**given)
    parts = planned.partitions()
    with ClusterQueues(planned.options) as queues:
        wait_until(lambda: has_all(queues, slave.address, topic, 40), 60_000, "all at the slave")
    master.kill()
    begin = time.monotonic()
    wanted = sorted(b"%d" % number for number in range(40))
    found = [body for part in parts for batch in planned.read(part) for body in batch["body"].to_pylist()]
    assert sorted(found) == wanted
    assert sorted(read(reader(**given))) == wanted
    with pytest.raises(PipelineError, match=rf"^1 messages for topic {topic} were not sent: .*$") as error:
        write(namesrv.address, topic)
    assert "\n" not in str(error.value)
    slave.kill()
    with pytest.raises(PipelineError, match=rf"^topic {topic}, queue \d of broker-a at .*: .*(failed|not exist)$"):
        list(planned.read(parts[0]))
    assert time.monotonic() - begin < 4 * MOST_SECONDS
