"""store dump."""
import base64
import json

import pytest

from rmqha.common import compression
from rmqha.common.sys_flags import CompressionType
from rmqha.common.units import parse_time
from tests.store.support import message, open_store, put, wait_dispatched
from tests.support import store_compare
from tests.tools.store_files.test_verify import damage_magic, records, segment


def lines(out):
    """The objects of JSON lines."""
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("name", ["own", "normal"])
def test_every_message_is_printed_with_all_that_it_holds(run, copy, name):
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
def test_filters_leave_what_fits(run, copy, arguments, fits):
    root = copy("own")
    code, out, _ = run("dump", root, *arguments, "-o", "json")
    assert code == 0
    assert [one["commitLogOffset"] for one in lines(out)] == [each.offset for each in records(root) if fits(each)]


def test_times_choose_within_files_too(run, copy):
    root = copy("normal")
    all_records = records(root)
    begin, end = all_records[100].store_timestamp, all_records[200].store_timestamp
    code, out, _ = run("dump", root, "--from", begin, "--to", end, "-o", "json")
    assert code == 0
    assert [one["commitLogOffset"] for one in lines(out)] == [
        each.offset for each in all_records if begin <= each.store_timestamp <= end]


def test_limit_ends_the_list(run, copy):
    assert len(lines(run("dump", copy("own"), "--limit", 3, "-o", "json")[1])) == 3


def test_one_file_and_a_folder_of_files_are_read_too(run, copy, tmp_path):
    root = copy("normal")
    whole = lines(run("dump", root, "-o", "json")[1])
    assert lines(run("dump", root / "commitlog", "-o", "json")[1]) == whole
    file = segment(root, 1)
    begin, end = int(file.name), int(file.name) + file.stat().st_size
    expected = [one for one in whole if begin <= one["commitLogOffset"] < end]
    assert lines(run("dump", file, "-o", "json")[1]) == expected
    assert lines(run("dump", file.rename(tmp_path / "copy of it"), "-o", "json")[1]) == expected


def test_one_message_is_found_by_offset_id_and_unique_key(run, copy):
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
def test_what_is_not_there_is_said(run, copy, arguments):
    code, out, err = run("dump", copy("own"), *arguments)
    assert code == 2 and "Error:" in err and not out or arguments[0] == "--to"


def test_damage_is_said_and_gone_past(run, copy):
    root = copy("own")
    count = len(records(root))
    file, position, _ = damage_magic(root)
    code, out, err = run("dump", root, "-o", "json")
    assert code == 1 and len(lines(out)) == count - 1
    assert f"{file} at {position}" in err


def test_compressed_body_is_shown_plain_and_a_bad_one_as_it_is(run, tmp_path):
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
def test_times_are_understood(text, time):
    parsed = parse_time(text)
    assert parsed == time if time else parsed == parse_time("2023-11-14T22:13:20")


def test_oracle_agrees_on_the_end_of_the_log(copy):
    from rmqha.tools.store_files.readers import StoreReader
    for name in ("own", "crashed", "normal", "kill"):
        root = copy(name)
        assert StoreReader(str(root)).log.log_end() == store_compare.log_end(root / "commitlog")


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000000000"])
@pytest.mark.parametrize("content, what", [
    (b"no log at all\n" * 1000, "is no commit log"), (b"\x00\x00\x00\x5bshort", "is no commit log"),
    (b"\xff" * 100, "is no commit log")])
def test_file_that_is_no_log_is_refused(run, tmp_path, name, content, what):
    (tmp_path / name).write_bytes(content)
    for path in [tmp_path / name, tmp_path] if name.isdigit() else [tmp_path / name]:
        code, out, err = run("dump", path)
        assert (code, out) == (2, "") and f"{path} {what}" in err and "Give the broker's storePathRootDir" in err


def test_empty_file_of_another_name_is_refused_and_one_that_nothing_was_written_to_is_not(run, tmp_path):
    (tmp_path / "notes.txt").touch()
    code, _, err = run("dump", tmp_path / "notes.txt")
    assert code == 2 and "notes.txt is empty" in err
    (tmp_path / f"{0:020}").write_bytes(bytes(4096))
    assert run("dump", tmp_path / f"{0:020}")[0] == 0


def test_log_whose_first_record_was_torn_is_one(run, tmp_path):
    (tmp_path / f"{0:020}").write_bytes(b"\x00\x00\x01\x00\xda\xa3\x20\xa7" + bytes(4096))
    assert run("dump", tmp_path)[0] == 0
