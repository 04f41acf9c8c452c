"""Failover of replicas of rmqha and the real 5.1.4 under a controller: each becomes the master, is killed under load,
and rejoins."""
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.remoting.protocol.remoting_serializable import from_json
from tests.support import store_compare
from tests.support.load import Acknowledged, Load, raw_sender, send_until_stored
from tests.support.nodes import BrokerNode, ControllerNode, broker_keys, sync_state
from tests.support.raw_remoting import GET_BROKER_CLUSTER_INFO, RawClient
from tests.support.tiers import in_long
from tests.support.wait import wait_until

TOPIC, QUEUES, CLUSTER, NAME = "Failover", 4, "InteropCluster", "broker-a"
WAIT_MS = 90_000
NEW_LEADER_S = 3.5
ELECT_MASTER = 1002
# Only the master acknowledges: a relay would hide which replica that is.
KEYS = {"relayToMaster": "false", "haSendHeartbeatInterval": 200, "defaultTopicQueueNums": QUEUES,
        "registerNameServerPeriod": 10_000, "controllerHeartBeatTimeoutMills": 3000, "haMaxTimeSlaveNotCatchup": 5000}


class Replicas:
    """Three brokers of one name, and the state that their controller returns."""

    def __init__(self, namesrv: str, controller: ControllerNode, brokers: Sequence[BrokerNode]) -> None:
        self.namesrv = namesrv
        self.controller = controller
        self.brokers = brokers

    def state(self) -> dict:
        """Return the controller's state; {} if it returns none."""
        return sync_state([self.controller.address], NAME) or {}

    def ids(self) -> dict[str, int]:
        """Return address -> broker id of all replicas."""
        state = self.state()
        return {each["brokerAddress"]: each["brokerId"]
                for each in state.get("inSyncReplicas", []) + state.get("notInSyncReplicas", [])}

    def master(self) -> BrokerNode | None:
        """Return the broker that the controller has elected."""
        address = self.state().get("masterAddress")
        return next((broker for broker in self.brokers if broker.address == address), None)

    def registered_master(self) -> str | None:
        """Return the master's address that the name server gives to clients."""
        with RawClient(self.namesrv, 10) as client:
            table = from_json(ClusterInfo, client.request(GET_BROKER_CLUSTER_INFO).body).brokerAddrTable or {}
        return table[NAME].brokerAddrs.get(0) if NAME in table else None

    def wait_in_sync(self, count: int) -> None:
        """Wait until `count` replicas are in sync, the master included."""
        wait_until(lambda: len(self.state().get("inSyncReplicas", [])) == count, WAIT_MS,
                   f"{count} replicas are in sync: {self.state()}")

    def elect(self, broker: BrokerNode) -> None:
        """Let the controller elect a broker that is not the master."""
        with RawClient(self.controller.address, 10) as client:
            answer = client.request(ELECT_MASTER, clusterName=CLUSTER, brokerName=NAME,
                                    brokerId=self.ids()[broker.address], designateElect="true")
        assert answer.code == 0, answer
        wait_until(lambda: self.master() is broker, WAIT_MS, f"{broker.name} is elected")

    def first_acknowledged(self, brokers: Sequence[BrokerNode], index: int) -> tuple[BrokerNode, float]:
        """Return the broker that first acknowledges a message, and the seconds until then."""
        def acknowledges(broker: BrokerNode) -> bool:
            try:
                with RawClient(broker.address, 2) as client:
                    return client.send_message_once(TOPIC, b"first", 0, properties=f"index\x01{index}\x02").code == 0
            except (OSError, EOFError):
                return False
        begin = time.monotonic()
        first = wait_until(lambda: next(filter(acknowledges, brokers), None), WAIT_MS, "one acknowledges")
        return first, time.monotonic() - begin


@pytest.fixture
def make_replicas(nodes, make_namesrv, tmp_path: Path) -> Callable[..., Replicas]:
    """Return make_replicas(kind of the controller, kinds of the brokers) -> three running replicas in sync."""
    def make(controller_kind: str, kinds: Sequence[str], namesrv_kind: str = "rmqha", **keys: object) -> Replicas:
        namesrv = make_namesrv(namesrv_kind)
        controller = ControllerNode(controller_kind, tmp_path / "controller")
        nodes.append(controller)
        controller.start()
        wait_until(controller.leader, WAIT_MS, "a controller leads")
        brokers = []
        for number, kind in enumerate(kinds):
            folder = tmp_path / f"broker-{number}"
            broker = BrokerNode(kind, folder, namesrv.address, f"{kind}-{number}",
                                **broker_keys(folder / "store", [controller.address], **{**KEYS, **keys}))
            nodes.append(broker)
            broker.start()
            brokers.append(broker)
        replicas = Replicas(namesrv.address, controller, brokers)
        replicas.wait_in_sync(len(brokers))
        return replicas
    return make


def assert_all_there(replicas: Replicas, acknowledged: dict[int, Acknowledged]) -> None:
    """Assert that all logs are the same, and that each has every acknowledged message at its place."""
    def ends() -> list[int]:
        return [store_compare.log_end(broker.commit_log) for broker in replicas.brokers]
    wait_until(lambda: len(set(ends())) == 1, WAIT_MS, f"the logs have the same end: {ends()}")
    first, *others = replicas.brokers
    for other in others:
        assert store_compare.compare_commit_logs(first.commit_log, other.commit_log, ends()[0])
    places: dict[int, tuple[int, int]] = {}
    taken: set[tuple[str, int, int]] = set()
    for record in store_compare.walk(first.commit_log):
        place = (record.topic, record.queue_id, record.queue_offset)
        assert place not in taken, f"{place} was given twice"
        taken.add(place)
        if record.topic == TOPIC:
            places[int(record.properties["index"])] = place[1:]
    lost = {index: place for index, place in acknowledged.items() if places.get(index) != place}
    assert not lost, f"{len(lost)} of {len(acknowledged)} lost: {sorted(lost.items())[:5]}"


def each_is_master_and_dies(replicas: Replicas, turns: int = 1) -> dict[int, Acknowledged]:
    """Make every broker the master, kill it under load, and start it again; return the acknowledged messages."""
    acknowledged: dict[int, Acknowledged] = {}
    for turn, broker in enumerate(list(replicas.brokers) * turns):
        others = [other for other in replicas.brokers if other is not broker]
        if replicas.master() is not broker:
            replicas.elect(broker)
        master, _ = replicas.first_acknowledged([broker], turn * 1_000_000 + 900_000)
        replicas.wait_in_sync(len(replicas.brokers))
        load = Load(raw_sender(master.address, TOPIC, QUEUES, b"x" * 700), 4, turn * 1_000_000).start()
        load.wait_for(200)
        broker.kill()
        acknowledged |= load.stop()
        follower, took = replicas.first_acknowledged(others, turn * 1_000_000 + 900_001)
        print(f"{broker.name} was killed, {follower.name} acknowledges {took:.3f} s later")
        assert replicas.master() is follower
        wait_until(lambda follower=follower: replicas.registered_master() == follower.address, WAIT_MS,
                   f"{follower.name} is registered")
        broker.start()
        replicas.wait_in_sync(len(replicas.brokers))
    return acknowledged


@pytest.mark.java
@pytest.mark.parametrize("kinds", [("rmqha", "rmqha", "rmqha"), ("java5", "rmqha", "rmqha"),
                                   pytest.param(("rmqha", "java5", "java5"), marks=in_long)], ids="+".join)
def test_any_replica_can_become_the_master_under_the_real_controller(make_replicas, kinds):
    replicas = make_replicas("java", kinds, "java" if "java5" in kinds else "rmqha")
    acknowledged = each_is_master_and_dies(replicas)
    assert_all_there(replicas, acknowledged)


@pytest.mark.parametrize("kinds", [
    ("rmqha", "rmqha", "rmqha"), pytest.param(("rmqha", "java5", "java5"), marks=pytest.mark.java)], ids="+".join)
def test_any_replica_can_become_the_master_under_rmqhas_controller(make_replicas, kinds):
    replicas = make_replicas("rmqha", kinds)
    acknowledged = each_is_master_and_dies(replicas)
    assert_all_there(replicas, acknowledged)


def test_rmqhas_producer_continues_at_the_new_master(make_replicas):
    replicas = make_replicas("rmqha", ("rmqha", "rmqha", "rmqha"))
    master = replicas.master()
    producer = DefaultMQProducer("own-producer", replicas.brokers[0].namesrv)
    # its periodic route update would be too late
    producer.poll_name_server_interval = 2 * WAIT_MS
    with producer:
        wait_until(lambda: producer.fetch_publish_message_queues("TBW102"), WAIT_MS, "a route")
        for index in range(120):
            if index == 40:
                master.kill()
            message = Message(TOPIC, b"x")
            message.put_user_property("index", str(index))
            send_until_stored(producer, message, WAIT_MS)
    assert replicas.master() is not master
