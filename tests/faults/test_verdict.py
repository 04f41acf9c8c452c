"""What the fault suite makes of an index that was given twice, and of a record that the original has torn."""
import shutil
from types import SimpleNamespace

import pytest

from tests.faults import verdict
from tests.faults.log_copy import LogCopy
from tests.faults.pair import Pair
from tests.faults.power import Power
from tests.store.support import message, open_store
from tests.support import store_compare


@pytest.fixture
def repeated(tmp_path):
    """The folder of a store whose log holds index 1 of a queue twice."""
    with open_store(tmp_path) as store:
        for index in (0, 1, 1, 2):
            store.commit_log.topic_queue_table["T-0"] = index
            assert store.put_message(message(body=b"%d" % index)).is_ok
    return tmp_path


def broker(kind, name, store):
    """As much of a Broker as is looked at."""
    log = store / "commitlog"
    return SimpleNamespace(kind=kind, base_name=name, store=store, commit_log=log,
                           log_end=lambda: store_compare.log_end(log))


@pytest.mark.parametrize(("master_kind", "after_power_loss", "flawed", "good"), [
    ("java", True, True, True), ("java", True, False, False), ("java", False, True, False),
    ("rmqha", True, False, False)])
def test_only_an_original_that_lost_units_gives_an_index_again(repeated, master_kind, after_power_loss, flawed, good):
    master, slave = broker(master_kind, "master", repeated), broker("rmqha", "slave", repeated)
    pair = SimpleNamespace(master=master, slave=slave, original_may_lose_units=after_power_loss,
                           flawed_queues=[master] if flawed else [],
                           copies={one.base_name: LogCopy(one.commit_log) for one in (master, slave)})
    if good:
        Pair._check_queues(pair, slave)
        assert pair.flawed_queues == [master, slave]
    else:
        with pytest.raises(verdict.Repeat, match="index 1 twice"):
            Pair._check_queues(pair, slave)


@pytest.mark.parametrize(("begin", "size", "torn"), [
    (-40, 40, True), (-1, 1, True), (-40, 20, True), (-500, 1, False), (-690, 690, False), (0, 0, False)], ids=str)
def test_only_lost_properties_are_holes(tmp_path, begin, size, torn):
    with open_store(tmp_path / "slave") as store:
        for _ in range(3):
            assert store.put_message(message(body=b"b" * 500, KEYS="k" * 100)).is_ok
        end = store.get_max_phy_offset()
    shutil.copytree(tmp_path / "slave", tmp_path / "master")
    with open(tmp_path / "master" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(end + begin)
        file.write(bytes(size))
    original, other = broker("java", "master", tmp_path / "master"), broker("rmqha", "slave", tmp_path / "slave")
    assert Power._keeps_holes(original, other, end) is torn


@pytest.mark.parametrize("is_written", [True, False])
def test_logs_are_compared_when_the_last_record_is_written(tmp_path, monkeypatch, is_written):
    for name in ("master", "slave"):
        with open_store(tmp_path / name) as store:
            assert store.put_message(message(body=bytes(range(1, 256)) * 6)).is_ok
    master, slave = (broker("rmqha", name, tmp_path / name) for name in ("master", "slave"))
    end = master.log_end()
    file = next(slave.commit_log.iterdir())
    whole = next(master.commit_log.iterdir()).read_bytes()
    file.write_bytes(whole[:end - 500] + bytes(len(whole) - end + 500))
    if not is_written:
        monkeypatch.setattr(verdict, "_WRITE_MS", 50)
        with pytest.raises(verdict.Violation, match=f"B: commit logs differ at offset {end - 500}"):
            verdict._equal_range(master, slave, end)
        return
    compare = store_compare.compare_commit_logs
    monkeypatch.setattr(store_compare, "compare_commit_logs", lambda *logs: _then(
        lambda: compare(*logs), lambda: file.write_bytes(whole)))
    assert verdict._equal_range(master, slave, end) == (0, end)


def _then(first, second):
    """`first`, and `second` after it, whatever comes of it."""
    try:
        return first()
    finally:
        second()
