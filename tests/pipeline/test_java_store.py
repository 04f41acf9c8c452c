"""A store that the real broker has just written, with messages of every kind: what Spark reads is what Java's consumer
got; rebuilt queues and index, and the restored log, are byte for byte the broker's.

RMQHA_PIPELINE_MESSAGES sets how many messages; with 2000000 the log has some GiB, and it takes its time.
"""
import os
from collections import Counter
from pathlib import Path

import pytest

from rmqha.pipeline.archive import archive
from rmqha.pipeline.rebuild import Shape, common_queue_file_size, parse_delays, rebuild
from rmqha.pipeline.restore import restore
from tests.interop import test_java_stores as mixed
from tests.store import support
from tests.support.nodes import BrokerNode, NamesrvNode

pytestmark = [pytest.mark.java, pytest.mark.timeout(6 * 3600)]

COUNT = int(os.environ.get("RMQHA_PIPELINE_MESSAGES", "300"))
AT_ONCE = 2000
SMALL = COUNT < 100_000
SIZES = mixed.SIZES if SMALL else {}
SHAPE = {"slots": mixed.SLOTS, "entries": mixed.ENTRIES} if SMALL else {}


@pytest.fixture(scope="module")
def written(module_nodes, tmp_path_factory, java_driver) -> tuple[Path, dict[int, dict], list[dict]]:
    """(store of the stopped broker, what was sent by index, what Java's consumer got)."""
    folder = tmp_path_factory.mktemp("java-store")
    namesrv = NamesrvNode("java", folder / "namesrv")
    broker = BrokerNode("java", folder / "broker", namesrv.address, **SIZES, **mixed.TRANSACTIONS)
    module_nodes += [namesrv, broker]
    namesrv.start()
    broker.start()
    java_driver.create_topic(namesrv.address, broker.address, mixed.TOPIC, mixed.QUEUES)
    expected: dict[int, dict] = {}
    got: list[dict] = []
    first = 0
    while first < COUNT:
        described = mixed.descriptions(first, transactions=True, delays=(1,), count=min(AT_ONCE, COUNT - first))
        mixed.send(java_driver, broker, described)
        visible = mixed.visible(described)
        expected |= visible
        got += java_driver.read_mixed(namesrv.address, mixed.TOPIC, "reader", len(visible))
        first = max(index for each in described for index in (one["index"] for one in each.get("batch", [each]))) + 1
    broker.stop()
    namesrv.kill()
    return broker.store, expected, got


def test_rows_are_what_javas_consumer_got(spark, written):
    store, expected, got = written
    frame = spark.read.format("rocketmq-commitlog").option("subscribe", mixed.TOPIC).load(str(store))
    # a half message that was put back, or a delayed one, is there under its own topic when it is delivered
    rows = {int(row.properties["index"]): row for row in frame.where("crcOk").toLocalIterator()}
    assert sorted(rows) == sorted(expected) and frame.count() == len(expected)
    assert Counter(row.queueId for row in rows.values()) == Counter(message["queueId"] for message in got)
    for message in got:
        row = rows[int(message["properties"]["index"])]
        assert bytes(row.body).decode() == message["body"]
        assert (row.flag, row.tags, row.keys) == (message["flag"], message["properties"].get("TAGS"),
                                                  message["properties"].get("KEYS"))
        assert (row.queueId, row.queueOffset) == (message["queueId"], message["queueOffset"])


def test_rebuilt_files_are_the_brokers(spark, written, tmp_path):
    store, _, _ = written
    shape = Shape(common_queue_file_size(str(store)), **SHAPE, delays_ms=parse_delays())
    found = rebuild(spark, str(store), str(tmp_path / "out"), shape)
    assert (found.equal, found.differences, found.problems) == (True, [], [])
    assert found.keys > len(written[1])


def test_the_restored_log_is_the_brokers(spark, written, tmp_path):
    store, _, _ = written
    archive(spark, str(store), str(tmp_path / "archive"))
    restore(spark, str(tmp_path / "archive"), str(tmp_path / "out"))
    assert {name: data for name, data in support.tree(tmp_path / "out" / "commitlog").items() if any(data)} == \
        {name: data for name, data in support.tree(store / "commitlog").items() if any(data)}
