"""The jobs archive, verify and restore: byte for byte, interrupted anywhere, and on other file systems."""
import importlib.util
import json
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqha.pipeline.archive import archive as archive_module
from rmqha.pipeline.archive.archive import Sizes, archive
from rmqha.pipeline.archive.archive_files import Manifests, archive_files
from rmqha.pipeline.archive.archive_table import Chosen, archived_messages
from rmqha.pipeline.archive.restore import restore, verify
from tests.faults import archive_kills
from tests.pipeline.support import log_of, put
from tests.store import support
from tests.support import spark_cluster, tiers
from tests.support.sources import ROOT

# The jobs archive, verify and restore: the log is restored byte for byte; interrupted runs leave nothing incomplete.

SMALL = Sizes(piece=4096, run=2 * support.FILE_SIZE, chunk=support.FILE_SIZE)
V1 = Path(__file__).parents[2] / "golden" / "archive_v1" / "archive.tar.xz"


def manifests_of(spark, target):
    return Manifests(archive_files(spark, str(target))).all()


def test_log_of_the_real_broker_is_restored_byte_for_byte(spark, tmp_path):
    root = support.unpack_golden("kill", tmp_path)
    done = archive(spark, str(root), str(tmp_path / "archive"))
    found = verify(spark, str(tmp_path / "archive"))
    made = restore(spark, str(tmp_path / "archive"), str(tmp_path / "out"))
    assert (done.rows, done.files) == (266, 1) and made.rows == found.messages == 266
    assert found.problems == found.notes == [] and found.bytes == done.logBytes
    assert log_of(tmp_path / "out") == log_of(root)


def test_each_run_adds_new_messages_and_the_table_equals_the_log(spark, tmp_path):
    root, target = tmp_path / "store", str(tmp_path / "archive")
    put(root, 0, 50)
    first = archive(spark, str(root), target)
    assert archive(spark, str(root), target).ranges == []
    put(root, 50, 60)
    second = archive(spark, str(root), target, sizes=SMALL._replace(run=support.FILE_SIZE))
    assert second.begin == first.end and (first.rows, second.rows) == (50, 60)
    assert len(second.ranges) == 2
    messages = spark.read.parquet(target + "/data")
    assert {"topic", "day", "run"} < set(messages.columns)
    assert messages.where("topic = '%T1'").count() == 37
    columns = [name for name in archived_messages(spark, target).columns if name != "brokerName"]
    ours = archived_messages(spark, target, columns=columns).selectExpr(
        *(name for name in columns if name != "properties"), "to_json(properties) as properties")
    theirs = spark.read.format("rocketmq-commitlog").option("columns", ",".join(columns)).load(str(root)).selectExpr(
        *(name for name in columns if name != "properties"), "to_json(properties) as properties")
    assert ours.exceptAll(theirs).count() == theirs.exceptAll(ours).count() == 0 < ours.count()
    wanted = Chosen(["%T0"], begin=first.end)
    assert archived_messages(spark, target, wanted, ["keys"]).count() == sum(each % 3 == 0 for each in range(50, 110))
    restore(spark, target, str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)
    shutil.rmtree(root)
    put(root, 0, 500)
    with pytest.raises(ValueError, match="it is another log, or was changed since"):
        archive(spark, str(root), target)


def test_restore_may_end_at_a_time(spark, tmp_path):
    root, target = tmp_path / "store", str(tmp_path / "archive")
    put(root, 0, 90)
    archive(spark, str(root), target, sizes=SMALL)
    rows = spark.read.format("rocketmq-commitlog").load(str(root)).selectExpr(
        "physicalOffset", "unix_millis(storeTimestamp) as ms").orderBy("physicalOffset").collect()
    until = rows[60].ms
    end = next(row.physicalOffset for row in rows if row.ms >= until)
    made = restore(spark, target, str(tmp_path / "out"), until=until)
    assert made.end == end
    whole = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    back = b"".join(path.read_bytes() for path in sorted((tmp_path / "out" / "commitlog").iterdir()))
    assert back[:end] == whole[:end] and not any(back[end:])
    with pytest.raises(ValueError, match="has nothing that was stored before"):
        restore(spark, target, str(tmp_path / "other"), until=5)


def test_damaged_log_is_archived_as_it_is(spark, tmp_path):
    root, chance = tmp_path / "store", random.Random(3)
    put(root, 0, 120)
    for path in sorted((root / "commitlog").iterdir())[:-1]:
        data = bytearray(path.read_bytes())
        for _ in range(3):
            at = chance.randrange(len(data))
            data[at:at + chance.randrange(1, 300)] = chance.randbytes(30)
        path.write_bytes(bytes(data[:support.FILE_SIZE]).ljust(support.FILE_SIZE, b"\7"))
    archive(spark, str(root), str(tmp_path / "archive"), sizes=SMALL)
    restore(spark, str(tmp_path / "archive"), str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)


def test_interrupted_run_does_not_count(spark, tmp_path, monkeypatch):
    root, target = tmp_path / "store", tmp_path / "archive"
    put(root, 0, 100)
    add, left = Manifests.add, [1]

    def breaks(*args):
        left[0] -= 1
        if left[0] < 0:
            raise OSError("the disk is gone")
        add(*args)
    monkeypatch.setattr(archive_module.Manifests, "add", breaks)
    with pytest.raises(OSError, match="the disk is gone"):
        archive(spark, str(root), str(target), sizes=SMALL)
    assert len(manifests_of(spark, target)) == 1 and len(list((target / "data").iterdir())) == 2
    assert verify(spark, str(target)).notes[0].endswith("belongs to no run that counts")
    monkeypatch.undo()
    archive(spark, str(root), str(target), sizes=SMALL)
    made = restore(spark, str(target), str(tmp_path / "out"))
    assert made.rows == 100 == spark.read.parquet(str(target / "data")).count()
    assert log_of(tmp_path / "out") == log_of(root)
    shutil.rmtree(target / "_manifest")
    with pytest.raises(ValueError, match="but no manifest"):
        archive(spark, str(root), str(target))


def test_vanished_file_is_reported_and_its_run_does_not_count(spark, tmp_path):
    root, target = tmp_path / "store", tmp_path / "archive"
    put(root, 0, 200)
    path = sorted((root / "commitlog").iterdir())[2]
    whole = path.read_bytes()
    with pytest.raises(Exception, match=f"{path.name} has vanished while the log was read"):
        archive(spark, str(root), str(target), lambda done, total: path.unlink(missing_ok=True), sizes=SMALL)
    assert [each.end for each in manifests_of(spark, target)] == [int(path.name)]
    assert not (target / "_lock").exists() or not list((target / "_lock").iterdir())
    path.write_bytes(whole)
    archive(spark, str(root), str(target))
    restore(spark, str(target), str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)


def test_damaged_archive_is_reported_and_nothing_is_restored(spark, tmp_path):
    root, target = tmp_path / "store", tmp_path / "archive"
    put(root, 0, 30)
    archive(spark, str(root), str(target))
    manifest, = manifests_of(spark, target)
    victim = Path(target, manifest.folder, sorted(manifest.files)[0])
    whole = victim.read_bytes()
    victim.unlink()
    with pytest.raises(ValueError, match="the manifest names it, but it is missing"):
        restore(spark, str(target), str(tmp_path / "out"))
    assert "but it is missing" in verify(spark, str(target)).problems[0]
    victim.write_bytes(whole)
    path = next((target / "_manifest").glob("*.json"))
    for crc in (target / "_manifest").glob(".*.crc"):
        crc.unlink()
    fields = json.loads(path.read_text())
    fields["pieces"][0][2] ^= 1
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="offsets 0 to [0-9]+ have a different CRC"):
        restore(spark, str(target), str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []
    assert "have a different CRC" in verify(spark, str(target)).problems[0]
    path.write_text("{}")
    with pytest.raises(ValueError, match="is not a manifest of an archive"):
        restore(spark, str(target), str(tmp_path / "out"))
    with pytest.raises(ValueError, match="is not an archive"):
        restore(spark, str(root), str(tmp_path / "out"))


def test_topics_that_look_like_numbers_stay_strings(spark, tmp_path):
    with support.open_store(tmp_path / "store") as store:
        for number in range(9):
            support.put(store, support.message("00123", 0, b"x" * number))
    archive(spark, str(tmp_path / "store"), str(tmp_path / "archive"))
    rows = spark.read.parquet(str(tmp_path / "archive" / "data")).where("topic = '00123'").collect()
    assert {row.topic for row in rows} == {"00123"} and len(rows) == 9


def test_files_are_sorted_and_have_statistics(spark, tmp_path):
    with support.open_store(tmp_path / "store", mappedFileSizeCommitLog=1 << 20) as store:
        for number in range(600):
            support.put(store, support.message(f"topic-{number * 7 % 50:02d}", number % 3, random.randbytes(200)))
    archive(spark, str(tmp_path / "store"), str(tmp_path / "archive"), sizes=SMALL._replace(row_group=20_000,
                                                                                        chunk=1 << 30))
    files = [pq.ParquetFile(path) for path in (tmp_path / "archive").rglob("*.parquet")]
    for file in files:
        rows = file.read(["topic", "queueId", "queueOffset"]).to_pylist()
        assert rows == sorted(rows, key=lambda row: tuple(row.values()))
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        bounds = [(column.statistics.min, column.statistics.max) for group in groups
                  for column in [group.column(number) for number in range(group.num_columns)]
                  if column.path_in_schema == "topic"]
        assert len(groups) > 1 and bounds == sorted(bounds) and all(low < "topic-50" for low, _ in bounds)
        assert {"storeTimestamp", "topic"} <= {group.column(number).path_in_schema for group in groups
                                               for number in range(group.num_columns)
                                               if group.column(number).statistics is not None}
    assert sum(file.metadata.num_rows for file in files) == 600


def test_topic_that_fills_the_log_is_written_by_all_tasks(spark, tmp_path):
    with support.open_store(tmp_path / "store", mappedFileSizeCommitLog=1 << 20) as store:
        for number in range(400):
            support.put(store, support.message("orders", number % 4, b"x" * 100))
    archive(spark, str(tmp_path / "store"), str(tmp_path / "archive"), sizes=Sizes(file=5_000))
    rows = [pq.ParquetFile(path).metadata.num_rows for path in (tmp_path / "archive" / "data").rglob("*.parquet")]
    assert rows == [100] * 4


def test_archives_of_version_1_are_read_and_appended_to(spark, tmp_path):
    filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(V1) as golden:
        golden.extractall(tmp_path, **filters)
    root, target = tmp_path / "store", str(tmp_path / "archive")
    assert verify(spark, target).problems == []
    restore(spark, target, str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)
    with support.open_store(root, mappedFileSizeCommitLog=4096) as store:
        support.put(store, *(support.message("00123", 0, b"y" * 100) for _ in range(5)))
    added = archive(spark, str(root), target)
    assert added.rows == 5
    topics = archived_messages(spark, target, Chosen(["00123"]), ["topic", "queueOffset"]).collect()
    assert sorted((row.topic, row.queueOffset) for row in topics) == [("00123", number) for number in range(15)]
    restore(spark, target, str(tmp_path / "both"))
    assert log_of(tmp_path / "both") == log_of(root)


def test_archive_on_another_file_system_of_hadoop(spark, tmp_path):
    """viewfs: its own links over local folders."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "disk").mkdir()
    conf.set("fs.viewfs.mounttable.archives.link./logs", f"file:{tmp_path}/disk")
    root, target = tmp_path / "store", "viewfs://archives/logs/broker-a"
    put(root, 0, 60)
    done = archive(spark, str(root), target, sizes=SMALL, expire_before=1)
    assert done.archive == target and verify(spark, target).problems == []
    restore(spark, target, str(tmp_path / "out"))
    assert log_of(tmp_path / "out") == log_of(root)
    with pytest.raises(ValueError, match="nosuchfs"):
        archive(spark, str(root), "nosuchfs://host/x")


# A kill of `archive` and one of `restore` at random moments; tests/faults/archive_kills.py does many of them.


def test_killed_job_gives_identical_results_when_it_is_repeated(spark, tmp_path):
    if tiers.chosen() == "long":
        archive_kills.campaign(spark, tmp_path, 20, 1, 16)
    else:
        archive_kills.campaign(spark, tmp_path, 1, 1, 2, {"archive": 4, "restore": 4})


# Archives on an object store (S3), and as Iceberg tables, each in a process that starts real servers for itself.


@pytest.mark.skipif(importlib.util.find_spec("moto") is None, reason="moto is missing: pip install -e '.[lake]'")
@pytest.mark.skipif(spark_cluster.why_unavailable() is not None, reason=str(spark_cluster.why_unavailable()))
def test_archive_on_s3_is_verified_and_restored_byte_for_byte(tmp_path):
    put(tmp_path / "store", 0, 90)
    command = [sys.executable, "-m", "tests.pipeline.archive.on_s3", str(tmp_path / "store"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["first"], found["second"], found["verified"], found["restored"]) == (50, 40, [90, []], 90)
    assert found["locked"].startswith("s3a://archives/broker-a is being written by process 1 on elsewhere")
    assert found["keys"] == {"_manifest": 2, "data": 2} and found["one"] == 30
    assert log_of(tmp_path / "out") == log_of(tmp_path / "store")
