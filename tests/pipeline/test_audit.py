"""The job audit: a true copy passes; each kind of flaw is found and named with its file and offset."""
import shutil
from pathlib import Path

import pytest

from rmqha.pipeline.audit import audit
from tests.store import support

COUNT = 300


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
