"""Crashes of whole broker processes: kill -9 under load, changing roles, damaged stores, and the start itself."""
import os
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from tests.store.damages import COUNT, DAMAGES, SIZES, Place, write
from tests.support import store_compare
from tests.support.java_driver import Workload
from tests.support.load import Acknowledged, Load, raw_sender, rmqha_sender, small_sizes
from tests.support.nodes import MIB, BrokerNode
from tests.support.raw_remoting import GET_MAX_OFFSET, RawClient
from tests.support.wait import wait_until

# kill -9 of a whole broker under load: after the restart every acknowledged message is there, and the queues are right.

TOPIC = "Crashed"
QUEUES = 4
ROUNDS = 3
CONFIG = {"flushDiskType": "SYNC_FLUSH", "defaultTopicQueueNums": QUEUES}


def assert_holds(broker: BrokerNode, acknowledged: dict[int, Acknowledged]) -> None:
    """Assert that each acknowledged message is in the log once, at its place, and the queues equal their rebuild."""
    places: dict[int, list[Acknowledged]] = {}
    for record in store_compare.walk(broker.commit_log):
        places.setdefault(int(record.properties["index"]), []).append((record.queue_id, record.queue_offset))
    lost = {index: place for index, place in acknowledged.items() if places.get(index) != [place]}
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged messages: {dict(list(lost.items())[:5])}"
    count = sum(map(len, places.values()))
    wait_until(lambda: store_compare.unit_count(broker.store) >= count, 60_000, f"{count} units")
    assert store_compare.check_consume_queues(broker.store) == count


def make_topic(broker: BrokerNode) -> None:
    """Create the topic over a bare connection."""
    with RawClient(broker.address) as client:
        client.create_topic(TOPIC, QUEUES)


def kill_while_it_recovers(broker: BrokerNode) -> None:
    """Start the broker, and kill it after it has mapped its log, before or soon after it is up."""
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
        load.wait_for(1500 + 400 * round_number)  # the log spans several files
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


# Broker processes whose roles change: kill -9 of the master under load, promotion of the slave, the old master rejoins.

AUTOSWITCH_TOPIC = "Switched"
QUEUES = 4
WAIT_MS = 60_000
KEYS = {"enableAutoSwitchHA": "true", "allAckInSyncStateSet": "true", "minInSyncReplicas": 2, "slaveTimeout": 2000,
        "haSendHeartbeatInterval": 200, "defaultTopicQueueNums": QUEUES, "registerNameServerPeriod": 10_000}


def wait_in_sync(namesrv: str, master: BrokerNode) -> None:
    """Wait until the master reports its slave in sync."""
    def told() -> bool:
        try:
            with ClusterAdmin(namesrv) as admin:
                return admin.runtime_info(master.address).get("haSyncStateSet") == "1,1000"
        except CannotAnswerError:
            return False
    wait_until(told, WAIT_MS, f"{master.name} has its slave in sync")


def promote(namesrv: str, broker: BrokerNode) -> None:
    """Run `rmqha ha promote`."""
    result = CliRunner().invoke(rmqha, ["ha", "promote", "-n", namesrv, "-b", broker.address])
    assert result.exit_code == 0, result.output


def test_no_acknowledged_message_is_lost_when_the_master_is_killed_and_another_promoted(make_namesrv, make_broker):
    namesrv = make_namesrv("rmqha").address
    one = make_broker("rmqha", namesrv, "one", brokerRole="SYNC_MASTER", **KEYS)
    two = make_broker("rmqha", namesrv, "two", brokerRole="SLAVE", brokerId=1, **KEYS)
    with RawClient(one.address) as client:
        client.create_topic(AUTOSWITCH_TOPIC, QUEUES)
    acknowledged: dict[int, Acknowledged] = {}
    master, slave = one, two
    for turn in range(3):
        wait_in_sync(namesrv, master)
        load = Load(raw_sender(master.address, AUTOSWITCH_TOPIC, QUEUES, b"x" * 700), 4, turn * 1_000_000).start()
        load.wait_for(200)
        master.kill()
        acknowledged |= load.stop()
        promote(namesrv, slave)
        # it learns its master from the name server
        master.start()
        master, slave = slave, master
    wait_in_sync(namesrv, master)
    def ends() -> list[int]:
        return [store_compare.log_end(broker.commit_log) for broker in (one, two)]
    wait_until(lambda: len(set(ends())) == 1, WAIT_MS, "the logs have the same end")
    assert store_compare.compare_commit_logs(one.commit_log, two.commit_log, ends()[0])
    for broker in (one, two):
        places = {int(record.properties["index"]): (record.queue_id, record.queue_offset)
                  for record in store_compare.walk(broker.commit_log)}
        lost = {index: place for index, place in acknowledged.items() if places.get(index) != place}
        assert len(acknowledged) >= 600 and not lost, f"{broker.name}: {len(lost)} lost: {sorted(lost)[:5]}"
        wait_until(lambda store=broker.store, places=places: store_compare.unit_count(store) >= len(places), WAIT_MS,
                   "all dispatched")
        assert store_compare.check_consume_queues(broker.store) == len(places)


# The same damaged store, given to rmqha and to the real RocketMQ: the results, seen from outside.
#
# The tests have a few kinds of damage. RMQHA_DAMAGE_TABLE=<file> runs all of tests/store/damages.py, for several
# minutes, and writes the table for docs/reference/differences.md.

FOUND, RETRY_IMMEDIATELY, OFFSET_MOVED = 0, 20, 21
NUMBER = re.compile(rb"body(\d{3})x{100}")
TABLE = "RMQHA_DAMAGE_TABLE"


def read_queue(client: RawClient, queue_id: int) -> list[int]:
    """Return the numbers of a queue's messages from index 0 on; -1 for an answer that is not a message."""
    end = int(client.request(GET_MAX_OFFSET, topic="T", queueId=queue_id).fields["offset"])
    numbers: list[int] = []
    offset = 0
    while offset < end:
        answer = client.pull("T", queue_id, offset)
        if answer.code == FOUND:
            numbers += [int(number) for number in NUMBER.findall(answer.body)] or [-1]
        following = int(answer.fields.get("nextBeginOffset", offset))
        if answer.code not in (FOUND, RETRY_IMMEDIATELY, OFFSET_MOVED) or following <= offset:
            break
        offset = following
    return numbers


def ranges(numbers: list[int]) -> str:
    """Return sorted numbers as ranges: 0-9, 12."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}-{high}" if high > low else str(low) for low, high in runs) or "none"


def outcome(broker: BrokerNode) -> str:
    """Start the broker on its store, read everything, send once to each queue; return the results as a text."""
    try:
        broker.start(100_000)
    except AssertionError as error:
        code = broker.process.poll()
        if code is None:
            return f"hangs while it starts: {error}"
        return f"does not start (code {code})"
    with RawClient(broker.address) as client:
        client.create_topic("T", 2)
        read = read_queue(client, 0) + read_queue(client, 1)
        answers = [client.send_message_once("T", b"more", queue_id) for queue_id in (0, 1)]
    found = sorted(set(read))
    words = ["all read" if found == list(range(COUNT)) else
             f"first {len(found)} read" if found == list(range(len(found))) else f"read {ranges(read)}"]
    if len(read) != len(found):
        words.append("some twice")
    used = [sum(number % 2 == queue_id for number in range(len(found))) for queue_id in (0, 1)]
    for queue_id, answer in enumerate(answers):
        if answer.code not in (0, 10, 11, 12):
            words.append(f"queue {queue_id} refuses a send: code {answer.code}")
        elif int(answer.fields["queueOffset"]) != used[queue_id]:
            words.append(f"next message of queue {queue_id} gets index {answer.fields['queueOffset']}")
    return ", ".join(words)


def run(kind: str, base: Path, folder: Path, name: str, crashed: bool = False) -> str:
    """Damage a copy of `base`, and return the outcome."""
    shutil.copytree(base, folder / "store")
    if crashed:
        (folder / "store" / "abort").touch()
    DAMAGES[name].do(Place(folder / "store"))
    broker = BrokerNode(kind, folder, None, **SIZES)
    try:
        return outcome(broker)
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Return the store whose copies are damaged."""
    root = tmp_path_factory.mktemp("base") / "store"
    write(root)
    return root


# damage -> (outcome of rmqha, outcome of 4.9.7)
SEEN = {
    "log: one of the last files missing":
        ("does not start (code 253)", "read 0-79, 100-119, next message of queue 0 gets index 60, next message of "
                                      "queue 1 gets index 60"),
    "log: body flipped in an earlier file": ("does not start (code 253)", "first 90 read"),
    "log: last file cut": ("first 118 read", "does not start (code 253)"),
    "queue: last file missing":
        ("all read", "read 0-79, " + ", ".join(map(str, range(81, 121, 2))) + ", next message of queue 0 gets index 40,"
                     " next message of queue 1 gets index 60"),
}


@pytest.mark.java
@pytest.mark.parametrize("name", SEEN)
def test_damaged_stores_have_the_documented_outcomes(base, tmp_path, name):
    seen = tuple(run(kind, base, tmp_path / kind, name) for kind in ("rmqha", "java"))
    assert seen == SEEN[name]


@pytest.mark.java
@pytest.mark.timeout(3600)
@pytest.mark.skipif(TABLE not in os.environ, reason=f"several minutes; {TABLE}=<file> runs it")
def test_damage_table(base, tmp_path):
    cases = [(name, crashed) for name in DAMAGES for crashed in (False, True)]
    kinds = os.environ.get(TABLE + "_KINDS", "rmqha java").split()

    def row(case: tuple[str, bool]) -> list[str]:
        name, crashed = case
        place = tmp_path / re.sub(r"\W+", "-", f"{name} {crashed}")
        return [run(kind, base, place / kind, name, crashed) for kind in kinds]

    with ThreadPoolExecutor(3) as pool, open(os.environ[TABLE], "w", encoding="utf-8") as table:
        for (name, crashed), seen in zip(cases, pool.map(row, cases), strict=True):
            table.write("| " + " | ".join([name + (" (crashed)" if crashed else ""), *seen]) + " |\n")
            table.flush()


# The memory of a broker after its start; `tests.bench.startup` measures the time of a start.

RSS_MIB = 100


def test_broker_boots_small(make_namesrv, make_broker):
    namesrv = make_namesrv("rmqha")
    broker = make_broker("rmqha", namesrv.address, mappedFileSizeCommitLog=1024 * MIB,
                         mappedFileSizeConsumeQueue=6_000_000, maxHashSlotNum=5_000_000, maxIndexNum=20_000_000)
    assert broker.rss_bytes() / MIB < RSS_MIB
