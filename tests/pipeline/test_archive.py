"""The jobs archive and restore: the log comes back byte for byte; runs that break off leave nothing half."""
import random
import shutil
from pathlib import Path

import pytest

from rmqha.pipeline import archive as archive_module
from rmqha.pipeline.archive import archive
from rmqha.pipeline.archive_layout import read_manifest, read_manifests
from rmqha.pipeline.restore import restore
from tests.store import support


def put(root: Path, first: int, count: int, file_size: int = support.FILE_SIZE) -> None:
    with support.open_store(root, mappedFileSizeCommitLog=file_size) as store:
        for number in range(first, first + count):
            support.put(store, support.message(f"%T{number % 3}", number % 2, b"x" * (number * 37 % 500),
                                               KEYS=str(number), TAGS="a/b"))


def log_of(root: Path) -> dict[str, bytes]:
    """The files of a log, as far as they are in use."""
    return {name: data for name, data in support.tree(root / "commitlog").items() if any(data)}


def test_a_log_of_the_real_broker_comes_back_byte_for_byte(spark, tmp_path):
    root = support.unpack_golden("kill", tmp_path)
    done = archive(spark, str(root), str(tmp_path / "archive"))
    made = restore(spark, str(tmp_path / "archive"), str(tmp_path / "out"))
    assert done.rows == made.rows == 266
    assert log_of(tmp_path / "out") == log_of(root)


def test_each_run_adds_what_is_new(spark, tmp_path):
    root, target = tmp_path / "store", str(tmp_path / "archive")
    put(root, 0, 50)
    first = archive(spark, str(root), target)
    assert archive(spark, str(root), target).ranges == []
    put(root, 50, 60)
    second = archive(spark, str(root), target)
    assert second.begin == first.end and (first.rows, second.rows) == (50, 60)
    messages = spark.read.parquet(target)
    assert {"topic", "day", "range"} < set(messages.columns)
    assert messages.where("topic = '%T1'").count() == 37
    restore(spark, target, str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)
    shutil.rmtree(root)
    put(root, 0, 500)
    with pytest.raises(ValueError, match="it is another log, or was changed since"):
        archive(spark, str(root), target)


def test_a_damaged_log_is_archived_as_it_is(spark, tmp_path):
    root, chance = tmp_path / "store", random.Random(3)
    put(root, 0, 120)
    for path in sorted((root / "commitlog").iterdir())[:-1]:
        data = bytearray(path.read_bytes())
        for _ in range(3):
            at = chance.randrange(len(data))
            data[at:at + chance.randrange(1, 300)] = chance.randbytes(30)
        path.write_bytes(bytes(data[:support.FILE_SIZE]).ljust(support.FILE_SIZE, b"\7"))
    archive(spark, str(root), str(tmp_path / "archive"))
    restore(spark, str(tmp_path / "archive"), str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)


def test_a_run_that_breaks_off_leaves_nothing_that_counts(spark, tmp_path, monkeypatch):
    root, target = tmp_path / "store", tmp_path / "archive"
    put(root, 0, 100)
    write, left = archive_module.write_manifest, [1]

    def breaks(*args):
        left[0] -= 1
        if left[0] < 0:
            raise OSError("the disk is gone")
        write(*args)
    monkeypatch.setattr(archive_module, "write_manifest", breaks)
    with pytest.raises(OSError, match="the disk is gone"):
        archive(spark, str(root), str(target))
    assert len(read_manifests(str(target))) == 1
    monkeypatch.undo()
    archive(spark, str(root), str(target))
    made = restore(spark, str(target), str(tmp_path / "out"))
    assert made.rows == 100 and log_of(tmp_path / "out") == log_of(root)


def test_a_file_that_vanishes_is_told_and_its_range_does_not_count(spark, tmp_path):
    root, target = tmp_path / "store", tmp_path / "archive"
    put(root, 0, 200)
    path = sorted((root / "commitlog").iterdir())[2]
    whole = path.read_bytes()
    with pytest.raises(Exception, match=f"{path.name} has vanished while the log was read"):
        archive(spark, str(root), str(target), lambda done, total: path.unlink(missing_ok=True))
    assert [manifest.segment for manifest in read_manifests(str(target))] == \
        [0, support.FILE_SIZE] == [int(each.name[6:26]) for each in sorted(target.glob("range=*"))]
    assert spark.read.parquet(str(target)).agg({"physicalOffset": "max"}).first()[0] < int(path.name)
    path.write_bytes(whole)
    archive(spark, str(root), str(target))
    restore(spark, str(target), str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)


def test_a_damaged_archive_is_told_and_nothing_is_restored(spark, tmp_path):
    root, target = tmp_path / "store", tmp_path / "archive"
    put(root, 0, 30)
    archive(spark, str(root), str(target))
    manifest, = read_manifests(str(target))
    victim = Path(manifest.folder(str(target)), sorted(manifest.files)[0])
    whole = victim.read_bytes()
    victim.unlink()
    with pytest.raises(ValueError, match="the manifest names it, but it is missing"):
        restore(spark, str(target), str(tmp_path / "out"))
    victim.write_bytes(whole)
    path = next((target / "_manifest").iterdir())
    path.write_text(path.read_text().replace(f'"crc32": {manifest.pieces[0].crc32}', '"crc32": 1'))
    with pytest.raises(ValueError, match="offsets 0 to [0-9]+ came out with another CRC"):
        restore(spark, str(target), str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no manifest of an archive"):
        read_manifest(str(path))
    with pytest.raises(ValueError, match="is no archive"):
        restore(spark, str(root), str(tmp_path / "out"))
