"""The format rocketmq: reading from and writing to a live cluster, the real RocketMQ's and rmqha's."""
import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.pipeline.streams import lag_of
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.pipeline.cluster.fake_cluster import FakeCluster, FakeQuery
from tests.pipeline.queries import run_to_end, run_until
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

FORMAT = "rocketmq"


@pytest.fixture(scope="module")
def real(module_nodes, tmp_path_factory) -> str:
    """The address of a real name server with one real broker."""
    folder = tmp_path_factory.mktemp("real")
    namesrv = NamesrvNode("java", folder / "namesrv", shared_jvm=True)
    module_nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode("java", folder / "broker", namesrv.address, shared_jvm=True)
    module_nodes.append(broker)
    broker.start()
    return namesrv.address


@pytest.fixture(params=["rmqha", pytest.param("java", marks=pytest.mark.java)])
def cluster(request) -> str:
    """A name server's address."""
    return request.getfixturevalue("real") if request.param == "java" else request.getfixturevalue("servers").namesrv


@pytest.fixture
def send() -> Callable:
    """send(name server, topic, first, count): messages with keys k<number>; they can be read then."""
    def put(address: str, topic: str, first: int, count: int) -> None:
        with DefaultMQProducer("test-producer", address) as producer:
            for number in range(first, first + count):
                producer.send(Message(topic, b"body %d" % number * 30, tags=f"tag{number % 2}", keys=f"k{number}"))
        wait_readable(address, topic, first + count)
    return put


def wait_readable(address: str, topic: str, count: int) -> None:
    """What was acknowledged can be read a little later."""
    admin = DefaultMQAdminExt(address)
    try:
        wait_until(lambda: count == sum(queue.maxOffset for queue in
                                        admin.examine_topic_stats(topic).offsetTable.values()), what="all there")
    finally:
        admin.shutdown()


_NAMES: Iterator[int] = iter(range(1 << 30))


def queue_offsets(progress) -> list[int]:
    """Of a progress: the end of each queue."""
    queues = json.loads(progress.sources[0].endOffset)["queues"]
    return [offset for brokers in queues.values() for ids in brokers.values() for offset in ids.values()]


def new_topic() -> str:
    return f"Pipeline{next(_NAMES)}"


def keys_of(frame) -> Counter:
    return Counter(row.keys for row in frame.select("keys").collect())


def expected(first: int, end: int) -> Counter:
    return Counter(f"k{number}" for number in range(first, end))


def test_a_topic_is_a_table_and_a_stream(spark, cluster, send, tmp_path):
    topic = new_topic()
    send(cluster, topic, 0, 100)
    table = spark.read.format(FORMAT).options(nameServer=cluster, subscribe=topic).load()
    rows = table.collect()
    assert Counter(row.keys for row in rows) == expected(0, 100)
    row = next(row for row in rows if row.keys == "k31")
    assert (row.topic, bytes(row.body), row.tags, row.properties["KEYS"]) == (topic, b"body 31" * 30, "tag1", "k31")
    tagged = spark.read.format(FORMAT).options(nameServer=cluster, topic=topic, subExpression="tag1").load()
    assert keys_of(tagged) == Counter(f"k{number}" for number in range(1, 100, 2))
    taken: list[list[str]] = []

    def run():
        stream = spark.readStream.format(FORMAT).options(
            nameServer=cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=60).load()
        writer = (stream.writeStream.foreachBatch(lambda batch, _: taken.append([row.keys for row in batch.collect()]))
                  .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True))
        run_to_end(lambda: queries.append(writer.start()) or queries[-1])
    queries: list = []
    run()
    first = queries[-1]  # before it there may be some whose Python worker started too slowly
    send(cluster, topic, 100, 30)
    run()
    lags = [lag.average * len(queue_offsets(progress)) for progress in first.recentProgress
            for lag in lag_of(json.loads(progress.json))]
    assert [round(lag) for lag in lags] == [40, 0]
    assert [len(batch) for batch in taken] == [60, 40, 30]
    assert Counter(key for batch in taken for key in batch) == expected(0, 130)


def test_a_table_is_sent_and_read_back(spark, cluster):
    topic = new_topic()
    rows = [(f"k{number}", f"t{number % 3}", b"body %d" % number * (1 + number % 50 * 40), {"color": "red", "nb": "1"})
            for number in range(200)]
    frame = spark.createDataFrame(rows, "keys string, tags string, body binary, properties map<string,string>")
    for _ in range(2):  # as if Spark had run the tasks twice
        (frame.write.format(FORMAT).mode("append").options(nameServer=cluster, topic=topic, idempotent="true").save())
    wait_readable(cluster, topic, 400)
    table = spark.read.format(FORMAT).options(nameServer=cluster, subscribe=topic).load()
    assert table.count() == 400
    found = {row.keys: row for row in table.dropDuplicates(["topic", "uniqKey"]).collect()}
    assert len(found) == 200
    for key, tags, body, properties in rows:
        row = found[key]
        assert (row.tags, bytes(row.body)) == (tags, body)
        assert properties.items() <= row.properties.items()


def test_a_stream_that_waits_for_more_messages_takes_them_together(spark, servers, send, tmp_path):
    topic = new_topic()
    send(servers.namesrv, topic, 0, 10)
    taken: list[int] = []
    stream = spark.readStream.format(FORMAT).options(nameServer=servers.namesrv, subscribe=topic, group="waiting",
                                                     startingOffsets="earliest", minOffsetsPerTrigger=15).load()

    def start():
        return (stream.writeStream.foreachBatch(lambda batch, _: taken.append(batch.count()))
                .option("checkpointLocation", str(tmp_path / "checkpoint")).start())

    def done() -> bool:
        if len(taken) == 1 and more:  # the first batch does not wait; the second does, for the fifteenth
            count = more.pop(0)
            send(servers.namesrv, topic, sent[0], count)
            sent[0] += count
        return len(taken) == 2

    sent, more = [10], [14, 1]
    run_until(start, done)
    assert taken == [10, 15]


def test_a_stream_is_sent(spark, servers, send, tmp_path):
    source, target = new_topic(), new_topic()
    send(servers.namesrv, source, 0, 50)
    stream = spark.readStream.format(FORMAT).options(nameServer=servers.namesrv, subscribe=source,
                                                     startingOffsets="earliest").load()
    run_to_end(stream.select("body", "keys", "tags").writeStream.format(FORMAT)
               .options(nameServer=servers.namesrv, topic=target)
               .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start)
    wait_readable(servers.namesrv, target, 50)
    sent = spark.read.format(FORMAT).options(nameServer=servers.namesrv, topic=target).load()
    assert keys_of(sent) == expected(0, 50)


def test_headers_go_round_and_the_option_topic_beats_the_column(spark, servers):
    first, second = new_topic(), new_topic()
    frame = spark.sql(f"""select '{first}' as topic, 'k' as key, 'v' as value,
                          array(named_struct('key', 'color', 'value', cast('red' as binary))) as headers""")
    frame.write.format(FORMAT).mode("append").options(nameServer=servers.namesrv, topic=second).save()
    wait_readable(servers.namesrv, second, 1)
    table = spark.read.format(FORMAT).options(nameServer=servers.namesrv, subscribe=second, schema="kafka",
                                              includeHeaders="true").load()
    row, = table.collect()
    assert (row.topic, row.key, row.value) == (second, b"k", b"v")
    assert ("color", b"red") in [(each.key, bytes(each.value)) for each in row.headers]


@pytest.mark.parametrize("options, message", [
    ({"subscribe": "T"}, "needs the option nameServer"),
    ({"nameServer": "127.0.0.1:1"}, "needs one of the options subscribe and subscribePattern"),
    ({"nameServer": "127.0.0.1:1", "subscribe": "T"}, "name server 127.0.0.1:1: connect to"),
    ({"namServer": "127.0.0.1:1"}, "did you mean 'nameServer'"),
])
def test_wrong_options_for_reading_are_told(spark, options, message, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(Exception, match=message):
        spark.read.format(FORMAT).options(**options).load().count()


@pytest.mark.parametrize("columns, options, message", [
    ("1 as body", {}, "column body is int, it must be string or binary"),
    ("'x' as body, 'y' as colour", {}, "column 'colour' can't be sent"),
    ("'x' as tags", {}, "needs a column body, or value"),
    ("'x' as body", {"idempotent": "true"}, "idempotent needs a column key or keys"),
    ("'x' as body, map('a', 'b') as properties, array() as headers", {}, "one of the columns properties and headers"),
    ("'x' as body, array('a') as headers", {}, "column headers is array<string>, it must be array<struct<key"),
    ("'x' as body", {"rocketmq.secretKey": "s"}, "needs both rocketmq.accessKey and rocketmq.secretKey"),
    ("'x' as body", {"topic": ""}, "a row has no topic|needs a column topic"),
])
def test_tables_that_cannot_be_sent_are_told(spark, columns, options, message):
    with pytest.raises(Exception, match=message):
        (spark.sql(f"select {columns}").write.format(FORMAT).mode("append")
         .options(**{"nameServer": "127.0.0.1:1", "topic": "T", **options}).save())


@pytest.mark.parametrize("columns, message", [
    ("array(named_struct('key', 'a', 'value', cast('b' as binary)), null) as headers",
     "column headers: a header is null"),
    ("map('a', cast(null as string)) as properties", "column properties: 'a' is null"),
    ("concat('k', char(2)) as keys", "column keys: the characters"),
    ("cast(x'ff41' as string) as keys", "column keys: the text is not UTF-8 at byte 0"),
    ("'B C' as topic", r"column topic: The specified topic\[B C\] contains illegal characters"),
])
def test_rows_that_cannot_be_sent_are_told(spark, servers, columns, message):
    frame = spark.sql(f"select 'x' as body, {columns}").repartition(1)
    if "topic" not in columns:
        frame = frame.selectExpr("*", "'T' as topic")
    with pytest.raises(Exception, match=f"rocketmq: row 1 of partition 0.*, {message}"):
        frame.write.format(FORMAT).mode("append").options(nameServer=servers.namesrv).save()


def test_a_table_that_was_read_is_sent_on_without_what_brokers_added(spark, servers, send):
    first, second = new_topic(), new_topic()
    send(servers.namesrv, first, 0, 5)
    table = spark.read.format(FORMAT).options(nameServer=servers.namesrv, subscribe=first).load()
    sink = table.select("body", "keys", "tags", "properties", "flag").write.format(FORMAT).mode("append")
    sink = sink.options(nameServer=servers.namesrv, topic=second)
    with pytest.raises(Exception, match="is RocketMQ's own: .* set the option systemProperties=drop"):
        sink.save()
    sink.option("systemProperties", "drop").save()
    wait_readable(servers.namesrv, second, 5)
    found = spark.read.format(FORMAT).options(nameServer=servers.namesrv, subscribe=second).load().collect()
    assert {(row.keys, row.tags) for row in found} == {(f"k{number}", f"tag{number % 2}") for number in range(5)}
    assert not {row.uniqKey for row in found} & {row.uniqKey for row in table.collect()}


def test_a_queue_that_is_new_is_read_from_its_start_within_the_limit():
    cluster = FakeCluster("A", "B")
    cluster.send("A", 5)
    cluster.send("B", 70)
    query = FakeQuery(cluster)
    query.offset = json.dumps({"version": 1, "queues": {"A": {"b": {"0": 5}}}})
    query.reader.prepareForTriggerAvailableNow()
    cluster.send("B", 1)
    assert [[message.queue_offset for message in query.batch(40)] for _ in range(3)] == [
        list(range(40)), list(range(40, 70)), []]


def test_offsets_that_were_deleted_are_data_loss(spark, servers, send):
    topic = new_topic()
    send(servers.namesrv, topic, 0, 20)
    for broker in servers.brokers.values():
        for queue in broker.message_store.consume_queue_table.get(topic, {}).values():
            queue.min_logic_offset = 20  # as if the log had been cleaned; bytes: one unit
    # a look at the routes between two sends leaves the topic on one broker
    begin = {topic: {name: {str(queue): 0 for queue in range(4)} for name, broker in servers.brokers.items()
                     if topic in broker.topic_config_manager.topic_config_table}}
    options = {"nameServer": servers.namesrv, "subscribe": topic, "startingOffsets": json.dumps(begin)}
    with pytest.raises(Exception, match="offsets 0 to 1 are gone, the queue begins at 1"):
        spark.read.format(FORMAT).options(**options).load().count()
    left = spark.read.format(FORMAT).options(**options, failOnDataLoss="false").load().count()
    assert 10 <= left < 20
