"""Name servers, masters and slaves that are not there, or do not answer: one line soon, or somebody else answers."""
import re
import socket
import time
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rmqha.client.exception import MQBrokerException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.pipeline.cluster.cluster_queues import ClusterQueues
from rmqha.pipeline.cluster.cluster_sink import ClusterWriter
from rmqha.pipeline.cluster.cluster_source import (
    COMMON_OPTIONS,
    READ_OPTIONS,
    WRITE_OPTIONS,
    ClusterReader,
)
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.table import table_schema
from tests.pipeline.cluster.test_cluster import new_topic, wait_readable
from tests.support import ports
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

FORMAT = "rocketmq"
MOST_SECONDS = 60  # with the defaults one would wait for minutes, or for ever


def reader(**given) -> ClusterReader:
    options = Options(given, READ_OPTIONS, FORMAT)
    return ClusterReader(options, table_schema(options))


def read(part: ClusterReader) -> list[bytes]:
    """The bodies."""
    return [body for span in part.partitions() for batch in part.read(span) for body in batch["body"].to_pylist()]


@contextmanager
def nobody():
    """An address where nobody listens."""
    yield f"127.0.0.1:{ports.free_port()}"


@contextmanager
def silent():
    """An address that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def black_hole():
    """An address where packets vanish: the queue of connections that nobody takes is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, \
            socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def write(address: str, topic: str) -> None:
    """Send one message, as a task does."""
    options = Options({"nameServer": address, "topic": topic}, (*COMMON_OPTIONS, *WRITE_OPTIONS), FORMAT)
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
def test_a_name_server_that_does_not_answer_is_told_soon(somewhere, act, said):
    with somewhere() as address:
        begin = time.monotonic()
        with pytest.raises(PipelineError) as error:
            act(address, "T")
        assert time.monotonic() - begin < MOST_SECONDS
        assert re.match(said.format(address=address), str(error.value)) and "\n" not in str(error.value)


def has_all(queues: ClusterQueues, address: str, topic: str, count: int) -> bool:
    """Whether a broker has so many messages of a topic, which it may not know yet."""
    try:
        table = queues.consumer.api.get_topic_stats_info(address, topic, 6_000).offsetTable
    except MQBrokerException:
        return False
    return sum(offsets.maxOffset for offsets in table.values()) == count


@pytest.mark.parametrize("kind", ["rmqha", pytest.param("java", marks=pytest.mark.java)])
def test_a_slave_answers_for_a_master_that_is_gone(kind, nodes, tmp_path):
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
