"""`store rebuild` and `store repair`: the files that they write from the broker's log or the master's; and the
nightly backup script."""
import json
import random
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rmqha.common.protocol import request_code
from rmqha.store.index.index_file import Shape
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.replication import log_match
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.store_files import builders, reading, rebuild
from rmqha.tools.store_files import repair as repair_plan
from rmqha.tools.store_files.readers import IndexReader, StoreReader
from tests.broker.support import running_broker
from tests.store.support import describe, message, open_store, put, tree, wait_dispatched
from tests.support import store_compare
from tests.support.wait import wait_until
from tests.tools.check.test_check_ha import FILE, KEPT, filled_cluster, flipped
from tests.tools.check.test_check_ha import records as repair_records
from tests.tools.conftest import broker_at
from tests.tools.store_files.test_verify import damage_index_slot, damage_unit_tags, place, poke, records

# `store rebuild` writes the broker's files byte for byte.

STORES = ["own", "crashed", "normal", "kill"]


def part(root, folder):
    """Return path -> bytes of a folder."""
    return {path: data for path, data in tree(root).items() if path.startswith(f"{folder}/")}


def index(root):
    """Return the bytes of the index files that have entries, in order; their names are times."""
    return [data for _, data in sorted(part(root, "index").items()) if data[36:40] != bytes(4)]


@pytest.mark.parametrize("name", STORES)
def test_dry_run_finds_existing_files_equal_and_writes_nothing(run_json, copy, name):
    root = copy(name)
    before = tree(root)
    code, found = run_json("rebuild", root)
    assert (code, found["equal"], found["problems"]) == (0, True, [])
    assert found["records"] == len(records(root)) and found["index"]
    assert tree(root) == before


@pytest.mark.parametrize("small", [20, 1 << 16])
@pytest.mark.parametrize("name", STORES)
def test_written_files_are_byte_identical(run, copy, tmp_path, monkeypatch, name, small):
    monkeypatch.setattr(rebuild, "_MAX_BUFFER", small)
    monkeypatch.setattr(builders, "_WINDOW", small // 20)
    monkeypatch.setattr(builders, "_ROWS_AT_ONCE", small)
    root = copy(name)
    assert run("rebuild", root, "--apply", "--out", tmp_path / "out")[0] == 0
    assert part(tmp_path / "out", "consumequeue") == part(root, "consumequeue")
    assert index(tmp_path / "out") == index(root)
    assert {path.split("/")[0] for path in tree(tmp_path / "out")} == {"consumequeue", "index"}


def test_lost_queues_and_index_are_restored_in_place(run, copy):
    root = copy("normal")
    before = part(root, "consumequeue"), index(root)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    assert run("rebuild", root, "--index-slots", 50, "--index-entries", 200, "--consume-queue-file-size", 1000)[0] == 1
    code, _, _ = run("rebuild", root, "--apply", "--index-slots", 50, "--index-entries", 200,
                     "--consume-queue-file-size", 1000)
    assert code == 0 and (part(root, "consumequeue"), index(root)) == before
    assert run("verify", root)[0] == 0
    with open_store(root) as store:
        assert len(describe(store)) > 200


@pytest.mark.parametrize("with_marks", [True, False], ids=["with marks", "without"])
def test_recreated_topic_contains_only_later_messages(run, tmp_path, with_marks):
    root = tmp_path / "store"
    with open_store(root) as store:
        for generation in range(3):
            put(store, *[message(queue_id=number % 2, KEYS=f"k{number}") for number in range(80 - 30 * generation)])
            put(store, message("O"))
            if generation < 2:
                store.delete_topic("T")
        wait_dispatched(store)
        if with_marks:
            put(store, message("Gone"))
            store.delete_topic("Gone")
    before = part(root, "consumequeue")
    if not with_marks:
        (root / "config" / "deletedTopics.json").unlink()
    assert run("rebuild", root)[0] == 0
    assert run("verify", root)[0] == (0 if with_marks else 1)  # 4.9 has no marks, and its tools see a flaw
    assert run("rebuild", root, "--apply", "--force")[0] == 0
    assert part(root, "consumequeue") == before


def test_index_damaged_to_zero_does_not_restart_a_queue():
    built = bytearray()
    sink = SimpleNamespace(units=lambda index, data: built.extend(data), finish=lambda end: None,
                           begin_anew=built.clear)
    builder = builders.QueueBuilder(sink, 200, 20, max_gap=10)
    told = [builder.put(index, bytes([number]) * 20) for number, index in enumerate((0, 1, 2, 0, 4, 5))]
    builder.finish()
    assert bytes(built[::20]) == bytes(range(6)) and builder.units == builder.next_index == 6
    assert [number for number, problem in enumerate(told) if problem] == [4]


def test_existing_files_are_kept_unless_forced_and_then_moved_aside(run, copy):
    root = copy("own")
    file, _, _ = damage_unit_tags(root)
    before = tree(root)
    code, _, err = run("rebuild", root, "--apply")
    assert code == 2 and "--force" in err and tree(root) == before
    code, out, _ = run("rebuild", root, "--apply", "--force")
    assert code == 0 and run("verify", root)[0] == 0
    aside = [path for path in root.iterdir() if ".before-" in path.name]
    assert len(aside) == 2 and all(str(path) in out for path in aside)
    assert (next(path for path in aside if path.name.startswith("consume")) / file.relative_to(root / "consumequeue")
            ).read_bytes() == before[str(file.relative_to(root))]


def test_running_broker_is_refused(run, tmp_path):
    root = tmp_path / "s"
    with open_store(root) as store:
        put(store, *(message(KEYS="k") for _ in range(5)))
        wait_dispatched(store)
        for arguments in (["--apply"], ["--apply", "--force"], ["--apply", "--force", "--out", root]):
            code, _, err = run("rebuild", root, *arguments)
            assert code == 2 and "broker runs" in err
        assert run("rebuild", root, "--apply", "--out", tmp_path / "out")[0] == 0
        assert part(tmp_path / "out", "consumequeue") == part(root, "consumequeue")
        put(store, message())


@pytest.mark.parametrize("damage, words", [(damage_unit_tags, "different from index 1"),
                                           (damage_index_slot, "different in the slots")])
def test_dry_run_reports_differences(run, copy, damage, words):
    root = copy("own")
    damage(root)
    code, out, _ = run("rebuild", root)
    assert code == 1 and words in out and "--apply" in out


def test_damaged_log_is_refused_without_skip_damage(run, run_json, copy, tmp_path):
    root = copy("own")
    record = next(each for each in records(root)[20:] if each.topic == "TopicA" and not each.sys_flag & 0xC)
    poke(place(root, record)[0], place(root, record)[1] + 4, bytes(4))
    code, _, err = run("rebuild", root)
    assert code == 2 and "--skip-damage" in err
    code, found = run_json("rebuild", root, "--skip-damage", "--apply", "--out", tmp_path / "out")
    # The damaged place, and the missing index of a queue.
    assert code == 1 and len(found["problems"]) == 2
    old, new = part(root, "consumequeue"), part(tmp_path / "out", "consumequeue")
    assert old.keys() == new.keys()
    assert sum(old[path] != new[path] for path in old) == 1


def test_topic_name_cannot_escape_the_folder(copy, tmp_path):
    from rmqha.tools.terminal import CannotAnswerError
    work = rebuild.Rebuild(StoreReader(str(copy("own"))), str(tmp_path / "out"))
    for topic in ("..", "a/b", ""):
        with pytest.raises(CannotAnswerError):
            work._queue_sink((topic, 0))


class Collected:
    """A sink that keeps everything."""

    def __init__(self):
        self.data = {}
        self.end = None

    def units(self, index, data):
        """Record units."""
        for at in range(0, len(data), 20):
            self.data[index + at // 20] = data[at:at + 20]

    def finish(self, end_index):
        """Record the end."""
        self.end = end_index


def test_gaps_between_indices_are_filled_with_blanks_and_absurd_ones_left_out():
    sink = Collected()
    builder = builders.QueueBuilder(sink, 200, 40, max_gap=10)
    unit = bytes(range(20))
    assert builder.put(-3, unit) is not None
    assert builder.put(12, unit) is None
    assert builder.put(13, unit) is None
    assert "follows" in builder.put(16, unit)
    assert "skipped" in builder.put(5, unit)
    assert "skipped" in builder.put(1 << 60, unit)
    builder.finish()
    assert sorted(sink.data) == [10, 11, 12, 13, 14, 15, 16] and sink.end == 17
    assert [index for index, data in sorted(sink.data.items()) if data == unit] == [12, 13, 16]
    assert builder.files == 1


@pytest.mark.parametrize("count", [1, 2, 3, 150, 400])
@pytest.mark.parametrize("slots, entries", [(50, 200), (500, 401), (3, 30), (1000, 100)])
def test_shape_of_any_index_file_is_detected(tmp_path, slots, entries, count):
    shape, path = Shape(slots, entries), tmp_path / "1"
    written = []

    def open_sink():
        path.unlink(missing_ok=True)
        written.append(builders.IndexWriter(str(path), shape))
        return written[-1]

    builder = builders.IndexBuilder(shape, open_sink)
    for number in range(count):  # three keys of each record, as usual
        builder.put(f"T#{number}", number // 3 * 100, 1000 + number)
    builder.finish()
    reader = IndexReader(str(path), path.stat().st_size)
    assert reader.shape == shape


def test_shape_of_a_brokers_index_files_is_detected(copy):
    for name in ("own", "normal", "kill"):
        shapes = {reader.shape for reader in StoreReader(str(copy(name))).index_files()[0] if not reader.is_empty}
        assert shapes == {(50, 200)}


# `store repair`: damaged records of a stopped slave, copied from a running rmqha master.

BLANK_MAGIC = bytes.fromhex("cbd43194")


class Pair:
    """A running master, and the store of its slave as it was when the slave was stopped."""

    def __init__(self, cluster, slave_store: Path) -> None:
        self.master = cluster.master
        self.records = repair_records(cluster)
        self.slave_store = slave_store
        self.end = cluster.master.store.get_max_phy_offset()
        self.log = cluster.log()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repair")
    with filled_cluster(folder) as cluster:
        cluster.slave.controller.shutdown()
        yield Pair(cluster, folder / "slave" / "store")


@pytest.fixture
def root(pair, tmp_path):
    """A copy of the slave's store."""
    return Path(shutil.copytree(pair.slave_store, tmp_path / "slave"))


@pytest.fixture
def repair(pair, run):
    """repair(root, *options) -> (exit code, the object)."""
    def invoke(root, *options):
        code, out, err = run("repair", root, "--master", pair.master.address, "-o", "json", *options)
        assert out, err
        return code, json.loads(out)
    return invoke


def log_of(root, end) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((root / "commitlog").iterdir()))[:end]


def change(root, offset, data) -> None:
    path = root / "commitlog" / f"{offset - offset % FILE:020d}"
    with path.open("r+b") as file:
        file.seek(offset % FILE)
        file.write(data)


def flip(root, offset) -> None:
    path = root / "commitlog" / f"{offset - offset % FILE:020d}"
    change(root, offset, bytes([path.read_bytes()[offset % FILE] ^ 0x5A]))


def is_clean(run, root) -> bool:
    return run("verify", root, "--all")[0] == 0


def assert_repaired(run, repair, pair, root, offsets):
    """Assert that a dry run reports the records and writes nothing; that --apply then keeps the old bytes, makes the
    logs equal and the store clean."""
    before = log_of(root, pair.end)
    code, found = repair(root)
    assert code == 1 and [each["offset"] for each in found["damaged"]] == sorted(offsets), found
    assert log_of(root, pair.end) == before and found["written"] == 0
    code, found = repair(root, "--apply")
    assert (code, found["written"], found["clean"], found["problems"]) == (0, len(offsets), True, []), found
    assert log_of(root, pair.end) == pair.log and is_clean(run, root)
    kept = {int(Path(path).name.split(".")[0]): Path(path).read_bytes() for path in found["kept"]}
    assert all(before[offset:offset + len(data)] == data for offset, data in kept.items())
    sizes = dict(pair.records)
    covered = {offset for offset in offsets if offset in sizes and any(
        begin <= offset and offset + sizes[offset] <= begin + len(data) for begin, data in kept.items())}
    assert covered == {offset for offset in offsets if offset in sizes}
    assert repair(root, "--apply")[0] == 0 and repair(root)[1]["damaged"] == []
    return found


def test_undamaged_slave_is_equal(run, repair, pair, root):
    for options in ((), ("--apply",)):
        code, found = repair(root, *options)
        assert (code, found["damaged"], found["begin"], found["end"]) == (0, [], 0, pair.end)
    assert not (root / "diverged").exists() and log_of(root, pair.end) == pair.log
    code, out, _err = run("repair", root, "--master", pair.master.address)
    assert code == 0 and "0 records differ" in out


PARTS = {"body": 90, "topic": -40, "properties": -2, "size": 2, "magic": 5, "place": 33, "CRC": 9, "queue": 15,
         "zeroed": None}


def damage(root, pair, number, part) -> int:
    """Damage a part of a record; return the record's offset."""
    offset, size = pair.records[number]
    if part == "zeroed":
        change(root, offset, bytes(size))
    elif part == "topic":
        topic = b"Topic" if number % len(pair.records) < 60 else b"\x01T\0"
        change(root, offset + pair.log[offset:offset + size].index(topic) + 1, b"\x7f")
    else:
        flip(root, offset + PARTS[part] % size)
    return offset


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("number", [0, 20, -2, -1])
def test_single_damaged_record_is_repaired(run, repair, pair, root, number, part):
    number %= len(pair.records)
    if part == "zeroed" and number == len(pair.records) - 1:
        # Without a trace of its last record the log is merely shorter: see below.
        part = "magic"
    offset = damage(root, pair, number, part)
    found = assert_repaired(run, repair, pair, root, [offset])
    assert bool(found["rebuilt"]) == (found["damaged"][0]["what"] != ["body"])


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_is_repaired(run, repair, pair, root, seed, monkeypatch):
    draw = random.Random(seed)
    monkeypatch.setattr(log_match, "BLOCK", draw.choice((100, 5000, 64 << 10)))
    first_of_files = [number for number, (offset, _size) in enumerate(pair.records) if offset % FILE == 0]
    last_of_files = [number - 1 for number in first_of_files if number]
    numbers = {draw.choice((draw.randrange(len(pair.records)), draw.choice(first_of_files), draw.choice(last_of_files)))
               for _ in range(draw.randint(1, 12))}
    last = len(pair.records) - 1
    offsets = [damage(root, pair, number, draw.choice([part for part in PARTS if number < last or part != "zeroed"]))
               for number in numbers]
    assert_repaired(run, repair, pair, root, offsets)


def test_log_that_has_lost_its_end_is_cleaned_and_fetches_it_at_the_next_start(run, repair, pair, root):
    offset = damage(root, pair, len(pair.records) - 1, "zeroed")
    assert not is_clean(run, root)
    code, found = repair(root, "--apply")
    assert (code, found["damaged"], found["end"], found["clean"]) == (0, [], offset, True)
    assert is_clean(run, root)


def test_last_records_are_repaired_though_none_has_a_valid_head(run, repair, pair, root):
    last = len(pair.records) - 1
    damages = ((last - 2, "zeroed"), (last - 1, "magic"), (last, "size"))
    assert_repaired(run, repair, pair, root, [damage(root, pair, number, part) for number, part in damages])


def test_records_missing_in_the_queues_are_restored(run, repair, pair, root):
    """Rebuild the queues without the damaged records first, as a slave's dispatch leaves them out."""
    offsets = [damage(root, pair, number, part) for number, part in ((4, "properties"), (9, "queue"), (30, "zeroed"))]
    assert run("rebuild", root, "--apply", "--force", "--skip-damage")[0] in (0, 1)
    found = assert_repaired(run, repair, pair, root, offsets)
    assert any("consumequeue: written" in line for line in found["rebuilt"])


def test_queues_are_rebuilt_even_if_only_a_body_differs(run, repair, pair, root):
    shutil.rmtree(root / "consumequeue" / "Topic1" / "0")
    found = assert_repaired(run, repair, pair, root, [damage(root, pair, 13, "body")])
    assert found["damaged"][0]["what"] == ["body"] and found["rebuilt"]


def test_interrupted_repair_is_finished_by_the_next(run, repair, pair, root):
    # As if it had ended between log and queues.
    shutil.rmtree(root / "consumequeue" / "Topic1")
    assert not is_clean(run, root)
    assert repair(root, "--apply")[0] == 0 and is_clean(run, root)


def test_blank_of_a_file_is_repaired_and_the_bytes_after_it_left(run, repair, pair, root):
    ends = [offset + size for offset, size in pair.records]
    blank = next(end for end in ends if end % FILE and pair.log[end + 4:end + 8] == BLANK_MAGIC)
    flip(root, blank + 5)
    assert_repaired(run, repair, pair, root, [blank])
    rest = blank - blank % FILE + FILE - 1
    assert rest > blank + 8
    flip(root, rest)
    code, found = repair(root, "--apply")
    assert (code, found["damaged"], found["unreadRestsThatDiffer"]) == (0, [], 1)


def test_truncated_file_gets_its_end_back(run, repair, pair, root):
    offset, size = pair.records[10]
    path = root / "commitlog" / f"{offset - offset % FILE:020d}"
    with path.open("r+b") as file:
        file.truncate(offset % FILE + size // 2)
    code, found = repair(root, "--apply")
    assert code == 0 and found["damaged"][0]["offset"] == offset
    assert log_of(root, pair.end)[offset:offset + size] == pair.log[offset:offset + size] and is_clean(run, root)


@pytest.mark.parametrize("part", ["body", "magic"])
def test_nothing_is_written_when_the_masters_own_record_is_damaged(run, repair, pair, root, part):
    offset, _size = pair.records[15]
    damage(root, pair, 3, "body")
    before = log_of(root, pair.end)

    class Cluster:
        master = pair.master
    with flipped(Cluster.master, offset + PARTS[part]):
        code, found = repair(root, "--apply")
        assert code == 1 and found["written"] == 0 and log_of(root, pair.end) == before
        assert f"itself has a damaged copy of the record at {offset}" in found["problems"][0]
        assert "This store's copy is good: make this slave the master" in found["problems"][0]
        flip(root, offset + 91)
        assert "damaged too: look for a third replica" in repair(root)[1]["problems"][0]
        flip(root, offset + 91)
    assert_repaired(run, repair, pair, root, [pair.records[3][0]])


def test_running_store_is_not_changed(run, pair, root):
    with reading.held(str(root / "lock")):
        code, out, err = run("repair", root, "--master", pair.master.address, "--apply")
    assert code == 2 and "a broker runs on this store" in err and not out


def test_missing_file_cannot_be_repaired(repair, root):
    (root / "commitlog" / f"{FILE:020d}").unlink()
    code, found = repair(root, "--apply")
    assert code == 1 and f"files are missing from offset {FILE} to {2 * FILE}. Set the slave up again" in (
        found["problems"][0])


def test_store_of_another_master_is_refused(run, pair, root, tmp_path):
    with running_broker(tmp_path / "other", mappedFileSizeCommitLog=FILE, maxMessageSize=FILE, **KEPT) as other:
        for number in range(200):
            assert other.send("T", bytes([number]) * 5000).code == 0
        code, _out, err = run("repair", root, "--master", other.address, "--apply")
    assert code == 2 and "it is another log, or has diverged; it is not damaged" in err
    assert log_of(root, pair.end) == pair.log


@contextmanager
def master_without_first_file(root, folder):
    """Yield a master whose log starts with the second file of the store at `root`."""
    store = Path(shutil.copytree(root, folder / "store"))
    (store / "commitlog" / f"{0:020d}").unlink()
    with running_broker(folder, mappedFileSizeCommitLog=FILE, maxMessageSize=FILE, **KEPT) as master:
        yield master


def test_damage_in_files_that_the_master_has_deleted_is_named(run, pair, root, tmp_path):
    with master_without_first_file(root, tmp_path / "master") as master:
        lost, _size = pair.records[2]
        repairable, _size = next(each for each in pair.records if each[0] >= FILE)
        for offset in (lost, repairable):
            flip(root, offset + 90)
        code, out, _err = run("repair", root, "--master", master.address, "--apply", "-o", "json")
        found = json.loads(out)
        assert (code, found["begin"], found["written"], found["clean"]) == (1, FILE, 1, False)
        assert [each["offset"] for each in found["damaged"]] == [repairable]
        assert len(found["lost"]) == 1 and f"record at {lost}, topic Topic2" in found["lost"][0]
        code, out, _err = run("repair", root, "--master", master.address)
        assert code == 1 and "no master holds these records any longer: set the slave up again" in out


def test_logs_without_a_common_range_are_refused(run, pair, root, tmp_path):
    with master_without_first_file(root, tmp_path / "master") as master:
        for file in sorted((root / "commitlog").iterdir())[1:]:
            file.unlink()
        before = log_of(root, pair.end)
        code, out, _err = run("repair", root, "--master", master.address, "--apply", "-o", "json")
        found = json.loads(out)
        assert log_of(root, pair.end) == before
        if found["problems"]:
            assert code == 1 and "nothing in common" in found["problems"][0]
        else:
            assert found["damaged"] == [] and found["begin"] == found["end"] == FILE


def test_master_without_checksums_is_read_through_its_ha_port(run, repair, pair, root, monkeypatch):
    handlers = pair.master.controller.remoting_server.default_request_processor.processor._handlers
    monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)
    offsets = [damage(root, pair, number, part) for number, part in ((0, "size"), (7, "body"), (40, "properties"))]
    assert_repaired(run, repair, pair, root, offsets)


def test_records_match_the_tests_own_reader(pair):
    assert [(each.offset, each.size) for each in store_compare.walk(pair.slave_store / "commitlog")] == pair.records


def test_runs_join_adjacent_damage():
    def at(offset, size):
        return repair_plan.Damaged(offset, size, "T", 0, 0, ("body",), "")
    assert list(repair_plan.runs_of([at(5, 5), at(10, 1), at(12, 3), at(15, 1)])) == [(5, 11), (12, 16)]
    assert list(repair_plan.runs_of([])) == []


def test_differences_recorded_by_a_slave_are_cleared_by_its_repair(run, tmp_path):
    def check():
        return CliRunner().invoke(rmqha, ["check", "ha", "-n", cluster.namesrv])
    with filled_cluster(tmp_path, haScrubEnable=True, haScrubPromise=20_000) as cluster:
        offset, root = repair_records(cluster)[9][0], tmp_path / "slave" / "store"
        flip(root, offset + 90)
        wait_until(lambda: f"the first at offset {offset}" in check().output, 300_000, "the slave finds it")
        cluster.slave.controller.shutdown()
        code, out, _err = run("repair", root, "--master", cluster.master.address, "--apply")
        assert code == 0 and "1 record differs; 1 replaced by the master's; the store is clean" in out
        config = cluster.slave.controller.message_store_config
        with broker_at(tmp_path / "slave", cluster.namesrv, brokerClusterName="C", brokerRole=BrokerRole.SLAVE,
                       brokerId=1, haMasterAddress=config.haMasterAddress, mappedFileSizeCommitLog=FILE,
                       maxMessageSize=FILE, **KEPT):
            wait_until(lambda: check().exit_code == 0, 300_000, "all is well again")


# The nightly script of docs/how-to/backup-and-restore.md, as the page has it, on consecutive nights.

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/how-to/backup-and-restore.md"
NIGHTS = 3


def nightly_script(master: str, root: Path, backup: Path) -> str:
    """Return the page's script, with the paths of this test."""
    section = PAGE.read_text("utf-8").split("\n## Every night\n")[1].split("\n## ")[0]
    (script,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    for told, real in (("bin/rmqha", f"{sys.executable} -m rmqha.tools.rmqha_command"), ("10.0.0.2:10912", master),
                       ("/backup/broker-a", str(backup)), ("/data/rocketmq", str(root))):
        assert told in script
        script = script.replace(told, real)
    return script


def test_pages_script_verifies_the_backup_each_night_and_leaves_nothing_of_the_previous_one(tmp_path):
    backup = tmp_path / "backup"
    with broker_at(tmp_path / "master", None) as master:
        address = f"127.0.0.1:{master.store.ha_service.ha_listen_port}"
        script = nightly_script(address, tmp_path / "master" / "store", backup)
        names = []
        for night in range(NIGHTS):
            for number in range(20):
                body = f"night {night}, {number}".encode()
                assert master.send("T", body, properties={"KEYS": f"k{night}-{number}"}).code in (0, 11)
            wait_dispatched(master.store)
            done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.rstrip().endswith("clean")
            assert f"{20 * (night + 1)} records" in done.stdout
            names.append(sorted(path.name for path in backup.iterdir()))
    assert names[0] == names[1] == names[2]
    assert {"commitlog", "config", "consumequeue", "index"} <= set(names[0])
    assert not [name for name in names[0] if "before" in name or "replaced" in name or "rebuild" in name]


def nightly_rebuild(root, *options):
    done = CliRunner().invoke(rmqha, ["store", "rebuild", str(root), *options])
    return done.exit_code, done.output


def test_replaced_files_are_deleted_only_after_the_new_ones_are_in_place(copy, monkeypatch):
    root = copy("normal")
    old = sorted(path.name for path in (root / "consumequeue").iterdir())
    (root / "consumequeue" / "Stale" / "0").mkdir(parents=True)
    leftover = root / "index.replaced"  # left by an interrupted rebuild
    leftover.mkdir()
    assert nightly_rebuild(root, "--apply", "--replace")[0] == 0
    assert sorted(path.name for path in (root / "consumequeue").iterdir()) == old
    assert not [path.name for path in root.iterdir() if re.search("replaced|rebuild|before", path.name)]


def test_replace_excludes_force_and_needs_apply(copy):
    root = copy("normal")
    assert nightly_rebuild(root, "--replace")[0] == 2
    code, text = nightly_rebuild(root, "--apply", "--force", "--replace")
    assert code == 2 and "exclude each other" in text
    code, text = nightly_rebuild(root, "--apply")
    assert code == 2 and "--replace" in text
