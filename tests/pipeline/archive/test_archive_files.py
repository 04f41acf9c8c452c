"""The files of an archive: manifests, with any contents, and records that are restored byte for byte."""
import base64
import gzip
import json
import os
import random
import socket
import zlib
from unittest.mock import MagicMock

import psutil
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from rmqha.common.message import message_layout as layout
from rmqha.pipeline.archive import archive_files
from rmqha.pipeline.archive.archive import expire
from rmqha.pipeline.archive.archive_files import (
    Manifest,
    Manifests,
    Piece,
    ReaderFiles,
    Residue,
    Tail,
    locked,
    parse_manifest,
    run_name,
)
from rmqha.pipeline.archive.archive_scan import TOLD_BY, blank, records
from rmqha.pipeline.archive.archive_table import _AsTable
from rmqha.pipeline.archive.restore import Unit, _Making, units_of
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.table import ROCKETMQ
from rmqha.pipeline.worker import FIRST_MS, LAST_MS, parse_moment
from tests.pipeline.support import MemoryFiles

# Manifests: many of them in few files, interrupted anywhere; invalid ones are reported; one writer at a time.


def manifest(number: int, size: int = 1000) -> Manifest:
    begin, end = number * size, (number + 1) * size
    return Manifest(begin, end, run_name(begin, end, f"{number:08x}"), 3, "/store/commitlog", [(0, 1 << 30)],
                    [Piece(begin, end, number, 3, begin)], [Residue.of(begin, b"ab\0\0")],
                    {"day=2026-01-01/a.parquet": 7}, number * 1000, number * 1000 + 999, Tail(begin, end, number))


class Broken(Exception):
    pass


def test_manifest_is_read_as_it_was_written():
    one = manifest(3)
    assert parse_manifest(one.to_json(), "there") == one and "\n" not in one.to_json()
    assert one.residues[0].content() == b"ab"


def test_manifests_of_many_runs_are_few_files_and_the_next_run_reads_one():
    files = MemoryFiles()
    manifests = Manifests(files)
    for number in range(600):
        manifests.add(manifest(number))
        manifests.compact(20, 10)
    assert len(files.content) <= 30
    files.reads = 0
    assert manifests.last() == manifest(599) and files.reads == 1
    assert manifests.all() == [manifest(number) for number in range(600)]
    assert [each.begin for each in manifests.since(595_000)][-5:] == [each * 1000 for each in range(595, 600)]


@pytest.mark.parametrize("seed", range(6))
def test_interruptions_lose_and_duplicate_nothing(seed):
    chance, files = random.Random(seed), MemoryFiles()
    manifests, left, written, kept = Manifests(files), [0], 0, 0

    def breaks(work):
        def run(*args):
            left[0] -= 1
            if left[0] == 0:
                raise Broken
            return work(*args)
        return run

    def removes_some(names):
        for name in list(names):
            step(lambda name=name: remove([name]))
    step = breaks(lambda work: work())
    remove, write = files.remove, files.write
    files.remove, files.write = removes_some, breaks(write)
    for _ in range(100):
        left[0] = chance.randrange(1, 12)
        try:
            for _ in range(5):
                if written == len(Manifests(files).all()) + kept:
                    manifests.add(manifest(written))
                    written += 1
                manifests.compact(4, 3)
                if chance.random() < 0.2:
                    expire(files, manifests, (written - 6) * 1000)
        except Broken:
            written = max(written, Manifests(files).last().end // 1000 if Manifests(files).names() else 0)
        left[0] = 1 << 30
        found = Manifests(files).all()
        kept = found[0].begin // 1000 if found else written
        assert found == [manifest(number) for number in range(kept, written)]


def test_expired_runs_are_removed_except_the_last_one():
    files = MemoryFiles()
    manifests = Manifests(files)
    for number in range(10):
        manifests.add(manifest(number))
        files.content[f"{manifest(number).folder}/day=2026-01-01/a.parquet"] = b"1234567"
    manifests.compact(5, 5)
    files.content["data/run=left/x.parquet"] = b""
    assert expire(files, manifests, 4500) == [manifest(number).name for number in range(4)]
    assert [each.begin for each in manifests.all()] == [number * 1000 for number in range(4, 10)]
    assert len(files.listed("data")) == 6
    assert expire(files, manifests, 1 << 60) == [manifest(number).name for number in range(4, 9)]
    assert manifests.all() == [manifest(9)] and manifests.last() == manifest(9)


@settings(max_examples=60)
@given(st.data())
def test_invalid_manifest_is_reported(data):
    text = manifest(1).to_json()
    damage = data.draw(st.sampled_from(["cut", "flip", "drop", "value"]))
    if damage == "cut":
        text = text[:data.draw(st.integers(0, len(text) - 1))]
    elif damage == "flip":
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.characters(min_codepoint=1, max_codepoint=300)) + text[at + 1:]
    else:
        fields = json.loads(text)
        name = data.draw(st.sampled_from(sorted(fields)))
        if damage == "drop":
            del fields[name]
        else:
            fields[name] = data.draw(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers())))
        text = json.dumps(fields)
    try:
        found = parse_manifest(text, "there")
    except PipelineError as error:
        assert "there" in str(error) or "name of a manifest" in str(error)
    else:
        assert found.pieces[0].begin == found.begin and found.pieces[-1].end == found.end


def test_unknown_version_and_names_outside_the_archive_are_refused():
    for change, told in (({"version": 3}, "unknown archive version 3"),
                         ({"files": {"../../x": 1}}, "its files are invalid"),
                         ({"pieces": []}, "its pieces end at offset"),
                         ({"pieces": [[1001, 2000, 0, 0, 0]]}, "do not meet at offset 1000")):
        with pytest.raises(PipelineError, match=told):
            parse_manifest(json.dumps({**json.loads(manifest(1).to_json()), **change}), "there")


def test_second_writer_is_refused_while_one_holds_the_lock():
    files = MemoryFiles()
    with locked(files, "archive"):
        with pytest.raises(PipelineError, match=r"is being written by process \d+ on .* \(somebody\) since 2026"):
            foreign = {"host": "elsewhere", "pid": 1, "started": 0.0, "since": "2026", "what": "somebody"}
            files.content["_lock/other.json"] = json.dumps(foreign).encode()
            with locked(files, "archive"):
                pass
        del files.content["_lock/other.json"]
    assert not files.listed("_lock")


def test_lock_of_a_process_that_has_ended_does_not_count():
    files = MemoryFiles()
    alive = {"host": socket.gethostname(), "pid": os.getppid(), "since": "then", "what": "archive",
             "started": psutil.Process(os.getppid()).create_time()}
    files.content["_lock/a.json"] = json.dumps(alive).encode()
    with pytest.raises(PipelineError, match="add --break-lock"), locked(files, "archive"):
        pass
    with locked(files, "archive", break_lock=True):
        pass
    for gone in ({**alive, "started": 5.0}, {**alive, "pid": 1 << 22}):
        files.content["_lock/a.json"] = json.dumps(gone).encode()
        with locked(files, "archive") as lock:
            assert len(files.listed("_lock")) == 1
            files.remove(["_lock"])
            with pytest.raises(PipelineError, match="another process broke the lock"):
                lock.check()
    files.content["_lock/a.json"] = b"{"
    with pytest.raises(PipelineError, match=r"lock a\.json is damaged"), locked(files, "archive"):
        pass


def test_moments_are_parsed():
    assert parse_moment("1700000000000") == 1_700_000_000_000
    assert parse_moment("2026-03-01T00:00:00Z") == parse_moment("2026-03-01T01:00:00+01:00") == 1_772_323_200_000
    assert parse_moment("30d", 1_772_323_200_000) == 1_772_323_200_000 - 30 * 86_400_000
    for text in ("", "yesterday", "2026-13-01", "-5", "5 x", "²"):
        with pytest.raises(PipelineError, match="is not a valid (time|duration)"):
            parse_moment(text)


# A record with any contents is restored byte for byte from its remainder, its columns and its body.

_INT = st.integers(-(1 << 31), (1 << 31) - 1)
_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_TIME = st.one_of(st.integers(0, 4_000_000_000_000), st.sampled_from(
    [-1, 0, 1 << 62, FIRST_MS - 1, FIRST_MS, LAST_MS, LAST_MS + 1]), _LONG)
FIELDS = st.fixed_dictionaries({
    "crc": _INT, "queue": _INT, "flag": _INT, "queueOffset": _LONG, "place": _LONG, "sysFlag": _INT, "born": _TIME,
    "stored": _TIME, "reconsumed": _INT, "prepared": _LONG, "body": st.binary(max_size=40),
    "topic": st.binary(max_size=20), "properties": st.binary(max_size=40), "magic": st.sampled_from([0, 0, 0, 5])})


def made(fields: dict) -> tuple[bytes, int]:
    """Return (a record, the length of its head)."""
    head = layout.HEADS[fields["sysFlag"] >> 4 & 3]
    hosts = [b"\x0a" * (20 if fields["sysFlag"] & flag else 8)
             for flag in (layout.BORNHOST_V6_FLAG, layout.STOREHOSTADDRESS_V6_FLAG)]
    size = head.size + len(fields["body"]) + 3 + len(fields["topic"]) + len(fields["properties"])
    data = head.pack(size, layout.MESSAGE_MAGIC_CODE + fields["magic"], fields["crc"], fields["queue"], fields["flag"],
                     fields["queueOffset"], fields["place"], fields["sysFlag"], fields["born"], hosts[0],
                     fields["stored"], hosts[1], fields["reconsumed"], fields["prepared"], len(fields["body"]))
    tail = (bytes((len(fields["topic"]),)) + fields["topic"] + len(fields["properties"]).to_bytes(2, "big")
            + fields["properties"])
    return data + fields["body"] + tail, head.size


def columns_of(rows: list[dict], odd: int = 0) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Return (envelopes, columns); with `odd`, the columns contain another place than the record."""
    def times(name):
        values = [row[name] if FIRST_MS <= row[name] <= LAST_MS else None for row in rows]
        return pa.array([None if value is None else value * 1000 for value in values], pa.int64()).cast(
            pa.timestamp("us", "UTC"))
    whole = [made(row) for row in rows]
    columns = {"storeSize": pa.array([len(data) for data, _ in whole], pa.int32()),
               "bodyCrc": pa.array([row["crc"] for row in rows], pa.int32()),
               "queueId": pa.array([row["queue"] for row in rows], pa.int32()),
               "queueOffset": pa.array([row["queueOffset"] for row in rows], pa.int64()),
               "physicalOffset": pa.array([row["place"] ^ odd for row in rows], pa.int64()),
               "sysFlag": pa.array([row["sysFlag"] for row in rows], pa.int32()),
               "bornTimestamp": times("born"), "storeTimestamp": times("stored"),
               "storedBody": pa.array([row["body"] for row in rows], pa.binary())}
    envelopes = pa.array([data[:head] + data[head + len(row["body"]):]
                          for row, (data, head) in zip(rows, whole, strict=True)], pa.binary())
    return envelopes, columns


@settings(max_examples=60)
@given(st.lists(FIELDS, min_size=1, max_size=8), st.sampled_from([0, 1]), st.integers(0, 3))
def test_every_record_is_restored(rows, odd, cut):
    envelopes, columns = columns_of(rows, odd)
    assert set(TOLD_BY) < set(columns)
    columns["remainder"] = blank(envelopes, columns)
    assert len(columns["remainder"]) == len(rows)
    wanted = [made(row)[0] for row in rows]
    assert records(columns).to_pylist() == wanted
    # As Spark passes them: slices of longer arrays.
    sliced = {name: column.slice(min(cut, len(rows) - 1)) for name, column in columns.items()}
    assert records(sliced).to_pylist() == wanted[min(cut, len(rows) - 1):]
    columns["envelope"] = envelopes
    del columns["remainder"]
    assert records(columns).to_pylist() == wanted  # version 1


def test_remainder_has_no_bytes_that_the_columns_have():
    row = {"crc": 5, "queue": 3, "flag": 0, "queueOffset": 77, "place": 1 << 40, "sysFlag": 0,
           "born": 1_700_000_000_000, "stored": 1_700_000_000_001, "reconsumed": 0, "prepared": 0, "body": b"body",
           "topic": b"T", "properties": b"", "magic": 0}
    remainders = blank(*columns_of([row, {**row, "place": 1 << 41, "crc": 6, "body": b"other"}])).to_pylist()
    assert remainders[0] == remainders[1] and not any(remainders[0][:48])


def test_rows_become_messages_again():
    row = {"crc": 5, "queue": 3, "flag": 9, "queueOffset": 77, "place": 1 << 40, "sysFlag": 0,
           "born": 1_700_000_000_000, "stored": 1_700_000_000_001, "reconsumed": 2, "prepared": 4, "body": b"body",
           "topic": b"00123", "properties": b"KEYS\x01k\x02a\x01b\x02", "magic": 0}
    envelopes, columns = columns_of([row, {**row, "topic": b"T", "sysFlag": layout.BORNHOST_V6_FLAG}])
    columns["remainder"] = blank(envelopes, columns)
    columns["crcOk"] = pa.array([True, False])
    schema = StructType([StructField(name, kind) for name, kind in ROCKETMQ.items()])
    found, = _AsTable(schema).run(iter([pa.RecordBatch.from_pydict(columns)]))
    one, other = found.to_pylist()
    assert (one["topic"], other["topic"], one["keys"], one["body"]) == ("00123", "T", "k", b"body")
    assert one["physicalOffset"] == 1 << 40 and (one["crcOk"], other["crcOk"]) == (True, False)
    assert dict(one["properties"]) == {"KEYS": "k", "a": "b"} and (one["flag"], one["reconsumeTimes"]) == (9, 2)
    assert [each["storeTimestamp"].timestamp() for each in (one, other)] == [1_700_000_000.001] * 2


# Any contents of an archive's files: a PipelineError within bounded memory, and nothing outside is touched.

RUN = f"{0:020d}-{1000:020d}-"
LEADING_OUT = [RUN + "/../../../victim", RUN + "x/../../../../victim", RUN + "..", RUN + "a/b", RUN + "\0", RUN + "é",
               RUN + "a b", "²" * 20 + RUN[20:]]
_ODD_NUMBERS = [-1, -(1 << 63), 1 << 63, 1 << 64, 10 ** 300, 1e30, float("inf"), float("nan"), 0.5, True, None, "7",
                [], {}]


def text_with(path, value) -> str:
    """Return the JSON of a manifest with a different value at one place."""
    fields = place = json.loads(manifest(1).to_json())
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(fields)


def places(value, path=()):
    """Return the paths of all values within JSON."""
    if isinstance(value, (dict, list)) and path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*path, key))
        else:
            yield (*path, key)


PLACES = list(places(json.loads(manifest(1).to_json())))


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_odd_values_in_a_manifest_are_refused_or_harmless(path):
    for value in [*_ODD_NUMBERS, [[]], [[1]], [[0, -1]], [[0, 0]], [[0, 1 << 62]], [[1 << 62, 1 << 62]],
                  [[5000, 10]], [[0, 1500]], [[0, 1500], [1400, 1000]]]:
        try:
            found = parse_manifest(text_with(path, value), "there")
        except PipelineError as error:
            assert "there" in str(error) or "name of a manifest" in str(error)
            continue
        units = list(units_of([found]))
        assert [unit.begin - unit.file_start >= 0 for unit in units] == [True] * len(found.pieces)
        assert 0 <= found.begin <= found.end < 1 << 63 and found.bytes >= 0


@pytest.mark.parametrize(("path", "value"), [
    (("segments",), []), (("segments",), [[0, 0]]), (("segments",), [[0, 1500]]), (("segments",), [[0, 1 << 50]]),
    (("begin",), 1e30), (("rows",), -1), (("rows",), 1e30), (("pieces", 0, 2), 1 << 32), (("pieces", 0, 3), True),
    (("residues", 0, 1), 1 << 62), (("residues", 0, 0), 0), (("residues", 0, 2), 7), (("tail", 2), -1),
    (("files", "day=2026-01-01/a.parquet"), -1), (("maxTime",), float("inf")), (("source",), 5)])
def test_values_that_would_fail_later_are_refused_immediately(path, value):
    with pytest.raises(PipelineError, match="there is not a manifest of an archive"):
        parse_manifest(text_with(path, value), "there")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"version": 1, "pieces": []}', "9" * 10_000, "null", "\ud800",
                                  '{"version": 1, "begin": 0, "end": 0, "pieces": [], "residues": [], "files": {}}'])
def test_odd_json_is_refused(text):
    with pytest.raises(PipelineError, match="there is not a manifest of an archive"):
        parse_manifest(text, "there")


@pytest.mark.parametrize("name", LEADING_OUT)
def test_expiring_refuses_names_outside_the_archive(name):
    files = MemoryFiles()
    first, second = manifest(0), manifest(1)
    files.content["_manifest/" + first.name + ".json"] = json.dumps(
        {**json.loads(first.to_json()), "name": name}).encode()
    Manifests(files).add(second)
    before = dict(files.content)
    with pytest.raises(PipelineError, match="name of a manifest"):
        expire(files, Manifests(files), 1 << 60)
    assert files.content == before


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "a/.", "", "day=1/\0", "n" * 300,
                                  "*.parquet", "day=[12]/a.parquet", "{a,b}", "a\\b"])
def test_file_names_of_a_manifest_must_be_below_its_run(name):
    with pytest.raises(PipelineError, match="is not a manifest"):
        parse_manifest(text_with(("files",), {name: 1}), "there")


@pytest.mark.parametrize("name", ["../x", "data/../../x", "data/run=a/../..", "/x", "data//x", "data/\0"])
def test_paths_outside_the_archive_are_refused(name):
    files = ReaderFiles(MagicMock(), "/archive")
    assert files.path("data/run=a/") == "/archive/data/run=a" and files.path("") == "/archive"
    for work in (files.path, lambda each: files.read([each]), lambda each: files.remove([each]),
                 lambda each: files.write(each, "")):
        with pytest.raises(PipelineError, match="does not lead to a place below"):
            work(name)


def many(text: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.content[f"_manifest/{RUN}2.jsonl.gz"] = base64.b64encode(text)
    return files


@pytest.mark.parametrize("text", [b"", b"no gzip", gzip.compress(b"{}", mtime=0)[:-9],
                                  gzip.compress(b"x" * 100, mtime=0)[:20] + b"?"],
                         ids=["empty", "not gzip", "cut within its checksum", "wrong checksum"])
def test_damaged_files_of_many_manifests_are_reported(text):
    with pytest.raises(PipelineError, match="does not contain manifests of an archive|is not a manifest of an archive"):
        Manifests(many(text)).last()


def test_small_file_that_inflates_to_very_much_is_refused(monkeypatch):
    monkeypatch.setattr(archive_files, "MOST_BYTES", 1 << 20)
    packed = gzip.compress(b" " * (64 << 20))
    assert len(packed) < 1 << 20
    with pytest.raises(PipelineError, match="decompresses to more than 1048576 bytes"):
        Manifests(many(packed)).all()


def test_too_large_file_of_manifests_is_not_read(monkeypatch):
    monkeypatch.setattr(archive_files, "MOST_BYTES", 2000)
    files = MemoryFiles()
    files.content[f"_manifest/{manifest(0).name}.json"] = b" " * 2001
    with pytest.raises(PipelineError, match="has 2001 bytes, a file of manifests has at most 2000"):
        Manifests(files).last()
    assert files.reads == 0


def test_file_of_manifests_that_would_be_too_large_to_read_is_not_written(monkeypatch):
    files = MemoryFiles()
    for number in range(10):
        Manifests(files).add(manifest(number))
    monkeypatch.setattr(archive_files, "MOST_BYTES", 2000)
    Manifests(files).compact(5, 5)
    assert len(files.content) == 10 and Manifests(files).all() == [manifest(number) for number in range(10)]
    monkeypatch.setattr(archive_files, "MOST_BYTES", 100)
    with pytest.raises(PipelineError, match="use smaller runs"):
        Manifests(files).add(manifest(10))


@pytest.mark.parametrize("data", ["AAAA", "!", base64.b64encode(zlib.compress(b"x" * (32 << 20))).decode(),
                                  base64.b64encode(zlib.compress(b"abcdefgh" * 9)[:-7]).decode()])
def test_damaged_residue_is_reported_in_its_unit(data):
    making = _Making(Unit(0, 0, (Piece(0, 1000, 0),), (Residue(0, 1000, data),), 0), None)
    problem = making.end().column("problem")[0].as_py()
    assert problem.startswith("the bytes at offset 0 that are not a message: ")


@settings(max_examples=40)
@given(st.binary(max_size=30), st.sampled_from(["remainder", "sysFlag", "storeSize", "storedBody", "physicalOffset"]))
def test_odd_columns_of_messages_are_refused(cut, name):
    row = {"crc": 1, "queue": 0, "flag": 0, "queueOffset": 0, "place": 0, "sysFlag": 0, "born": 1, "stored": 1,
           "reconsumed": 0, "prepared": 0, "body": b"body", "topic": b"T", "properties": b"", "magic": 0}
    envelopes, columns = columns_of([row, row])
    columns["remainder"] = blank(envelopes, columns)
    assert len(records(columns)) == 2
    kind = columns[name].type
    columns[name] = pa.array([cut, columns[name][1].as_py()] if name == "remainder" else
                             [None, columns[name][1].as_py()], kind)
    with pytest.raises(ValueError, match="shorter than the head|has no value"):
        records(columns)


@pytest.mark.parametrize("pid", [-1, 0, 1e30, float("inf"), 1 << 40, "x", None])
def test_invalid_lock_is_reported_as_damaged(pid):
    files = MemoryFiles()
    lock = {"host": os.uname().nodename, "pid": pid, "started": 1.0}
    files.content["_lock/other.json"] = json.dumps(lock).encode()
    with pytest.raises(PipelineError, match="lock other.json is damaged"), locked(files, "archive"):
        pass


def test_limits_are_those_of_the_layout():
    assert archive_files.MOST_BYTES is archive_files.MOST_BYTES
