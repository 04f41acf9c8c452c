"""Begin and end of reading a live cluster, its division into tasks, and combinations of options."""
import json
import random

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, StructField, StructType

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.pipeline.cluster.cluster_client import client_options
from rmqha.pipeline.cluster.cluster_queues import ClusterQueues, first_true
from rmqha.pipeline.cluster.cluster_sink import ClusterWriter
from rmqha.pipeline.cluster.cluster_source import (
    COMMON_OPTIONS,
    READ_OPTIONS,
    WRITE_OPTIONS,
    ClusterReader,
    ClusterStreamReader,
    partitions_of,
)
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.table import table_schema
from rmqha.pipeline.trigger_delay import TriggerDelay
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.pipeline.cluster.test_cluster import cluster, new_topic, real, wait_readable  # noqa: F401, fixtures
from tests.support.wait import wait_until

FORMAT = "rocketmq"


def options_of(**given) -> Options:
    return Options({"nameServer": "127.0.0.1:1", "subscribe": "T", **given}, READ_OPTIONS, FORMAT)


def reader(kind, **given):
    options = options_of(**given)
    return kind(options, table_schema(options))


def test_first_number_is_found_from_any_start_of_the_search():
    for seed in range(3000):
        rand = random.Random(seed)
        begin = rand.randint(0, 10)
        end = begin + rand.choice((0, 1, 2, 40, 10_000))
        first, near = rand.randint(begin, end), rand.randint(begin - 3, end + 3)
        asked: list[int] = []

        def holds(number, asked=asked, first=first):
            asked.append(number)
            return number >= first

        assert first_true(holds, begin, end, near) == first, seed
        assert all(begin <= number < end for number in asked) and len(set(asked)) == len(asked), seed
        assert len(asked) <= (2 if near == first < end else 32), seed


@pytest.fixture(scope="module")
def sent_to():
    """sent_to(name server): (topic, queue) of a topic with one queue and batches of 50 in the same millisecond."""
    made: dict[str, tuple[str, MessageQueue]] = {}

    def send(address: str) -> tuple[str, MessageQueue]:
        if address not in made:
            topic = new_topic()
            with DefaultMQProducer("times-producer", address) as producer:
                producer.default_topic_queue_nums = 1
                queue = producer.send(Message(topic, b"first")).message_queue
                for _ in range(4):
                    producer.send_batch([Message(topic, b"%d" % number) for number in range(50)], queue=queue)
                    producer.send(Message(topic, b"lone"), queue=queue)
            wait_readable(address, topic, 205)
            made[address] = topic, queue
        return made[address]
    return send


def read_times(part) -> list[int]:
    """Return the store times, in ms, of the messages that a reader reads."""
    return [stored // 1000 for span in part.partitions() for batch in part.read(span)
            for stored in batch.column("storeTimestamp").cast("int64").to_pylist()]


def test_time_selects_its_first_message(cluster, sent_to):
    topic, queue = sent_to(cluster)
    given = {"nameServer": cluster, "subscribe": topic}
    times = read_times(reader(ClusterReader, **given))
    assert len(times) == 205 and times == sorted(times) and len(set(times)) < 100
    with ClusterQueues(options_of(**given)) as queues:
        bounds = queues.bounds()
        assert bounds == {queue: (0, 205)}
        for time in sorted({each + step for each in times for step in (-1, 0, 1)}):
            expected = next((number for number, each in enumerate(times) if each >= time), None)
            assert queues.first_at(queue, time, bounds[queue]) == expected, time
    begin, end = times[60], times[-1]
    by_queue = {name: json.dumps({topic: {queue.brokerName: {"0": time}}})
                for name, time in (("startingOffsetsByTimestamp", begin), ("endingOffsetsByTimestamp", end))}
    for bounds in ({"startingTimestamp": str(begin), "endingTimestamp": str(end)}, by_queue):
        assert read_times(reader(ClusterReader, **given, **bounds)) == [each for each in times if begin <= each < end]
    assert read_times(reader(ClusterReader, **given, endingTimestamp=str(end + 1))) == times
    late = {**given, "startingTimestamp": str(end + 1)}
    with pytest.raises(PipelineError, match=rf"topic {topic}, queue 0 of .* has no message stored at .*\+00:00 "
                                            rf"\({end + 1} ms\) or later. With startingOffsetsByTimestampStrategy"):
        reader(ClusterReader, **late).partitions()
    stream = reader(ClusterStreamReader, **late, startingOffsetsByTimestampStrategy="latest")
    assert stream.initialOffset() == {"version": 1, "queues": {topic: {queue.brokerName: {"0": 205}}}}
    stream.stop()


def test_namespaces_keep_topics_apart(cluster):
    topic = new_topic()
    for namespace in ("one", "two"):
        given = {"nameServer": cluster, "topic": topic, "rocketmq.namespace": namespace}
        options = Options(given, (*COMMON_OPTIONS, *WRITE_OPTIONS), FORMAT)
        writer = ClusterWriter(options, StructType([StructField("body", BinaryType())]))
        writer.write(iter([pa.record_batch({"body": pa.array([namespace.encode()] * 3, pa.binary())})]))
        wait_readable(cluster, f"{namespace}%{topic}", 3)
    for choice in ({"subscribePattern": f"P.*{topic[1:]}"}, {"subscribe": topic}):
        options = Options({"nameServer": cluster, "rocketmq.namespace": "two", **choice}, READ_OPTIONS, FORMAT)
        part = ClusterReader(options, table_schema(options))
        rows = [row for span in part.partitions() for batch in part.read(span) for row in batch.to_pylist()]
        assert [(row["topic"], row["body"]) for row in rows] == [(topic, b"two")] * 3


def test_stream_waits_for_enough_messages(servers, sent_to):
    topic, queue = sent_to(servers.namesrv)

    def at(offset):
        return {"version": 1, "queues": {topic: {queue.brokerName: {"0": offset}}}}

    def next_after(offset, limit):
        found = stream.latestOffset(at(offset), limit)["queues"]
        return found[topic][queue.brokerName]["0"]

    given = {"nameServer": servers.namesrv, "subscribe": topic, "minOffsetsPerTrigger": "100"}
    stream = reader(ClusterStreamReader, **given, maxOffsetsPerTrigger="120")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(120)
    assert next_after(0, limit) == 120
    assert next_after(120, limit) == 120  # 85 are too few
    assert next_after(120, ReadAllAvailable()) == 205  # as with Trigger.Once
    stream.prepareForTriggerAvailableNow()
    assert next_after(120, limit) == 205
    stream.stop()
    stream = reader(ClusterStreamReader, **given, maxTriggerDelay="1ms")
    assert stream.getDefaultReadLimit() == ReadMinRows(100)
    assert next_after(190, ReadMinRows(100)) == 205
    wait_until(lambda: next_after(200, ReadMinRows(100)) == 205, what="the delay is over")
    stream.stop()


def test_few_messages_wait_no_longer_than_the_delay(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rmqha.pipeline.trigger_delay.time.monotonic", lambda: now[0])
    delay = TriggerDelay(options_of(minOffsetsPerTrigger="10", maxTriggerDelay="2s"))
    assert not delay.holds_back(1, ReadMinRows(10))  # the first batch never waits
    for after, waiting, held in ((1.0, 9, True), (1.9, 10, False), (3.8, 9, True), (3.9, 9, False), (4.0, 1, True),
                                 (6.0, 0, False), (6.1, 1, False), (6.2, 1, True)):
        now[0] = after
        assert delay.holds_back(waiting, ReadMinRows(10)) is held, after


@pytest.mark.parametrize("given, expected", [
    ({}, [[(0, 0, 60)], [(1, 0, 30)], [(2, 0, 10)]]),
    ({"minPartitions": "5"}, [[(0, 0, 20)], [(0, 20, 40)], [(0, 40, 60)], [(1, 0, 20)], [(1, 20, 30)], [(2, 0, 10)]]),
    ({"maxRecordsPerPartition": "40"}, [[(0, 0, 40)], [(0, 40, 60)], [(1, 0, 30)], [(2, 0, 10)]]),
    ({"maxPartitions": "2"}, [[(0, 0, 60)], [(1, 0, 30), (2, 0, 10)]]),
    ({"maxPartitions": "1"}, [[(0, 0, 60), (1, 0, 30), (2, 0, 10)]]),
])
def test_queues_become_partitions(given, expected):
    end = {"T": {"b": {"0": 60, "1": 30, "2": 10, "3": 0}}}
    found = partitions_of({}, end, options_of(**given))
    assert [[(span.queue.queueId, span.begin, span.end) for span in part.spans] for part in found] == expected


def test_many_queues_share_few_tasks_evenly():
    rand = random.Random(7)
    end = {"T": {broker: {str(number): rand.randint(0, 1000) for number in range(5000)} for broker in "ab"}}
    found = partitions_of({}, end, options_of(maxPartitions="16"))
    sizes = [sum(span.end - span.begin for span in part.spans) for part in found]
    assert len(sizes) == 16 and sum(sizes) == sum(sum(queues.values()) for queues in end["T"].values())
    assert max(sizes) < 1.01 * min(sizes)


TIMES, OFFSETS = '{"T": {"b": {"0": 5}}}', '{"T": {"b": {"0": -1}}}'


@pytest.mark.parametrize("given, said", [
    ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "startingTimestamp and startingOffsets contradict"),
    ({"startingOffsetsByTimestamp": TIMES, "startingOffsets": TIMES}, "contradict each other; give one of starting"),
    ({"startingTimestamp": "1", "startingOffsetsByTimestamp": TIMES}, "contradict each other"),
    ({"startingOffsetsByTimestamp": "latest"}, "is not JSON such as .* \\(milliseconds\\)"),
    ({"startingOffsetsByTimestamp": OFFSETS}, "is not JSON such as"),
    ({"startingOffsetsByTimestamp": '{"T": {"b": {"0": true}}}'}, "is not JSON such as"),
    ({"startingOffsetsByTimestampStrategy": "earliest"}, "is not one of error, latest"),
    ({"group": "a", "consumerGroup": "b"}, "group and consumerGroup mean the same and have different values"),
    ({"group": "a", "groupIdPrefix": "b"}, "group names the group, but groupIdPrefix makes"),
    ({"topic": "U"}, "subscribe and topic mean the same"),
    ({"subscribePattern": "U"}, "needs either subscribe or subscribePattern"),
    ({"rocketmq.namesrvAddr": "127.0.0.1:2"}, "nameServer and rocketmq.namesrvAddr mean the same"),
    ({"minPartitions": "3", "maxPartitions": "2"}, "minPartitions=3 is more than maxPartitions=2"),
    ({"includeHeaders": "true"}, "includeHeaders needs schema=kafka"),
    ({"rocketmq.accessKey": "a"}, "needs both rocketmq.accessKey and rocketmq.secretKey"),
    ({"rocketmq.securityToken": "a"}, "rocketmq.securityToken needs"),
    ({"rocketmq.accessKey": "a", "rocketmq.keyFile": "f"}, "rocketmq.keyFile and rocketmq.accessKey contradict"),
    ({"rocketmq.keyFile": "/no/such/file"}, "/no/such/file: file not found"),
    ({"rocketmq.tls.enable": "false", "rocketmq.tls.client.certPath": "c"}, "tls.enable=false contradicts"),
    ({"rocketmq.tls.test.mode.enable": "true", "rocketmq.tls.client.certPath": "c"}, "trusts every server"),
    ({"rocketmq.tls.client.authServer": "false", "rocketmq.tls.client.trustCertPath": "c"}, "authServer=false contra"),
    ({"rocketmq.tls.config.file": "/no/such/file"}, "the file does not exist"),
    ({"rocketmq.secretkeys": "a"}, "did you mean 'rocketmq.secretKey'"),
])
@pytest.mark.parametrize("kind", [ClusterReader, ClusterStreamReader])
def test_contradicting_options_are_refused(kind, given, said):
    with pytest.raises(PipelineError, match=said):
        partitions_of({}, {}, options_of(**given))
        reader(kind, **given)
        ClusterQueues(options_of(**given))


@pytest.mark.parametrize("kind, given, said", [
    (ClusterReader, {"startingOffsets": "latest"}, "startingOffsets=latest selects nothing of a table"),
    (ClusterReader, {"startingOffsets": OFFSETS}, "startingOffsets=-1 selects nothing of topic T, queue 0 of b"),
    (ClusterReader, {"endingOffsets": "earliest"}, "endingOffsets=earliest selects nothing"),
    (ClusterReader, {"endingOffsets": '{"T": {"b": {"0": -2}}}'}, "endingOffsets=-2 selects nothing"),
    (ClusterReader, {"startingOffsets": TIMES, "endingOffsets": '{"T": {"b": {"0": 4}}}'}, "=5 is after endingOff"),
    (ClusterReader, {"endingTimestamp": "1", "endingOffsets": "latest"}, "contradict each other"),
    (ClusterReader, {"startingTimestamp": "2", "endingTimestamp": "1"}, "=2 is later than endingTimestamp=1"),
    (ClusterStreamReader, {"endingTimestamp": "1"}, "endingTimestamp is for tables: a stream has no end"),
    (ClusterStreamReader, {"endingOffsetsByTimestamp": TIMES}, "endingOffsetsByTimestamp is for tables"),
    (ClusterStreamReader, {"endingOffsets": "latest"}, "endingOffsets is for tables"),
    (ClusterStreamReader, {"maxTriggerDelay": "1s"}, "maxTriggerDelay needs minOffsetsPerTrigger"),
    (ClusterStreamReader, {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "1 week"}, "is not a time such as 90s"),
    (ClusterStreamReader, {"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "=2 is more than maxOffsetsPer"),
])
def test_options_without_effect_on_a_table_or_a_stream_are_refused(kind, given, said):
    with pytest.raises(PipelineError, match=said):
        reader(kind, **given)


def test_any_text_for_offsets_is_accepted_or_refused():
    rand = random.Random(3)
    texts = ["{}", "[]", "null", '{"T": 1}', '{"T": {"b": 1}}', '{"T": {"b": {"x": 1}}}', '{"T": {"b": {"\u0663": 1}}}',
             '{"T": {"b": {"0": 1.5}}}', "[" * 10_000, '{"T": {"b": {"0": null}}}', '{"T": {"b": {"0": 1e3}}}']
    texts += ["".join(rand.choices('{}[]":,0123456789-Tb latest', k=rand.randint(0, 40))) for _ in range(2000)]
    for text in texts:
        for name in ("startingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
            try:
                reader(ClusterReader, **{name: text})
            except PipelineError as error:
                assert name in str(error) and "\n" not in str(error)


def test_keys_from_a_file_and_the_other_settings_reach_the_client(tmp_path):
    file = tmp_path / "key"
    file.write_text("AccessKey=one\nSecretKey=two words\n")
    client = client_options(options_of(**{
        "rocketmq.keyFile": str(file), "rocketmq.namespace": "ns", "rocketmq.vipChannelEnabled": "true",
        "rocketmq.unitName": "unit", "rocketmq.tls.client.trustCertPath": "/trust.pem"}))
    assert client.credentials.access_key == "one" and "two words" not in repr(client)
    producer = DefaultMQProducer("group", "127.0.0.1:1", client.hook)
    client.apply(producer)
    assert (producer.namespace, producer.vip_channel_enabled, producer.unit_name, producer.use_tls) == (
        "ns", True, "unit", True)
    assert (producer.tls.tls_client_auth_server, producer.tls.tls_test_mode_enable) == (True, False)
    assert producer.tls.with_config_file() is producer.tls


def test_prefix_makes_a_group_for_each_query():
    groups = {reader(ClusterReader, groupIdPrefix="spark").cluster.group for _ in range(3)}
    assert len(groups) == 3 and all(group.startswith("spark-") for group in groups)
    assert reader(ClusterReader, group="mine").cluster.group == "mine"
    assert reader(ClusterReader).cluster.group == "rmqha-pipeline"
