"""A flipped bit in the log: what recovery cuts off is kept where it may hold good messages, or the start is refused."""
import errno
import json
import os
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rmqha.common.message import message_decoder
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.store_files.dump import dump_command
from tests.store.support import FILE_SIZE, bodies, crash, message, new_store, open_store, put, tree, wait_dispatched

RECORDS = 50  # in three files


def body(number: int) -> bytes:
    return b"%03d" % number * 250


def write(root: Path, ending=None) -> list[tuple[int, int]]:
    """A store with RECORDS messages, closed or crashed; offset and size of each."""
    store = new_store(root)
    assert store.load()
    store.start()
    places = []
    for number in range(RECORDS):
        result = put(store, message(body=body(number)))[0]
        places.append((result.wrote_offset, result.wrote_bytes))
    wait_dispatched(store)
    (ending or type(store).shutdown)(store)
    return places


@pytest.fixture(scope="module", params=[None, crash], ids=["stopped", "crashed"])
def written(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("written") / "store"
    places = write(root, request.param)
    assert [offset // FILE_SIZE for offset, _size in places[::RECORDS - 1]] == [0, 2]
    return SimpleNamespace(root=root, places=places, was_stopped=request.param is None)


@pytest.fixture
def root(written, tmp_path):
    return Path(shutil.copytree(written.root, tmp_path / "store"))


def flip(root: Path, offset: int, bit: int = 0) -> None:
    path = root / "commitlog" / f"{offset // FILE_SIZE * FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[offset % FILE_SIZE] ^= 1 << bit
    path.write_bytes(data)


def kept_in(root: Path) -> list[Path]:
    return sorted((root / "diverged").iterdir()) if (root / "diverged").exists() else []


def messages_of(path: Path) -> list[bytes]:
    """The bodies that `store dump` finds in a kept file."""
    run = CliRunner().invoke(dump_command, [str(path), "-o", "json"])
    return [json.loads(line)["body"].encode() for line in run.stdout.splitlines() if '"body"' in line]


@pytest.mark.parametrize("place", ["body", "body length", "magic code", "size", "physical offset"])
@pytest.mark.parametrize("from_end", [9, 2, 1])
def test_rest_behind_a_flipped_bit_of_the_last_file_is_kept(written, root, place, from_end, caplog):
    at = {"size": 2, "magic code": 5, "physical offset": 34, "body length": 86, "body": 100}[place]
    bad, size = written.places[-from_end]
    flip(root, bad + at, 3)
    log_file = root / "commitlog" / f"{bad // FILE_SIZE * FILE_SIZE:020d}"
    rest = log_file.read_bytes()[bad % FILE_SIZE:]
    with open_store(root) as store:
        wait_dispatched(store)
        assert bodies(store) == [body(number) for number in range(RECORDS - from_end)]
        assert store.get_max_phy_offset() == bad
    kept = kept_in(root)
    if not written.was_stopped and from_end == 1:
        assert not kept, "the torn tail of a crash"
        return
    assert [path.name[:21] for path in kept] == [f"{bad:020d}.", f"{bad + size:020d}."][:from_end]
    data = b"".join(path.read_bytes() for path in kept)
    assert data == rest[:len(data)] and not any(rest[len(data):])
    if from_end > 1:
        assert messages_of(kept[1]) == [body(number) for number in range(RECORDS - from_end + 1, RECORDS)]
    said = [record for record in caplog.records if str(kept[0]) in record.getMessage()]
    assert [record.levelname for record in said] == ["ERROR"] and "store dump" in said[0].getMessage()
    assert (f"the first at {bad + size}" in said[0].getMessage()) == (from_end > 1)


def test_flipped_bit_of_an_earlier_file_is_refused_as_ever_or_lay_where_nobody_looks(written, root):
    bad, _size = written.places[3]
    flip(root, bad + 100)
    before = tree(root / "commitlog")
    store = new_store(root)
    loaded = store.load()
    store.shutdown()
    assert not loaded or not written.was_stopped
    assert tree(root / "commitlog") == before and not kept_in(root)


def test_later_files_that_were_never_flushed_are_kept_whole(tmp_path):
    """A crash may bring later files to the disk before an earlier one; what was not flushed is cut off."""
    root = tmp_path / "store"
    store = new_store(root, flushIntervalCommitLog=600_000, flushIntervalConsumeQueue=600_000)
    assert store.load()
    store.start()
    store.commit_log.flush_commit_log_service.flush = lambda _pages: True  # until the crash nothing is flushed
    places = []
    for number in range(RECORDS):
        result = put(store, message(body=body(number)))[0]
        places.append((result.wrote_offset, result.wrote_bytes))
    wait_dispatched(store)
    log = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
    positions = (root / "checkpoint.positions").read_bytes()
    crash(store)
    (root / "checkpoint.positions").write_bytes(positions)
    for name, data in log.items():
        (root / "commitlog" / name).write_bytes(data)
    flip(root, places[5][0] + 100)
    with open_store(root) as again:
        wait_dispatched(again)
        assert bodies(again) == [body(number) for number in range(5)]
    bad, *kept = kept_in(root)
    assert bad.stat().st_size == places[5][1] and len(kept) == 3
    assert [each for path in kept for each in messages_of(path)] == [body(number) for number in range(6, RECORDS)]


@pytest.mark.parametrize("how", ["statvfs", "write"])
def test_start_is_refused_when_there_is_no_room_for_the_rest(written, root, monkeypatch, caplog, how):
    flip(root, written.places[-5][0] + 100)
    before = {name: data for name, data in tree(root).items() if name.startswith(("commitlog", "consumequeue"))}
    with monkeypatch.context() as patched:
        if how == "statvfs":
            patched.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=0, f_frsize=4096))
        else:
            def full(fd):
                if ".rest.part" in os.readlink(f"/proc/self/fd/{fd}"):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            patched.setattr(os, "fsync", full)
        store = new_store(root)
        assert not store.load()
        store.shutdown()
    assert "can't be kept" in caplog.text and "No space left on device" in caplog.text and "Make room" in caplog.text
    after = tree(root)
    assert {name: after[name] for name in before if name.startswith("commitlog")} == \
        {name: data for name, data in before.items() if name.startswith("commitlog")}
    assert not kept_in(root)
    with open_store(root) as store:  # with room again
        assert len(bodies(store)) == RECORDS - 5
    assert len(kept_in(root)) == 2


def test_second_start_keeps_nothing_again(written, root):
    flip(root, written.places[-5][0] + 100)
    for _ in range(3):
        with open_store(root) as store:
            assert len(bodies(store)) == RECORDS - 5
    assert len(kept_in(root)) == 2


def test_store_without_a_flaw_keeps_nothing(written, root):
    with open_store(root) as store:
        assert len(bodies(store)) == RECORDS
    assert not kept_in(root)


def test_torn_tail_of_a_crash_is_cut_off_as_ever(tmp_path):
    root = tmp_path / "store"
    places = write(root, crash)
    path = root / "commitlog" / f"{places[-1][0] // FILE_SIZE * FILE_SIZE:020d}"
    data = path.read_bytes()
    at, size = places[-1][0] % FILE_SIZE, places[-1][1]
    path.write_bytes(data[:at + size // 2] + bytes(FILE_SIZE - at - size // 2))
    with open_store(root) as store:
        assert len(bodies(store)) == RECORDS - 1
    assert not kept_in(root)


@pytest.mark.parametrize("part", [1, 3, 5, 30, 100])
def test_slave_that_was_stopped_in_the_middle_of_a_record_keeps_nothing(tmp_path, part):
    places = write(tmp_path / "master")
    data = (tmp_path / "master" / "commitlog" / f"{0:020d}").read_bytes()
    end = places[3][0]
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.append_to_commit_log(0, data, 0, end + part)
    with open_store(tmp_path / "slave", brokerRole=BrokerRole.SLAVE) as slave:
        assert slave.get_max_phy_offset() == end
    assert not kept_in(tmp_path / "slave")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_cut_off_behind_a_drawn_flip_is_in_the_kept_file(written, root, seed):
    draw = random.Random(seed)
    first = next(offset for offset, _size in written.places if offset >= 2 * FILE_SIZE)
    end = sum(written.places[-1])
    at = draw.randrange(first, end)
    flip(root, at, draw.randrange(8))
    log = (root / "commitlog" / f"{first // FILE_SIZE * FILE_SIZE:020d}").read_bytes()
    with open_store(root) as store:
        wait_dispatched(store)
        cut = store.get_max_phy_offset()
    if cut == end:  # a bit that no check covers
        return
    kept = kept_in(root)
    if not kept:
        assert not written.was_stopped and cut == written.places[-1][0]
        return
    data = b"".join(path.read_bytes() for path in kept)
    assert data[:end - cut] == log[cut % FILE_SIZE:][:end - cut]


def test_decoder_reads_what_was_kept(written, root):
    """Each whole record of a kept file says where it lay."""
    bad, size = written.places[-4]
    flip(root, bad + 100)
    with open_store(root):
        pass
    decoded = message_decoder.decode(memoryview(kept_in(root)[1].read_bytes()), True, False)
    assert decoded.body == body(RECORDS - 3) and decoded.commit_log_offset == bad + size
