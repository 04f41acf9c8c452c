"""Master and slave of both kinds: the slave's log equals the master's, byte for byte."""
from collections import Counter

import pytest

from tests.support import store_compare
from tests.support.java_driver import JavaDriver, Workload, assert_all_read
from tests.support.load import small_sizes
from tests.support.mqadmin import pairs
from tests.support.nodes import BrokerNode
from tests.support.wait import wait_until

TOPIC = "Replicated"
COUNT = 20_000
# The slave is killed in the second.
FIRST_PART, SECOND_PART = 12_000, 4_000
SEGMENTS = 5  # at least
GONE = {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}


def wait_until_equal(master: BrokerNode, slave: BrokerNode) -> int:
    """Wait until the slave has dispatched the master's whole log; assert equal stores; return the number of units."""
    end = store_compare.log_end(master.commit_log)
    wait_until(lambda: store_compare.log_end(slave.commit_log) >= end, 60_000, f"the slave's log at {end}")
    assert store_compare.compare_commit_logs(master.commit_log, slave.commit_log) == (0, end)
    count = store_compare.wait_dispatched(master.store)
    wait_until(lambda: store_compare.unit_count(slave.store) == count, 60_000, f"{count} units on the slave")
    assert store_compare.compare_consume_queues(master.store, slave.store) == count
    return count


def prime(driver: JavaDriver, namesrv: str, master: BrokerNode, slave: BrokerNode) -> int:
    """Send to another topic until the slave has a message; return how many. An empty slave copies only the last file.

    A Java slave first reports its end a while after it has connected. Until then rmqha does not count it as a slave.
    """
    statuses: list[str] = []

    def acknowledged() -> bool:
        load = Workload("Primer", 1, [10], first=len(statuses))
        statuses.append(driver.produce(namesrv, load, threads=1)[0].status)
        return statuses[-1] == "SEND_OK"
    wait_until(acknowledged, 60_000, "the first message is acknowledged")
    assert set(statuses[:-1]) <= GONE
    assert wait_until_equal(master, slave) == len(statuses)
    return len(statuses)


def send_over_a_slave_kill(driver: JavaDriver, namesrv: str, load: Workload, master: BrokerNode,
                           slave: BrokerNode) -> Counter:
    """Send `load`, kill the slave in between, and start it again at the end; return the count of each status.

    A Java slave that was killed may have a torn record, which its own recovery keeps: it is erased.
    """
    job = driver.start_produce(namesrv, load, progressEvery=100)
    job.wait_progress(load.count // 4)
    slave.kill()
    statuses = Counter(one.status for one in driver.sent(job))
    if slave.kind == "java":
        torn = store_compare.erase_torn_record(master.commit_log, slave.commit_log)
        print(f"torn record of the killed slave: {torn}")
    slave.start()
    return statuses


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
@pytest.mark.parametrize("master_kind, slave_kind", pairs(("java", "rmqha"), ("rmqha", "java"), ("rmqha", "rmqha")))
def test_slave_holds_what_the_master_wrote(master_kind, slave_kind, role, make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv(master_kind).address
    master = make_broker(master_kind, namesrv, "master", shared_jvm=True, brokerRole=role)
    # else the name server's answer has it
    known = master.ha_address if role == "ASYNC_MASTER" else None
    slave = make_broker(slave_kind, namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=known)
    master.wait_for_slave()
    java_driver.create_topic(namesrv, master.address, TOPIC)
    primers = prime(java_driver, namesrv, master, slave)

    load = Workload(TOPIC, COUNT, small_sizes(COUNT, seed=3))
    sent = java_driver.produce(namesrv, load.part(0, FIRST_PART))
    assert Counter(one.status for one in sent) == {"SEND_OK": FIRST_PART}
    over_kill = send_over_a_slave_kill(java_driver, namesrv, load.part(FIRST_PART, SECOND_PART), master, slave)
    assert set(over_kill) <= {"SEND_OK"} | (GONE if role == "SYNC_MASTER" else set()), over_kill
    assert wait_until_equal(master, slave) == primers + FIRST_PART + SECOND_PART
    rest = load.part(FIRST_PART + SECOND_PART, COUNT - FIRST_PART - SECOND_PART)
    sent = java_driver.produce(namesrv, rest)
    assert Counter(one.status for one in sent) == {"SEND_OK": rest.count}

    assert wait_until_equal(master, slave) == primers + COUNT
    assert len(store_compare.segments(slave.commit_log)) >= SEGMENTS
    wait_until(lambda: f'"{TOPIC}"' in slave.config_text("topics.json"), 60_000, "the topic on the slave")
    assert_all_read(java_driver.pull_from_slave(namesrv, load), load)
