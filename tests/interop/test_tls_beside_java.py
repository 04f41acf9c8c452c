"""TLS between rmqha and the real RocketMQ in both directions: enforced, with certificates required of both sides.

Name servers and brokers of both kinds form one cluster, in which each broker registers with both name servers. TLS is
enforced on every server that starts in this module.
"""
import socket
import ssl
import subprocess
import sys
from types import SimpleNamespace

import pytest

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from tests.support.java_driver import JavaDriver, Workload, assert_all_read
from tests.support.nodes import BrokerNode, NamesrvNode, write_properties
from tests.support.programs import OLD_SCHEME, Authority, encrypted
from tests.support.raw_remoting import GET_BROKER_CLUSTER_INFO, RawClient, frame, header
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

PASSWORD = "a secret"
KINDS = ("rmqha", "java")
BROKER_OF = {"rmqha": "broker-ours", "java": "broker-java"}
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def enforced(authority, tmp_path_factory):
    """Make all servers that start now, and all clients in this process, use only TLS and present a certificate."""
    server, client = authority.sign("server"), authority.sign("client")
    file = write_properties(tmp_path_factory.mktemp("tls") / "tls.properties", {
        "tls.test.mode.enable": "false", "tls.server.need.client.auth": "require", "tls.server.authClient": "true",
        "tls.server.certPath": server.certificate, "tls.server.keyPath": encrypted(server.key, PASSWORD, OLD_SCHEME),
        "tls.server.keyPassword": PASSWORD, "tls.server.trustCertPath": authority.certificate,
        "tls.client.certPath": client.certificate, "tls.client.keyPath": encrypted(client.key, PASSWORD, OLD_SCHEME),
        "tls.client.keyPassword": PASSWORD, "tls.client.authServer": "true",
        "tls.client.trustCertPath": authority.certificate})
    options = f"-Dtls.server.mode=enforcing -Dtls.enable=true -Dtls.config.file={file}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_OPT", options)  # rmqha's
        patch.setenv("JAVA_TOOL_OPTIONS", options)  # every JVM's
        yield


@pytest.fixture(scope="module")
def cluster(enforced, module_nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls-cluster")
    namesrvs = {kind: NamesrvNode(kind, folder / f"namesrv-{kind}") for kind in KINDS}
    module_nodes.extend(namesrvs.values())
    for node in namesrvs.values():
        node.start()
    both = ";".join(node.address for node in namesrvs.values())
    brokers = {kind: BrokerNode(kind, folder / f"broker-{kind}", both, brokerName=BROKER_OF[kind]) for kind in KINDS}
    module_nodes.extend(brokers.values())
    for node in brokers.values():
        node.start()
    return SimpleNamespace(namesrvs=namesrvs, brokers=brokers)


@pytest.fixture(scope="module")
def driver(enforced, tmp_path_factory):
    """Yield the Java client and mqadmin with TLS."""
    running = JavaDriver(tmp_path_factory.mktemp("tls-driver")).start()
    yield running
    running.shutdown()


@pytest.mark.parametrize("kind", KINDS)
def test_brokers_of_both_kinds_register_with_the_name_server(cluster, driver, kind):
    namesrv = cluster.namesrvs[kind].address

    def registered() -> set[str]:
        return {name for name in BROKER_OF.values() if name in driver.admin("clusterList", "-n", namesrv)}

    wait_until(lambda: registered() == set(BROKER_OF.values()), WAIT_MS, f"both brokers at the {kind} name server")


def test_java_client_sends_to_brokers_of_both_kinds_and_consumes(cluster, driver):
    load = Workload("JavaTls", 240, [10, 1000, 70_000], seed=11)
    # with the name server of the other kind
    for kind, other in zip(KINDS, reversed(KINDS)):
        driver.create_topic(cluster.namesrvs[other].address, cluster.brokers[kind].address, load.topic)
    namesrv = cluster.namesrvs["rmqha"].address
    ask = ("topicRoute", "-n", namesrv, "-t", load.topic)
    wait_until(lambda: driver.admin(*ask).count("writeQueueNums") == 2, WAIT_MS, "the topic at both brokers")
    sent = driver.produce(namesrv, load)
    assert [one.status for one in sent if not one.ok] == []
    assert {one.broker_name for one in sent} == set(BROKER_OF.values())
    assert_all_read(driver.consume(namesrv, load, "tls-group"), load, sent)


@pytest.mark.parametrize("broker", KINDS)
def test_rmqha_client_sends_and_pulls(cluster, driver, broker):
    namesrv = cluster.namesrvs["java" if broker == "rmqha" else "rmqha"].address
    topic = f"RmqhaTls-{broker}"
    driver.create_topic(namesrv, cluster.brokers[broker].address, topic, queues=1)
    bodies = [b"%d" % number * 3000 for number in range(20)]
    producer = DefaultMQProducer("tls-producer", namesrv)
    # a retry would send a second message
    producer.send_msg_timeout = WAIT_MS
    with producer:
        assert {producer.send(Message(topic, body)).send_status for body in bodies} == {SendStatus.SEND_OK}
    with DefaultMQPullConsumer("tls-puller", namesrv) as consumer:
        queue, = consumer.fetch_subscribe_message_queues(topic)
        read: list[bytes] = []

        def pull() -> bool:
            read.extend(found.body for found in consumer.pull(queue, "*", len(read), 32).msg_found_list or [])
            return len(read) >= len(bodies)

        wait_until(pull, WAIT_MS, "all messages")
    assert read == bodies


@pytest.mark.parametrize("kind", KINDS)
def test_mqadmin_works_over_tls(cluster, kind):
    command = [sys.executable, "-m", "rmqha.tools.command.mq_admin_startup", "clusterList", "-n",
               cluster.namesrvs[kind].address]

    def listed() -> str:
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False).stdout

    wait_until(lambda: all(name in listed() for name in BROKER_OF.values()), WAIT_MS, f"both brokers, by {kind}")


def test_plain_connections_and_missing_certificates_are_refused(cluster, authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority.certificate)
    for node in (*cluster.namesrvs.values(), *cluster.brokers.values()):
        with RawClient(node.address) as client:
            client.send(frame(header(GET_BROKER_CLUSTER_INFO)))
            assert client.is_closed_by_peer(), node.name
        with socket.create_connection(("127.0.0.1", node.port), 60) as plain, pytest.raises(OSError):
            # TLS 1.3: the error arrives with the first answer
            with context.wrap_socket(plain) as secured:
                secured.recv(1)
                raise AssertionError(node.name)
