"""Any numbers that a producer, a broker or a disk has put into a record or an option: tables and streams still work."""
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import MessageExt
from rmqha.pipeline.cluster import stream_planner
from rmqha.pipeline.cluster.cluster_source import READ_OPTIONS, WRITE_OPTIONS, ClusterStreamReader, message_batch
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.jobs.report import _consumer_offsets
from rmqha.pipeline.jobs.report import report as make_report
from rmqha.pipeline.log import log_ends, ranges
from rmqha.pipeline.log.commit_log_source import OPTIONS, CommitLogReader, common_options
from rmqha.pipeline.log.log_scan import wanted_paths
from rmqha.pipeline.streams import lag_of
from rmqha.pipeline.table import FURTHER, ROCKETMQ, arrow_schema, table_schema
from rmqha.pipeline.table_options import all_options
from rmqha.pipeline.worker import FIRST_MS, LAST_MS
from tests.common.test_texts import HOSTILE, REFUSED
from tests.pipeline.support import run_to_end

FORMAT = "rocketmq-commitlog"
HOST = layout.host_to_bytes(("127.0.0.1", 10911))
TIMES = [0, -1, 1_700_000_000_123, 1_700_000_000_123_456_789, (1 << 63) - 1, -(1 << 63), FIRST_MS, FIRST_MS - 1,
         LAST_MS, LAST_MS + 1, 1 << 53, -(1 << 53)]
INTS = [0, -1, 7, (1 << 31) - 1, -(1 << 31)]
LONGS = [0, -1, 7, (1 << 63) - 1, -(1 << 63)]
DIGITS = "9" * 5000
COLUMNS = ",".join([*ROCKETMQ, *FURTHER])


def records() -> list[dict]:
    """Return records with each odd value in each field, among usual ones."""
    usual = {"born": 1, "stored": 2, "queue": 0, "flag": 0, "queueOffset": 3, "reconsumed": 0, "prepared": 0,
             "sysFlag": 0, "properties": b""}
    found = [usual]
    for name, values in (("born", TIMES), ("stored", TIMES), ("queue", INTS), ("flag", INTS), ("queueOffset", LONGS),
                         ("reconsumed", INTS), ("prepared", LONGS),
                         ("sysFlag", [1, 4, 8, 12, 1 << 12, 1 << 30, -(1 << 31)]),
                         ("properties", [b"DELAY\x01" + text for text in (b"-1", b"9" * 5000, b"x", b"99999999999")])):
        found += [{**usual, name: value} for value in values]
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("numbers") / "store"
    (root / "commitlog").mkdir(parents=True)
    data = b""
    for each in records():
        data += layout.encode_record(
            layout.body_crc32(b"b"), each["queue"], each["flag"], each["queueOffset"], len(data), each["sysFlag"],
            each["born"], HOST, each["stored"], HOST, each["reconsumed"], each["prepared"], b"b",
            layout.encode_topic("T"), each["properties"])
    with open(root / "commitlog" / ("0" * 20), "wb") as file:
        file.write(data)
        file.truncate(1 << 20)
    return root


def check(rows: list) -> None:
    """Check that each row has the values of its record."""
    assert len(rows) == len(records())
    for row, each in zip(sorted(rows, key=lambda row: row.physicalOffset), records(), strict=True):
        for column, name in (("queueId", "queue"), ("flag", "flag"), ("queueOffset", "queueOffset"),
                             ("reconsumeTimes", "reconsumed"), ("preparedTransactionOffset", "prepared"),
                             ("sysFlag", "sysFlag")):
            assert row[column] == each[name]
        for column, name in (("bornTimestamp", "born"), ("storeTimestamp", "stored")):
            assert (row[column] is None) == (not FIRST_MS <= each[name] <= LAST_MS)


def test_table_and_stream_have_each_record(spark, store, tmp_path):
    table = spark.read.format(FORMAT).options(columns=COLUMNS).load(str(store))
    check(table.collect())
    stream = spark.readStream.format(FORMAT).options(columns=COLUMNS, startingOffsets="earliest").load(str(store))
    taken: list = []
    run_to_end(stream.writeStream.foreachBatch(lambda batch, _: taken.extend(batch.collect()))
               .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start)
    check(taken)
    kafka = spark.read.format(FORMAT).options(schema="kafka", includeHeaders="true").load(str(store)).collect()
    assert len(kafka) == len(records())


def test_report_counts_each_record(spark, store, tmp_path):
    found = make_report(spark, str(store), str(tmp_path / "page.html"), {})
    assert found.messages == len(records())


def test_time_zero_separates_negative_store_times(store):
    for name, count in (("startingTimestamp", None), ("endingTimestamp", 0)):
        options = common_options({"path": str(store), name: "0"})
        reader = CommitLogReader(options, table_schema(options))
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        negative = [each for each in records() if each["stored"] < 0]
        assert len(rows) == (len(negative) if count == 0 else len(records()) - len(negative))


@settings(max_examples=200, deadline=None)
@given(st.builds(dict, **{name: st.sampled_from(LONGS + TIMES) | st.integers(-(1 << 63), (1 << 63) - 1)
                          for name in ("born_timestamp", "store_timestamp", "queue_offset", "commit_log_offset",
                                       "prepared_transaction_offset")},
                 **{name: st.integers(-(1 << 31), (1 << 31) - 1)
                    for name in ("queue_id", "flag", "sys_flag", "body_crc", "reconsume_times", "store_size")}),
       st.booleans())
def test_pulled_messages_become_rows_with_any_numbers(fields, kafka):
    message = MessageExt("T", b"b")
    for name, value in fields.items():
        setattr(message, name, value)
    options = Options({"schema": "kafka"} if kafka else {"columns": COLUMNS}, READ_OPTIONS, "rocketmq")
    row, = message_batch([message], arrow_schema(table_schema(options)), kafka).to_pylist()
    assert row["offset" if kafka else "queueOffset"] == fields["queue_offset"]


QUEUE_OPTIONS = ("startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp")
ODD_JSON = ['{"T": {"%s": 1}}' % DIGITS, '{"T": {"0": %s}}' % DIGITS, '{"T": {"0": 9223372036854775808}}',
            '{"T": {"2147483648": 1}}', '{"T": {"00": 1}}', '{"T": {"٣": 1}}', '{"T": {"0": true}}',
            '{"T": {"0": 1.0}}',
            '{"T": {"": 1}}', '{"T": {"-1": 1}}', '{"T": {"0": null}}', '{"T": [1]}', '{"T": {"0": {}}}',
            *(HOSTILE[name] for name in REFUSED)]


def wrap(text: str) -> str:
    """Return the same with a broker in between, as for a cluster."""
    return text.replace('{"T": {', '{"T": {"b": {').replace("}}", "}}}", 1) if text.startswith('{"T": {') else text


@pytest.mark.parametrize("name", QUEUE_OPTIONS)
@pytest.mark.parametrize("text", ODD_JSON, ids=range(len(ODD_JSON)))
def test_odd_offsets_of_queues_are_an_error_of_the_option(name, text):
    with pytest.raises(PipelineError, match=f"rocketmq-commitlog, option {name}: .* is not ") as caught:
        ranges.selection(Options({name: text}, OPTIONS, FORMAT))
    assert len(str(caught.value)) < 500
    with pytest.raises(PipelineError, match=f"rocketmq, option {name}: .* is not ") as caught:
        stream_planner.check_batch(Options({name: wrap(text)}, READ_OPTIONS, "rocketmq"))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", [DIGITS, "-1", "9223372036854775808", "1e3", "", "1" * 100_000])
def test_numbers_of_options_have_a_range(text):
    for known in (OPTIONS, READ_OPTIONS, WRITE_OPTIONS):
        for name in known:
            options = Options({name: text}, known, "x")
            with pytest.raises(PipelineError, match=f"^x, option {name}: .{{0,110}} is not a whole number"):
                options.integer(name)
    for name in ("startingOffsets", "endingOffsets"):
        with pytest.raises(PipelineError, match=f"option {name}: "):
            ranges.selection(Options({name: text}, OPTIONS, FORMAT))


def test_last_numbers_of_a_range_are_accepted(store):
    most = str((1 << 63) - 1)
    chosen = ranges.selection(Options({"startingOffsets": '{"T": {"2147483647": %s}}' % most, "startingTimestamp": most,
                                       "endingOffsets": most}, OPTIONS, FORMAT))
    assert chosen.row_filter.starting == {"T": {2147483647: (1 << 63) - 1}} and chosen.end == (1 << 63) - 1
    for name in ("startingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp"):
        value = most if name.endswith("Timestamp") and "By" not in name else '{"T": {"0": %s}}' % most
        options = common_options({"path": str(store), name: value})
        reader = CommitLogReader(options, table_schema(options))
        assert sum(len(batch) for part in reader.partitions() for batch in reader.read(part)) >= 0


@pytest.mark.parametrize("name", HOSTILE)
def test_json_in_options_and_metadata_is_an_error_with_its_place(name):
    text = HOSTILE[name]
    with pytest.raises(PipelineError, match="x, option paths: .* is not a JSON list of paths|x needs a path"):
        wanted_paths(Options({"paths": text}, OPTIONS, "x"))
    from pyspark.sql.types import StringType, StructField, StructType
    schema = StructType([StructField("topic", StringType(), True, {"rmqha.options": text})])
    if name == "an empty object":
        assert all_options({}, schema, "x", ()) == {}
    else:
        with pytest.raises(PipelineError, match="x: the metadata of column topic .*Create the table again"):
            all_options({}, schema, "x", ())
    assert lag_of({"sources": [{"latestOffset": text}]}) == []


@pytest.mark.parametrize("table", [{"T@g": {"0": 1 << 63}}, {"T@g": {str(1 << 31): 1}}, {"T@g": {"0": 1 << 70}},
                                   {"T@g": {DIGITS: 1}}, {"T@g": {"0": "x"}}, {"T@g": {"0": 1.5}}, {"T@g": [1]}, [1]])
def test_consumer_offsets_beyond_their_range_are_an_error_of_the_file(tmp_path, store, table):
    os.makedirs(tmp_path / "commitlog")
    os.makedirs(tmp_path / "config")
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes((store / "commitlog" / ("0" * 20)).read_bytes())
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": table}))
    with pytest.raises(PipelineError, match=f"{path} is not in the format that brokers write"):
        _consumer_offsets(str(tmp_path))
    path.write_text(json.dumps({"offsetTable": {"T@g": {"0": 5}}}))
    found = _consumer_offsets(str(tmp_path))
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [{"topic": "T", "group": "g", "queueId": 0, "offset": 5}]


@pytest.mark.parametrize("queues", [None, 5, [], {"T": 5}, {"T": {"b": [1]}}, {"T": {"b": {"x": 1}}},
                                    {"T": {"b": {"0": 1 << 63}}}, {"T": {"b": {"0": "1"}}}, {"T": {"b": {DIGITS: 1}}}])
def test_damaged_checkpoints_are_reported(queues, request):
    options = Options({"nameServer": "127.0.0.1:1", "subscribe": "T"}, READ_OPTIONS, "rocketmq")
    reader = ClusterStreamReader(options, table_schema(options))
    request.addfinalizer(reader.stop)
    good = {"version": 1, "queues": {"T": {"b": {"0": 5}}}}
    for asked in (lambda: reader.latestOffset({"version": 1, "queues": queues}, ReadAllAvailable()),
                  lambda: reader.latestOffset({**good, "last": queues}, ReadAllAvailable()),
                  lambda: reader.partitions(good, {"version": 1, "queues": queues}),
                  lambda: reader.partitions(good, {**good, "begin": queues})):
        with pytest.raises(PipelineError, match="the checkpoint's offset is damaged: .*Start with a new checkpoint"):
            asked()
    for number in (1 << 63, -1, True, "5", None, 1.0):
        log = {"path": "p", "begin": None, "offset": number, "head": None, "tail": None}
        with pytest.raises(PipelineError, match="the checkpoint's offset is damaged .* is not an offset"):
            log_ends.decode({"version": 2, "logs": {"a": log}})
