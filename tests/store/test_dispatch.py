"""Bulk dispatch: consume queues and index rebuilt span by span equal those made from single records."""
import errno
import random
import shutil
import threading

import pytest

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import WorkAhead
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import MessageExtBatch
from rmqha.store import dispatch, reput_message_service
from rmqha.store.bulk import bulk, bulk_python
from rmqha.store.bulk.bulk_layout import KEY
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import pack_unit
from rmqha.store.dispatch import MessageArrivingListener, RecordDispatcher
from rmqha.store.index.index_file import IndexFile
from rmqha.store.index.index_layout import HEADER
from rmqha.store.index.index_service import IndexService
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import DispatchRequest
from tests.store.bulk.test_bulk import compiled_kernel
from tests.store.support import batch, message, new_store, open_store, put, tree, wait_dispatched
from tests.support.wait import wait_until

WAYS = ("single", "plain", "compiled", "ahead")
KEYS = {"enableLmq": True, "enableMultiDispatch": True, "mappedFileSizeConsumeQueue": 200}
TOPICS = ("T", "orders", "\u4e3b\u9898", "\U0001f600")
WORDS = ("a", "order-1", "\u6807\u7b7e", "\U0001f600x", "polygenelubricants", "k" * 40)
V6 = ("2001:db8::7", 10911)


def choose(monkeypatch, way, span_records=7):
    """Dispatch and recover record by record, in small spans with one of the kernels, or with a scanning thread."""
    monkeypatch.setattr(reput_message_service, "BULK_BYTES", 1)
    monkeypatch.setattr(reput_message_service, "_AHEAD_BYTES", 1 if way == "ahead" else 1 << 40)
    monkeypatch.setattr(reput_message_service, "usable_cores", lambda: 2)
    monkeypatch.setattr(dispatch, "SPAN_RECORDS", span_records)
    monkeypatch.setattr(bulk, "_kernel", compiled_kernel() if way in ("compiled", "ahead") else bulk_python)
    monkeypatch.setattr(bulk, "is_compiled", lambda: way != "single")


def random_message(random_, flags=(0, 0, 0, 4, 8, 12)):
    """Make a message of any kind that a broker stores."""
    pick, chance = random_.choice, random_.random
    properties = {}
    if chance() < .7:
        properties["TAGS"] = pick(WORDS)
    if chance() < .7:
        properties["KEYS"] = pick((" ", "  ")).join(random_.choices(WORDS, k=random_.randrange(4)))
    if chance() < .8:
        properties["UNIQ_KEY"] = f"0A000001{random_.randrange(1 << 64):024X}"
    if chance() < .1:
        # Hours, so that it is not delivered meanwhile.
        properties["DELAY"] = pick(("17", "18"))
    if chance() < .1:
        properties["INNER_MULTI_DISPATCH"] = pick(("%LMQ%a", "%LMQ%a,%LMQ%b", "other,%LMQ%b"))
    topic, queue_id = pick(TOPICS), random_.randrange(3)
    if chance() < .1:
        return batch([random_.randbytes(random_.randrange(50)) for _ in range(4)], topic, queue_id)
    msg = message(topic, queue_id, random_.randbytes(random_.randrange(300)), **properties)
    if "DELAY" not in properties:
        msg.sys_flag = pick(flags)
    if chance() < .3:
        msg.born_host = V6
    if chance() < .3:
        msg.store_host = V6
    return msg


def write(root, seed, **kinds):
    """Write a store with messages of all kinds, dispatched one by one, and close it properly."""
    random_ = random.Random(seed)
    with open_store(root, **KEYS) as store:
        for _ in range(260):
            msg = random_message(random_, **kinds)
            store_it = store.put_messages if isinstance(msg, MessageExtBatch) else store.put_message
            assert store_it(msg).is_ok
        wait_dispatched(store)


def forget(root):
    """Delete everything that is built from the log."""
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


def built(root):
    """Return the consume queue files by path, and the contents of the index files in order."""
    files = tree(root)
    return ({path: data for path, data in files.items() if path.startswith("consumequeue/")},
            [data for path, data in sorted(files.items()) if path.startswith("index/")])


def reopen(root):
    """Start a store, and stop it."""
    with open_store(root, **KEYS) as store:
        wait_dispatched(store)


def assert_same(left, right):
    assert left[0].keys() == right[0].keys()
    assert [path for path in left[0] if left[0][path] != right[0][path]] == []
    assert len(left[1]) == len(right[1]) and left[1] == right[1]


def test_another_thread_scans_ahead_when_the_dispatch_is_far_behind(tmp_path, monkeypatch):
    choose(monkeypatch, "single")
    write(tmp_path, 1)
    before, scanned, scan, begin = built(tmp_path), threading.Event(), RecordDispatcher.scan, WorkAhead.begin

    def noting_scan(*args):
        if threading.current_thread().name.startswith("ReputScanThread_"):
            scanned.set()
        return scan(*args)

    def waiting_begin(*args):
        ahead = begin(*args)
        if threading.current_thread().name == "ReputMessageService":
            # Otherwise this thread could ask for the result first, and scan itself.
            assert scanned.wait(240)
        return ahead

    forget(tmp_path)
    choose(monkeypatch, "ahead")
    monkeypatch.setattr(RecordDispatcher, "scan", noting_scan)
    monkeypatch.setattr(WorkAhead, "begin", waiting_begin)
    reopen(tmp_path)
    assert_same(built(tmp_path), before)
    assert scanned.is_set()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_queues_and_index_are_rebuilt_identically(tmp_path, monkeypatch, way, seed):
    choose(monkeypatch, "single")
    write(tmp_path, seed)
    before = built(tmp_path)
    assert len(before[1]) >= 2 and any(path.endswith("/00000000000000000200") for path in before[0])
    forget(tmp_path)
    choose(monkeypatch, way, (1, 7, 1000)[seed])
    reopen(tmp_path)
    assert_same(built(tmp_path), before)


@pytest.mark.parametrize("way", WAYS)
def test_lost_parts_are_rebuilt_after_a_crash(tmp_path, monkeypatch, way):
    choose(monkeypatch, "single")
    write(tmp_path, 5)
    before = built(tmp_path)
    random_ = random.Random(way)
    for index, folder in enumerate(sorted((tmp_path / "consumequeue").glob("*/*"))):
        if index % 3 == 0:
            shutil.rmtree(folder)
        elif index % 3 == 1:
            # Units that were not written back.
            with open(max(folder.iterdir()), "r+b") as file:
                at = random_.randrange(10) * 20
                file.seek(at)
                file.write(bytes(200 - at))
    max((tmp_path / "index").iterdir()).unlink()
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    choose(monkeypatch, way)
    reopen(tmp_path)
    assert_same(built(tmp_path), before)


class _Snapshots:
    """Copies of a store, taken at some calls of a method: the state that a kill at that moment would leave."""

    def __init__(self, monkeypatch, owner, name, root, folder, passages, behind):
        self.passages, self.folder, self.root, self.calls = passages, folder, root, 0
        original = getattr(owner, name)

        def call(*args, **kwargs):
            if not behind:
                self.take()
            result = original(*args, **kwargs)
            if behind:
                self.take()
            return result

        monkeypatch.setattr(owner, name, call)

    def take(self):
        self.calls += 1
        if self.calls in self.passages:
            shutil.copytree(self.root, self.folder / str(self.calls))


@pytest.mark.parametrize("way", ["plain", "compiled"])
@pytest.mark.parametrize("owner, name, behind", [
    (ConsumeQueue, "put_units", True), (IndexService, "build_index_of_rows", False), (IndexService, "flush", True),
    (RecordDispatcher, "dispatch_span", True)])
def test_start_killed_while_it_rebuilds_continues_the_next_time(tmp_path, monkeypatch, way, owner, name, behind):
    root, images = tmp_path / "store", tmp_path / "images"
    choose(monkeypatch, "single")
    write(root, 9)
    before = built(root)
    forget(root)
    choose(monkeypatch, way, 20)
    images.mkdir()
    with monkeypatch.context() as patched:
        snapshots = _Snapshots(patched, owner, name, root, images, (1, 2, 5, 9), behind)
        reopen(root)
    assert snapshots.calls >= 2
    for image in images.iterdir():
        assert (image / "abort").exists()
        choose(monkeypatch, "single" if image.name == "2" else way)
        reopen(image)
        assert_same(built(image), before)


@pytest.mark.parametrize("way", WAYS)
def test_power_loss_during_a_rebuild_loses_no_unit_and_no_key(tmp_path, monkeypatch, way):
    root, image = tmp_path / "store", tmp_path / "image"
    choose(monkeypatch, "single")
    write(root, 11)
    before = built(root)
    forget(root)
    choose(monkeypatch, way, 20)
    with open_store(root, **KEYS):
        shutil.copytree(root, image)
    for path in [path for path in image.rglob("*") if path.is_file()]:
        if "consumequeue" in path.parts or "index" in path.parts:
            # No page of them was written back.
            path.write_bytes(bytes(path.stat().st_size))
    reopen(image)
    assert_same(built(image), before)


def log_files(root):
    return sorted((root / "commitlog").iterdir())


@pytest.mark.parametrize("seed", range(6))
def test_damage_in_the_middle_has_the_same_result(tmp_path, monkeypatch, seed):
    choose(monkeypatch, "single")
    write(tmp_path / "store", seed)
    forget(tmp_path / "store")
    random_ = random.Random(seed)
    files = log_files(tmp_path / "store")
    assert len(files) >= 5
    for path in random_.sample(files[:-3], 1) + ([files[-2]] if seed % 3 == 2 else []):
        at = random_.randrange(16000)
        data = bytearray(path.read_bytes())
        for place in range(at, at + random_.choice((1, 4, 200))):
            data[place] ^= 0xFF
        path.write_bytes(data)
    results = {}
    for way in WAYS:
        shutil.copytree(tmp_path / "store", tmp_path / way)
        choose(monkeypatch, way)
        store = new_store(tmp_path / way, **KEYS)
        loaded = store.load()
        if loaded:
            store.start()
        store.shutdown()
        results[way] = (loaded, built(tmp_path / way),
                        [path.read_bytes() for path in log_files(tmp_path / way)])
    for way in WAYS[1:]:
        assert results[way][0] == results["single"][0] and results[way][2] == results["single"][2]
        assert_same(results[way][1], results["single"][1])


class _Listener(MessageArrivingListener):
    """A listener that waits for some queues, and records its notifications."""

    def __init__(self, queues):
        self.queues, self.told = queues, []

    def is_waiting(self, topic, queue_id):
        return (topic, queue_id) in self.queues

    def arriving(self, *args):
        self.told.append(args)


def test_listener_is_notified_of_every_record_of_its_queues(tmp_path, monkeypatch):
    told = {}
    choose(monkeypatch, "single")
    write(tmp_path / "store", 3, flags=(0, 8))
    forget(tmp_path / "store")
    for way in WAYS:
        shutil.copytree(tmp_path / "store", tmp_path / way)
        choose(monkeypatch, way)
        listener = _Listener({("T", 0), ("orders", 2)})
        with open_store(tmp_path / way, listener, **KEYS) as store:
            wait_dispatched(store)
        told[way] = sorted(map(str, listener.told))
    assert told["single"] and told["plain"] == told["compiled"] == told["single"]


@pytest.mark.parametrize("broker_id", [0, 1])
def test_slave_counts_the_received_messages(tmp_path, monkeypatch, broker_id):
    counted = {}
    choose(monkeypatch, "single")
    write(tmp_path / "store", 4)
    forget(tmp_path / "store")
    for way in WAYS:
        shutil.copytree(tmp_path / "store", tmp_path / way)
        choose(monkeypatch, way)
        listener = _Listener({("T", 0)})
        store = new_store(tmp_path / way, listener, BrokerConfig(brokerId=broker_id), brokerRole=BrokerRole.SLAVE,
                          **KEYS)
        assert store.load()
        store.start()
        stats = store.store_stats_service
        store.shutdown()
        assert listener.told == []
        counted[way] = stats.put_message_topic_times_total, stats.put_message_topic_size_total
    assert sum(counted["single"][0].values()) > 200
    assert counted["plain"] == counted["compiled"] == counted["single"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("broker_id", [0, 1])
def test_slave_with_an_incomplete_record_waits_for_the_rest(tmp_path, monkeypatch, way, broker_id):
    choose(monkeypatch, "single")
    with open_store(tmp_path / "master", **KEYS) as master:
        put(master, *(message(body=b"x" * 400, KEYS=f"k{number:02d}") for number in range(20)))
        size = master.get_max_phy_offset()
    data = log_files(tmp_path / "master")[0].read_bytes()[:size]
    choose(monkeypatch, way)
    slave = new_store(tmp_path / "slave", None, BrokerConfig(brokerId=broker_id), brokerRole=BrokerRole.SLAVE, **KEYS)
    assert slave.load()
    slave.start()
    try:
        record, service = size // 20, slave.reput_message_service
        for begin, end in ((0, 5 * record + 7), (5 * record + 7, 6 * record - 1), (6 * record - 1, size)):
            assert slave.append_to_commit_log(begin, data, begin, end - begin)
            wait_until(lambda end=end: service.reput_from_offset == end // record * record, 60_000)
            assert slave.get_max_offset_in_queue("T", 0) == end // record
        assert slave.store_stats_service.get_put_message_times_total() == 20
    finally:
        slave.shutdown()
    assert_same(built(tmp_path / "slave"), built(tmp_path / "master"))


def test_store_with_unusual_parts_dispatches_record_by_record(tmp_path, monkeypatch):
    choose(monkeypatch, "plain")
    for keys in ({"enableConsumeQueueExt": True}, {"duplicationEnable": True}):
        assert not new_store(tmp_path, **keys).record_dispatcher.takes_spans()
    store = new_store(tmp_path)
    dispatcher = store.record_dispatcher
    assert dispatcher.takes_spans()
    dispatcher.dispatcher_list.append(dispatcher.dispatcher_list[0])
    assert not dispatcher.takes_spans()
    store = new_store(tmp_path)
    monkeypatch.setattr(bulk, "is_compiled", lambda: False)
    assert not store.record_dispatcher.takes_spans()


# One queue.

def units_of(runs, size=100):
    """Make (queue offset, units) of runs of (queue offset, count); their records are consecutive in the log."""
    position, described = 0, []
    for queue_offset, count in runs:
        described.append((queue_offset, [(position + number * size, size, number) for number in range(count)]))
        position += count * size
    return described


def put_one_by_one(queue, runs):
    for queue_offset, units in runs:
        for number, unit in enumerate(units):
            request = DispatchRequest(unit[1], True)
            request.commit_log_offset, _, request.tags_code = unit
            request.consume_queue_offset = queue_offset + number
            queue.put_message_position_info_wrapper(request)


def put_runs(queue, runs):
    for queue_offset, units in runs:
        assert queue.put_units(queue_offset, memoryview(b"".join(pack_unit(*unit) for unit in units)))


@pytest.mark.parametrize("runs", [
    [(0, 3), (3, 25)], [(0, 10)], [(0, 40)], [(7, 30)], [(10, 1), (11, 9), (20, 10)], [(0, 5), (8, 5), (13, 20)],
    [(0, 12), (3, 12), (15, 2)], [(0, 5), (0, 5)], [(0, 5), (1 << 40, 3), (5, 3)], [(3, 2), (2, 1), (5, 9)]])
@pytest.mark.parametrize("twice", [False, True])
def test_runs_of_units_are_put_as_one_by_one(tmp_path, runs, twice):
    facts = []
    for put_all in (put_one_by_one, put_runs):
        with open_store(tmp_path / put_all.__name__, **KEYS) as store:
            queue = store.consume_queue_table.find_queue("T", 0)
            for _ in range(1 + twice):
                put_all(queue, units_of(runs))
            facts.append((queue.max_physic_offset, queue.min_logic_offset, queue.get_max_offset_in_queue()))
    assert facts[0] == facts[1]
    assert built(tmp_path / "put_one_by_one")[0] == built(tmp_path / "put_runs")[0]


def test_run_waits_for_space_and_continues(tmp_path, monkeypatch):
    monkeypatch.setattr("rmqha.store.consume_queue._RETRY_MS", 1)
    with open_store(tmp_path, **KEYS) as store:
        queue = store.consume_queue_table.find_queue("T", 0)
        put_runs(queue, units_of([(0, 4)]))
        write_at, failures = MappedFile.write_at, iter([errno.ENOSPC] * 5)

        def fail(self, position, data):
            for number in failures:
                raise OSError(number, "no space")
            write_at(self, position, data)

        monkeypatch.setattr(MappedFile, "write_at", fail)
        put_runs(queue, units_of([(0, 40)]))
        assert not store.running_flags.is_writeable
        assert [queue.get_unit(index)[0] for index in range(40)] == [index * 100 for index in range(40)]


def test_run_of_an_unwritable_queue_is_refused(tmp_path):
    with open_store(tmp_path, **KEYS) as store:
        queue = store.consume_queue_table.find_queue("T", 0)
        put_runs(queue, units_of([(0, 4)]))
        store.running_flags.make_logics_queue_error()
        assert not queue.put_units(4, memoryview(pack_unit(400, 100, 0)))
        assert queue.get_max_offset_in_queue() == 4


# The index.

def test_keys_being_added_do_not_hide_older_ones(tmp_path):
    index_file = IndexFile(str(tmp_path / "20260101000000000"), 3, 100)
    rows = b"".join(KEY.pack(offset, 1_700_000_000_000, offset % 5, 0) for offset in range(20))
    assert index_file.put_key_rows(rows[:10 * KEY.size], 0) == 10
    header = index_file.index_header.counters
    assert index_file.put_key_rows(rows, 10) == 20
    # The state that a query sees before the kernel is done.
    index_file.index_header.counters = header
    for key_hash in range(5):
        assert index_file.has_entry(key_hash, 5 + key_hash) and not index_file.has_entry(key_hash, 15 + key_hash)
    index_file.destroy(0)


def test_last_record_of_the_index_gets_its_missing_keys(tmp_path):
    for known in range(4):
        contents = []
        for way in ("whole", "parts"):
            with open_store(tmp_path / f"{way}{known}", **KEYS) as store:
                service = store.index_service
                rows = [KEY.pack(offset, 1_700_000_000_000, key_hash, 0)
                        for offset, key_hash in ((0, 1), (9, 2), (9, 3), (9, 4), (20, 5))]
                if way == "parts":
                    service.build_index_of_rows(b"".join(rows[:1 + known]))
                    service._built_to = -1  # another process continues
                service.build_index_of_rows(b"".join(rows))
                service._built_to = -1
                service.build_index_of_rows(b"".join(rows))
            contents.append(built(tmp_path / f"{way}{known}")[1])
        assert contents[0] == contents[1]


def test_index_with_damaged_counters_accepts_keys(tmp_path):
    for counters in ((0, 0, 0, 0, -5, 3), (0, 0, 0, 0, (1 << 31) - 1, 3), (0, 0, 0, 0, 1, -1), (1, 1, 1, 1, 1, 500)):
        index_file = IndexFile(str(tmp_path / "20260101000000000"), 3, 100)
        index_file.mapped_file.slice_byte_buffer()[:HEADER.size] = HEADER.pack(*counters)
        index_file.load()
        taken = 0 if counters[-1] == 500 else 1
        assert index_file.put_key_rows(KEY.pack(7, 8, 9, 0), 0) == taken
        assert index_file.put_keys(["a", "b"], 9, 9) == 2 * taken
        index_file.destroy(0)


def test_damaged_light_queue_is_rebuilt_from_the_log(tmp_path):
    with open_store(tmp_path, **KEYS) as store:
        for number in range(25):
            assert store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a", body=b"%d" % number)).is_ok
        wait_dispatched(store)
    before = built(tmp_path)
    with open(max((tmp_path / "consumequeue" / "%LMQ%a" / "0").iterdir()), "r+b") as file:
        file.seek(20)
        file.write(bytes(20))
    reopen(tmp_path)
    assert_same(built(tmp_path), before)


@pytest.mark.parametrize("way", WAYS)
def test_queue_of_a_topic_with_invalid_utf8_is_rebuilt_from_the_log(tmp_path, monkeypatch, way):
    choose(monkeypatch, way)
    data = b""
    for number in range(12):
        topic = b"\2\xed\xa0" if number < 6 else b"\1T"
        data += layout.encode_record(layout.body_crc32(b"body"), 0, 0, number % 6, len(data), 0, 1, bytes(8), 2,
                                     bytes(8), 0, 0, b"body", topic, b"")
    with open_store(tmp_path, **KEYS) as store:
        assert store.append_to_commit_log(0, data, 0, len(data))
        wait_dispatched(store)
    before = built(tmp_path)
    queue, = (path for path in (tmp_path / "consumequeue").glob("*/0/*") if "T" not in path.parts)
    with open(queue, "r+b") as file:
        file.seek(80)
        file.write(bytes(40))
    reopen(tmp_path)
    assert_same(built(tmp_path), before)
