"""kill -9 of a whole broker under load: after the restart each acknowledged message is there, the queues are right."""
import random

import psutil
import pytest

from tests.support import store_compare
from tests.support.bodies import small_sizes
from tests.support.java_driver import Workload
from tests.support.load import Acknowledged, Load, raw_sender, rmqha_sender
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

TOPIC = "Crashed"
QUEUES = 4
ROUNDS = 3
CONFIG = {"flushDiskType": "SYNC_FLUSH", "defaultTopicQueueNums": QUEUES}


def assert_holds(broker: BrokerNode, acknowledged: dict[int, Acknowledged]) -> None:
    """Each acknowledged message lies in the log once at the place that was told; the queues equal their rebuild."""
    places: dict[int, list[Acknowledged]] = {}
    for record in store_compare.walk(broker.commit_log):
        places.setdefault(int(record.properties["index"]), []).append((record.queue_id, record.queue_offset))
    lost = {index: place for index, place in acknowledged.items() if places.get(index) != [place]}
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged messages: {dict(list(lost.items())[:5])}"
    count = sum(map(len, places.values()))
    wait_until(lambda: store_compare.unit_count(broker.store) >= count, 60_000, f"{count} units")
    assert store_compare.check_consume_queues(broker.store) == count


def make_topic(broker: BrokerNode) -> None:
    """Make the topic over a bare connection."""
    with RawClient(broker.address) as client:
        client.create_topic(TOPIC, QUEUES)


def kill_while_it_recovers(broker: BrokerNode) -> None:
    """Start the broker and kill it once it has mapped its log, before or soon after it is up."""
    broker.launch()

    def maps_its_log() -> bool:
        assert broker.is_alive, broker.tail()
        return any(str(broker.commit_log) in m.path for m in psutil.Process(broker.pid).memory_maps(grouped=True))
    wait_until(maps_its_log, 60_000, "the log mapped")
    broker.kill()


@pytest.mark.parametrize("client", ["raw", "rmqha"])
def test_no_acknowledged_message_is_lost_in_a_crash(client, make_namesrv, make_broker):
    namesrv = make_namesrv("rmqha").address
    broker = make_broker("rmqha", namesrv, **CONFIG)
    make_topic(broker)
    body = random.Random(5).randbytes(700)
    acknowledged: dict[int, Acknowledged] = {}
    for round_number in range(ROUNDS):
        if client == "raw":
            make_sender, shutdown = raw_sender(broker.address, TOPIC, QUEUES, body), None
        else:
            make_sender, shutdown = rmqha_sender(namesrv, TOPIC, body)
        load = Load(make_sender, threads=6, first=round_number * 1_000_000).start()
        load.wait_for(1500 + 400 * round_number)  # over several files of the log
        broker.kill()
        acknowledged.update(load.stop())
        if shutdown:
            shutdown()
        if round_number == 1:
            kill_while_it_recovers(broker)
        broker.start()
        assert_holds(broker, acknowledged)
    assert len(store_compare.segments(broker.commit_log)) > ROUNDS


@pytest.mark.java
def test_no_message_acknowledged_to_java_is_lost_in_a_crash(make_namesrv, make_broker, java_driver):
    namesrv = make_namesrv("rmqha").address
    broker = make_broker("rmqha", namesrv, **CONFIG)
    java_driver.create_topic(namesrv, broker.address, TOPIC, QUEUES)
    count = 8_000
    load = Workload(TOPIC, count, small_sizes(count, seed=6))
    job = java_driver.start_produce(namesrv, load, progressEvery=100, timeoutMs=5000)
    job.wait_progress(3000)
    broker.kill()
    broker.start()
    acknowledged = {one.index: (one.queue_id, one.queue_offset) for one in java_driver.sent(job) if one.ok}
    assert len(acknowledged) >= 3000
    assert_holds(broker, acknowledged)
    report = java_driver.pull(namesrv, load)
    assert report["bad"] == [] and report["repeats"] == 0 and report["distinct"] >= len(acknowledged), report
