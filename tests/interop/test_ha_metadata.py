"""What a slave of rmqha copies from a Java master beside the log, and a slave of that slave."""
import json
import re

import pytest

from tests.interop.test_replication_directions import wait_until_equal
from tests.support.java_driver import JavaDriver, Workload
from tests.support.nodes import BrokerNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

TOPIC, GROUP = "Copied", "copied-group"
COUNT = 200


def table(broker: BrokerNode, file: str, key: str) -> dict:
    """A table of one of the broker's config files; empty while there is none."""
    text = broker.config_text(file)
    if not text:
        return {}
    # fastjson writes numbers as keys without quotes
    return json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))[key]


def offsets(broker: BrokerNode) -> dict:
    """The group's consumer offsets by queue."""
    return table(broker, "consumerOffset.json", "offsetTable").get(f"{TOPIC}@{GROUP}", {})


@in_long
def test_slave_copies_a_java_masters_tables_and_offsets_never_go_back(make_namesrv, make_broker,
                                                                      java_driver: JavaDriver):
    namesrv = make_namesrv("rmqha").address
    master = make_broker("java", namesrv, "master", brokerRole="ASYNC_MASTER", flushConsumerOffsetInterval=500)
    slave = make_broker("rmqha", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address)
    chained = make_broker("rmqha", None, "chained", brokerRole="SLAVE", brokerId=2, haMasterAddress=slave.ha_address)
    java_driver.create_topic(namesrv, master.address, TOPIC)
    java_driver.admin("updateSubGroup", "-n", namesrv, "-b", master.address, "-g", GROUP, "-r", "7")
    master.wait_for_slave()
    load = Workload(TOPIC, COUNT, [100])
    assert all(one.ok for one in java_driver.produce(namesrv, load))
    assert java_driver.produce(namesrv, Workload(TOPIC, 1, [10], first=COUNT), delayLevel=1)[0].ok
    report = java_driver.consume(namesrv, load, GROUP)
    assert report["distinct"] == COUNT

    wait_until(lambda: TOPIC in table(slave, "topics.json", "topicConfigTable"), 60_000, "the topic on the slave")
    assert table(slave, "topics.json", "topicConfigTable")[TOPIC]["readQueueNums"] == 4
    groups = "subscriptionGroupTable"
    # a consumer's heartbeat makes the group on the slave, with defaults; the master's settings follow within 10 s
    wait_until(lambda: table(slave, "subscriptionGroup.json", groups).get(GROUP, {}).get("retryMaxTimes") == 7, 60_000,
               "the group on the slave as on the master")
    wait_until(lambda: sum(offsets(slave).values()) >= COUNT, 60_000, "the group's offsets on the slave")
    wait_until(lambda: sum(table(slave, "delayOffset.json", "offsetTable").values()) >= 1, 60_000,
               "the delay offsets on the slave")
    wait_until_equal(master, slave)
    wait_until_equal(slave, chained)

    known = offsets(slave)
    master.kill()
    for file in ("consumerOffset.json", "consumerOffset.json.bak"):
        (master.store / "config" / file).unlink(missing_ok=True)
    master.start()  # knows nothing of the group any more
    java_driver.create_topic(namesrv, master.address, "Later")
    wait_until(lambda: "Later" in table(slave, "topics.json", "topicConfigTable"), 60_000, "a topic made since")
    assert offsets(slave) == known
