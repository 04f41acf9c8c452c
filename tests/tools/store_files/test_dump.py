"""`store dump`, `diff` and `du`, reading blocks of a store, and special files in its folder."""
import ast
import base64
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
from collections import Counter
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common import compression
from rmqha.common.filesystem import NotRegularFileError, open_regular
from rmqha.common.sys_flags import CompressionType
from rmqha.common.units import parse_time
from rmqha.store.bulk import bulk, bulk_python
from rmqha.tools.store_files import builders, reading
from rmqha.tools.store_files.reading import BlockEnd, scan_block
from rmqha.tools.store_files.rebuild import Rebuild
from rmqha.tools.store_files.verify import LogCheck
from rmqha.tools.terminal import CannotAnswerError
from tests.store.bulk.test_bulk import compiled_kernel
from tests.store.support import message, new_store, open_store, put, tree, wait_dispatched
from tests.support import store_compare
from tests.support.sources import ROOT
from tests.tools.store_files.test_verify import (
    damage_magic,
    damage_unit_tags,
    damage_zeroed_last_units,
    flip,
    place,
    poke,
    queue_file,
    records,
    segment,
)


def lines(out):
    """Parse JSON lines into objects."""
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("name", ["own", "normal"])
def test_every_message_is_printed_with_all_its_fields(run, copy, name):
    root = copy(name)
    code, out, _ = run("dump", root, "-o", "json")
    found, expected = lines(out), records(root)
    assert code == 0 and len(found) == len(expected)
    for one, record in zip(found, expected):
        assert (one["commitLogOffset"], one["storeSize"], one["topic"], one["queueId"], one["queueOffset"],
                one["storeTimestamp"], one["properties"]) == (
            record.offset, record.size, record.topic, record.queue_id, record.queue_offset, record.store_timestamp,
            record.properties)
        body = one["body"].encode() if "body" in one else base64.b64decode(one["bodyBase64"])
        assert body == record.body or one["sysFlag"] & 1


def test_table_has_a_row_for_each_message(run, copy):
    root = copy("normal")
    code, out, _ = run("dump", root)
    rows = out.splitlines()
    assert code == 0 and len(rows) == 2 + len(records(root))
    assert rows[0].split() == ["offset", "size", "topic", "queue", "queueOffset", "tags", "keys", "bornTime",
                               "storeTime"]
    assert rows[3].split()[:7] == ["158", "238", "GoldenTopic1", "0", "0", "TagA", "key1"]


@pytest.mark.parametrize("arguments, fits", [
    (["--topic", "TopicA"], lambda record: record.topic == "TopicA"),
    (["--topic", "TopicA", "--queue", "1"], lambda record: (record.topic, record.queue_id) == ("TopicA", 1)),
    (["--tag", "标签"], lambda record: record.properties.get("TAGS") == "标签"),
    (["--key", "key3"], lambda record: "key3" in record.properties.get("KEYS", "").split(" ")),
    (["--key", "U00000017"], lambda record: record.properties.get("UNIQ_KEY") == "U00000017"),
    (["--topic", "none"], lambda record: False),
    (["--from", "2020-01-01", "--to", "2020-01-01T12:00:00"], lambda record: False),
    (["--from", "1"], lambda record: True),
])
def test_filters_select_matching_messages(run, copy, arguments, fits):
    root = copy("own")
    code, out, _ = run("dump", root, *arguments, "-o", "json")
    assert code == 0
    assert [one["commitLogOffset"] for one in lines(out)] == [each.offset for each in records(root) if fits(each)]


def test_times_select_within_files_too(run, copy):
    root = copy("normal")
    all_records = records(root)
    begin, end = all_records[100].store_timestamp, all_records[200].store_timestamp
    code, out, _ = run("dump", root, "--from", begin, "--to", end, "-o", "json")
    assert code == 0
    assert [one["commitLogOffset"] for one in lines(out)] == [
        each.offset for each in all_records if begin <= each.store_timestamp <= end]


def test_limit_ends_the_list(run, copy):
    assert len(lines(run("dump", copy("own"), "--limit", 3, "-o", "json")[1])) == 3


def test_single_file_and_a_folder_of_files_are_read_too(run, copy, tmp_path):
    root = copy("normal")
    whole = lines(run("dump", root, "-o", "json")[1])
    assert lines(run("dump", root / "commitlog", "-o", "json")[1]) == whole
    file = segment(root, 1)
    begin, end = int(file.name), int(file.name) + file.stat().st_size
    expected = [one for one in whole if begin <= one["commitLogOffset"] < end]
    assert lines(run("dump", file, "-o", "json")[1]) == expected
    assert lines(run("dump", file.rename(tmp_path / "copy of it"), "-o", "json")[1]) == expected


def test_single_message_is_found_by_offset_id_and_unique_key(run, copy):
    root = copy("own")
    wanted = next(one for one in lines(run("dump", root, "-o", "json")[1]) if one["storeTimestamp"]
                  and one["properties"].get("UNIQ_KEY") == "U00000033")
    for arguments in (["--offset", wanted["commitLogOffset"]], ["--msg-id", wanted["msgId"]],
                      ["--unique-key", "U00000033"], ["--unique-key", "U00000033", "--topic", wanted["topic"]]):
        code, out, _ = run("dump", root, *arguments, "-o", "json")
        assert code == 0 and json.loads(out) == wanted
        code, out, _ = run("dump", root, *arguments)
        assert code == 0 and wanted["msgId"] in out and "property UNIQ_KEY" in out


@pytest.mark.parametrize("arguments", [["--offset", "7"], ["--offset", str(1 << 60)], ["--msg-id", "xx"],
                                       ["--msg-id", "AB"], ["--unique-key", "none"], ["--offset", "0", "--msg-id", "0"],
                                       ["--from", "soon"], ["--to", "9" * 30]])
def test_missing_message_is_reported(run, copy, arguments):
    code, out, err = run("dump", copy("own"), *arguments)
    assert code == 2 and "Error:" in err and not out or arguments[0] == "--to"


def test_damage_is_reported_and_skipped(run, copy):
    root = copy("own")
    count = len(records(root))
    file, position, _ = damage_magic(root)
    code, out, err = run("dump", root, "-o", "json")
    assert code == 1 and len(lines(out)) == count - 1
    assert f"{file} at {position}" in err


def test_compressed_body_is_shown_unpacked_and_a_damaged_one_unchanged(run, tmp_path):
    root = tmp_path / "s"
    good = message(body=compression.get_compressor(CompressionType.ZLIB).compress(b"plain text", 5))
    bad = message(body=b"\xff\xfe no zlib")
    good.sys_flag = bad.sys_flag = 1
    with open_store(root) as store:
        put(store, good, bad)
        wait_dispatched(store)
    code, out, _ = run("dump", root, "-o", "json")
    first, second = lines(out)
    assert code == 0 and first["body"] == "plain text"
    assert "damage" in second and base64.b64decode(second["bodyBase64"]) == b"\xff\xfe no zlib"


def test_control_characters_do_not_reach_the_terminal(run, tmp_path):
    root = tmp_path / "s"
    with open_store(root) as store:
        put(store, message(TAGS="\x1b[31mred", KEYS="a\nb", body=b"\x1b]0;title\x07"))
        wait_dispatched(store)
    for arguments in ([], ["--offset", "0"]):
        assert "\x1b" not in run("dump", root, *arguments)[1]


@pytest.mark.parametrize("text, time", [("1700000000000", 1700000000000), ("20231114221320000", None),
                                        ("2023-11-14T22:13:20", None), ("2023-11-14 22:13:20", None)])
def test_times_are_parsed(text, time):
    parsed = parse_time(text)
    assert parsed == time if time else parsed == parse_time("2023-11-14T22:13:20")


def test_end_of_the_log_matches_the_tests_own_reader(copy):
    from rmqha.tools.store_files.readers import StoreReader
    for name in ("own", "crashed", "normal", "kill"):
        root = copy(name)
        assert StoreReader(str(root)).log.log_end() == store_compare.log_end(root / "commitlog")


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000000000"])
@pytest.mark.parametrize("content, what", [
    (b"no log at all\n" * 1000, "is not a commit log"), (b"\x00\x00\x00\x5bshort", "is not a commit log"),
    (b"\xff" * 100, "is not a commit log")])
def test_file_that_is_not_a_log_is_refused(run, tmp_path, name, content, what):
    (tmp_path / name).write_bytes(content)
    for path in [tmp_path / name, tmp_path] if name.isdigit() else [tmp_path / name]:
        code, out, err = run("dump", path)
        assert (code, out) == (2, "") and f"{path} {what}" in err and "Give the broker's storePathRootDir" in err


def test_empty_file_is_refused_and_an_unwritten_log_file_is_accepted(run, tmp_path):
    (tmp_path / "notes.txt").touch()
    code, _, err = run("dump", tmp_path / "notes.txt")
    assert code == 2 and "notes.txt is empty" in err
    (tmp_path / f"{0:020}").write_bytes(bytes(4096))
    assert run("dump", tmp_path / f"{0:020}")[0] == 0


def test_log_with_a_torn_first_record_is_accepted(run, tmp_path):
    (tmp_path / f"{0:020}").write_bytes(b"\x00\x00\x01\x00\xda\xa3\x20\xa7" + bytes(4096))
    assert run("dump", tmp_path)[0] == 0


# `store diff`.


def pair(copy):
    """A master's store and an equal slave's."""
    return copy("own"), copy("own", "slave")


def test_equal_stores_are_equal(run_json, copy):
    master, slave = pair(copy)
    code, found = run_json("diff", master, slave)
    assert (code, found["equal"], found["begin"]) == (0, True, 0)
    assert found["end"] == found["endA"] == found["endB"] > 0 and found["units"] > 100


def test_first_difference_is_reported_with_its_record(run, run_json, copy):
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


def test_lagging_slave_is_equal_over_the_common_range(run_json, copy):
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
    """Zero the units that point at `offset` or later."""
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


def test_unused_bytes_after_a_blank_are_no_difference(run_json, copy):
    master, slave = pair(copy)
    file = segment(slave, 0)
    flip(file, file.stat().st_size - 1)
    if segment(master, 0).read_bytes()[-9:] != bytes(9):
        pytest.skip("there are no bytes after the blank")
    code, found = run_json("diff", master, slave)
    assert (code, found["unreadRestsThatDiffer"]) == (0, 1)


@pytest.mark.parametrize("damage", [damage_unit_tags, damage_zeroed_last_units,
                                    lambda root: shutil.rmtree(queue_file(root).parent)])
def test_differing_consume_queues_are_reported(run_json, copy, damage):
    master, slave = pair(copy)
    damage(slave)
    for stores in ((master, slave), (slave, master)):
        code, found = run_json("diff", *stores)
        assert code == 1 and found["offset"] is None and found["differences"][0].startswith("queue ")


def test_stores_with_different_file_sizes_can_be_compared(run_json, copy):
    """Commit log files of half the size contain the same offsets."""
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


# `store du`.


def test_parts_add_up_to_the_size_on_disk(run, run_json, copy):
    root = copy("own")
    code, found = run_json("du", root)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert code == 0
    assert found["total"] == {"files": len(files), "apparent": sum(path.stat().st_size for path in files),
                              "used": sum(path.stat().st_blocks * 512 for path in files)}
    for name in ("files", "apparent", "used"):
        assert sum(part[name] for part in found["parts"].values()) == found["total"][name]
    assert {"commitlog", "consumequeue/TopicA", "consumequeue/Batch", "index", "other"} <= found["parts"].keys()
    code, out, _ = run("du", root)
    assert code == 0 and out.splitlines()[2].startswith("commitlog")


def test_holes_in_sparse_files_are_not_counted(run_json, copy):
    root = copy("own")
    with open(root / "config" / "big" if (root / "config").is_dir() else root / "big", "wb") as file:
        os.truncate(file.fileno(), 1 << 30)
    total = run_json("du", root)[1]["total"]
    assert total["apparent"] > 1 << 30 > total["used"]


def test_messages_are_counted_by_topic(run, run_json, copy):
    root = copy("normal")
    code, found = run_json("du", root, "--by-topic")
    counts, sizes = Counter(), Counter()
    for record in records(root):
        counts[record.topic] += 1
        sizes[record.topic] += record.size
    assert code == 0
    assert found["topics"] == {topic: {"messages": counts[topic], "bytes": sizes[topic]} for topic in counts}
    assert "GoldenTopic1" in run("du", root, "--by-topic")[1]


def test_damage_in_the_log_is_reported(run, copy):
    root = copy("own")
    damage_magic(root)
    code, out, err = run("du", root, "--by-topic")
    assert code == 1 and "TopicA" in out and "store verify" in err


def test_commit_log_in_another_folder_is_included(run_json, copy, tmp_path):
    root = copy("own")
    (root / "commitlog").rename(tmp_path / "log")
    code, found = run_json("du", root, "--commitlog", tmp_path / "log")
    assert code == 0 and found["parts"]["commitlog"]["files"] > 1


# Reading blocks, locks, and arbitrary damage.

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
    """The first file of RocketMQ's store, and the number of its records."""
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
def test_damaged_block_yields_only_records_inside_it(block, position, value, end):
    data = bytearray(block[0])
    data[position:position + len(value)] = value
    scan = scan_block(bytes(data[:end]), 0, True)
    assert scan.consumed <= end and all(record.offset + record.size <= scan.consumed for record in scan.records)
    assert sum(record.size for record in scan.records) == scan.consumed


@given(data=st.binary(max_size=300))
def test_random_bytes_contain_no_records(data):
    assert scan_block(data, 0).records == []


def damage_somewhere(root, chance):
    """Change, truncate, extend, empty or rename a random file."""
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
def test_no_damage_crashes_a_tool(run, copy, tmp_path, seed):
    chance = random.Random(seed)
    root, other = copy(chance.choice(["own", "normal", "kill"]), "damaged"), copy("normal", "other")
    damage_somewhere(root, chance)
    for arguments in (["verify", root, "--all"], ["dump", root, "-o", "json"], ["rebuild", root, "--skip-damage"],
                      ["diff", root, other], ["du", root, "--by-topic"],
                      ["rebuild", root, "--apply", "--skip-damage", "--out", tmp_path / "out"]):
        code, _, err = run(*arguments)
        assert code in (0, 1) or (code == 2 and "Error:" in err)


def test_lock_of_another_process_is_detected_without_locking(tmp_path):
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


def test_lock_of_this_process_is_detected(tmp_path):
    with open_store(tmp_path / "s"):
        assert reading.is_held(str(tmp_path / "s" / "lock"))
    assert not reading.is_held(str(tmp_path / "s" / "lock"))
    assert not reading.is_held(str(tmp_path / "none"))


# The tools give the same results whether they read records one by one or in batches, with either kernel.

STORES = ("own", "crashed", "normal", "kill")
WAYS = ("single", "plain", "compiled")
COMMANDS = (("verify", "--all"), ("verify",), ("rebuild", "--skip-damage"), ("rebuild",))


def choose(monkeypatch, way, block=3000):
    """Use small blocks, and read records one by one or in batches."""
    monkeypatch.setattr(reading, "BLOCK", block)
    monkeypatch.setattr(builders, "_WINDOW", 70)
    monkeypatch.setattr(bulk, "_kernel", compiled_kernel() if way == "compiled" else bulk_python)
    monkeypatch.setattr(bulk, "is_compiled", lambda: way != "single")


def damage(root, random_):
    """Change some bytes somewhere in the written part."""
    files = [path for path in sorted(root.rglob("0" * 10 + "*")) + sorted((root / "index").iterdir()) if path.is_file()]
    for _ in range(random_.randrange(1, 4)):
        path = random_.choice(files)
        data = bytearray(path.read_bytes())
        end = max(len(data.rstrip(b"\0")), 1)
        at = random_.randrange(end)
        data[at:at + random_.choice((1, 4, 30))] = random_.randbytes(random_.choice((1, 4, 30)))
        path.write_bytes(data[:path.stat().st_size].ljust(path.stat().st_size, b"\0"))


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("seed", range(5))
def test_each_way_finds_the_same_damage(run, copy, monkeypatch, name, seed):
    root = copy(name)
    if seed:
        damage(root, random.Random(f"{name}{seed}"))
    for command in COMMANDS:
        answers = []
        for way in WAYS:
            choose(monkeypatch, way, 3000 if seed % 2 else 1 << 20)
            answers.append(run(*command[:1], root, *command[1:], "-o", "json")[:2])
        assert answers[1] == answers[0] and answers[2] == answers[0], command


@pytest.mark.parametrize("name", STORES)
def test_each_way_writes_the_same_files(run, copy, tmp_path, monkeypatch, name):
    root = copy(name)
    written = []
    for way in WAYS:
        choose(monkeypatch, way)
        assert run("rebuild", root, "--apply", "--out", tmp_path / way)[0] == 0
        files = tree(tmp_path / way)
        written.append(({path: data for path, data in files.items() if path.startswith("consumequeue")},
                        [data for path, data in sorted(files.items()) if path.startswith("index")]))
    assert written[1] == written[0] and written[2] == written[0]


@pytest.mark.parametrize("way", WAYS[1:])
def test_most_records_of_an_undamaged_store_are_read_in_batches(run_json, copy, monkeypatch, way):
    choose(monkeypatch, way)
    single = []
    for owner, method in ((Rebuild, "_record"), (LogCheck, "_record")):
        original = getattr(owner, method)
        monkeypatch.setattr(owner, method, lambda *args, original=original: (single.append(args), original(*args))[1])
    root = copy("own")
    found = run_json("verify", root)[1]
    assert found["clean"] and len(single) < found["records"] / 2
    single.clear()
    found = run_json("rebuild", root)[1]
    assert found["equal"] and len(single) < found["records"] / 2


def test_index_check_falls_back_when_entries_differ(run_json, copy, monkeypatch):
    root = copy("own")
    choose(monkeypatch, "single")
    before = run_json("verify", root, "--all")[1]
    index = max((root / "index").iterdir())
    data = bytearray(index.read_bytes())
    end = len(data.rstrip(b"\0"))
    data[end - 8] ^= 1
    index.write_bytes(data)
    answers = []
    for way in WAYS:
        choose(monkeypatch, way)
        answers.append(run_json("verify", root, "--all"))
    assert answers[0][0] == 1 and answers[0][1] != before and answers[1] == answers[0] and answers[2] == answers[0]


# Pipes, devices and sockets in a store's folder, and invalid log files: errors at once, no waiting.

ODD_FILES_COMMANDS = [("verify", "{}"), ("dump", "{}"), ("diff", "{}", "{}"),
                      ("rebuild", "{}", "--apply", "--out", "{}-new")]
PLACES = ["lock", "checkpoint", "config/deletedTopics.json"]


def make(kind, path):
    """Replace a file with something that is not a regular file."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        here = os.getcwd()
        # A socket's path has to be short.
        os.chdir(path.parent)
        try:
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
@pytest.mark.parametrize("place", PLACES)
def test_special_file_in_a_store_is_reported_at_once(copy, run, kind, place):
    root = copy("own")
    make(kind, root / place)
    code, _out, err = run("verify", root)
    assert code == 2 and f"{root / place} is a" in err and "not a regular file" in err
    assert "internal error in rmqha" not in err


@pytest.mark.parametrize("command", ODD_FILES_COMMANDS, ids=lambda command: command[0])
def test_no_command_waits_for_a_lock_file_that_is_a_pipe(copy, run, command):
    root = copy("own")
    make("pipe", root / "lock")
    code, _out, err = run(*(word.format(root) for word in command))
    assert code == 2 and "lock is a named pipe" in err


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_log_queue_and_index_files_that_are_special_files_are_reported(copy, run, kind):
    root = copy("own")
    for path in (segment(root, -1), sorted(root.glob("consumequeue/*/*/*"))[0], sorted((root / "index").iterdir())[0]):
        make(kind, path)
    code, out, _err = run("verify", root, "--all")
    assert code == 1 and "it is not a commit log file" in out and "it is not a consume queue file" in out
    code, _out, err = run("dump", segment(root, -1))
    assert code == 2 and "neither a folder nor a regular file" in err


def test_only_regular_files_are_opened(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    with open(open_regular(tmp_path / "file"), "rb") as file:
        assert file.read() == b"abc"
    with open(open_regular(tmp_path / "new", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(b"x")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    for kind in ("pipe", "device", "socket", "folder"):
        make(kind, tmp_path / kind)
        before = len(os.listdir("/proc/self/fd"))
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT):
            with pytest.raises(NotRegularFileError, match=f"{kind} is a"):
                open_regular(tmp_path / kind, flags)
        assert len(os.listdir("/proc/self/fd")) == before


FILESYSTEM = ROOT / "rmqha/common/filesystem.py"


def opens_of(path, functions=None):
    """Yield the lines of a module, or of some of its functions, that open a file other than by open_regular or as a
    new one."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree) if functions is None else chain.from_iterable(
            ast.walk(each) for each in tree.body if getattr(each, "name", "") in functions):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node)
        if ast.unparse(node.func) in ("open", "os.open") and not any(
                word in text for word in ("open_regular(", "O_EXCL", "'xb'", "_LOCKS", "closefd", "O_DIRECTORY")):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {text}"


def test_tools_open_files_of_a_store_only_by_one_function():
    modules = [*(ROOT / "rmqha" / "tools" / "store").glob("*.py"),
               ROOT / "rmqha/tools/replication/receive.py", ROOT / "rmqha/tools/quickstart.py",
               ROOT / "rmqha/pipeline/log/log_scan.py", ROOT / "rmqha/store/index/index_file.py"]
    assert [line for module in modules for line in opens_of(module)] == []
    readers = {"list_segments", "read_at", "pread"}
    assert readers <= {function.name for function in ast.parse(FILESYSTEM.read_text("utf-8")).body
                       if isinstance(function, ast.FunctionDef)}
    assert list(opens_of(FILESYSTEM, readers)) == []


@pytest.mark.parametrize("messages", [1, 7])
def test_log_file_that_ends_with_a_record_is_reported_as_by_the_broker(tmp_path, run, messages, caplog):
    with open_store(tmp_path / "store") as store:
        for number in range(messages):
            put(store, message("T", 0, b"x" * (10 + number)))
        end = store.get_max_phy_offset()
        wait_dispatched(store)
    root = tmp_path / "store"
    assert run("verify", root)[0] == 0
    os.truncate(segment(root, 0), end)
    shutil.copytree(root, tmp_path / "started")
    assert not (broker := new_store(tmp_path / "started")).load()
    broker.shutdown()
    said = f"{end} length not matched message store config value, please check it manually"
    assert said in caplog.text
    for options in ((), ("--file-size", end)):
        code, out, _err = run("verify", root, *options)
        assert code == 1 and f"FLAW {segment(root, 0)}" in out and said in out
