"""check ha --deep and store repair with RocketMQ on either side: a log read through its HA port."""
import json
import random

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from tests.support import store_compare
from tests.support.wait import wait_until

WAIT_MS = 60_000
TOPIC = "Deep"
KEPT = {"fileReservedTime": 720, "cleanFileForciblyEnable": "false", "diskMaxUsedSpaceRatio": 95,
        # A key of rmqha. Only these tests may find the bits that they flip.
        "haScrubEnable": "false"}
pytestmark = pytest.mark.java


def send(namesrv, count, seed=0):
    with DefaultMQProducer("deep-producer", namesrv) as producer:
        for number in range(count):
            body = random.Random(number + seed).randbytes((50, 3000, 9000, 30_000)[number % 4])  # incompressible
            producer.send(Message(TOPIC, body, tags="Tag", keys=f"k{number}"))


def pair_of(kinds, make_namesrv, make_broker, role="ASYNC_MASTER"):
    """Return a master and its slave with the same log of several files, and its records."""
    namesrv = make_namesrv("rmqha").address
    master = make_broker(kinds[0], namesrv, "master", brokerRole=role, slaveTimeout=1000, **KEPT)
    slave = make_broker(kinds[1], namesrv, "slave", brokerRole="SLAVE", brokerId=1, **KEPT)
    master.wait_for_slave()
    # RocketMQ: an empty slave requests late, and gets the master's last file of that moment.
    for count in (1, 250):
        send(namesrv, count)
        wait_for(master, slave)
    return namesrv, master, slave


def wait_for(master, slave):
    def equal():
        return store_compare.log_end(slave.commit_log) == store_compare.log_end(master.commit_log)
    wait_until(equal, WAIT_MS, "the slave has all")


def flip(broker, offset):
    size = broker.segment_size
    with (broker.commit_log / f"{offset - offset % size:020d}").open("r+b") as file:
        file.seek(offset % size)
        byte = file.read(1)[0]
        file.seek(offset % size)
        file.write(bytes([byte ^ 0x5A]))


def check(run, namesrv, *arguments, code):
    result = run("check", "ha", "-n", namesrv, "--deep", "--probe", "--range", "0:", "-o", "json", *arguments)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("kinds", [("java", "rmqha"), ("rmqha", "java"), ("java", "java")], ids="-".join)
def test_logs_of_running_brokers_are_compared(kinds, make_namesrv, make_broker, run):
    namesrv, master, slave = pair_of(kinds, make_namesrv, make_broker)
    records = list(store_compare.walk(master.commit_log))
    deep = check(run, namesrv, code=0)["deep"][0]
    assert deep["difference"] is None and deep["comparedBytes"] >= records[-1].offset
    for record in (records[0], records[100], records[-1]):
        flip(slave, record.offset + record.size - 3)
        flip(slave, record.offset + 95)
        found = check(run, namesrv, code=2)["deep"][0]["difference"]
        assert (found["record"], found["size"], found["wrong"]) == (record.offset, record.size, "slave")
        assert (found["topic"], found["queueOffset"]) == (record.topic, record.queue_offset)
        flip(slave, record.offset + record.size - 3)
        flip(slave, record.offset + 95)
    check(run, namesrv, code=0)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_damaged_slave_is_repaired_from_a_java_master(role, make_namesrv, make_broker, run):
    namesrv, master, slave = pair_of(("java", "rmqha"), make_namesrv, make_broker, role)
    slave.stop()
    records = list(store_compare.walk(master.commit_log))
    at_file_begin = next(record for record in records if record.offset and record.offset % master.segment_size == 0)
    damaged = [(records[1], 100), (records[57], -2), (records[120], 5), (at_file_begin, 2), (records[-1], -4)]
    for record, place in damaged:
        flip(slave, record.offset + place % record.size)
    assert run("store", "verify", slave.store).exit_code == 1
    result = run("store", "repair", slave.store, "--master", master.address, "--apply", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [each["offset"] for each in found["damaged"]] == sorted(record.offset for record, _place in damaged)
    assert found["written"] == len(damaged) and found["clean"]
    assert run("store", "verify", slave.store).exit_code == 0
    assert store_compare.compare_commit_logs(master.commit_log, slave.commit_log) == (
        0, store_compare.log_end(master.commit_log))
    slave.start()
    master.wait_for_slave()
    send(namesrv, 5, 77)
    wait_for(master, slave)
    check(run, namesrv, code=0)


def test_broker_of_rocketmq_has_no_checksums(make_namesrv, make_broker):
    master = make_broker("java", make_namesrv("rmqha").address, "master")
    with ClusterAdmin(timeout_millis=WAIT_MS) as admin:
        assert admin.get_commit_log_checksums(master.address, 0, 1, 1) is None
