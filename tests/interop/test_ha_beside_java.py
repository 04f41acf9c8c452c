"""Slaves and masters of both kinds: metadata, the whole history, and topics that are deleted and created again."""
import json
import re

import pytest

from tests.interop.test_replication_directions import wait_until_equal
from tests.support import store_compare
from tests.support.java_driver import JavaDriver, Workload, assert_all_read
from tests.support.load import small_sizes
from tests.support.nodes import MIB, BrokerNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


# The data besides the log that an rmqha slave copies from a Java master, and a slave of that slave.

TOPIC, GROUP = "Copied", "copied-group"
COUNT = 200


def table(broker: BrokerNode, file: str, key: str) -> dict:
    """Return a table of one of the broker's config files; an empty one if the file does not exist."""
    text = broker.config_text(file)
    if not text:
        return {}
    # fastjson writes numbers as keys without quotes
    return json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))[key]


def offsets(broker: BrokerNode) -> dict:
    """Return the group's consumer offsets by queue."""
    return table(broker, "consumerOffset.json", "offsetTable").get(f"{TOPIC}@{GROUP}", {})


@in_long
def test_slave_copies_a_java_masters_tables_and_offsets_never_decrease(make_namesrv, make_broker,
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
    # a consumer's heartbeat creates the group on the slave with defaults; the master's settings follow within 10 s
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
    master.start()  # no longer knows the group
    java_driver.create_topic(namesrv, master.address, "Later")
    wait_until(lambda: "Later" in table(slave, "topics.json", "topicConfigTable"), 60_000, "a topic created since")
    assert offsets(slave) == known


# A new slave copies the whole log of a Java master, from its first file on; so does a new Java slave of rmqha.

WHOLE_HISTORY_TOPIC = "History"
WHOLE_HISTORY_COUNT = 9_000
SEGMENTS = 4  # at the least


@pytest.fixture
def filled(make_namesrv, make_broker, java_driver: JavaDriver):
    """Return filled(kind, **properties) -> (name server's address, a master with SEGMENTS files, the messages sent)."""
    def fill(kind: str, **properties: object) -> tuple[str, BrokerNode, Workload]:
        namesrv = make_namesrv("rmqha").address
        master = make_broker(kind, namesrv, "master", brokerRole="ASYNC_MASTER", **properties)
        java_driver.create_topic(namesrv, master.address, WHOLE_HISTORY_TOPIC)
        load = Workload(WHOLE_HISTORY_TOPIC, WHOLE_HISTORY_COUNT, small_sizes(WHOLE_HISTORY_COUNT, seed=5))
        assert all(one.ok for one in java_driver.produce(namesrv, load))
        assert len(store_compare.segments(master.commit_log)) >= SEGMENTS
        return namesrv, master, load
    return fill


def holds_the_same(master: BrokerNode, slave: BrokerNode, first: int) -> None:
    """Assert that the slave's log begins in the master's file `first` and equals it, byte for byte, up to the end."""
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
    # the request for a handshake, a report of -1, has no meaning for a Java master
    slave = make_broker("rmqha", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address,
                        haSyncFromFirstFile="true", haHandshakeEnable="true")
    holds_the_same(master, slave, 0)
    more = load.part(WHOLE_HISTORY_COUNT, 500)
    assert all(one.ok for one in java_driver.produce(namesrv, more))
    holds_the_same(master, slave, 0)
    count = store_compare.wait_dispatched(master.store)
    wait_until(lambda: store_compare.unit_count(slave.store) == count, 60_000, f"{count} units on the slave")
    assert store_compare.compare_consume_queues(master.store, slave.store) == count
    wait_until(lambda: f'"{WHOLE_HISTORY_TOPIC}"' in slave.config_text("topics.json"), 60_000, "the topic on the slave")
    both = load.part(0, WHOLE_HISTORY_COUNT + 500)
    assert_all_read(java_driver.pull_from_slave(namesrv, both), both)


@in_long
def test_new_slave_starts_at_the_java_masters_first_remaining_file(filled, make_broker):
    namesrv, master, _load = filled("java")
    master.kill()
    for start in (0, MIB):
        store_compare.segments(master.commit_log)[start].unlink()
    master.start()
    slave = make_broker("rmqha", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address,
                        haSyncFromFirstFile="true")
    holds_the_same(master, slave, 2 * MIB)


@in_long
def test_new_java_slave_holds_the_whole_log_of_a_master_that_sends_it(filled, make_broker):
    namesrv, master, _load = filled("rmqha", haSyncFromFirstFile="true")
    slave = make_broker("java", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address)
    holds_the_same(master, slave, 0)


# A topic that is deleted and created again on an rmqha master: a Java slave of it, and a Java broker on its store.

DELETED_TOPIC = "MadeAgain"
COUNT = 200


def test_java_follows_and_takes_over_a_store_with_a_deleted_topic(make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv("java").address
    master = make_broker("rmqha", namesrv, "master", brokerRole="ASYNC_MASTER")
    slave = make_broker("java", namesrv, "slave", shared_jvm=True, brokerRole="SLAVE", brokerId=1,
                        haMasterAddress=master.ha_address)
    master.wait_for_slave()
    old, new = Workload(DELETED_TOPIC, COUNT, [100]), Workload(DELETED_TOPIC, COUNT, [200], first=COUNT)
    java_driver.create_topic(namesrv, master.address, DELETED_TOPIC)
    assert all(one.ok for one in java_driver.produce(namesrv, old))
    told = java_driver.admin("deleteTopic", "-n", namesrv, "-c", "InteropCluster", "-t", DELETED_TOPIC)
    assert "success" in told, told
    java_driver.create_topic(namesrv, master.address, DELETED_TOPIC)
    sent = java_driver.produce(namesrv, new)
    assert all(one.ok for one in sent)

    # the slave parses a topic table with an additional key
    java_driver.create_topic(namesrv, master.address, "Later")
    wait_until(lambda: "Later" in table(slave, "topics.json", "topicConfigTable"), 60_000, "the slave's topics")
    wait_until(lambda: store_compare.log_end(slave.commit_log) == store_compare.log_end(master.commit_log), 60_000,
               "the slave's log")

    master.stop()
    assert DELETED_TOPIC in json.loads((master.store / "config" / "deletedTopics.json").read_text())["deletedTopics"]
    assert (master.store / "checkpoint.positions").exists()
    master.become("java").start()
    assert_all_read(java_driver.consume(namesrv, new, "after-group"), new, sent)
