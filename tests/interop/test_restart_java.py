"""A broker that is killed and started again, and the Java clients that were connected to it."""
import pytest

from tests.support.java_driver import Workload
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

GET_CONSUMER_CONNECTION_LIST, CONSUMER_NOT_ONLINE = 203, 206
GROUP = "restart-group"
NEVER_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("expression", ["*", "TagA || TagB"])
def test_consumer_receives_before_its_next_heartbeat(tmp_path, java_driver, expression):
    """Its pulls fail at once, because the connection is reset, and the restarted broker serves the next ones."""
    namesrv = NamesrvNode("rmqha", tmp_path / "namesrv").start()
    broker = BrokerNode("rmqha", tmp_path / "broker", namesrv.address).start()
    try:
        with RawClient(broker.address) as client:
            client.create_topic("Restart", 4)
        load = Workload("Restart", 301, [100], tags=("TagA", "TagB"))
        java_driver.produce(namesrv.address, load.part(0, 200))
        job = java_driver.start_consume(namesrv.address, load, GROUP, until=301, expression=expression,
                                        heartbeatMs=NEVER_MS)
        job.wait_progress(200)
        wait_until(lambda: GROUP in broker.config_text("consumerSubscription.json"), 60_000, "the subscription saved")
        broker.kill()
        broker.start()
        java_driver.produce(namesrv.address, load.part(200, 100), timeoutMs=60_000)
        job.wait_progress(300)
        with RawClient(broker.address) as client:
            answer = client.request(GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP)
            assert answer.code == CONSUMER_NOT_ONLINE, answer
        java_driver.produce(namesrv.address, load.part(300, 1))
        report = job.result()
        assert (report["distinct"], report["bad"], report["missing"]) == (301, [], [])
    finally:
        broker.kill()
        namesrv.kill()
