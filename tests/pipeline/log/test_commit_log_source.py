"""The format rocketmq-commitlog as a table: on stores of the real RocketMQ 4.9.7 and of rmqha, whole and damaged."""
import shutil
import struct
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rmqha.common.message.message_layout import MESSAGE_MAGIC_CODE, decode_parts
from tests.store import support

FORMAT = "rocketmq-commitlog"
COUNT = 60
BODY = b"body of a message " * 6


def read(spark, path, **options):
    return spark.read.format(FORMAT).options(**options).load(str(path))


def rows_of(frame):
    return sorted(frame.collect(), key=lambda row: row.physicalOffset)


def written_lines(name: str) -> list[list[str]]:
    """Return what the real broker's own reader printed about a captured store: see
    tests/golden/store_java_4.9.7/README.md."""
    text = (support.GOLDEN / f"{name}.txt").read_text("utf-8")
    return [line.split(" ") for line in text.splitlines()]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Return a stopped store of rmqha: two topics, files of 16 KiB."""
    root = tmp_path_factory.mktemp("log") / "store"
    with support.open_store(root) as running:
        for number in range(COUNT * 4):
            support.put(running, support.message(
                f"Topic{number % 2}", number // 2 % 2, BODY + b"%d" % number, TAGS=f"Tag{number % 3}",
                KEYS=f"key-{number} all", UNIQ_KEY=f"U{number:05d}", 名="值"))
        support.wait_dispatched(running)
    return root


@pytest.fixture
def damaged(store, tmp_path) -> Path:
    """Return a copy to damage."""
    shutil.copytree(store, tmp_path / "copy")
    return tmp_path / "copy"


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def overwrite(path: Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def record_at(path: Path, number: int) -> tuple[int, int, int]:
    """Return (position, total size, position of the body) of the n-th record of a file."""
    data, position = path.read_bytes(), 0
    for _ in range(number):
        position += struct.unpack_from(">i", data, position)[0]
    parts = decode_parts(memoryview(data)[position:])
    return position, parts.head.total_size, position + parts.body_position


@pytest.mark.parametrize("name", ["normal", "kill"])
def test_store_of_the_real_broker_is_read_as_its_own_reader_reads_it(spark, tmp_path, name):
    root = support.unpack_golden(name, tmp_path)
    rows = {(row.topic, row.queueId, row.queueOffset, row.physicalOffset): row
            for row in read(spark, root, decompress="false").collect()}
    expected = [line for line in written_lines(name) if len(line) == 9]
    assert expected
    for topic, queue_id, queue_offset, offset, size, crc, sys_flag, stored, tags in expected:
        row = rows[topic, int(queue_id), int(queue_offset), int(offset)]
        assert (row.storeSize, zlib.crc32(row.body), row.sysFlag) == (int(size), int(crc), int(sys_flag))
        assert row.storeTimestamp == datetime.fromtimestamp(int(stored) / 1000, UTC).replace(tzinfo=None)
        assert (row.tags or "null", row.crcOk) == (tags, True)


def test_every_column_equals_the_message(spark, store):
    rows = rows_of(read(spark, store))
    assert len(rows) == COUNT * 4
    for number, row in enumerate(rows):
        assert (row.topic, row.queueId, row.queueOffset) == (f"Topic{number % 2}", number // 2 % 2, number // 4)
        assert bytes(row.body) == BODY + b"%d" % number
        assert row.properties == {"TAGS": f"Tag{number % 3}", "KEYS": f"key-{number} all", "名": "值",
                                  "UNIQ_KEY": f"U{number:05d}"}
        assert (row.tags, row.keys, row.uniqKey) == (f"Tag{number % 3}", f"key-{number} all", f"U{number:05d}")
        assert (row.bornHost, row.storeHost, row.brokerName) == ("10.1.2.3:40000", "127.0.0.1:10911", "store")
        assert (row.bodyCrc, row.crcOk, row.flag, row.reconsumeTimes) == (zlib.crc32(row.body) & 0x7FFFFFFF, True, 0, 0)
        assert row.bornTimestamp == datetime.fromtimestamp(1_600_000_000, UTC).replace(tzinfo=None)


def test_table_schemas_of_the_older_connector_and_of_kafka_are_supported(spark, store):
    assert read(spark, store).columns[:9] == ["topic", "flag", "body", "properties", "brokerName", "queueId",
                                              "queueOffset", "bornTimestamp", "storeTimestamp"]
    row = read(spark, store, schema="kafka").where("topic = 'Topic1' and partition = 1 and offset = 7").collect()[0]
    assert (bytes(row.key), bytes(row.value), row.timestampType) == (b"key-31 all", BODY + b"31", 1)


def test_cutting_the_log_into_many_ranges_changes_no_row(spark, store, tmp_path, monkeypatch):
    # One file with all records, so that ranges begin in the middle of records.
    from rmqha.pipeline.format_options import Options
    from rmqha.pipeline.log import commit_log_source, ranges
    root = tmp_path / "big"
    with support.open_store(root, mappedFileSizeCommitLog=1 << 20) as running:
        for number in range(500):
            support.put(running, support.message(body=BODY * (number % 5), KEYS=str(number)))
    monkeypatch.setattr(ranges, "UNCUT_END", 4096)
    options = Options({"path": str(root), "maxPartitionBytes": "5000"}, commit_log_source.OPTIONS, "test")
    schema = commit_log_source.table_schema(options)
    reader = commit_log_source.CommitLogReader(options, schema)
    partitions = reader.partitions()
    assert len(partitions) > 20
    keys = [key for partition in partitions for batch in reader.read(partition) for key in batch["keys"].to_pylist()]
    assert keys == [str(number) for number in range(500)]


@pytest.mark.parametrize("options, wanted", [
    ({"subscribe": "Topic1"}, lambda number: number % 2 == 1),
    ({"subscribe": "Topic0,Topic1"}, lambda number: True),
    ({"subscribePattern": "T.*0"}, lambda number: number % 2 == 0),
    ({"startingOffsets": '{"Topic1": {"0": 10, "1": -2}}',
      "endingOffsets": '{"Topic1": {"0": 20}, "Topic0": {"1": 0}}'},
     lambda number: {(1, 0): 10 <= number // 4 < 20, (0, 1): False}.get((number % 2, number // 2 % 2), True)),
    ({"startingOffsets": "latest"}, lambda number: False),
])
def test_options_select_messages(spark, store, options, wanted):
    rows = rows_of(read(spark, store, **options))
    assert [row.uniqKey for row in rows] == [f"U{number:05d}" for number in range(COUNT * 4) if wanted(number)]


def test_offsets_of_the_log_need_not_be_those_of_records(spark, store):
    offsets = [row.physicalOffset for row in rows_of(read(spark, store))]
    begin, end = offsets[20], offsets[100]
    found = rows_of(read(spark, store, startingOffsets=str(begin - 3), endingOffsets=str(end - 3)))
    assert [row.physicalOffset for row in found] == offsets[20:100]


def test_times_select_messages(spark, store):
    rows = rows_of(read(spark, store).selectExpr("*", "unix_millis(storeTimestamp) as ms"))
    begin, end = rows[30].ms, rows[-20].ms
    found = rows_of(read(spark, store, startingTimestamp=str(begin), endingTimestamp=str(end)))
    assert [row.uniqKey for row in found] == [row.uniqKey for row in rows if begin <= row.ms < end]
    by_queue = {"startingOffsetsByTimestamp": f'{{"Topic1": {{"0": {begin}}}}}',
                "endingOffsetsByTimestamp": f'{{"Topic1": {{"0": {end}}}, "Topic0": {{"1": {begin}}}}}'}
    found = rows_of(read(spark, store, **by_queue))
    wanted = {("Topic1", 0): (begin, end), ("Topic0", 1): (0, begin)}
    assert [row.uniqKey for row in found] == [
        row.uniqKey for row in rows for low, high in [wanted.get((row.topic, row.queueId), (0, row.ms + 1))]
        if low <= row.ms < high]


def test_headers_are_the_properties_in_kafkas_format(spark, store):
    rows = rows_of(read(spark, store))
    frame = read(spark, store, schema="kafka", includeHeaders="true")
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    headers = [{each.key: each.value.decode() for each in row.headers}
               for row in frame.orderBy("topic", "partition", "offset").collect()]
    rows.sort(key=lambda row: (row.topic, row.queueId, row.queueOffset))
    assert headers == [row.properties for row in rows]


def test_filters_are_pushed_down_only_on_request(spark, store):
    condition = "topic = 'Topic1' and queueId = 1 and queueOffset >= 10 and physicalOffset > 0 and keys like 'key-%'"
    wanted = [f"U{number:05d}" for number in range(COUNT * 4) if number % 4 == 3 and number // 4 >= 10]
    pushed = read(spark, store, pushFilters="true").where(condition)
    assert [row.uniqKey for row in rows_of(pushed)] == wanted
    frame = read(spark, store)
    assert [row.uniqKey for row in rows_of(frame.where(condition))] == wanted
    assert frame.count() == COUNT * 4  # the filter of one query does not affect the next


def test_flipped_byte_shows_in_each_mode(spark, damaged):
    path = segments(damaged)[1]
    position, size, body_at = record_at(path, 5)
    overwrite(path, body_at, b"X")
    offset = int(path.name) + position
    bad = read(spark, damaged).where("not crcOk").collect()
    assert [(row.physicalOffset, row.storeSize, bytes(row.body[:2])) for row in bad] == [(offset, size, b"Xo")]
    assert read(spark, damaged).count() == COUNT * 4
    assert read(spark, damaged, mode="DROPMALFORMED").count() == COUNT * 4 - 1
    assert read(spark, damaged, verifyCrc="false").where("crcOk is null").count() == COUNT * 4
    with pytest.raises(Exception, match=f"{path.name} at byte {position} .offset {offset} of the log.: the CRC of the"):
        read(spark, damaged, mode="FAILFAST").count()


def test_gap_is_a_row_with_its_place_and_length(spark, damaged):
    path = segments(damaged)[1]
    position, size, _ = record_at(path, 5)
    overwrite(path, position, bytes(size))
    row, = read(spark, damaged).where("topic is null").collect()
    assert (row.physicalOffset, row.storeSize, row.crcOk) == (int(path.name) + position, size, False)
    assert read(spark, damaged).count() == COUNT * 4
    assert read(spark, damaged, mode="dropmalformed").count() == COUNT * 4 - 1
    with pytest.raises(Exception, match="nothing was written here"):
        read(spark, damaged, mode="FAILFAST").count()


def test_torn_tail_ends_the_log(spark, damaged):
    path = [each for each in segments(damaged) if any(each.read_bytes())][-1]
    data, position = path.read_bytes(), 0
    while struct.unpack_from(">i", data, position + 4)[0] == MESSAGE_MAGIC_CODE:
        last = position
        position += struct.unpack_from(">i", data, position)[0]
    overwrite(path, last + 100, bytes(position - last - 100))
    assert read(spark, damaged, mode="FAILFAST").count() == COUNT * 4 - 1


def test_missing_file_is_data_loss_unless_it_is_the_first(spark, damaged):
    files = segments(damaged)
    files[0].unlink()
    left = read(spark, damaged).count()
    assert 0 < left < COUNT * 4
    files[2].unlink()
    with pytest.raises(Exception, match=f"offsets {int(files[2].name)} to {int(files[3].name)} are missing"):
        read(spark, damaged).count()
    assert 0 < read(spark, damaged, failOnDataLoss="false").count() < left


def test_file_that_vanishes_during_reading_is_an_error_in_the_driver(spark, damaged):
    planned = read(spark, damaged)
    assert planned.count() == COUNT * 4  # the ranges are planned now
    path = segments(damaged)[1]
    path.unlink()
    with pytest.raises(Exception, match=f"{path.name} has vanished while the log was read"):
        planned.count()


def test_compressed_bodies_are_inflated(spark, tmp_path):
    from rmqha.common.sys_flags import COMPRESSED_FLAG
    with support.open_store(tmp_path / "store") as running:
        for number, data in enumerate((zlib.compress(BODY * 10), b"no stream", BODY)):
            message = support.message(body=data)
            message.sys_flag |= COMPRESSED_FLAG if number < 2 else 0
            support.put(running, message)
    assert [row.body and bytes(row.body) for row in rows_of(read(spark, tmp_path / "store"))] == [BODY * 10, None, BODY]
    assert read(spark, tmp_path / "store", mode="DROPMALFORMED").count() == 2
    with pytest.raises(Exception, match="does not decompress"):
        read(spark, tmp_path / "store", mode="FAILFAST").count()
    raw = rows_of(read(spark, tmp_path / "store", decompress="false"))
    assert bytes(raw[0].body) == zlib.compress(BODY * 10)


@pytest.mark.parametrize("kind, library", [("LZ4", "lz4"), ("ZSTD", "zstandard")])
def test_bodies_in_the_formats_of_the_extras_are_inflated(spark, tmp_path, kind, library):
    pytest.importorskip(library)
    from rmqha.common import compression
    from rmqha.common.sys_flags import COMPRESSED_FLAG, CompressionType
    of_kind = CompressionType[kind]
    with support.open_store(tmp_path / "store") as running:
        message = support.message(body=compression.get_compressor(of_kind).compress(BODY * 9, 5))
        message.sys_flag |= COMPRESSED_FLAG | of_kind.compression_flag
        support.put(running, message)
    row, = read(spark, tmp_path / "store").collect()
    assert bytes(row.body) == BODY * 9 and row.storeSize < len(row.body) and row.crcOk


def test_folders_files_and_globs_are_paths(spark, store):
    assert read(spark, store / "commitlog").count() == COUNT * 4
    assert read(spark, store / "commitlog" / "0*").count() == COUNT * 4
    one = read(spark, segments(store)[1]).count()
    assert 0 < one < COUNT * 4
    # A file that is named twice is read once.
    assert spark.read.format(FORMAT).load([str(store), str(segments(store)[1])]).count() == COUNT * 4


@pytest.mark.parametrize("change, message", [
    ({"path": "{root}/config"}, "is not a store: it has neither a folder commitlog"),
    ({"path": "{root}/nowhere"}, "no such folder or file"),
    ({"path": "{root}/noth*ng"}, "nothing matches"),
    ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
    ({"mode": "STRICT"}, "is not one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
    ({"verifyCrc": "maybe"}, "is not true or false"),
    ({"maxOffsetsPerTrigger": "-1"}, "a whole number of at least 1"),
    ({"startingOffsets": "{broken"}, "earliest, latest, an offset of the commit log, or JSON"),
    ({"startingOffsets": '{"T": {"0": -1}}'}, "selects nothing of queue 0"),
    ({"startingOffsetsByTimestamp": '{"T": {"0": -1}}'}, "is not JSON such as .* \\(milliseconds\\)"),
    ({"startingTimestamp": "1", "startingOffsetsByTimestamp": "{}"}, "contradict each other"),
    ({"startingTimestamp": "1", "startingOffsets": "latest"}, "contradict each other"),
    ({"startingTimestamp": "2", "endingTimestamp": "1"}, "=2 is later than endingTimestamp=1"),
    ({"includeHeaders": "true"}, "includeHeaders needs schema=kafka"),
    ({"subscribe": "A", "subscribePattern": "B"}, "not both"),
    ({"subscribePattern": "("}, "is not a pattern"),
    ({"columns": "topic,bodies"}, "unknown column 'bodies'"),
    ({"maxPartitionBytes": "lots"}, "a number of bytes such as"),
])
def test_invalid_options_are_reported_in_the_driver(spark, store, change, message):
    options = {"path": str(store), **{name: value.format(root=store) if name == "path" else value
                                      for name, value in change.items()}}
    with pytest.raises(Exception, match=message):
        spark.read.format(FORMAT).options(**options).load().count()


def test_empty_store_is_an_empty_table(spark, tmp_path):
    with support.open_store(tmp_path / "store"):
        (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    assert read(spark, tmp_path / "store").count() == read(spark, tmp_path / "empty").count() == 0


def test_columns_can_be_selected_by_schema(spark, store):
    frame = spark.read.format(FORMAT).schema("queueOffset bigint, topic string").load(str(store))
    assert sorted(map(tuple, frame.collect()))[:2] == [(0, "Topic0"), (0, "Topic0")]
    with pytest.raises(Exception, match="column queueOffset is bigint, not string"):
        spark.read.format(FORMAT).schema("queueOffset string").load(str(store)).count()
