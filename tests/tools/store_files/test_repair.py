"""store repair: damaged records of a stopped slave, taken from a running master of ours."""
import json
import random
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.common.protocol import request_code
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.replication import log_match
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.store_files import reading
from rmqha.tools.store_files import repair as repair_plan
from tests.broker.support import running_broker
from tests.support import store_compare
from tests.support.wait import wait_until
from tests.tools.check.test_check_deep import FILE, KEPT, filled_cluster, flipped, records
from tests.tools.conftest import broker_at

BLANK_MAGIC = bytes.fromhex("cbd43194")


class Pair:
    """A running master, and the store of its slave as it was when it was stopped."""

    def __init__(self, cluster, slave_store: Path) -> None:
        self.master = cluster.master
        self.records = records(cluster)
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
    """Shown first, and nothing written; then written, the old bytes kept, the logs equal, the store clean."""
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


def test_an_undamaged_slave_is_equal(run, repair, pair, root):
    for options in ((), ("--apply",)):
        code, found = repair(root, *options)
        assert (code, found["damaged"], found["begin"], found["end"]) == (0, [], 0, pair.end)
    assert not (root / "diverged").exists() and log_of(root, pair.end) == pair.log
    code, out, _err = run("repair", root, "--master", pair.master.address)
    assert code == 0 and "0 records differ" in out


PARTS = {"body": 90, "topic": -40, "properties": -2, "size": 2, "magic": 5, "place": 33, "CRC": 9, "queue": 15,
         "zeroed": None}


def damage(root, pair, number, part) -> int:
    """Damage a part of a record; where the record begins."""
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
def test_one_damaged_record_is_repaired(run, repair, pair, root, number, part):
    number %= len(pair.records)
    if part == "zeroed" and number == len(pair.records) - 1:
        part = "magic"  # without a trace of its last record the log is a shorter one: see below
    offset = damage(root, pair, number, part)
    found = assert_repaired(run, repair, pair, root, [offset])
    assert bool(found["rebuilt"]) == (found["damaged"][0]["what"] != ["body"])


@pytest.mark.parametrize("seed", range(12))
def test_drawn_damages_are_repaired(run, repair, pair, root, seed, monkeypatch):
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


def test_a_log_that_has_lost_its_end_is_made_clean_and_fetches_it_at_the_next_start(run, repair, pair, root):
    offset = damage(root, pair, len(pair.records) - 1, "zeroed")
    assert not is_clean(run, root)
    code, found = repair(root, "--apply")
    assert (code, found["damaged"], found["end"], found["clean"]) == (0, [], offset, True)
    assert is_clean(run, root)


def test_the_last_records_are_repaired_though_none_has_a_head(run, repair, pair, root):
    last = len(pair.records) - 1
    damages = ((last - 2, "zeroed"), (last - 1, "magic"), (last, "size"))
    assert_repaired(run, repair, pair, root, [damage(root, pair, number, part) for number, part in damages])


def test_records_left_out_of_the_queues_come_back(run, repair, pair, root):
    """What a slave's dispatch does with properties and heads that it can't read."""
    offsets = [damage(root, pair, number, part) for number, part in ((4, "properties"), (9, "queue"), (30, "zeroed"))]
    assert run("rebuild", root, "--apply", "--force", "--skip-damage")[0] in (0, 1)
    found = assert_repaired(run, repair, pair, root, offsets)
    assert any("consumequeue: written" in line for line in found["rebuilt"])


def test_queues_are_built_again_though_only_a_body_differs(run, repair, pair, root):
    shutil.rmtree(root / "consumequeue" / "Topic1" / "0")
    found = assert_repaired(run, repair, pair, root, [damage(root, pair, 13, "body")])
    assert found["damaged"][0]["what"] == ["body"] and found["rebuilt"]


def test_a_repair_that_was_broken_off_is_finished_by_the_next(run, repair, pair, root):
    shutil.rmtree(root / "consumequeue" / "Topic1")  # as if it had ended between log and queues
    assert not is_clean(run, root)
    assert repair(root, "--apply")[0] == 0 and is_clean(run, root)


def test_the_blank_of_a_file_is_repaired_and_its_rest_left(run, repair, pair, root):
    ends = [offset + size for offset, size in pair.records]
    blank = next(end for end in ends if end % FILE and pair.log[end + 4:end + 8] == BLANK_MAGIC)
    flip(root, blank + 5)
    assert_repaired(run, repair, pair, root, [blank])
    rest = blank - blank % FILE + FILE - 1
    assert rest > blank + 8
    flip(root, rest)
    code, found = repair(root, "--apply")
    assert (code, found["damaged"], found["unreadRestsThatDiffer"]) == (0, [], 1)


def test_a_file_that_was_cut_off_gets_its_end_back(run, repair, pair, root):
    offset, size = pair.records[10]
    path = root / "commitlog" / f"{offset - offset % FILE:020d}"
    with path.open("r+b") as file:
        file.truncate(offset % FILE + size // 2)
    code, found = repair(root, "--apply")
    assert code == 0 and found["damaged"][0]["offset"] == offset
    assert log_of(root, pair.end)[offset:offset + size] == pair.log[offset:offset + size] and is_clean(run, root)


@pytest.mark.parametrize("part", ["body", "magic"])
def test_nothing_is_written_when_the_masters_own_record_is_bad(run, repair, pair, root, part):
    offset, _size = pair.records[15]
    damage(root, pair, 3, "body")
    before = log_of(root, pair.end)

    class Cluster:
        master = pair.master
    with flipped(Cluster.master, offset + PARTS[part]):
        code, found = repair(root, "--apply")
        assert code == 1 and found["written"] == 0 and log_of(root, pair.end) == before
        assert f"has a bad copy of the record at {offset} itself" in found["problems"][0]
        assert "This store's copy is good: make this slave the master" in found["problems"][0]
        flip(root, offset + 91)
        assert "not good either: look for a third replica" in repair(root)[1]["problems"][0]
        flip(root, offset + 91)
    assert_repaired(run, repair, pair, root, [pair.records[3][0]])


def test_a_running_store_is_not_touched(run, pair, root):
    with reading.held(str(root / "lock")):
        code, out, err = run("repair", root, "--master", pair.master.address, "--apply")
    assert code == 2 and "a broker runs on this store" in err and not out


def test_a_file_that_is_missing_cannot_be_repaired(repair, root):
    (root / "commitlog" / f"{FILE:020d}").unlink()
    code, found = repair(root, "--apply")
    assert code == 1 and f"there is no file from offset {FILE} to {2 * FILE}. Set the slave up again" in (
        found["problems"][0])


def test_the_store_of_another_master_is_refused(run, pair, root, tmp_path):
    with running_broker(tmp_path / "other", mappedFileSizeCommitLog=FILE, maxMessageSize=FILE, **KEPT) as other:
        for number in range(200):
            assert other.send("T", bytes([number]) * 5000).code == 0
        code, _out, err = run("repair", root, "--master", other.address, "--apply")
    assert code == 2 and "it is another log, or has diverged, and is not damaged" in err
    assert log_of(root, pair.end) == pair.log


@contextmanager
def master_without_first_file(root, folder):
    """A master whose log begins with the second file of the store at `root`."""
    store = Path(shutil.copytree(root, folder / "store"))
    (store / "commitlog" / f"{0:020d}").unlink()
    with running_broker(folder, mappedFileSizeCommitLog=FILE, maxMessageSize=FILE, **KEPT) as master:
        yield master


def test_damage_that_no_master_holds_any_more_is_named(run, pair, root, tmp_path):
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
        assert code == 1 and "no master has them any more: set the slave up again" in out


def test_logs_without_anything_in_common_are_named(run, pair, root, tmp_path):
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


def test_a_master_that_gives_no_checksums_is_read_through_its_ha_port(run, repair, pair, root, monkeypatch):
    handlers = pair.master.controller.remoting_server.default_request_processor.processor._handlers
    monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)
    offsets = [damage(root, pair, number, part) for number, part in ((0, "size"), (7, "body"), (40, "properties"))]
    assert_repaired(run, repair, pair, root, offsets)


def test_records_are_those_of_the_tests_own_reader(pair):
    assert [(each.offset, each.size) for each in store_compare.walk(pair.slave_store / "commitlog")] == pair.records


def test_runs_are_what_lies_on_end():
    def at(offset, size):
        return repair_plan.Damaged(offset, size, "T", 0, 0, ("body",), "")
    assert list(repair_plan.runs_of([at(5, 5), at(10, 1), at(12, 3), at(15, 1)])) == [(5, 11), (12, 16)]
    assert list(repair_plan.runs_of([])) == []


def test_what_a_slave_has_found_itself_is_forgotten_once_it_is_repaired(run, tmp_path):
    def check():
        return CliRunner().invoke(rmqha, ["check", "ha", "-n", cluster.namesrv])
    with filled_cluster(tmp_path, haScrubEnable=True, haScrubPromise=20_000) as cluster:
        offset, root = records(cluster)[9][0], tmp_path / "slave" / "store"
        flip(root, offset + 90)
        wait_until(lambda: f"the first at offset {offset}" in check().output, 300_000, "the slave finds it")
        cluster.slave.controller.shutdown()
        code, out, _err = run("repair", root, "--master", cluster.master.address, "--apply")
        assert code == 0 and "1 record differs; 1 taken from the master; the store is clean" in out
        config = cluster.slave.controller.message_store_config
        with broker_at(tmp_path / "slave", cluster.namesrv, brokerClusterName="C", brokerRole=BrokerRole.SLAVE,
                       brokerId=1, haMasterAddress=config.haMasterAddress, mappedFileSizeCommitLog=FILE,
                       maxMessageSize=FILE, **KEPT):
            wait_until(lambda: check().exit_code == 0, 300_000, "all is well again")
