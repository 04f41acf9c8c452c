"""Whatever stands in the files of an archive: a PipelineError within bounded memory, and nothing outside is touched."""
import base64
import gzip
import json
import os
import zlib
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.pipeline.archive import archive_files
from rmqha.pipeline.archive.archive import expire
from rmqha.pipeline.archive.archive_files import Manifests, Piece, ReaderFiles, Residue, locked, parse_manifest
from rmqha.pipeline.archive.archive_scan import blank, records
from rmqha.pipeline.archive.restore import Unit, _Making, units_of
from rmqha.pipeline.format_options import PipelineError
from tests.pipeline.archive.memory_files import MemoryFiles
from tests.pipeline.archive.test_manifests import manifest
from tests.pipeline.archive.test_remainder import columns_of

RUN = f"{0:020d}-{1000:020d}-"
LEADING_OUT = [RUN + "/../../../victim", RUN + "x/../../../../victim", RUN + "..", RUN + "a/b", RUN + "\0", RUN + "é",
               RUN + "a b", "²" * 20 + RUN[20:]]
_ODD_NUMBERS = [-1, -(1 << 63), 1 << 63, 1 << 64, 10 ** 300, 1e30, float("inf"), float("nan"), 0.5, True, None, "7",
                [], {}]


def text_with(path, value) -> str:
    """The JSON of a manifest in which one place holds something else."""
    fields = place = json.loads(manifest(1).to_json())
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(fields)


def places(value, path=()):
    """The paths of all values within JSON."""
    if isinstance(value, (dict, list)) and path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*path, key))
        else:
            yield (*path, key)


PLACES = list(places(json.loads(manifest(1).to_json())))


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_odd_values_anywhere_in_a_manifest_are_refused_or_harmless(path):
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
def test_what_would_go_wrong_later_is_refused_at_once(path, value):
    with pytest.raises(PipelineError, match="there is no manifest of an archive"):
        parse_manifest(text_with(path, value), "there")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"version": 1, "pieces": []}', "9" * 10_000, "null", "\ud800",
                                  '{"version": 1, "begin": 0, "end": 0, "pieces": [], "residues": [], "files": {}}'])
def test_odd_json_is_refused(text):
    with pytest.raises(PipelineError, match="there is no manifest of an archive"):
        parse_manifest(text, "there")


@pytest.mark.parametrize("name", LEADING_OUT)
def test_expiring_follows_no_name_that_leads_out(name):
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
def test_files_of_a_manifest_are_names_below_its_run(name):
    with pytest.raises(PipelineError, match="is no manifest"):
        parse_manifest(text_with(("files",), {name: 1}), "there")


@pytest.mark.parametrize("name", ["../x", "data/../../x", "data/run=a/../..", "/x", "data//x", "data/\0"])
def test_no_path_leads_out_of_an_archive(name):
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
                         ids=["empty", "no gzip", "cut within its sum", "wrong within"])
def test_damaged_files_of_many_manifests_are_told(text):
    with pytest.raises(PipelineError, match="holds no manifests of an archive|is no manifest of an archive"):
        Manifests(many(text)).last()


def test_a_small_file_that_stands_for_very_much_is_refused(monkeypatch):
    monkeypatch.setattr(archive_files, "MOST_BYTES", 1 << 20)
    packed = gzip.compress(b" " * (64 << 20))
    assert len(packed) < 1 << 20
    with pytest.raises(PipelineError, match="unpacks to more than 1048576 bytes"):
        Manifests(many(packed)).all()


def test_a_file_of_manifests_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(archive_files, "MOST_BYTES", 2000)
    files = MemoryFiles()
    files.content[f"_manifest/{manifest(0).name}.json"] = b" " * 2001
    with pytest.raises(PipelineError, match="has 2001 bytes, a file of manifests has at most 2000"):
        Manifests(files).last()
    assert files.reads == 0


def test_what_would_be_too_large_to_be_read_is_not_written(monkeypatch):
    files = MemoryFiles()
    for number in range(10):
        Manifests(files).add(manifest(number))
    monkeypatch.setattr(archive_files, "MOST_BYTES", 2000)
    Manifests(files).compact(5, 5)
    assert len(files.content) == 10 and Manifests(files).all() == [manifest(number) for number in range(10)]
    monkeypatch.setattr(archive_files, "MOST_BYTES", 100)
    with pytest.raises(PipelineError, match="take smaller runs"):
        Manifests(files).add(manifest(10))


@pytest.mark.parametrize("data", ["AAAA", "!", base64.b64encode(zlib.compress(b"x" * (32 << 20))).decode(),
                                  base64.b64encode(zlib.compress(b"abcdefgh" * 9)[:-7]).decode()])
def test_a_damaged_residue_is_a_problem_of_its_unit(data):
    making = _Making(Unit(0, 0, (Piece(0, 1000, 0),), (Residue(0, 1000, data),), 0), None)
    problem = making.end().column("problem")[0].as_py()
    assert problem.startswith("the bytes at offset 0 that are no message: ")


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
def test_an_odd_lock_is_somebodys(pid):
    files = MemoryFiles()
    lock = {"host": os.uname().nodename, "pid": pid, "started": 1.0}
    files.content["_lock/other.json"] = json.dumps(lock).encode()
    with pytest.raises(PipelineError, match="lock other.json is damaged"), locked(files, "archive"):
        pass


def test_the_bounds_are_those_of_the_layout():
    assert archive_files.MOST_BYTES is archive_files.MOST_BYTES
