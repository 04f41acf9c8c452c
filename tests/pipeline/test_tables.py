"""Tables of a catalog, the tour of docs/spark/index.md, and formats that Spark finds automatically."""
import re
import shutil
import zipfile
from collections import Counter
from pathlib import Path
from runpy import run_path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.pipeline.cluster import cluster_source
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log import commit_log_source
from rmqha.pipeline.table_options import all_options, options_of_new_table, reader_options, with_options
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.native.test_install import (
    build,
    checkout,  # noqa: F401, a fixture
    names,
)
from tests.store import support
from tests.support.sources import ROOT

# Tables of a catalog, `CREATE TABLE ... USING`: both formats get the options with which the table was created.

LOG = "`rocketmq-commitlog`"
SCHEMA = StructType([StructField("topic", StringType(), True, {"mine": 1}), StructField("queueId", IntegerType())])


@pytest.fixture
def tables(spark):
    """Yield names of tables, which are dropped at the end."""
    names = ["kept_log", "kept_part", "kept_queue", "kept_sink", "kept_columns"]
    yield names
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def count(spark, query):
    return spark.sql(query).first()[0]


def test_store_is_a_table_of_the_catalog(spark, tables, tmp_path):
    store = tmp_path / "a store"
    with support.open_store(store) as running:
        for number in range(60):
            support.put(running, support.message(f"Topic{number % 2}", number % 4, b"body", TAGS=f"Tag{number % 3}"))
        support.wait_dispatched(running)
    whole, part, _, _, columns = tables
    spark.sql(f"CREATE TABLE {whole} USING {LOG} LOCATION '{store}'")
    spark.sql(f"CREATE TABLE {part} USING {LOG} OPTIONS (path '{store}', subscribe 'Topic1', columns 'topic,tags')")
    assert count(spark, f"SELECT count(*) FROM {whole}") == 60
    assert spark.table(part).columns == ["topic", "tags"]
    assert Counter(row.topic for row in spark.table(part).collect()) == {"Topic1": 30}
    assert count(spark, f"SELECT count(*) FROM {part} WITH (subscribe = 'Topic0') WHERE topic = 'Topic0'") == 30
    joined = spark.table(whole).join(spark.table(part).select("topic").distinct(), "topic")
    assert joined.count() == 30
    with support.open_store(store) as running:
        support.put(running, support.message("Topic1", 0, b"later"))
        support.wait_dispatched(running)
    assert count(spark, f"SELECT count(*) FROM {part}") == 31  # each query sees the current messages
    spark.sql(f"CREATE TABLE {columns} (topic STRING) USING {LOG} OPTIONS (path '{store}')")
    with pytest.raises(Exception, match="CREATE TABLE name USING `rocketmq-commitlog` OPTIONS"):
        spark.sql(f"SELECT * FROM {columns}").collect()
    assert count(spark, f"SELECT count(*) FROM {columns} WITH (path = '{store}')") == 61
    for name in (whole, part, columns):
        spark.sql(f"DROP TABLE {name}")
    assert any((store / "commitlog").iterdir())  # a dropped table does not affect the store


def test_topic_is_a_table_for_reading_and_writing(spark, tables, servers):
    _, _, queue, sink, _ = tables
    with DefaultMQProducer("tables", servers.namesrv) as producer:
        producer.send(Message("KeptTable", b"first", keys="k0"))
    made = f"OPTIONS (nameServer '{servers.namesrv}', topic 'KeptTable', columns 'topic,body,keys', idempotent 'true')"
    spark.sql(f"CREATE TABLE {queue} USING rocketmq {made}")
    spark.sql(f"INSERT INTO {queue} (body, keys) VALUES (X'41', 'k1'), (X'42', 'k2')")
    rows = spark.sql(f"SELECT CAST(body AS STRING) AS body, keys FROM {queue}").collect()
    assert {(row.body, row.keys) for row in rows} == {("first", "k0"), ("A", "k1"), ("B", "k2")}
    assert count(spark, f"SELECT count(*) FROM {queue} WITH (pullBatchSize = '1')") == 3
    with pytest.raises(Exception, match="only be appended to a topic"):
        spark.sql(f"INSERT OVERWRITE {queue} (body, keys) VALUES (X'43', 'k3')")
    with pytest.raises(Exception, match="rocketmq.secretKey must not be one of them"):
        spark.sql(f"CREATE TABLE {sink} USING rocketmq OPTIONS (nameServer 'x:1', topic 'T', `rocketmq.accessKey` 'a', "
                  "`rocketmq.secretKey` 'secret')")


def test_options_are_written_to_the_schema_and_read_from_it():
    given = {"provider": "f", "owner": "me", "comment": "c", "location": "file:/a b/*", "path": "file:/a b/*",
             "subscribe": "T", "option.subscribe": "T", "mine": "x"}
    options = options_of_new_table(given, "f")
    assert options == {"subscribe": "T", "path": "/a b/*"}
    schema = with_options(SCHEMA, options, "f")
    assert schema.fields[0].metadata["mine"] == 1 and [field.dataType for field in schema] == [
        field.dataType for field in SCHEMA]
    again = StructType.fromJson(schema.jsonValue())
    assert all_options({}, again, "f", ("path",)) == options
    assert all_options({"Subscribe": "U"}, again, "f", ("path",)) == {"Subscribe": "U", "path": "/a b/*"}
    assert all_options({"PATH": "/b"}, again, "f", ("path",)) == {"PATH": "/b"}
    assert all_options({"x": "1"}, again, "another", ()) == {"x": "1"}


@pytest.mark.parametrize("location, path", [
    ("file:/a", "/a"), ("file:///a", "/a"), ("/a", "/a"), ("hdfs://host/a", "hdfs://host/a")])
def test_path_of_a_location(location, path):
    assert options_of_new_table({"provider": "f", "path": location}, "f") == {"path": path}


def test_reader_without_options_names_their_source():
    assert options_of_new_table({"path": "/a"}, "f") is None
    with pytest.raises(PipelineError, match="CREATE TABLE name USING `f` OPTIONS"):
        reader_options({}, SCHEMA, "f", ("path",))
    with pytest.raises(PipelineError, match="secretKey must not"):
        options_of_new_table({"provider": "f", "option.SECRETKEY": "s"}, "f", ("secretKey",))


# The tour of docs/spark/index.md runs, and the tables there name the existing options.

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text("utf-8") for name in ("spark/index.md", "spark/live-clusters.md"))


def test_tour_runs(spark, tmp_path, capsys, monkeypatch):
    tour = run_path(str(DOCS / "spark/tour.py"))
    store = tmp_path / "store"
    with support.open_store(store) as running:
        for number in range(40):
            support.put(running, support.message(f"T{number % 2}", KEYS=str(number)))
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the session of all tests
    tour["main"](str(store), str(tmp_path))
    printed = capsys.readouterr().out
    assert "40 messages: " in printed and "byte for byte as they were" in printed and "wrong CRC: 0" in printed


def test_every_option_is_in_the_tables():
    options = {*commit_log_source.OPTIONS, *cluster_source.READ_OPTIONS, *cluster_source.WRITE_OPTIONS}
    missing = [name for name in options if not re.search(rf"\b{name}\b", TEXT)]
    assert missing == ["paths"]  # made by Spark from .load([...])


# Spark finds the formats automatically: their modules are installed at the top level, where its search looks.

MODULES = {"pyspark_rocketmq.py", "pyspark_rocketmq_commitlog.py"}


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_modules_are_at_the_top_of_the_wheel_and_in_its_record(checkout, hook):
    shutil.copytree(ROOT / "rmqha" / "pipeline", checkout / "rmqha" / "pipeline")
    wheel = build(checkout, hook, "/bin/false")
    assert MODULES < set(names(wheel))
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        listed = [line.split(",")[0] for line in archive.read(record).decode().splitlines()]
    assert sorted(listed) == sorted(names(wheel))
