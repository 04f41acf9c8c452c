"""What `rmqha top` and `rmqha console` show of a cluster of the original, and of a mixed one."""
import json

import pytest
from click.testing import CliRunner

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.view.snapshot import Collector
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


@pytest.mark.parametrize("slave_kind", ["java", "rmqha"])
def test_a_master_of_java_and_its_slave_are_seen(real_namesrv, make_broker, slave_kind):
    master = make_broker("java", real_namesrv.address, "master", shared_jvm=True)
    slave = make_broker(slave_kind, real_namesrv.address, "slave", shared_jvm=True, brokerId=1, brokerRole="SLAVE",
                        haMasterAddress=master.ha_address)
    names = real_namesrv.address
    with DefaultMQProducer("makers", names) as producer, Collector(names, 5_000) as collector:
        wait_until(lambda: len(collector.collect().brokers) == 2, what="both brokers")

        def follows():
            producer.send(Message("TopicTest", b"x" * 500))
            now = collector.collect()
            return [(each.address, each.status, each.in_sync) for each in now.replication[0].slaves] == [
                (slave.address, "OK", True)]
        wait_until(follows, what="a slave that follows")
        result = CliRunner().invoke(rmqha, ["top", "-n", names, "--once", "-i", "1", "-o", "json"])
    assert result.exit_code == 0, result.output
    told = {broker["address"]: broker for broker in json.loads(result.output)["brokers"]}
    assert told[master.address]["role"] == "ASYNC_MASTER" and told[slave.address]["role"] == "SLAVE"
    assert told[master.address]["put_total"] > 0 and told[master.address]["max_offset"] > 500
    assert told[master.address]["in_msgs_per_s"] == 0.0 and 0 < told[master.address]["disk_used"] < 1
