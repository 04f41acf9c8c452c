"""A new slave takes all that a Java master holds, from its first file on; and a new Java slave from rmqha's."""
import pytest

from tests.support import store_compare
from tests.support.bodies import small_sizes
from tests.support.java_driver import JavaDriver, Workload, assert_all_read
from tests.support.nodes import MIB, BrokerNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

TOPIC = "History"
COUNT = 9_000
SEGMENTS = 4  # at the least


@pytest.fixture
def filled(make_namesrv, make_broker, java_driver: JavaDriver):
    """filled(kind, **properties) -> (name server's address, a master with SEGMENTS files, what it was sent)."""
    def fill(kind: str, **properties: object) -> tuple[str, BrokerNode, Workload]:
        namesrv = make_namesrv("rmqha").address
        master = make_broker(kind, namesrv, "master", brokerRole="ASYNC_MASTER", **properties)
        java_driver.create_topic(namesrv, master.address, TOPIC)
        load = Workload(TOPIC, COUNT, small_sizes(COUNT, seed=5))
        assert all(one.ok for one in java_driver.produce(namesrv, load))
        assert len(store_compare.segments(master.commit_log)) >= SEGMENTS
        return namesrv, master, load
    return fill


def holds_the_same(master: BrokerNode, slave: BrokerNode, first: int) -> None:
    """The slave's log begins in the master's first file and is the same, byte for byte, up to the end."""
    end = store_compare.log_end(master.commit_log)
    wait_until(lambda: first in store_compare.segments(slave.commit_log), 60_000, f"the slave's file {first}")
    wait_until(lambda: store_compare.log_end(slave.commit_log) >= end, 60_000, f"the slave's log at {end}")
    assert list(store_compare.segments(slave.commit_log))[0] == first
    assert store_compare.compare_commit_logs(master.commit_log, slave.commit_log) == (first, end)
    for start, file in store_compare.segments(master.commit_log).items():
        size = min(end - start, MIB)
        if size > 0:
            assert file.read_bytes()[:size] == store_compare.segments(slave.commit_log)[start].read_bytes()[:size]


def test_new_slave_holds_the_whole_log_of_a_java_master(filled, make_broker, java_driver):
    namesrv, master, load = filled("java", shared_jvm=True)
    # the question for a handshake, a report of -1, means nothing to a Java master
    slave = make_broker("rmqha", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address,
                        haSyncFromFirstFile="true", haHandshakeEnable="true")
    holds_the_same(master, slave, 0)
    more = load.part(COUNT, 500)
    assert all(one.ok for one in java_driver.produce(namesrv, more))
    holds_the_same(master, slave, 0)
    count = store_compare.wait_dispatched(master.store)
    wait_until(lambda: store_compare.unit_count(slave.store) == count, 60_000, f"{count} units on the slave")
    assert store_compare.compare_consume_queues(master.store, slave.store) == count
    wait_until(lambda: f'"{TOPIC}"' in slave.config_text("topics.json"), 60_000, "the topic on the slave")
    both = load.part(0, COUNT + 500)
    assert_all_read(java_driver.pull(namesrv, both, broker_id=1), both)


@in_long
def test_new_slave_of_a_java_master_whose_first_files_are_gone_begins_where_it_begins(filled, make_broker):
    namesrv, master, _load = filled("java")
    master.kill()
    for start in (0, MIB):
        store_compare.segments(master.commit_log)[start].unlink()
    master.start()
    slave = make_broker("rmqha", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address,
                        haSyncFromFirstFile="true")
    holds_the_same(master, slave, 2 * MIB)


@in_long
def test_new_java_slave_holds_the_whole_log_of_a_master_that_gives_it(filled, make_broker):
    namesrv, master, _load = filled("rmqha", haSyncFromFirstFile="true")
    slave = make_broker("java", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address)
    holds_the_same(master, slave, 0)
