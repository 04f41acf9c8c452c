"""The format rocketmq with live clusters of both kinds, also with ACL and TLS."""
import json
import pickle
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.texts import Secret
from rmqha.pipeline.cluster.cluster_client import CLIENT_OPTIONS, client_options, cluster_client, find_stores
from rmqha.pipeline.cluster.cluster_queues import ClusterQueues
from rmqha.pipeline.cluster.cluster_source import READ_OPTIONS
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.streams import lag_of
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.pipeline.cluster.fake_cluster import FakeCluster, FakeQuery
from tests.pipeline.support import run_to_end, run_until
from tests.support import real_rocketmq
from tests.support.nodes import BrokerNode, NamesrvNode, write_properties
from tests.support.programs import OLD_SCHEME, Authority, encrypted
from tests.support.wait import wait_until

# The format rocketmq: reading from and writing to a live cluster, the real RocketMQ's and rmqha's.

FORMAT = "rocketmq"


@pytest.fixture(scope="module")
def real(module_nodes, tmp_path_factory) -> str:
    """Return the address of a real name server with one real broker."""
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
    """Return a name server's address."""
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
    """Wait until the messages can be read, which is a little after they are acknowledged."""
    admin = DefaultMQAdminExt(address)
    try:
        wait_until(lambda: count == sum(queue.maxOffset for queue in
                                        admin.examine_topic_stats(topic).offsetTable.values()), what="all there")
    finally:
        admin.shutdown()


_NAMES: Iterator[int] = iter(range(1 << 30))


def queue_offsets(progress) -> list[int]:
    """Return the end of each queue in a progress."""
    queues = json.loads(progress.sources[0].endOffset)["queues"]
    return [offset for brokers in queues.values() for ids in brokers.values() for offset in ids.values()]


def new_topic() -> str:
    return f"Pipeline{next(_NAMES)}"


def keys_of(frame) -> Counter:
    return Counter(row.keys for row in frame.select("keys").collect())


def expected(first: int, end: int) -> Counter:
    return Counter(f"k{number}" for number in range(first, end))


def test_topic_is_a_table_and_a_stream(spark, cluster, send, tmp_path):
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
    # Before it there may be some whose Python worker started too slowly.
    first = queries[-1]
    send(cluster, topic, 100, 30)
    run()
    lags = [lag.average * len(queue_offsets(progress)) for progress in first.recentProgress
            for lag in lag_of(json.loads(progress.json))]
    assert [round(lag) for lag in lags] == [40, 0]
    assert [len(batch) for batch in taken] == [60, 40, 30]
    assert Counter(key for batch in taken for key in batch) == expected(0, 130)


def test_table_is_sent_and_read_back(spark, cluster):
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


def test_stream_that_waits_for_more_messages_reads_them_together(spark, servers, send, tmp_path):
    topic = new_topic()
    send(servers.namesrv, topic, 0, 10)
    taken: list[int] = []
    stream = spark.readStream.format(FORMAT).options(nameServer=servers.namesrv, subscribe=topic, group="waiting",
                                                     startingOffsets="earliest", minOffsetsPerTrigger=15).load()

    def start():
        return (stream.writeStream.foreachBatch(lambda batch, _: taken.append(batch.count()))
                .option("checkpointLocation", str(tmp_path / "checkpoint")).start())

    def done() -> bool:
        # The first batch does not wait; the second does, for the fifteenth message.
        if len(taken) == 1 and more:
            count = more.pop(0)
            send(servers.namesrv, topic, sent[0], count)
            sent[0] += count
        return len(taken) == 2

    sent, more = [10], [14, 1]
    run_until(start, done)
    assert taken == [10, 15]


def test_stream_is_sent(spark, servers, send, tmp_path):
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


def test_headers_are_sent_and_read_and_the_option_topic_overrides_the_column(spark, servers):
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
    ({"nameServer": "127.0.0.1:1"}, "needs either subscribe or subscribePattern"),
    ({"nameServer": "127.0.0.1:1", "subscribe": "T"}, "name server 127.0.0.1:1: connect to"),
    ({"namServer": "127.0.0.1:1"}, "did you mean 'nameServer'"),
])
def test_invalid_options_for_reading_are_reported(spark, options, message, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(Exception, match=message):
        spark.read.format(FORMAT).options(**options).load().count()


@pytest.mark.parametrize("columns, options, message", [
    ("1 as body", {}, "column body is int, it must be string or binary"),
    ("'x' as body, 'y' as colour", {}, "column 'colour' can't be sent"),
    ("'x' as tags", {}, "needs a column body or value"),
    ("'x' as body", {"idempotent": "true"}, "idempotent needs a column key or keys"),
    ("'x' as body, map('a', 'b') as properties, array() as headers", {}, "one of the columns properties and headers"),
    ("'x' as body, array('a') as headers", {}, "column headers is array<string>, it must be array<struct<key"),
    ("'x' as body", {"rocketmq.secretKey": "s"}, "needs both rocketmq.accessKey and rocketmq.secretKey"),
    ("'x' as body", {"topic": ""}, "needs a column topic"),
])
def test_tables_that_cannot_be_sent_are_reported(spark, columns, options, message):
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
def test_rows_that_cannot_be_sent_are_reported(spark, servers, columns, message):
    frame = spark.sql(f"select 'x' as body, {columns}").repartition(1)
    if "topic" not in columns:
        frame = frame.selectExpr("*", "'T' as topic")
    with pytest.raises(Exception, match=f"rocketmq: row 1 of partition 0.*, {message}"):
        frame.write.format(FORMAT).mode("append").options(nameServer=servers.namesrv).save()


def test_table_that_was_read_is_sent_on_without_properties_added_by_brokers(spark, servers, send):
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


def test_new_queue_is_read_from_its_start_within_the_limit():
    cluster = FakeCluster("A", "B")
    cluster.send("A", 5)
    cluster.send("B", 70)
    query = FakeQuery(cluster)
    query.offset = json.dumps({"version": 1, "queues": {"A": {"b": {"0": 5}}}})
    query.reader.prepareForTriggerAvailableNow()
    cluster.send("B", 1)
    assert [[message.queue_offset for message in query.batch(40)] for _ in range(3)] == [
        list(range(40)), list(range(40, 70)), []]


def test_deleted_offsets_are_data_loss(spark, servers, send):
    topic = new_topic()
    send(servers.namesrv, topic, 0, 20)
    for broker in servers.brokers.values():
        for queue in broker.message_store.consume_queue_table.get(topic, {}).values():
            # As if the log had been cleaned; in bytes: one unit.
            queue.min_logic_offset = 20
    # A route update between two sends leaves the topic on one broker.
    begin = {topic: {name: {str(queue): 0 for queue in range(4)} for name, broker in servers.brokers.items()
                     if topic in broker.topic_config_manager.topic_config_table}}
    options = {"nameServer": servers.namesrv, "subscribe": topic, "startingOffsets": json.dumps(begin)}
    with pytest.raises(Exception, match="offsets 0 to 1 are gone, the queue begins at 1"):
        spark.read.format(FORMAT).options(**options).load().count()
    left = spark.read.format(FORMAT).options(**options, failOnDataLoss="false").load().count()
    assert 10 <= left < 20


# Source and sink at a cluster that accepts only signed requests (ACL), only over TLS, and requires a client
# certificate.

SECURED_FORMAT, PASSWORD, SECRET = "rocketmq", "a password", "pipelineSecret"
ACCOUNTS = f"""\
accounts:
- accessKey: adminKey
  secretKey: adminSecret
  admin: true
- accessKey: pipelineKey
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms:
  - Denied=DENY
  groupPerms:
  - deniedGroup=DENY
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", params=["rmqha", pytest.param("java", marks=pytest.mark.java)])
def secured(request, authority, module_nodes, tmp_path_factory):
    """Return the options for such a cluster: a name server and a broker of one kind."""
    folder = tmp_path_factory.mktemp(f"secured-{request.param}")
    server, client = authority.sign(f"server-{request.param}"), authority.sign(f"client-{request.param}")
    key = encrypted(client.key, PASSWORD)
    file = write_properties(folder / "tls.properties", {
        "tls.test.mode.enable": "false", "tls.server.need.client.auth": "require", "tls.server.authClient": "true",
        "tls.server.certPath": server.certificate, "tls.server.keyPath": encrypted(server.key, PASSWORD, OLD_SCHEME),
        "tls.server.keyPassword": PASSWORD, "tls.server.trustCertPath": authority.certificate,
        "tls.client.certPath": server.certificate, "tls.client.keyPath": encrypted(server.key, PASSWORD, OLD_SCHEME),
        "tls.client.keyPassword": PASSWORD, "tls.client.authServer": "true",
        "tls.client.trustCertPath": authority.certificate})
    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
    if request.param == "java":
        shutil.copy(real_rocketmq.jars().parent / "home" / "conf" / "logback_broker.xml", home / "conf")
    with pytest.MonkeyPatch.context() as patch:  # only for the servers
        for name in ("JAVA_OPT", "JAVA_TOOL_OPTIONS"):
            patch.setenv(name, f"-Dtls.server.mode=enforcing -Dtls.enable=true -Dtls.config.file={file}")
        namesrv = NamesrvNode(request.param, folder / "namesrv")
        broker = BrokerNode(request.param, folder / "broker", namesrv.address, aclEnable="true")
        broker._env["ROCKETMQ_HOME"] = str(home)
    for node in (namesrv, broker):
        module_nodes.append(node)
        node.start()
    given = {"nameServer": namesrv.address, "rocketmq.accessKey": "pipelineKey", "rocketmq.secretKey": SECRET,
            "rocketmq.tls.client.trustCertPath": str(authority.certificate),
            "rocketmq.tls.client.certPath": str(client.certificate), "rocketmq.tls.client.keyPath": str(key),
            "rocketmq.tls.client.keyPassword": PASSWORD}
    with ClusterQueues(Options({**given, "subscribe": "First"}, READ_OPTIONS, SECURED_FORMAT)) as queues:
        wait_until(lambda: _knows_a_broker(queues), 60_000, "a broker, and a TLS connection in three seconds")
    return given


def _knows_a_broker(queues: ClusterQueues) -> bool:
    try:
        return bool(queues.consumer.api.get_broker_cluster_info(60_000).brokerAddrTable)
    # A JVM's first connections take their time on a busy machine.
    except RemotingException:
        return False


def _said(error) -> str:
    """Return the line that the data source contributed to an exception of Spark."""
    lines = [line for line in str(error).splitlines() if "PipelineError: " in line]
    assert lines, str(error)
    assert SECRET not in str(error) and "wrongSecret" not in str(error) and PASSWORD not in str(error)
    return lines[0].partition("PipelineError: ")[2]


def test_source_and_sink_work_as_tables_and_as_streams(spark, secured, tmp_path):
    rows = [(f"k{number}", f"body {number}" * 50) for number in range(60)]
    frame = spark.createDataFrame(rows, "keys string, body string")
    # The fast port requires all of this, too.
    vip = {"rocketmq.vipChannelEnabled": "true"}
    frame.write.format(SECURED_FORMAT).mode("append").options(**secured, **vip, topic="First").save()
    stream = spark.readStream.format(SECURED_FORMAT).options(**secured, subscribe="First", startingOffsets="earliest",
                                                     maxOffsetsPerTrigger=40).load()
    run_to_end(stream.select("body", "keys").writeStream.format(SECURED_FORMAT).options(**secured, topic="Second")
               .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start)
    table = spark.read.format(SECURED_FORMAT).options(**secured, subscribe="First,Second").load()
    found = Counter((row.topic, row.keys, row.body.decode()) for row in table.collect())
    assert found == Counter((topic, *row) for topic in ("First", "Second") for row in rows)


def test_wrong_secret_is_reported_by_source_and_sink(spark, secured, tmp_path):
    wanted = (r"broker 127\.0\.0\.1:\d+: access control says: Check signature failed for accessKey=pipelineKey "
              r"\(rocketmq\.accessKey is 'pipelineKey'\)$")
    options = {**secured, "rocketmq.secretKey": "wrongSecret"}
    frame = spark.createDataFrame([("k", "body")], "keys string, body string")
    frame.write.format(SECURED_FORMAT).mode("append").options(**secured, topic="Third").save()

    def stream_into(name, source, sink):
        stream = spark.readStream.format(SECURED_FORMAT).options(**source, subscribe="Third",
                                                                 startingOffsets="earliest").load()
        run_to_end(stream.select("body", "keys").writeStream.format(SECURED_FORMAT).options(**sink, topic="Third")
                   .option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start)

    for run in (lambda: spark.read.format(SECURED_FORMAT).options(**options, subscribe="Third").load().count(),
                lambda: frame.write.format(SECURED_FORMAT).mode("append").options(**options, topic="Third").save(),
                lambda: stream_into("source", options, secured), lambda: stream_into("sink", secured, options)):
        with pytest.raises(Exception) as raised:
            run()
        said = _said(raised.value)
        assert re.search(wanted, said), said


def test_stores_of_a_secured_cluster_are_found(secured):
    client = {name: value for name, value in secured.items() if name != "nameServer"}
    admin = {**client, "rocketmq.accessKey": "adminKey", "rocketmq.secretKey": "adminSecret"}
    found = find_stores(secured["nameServer"], client=admin)
    assert found.pairs == [] and found.notes[0].startswith("broker-a has no slave"), found
    with pytest.raises(PipelineError, match=r"^broker \S+: access control says: Check signature failed"):
        find_stores(secured["nameServer"], client={**admin, "rocketmq.secretKey": "wrongSecret"})


def _without(options, *words):
    return {name: value for name, value in options.items() if not any(word in name for word in words)}


@pytest.mark.parametrize("change, said", [
    (lambda options: _without(options, "client.certPath", "client.key"),
     r"name server .* \(over TLS; if it requires a certificate, set rocketmq.tls.client.certPath and .keyPath\)$"),
    (lambda options: _without(options, "tls"), r"name server .* \(if it requires TLS, set rocketmq.tls.enable=true\)$"),
    (lambda options: {**_without(options, "tls"), "rocketmq.tls.enable": "true"}, r"name server .* \(over TLS; "),
    (lambda options: _without(options, "accessKey", "secretKey"),
     r"access control says: No accessKey is configured \(set rocketmq.accessKey and rocketmq.secretKey\)$"),
    (lambda options: {**options, "subscribe": "Unknown"}, "No topic route info in name server for the topic: Unknown$"),
    (lambda options: {**options, "group": "deniedGroup"},
     r"access control says: No default permission for group:deniedGroup"),
])
def test_missing_settings_are_reported(secured, change, said):
    given = {"subscribe": "Third", **secured}
    cluster = cluster_client(Options(given, READ_OPTIONS, SECURED_FORMAT))
    with cluster.producer("test") as producer:
        producer.send(Message("Third", b"one"))
    with pytest.raises(PipelineError, match=said), \
            ClusterQueues(Options(change(given), READ_OPTIONS, SECURED_FORMAT)) as queues:
        queue, bounds = next(item for item in queues.bounds().items() if item[1].end)
        queues.first_at(queue, 0, bounds)


# The settings of TLS on their way to a task, which can use the passwords without showing them.


def test_passwords_reach_a_task_and_stay_hidden_there():
    given = {"rocketmq.tls.client.keyPassword": "of-the-client"}
    options = client_options(Options(given, CLIENT_OPTIONS, "format rocketmq"))
    taken = pickle.loads(pickle.dumps(options))
    assert taken == options and isinstance(taken.tls.tls_client_key_password, Secret)
    assert taken.tls.tls_client_key_password.reveal() == "of-the-client"
    assert "of-the-client" not in f"{taken} {taken.tls} {taken.tls.__dict__}"
