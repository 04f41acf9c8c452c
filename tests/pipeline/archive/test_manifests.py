"""Manifests: many of them in few files, whatever is broken off; what is none is told; who writes at a time."""
import json
import os
import random
import socket

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.pipeline.archive.archive import expire
from rmqha.pipeline.archive.archive_files import (
    Manifest,
    Manifests,
    Piece,
    Residue,
    Tail,
    locked,
    parse_manifest,
    run_name,
)
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.worker import parse_moment
from tests.pipeline.archive.memory_files import MemoryFiles


def manifest(number: int, size: int = 1000) -> Manifest:
    begin, end = number * size, (number + 1) * size
    return Manifest(begin, end, run_name(begin, end, f"{number:08x}"), 3, "/store/commitlog", [(0, 1 << 30)],
                    [Piece(begin, end, number, 3, begin)], [Residue.of(begin, b"ab\0\0")],
                    {"day=2026-01-01/a.parquet": 7}, number * 1000, number * 1000 + 999, Tail(begin, end, number))


class Broken(Exception):
    pass


def test_a_manifest_is_read_as_it_was_written():
    one = manifest(3)
    assert parse_manifest(one.to_json(), "there") == one and "\n" not in one.to_json()
    assert one.residues[0].content() == b"ab"


def test_a_hundred_thousand_runs_are_few_files_and_the_next_run_reads_one():
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
def test_what_is_broken_off_anywhere_loses_and_doubles_nothing(seed):
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


def test_expired_runs_go_the_last_one_stays():
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
def test_what_is_no_manifest_is_told(data):
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


def test_another_version_and_names_that_lead_out_are_refused():
    for change, told in (({"version": 3}, "version 3 of the archive is not known"),
                         ({"files": {"../../x": 1}}, "its files are not right"),
                         ({"pieces": []}, "its pieces end at offset"),
                         ({"pieces": [[1001, 2000, 0, 0, 0]]}, "do not meet at offset 1000")):
        with pytest.raises(PipelineError, match=told):
            parse_manifest(json.dumps({**json.loads(manifest(1).to_json()), **change}), "there")


def test_two_writers_at_once_are_one():
    files = MemoryFiles()
    with locked(files, "archive"):
        with pytest.raises(PipelineError, match=r"is being written by process \d+ on .* \(somebody\) since 2026"):
            foreign = {"host": "elsewhere", "pid": 1, "started": 0.0, "since": "2026", "what": "somebody"}
            files.content["_lock/other.json"] = json.dumps(foreign).encode()
            with locked(files, "archive"):
                pass
        del files.content["_lock/other.json"]
    assert not files.listed("_lock")


def test_a_lock_of_a_process_that_is_gone_does_not_count():
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
            with pytest.raises(PipelineError, match="somebody broke the lock"):
                lock.check()
    files.content["_lock/a.json"] = b"{"
    with pytest.raises(PipelineError, match=r"lock a\.json is damaged"), locked(files, "archive"):
        pass


def test_moments():
    assert parse_moment("1700000000000") == 1_700_000_000_000
    assert parse_moment("2026-03-01T00:00:00Z") == parse_moment("2026-03-01T01:00:00+01:00") == 1_772_323_200_000
    assert parse_moment("30d", 1_772_323_200_000) == 1_772_323_200_000 - 30 * 86_400_000
    for text in ("", "yesterday", "2026-13-01", "-5", "5 x", "²"):
        with pytest.raises(PipelineError, match="is not a valid (time|duration)"):
            parse_moment(text)
