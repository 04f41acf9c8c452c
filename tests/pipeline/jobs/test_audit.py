"""The jobs audit and rebuild: flaws are found and named, and the files are those that the brokers wrote."""
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.jobs.audit import audit
from rmqha.pipeline.jobs.rebuild import RangeTask, Shape, build_range, common_queue_file_size, parse_delays, rebuild
from rmqha.pipeline.log.log_scan import BLOCK, ByteRange
from rmqha.store.bulk.bulk_layout import KEY
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rmqha.store.index.index_layout import index_key_hash_method
from tests.store import support

# The job audit: a true copy passes; each kind of flaw is found and named with its file and offset.

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


def test_true_copy_is_equal_and_counted(spark, master, slave):
    found = audit(spark, str(master), str(slave), range_bytes=5000)
    assert found.equal and found.compared > 3 * support.FILE_SIZE
    assert found.messages == COUNT
    assert found.queues == {f"T{topic}": {str(queue): [75, 0, 74] for queue in range(2)} for topic in range(2)}


def test_flipped_byte_is_named_by_file_and_offset(spark, master, slave):
    path = segments(slave)[2]
    flip(path, 1500)
    found = audit(spark, str(master), str(slave), range_bytes=5000)
    assert found.difference.offset == int(path.name) + 1500
    assert (found.difference.slave_file, found.difference.position) == (str(path), 1500)
    assert found.difference.record["offset"] <= found.difference.offset
    assert f"{path} differs from" in found.problems[0] and "byte 1500" in found.problems[0]


def test_missing_file_is_named(spark, master, slave):
    path = segments(slave)[1]
    path.unlink()
    found = audit(spark, str(master), str(slave))
    start = int(path.name)
    assert found.problems == [f"offsets {start} to {start + support.FILE_SIZE} are missing in the slave: there is no "
                              f"{path}"]


def test_slave_that_is_behind_is_reported_with_its_end(spark, master, slave):
    for path in segments(slave)[3:]:
        path.unlink()
    found = audit(spark, str(master), str(slave))
    end = int(segments(slave)[2].name) + support.FILE_SIZE
    assert found.behind == found.master_range[1] - end
    assert found.problems == [f"the slave is {found.behind} bytes behind: {segments(slave)[2]} ends at offset {end}, "
                              f"the master's log at {found.master_range[1]}"]


def test_diverged_tail_is_named_by_its_first_byte(spark, master, tmp_path):
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


def test_wrong_crc_on_both_sides_is_found_too(spark, master, tmp_path):
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        shutil.copytree(master, root)
        flip(segments(root)[1], 95)
    found = audit(spark, *map(str, roots))
    assert found.difference is None
    path = segments(roots[0])[1]
    assert found.problems == [f"{path} at byte 0 (offset {int(path.name)}): the CRC of the body is wrong"]


def test_slave_needs_only_what_the_master_had_before(spark, master, slave, monkeypatch):
    # Between the last checks of master and slave, the broker writes and the slave receives it.
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


def test_file_that_its_broker_deletes_during_the_audit_is_a_note(spark, master, slave, monkeypatch):
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


def test_ends_of_files_are_not_split_between_compared_ranges(master):
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
    """Yield [name server, the real broker as master, rmqha as its slave, a master without a slave], all running."""
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
def test_running_cluster_is_found_through_its_name_server(spark, cluster):
    from rmqha.pipeline.cluster.cluster_client import find_stores
    from rmqha.pipeline.jobs.audit import audit_all
    namesrv, master, slave, single = cluster
    stores = find_stores(namesrv.address)
    assert stores.pairs == [(str(master.commit_log), str(slave.commit_log), "broker-a")]
    assert stores.notes == [f"broker-b has no slave now: its master is {single.address} (id 0)"]
    found, = audit_all(spark, stores.pairs, lambda done, total: None)
    assert found.problems == [] and found.queues["Audited"]["0"] == [40, 0, 39] and found.broker == "broker-a"


@pytest.mark.java
def test_stores_are_found_where_they_are_mounted(cluster):
    from rmqha.pipeline.cluster.cluster_client import find_stores
    namesrv, master, slave, _ = cluster
    folder = master.folder.parent
    stores = find_stores(namesrv.address, broker="broker-a", mounted=f"{folder}/{{brokerName}}-{{brokerId}}/store")
    assert stores.pairs == [(str(master.store), str(slave.store), "broker-a")] and stores.notes == []
    with pytest.raises(ValueError, match=r"were not found: broker-a \(id 0, 127.0.0.1:[0-9]+\): /mnt/nowhere/broker-a"):
        find_stores(namesrv.address, mounted="/mnt/nowhere/{brokerName}")
    with pytest.raises(ValueError, match="KeyError.'name'.*It may have {cluster}, {brokerName}"):
        find_stores(namesrv.address, mounted="/mnt/{name}")
    with pytest.raises(ValueError, match="knows no broker 'broker-c'; there are: broker-a, broker-b"):
        find_stores(namesrv.address, broker="broker-c")
    with pytest.raises(ValueError, match="knows no cluster 'Default'; there are: InteropCluster"):
        find_stores(namesrv.address, cluster="Default")
    with pytest.raises(ValueError, match="name server 127.0.0.1:1: "):
        find_stores("127.0.0.1:1")


# The job rebuild: its files equal those that the brokers, the real one and rmqha's, wrote themselves.

SHAPE = {"slots": 50, "entries": 200}


def shape_of(root: Path, **more) -> Shape:
    sizes = {"queue_file_size": common_queue_file_size(str(root)), **SHAPE, "delays_ms": parse_delays()}
    return Shape(**{**sizes, **more})


def files(folder: Path) -> list[bytes]:
    """Return the contents of the used files in a folder, by name."""
    return [path.read_bytes() for path in sorted(folder.iterdir()) if any(path.read_bytes()[:36])]


@pytest.mark.parametrize("name", ["normal", "kill"])
def test_queues_and_index_equal_the_real_brokers(spark, tmp_path, name):
    root = support.unpack_golden(name, tmp_path)
    result = rebuild(spark, str(root), str(tmp_path / "out"), shape_of(root))
    built = support.tree(tmp_path / "out" / "consumequeue")
    assert built == support.tree(root / "consumequeue") and len(built) > 6
    assert files(tmp_path / "out" / "index") == files(root / "index") and result.indexFiles > 1
    assert (result.equal, result.differences, result.problems) == (True, [], [])


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("rebuild") / "store"
    with support.open_store(root, mappedFileSizeCommitLog=1 << 18) as running:
        for number in range(900):
            support.put(running, support.message(f"T{number % 3}", number // 3 % 2, b"x" * (number % 400),
                                                 KEYS=f"k{number} all", UNIQ_KEY=f"U{number}", TAGS=f"t{number % 5}"))
        support.wait_dispatched(running)
    return root


def test_ranges_and_shares_that_split_records_and_index_files_give_the_same_files(spark, store, tmp_path,
                                                                                monkeypatch):
    from rmqha.pipeline.jobs import rebuild as index_parts
    from rmqha.pipeline.log import ranges
    monkeypatch.setattr(index_parts, "SHARE", 60)  # of files of 199 keys
    monkeypatch.setattr(ranges, "UNCUT_END", 4096)
    result = rebuild(spark, str(store), str(tmp_path / "out"), shape_of(store), range_bytes=40_000)
    assert result.equal and result.records == result.units == 900 and result.keys == 2700
    assert support.tree(tmp_path / "out" / "consumequeue") == support.tree(store / "consumequeue")
    assert files(tmp_path / "out" / "index") == files(store / "index")


def test_messages_of_deleted_topics_get_no_units(spark, tmp_path):
    with support.open_store(tmp_path / "store") as running:
        for count in (60, 20):
            support.put(running, *[support.message(queue_id=number % 2) for number in range(count)])
            support.put(running, support.message("O"))
            if count == 60:
                running.delete_topic("T")
        support.wait_dispatched(running)
    root = tmp_path / "store"
    result = rebuild(spark, str(root), str(tmp_path / "out"), shape_of(root), compare=False)
    assert (result.records, result.units, result.problems) == (82, 22, [])
    assert support.tree(tmp_path / "out" / "consumequeue") == support.tree(root / "consumequeue")


def test_differences_in_the_store_are_named(spark, store, tmp_path):
    import shutil
    root = tmp_path / "copy"
    shutil.copytree(store, root)
    path = sorted((root / "consumequeue" / "T1" / "0").iterdir())[1]
    data = bytearray(path.read_bytes())
    data[47] ^= 1
    path.write_bytes(data)
    result = rebuild(spark, str(root), str(tmp_path / "out"), shape_of(root))
    assert (result.equal, result.differences) == (False, [f"{path} differs from what was built at byte 47"])


def test_existing_files_are_never_overwritten(spark, store):
    with pytest.raises(ValueError, match="already has files"):
        rebuild(spark, str(store), str(store), shape_of(store))


def test_stretches_of_neighbouring_ranges_join_in_any_order():
    from itertools import permutations

    from rmqha.pipeline.jobs.rebuild import Built, Stretch
    ranges = [Built(1, {("T", 0): [Stretch(number, first, 10)]}, {number: 1})
              for number, first in enumerate((5, 15, 25, 50, 60))]
    for order in permutations(range(5)):
        built = Built()
        for number in order:
            built.add(Built(1, {name: list(found) for name, found in ranges[number].queues.items()}, {number: 1}))
        assert built.queues == {("T", 0): [Stretch(0, 5, 30), Stretch(3, 50, 20)]} and built.records == 5
        assert sorted(built.keys) == [0, 1, 2, 3, 4]


def test_problems_beyond_a_thousand_are_counted(monkeypatch):
    from rmqha.pipeline.jobs import audit as audit_module
    from rmqha.pipeline.jobs import rebuild as rebuild_module
    many = rebuild_module.Built()
    for number in range(3000):
        many.add(rebuild_module.Built(problems=[(2999 - number, "x")]))
    assert (len(many.problems), many.more_problems, many.problems[0]) == (1000, 2000, (0, "x"))
    audited = audit_module.RangeAudit()
    for _ in range(3):
        audited.add(audit_module.RangeAudit(bad=["x"] * 700))
    assert (len(audited.bad), audited.more_bad) == (1000, 1100)


def test_queue_that_begins_within_a_file_is_also_filled_in_tasks(spark, store, tmp_path, monkeypatch):
    import shutil

    from rmqha.pipeline.jobs import rebuild as rebuild_module
    root = tmp_path / "deleted"
    shutil.copytree(store, root)
    first = sorted((root / "commitlog").iterdir())[0]
    first.unlink()
    shape = shape_of(root, queue_file_size=20 * 1000)
    results = []
    for units, name in ((1 << 20, "driver"), (0, "tasks")):
        monkeypatch.setattr(rebuild_module, "_BLANKS_OF_DRIVER", units)
        results.append(rebuild(spark, str(root), str(tmp_path / name), shape, compare=False))
    assert results[0].units == results[1].units < 900
    trees = [support.tree(tmp_path / name / "consumequeue") for name in ("driver", "tasks")]
    assert trees[0] == trees[1] and len(trees[0]) == 6


HOST = layout.host_to_bytes(("127.0.0.1", 10911))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("keys")


# Keys of a record, and bytes of its body.
described_records = st.lists(st.tuples(
    st.integers(0, 40) | st.sampled_from([0, 8, 9, 16, 17, 30, 300, 16_000]),
    st.integers(0, 200) | st.sampled_from([1 << 20, BLOCK - 500, BLOCK + 500])), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(described_records)
@example([(0, 1 << 20), (30, 1 << 20), (0, BLOCK), (30, 5)])
@example([(16_000, 0)] * 40)
def test_records_may_have_any_number_of_keys(folder, described):
    data, wanted = b"", []
    for number, (keys, size) in enumerate(described):
        names = [f"{at:x}" for at in range(keys)]
        properties = f"KEYS\1{' '.join(names)[:32_700]}\2".encode() if keys else b""
        names = properties[5:-1].decode().split()
        body = bytes([number]) * size
        wanted += [(len(data), index_key_hash_method(f"T#{name}")) for name in names]
        data += layout.encode_record(layout.body_crc32(body), 0, 0, number, len(data), 0, 1, HOST, 1_700_000_000_000,
                                     HOST, 0, 0, body, layout.encode_topic("T"), properties)
    path = folder / ("0" * 20)
    path.write_bytes(data)
    (folder / "keys").mkdir(exist_ok=True)
    span = ByteRange(str(path), 0, 0, len(data), len(data), True)
    built = build_range(RangeTask(0, span, str(folder), Shape(queue_file_size=1000 * CQ_STORE_UNIT_SIZE), {}))
    found = [(offset, key_hash) for offset, _, key_hash, _ in
             KEY.iter_unpack((folder / "keys" / "00000000").read_bytes())]
    assert found == wanted and built.keys == {0: len(wanted)}
    assert (built.records, built.problems) == (len(described), [])
    assert built.queues == {("T", 0): [(0, 0, len(described))]}
    units = (folder / "consumequeue" / "T" / "0" / ("0" * 20)).read_bytes()[:len(described) * CQ_STORE_UNIT_SIZE]
    assert [int.from_bytes(units[at:at + 8], "big") for at in range(0, len(units), CQ_STORE_UNIT_SIZE)] \
        == list(_offsets(data))


def _offsets(data: bytes):
    at = 0
    while at < len(data):
        yield at
        at += int.from_bytes(data[at:at + 4], "big")


def test_record_that_needs_another_command_is_named(folder):
    records, at = [], 0
    for number, properties in enumerate((b"KEYS\1" + b"k " * 300, b"TAGS\1\xff\2", b"")):
        records.append(layout.encode_record(0, 0, 0, number, at, 0, 1, HOST, 1_700_000_000_000, HOST, 0, 0, b"",
                                            layout.encode_topic("T"), properties))
        at += len(records[-1])
    path = folder / "odd" / ("0" * 20)
    os.makedirs(path.parent, exist_ok=True)
    os.makedirs(folder / "odd" / "keys", exist_ok=True)
    path.write_bytes(b"".join(records))
    with pytest.raises(PipelineError, match=f"0{{20}} at byte {len(records[0])}: this record needs the dispatch of "
                                            "single records .*: use `rmqha store rebuild`"):
        build_range(RangeTask(0, ByteRange(str(path), 0, 0, at, at, True), str(folder / "odd"), Shape(), {}))


def test_many_keys_beside_large_bodies_are_rebuilt_as_the_broker_wrote_them(spark, tmp_path):
    root = tmp_path / "store"
    with support.open_store(root, mappedFileSizeCommitLog=8 << 20) as running:
        for number in range(12):
            keys = " ".join(f"k{at}" for at in range(30)) if number % 4 == 1 else ""
            support.put(running, support.message("T", 0, b"x" * 900_000, UNIQ_KEY=f"U{number}",
                                                 **({"KEYS": keys} if keys else {})))
        support.wait_dispatched(running)
    result = rebuild(spark, str(root), str(tmp_path / "out"), shape_of(root))
    assert (result.equal, result.differences, result.problems) == (True, [], [])
    assert (result.records, result.keys) == (12, 12 + 3 * 30)


@pytest.mark.parametrize("levels", ["1s 9223372036854775807d", "-1s", "1x", "9" * 5000 + "s", "s", "1s,2s"])
def test_invalid_delay_levels_are_refused(levels):
    with pytest.raises(PipelineError, match="give the broker's messageDelayLevel") as caught:
        parse_delays(levels)
    assert len(str(caught.value)) < 400
