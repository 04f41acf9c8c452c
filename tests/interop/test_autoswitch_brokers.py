"""Broker processes whose roles change: kill -9 of the master under load, promotion, the old master comes back."""
from click.testing import CliRunner

from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from tests.support import store_compare
from tests.support.load import Acknowledged, Load, raw_sender
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

TOPIC = "Switched"
QUEUES = 4
WAIT_MS = 60_000
KEYS = {"enableAutoSwitchHA": "true", "allAckInSyncStateSet": "true", "minInSyncReplicas": 2, "slaveTimeout": 2000,
        "haSendHeartbeatInterval": 200, "defaultTopicQueueNums": QUEUES, "registerNameServerPeriod": 10_000}


def wait_in_sync(namesrv: str, master: BrokerNode) -> None:
    """Until the master says that both are."""
    def told() -> bool:
        try:
            with ClusterAdmin(namesrv) as admin:
                return admin.runtime_info(master.address).get("haSyncStateSet") == "1,1000"
        except CannotAnswerError:
            return False
    wait_until(told, WAIT_MS, f"{master.name} has its slave in sync")


def promote(namesrv: str, broker: BrokerNode) -> None:
    """`rmqha ha promote`."""
    result = CliRunner().invoke(rmqha, ["ha", "promote", "-n", namesrv, "-b", broker.address])
    assert result.exit_code == 0, result.output


def test_no_acknowledged_message_is_lost_when_the_master_is_killed_and_another_promoted(make_namesrv, make_broker):
    namesrv = make_namesrv("rmqha").address
    one = make_broker("rmqha", namesrv, "one", brokerRole="SYNC_MASTER", **KEYS)
    two = make_broker("rmqha", namesrv, "two", brokerRole="SLAVE", brokerId=1, **KEYS)
    with RawClient(one.address) as client:
        client.create_topic(TOPIC, QUEUES)
    acknowledged: dict[int, Acknowledged] = {}
    master, slave = one, two
    for turn in range(3):
        wait_in_sync(namesrv, master)
        load = Load(raw_sender(master.address, TOPIC, QUEUES, b"x" * 700), 4, turn * 1_000_000).start()
        load.wait_for(200)
        master.kill()
        acknowledged |= load.stop()
        promote(namesrv, slave)
        master.start()  # it finds at the name server whom to follow
        master, slave = slave, master
    wait_in_sync(namesrv, master)
    def ends() -> list[int]:
        return [store_compare.log_end(broker.commit_log) for broker in (one, two)]
    wait_until(lambda: len(set(ends())) == 1, WAIT_MS, "the logs end alike")
    assert store_compare.compare_commit_logs(one.commit_log, two.commit_log, ends()[0])
    for broker in (one, two):
        places = {int(record.properties["index"]): (record.queue_id, record.queue_offset)
                  for record in store_compare.walk(broker.commit_log)}
        lost = {index: place for index, place in acknowledged.items() if places.get(index) != place}
        assert len(acknowledged) >= 600 and not lost, f"{broker.name}: {len(lost)} lost: {sorted(lost)[:5]}"
        wait_until(lambda store=broker.store, places=places: store_compare.unit_count(store) >= len(places), WAIT_MS,
                   "all dispatched")
        assert store_compare.check_consume_queues(broker.store) == len(places)
