"""The official Java client and mqadmin with rmqha's name server and broker."""
import re

import pytest

from tests.support.java_driver import JavaDriver, Workload, assert_all_read
from tests.support.load import mixed_sizes, small_sizes
from tests.support.mqadmin import pairs
from tests.support.nodes import MIB, BrokerNode
from tests.support.wait import wait_until

TOPIC = "InteropTopic"
COUNT = 10_000
QUEUES = 4


def check_queries(driver: JavaDriver, namesrv: str) -> None:
    """Query by key: the key of one message finds it, a shared key finds 64 messages (a broker's maximum)."""
    indices = [0, 1, 17, COUNT // 2, COUNT - 1]
    found = driver.query_keys(namesrv, TOPIC, [f"key-{index}" for index in indices] + ["no-such-key", "group-3"])
    assert found[:-1] == [[index] for index in indices] + [[]]
    assert len(set(found[-1])) == 64 and {index % 10 for index in found[-1]} == {3}


def check_admin(driver: JavaDriver, namesrv: str, broker: BrokerNode, group: str) -> None:
    """Check mqadmin's output about the cluster, the topic, the broker and one message."""
    clusters = driver.admin("clusterList", "-n", namesrv)
    assert re.search(rf"InteropCluster +broker-a +0 +{re.escape(broker.address)}", clusters), clusters
    route = "".join(driver.admin("topicRoute", "-n", namesrv, "-t", TOPIC).split())
    assert f'{{0:"{broker.address}"}}' in route or f'{{"0":"{broker.address}"}}' in route, route
    assert f'"readQueueNums":{QUEUES}' in route, route
    status = driver.admin("topicStatus", "-n", namesrv, "-t", TOPIC)
    rows = re.findall(r"^broker-a +(\d+) +(\d+) +(\d+) +(.+)$", status, re.MULTILINE)
    assert len(rows) == QUEUES and sum(int(row[2]) for row in rows) == COUNT, status
    assert all(row[1] == "0" and re.match(r"\d{4}-\d\d-\d\d", row[3]) for row in rows), status
    printed = driver.admin("brokerStatus", "-n", namesrv, "-b", broker.address)
    runtime = dict(re.findall(r"^(\S+) +: (.*)$", printed, re.MULTILINE))
    assert int(runtime["msgPutTotalTodayNow"]) >= COUNT, runtime
    assert int(runtime["commitLogMaxOffset"]) > COUNT and runtime["dispatchBehindBytes"] == "0", runtime

    def progress() -> str:
        return driver.admin("consumerProgress", "-n", namesrv, "-g", group)
    wait_until(lambda: "Diff Total: 0" in progress(), 60_000, "consumerProgress without a backlog")


@pytest.mark.parametrize("namesrv_kind, broker_kind", pairs(("rmqha", "rmqha")))
def test_ten_thousand_messages_arrive_once_each(namesrv_kind, broker_kind, make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv(namesrv_kind).address
    broker = make_broker(broker_kind, namesrv, shared_jvm=True, mappedFileSizeCommitLog=4 * MIB)
    java_driver.create_topic(namesrv, broker.address, TOPIC, QUEUES)
    load = Workload(TOPIC, COUNT, mixed_sizes(COUNT, seed=1))
    live = java_driver.start_consume(namesrv, load, "live-group")
    sent = java_driver.produce(namesrv, load, threads=6)
    assert [one for one in sent if not one.ok] == []
    assert_all_read(live.result(), load, sent)
    assert_all_read(java_driver.pull(namesrv, load), load, sent)
    tagged = java_driver.consume(namesrv, load, "tag-group", expression="TagA || TagC",
                                 until=COUNT - len(range(1, COUNT, 3)))
    assert (tagged["total"], tagged["repeats"], tagged["bad"]) == (COUNT - len(range(1, COUNT, 3)), 0, [])
    check_queries(java_driver, namesrv)
    check_admin(java_driver, namesrv, broker, "live-group")
    by_id = java_driver.admin("queryMsgById", "-n", namesrv, "-i", sent[7].offset_msg_id)
    assert re.search(rf"Queue Offset: +{sent[7].queue_offset}\s", by_id) and "index=7" in by_id, by_id


@pytest.mark.parametrize("namesrv_kind, broker_kind", pairs(("java", "rmqha"), ("rmqha", "java")))
def test_each_server_works_with_the_real_other_one(namesrv_kind, broker_kind, make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv(namesrv_kind).address
    broker = make_broker(broker_kind, namesrv, shared_jvm=True)
    wait_until(lambda: broker.address in java_driver.admin("clusterList", "-n", namesrv), 60_000, "it is registered")
    # the broker creates the topic automatically
    load = Workload("AutoTopic", 500, small_sizes(500, seed=2))
    sent = java_driver.produce(namesrv, load)
    assert [one for one in sent if not one.ok] == []
    assert_all_read(java_driver.consume(namesrv, load, "side-group"), load, sent)


@pytest.mark.parametrize("namesrv_kind, broker_kind", pairs(("rmqha", "rmqha")))
def test_batched_and_delayed_messages_arrive(namesrv_kind, broker_kind, make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv(namesrv_kind).address
    broker = make_broker(broker_kind, namesrv, shared_jvm=True)
    for topic in ("Batched", "Compressed", "Delayed"):
        java_driver.create_topic(namesrv, broker.address, topic)
    for topic, size, options in (("Batched", 300, {"batch": 32}), ("Compressed", 20_000, {"compressOver": 4096}),
                                 ("Delayed", 100, {"delayLevel": 1})):
        load = Workload(topic, 320, [1, size])
        sent = java_driver.produce(namesrv, load, **options)
        assert {one.status for one in sent} == {"SEND_OK"}
        # their answers have other queue offsets
        told = None if options.keys() & {"batch", "delayLevel"} else sent
        assert_all_read(java_driver.consume(namesrv, load, f"{topic}-group"), load, told)
