"""Streams whose queues lose messages, vanish or become others, at the real RocketMQ and at rmqha.

A reader is called as Spark calls it; what Spark itself makes of that is seen once, and where its own files are changed.
"""
import json
import shutil
from contextlib import ExitStack

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.pipeline.cluster.driven_query import DrivenQuery
from tests.pipeline.cluster.test_cluster import FORMAT, cluster, new_topic, real, wait_readable  # noqa: F401, fixtures
from tests.pipeline.queries import run_to_end
from tests.support.in_process import running_name_server, start_broker
from tests.support.wait import wait_until

MADE_AGAIN = "the topic was deleted and made again, or its broker came back with another store"


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
        """The keys of so many new messages, behind which the queue ends at `end`."""
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
    """A query that reads what is there and ends, time and again, with one checkpoint; in a new process each time."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.taken: list[str] = []
        super().__init__(**self.options_of())

    def options_of(self, **more: str) -> dict[str, str]:
        """Where it reads, and `more`."""
        return {"nameServer": self.topic.address, "subscribe": self.topic.name, "startingOffsets": "earliest", **more}

    def run(self, **options: str) -> list[str]:
        """The keys of the messages that are new."""
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
        """A strict run ends with an error, and so does another."""
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
        """The keys of the messages that are new."""
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
    """A topic with five messages, and a query that has read them."""
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
    (8, "has another message at offset 4 than the one stored at .* that was there when the stream came to 5"),
    (5, "has another message at offset 4 than the one stored at .* that was there when the stream came to 5"),
    (2, "ends at offset 2, the stream has come to 5"),
])
def test_a_topic_that_was_made_again_is_noticed(begun, count, said):
    assert_noticed_when_made_again(*begun, count, said)


def test_spark_shows_what_the_reader_says(begun_with_spark):
    assert_noticed_when_made_again(*begun_with_spark, 2, "ends at offset 2, the stream has come to 5")


def assert_noticed_when_made_again(topic: Topic, query: Query, count: int, said: str) -> None:
    topic.delete()
    topic.make()
    again = topic.send(count, count)
    query.fails(f"topic {topic.name}, queue 0 of {topic.broker} {said}: {MADE_AGAIN}.*With failOnDataLoss=false the "
                "query reads the queue from its beginning, offset 0")
    assert query.run(failOnDataLoss="false") == again
    more = topic.send(3, count + 3)
    assert query.run() == more


def test_a_topic_that_vanished_is_noticed_and_read_when_it_is_back(begun):
    topic, query = begun
    topic.delete()
    query.fails(f"topic {topic.name}, queue 0 of {topic.broker} is not there any more, the stream has come to offset 5")
    assert query.run(failOnDataLoss="false") == []
    topic.make()
    again = topic.send(7, 7)
    assert query.run(failOnDataLoss="false") == again
    assert query.run() == []


def test_a_checkpoint_of_an_earlier_release_goes_on(begun_with_spark):
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


def test_a_beginning_that_moved_is_noticed(servers, topic_at):
    topic = topic_at(servers.namesrv, new_topic()).make()
    query = Query(topic)
    assert query.run() == []
    keys = topic.send(20, 20)
    queue = servers.brokers[topic.broker].message_store.consume_queue_table[topic.name][0]
    queue.min_logic_offset = 20 * 6  # as if the log had been cleaned; bytes: six units
    query.fails(f"topic {topic.name}, queue 0 of {topic.broker}: offsets 0 to 6 are gone, the queue begins at 6")
    assert query.run(failOnDataLoss="false") == keys[6:]


def test_a_broker_that_came_back_with_another_store_is_noticed(tmp_path, topic_at):
    with running_name_server(tmp_path) as address:
        broker = start_broker("broker-a", address, tmp_path / "broker")
        try:
            topic = topic_at(address, new_topic()).make()
            query = Query(topic)
            topic.send(4, 4)
            assert len(query.run()) == 4
            broker.shutdown()
            query.fails("is not there any more, the stream has come to offset 4: .*or the name server does not know")
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
