"""store diff."""
import shutil

import pytest

from tests.tools.store_files.test_verify import (
    damage_unit_tags,
    damage_zeroed_last_units,
    flip,
    place,
    poke,
    queue_file,
    records,
    segment,
)


def pair(copy):
    """Master and slave, equal."""
    return copy("own"), copy("own", "slave")


def test_equal_stores_are_equal(run_json, copy):
    master, slave = pair(copy)
    code, found = run_json("diff", master, slave)
    assert (code, found["equal"], found["begin"]) == (0, True, 0)
    assert found["end"] == found["endA"] == found["endB"] > 0 and found["units"] > 100


def test_first_difference_is_told_with_its_record(run, run_json, copy):
    master, slave = pair(copy)
    for number in (30, 50):
        record = records(slave)[number]
        file, position = place(slave, record)
        flip(file, position + 19)
    record = records(slave)[30]
    code, found = run_json("diff", master, slave)
    assert (code, found["offset"], found["record"]["offset"]) == (1, record.offset + 19, record.offset)
    assert found["record"]["message"]["topic"] == record.topic
    assert found["record"]["fields"][0].startswith("flag 0 and ")
    code, out, _ = run("diff", master, slave)
    assert code == 1 and f"offset {record.offset + 19}" in out and "flag" in out


def test_slave_that_lags_is_equal_over_what_it_has(run_json, copy):
    master, slave = pair(copy)
    last = records(slave)[-20]
    file, position = place(slave, last)
    for path in sorted((slave / "commitlog").iterdir()):
        if path > file:
            path.unlink()
    poke(file, position, bytes(file.stat().st_size - position))
    for path in slave.glob("consumequeue/*/*/*"):
        cut_units(path, last.offset)
    code, found = run_json("diff", master, slave)
    assert (code, found["differences"], found["end"]) == (0, [], last.offset)
    assert found["endB"] < found["endA"]
    code, found = run_json("diff", slave, master)
    assert (code, found["end"]) == (0, last.offset)


def cut_units(path, offset):
    """Zero the units that point at `offset` or behind."""
    data = path.read_bytes()
    for at in range(0, len(data), 20):
        if int.from_bytes(data[at:at + 8], "big") >= offset:
            poke(path, at, bytes(len(data) - at))
            return


def test_deleted_files_are_not_compared(run_json, copy):
    master, slave = pair(copy)
    segment(master, 0).unlink()
    code, found = run_json("diff", master, slave)
    assert code == 0 and found["begin"] == int(segment(master, 0).name) and found["units"] > 0


def test_unread_rest_behind_a_blank_is_no_difference(run_json, copy):
    master, slave = pair(copy)
    file = segment(slave, 0)
    flip(file, file.stat().st_size - 1)
    if segment(master, 0).read_bytes()[-9:] != bytes(9):
        pytest.skip("the blank has no rest")
    code, found = run_json("diff", master, slave)
    assert (code, found["unreadRestsThatDiffer"]) == (0, 1)


@pytest.mark.parametrize("damage", [damage_unit_tags, damage_zeroed_last_units,
                                    lambda root: shutil.rmtree(queue_file(root).parent)])
def test_consume_queues_that_differ_are_told(run_json, copy, damage):
    master, slave = pair(copy)
    damage(slave)
    for stores in ((master, slave), (slave, master)):
        code, found = run_json("diff", *stores)
        assert code == 1 and found["offset"] is None and found["differences"][0].startswith("queue ")


def test_stores_of_other_file_sizes_compare(run_json, copy):
    """Commit log files of half the size hold the same offsets."""
    master, slave = pair(copy)
    (slave / "commitlog" / "x").mkdir()
    for file in sorted((slave / "commitlog").glob("0*")):
        data = file.read_bytes()
        for at in (0, len(data) // 2):
            name = f"{int(file.name) + at:020d}"
            (slave / "commitlog" / "x" / name).write_bytes(data[at:at + len(data) // 2])
    code, found = run_json("diff", master, slave, "--commitlog-b", slave / "commitlog" / "x")
    assert found["begin"] == 0 and code in (0, 1)


def test_logs_without_a_common_offset_differ(run_json, copy):
    master, slave = pair(copy)
    files = sorted((master / "commitlog").iterdir())
    for file in files[:2]:
        file.unlink()
    for file in sorted((slave / "commitlog").iterdir())[1:]:
        file.unlink()
    code, found = run_json("diff", master, slave)
    assert code == 1 and "nothing in common" in found["differences"][0]
