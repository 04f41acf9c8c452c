"""The job audit: a true copy passes; each kind of flaw is found and named with its file and offset."""
import shutil
from pathlib import Path

import pytest

from rmqha.pipeline.jobs.audit import audit
from tests.store import support

COUNT = 300
SMALL_FILES = {"mappedFileSizeCommitLog": 1 << 18}


@pytest.fixture(scope="module")
def master(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("audit") / "master"
    with support.open_store(root) as store:
        for number in range(COUNT):
            support.put(store, support.message(f"T{number % 2}", number // 2 % 2, b"body %d" % number * 20))
    return root


@pytest.fixture
def slave(master, tmp_path) -> Path:
    shutil.copytree(master, tmp_path / "slave")
    return tmp_path / "slave"


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_true_copy_is_equal_and_counted(spark, master, slave):
    found = audit(spark, str(master), str(slave), range_bytes=5000)
    assert found.equal and found.compared > 3 * support.FILE_SIZE
    assert found.messages == COUNT
    assert found.queues == {f"T{topic}": {str(queue): [75, 0, 74] for queue in range(2)} for topic in range(2)}


def test_one_flipped_byte_is_named_by_file_and_offset(spark, master, slave):
    path = segments(slave)[2]
    flip(path, 1500)
    found = audit(spark, str(master), str(slave), range_bytes=5000)
    assert found.difference.offset == int(path.name) + 1500
    assert (found.difference.slave_file, found.difference.position) == (str(path), 1500)
    assert found.difference.record["offset"] <= found.difference.offset
    assert f"{path} differs from" in found.problems[0] and "byte 1500" in found.problems[0]


def test_a_missing_file_is_named(spark, master, slave):
    path = segments(slave)[1]
    path.unlink()
    found = audit(spark, str(master), str(slave))
    start = int(path.name)
    assert found.problems == [f"offsets {start} to {start + support.FILE_SIZE} are missing in the slave: there is no "
                              f"{path}"]


def test_a_slave_behind_is_told_with_its_end(spark, master, slave):
    for path in segments(slave)[3:]:
        path.unlink()
    found = audit(spark, str(master), str(slave))
    end = int(segments(slave)[2].name) + support.FILE_SIZE
    assert found.behind == found.master_range[1] - end
    assert found.problems == [f"the slave is {found.behind} bytes behind: {segments(slave)[2]} ends at offset {end}, "
                              f"the master's log at {found.master_range[1]}"]


def test_a_diverged_tail_is_named_by_its_first_byte(spark, master, tmp_path):
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        shutil.copytree(master, root)
        with support.open_store(root) as store:
            support.put(store, support.message("T0", body=b"written by " + root.name.encode() * 30))
    found = audit(spark, *map(str, roots))
    end = audit(spark, str(master), str(master)).master_range[1]
    assert end <= found.difference.offset < end + 300
    assert found.difference.record["offset"] == end
    assert not found.equal


def test_a_wrong_crc_on_both_sides_is_found_too(spark, master, tmp_path):
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        shutil.copytree(master, root)
        flip(segments(root)[1], 95)
    found = audit(spark, *map(str, roots))
    assert found.difference is None
    path = segments(roots[0])[1]
    assert found.problems == [f"{path} at byte 0 (offset {int(path.name)}): the CRC of the body is wrong"]


def test_only_what_the_master_had_before_is_wanted_of_a_slave(spark, master, slave, monkeypatch):
    # between the last looks at master and slave the broker writes, and the slave gets it
    from rmqha.pipeline.jobs import audit as audit_module
    ends, looks = audit_module.log_end, []

    def log_end(log, begin=None, **how):
        looks.append(log.path)
        if len(looks) == 2:
            with support.open_store(slave) as store:
                support.put(store, support.message("T0", body=b"new" * 50))
            shutil.copytree(slave / "commitlog", root / "commitlog", dirs_exist_ok=True)
        return ends(log, begin, **how)
    root = slave.parent / "growing"
    shutil.copytree(master, root)
    monkeypatch.setattr(audit_module, "log_end", log_end)
    found = audit(spark, str(root), str(slave))
    assert len(looks) == 3 and found.problems == [] and found.messages == COUNT + 1


def test_a_file_that_its_broker_deletes_meanwhile_is_a_note(spark, master, slave, monkeypatch):
    from rmqha.pipeline.jobs import audit as audit_module
    pairs = audit_module._pairs

    def then_deleted(*args):
        found = list(pairs(*args))
        segments(slave)[0].unlink()
        return found
    path = segments(slave)[0]
    monkeypatch.setattr(audit_module, "_pairs", then_deleted)
    found = audit(spark, str(master), str(slave))
    assert found.notes == [f"{path} was deleted while it was read: it was not compared to its end"]
    assert found.problems == [] and 0 < found.messages < COUNT


def test_the_ends_of_files_are_not_cut_between_what_is_compared(master):
    from rmqha.pipeline.jobs import audit as audit_module
    from rmqha.pipeline.log.log_scan import find_logs
    from rmqha.pipeline.log.ranges import UNCUT_END, ranges_of
    log = find_logs([str(master)])[0]
    big = log._replace(segments=[log.segments[0]._replace(size=10 * UNCUT_END)])
    found = audit_module.Audit("a", "b", common=(0, 10 * UNCUT_END), master_range=(0, 10 * UNCUT_END),
                               slave_range=(0, 10 * UNCUT_END))
    pairs = list(audit_module._pairs(found, big, big, UNCUT_END // 2))
    assert [pair.master for pair in pairs] == ranges_of(big, 0, 10 * UNCUT_END, UNCUT_END // 2, True)
    assert pairs[-1].master.end - pairs[-1].master.begin >= UNCUT_END
    assert all(pair.master == pair.slave for pair in pairs)


@pytest.fixture(scope="module")
def cluster(module_nodes, tmp_path_factory) -> list:
    """[name server, the real broker as master, rmqha as its slave, a master without a slave], all running."""
    from rmqha.client.producer.default_mq_producer import DefaultMQProducer
    from rmqha.common.message.message import Message, MessageQueue
    from tests.support.nodes import BrokerNode, NamesrvNode
    folder = tmp_path_factory.mktemp("cluster")
    namesrv = NamesrvNode("rmqha", folder / "namesrv")
    module_nodes.append(namesrv.start())
    brokers = [BrokerNode(kind, folder / f"{name}-{number}", namesrv.address, brokerName=name, brokerId=number,
                          brokerRole="SLAVE" if number else "SYNC_MASTER", **SMALL_FILES)
               for kind, name, number in (("java", "broker-a", 0), ("rmqha", "broker-a", 1), ("rmqha", "broker-b", 0))]
    for broker in brokers:
        module_nodes.append(broker.start())
    brokers[0].wait_for_slave()
    with DefaultMQProducer("audited", namesrv.address) as producer:
        producer.admin.create_topic("TBW102", "Audited", 2)
        queue = MessageQueue("Audited", "broker-a", 0)
        for number in range(40):
            sent = producer.send(Message("Audited", b"x" * 1000 * (number % 9 + 1)), queue=queue)
            assert sent.send_status.name == "SEND_OK"
    return [namesrv, *brokers]


@pytest.mark.java
def test_a_running_cluster_is_found_through_its_name_server(spark, cluster):
    from rmqha.pipeline.cluster.cluster_client import find_stores
    from rmqha.pipeline.jobs.audit import audit_all
    namesrv, master, slave, single = cluster
    stores = find_stores(namesrv.address)
    assert stores.pairs == [(str(master.commit_log), str(slave.commit_log), "broker-a")]
    assert stores.notes == [f"broker-b has no slave now: its master is {single.address} (id 0)"]
    found, = audit_all(spark, stores.pairs, lambda done, total: None)
    assert found.problems == [] and found.queues["Audited"]["0"] == [40, 0, 39] and found.broker == "broker-a"


@pytest.mark.java
def test_stores_are_looked_for_where_they_are_mounted(cluster):
    from rmqha.pipeline.cluster.cluster_client import find_stores
    namesrv, master, slave, _ = cluster
    folder = master.folder.parent
    stores = find_stores(namesrv.address, broker="broker-a", mounted=f"{folder}/{{brokerName}}-{{brokerId}}/store")
    assert stores.pairs == [(str(master.store), str(slave.store), "broker-a")] and stores.notes == []
    with pytest.raises(ValueError, match=r"are not here: broker-a \(id 0, 127.0.0.1:[0-9]+\): /mnt/nowhere/broker-a"):
        find_stores(namesrv.address, mounted="/mnt/nowhere/{brokerName}")
    with pytest.raises(ValueError, match="KeyError.'name'.*It may have {cluster}, {brokerName}"):
        find_stores(namesrv.address, mounted="/mnt/{name}")
    with pytest.raises(ValueError, match="knows no broker 'broker-c'; there are: broker-a, broker-b"):
        find_stores(namesrv.address, broker="broker-c")
    with pytest.raises(ValueError, match="knows no cluster 'Default'; there are: InteropCluster"):
        find_stores(namesrv.address, cluster="Default")
    with pytest.raises(ValueError, match="name server 127.0.0.1:1: "):
        find_stores("127.0.0.1:1")
