"""A store that the real broker has just written, with messages of every kind: Spark reads what Java's consumer got;
rebuilt queues and index, and the restored log, are byte for byte the broker's.

RMQHA_PIPELINE_MESSAGES sets the number of messages; with 2000000 the log has some GiB. RMQHA_PIPELINE_STORE names a
folder for the store, which may be there already: `python -m tests.pipeline.java_store` writes it in parts.
"""
import filecmp
import os
import shutil
from pathlib import Path

import pytest

from rmqha.pipeline.archive.archive import archive
from rmqha.pipeline.archive.restore import restore
from rmqha.pipeline.jobs.rebuild import Shape, common_queue_file_size, parse_delays, rebuild
from tests.pipeline import java_store

pytestmark = [pytest.mark.java, pytest.mark.timeout(6 * 3600)]

COUNT = int(os.environ.get("RMQHA_PIPELINE_MESSAGES", "300"))
FOLDER = os.environ.get("RMQHA_PIPELINE_STORE")
COMPARED = ("queueId", "queueOffset", "flag", "sysFlag", "bodyCrc", "storeSize", "physicalOffset", "tags", "keys",
            "uniqKey")


@pytest.fixture(scope="module")
def written(request, module_nodes, tmp_path_factory) -> tuple[Path, java_store.Written]:
    """Yield (the folder of a store and of the messages that Java's consumer got, its contents)."""
    folder = Path(FOLDER) if FOLDER else tmp_path_factory.mktemp("java-store")
    if (folder / "written.json").exists() and java_store.written(folder).is_complete:
        return folder, java_store.written(folder)
    driver = request.getfixturevalue("java_driver")
    return folder, java_store.write(folder, COUNT, driver, module_nodes, at_once=min(COUNT, 20_000))


@pytest.fixture
def store(written) -> Path:
    return written[0] / "broker" / "store"


@pytest.fixture
def room(written, tmp_path):
    """Yield a folder that is removed after the test, because its contents may be large."""
    folder = Path(FOLDER, "work") if FOLDER else tmp_path / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def read(spark, store: Path, **options):
    return spark.read.format("rocketmq-commitlog").options(**options).load(str(store))


def test_rows_equal_the_messages_of_javas_consumer(spark, written, store):
    same = [*COMPARED, "array_sort(map_entries(properties)) as properties", "sha2(body, 256) as body"]
    ours = read(spark, store, subscribe=java_store.TOPIC).selectExpr(
        *same, "unix_millis(bornTimestamp) as bornMs", "unix_millis(storeTimestamp) as storeMs",
        "bigint(properties['index']) as index")
    theirs = spark.read.parquet(str(written[0] / "got")).selectExpr(*same, "bornMs", "storeMs", "index")
    queues = [{row.queueId: row["count"] for row in side.groupBy("queueId").count().collect()}
              for side in (ours, theirs)]
    assert queues[0] == queues[1] and sum(queues[0].values()) == written[1].visible
    assert ours.exceptAll(theirs).limit(3).collect() == []


def test_every_kind_of_message_is_there_with_the_crc_of_its_body(spark, store):
    found = read(spark, store).selectExpr(
        "count_if(not crcOk) as wrong", "count_if(bodyCrc <> crc32(body) & 2147483647 and sysFlag & 1 = 0) as differ",
        "count_if(sysFlag & 1 = 1) as compressed", "count_if(sysFlag & 12 = 8) as committed",
        "count_if(topic = 'RMQ_SYS_TRANS_HALF_TOPIC') as half", "count_if(topic = 'SCHEDULE_TOPIC_XXXX') as delayed",
        "count_if(topic = 'TRANS_CHECK_MAX_TIME_TOPIC') as given_up", "count(distinct storeSize) as sizes").first()
    assert (found.wrong, found.differ) == (0, 0)
    assert min(found.compressed, found.committed, found.half, found.delayed, found.given_up) > 0 and found.sizes > 100


def test_rebuilt_files_equal_the_brokers(spark, written, store, room):
    shape = Shape(common_queue_file_size(str(store)), **written[1].index_shape, delays_ms=parse_delays())
    found = rebuild(spark, str(store), str(room), shape)
    assert (found.equal, found.differences, found.problems) == (True, [], [])
    assert found.keys > written[1].visible
    queues = [used_files(root / "consumequeue", "*/*/*") for root in (room, store)]
    assert same_content(*queues) == len(queues[0]) > 4
    indexes = [used_files(root / "index", "*") for root in (room, store)]
    assert same_content(*(dict(enumerate(files.values())) for files in indexes)) == found.indexFiles > 1


def test_restored_log_equals_the_brokers(spark, store, room):
    done = archive(spark, str(store), str(room / "archive"))
    assert done.rows == read(spark, store, columns="queueId").count()
    restore(spark, str(room / "archive"), str(room / "out"))
    logs = [used_files(root / "commitlog", "*") for root in (room / "out", store)]
    assert same_content(*logs) == len(logs[0]) > 1


def used_files(folder: Path, pattern: str) -> dict[str, Path]:
    """Return the files below a folder that are not all zeros, by name, in order."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.glob(pattern))
            if path.is_file() and has_data(path)}


def has_data(path: Path) -> bool:
    """Return whether a file has a byte other than 0."""
    with open(path, "rb") as file:
        return any(any(part) for part in iter(lambda: file.read(1 << 16), b""))


def same_content(ours: dict, theirs: dict) -> int:
    """Return the number of files; both sides must have the same files with the same bytes."""
    assert list(ours) == list(theirs)
    assert [name for name in ours if not filecmp.cmp(ours[name], theirs[name], shallow=False)] == []
    return len(ours)
