"""Traces of a client whose keys and trusted certificates are settings of the client, not system properties."""
import pytest

from rmqha import ConsumeFromWhere, Message, Producer, PushConsumer
from rmqha.common.topics import RMQ_SYS_TRACE_TOPIC
from rmqha.remoting.tls_system_config import TlsSystemConfig
from rmqha.testing import EmbeddedRocketMQ
from tests.support.programs import Authority
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """The authority that the servers and their clients trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def mq(authority):
    """Servers that accept only clients with a certificate of the authority, which no system property names later."""
    server, broker = authority.sign("server"), authority.sign("broker")
    options = {"tls.test.mode.enable": "false", "tls.server.mode": "enforcing", "tls.server.need.client.auth":
               "require", "tls.server.authClient": "true", "tls.server.keyPath": server.key,
               "tls.server.certPath": server.certificate, "tls.server.trustCertPath": authority.certificate,
               "tls.enable": "true", "tls.client.keyPath": broker.key, "tls.client.certPath": broker.certificate}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_OPT", " ".join(f"-D{name}={value}" for name, value in options.items()))
        running = EmbeddedRocketMQ(config={"traceTopicEnable": "true"})
        running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def tls(authority):
    """A client's settings."""
    client = authority.sign("client")
    return {"use_tls": True, "tls": TlsSystemConfig(
        tls_test_mode_enable=False, tls_client_auth_server=True, tls_client_cert_path=str(client.certificate),
        tls_client_key_path=str(client.key), tls_client_trust_cert_path=str(authority.certificate))}


def traces(mq, kind):
    """Return the traces of one kind ("Pub", "SubBefore" ...) that are stored."""
    return [message for message in mq.messages(RMQ_SYS_TRACE_TOPIC) if message.body.decode().startswith(f"{kind}\x01")]


def test_trace_producer_uses_the_keys_of_its_client(mq, tls):
    mq.create_topic("orders")
    with Producer("shop", mq.namesrv_addr, enable_msg_trace=True, **tls) as producer:
        producer.send(Message("orders", b"17 apples"))
    assert len(traces(mq, "Pub")) == 1
    seen = []
    consumer = PushConsumer("billing", mq.namesrv_addr, seen.extend, enable_msg_trace=True,
                            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **tls)
    consumer.subscribe("orders")
    with consumer:
        wait_until(lambda: seen and traces(mq, "SubBefore"), 60_000, "the trace of the consumer")
    assert [message.body for message in seen] == [b"17 apples"]
