"""Brokers and mqadmin of Java 5.1.4 under rmqha's controller, and Java's and rmqha's brokers in one set."""
import time

import pytest

from rmqha.common import mix_all
from tests.support import real_rocketmq
from tests.support.mqadmin import JavaMqadmin
from tests.support.nodes import BrokerNode, ControllerNode, broker_keys, sync_state
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

BROKER, TOPIC, CLUSTER = "broker-a", "UnderController", "InteropCluster"
WAIT_MS = 60_000


@pytest.fixture
def controller(nodes, tmp_path):
    """Return rmqha's controller as a process."""
    node = ControllerNode("rmqha", tmp_path / "controller")
    nodes.append(node)
    return node.start()


@pytest.fixture
def replicas(make_broker, make_namesrv, controller, tmp_path):
    """Return replicas(kinds) -> a broker of each kind, all in sync."""
    def make(*kinds: str) -> list[BrokerNode]:
        namesrv = make_namesrv("rmqha").address
        made = []
        for number, kind in enumerate(kinds):
            store = tmp_path / f"replica{number}" / "store"
            made.append(make_broker(kind, namesrv, f"replica{number}", **broker_keys(
                store, [controller.address], registerNameServerPeriod=10_000, slaveTimeout=20_000)))
            wait_in_sync(controller, number + 1)
        return made
    return make


def state(controller: ControllerNode) -> dict:
    """Return the controller's state of the brokers."""
    return sync_state([controller.address], BROKER) or {}


def wait_in_sync(controller: ControllerNode, count: int) -> dict:
    """Wait until `count` replicas are in sync and alive."""
    wait_until(lambda: sum(each["alive"] for each in state(controller).get("inSyncReplicas", ())) == count, WAIT_MS,
               f"{count} replicas in sync: {state(controller)}")
    return state(controller)


def master_of(brokers: list[BrokerNode], controller: ControllerNode) -> BrokerNode:
    """Return the broker that the controller calls the master."""
    address = state(controller)["masterAddress"]
    return next(each for each in brokers if each.address == address)


def first_acknowledgement_s(brokers: list[BrokerNode], begin: float) -> float:
    """Send to all until one acknowledges; return the seconds since `begin`. A late slave is waited for, because a
    message that is sent again is stored twice."""
    def acknowledges(broker: BrokerNode) -> bool:
        try:
            with RawClient(broker.address) as client:
                return client.send_message_once(TOPIC, b"first").code == 0
        except (OSError, EOFError):
            return False
    wait_until(lambda: any(map(acknowledges, brokers)), what="one acknowledges")
    return time.monotonic() - begin


def test_java_brokers_fail_over_rejoin_and_obey_mqadmin(controller, replicas, tmp_path):
    brokers = replicas("java5", "java5", "java5")
    first = master_of(brokers, controller)
    with RawClient(first.address) as client:
        client.create_topic(TOPIC, 4)
        for number in range(100):
            assert client.send_message(TOPIC, b"before %d" % number).code == 0
    epoch = state(controller)["masterEpoch"]
    begin = time.monotonic()
    first.kill()
    others = [each for each in brokers if each is not first]
    spent_s = first_acknowledgement_s(others, begin)
    print(f"first acknowledgement by the new master after {spent_s:.3f} s")
    second = master_of(others, controller)
    assert state(controller)["masterEpoch"] == epoch + 1
    first.start()
    wait_in_sync(controller, 3)
    with RawClient(second.address) as client:
        assert client.request(30, topic=TOPIC, queueId=0).fields["offset"] == str(100 + 1)

    admin = JavaMqadmin(tmp_path / "tools", real_rocketmq.VERSION_5).output
    text = admin("getControllerMetaData", "-a", controller.address)
    assert f"#ControllerLeaderAddress\t{controller.address}" in text, text
    text = admin("getSyncStateSet", "-a", controller.address, "-b", BROKER)
    assert f"#MasterAddr\t{second.address}" in text, text
    first_id = next(each["brokerId"] for each in state(controller)["inSyncReplicas"]
                    if each["brokerAddress"] == first.address)
    text = admin("electMaster", "-a", controller.address, "-b", str(first_id), "-bn", BROKER, "-c", CLUSTER)
    assert f"#BrokerMasterAddr\t{first.address}" in text, text
    wait_in_sync(controller, 3)
    assert state(controller)["masterEpoch"] == epoch + 2
    assert "enableElectUncleanMaster" in admin("getControllerConfig", "-a", controller.address)
    assert "update controller config success" in admin(
        "updateControllerConfig", "-a", controller.address, "-k", "enableElectUncleanMaster", "-v", "false")
    second.kill()
    third = next(each for each in brokers if each not in (first, second))
    wait_until(lambda: len(state(controller)["inSyncReplicas"]) == 2, WAIT_MS, "the dead one is out of sync")
    gone = next(each["brokerId"] for each in state(controller)["notInSyncReplicas"])
    text = admin("cleanBrokerMetadata", "-a", controller.address, "-bn", BROKER, "-b", str(gone), "-c", CLUSTER)
    assert "success" in text, text
    assert {each["brokerAddress"] for each in wait_in_sync(controller, 2)["inSyncReplicas"]} == {
        first.address, third.address}
    assert state(controller)["notInSyncReplicas"] == []

    third.kill()
    with RawClient(first.address) as client:
        refused = wait_until(lambda: (answer := client.send_message_once(TOPIC, b"alone")).code == 1 and answer,
                             WAIT_MS, "a master without its slaves refuses")
    assert refused.remark == mix_all.TOO_FEW_IN_SYNC, "rmqha's producers rely on this code"


@pytest.mark.parametrize("first", ["java5", "rmqha"])
def test_brokers_of_both_kinds_replace_each_other(controller, replicas, first):
    other = {"java5": "rmqha", "rmqha": "java5"}[first]
    brokers = replicas(first, other, first)
    with RawClient(master_of(brokers, controller).address) as client:
        client.create_topic(TOPIC, 4)
    sent, kinds = 0, []
    for turn in range(3):
        master = master_of(brokers, controller)
        with RawClient(master.address) as client:
            for number in range(50):
                assert client.send_message(TOPIC, b"%d %d" % (turn, number)).code == 0
        sent += 50
        kinds.append(master.kind)
        begin = time.monotonic()
        master.kill()
        spent_s = first_acknowledgement_s([each for each in brokers if each is not master], begin)
        print(f"{master.kind} killed, first acknowledgement after {spent_s:.3f} s")
        sent += 1
        master.start()
        wait_in_sync(controller, 3)

    def ends() -> set[str]:
        found = set()
        for broker in brokers:
            with RawClient(broker.address) as client:
                found.add(client.request(30, topic=TOPIC, queueId=0).fields["offset"])
        return found
    wait_until(lambda: ends() == {str(sent)}, WAIT_MS, f"all have {sent} messages; masters were {kinds}")
