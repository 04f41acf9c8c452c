"""Replication between a plain broker of RocketMQ 5.1.4 (DefaultHAService) and one of rmqha, in both directions."""
import shutil
from collections import Counter

import pytest

from tests.interop.test_replication_directions import prime, wait_until_equal
from tests.support import real_rocketmq, store_compare
from tests.support.java_driver import JavaDriver, Workload
from tests.support.load import small_sizes
from tests.support.real_rocketmq import VERSION_5
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

TOPIC = "Five"
COUNT = 6_000
SEGMENTS = 3  # at least


@pytest.fixture(autouse=True)
def jars_of_5():
    if shutil.which("mvn") is None and not real_rocketmq.has_jars_of(VERSION_5):
        pytest.skip(f"not installed: mvn, to fetch {VERSION_5}")


@pytest.mark.parametrize("master_kind, slave_kind, keys", [
    # else 5.1.4 waits for no slave
    ("java5", "rmqha", {"inSyncReplicas": 2, "totalReplicas": 2}),
    ("rmqha", "java5", {"inSyncReplicas": 2, "totalReplicas": 2})])
def test_slave_holds_and_acknowledges_what_the_master_wrote(master_kind, slave_kind, keys, make_namesrv, make_broker,
                                                            java_driver: JavaDriver):
    namesrv = make_namesrv("rmqha").address
    master = make_broker(master_kind, namesrv, "master", shared_jvm=True, brokerRole="SYNC_MASTER",
                         slaveTimeout=10_000, **keys)
    # a slave of 5.1.4 loses haMasterAddress before its client exists, and gets the address from the name server
    slave = make_broker(slave_kind, namesrv, "slave", brokerRole="SLAVE", brokerId=1,
                        haHandshakeEnable="true" if slave_kind == "rmqha" else None)
    master.wait_for_slave()
    java_driver.create_topic(namesrv, master.address, TOPIC)
    primers = prime(java_driver, namesrv, master, slave)
    load = Workload(TOPIC, COUNT, small_sizes(COUNT, seed=3))
    statuses = Counter(one.status for one in java_driver.produce(namesrv, load))
    assert statuses == {"SEND_OK": COUNT}
    assert wait_until_equal(master, slave) == primers + COUNT
    assert len(store_compare.segments(slave.commit_log)) >= SEGMENTS
    slave.kill()
    assert not java_driver.produce(namesrv, load.part(COUNT, 1))[0].ok
    slave.start()
    again = Workload(TOPIC, 1, [100])
    wait_until(lambda: java_driver.produce(namesrv, again)[0].ok, 60_000, "the restarted slave acknowledges")
    wait_until_equal(master, slave)
