"""Source and sink at a cluster that takes signed requests only (ACL), over TLS only, from who shows a certificate."""
import re
import shutil
from collections import Counter

import pytest

from rmqha.common.message.message import Message
from rmqha.pipeline.cluster.cluster_client import cluster_client, find_stores
from rmqha.pipeline.cluster.cluster_queues import ClusterQueues
from rmqha.pipeline.cluster.cluster_source import READ_OPTIONS
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.remoting.exception import RemotingException
from tests.pipeline.queries import run_to_end
from tests.support import real_rocketmq
from tests.support.certificates import OLD_SCHEME, Authority, encrypted
from tests.support.nodes import BrokerNode, NamesrvNode, write_properties
from tests.support.wait import wait_until

FORMAT, PASSWORD, SECRET = "rocketmq", "a password", "pipelineSecret"
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
    """Options for such a cluster: a name server and a broker of one kind."""
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
    with pytest.MonkeyPatch.context() as patch:  # of the servers only
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
    with ClusterQueues(Options({**given, "subscribe": "First"}, READ_OPTIONS, FORMAT)) as queues:
        wait_until(lambda: _knows_a_broker(queues), 60_000, "a broker, and a TLS connection in three seconds")
    return given


def _knows_a_broker(queues: ClusterQueues) -> bool:
    try:
        return bool(queues.consumer.api.get_broker_cluster_info(60_000).brokerAddrTable)
    except RemotingException:  # a JVM's first connections take their time on a busy machine
        return False


def _said(error) -> str:
    """The line of an exception that Spark raises in which a data source has its say."""
    lines = [line for line in str(error).splitlines() if "PipelineError: " in line]
    assert lines, str(error)
    assert SECRET not in str(error) and "wrongSecret" not in str(error) and PASSWORD not in str(error)
    return lines[0].partition("PipelineError: ")[2]


def test_source_and_sink_work_as_tables_and_as_streams(spark, secured, tmp_path):
    rows = [(f"k{number}", f"body {number}" * 50) for number in range(60)]
    frame = spark.createDataFrame(rows, "keys string, body string")
    vip = {"rocketmq.vipChannelEnabled": "true"}  # the fast port asks for all this too
    frame.write.format(FORMAT).mode("append").options(**secured, **vip, topic="First").save()
    stream = spark.readStream.format(FORMAT).options(**secured, subscribe="First", startingOffsets="earliest",
                                                     maxOffsetsPerTrigger=40).load()
    run_to_end(stream.select("body", "keys").writeStream.format(FORMAT).options(**secured, topic="Second")
               .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start)
    table = spark.read.format(FORMAT).options(**secured, subscribe="First,Second").load()
    found = Counter((row.topic, row.keys, row.body.decode()) for row in table.collect())
    assert found == Counter((topic, *row) for topic in ("First", "Second") for row in rows)


def test_a_wrong_secret_is_told_by_all_four(spark, secured, tmp_path):
    wanted = (r"broker 127\.0\.0\.1:\d+: access control says: Check signature failed for accessKey=pipelineKey "
              r"\(rocketmq\.accessKey is 'pipelineKey'\)$")
    options = {**secured, "rocketmq.secretKey": "wrongSecret"}
    frame = spark.createDataFrame([("k", "body")], "keys string, body string")
    frame.write.format(FORMAT).mode("append").options(**secured, topic="Third").save()

    def stream_into(name, source, sink):
        stream = spark.readStream.format(FORMAT).options(**source, subscribe="Third", startingOffsets="earliest").load()
        run_to_end(stream.select("body", "keys").writeStream.format(FORMAT).options(**sink, topic="Third")
                   .option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start)

    for run in (lambda: spark.read.format(FORMAT).options(**options, subscribe="Third").load().count(),
                lambda: frame.write.format(FORMAT).mode("append").options(**options, topic="Third").save(),
                lambda: stream_into("source", options, secured), lambda: stream_into("sink", secured, options)):
        with pytest.raises(Exception) as raised:
            run()
        said = _said(raised.value)
        assert re.search(wanted, said), said


def test_the_stores_of_a_secured_cluster_are_found(secured):
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
     r"name server .* \(over TLS; if it wants a certificate, set rocketmq.tls.client.certPath and .keyPath\)$"),
    (lambda options: _without(options, "tls"), r"name server .* \(if it wants TLS, set rocketmq.tls.enable=true\)$"),
    (lambda options: {**_without(options, "tls"), "rocketmq.tls.enable": "true"}, r"name server .* \(over TLS; "),
    (lambda options: _without(options, "accessKey", "secretKey"),
     r"access control says: No accessKey is configured \(set rocketmq.accessKey and rocketmq.secretKey\)$"),
    (lambda options: {**options, "subscribe": "Unknown"}, "No topic route info in name server for the topic: Unknown$"),
    (lambda options: {**options, "group": "deniedGroup"},
     r"access control says: No default permission for group:deniedGroup"),
])
def test_what_is_missing_is_told(secured, change, said):
    given = {"subscribe": "Third", **secured}
    cluster = cluster_client(Options(given, READ_OPTIONS, FORMAT))
    with cluster.producer("test") as producer:
        producer.send(Message("Third", b"one"))
    with pytest.raises(PipelineError, match=said), \
            ClusterQueues(Options(change(given), READ_OPTIONS, FORMAT)) as queues:
        queue, bounds = next(item for item in queues.bounds().items() if item[1].end)
        queues.first_at(queue, 0, bounds)
