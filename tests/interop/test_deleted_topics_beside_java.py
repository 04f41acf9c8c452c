"""A topic deleted and made again under an rmqha master: a Java slave beside it, and a Java broker on the same store."""
import json

import pytest

from tests.interop.test_ha_metadata import table
from tests.support import store_compare
from tests.support.java_driver import Workload, assert_all_read
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

TOPIC = "MadeAgain"
COUNT = 200


def test_java_follows_and_takes_over_a_store_with_a_deleted_topic(make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv("java").address
    master = make_broker("rmqha", namesrv, "master", brokerRole="ASYNC_MASTER")
    slave = make_broker("java", namesrv, "slave", shared_jvm=True, brokerRole="SLAVE", brokerId=1,
                        haMasterAddress=master.ha_address)
    master.wait_for_slave()
    old, new = Workload(TOPIC, COUNT, [100]), Workload(TOPIC, COUNT, [200], first=COUNT)
    java_driver.create_topic(namesrv, master.address, TOPIC)
    assert all(one.ok for one in java_driver.produce(namesrv, old))
    told = java_driver.admin("deleteTopic", "-n", namesrv, "-c", "InteropCluster", "-t", TOPIC)
    assert "success" in told, told
    java_driver.create_topic(namesrv, master.address, TOPIC)
    sent = java_driver.produce(namesrv, new)
    assert all(one.ok for one in sent)

    # the slave reads a table of topics that has one more key
    java_driver.create_topic(namesrv, master.address, "Later")
    wait_until(lambda: "Later" in table(slave, "topics.json", "topicConfigTable"), 60_000, "the slave's topics")
    wait_until(lambda: store_compare.log_end(slave.commit_log) == store_compare.log_end(master.commit_log), 60_000,
               "the slave's log")

    master.stop()
    assert TOPIC in json.loads((master.store / "config" / "deletedTopics.json").read_text())["deletedTopics"]
    assert (master.store / "checkpoint.positions").exists()
    master.become("java").start()
    assert_all_read(java_driver.consume(namesrv, new, "after-group"), new, sent)
