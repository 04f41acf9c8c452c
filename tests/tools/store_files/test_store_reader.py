"""Reading blocks, locks, and anything at all."""
import random
import struct
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.tools.store_files import reading
from rmqha.tools.store_files.reading import BlockEnd, scan_block
from rmqha.tools.terminal import CannotAnswerError
from tests.store.support import open_store
from tests.tools.store_files.test_verify import records, segment

FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def block(originals):
    """The first file of RocketMQ's store, and how many records are in it."""
    data = segment(originals["normal"], 0).read_bytes()
    return data, sum(1 for record in records(originals["normal"]) if record.offset < len(data))


def test_block_may_end_anywhere(block):
    data, count = block
    for end in (*range(700), len(data) - 1, len(data)):
        scan = scan_block(data[:end], 0, True)
        rest = scan_block(data[scan.consumed:], scan.consumed, True)
        assert len(scan.records) + len(rest.records) == count
        assert scan.end in (BlockEnd.MORE, BlockEnd.BLANK) and rest.end is BlockEnd.BLANK
        assert all(record.crc_ok and record.physical_offset == record.offset for record in scan.records)


@FUZZ
@given(position=st.integers(0, 16383), value=st.binary(min_size=1, max_size=8), end=st.integers(0, 16384))
def test_damaged_block_gives_records_that_lie_in_it(block, position, value, end):
    data = bytearray(block[0])
    data[position:position + len(value)] = value
    scan = scan_block(bytes(data[:end]), 0, True)
    assert scan.consumed <= end and all(record.offset + record.size <= scan.consumed for record in scan.records)
    assert sum(record.size for record in scan.records) == scan.consumed


@given(data=st.binary(max_size=300))
def test_any_bytes_are_no_records(data):
    assert scan_block(data, 0).records == []


def damage_somewhere(root, chance):
    """Change, cut, extend, empty or rename some file."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    for _ in range(chance.randint(1, 4)):
        file = chance.choice(files)
        data = bytearray(file.read_bytes())
        kind = chance.choice(["flip", "flip", "number", "zero", "cut", "extend", "empty", "rename"])
        at = chance.randrange(max(len(data), 1))
        if kind == "flip" and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == "number" and len(data) > 8:
            at -= at % 4
            struct.pack_into(">i", data, min(at, len(data) - 4), chance.choice([-1, 0, 1, 0x7FFFFFFF, -(1 << 31), 91]))
        elif kind == "zero":
            data[at:at + 64] = bytes(len(data[at:at + 64]))
        elif kind == "cut":
            del data[at:]
        elif kind == "extend":
            data += chance.randbytes(chance.randint(1, 50))
        elif kind == "empty":
            data = bytearray()
        file.write_bytes(data)
        if kind == "rename":
            files.remove(file)
            file.rename(file.with_name(chance.choice(["x", "0", f"{chance.randrange(1 << 20):020d}", "9" * 20])))


@pytest.mark.parametrize("seed", range(25))
def test_no_damage_fails_a_tool(run, copy, tmp_path, seed):
    chance = random.Random(seed)
    root, other = copy(chance.choice(["own", "normal", "kill"]), "damaged"), copy("normal", "other")
    damage_somewhere(root, chance)
    for arguments in (["verify", root, "--all"], ["dump", root, "-o", "json"], ["rebuild", root, "--skip-damage"],
                      ["diff", root, other], ["du", root, "--by-topic"],
                      ["rebuild", root, "--apply", "--skip-damage", "--out", tmp_path / "out"]):
        code, _, err = run(*arguments)
        assert code in (0, 1) or (code == 2 and "Error:" in err)


def test_lock_of_another_process_is_seen_without_locking(tmp_path):
    lock = tmp_path / "lock"
    lock.write_bytes(b"lock")
    assert not reading.is_held(str(lock))
    with subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert reading.is_held(str(lock)) and reading._is_locked(str(lock))
        with pytest.raises(CannotAnswerError), reading.held(str(lock)):
            pass
        other.stdin.close()
    assert not reading.is_held(str(lock))
    with reading.held(str(lock)):
        assert reading.is_held(str(lock))
    assert not reading.is_held(str(lock))


def test_lock_of_this_process_is_seen(tmp_path):
    with open_store(tmp_path / "s"):
        assert reading.is_held(str(tmp_path / "s" / "lock"))
    assert not reading.is_held(str(tmp_path / "s" / "lock"))
    assert not reading.is_held(str(tmp_path / "none"))
