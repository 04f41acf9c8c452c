"""The same requests to both kinds of broker, with rare store keys set, lead to the same files and answers.

The keys are for several commit log folders, extended consume queues, light message queues and the pool of write
buffers. The files of both are compared byte by byte, except hosts and store times. Then each side opens the other's
store.
"""
import json
import shutil
import struct
from pathlib import Path

import pytest

from tests.support import store_compare
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

pytestmark = pytest.mark.java

KINDS = ("java", "rmqha")
COUNT = 400
TOPIC = "Parent"
LIGHT = ("%LMQ%a", "%LMQ%b", "other")
SEGMENT = 1 << 14
UPDATE_CONSUMER_OFFSET, QUERY_CONSUMER_OFFSET, GET_ALL_CONSUMER_OFFSET, GET_MIN_OFFSET = 15, 14, 43, 31
# Topic, group, offset of queue 0.
COMMITTED = (("%LMQ%a", "%LMQ%a", 7), (TOPIC, "ordinary", 5))
BORN = 1_700_000_000_000
KEYS = {
    "mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 20 * 50, "maxHashSlotNum": 97, "maxIndexNum": 300,
    "enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 1024, "enableLmq": "true",
    "enableMultiDispatch": "true", "transientStorePoolEnable": "true", "transientStorePoolSize": 4,
    "enableScheduleAsyncDeliver": "true", "messageDelayLevel": "4s 5s",
}
DELAYED = 6  # messages of level 1
# Born host, store time and store host of a record with IPv4 hosts: they differ between runs.
MASKED = slice(48, 72)


def properties(index: int) -> str:
    """Return the properties of message `index`: dispatched to one further queue, to several, or to none."""
    queues = [LIGHT[at] for at in range(3) if index >> at & 1]
    pairs = [("UNIQ_KEY", f"{index:032X}"), ("TAGS", f"Tag{index % 5}"), ("WAIT", "true"), ("mine", "x" * (index % 50))]
    if queues:
        pairs.append(("INNER_MULTI_DISPATCH", ",".join(queues)))
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs if value)


def new_broker(nodes: list, kind: str, folder: Path) -> BrokerNode:
    """Return a broker of `kind` with a commit log in three folders, one of which is read-only."""
    node = BrokerNode(kind, folder, None, kind, shared_jvm=True, **KEYS)
    paths = [node.store / f"log{number}" for number in (1, 2, 3)]
    node.properties["storePathCommitLog"] = ",".join(map(str, paths))
    node.properties["readOnlyCommitLogStorePaths"] = paths[1]
    nodes.append(node)
    return node.become(kind)


def send_all(client: RawClient) -> list[tuple[int, str, str]]:
    """Send the messages one after another; return (code, queue id, queue offset) of each."""
    answers = []
    for index in range(COUNT):
        answer = client.send_message(TOPIC, b"%05d" % index * (index % 40), index % 3, properties=properties(index),
                                     bornTimestamp=BORN + index)
        answers.append((answer.code, answer.fields.get("queueId"), answer.fields.get("queueOffset")))
    return answers


def send_delayed(client: RawClient) -> None:
    """Send some delayed messages, and wait until they are delivered."""
    for index in range(DELAYED):
        answer = client.send_message("Delayed", b"later %d" % index, 0, properties="DELAY\x011\x02mine\x01x",
                                     bornTimestamp=BORN + index)
        assert answer.code == 0, answer
    wait_until(lambda: client.max_offset("Delayed", 0) == DELAYED, 60_000, "the delayed messages are delivered")


def read_all(client: RawClient) -> dict[tuple[str, int], list]:
    """Pull from each queue; return the answers: code, next, minimum and maximum offset, and the records."""
    found = {}
    for topic, queue_id in [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2), ("%LMQ%a", 0), ("%LMQ%b", 0)]:
        answers, offset = [], 0
        while True:
            answer = client.pull(topic, queue_id, offset, consumerGroup="%LMQ%a")
            fields = [answer.fields.get(name) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
            answers.append((answer.code, fields, [masked(record) for record in records_in(answer.body)]))
            if answer.code:
                break
            offset = int(answer.fields["nextBeginOffset"])
        found[topic, queue_id] = answers
    return found


def records_in(data: bytes) -> list[bytes]:
    """Split consecutive records."""
    records, at = [], 0
    while at + 8 <= len(data):
        total, magic = struct.unpack_from(">II", data, at)
        if magic != store_compare.MESSAGE_MAGIC:
            break
        records.append(data[at:at + total])
        at += total
    return records


def masked(record: bytes) -> bytes:
    """Return a record without the fields that differ between runs."""
    return record[:MASKED.start] + bytes(MASKED.stop - MASKED.start) + record[MASKED.stop:]


def commit_log_files(store: Path) -> dict[str, Path]:
    """Return path below the store -> file, for all commit log files with records."""
    files = sorted(store.glob("log?/*"))
    return {str(file.relative_to(store)): file for file in files if any(file.read_bytes()[:8])}


def without_delivery_times(store: Path, copy: Path) -> Path:
    """Return the names without the queues of delayed messages, whose units have delivery times."""
    ignored = shutil.ignore_patterns(store_compare.SCHEDULE_TOPIC)
    shutil.copytree(store, copy, ignore=ignored)
    return copy


def logs(store: Path) -> dict[str, list[bytes]]:
    """Return path below the store -> masked records of the file."""
    return {name: [masked(record) for record in records_in(file.read_bytes())]
            for name, file in commit_log_files(store).items()}


def extensions(store: Path) -> dict[str, bytes]:
    """Return path below the store -> file of the extended consume queues, without store times."""
    files = {}
    for file in sorted((store / "consumequeue_ext").glob("*/*/*")):
        data, at = bytearray(file.read_bytes()), 0
        while at + 20 <= len(data) and (size := struct.unpack_from(">h", data, at)[0]) > 0:
            data[at + 10:at + 18] = bytes(8)
            at += size
        if at:
            files[str(file.relative_to(store))] = bytes(data)
    return files


def assert_same_stores(one: Path, other: Path) -> None:
    """Assert that commit log, consume queues and their extensions are the same."""
    mine, theirs = logs(one), logs(other)
    assert list(mine) == list(theirs)
    for name, records in mine.items():
        assert records == theirs[name], name
    assert store_compare.compare_consume_queues(one, other) > 2 * COUNT
    mine, theirs = extensions(one), extensions(other)
    assert list(mine) == list(theirs)
    for name, data in mine.items():
        assert data == theirs[name], name


def wait_readable(client: RawClient) -> None:
    """Wait until the last message of each queue can be pulled: messages in write buffers cannot."""
    ends = {(TOPIC, queue_id): len(range(queue_id, COUNT, 3)) for queue_id in range(3)}
    for (topic, queue_id), end in ends.items():
        wait_until(lambda: client.max_offset(topic, queue_id) == end, 60_000, f"{topic}-{queue_id} at {end}")


@pytest.fixture(scope="module")
def brokers(module_nodes: list, tmp_path_factory) -> dict[str, dict]:
    """Return the answers and files of each kind, after both are stopped."""
    seen = {}
    for kind in KINDS:
        node = new_broker(module_nodes, kind, tmp_path_factory.mktemp(kind)).start()
        with RawClient(node.address) as client:
            sent = send_all(client)
            wait_readable(client)
            send_delayed(client)
            for topic, group, offset in COMMITTED:
                assert client.request(UPDATE_CONSUMER_OFFSET, topic=topic, consumerGroup=group, queueId=0,
                                      commitOffset=offset).code == 0
            seen[kind] = {"node": node, "sent": sent, "read": read_all(client), "offsets": offsets(client),
                          "all": json.loads(quoted(client.request(GET_ALL_CONSUMER_OFFSET).body.decode()))}
        node.stop()
        seen[kind]["store"] = node.folder / "as-written"
        shutil.copytree(node.store, seen[kind]["store"])
    return seen


def offsets(client: RawClient) -> list:
    """Return the committed offsets that the broker reports."""
    return [(answer.code, answer.fields.get("offset")) for answer in (
        client.request(QUERY_CONSUMER_OFFSET, topic=topic, consumerGroup=group, queueId=0)
        for topic, group, _ in COMMITTED)]


def quoted(text: str) -> str:
    """Quote the numeric keys of fastjson's output, to make it valid JSON."""
    return text.replace("{0:", '{"0":')


def test_answers_to_sends_and_pulls_are_the_same(brokers):
    java, ours = brokers["java"], brokers["rmqha"]
    assert {code for code, *_ in java["sent"]} == {0}
    assert ours["sent"] == java["sent"]
    for queue, answers in java["read"].items():
        assert ours["read"][queue] == answers, queue
    assert [sum(len(records) for _, _, records in java["read"][f"%LMQ%{name}", 0]) for name in "ab"] == [200, 200]
    assert ours["offsets"] == java["offsets"] == [(0, "7"), (0, "5")]
    assert ours["all"] == java["all"]


def test_files_are_the_same(brokers, tmp_path):
    java, ours = (without_delivery_times(brokers[kind]["store"], tmp_path / kind) for kind in KINDS)
    assert_same_stores(ours, java)
    assert [(store / "config/delayOffset.json").read_text() for store in (java, ours)] == [
        '{\n\t"offsetTable":{1:%d\n\t}\n}' % DELAYED] * 2
    assert len(logs(java)) > 4
    assert {name.split("/")[0] for name in logs(java)} == {"log1", "log3"}  # log2 is read-only
    assert len(extensions(java)) > 6
    tables = [json.loads(quoted((store / "config/lmqConsumerOffset.json").read_text())) for store in (java, ours)]
    assert tables[0] == tables[1]
    assert tables[0]["lmqOffsetTable"] == {"%LMQ%a@%LMQ%a": 7}
    assert not (java / "config/consumerOffset.json").exists() and not (ours / "config/consumerOffset.json").exists()


@pytest.mark.parametrize("writer, reader", [KINDS, KINDS[::-1]])
def test_each_opens_the_others_store_and_rebuilds_its_queues(brokers, writer, reader):
    written = brokers[writer]
    node = written["node"]
    for name in ("consumequeue", "consumequeue_ext"):
        shutil.rmtree(node.store / name)
    node.become(reader).start()
    with RawClient(node.address) as client:
        wait_readable(client)
        assert read_all(client) == written["read"]
        assert offsets(client) == written["offsets"]
        rebuilt = {key: list(store_compare.units(folder))
                   for key, folder in store_compare.queues_on_disk(node.store).items()}
        assert rebuilt == {key: list(store_compare.units(folder))
                           for key, folder in store_compare.queues_on_disk(written["store"]).items()}
        answer = client.send_message(TOPIC, b"one more", 0, properties=properties(7))
        assert (answer.code, answer.fields["queueOffset"]) == (0, str(len(range(0, COUNT, 3))))
    node.stop()
    after = logs(node.store)
    for name, records in logs(written["store"]).items():
        assert after[name][:len(records)] == records, name


@pytest.mark.parametrize("master_kind, slave_kind", [KINDS, KINDS[::-1]])
def test_slave_holds_what_a_master_with_write_buffers_committed(nodes, tmp_path, master_kind, slave_kind):
    keys = {"mappedFileSizeCommitLog": SEGMENT, "transientStorePoolEnable": "true", "transientStorePoolSize": 4,
            "commitIntervalCommitLog": 5, "commitCommitLogThoroughInterval": 5}
    master = BrokerNode(master_kind, tmp_path / "master", None, brokerRole="SYNC_MASTER", **keys)
    slave = BrokerNode(slave_kind, tmp_path / "slave", None, brokerRole="SLAVE", brokerId=1,
                       haMasterAddress=master.ha_address, **keys)
    nodes += [master, slave]
    master.launch()
    slave.start()
    wait_until(lambda: "boot success" in master.output(), 60_000, "the master")
    master.wait_for_slave()
    with RawClient(master.address) as client:
        # until the slave has the first message: an empty slave copies only the master's last file
        wait_until(lambda: client.send_message_once(TOPIC, b"first").code == 0, 60_000, "the first acknowledgement")
        # a Java master checks for committed bytes every 100 ms
        for index in range(40):
            assert client.send_message(TOPIC, b"%06d" % index * 350, index % 3).code == 0
    end = store_compare.log_end(master.commit_log)
    wait_until(lambda: store_compare.log_end(slave.commit_log) == end, 60_000, f"the slave's log at {end}")
    assert store_compare.compare_commit_logs(master.commit_log, slave.commit_log) == (0, end)
    assert end > 4 * SEGMENT
    count = store_compare.wait_dispatched(master.store)
    wait_until(lambda: store_compare.unit_count(slave.store) == count, 60_000, f"{count} units on the slave")
