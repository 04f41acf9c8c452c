"""TLS with the default configuration: servers accept plain and TLS connections, with self-signed certificates."""
import pytest

from tests.support.java_driver import Workload, assert_all_read

pytestmark = pytest.mark.java


def test_java_client_sends_with_tls_and_reads_without(java_driver, rmqha_namesrv, rmqha_broker):
    namesrv, broker = rmqha_namesrv, rmqha_broker(rmqha_namesrv.address)
    load = Workload("TlsAndPlain", 60, [100, 40_000], seed=12)
    java_driver.create_topic(namesrv.address, broker.address, load.topic)
    sent = java_driver.produce(namesrv.address, load, tls=True)
    assert [one.status for one in sent if not one.ok] == []
    assert_all_read(java_driver.consume(namesrv.address, load, "group-plain"), load, sent)
    for node in (namesrv, broker):
        logs = node.output_file.parent.rglob("*.log")
        assert any("SSLContext created for server" in file.read_text("utf-8") for file in logs), node.name
