"""`store verify`: clean stores are clean, and each kind of damage is reported with its file and place."""
import os
import shutil
import struct
import threading
from pathlib import Path

import pytest

from rmqha.tools.store_files import readers, reading
from rmqha.tools.store_files.findings import QueuesCheck
from rmqha.tools.store_files.readers import QueueReader
from tests.store.support import FILE_SIZE, message, new_store, open_store, put, wait_dispatched
from tests.support import store_compare
from tests.support.wait import wait_until
from tests.tools.store_files.conftest import fill

STORES = ["own", "crashed", "normal", "kill"]


def segment(root, number):
    """Return commit log file `number`, counted from the end when negative."""
    return sorted((root / "commitlog").iterdir())[number]


def queue_file(root, topic="*", number=0):
    """Return file `number` of the first queue of a topic."""
    return sorted(root.glob(f"consumequeue/{topic}/*/*"))[number]


def open_queue(root):
    """Return (file, position after the last unit) of a queue whose last file is not full and has several units."""
    for folder in sorted(root.glob("consumequeue/*/*")):
        file = sorted(folder.iterdir())[-1]
        end = -(-len(file.read_bytes().rstrip(b"\0")) // 20) * 20
        if 100 < end < 1000:
            return file, end
    raise AssertionError("all queues are full")


def index_file(root, number=0):
    """Return index file `number`."""
    return sorted((root / "index").iterdir())[number]


def poke(path, position, data):
    """Overwrite some bytes."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path, position):
    """Flip all bits of one byte."""
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes((byte[0] ^ 0xFF,)))


def records(root):
    """Return the records found by the tests' own reader."""
    return list(store_compare.walk(root / "commitlog"))


def place(root, record):
    """Return (file, position) of a record."""
    start = record.offset - record.offset % FILE_SIZE
    return root / "commitlog" / f"{start:020d}", record.offset - start


def flip_body(root, record):
    """Damage the body of a record; return (file, position) of the record."""
    file, position = place(root, record)
    flip(file, position + file.read_bytes()[position:position + record.size].index(record.body))
    return file, position


@pytest.mark.parametrize("name", STORES)
def test_store_is_clean_and_was_read_completely(run_json, copy, name):
    root = copy(name)
    code, found = run_json("verify", root)
    assert (code, found["flaws"]) == (0, [])
    assert found["records"] == len(records(root))
    assert found["units"] == store_compare.unit_count(root)
    assert found["state"] == ("crashed" if name in ("crashed", "kill") else "stopped")
    assert found["keys"] > 400 or name not in ("normal", "kill")


def test_empty_store_is_clean(run, tmp_path):
    with open_store(tmp_path / "s"):
        pass
    assert run("verify", tmp_path / "s")[0] == 0


@pytest.mark.parametrize("small", [100, 4096])
def test_blocks_smaller_than_records_give_the_same_result(run_json, copy, monkeypatch, small):
    monkeypatch.setattr(reading, "BLOCK", small)
    monkeypatch.setattr(readers, "_CHUNK_UNITS", 3)
    root = copy("normal")
    assert run_json("verify", root)[1]["records"] == len(records(root))


def damage_crc(root):
    file, position = flip_body(root, next(record for record in records(root) if len(record.body) > 8))
    return file, position, "CRC"


def damage_crc_of_last_file(root):
    file, position = flip_body(root, [record for record in records(root) if len(record.body) > 8][-1])
    return file, position, "CRC"


def damage_magic(root):
    file, position = place(root, records(root)[3])
    flip(file, position + 4)
    return file, position, "magic code"


def damage_magic_of_last_record(root):
    file, position = place(root, records(root)[-1])
    poke(file, position + 4, b"\x12")
    return None, None, ""


def damage_zeroed_record(root):
    record = records(root)[3]
    file, position = place(root, record)
    poke(file, position, bytes(record.size))
    return file, position, "next one is at"


def damage_total_size(root):
    file, position = place(root, records(root)[3])
    poke(file, position, struct.pack(">i", 0x7FFFFFFF))
    return file, position, "total size"


def damage_negative_body_length(root):
    file, position = place(root, records(root)[2])
    poke(file, position + 84, struct.pack(">i", -5))
    return file, position, "body length"


def damage_physical_offset(root):
    record = records(root)[2]
    file, position = place(root, record)
    poke(file, position + 28, struct.pack(">q", 17))
    return file, position, "contains the offset 17"


def damage_queue_offset(root):
    record = next(each for each in records(root) if each.queue_offset > 1)
    file, position = place(root, record)
    poke(file, position + 20, struct.pack(">q", 1000))
    return file, position, "follows index"


def damage_blank(root):
    file = segment(root, 0)
    data = file.read_bytes()
    position = data.rindex(struct.pack(">I", store_compare.BLANK_MAGIC)) - 4
    poke(file, position, struct.pack(">i", 5))
    return file, position, "blank"


def damage_missing_segment(root):
    file = segment(root, 2)
    file.unlink()
    return segment(root, 2), None, "expected"


def damage_cut_segment(root):
    file = segment(root, 1)
    os.truncate(file, 5000)
    return file, None, "5000 bytes"


def damage_extended_segment(root):
    file = segment(root, 1)
    os.truncate(file, FILE_SIZE + 1)
    return file, None, f"{FILE_SIZE + 1} bytes"


def damage_empty_segment(root):
    file = segment(root, 1)
    os.truncate(file, 0)
    return file, None, "0 bytes"


def damage_empty_last_segment(root):
    file = root / "commitlog" / f"{int(segment(root, -1).name) + FILE_SIZE:020d}"
    file.touch()
    return file, None, "0 bytes"


def damage_foreign_file(root):
    file = root / "commitlog" / "notes.txt"
    file.write_text("x")
    return file, None, "not a commit log file"


def damage_foreign_folder(root):
    file = root / "commitlog" / "00000000000099999999x"
    file.mkdir()
    return file, None, "not a commit log file"


def damage_unaligned_name(root):
    file = segment(root, -1)
    file = file.rename(file.with_name(f"{int(file.name) + 8:020d}"))
    return file, None, "multiple"


def damage_unit_offset(root):
    file = queue_file(root)
    flip(file, 27)
    return file, 20, "by the log"


def damage_unit_tags(root):
    file = queue_file(root)
    flip(file, 39)
    return file, 20, "tags code"


def damage_zeroed_unit(root):
    file = queue_file(root)
    poke(file, 20, bytes(20))
    return file, 20, "no entry"


def damage_zeroed_last_units(root):
    file, end = open_queue(root)
    poke(file, end - 40, bytes(40))
    return file, end - 40, "no entry"


def damage_unit_too_many(root):
    file, at = open_queue(root)
    poke(file, at, struct.pack(">qiq", 158, 238, 7))
    return file, at, "not a record of this queue"


def damage_unit_behind_the_log(root):
    file, at = open_queue(root)
    poke(file, at, struct.pack(">qiq", 1 << 40, 238, 7))
    return file, at, "not a record of this queue"


def damage_cut_queue(root):
    file = queue_file(root)
    os.truncate(file, 30)
    return file, None, "30 bytes"


def damage_empty_queue_file(root):
    file = queue_file(root)
    os.truncate(file, 0)
    return file, None, "0 bytes"


def damage_missing_queue(root):
    folder = queue_file(root).parent
    shutil.rmtree(folder)
    return folder, 0, "no entry"


def damage_queue_of_nothing(root):
    queue = queue_file(root)
    folder = root / "consumequeue" / "Other" / "0"
    folder.mkdir(parents=True)
    shutil.copy(queue, folder)
    return folder / queue.name, 0, "not a record of this queue"


def damage_foreign_queue_file(root):
    file = queue_file(root).parent / "x"
    file.touch()
    return file, None, "not a consume queue file"


def damage_index_hash(root):
    file = index_file(root)
    flip(file, 40 + 200 + 20 * 5 + 3)
    return file, None, "entry"


def damage_index_offset(root):
    file = index_file(root)
    flip(file, 40 + 200 + 20 * 5 + 11)
    return file, None, "entry"


def damage_index_time(root):
    file = index_file(root)
    poke(file, 40 + 200 + 20 * 5 + 12, struct.pack(">i", 99999))
    return file, 40 + 200 + 20 * 5, "99999 s"


def damage_index_loop(root):
    file = index_file(root)
    poke(file, 40 + 200 + 20 * 190 + 16, struct.pack(">i", 190))
    return file, 40 + 200 + 20 * 190, "chains to entry 190"


def damage_index_slot(root):
    file = index_file(root)
    poke(file, 40 + 4 * 7, struct.pack(">i", 3))
    return file, 40 + 4 * 7, "slot 7"


def damage_index_slot_count(root):
    file = index_file(root)
    poke(file, 32, struct.pack(">i", 3))
    return file, 32, "used slots"


def damage_index_count(root):
    file = index_file(root)
    poke(file, 36, struct.pack(">i", 100))
    return file, None, ""


def damage_cut_index(root):
    file = index_file(root)
    os.truncate(file, 1000)
    return file, None, ""


def damage_empty_index(root):
    file = index_file(root)
    os.truncate(file, 0)
    return file, None, ""


def damage_missing_index_file(root):
    index_file(root).unlink()
    return index_file(root), None, "not found"


def damage_missing_last_index_file(root):
    index_file(root, -1).unlink()
    return index_file(root, -1), None, "not found"


def damage_checkpoint(root):
    poke(root / "checkpoint", 8, struct.pack(">q", -1))
    return root / "checkpoint", 8, "logics_msg_timestamp"


def damage_checkpoint_future(root):
    poke(root / "checkpoint", 0, struct.pack(">q", 1 << 62))
    return root / "checkpoint", 0, "physic_msg_timestamp"


def damage_cut_checkpoint(root):
    os.truncate(root / "checkpoint", 5)
    return root / "checkpoint", None, "5 bytes"


DAMAGES = [function for name, function in sorted(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda function: function.__name__[7:])
@pytest.mark.parametrize("name", ["own", "normal"])
def test_damage_is_reported_as_a_flaw_with_its_place(run, run_json, copy, name, damage):
    root = copy(name)
    file, position, words = damage(root)
    code, out, _ = run("verify", root)
    assert code == 1 and out.startswith("FLAW "), out
    code, found = run_json("verify", root, "--all")
    assert code == 1 and not found["clean"]
    if file is not None:
        met = [flaw for flaw in found["flaws"] if flaw["file"] == str(file) and words in flaw["what"]
               and position in (None, flaw["position"])]
        assert met, found["flaws"]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda function: function.__name__[7:])
def test_damage_crashes_no_tool(run, copy, tmp_path, damage):
    root, other = copy("normal"), copy("normal", "other")
    damage(root)
    for arguments in (("dump", root), ("dump", root, "-o", "json"), ("diff", root, other), ("diff", other, root),
                      ("rebuild", root), ("rebuild", root, "--skip-damage"), ("du", root, "--by-topic"),
                      ("dump", root, "--topic", "GoldenTopic0", "--unique-key", "7F0000010DAB2A139A5500000000F778"),
                      ("rebuild", root, "--skip-damage", "--apply", "--out", tmp_path / "out")):
        assert run(*arguments)[0] in (0, 1, 2)


def test_all_flaws_are_reported_up_to_a_limit(run_json, copy):
    root = copy("own")
    for record in records(root)[5:40]:
        poke(place(root, record)[0], place(root, record)[1] + 28, bytes(8))
    assert len(run_json("verify", root)[1]["flaws"]) == 1
    assert len(run_json("verify", root, "--all", "3")[1]["flaws"]) == 3
    assert len(run_json("verify", root, "--all")[1]["flaws"]) >= 35


def tear(root):
    """Cut off the last record in the middle, with the units that point at it, as a power loss may."""
    record = records(root)[-1]
    file, position = place(root, record)
    poke(file, position + 60, bytes(record.size - 60))


def test_torn_tail_of_a_crashed_store_is_a_note(run_json, copy):
    root = copy("crashed")
    tear(root)
    code, found = run_json("verify", root)
    assert (code, found["flaws"]) == (0, [])
    assert any("end of the log" in note["what"] or "not whole" in note["what"] for note in found["notes"])


def test_torn_tail_of_a_stopped_store_is_a_flaw(run, copy):
    root = copy("own")
    tear(root)
    assert run("verify", root)[0] == 1


def test_queues_behind_the_log_of_a_crashed_store_are_a_note(run_json, copy):
    root = copy("crashed")
    file, end = open_queue(root)
    poke(file, end - 40, bytes(40))
    code, found = run_json("verify", root)
    assert (code, found["flaws"]) == (0, [])
    assert any("dispatched at the next start" in note["what"] for note in found["notes"])


def test_gap_in_a_crashed_store_is_a_flaw(run, copy):
    root = copy("crashed")
    damage_zeroed_record(root)
    assert run("verify", root)[0] == 1


def test_remains_of_an_earlier_crash_after_the_end_are_no_flaw(run_json, tmp_path):
    with open_store(tmp_path / "s") as store:
        put(store, *(message(body=b"x" * 100) for _ in range(5)))
        wait_dispatched(store)
        end = store.get_max_phy_offset()
    # An older record, valid in its own place, after a gap.
    file = tmp_path / "s" / "commitlog" / f"{0:020d}"
    old = bytearray(file.read_bytes()[:end // 5])
    struct.pack_into(">q", old, 28, end + 50)
    struct.pack_into(">q", old, 56, 1000)
    poke(file, end + 50, old)
    code, found = run_json("verify", tmp_path / "s")
    assert (code, found["records"]) == (0, 5)


def test_store_whose_oldest_files_are_deleted_is_clean(run_json, copy):
    for name in ("own", "normal"):
        root = copy(name)
        for _number in range(3):
            segment(root, 0).unlink()
        code, found = run_json("verify", root)
        assert (code, found["flaws"]) == (0, [])


def test_queue_that_starts_in_the_middle_is_clean(run, tmp_path, copy):
    """Dispatch a store again whose oldest files are gone: its queues start with blanks."""
    root = copy("own")
    for _ in range(2):
        segment(root, 0).unlink()
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    with open_store(root):
        pass
    assert run("verify", root)[0] == 0
    assert run("rebuild", root)[0] == 0


def test_commit_log_in_two_folders_is_read_as_one(run_json, copy, tmp_path):
    root = copy("own")
    (tmp_path / "second").mkdir()
    for file in sorted((root / "commitlog").iterdir())[::2]:
        shutil.move(file, tmp_path / "second")
    code, found = run_json("verify", root, "--commitlog", root / "commitlog", "--commitlog", tmp_path / "second")
    assert (code, found["flaws"]) == (0, [])


def test_multi_dispatched_messages_are_checked_in_all_their_queues(run, run_json, tmp_path):
    root = tmp_path / "s"
    with open_store(root, enableLmq=True, enableMultiDispatch=True) as store:
        put(store, *(message("T", 1, INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b") for _ in range(3)))
        wait_dispatched(store)
    code, found = run_json("verify", root)
    assert (code, found["units"], found["queues"]) == (0, 9, 3)
    assert run("rebuild", root)[0] == 0
    shutil.rmtree(root / "consumequeue" / "%LMQ%b")
    assert run("verify", root)[0] == 1


def test_extension_addresses_are_accepted_as_tags_codes(run, tmp_path):
    root = tmp_path / "s"
    with open_store(root, enableConsumeQueueExt=True, mappedFileSizeConsumeQueueExt=1000) as store:
        fill(store, 40)
    assert run("verify", root)[0] == 0
    assert run("rebuild", root)[0] == 0
    poke(next(root.glob("consumequeue_ext/TopicA/0/*")), 2, b"\x55")
    assert run("verify", root)[0] == 1


def test_changed_delay_levels_are_reported(run, tmp_path):
    root = tmp_path / "s"
    with open_store(root, messageDelayLevel="7s 9m") as store:
        put(store, message("T", DELAY="2"))
        wait_dispatched(store)
    code, out, _ = run("verify", root)
    assert code == 1 and "--delay-levels" in out
    assert run("verify", root, "--delay-levels", "7s 9m")[0] == 0
    assert run("verify", root, "--delay-levels", "7 apples")[0] == 2


def test_running_store_is_clean_while_it_grows(run, run_json, tmp_path):
    root = tmp_path / "s"
    with open_store(root) as store:
        stop = threading.Event()

        def grow():
            number = 0
            while not stop.wait(0.002):
                fill(store, 10, number)
                number += 10

        writer = threading.Thread(target=grow)
        writer.start()
        try:
            wait_until(lambda: store.get_max_phy_offset() > 2 * FILE_SIZE, 60_000, "some files")
            for _ in range(3):
                code, found = run_json("verify", root)
                assert (code, found["state"], found["flaws"]) == (0, "running", [])
                for arguments in (["rebuild", root], ["diff", root, root], ["dump", root]):
                    code, out, err = run(*arguments)
                    assert code == 0, out[-2000:] + err
        finally:
            stop.set()
            writer.join()
        assert found["records"] > 0


def test_gap_in_a_running_store_is_a_flaw(run, tmp_path):
    root = tmp_path / "s"
    with open_store(root) as store:
        fill(store)
        file, position, _ = damage_magic(root)
        code, out, _ = run("verify", root)
        assert code == 1 and f"{file} at {position}" in out


@pytest.mark.parametrize("missing_for, clean", [(2, True), (3, False)], ids=["written since", "missing still"])
def test_unit_written_while_its_queue_is_read_is_no_gap(run, monkeypatch, tmp_path, missing_for, clean):
    looks, read = [], QueueReader.read

    def late(reader, index, count):
        if (reader.name, index, count) != ("TopicA/1", 1, 1) or len(looks) >= missing_for:
            return read(reader, index, count)
        looks.append(index)
        return b""
    monkeypatch.setattr(QueuesCheck, "fits", lambda self, run: False)  # each record separately
    monkeypatch.setattr(QueueReader, "unit_bytes", lambda reader, index: reader.read(index, 1))
    monkeypatch.setattr(QueueReader, "read", late)
    root = tmp_path / "s"
    with open_store(root) as store:
        fill(store, 40)
        code, out, _ = run("verify", root)
    assert looks == [1] * missing_for and (code == 0) is clean, out
    assert clean or "queue TopicA/1 has no entry for index 1, but one for 2" in out


def test_verify_changes_nothing_and_the_store_can_start(run, copy):
    root = copy("own")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    assert run("verify", root)[0] == 0
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    store = new_store(root)
    assert store.load()
    store.shutdown()


@pytest.mark.parametrize("arguments", [["verify", "/nowhere"], ["verify"], ["verify", "."], ["dump", "setup.cfg", "x"],
                                       ["verify", ".", "--index-slots", "5"], ["rebuild", ".", "--force"],
                                       ["dump", ".", "--from", "yesterday"], ["diff", "."]])
def test_invalid_request_ends_with_2(run, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    Path("setup.cfg").touch()
    code, out, err = run(*arguments)
    assert code == 2 and "Error" in err and not out
