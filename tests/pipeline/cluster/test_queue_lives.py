"""Queues that lose messages, vanish or are replaced under a stream: compared with a model, and one case at a time."""
import json
import logging
import random

import pytest

from rmqha.common.message.message import MessageExt
from rmqha.pipeline.cluster import cluster_source, stream_planner
from rmqha.pipeline.cluster.cluster_queues import Mark, Position, decode, encode
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.table import table_schema
from tests.pipeline.cluster.fake_cluster import BROKER, FakeCluster, FakeQuery, Life, limit_of

TOPICS = ("A", "B", "C")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(stream_planner, "SETTLE_S", 0)


class Model:
    """A model of a stream, which knows the lives of the queues, as the stream does not: which messages a batch has,
    or that it fails."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        # By topic: (the life that was read, how far).
        self.places: dict[str, tuple[Life | None, int]] = {}
        self.is_begun = False

    def forget_lives(self) -> None:
        """Act as if the checkpoint were one of an earlier release: any life counts as the one that was read."""
        self.places = {topic: (None, at) for topic, (_, at) in self.places.items()}

    def visible(self) -> dict[str, Life]:
        return {topic: life for topic, life in self.cluster.lives.items() if topic not in self.cluster.hidden}

    def fails(self) -> bool:
        """Return whether messages are lost, or may be."""
        for topic, (life, at) in self.places.items():
            now = self.visible().get(topic)
            if now is None or now.end < at or now.first > at:
                return True
            if life is not None and now is not life and now.first < at:
                return True
        return any(topic not in self.visible() for topic in TOPICS)

    def next_batch(self) -> dict[str, list[MessageExt]]:
        """Return the messages of the next batch if data loss is allowed, and take them as read."""
        found = {}
        for topic, now in self.visible().items():
            life, at = self.places.get(topic, (now, 0))
            is_same = now is life or (life is None and now.end >= at)
            begin = max(at, now.first) if is_same else now.first
            found[topic] = now.messages[begin:]
        is_new = any(found.values()) or any(
            topic not in self.places or self.places[topic][1] > now.end for topic, now in self.visible().items())
        for topic, (life, at) in list(self.places.items()):
            if topic not in self.visible() and life is None and at:
                del self.places[topic]
                is_new = True
        for topic, now in self.visible().items():
            life, at = self.places.get(topic, (None, -1))
            # With an old checkpoint, the next batch records the lives.
            if at != now.end or life is not None or is_new:
                self.places[topic] = (now, now.end)
        return found


def happen(cluster: FakeCluster, rand: random.Random) -> None:
    """Do one thing to a cluster."""
    topic = rand.choice(TOPICS)
    thing = rand.choice(("send", "send", "send", "delete", "make", "make", "move", "hide", "show", "exchange"))
    if thing == "send":
        cluster.send(topic, rand.randint(1, 4))
    elif thing == "delete":
        cluster.delete(topic)
    elif thing == "make":
        cluster.make(topic, rand.choice((0, 1, 3, 6, 12)))
    elif thing == "move":
        cluster.move(topic, rand.randint(1, 5))
    elif thing == "hide":
        cluster.hidden.add(topic)
    elif thing == "show":
        cluster.hidden.discard(topic)
    elif rand.random() < 0.3:
        cluster.exchange_store(rand.choice((0, 2, 8)))


def begun(rand: random.Random, **options: str) -> tuple[FakeCluster, FakeQuery]:
    cluster = FakeCluster(*TOPICS)
    for topic in TOPICS:
        cluster.send(topic, rand.randint(0, 5))
        if rand.random() < 0.3:
            cluster.move(topic, 9)
    return cluster, FakeQuery(cluster, startingOffsets="earliest", **options)


def keys_by_topic(rows: list[MessageExt]) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for message in rows:
        found.setdefault(message.topic, []).append(message.keys)
    return found


@pytest.mark.parametrize("strict", [False, True])
def test_each_batch_fails_or_equals_the_models(strict):
    failures = batches = 0
    for seed in range(300):
        rand = random.Random(seed)
        cluster, query = begun(rand, failOnDataLoss=str(strict).lower())
        model = Model(cluster)
        for _ in range(20):
            for _ in range(rand.randint(0, 3)):
                if model.is_begun:
                    happen(cluster, rand)
            if rand.random() < 0.2:
                query.restart()
            if query.offset is not None and rand.random() < 0.05:
                query.offset = json.dumps({key: value for key, value in json.loads(query.offset).items()
                                           if key != "last"})
                model.forget_lives()
            if strict and model.is_begun and model.fails():
                with pytest.raises(PipelineError, match="topic [ABC]"):
                    query.batch()
                failures += 1
                query.restart(failOnDataLoss="false")
            model.is_begun = True
            expected = {topic: [message.keys for message in messages]
                        for topic, messages in model.next_batch().items() if messages}
            assert keys_by_topic(query.batch()) == expected, seed
            batches += bool(expected)
            if strict:
                query.restart(failOnDataLoss="true")
    assert batches > 2000 and (failures > 1000 or not strict)


@pytest.mark.parametrize("strict", [False, True])
def test_changes_while_a_batch_is_made_lose_no_message(strict):
    """Change the cluster between planning and reading, before a repetition in another process, with limits."""
    failures = ended_well = 0
    for seed in range(600):
        rand = random.Random(seed)
        cluster, query = begun(rand, failOnDataLoss=str(strict).lower())
        taken: list[str | None] = []
        try:
            for step in range(rand.randint(1, 5 if strict else 12)):
                most = rand.choice((None, None, 1, 3))
                query.plan(limit_of(most))
                if rand.random() < 0.3:
                    happen(cluster, rand)
                if rand.random() < 0.3:
                    query.restart()
                taken += [message.keys for message in query.read()]
                if step % 3 == 1:
                    happen(cluster, rand)
            cluster.hidden.clear()
            for topic in set(TOPICS) - set(cluster.lives):
                cluster.make(topic, 1)
            while rows := query.batch():
                taken += [message.keys for message in rows]
        except PipelineError as error:
            # A task that pulls while the topic is gone; it is repeated.
            if "not exist" not in str(error):
                assert strict, (seed, error)
            failures += 1
            continue
        ended_well += 1
        available = [message.keys for life in cluster.lives.values() for message in life.messages[life.first:]]
        assert set(available) <= set(taken), seed
        if strict:
            assert len(taken) == len(set(taken)), seed
    assert ended_well > 60 and (failures > 60 or not strict)


def query_of(count: int = 5, **options: str) -> tuple[FakeCluster, FakeQuery]:
    """Return a topic with some messages that a query has read."""
    cluster = FakeCluster("A")
    cluster.send("A", count)
    query = FakeQuery(cluster, startingOffsets="earliest", **options)
    assert len(query.batch()) == count
    return cluster, query


def make_again_longer(cluster: FakeCluster) -> None:
    cluster.make("A", 8)


def make_again_as_long(cluster: FakeCluster) -> None:
    cluster.make("A", 5)


def make_again_shorter(cluster: FakeCluster) -> None:
    cluster.make("A", 2)


def make_again_empty(cluster: FakeCluster) -> None:
    cluster.make("A")


def exchange_the_store(cluster: FakeCluster) -> None:
    cluster.exchange_store(6)


def move_the_beginning(cluster: FakeCluster) -> None:
    cluster.send("A", 4)
    cluster.move("A", 7)


def vanish(cluster: FakeCluster) -> None:
    cluster.hidden.add("A")


MADE_AGAIN = "the topic was deleted and created again, or its broker came back with another store"
ANOTHER = (r"topic A, queue 0 of b has another message at offset 4 than the one stored at 2023-11-14 .* \(position 400 "
           r"of the log\) that was there when the stream was at 5: " + MADE_AGAIN)
BEGINNING = "reads the queue from its beginning, offset 0"


@pytest.mark.parametrize("thing, said, remedy, count", [
    (make_again_longer, ANOTHER, BEGINNING, 8),
    (make_again_as_long, ANOTHER, BEGINNING, 5),
    (make_again_shorter, "queue 0 of b ends at offset 2, the stream has read up to 5: " + MADE_AGAIN, BEGINNING, 2),
    (make_again_empty, "queue 0 of b ends at offset 0, the stream has read up to 5: " + MADE_AGAIN, BEGINNING, 0),
    (exchange_the_store, ANOTHER, BEGINNING, 6),
    (move_the_beginning, "topic A, queue 0 of b: offsets 5 to 7 are gone, the queue begins at 7",
     "continues without them, at offset 7", 2),
    (vanish, "topic A, queue 0 of b no longer exists, the stream has read up to offset 5: the topic was deleted",
     "continues without the queue", 0),
])
def test_change_is_an_error_or_one_warning(thing, said, remedy, count, caplog):
    cluster, query = query_of()
    thing(cluster)
    for _ in range(2):  # a restart does not help
        with pytest.raises(PipelineError, match=rf"{said}.*\. With failOnDataLoss=false the query {remedy}.* A query "
                                                r"with a new checkpointLocation begins where startingOffsets says\."):
            query.batch()
        query.restart()
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "RocketmqPipeline"):
        assert len(query.batch()) == count
        assert query.batch() == []
        assert [said_ for said_ in caplog.messages if remedy in said_] == caplog.messages and len(caplog.messages) == 1
        cluster.hidden.clear()
        cluster.send("A", 3)
        assert len(query.batch()) == 3  # continued from its place, and not repeated
        thing(cluster)
        query.batch()
        assert len(caplog.messages) == 2  # another occurrence


def test_queue_that_vanished_and_was_created_again_is_read_from_its_beginning():
    cluster, query = query_of(failOnDataLoss="false")
    vanish(cluster)
    assert query.batch() == []
    query.restart()
    cluster.make("A", 9)
    cluster.hidden.clear()
    assert len(query.batch()) == 9


def test_checkpoint_of_an_earlier_release_records_its_queues_when_it_is_continued():
    cluster, query = query_of()
    query.offset = json.dumps({"version": 1, "queues": {"A": {BROKER: {"0": 5}}}})
    query.restart()
    assert query.batch() == [] and cluster.asked == 1  # its end, at the first batch
    cluster.send("A", 1)
    assert len(query.batch()) == 1
    cluster.make("A", 7)
    with pytest.raises(PipelineError, match="another message at offset 5"):
        query.batch()


@pytest.mark.parametrize("count", [0, 3, 5, 9])
def test_queue_without_a_message_is_identified_by_its_beginning(count):
    cluster = FakeCluster("A")
    cluster.send("A", 5)
    cluster.move("A", 5)
    query = FakeQuery(cluster)
    assert query.batch() == []
    cluster.make("A", count)
    with pytest.raises(PipelineError, match="ends at offset|begins at offset 0, it began at 5 when"):
        query.batch()
    query.restart(failOnDataLoss="false")
    assert len(query.batch()) == count


def test_slave_that_stands_in_for_its_master_decides_nothing(caplog):
    cluster, query = query_of()
    original = cluster.lives["A"]
    cluster.is_master = False
    # A slave that has fewer messages, and one with another life.
    for count in (2, 8):
        cluster.make("A", count)
        assert query.batch() == []
        assert query.batch() == []
    said, = caplog.messages
    assert "the master does not answer, and a slave does not have all that the stream has read up to offset 5" in said
    cluster.lives["A"], cluster.is_master = original, True
    cluster.send("A", 2)
    assert len(query.batch()) == 2


def test_stream_requests_no_message_while_none_arrives():
    cluster, query = query_of()
    asked = cluster.asked
    for _ in range(10):
        assert query.batch() == []
    query.restart()
    assert query.batch() == [] and cluster.asked == asked
    cluster.send("A", 100)
    assert len(query.batch()) == 100 and cluster.asked == asked + 2


def test_offsets_beyond_the_end_are_refused_unless_loss_is_allowed():
    cluster = FakeCluster("A")
    cluster.send("A", 3)
    begin = json.dumps({"A": {BROKER: {"0": 4}}})
    with pytest.raises(PipelineError, match="startingOffsets=4 is beyond the end of topic A, queue 0 of b, which is 3"):
        FakeQuery(cluster, startingOffsets=begin).batch()
    assert len(FakeQuery(cluster, startingOffsets=begin, failOnDataLoss="false").batch()) == 3
    assert FakeQuery(cluster, startingOffsets=begin.replace("4", "3")).batch() == []


@pytest.mark.parametrize("thing, strict", [
    (make_again_longer, True), (make_again_as_long, True), (make_again_shorter, True), (exchange_the_store, True),
    (make_again_longer, False), (make_again_as_long, False), (make_again_shorter, False)])
def test_table_does_not_mix_two_lives_of_a_queue(thing, strict, monkeypatch):
    cluster = FakeCluster("A")
    cluster.send("A", 5)
    monkeypatch.setattr(cluster_source, "ClusterQueues", lambda options: cluster)
    cluster.options = Options({"nameServer": "127.0.0.1:1", "subscribe": "A", "failOnDataLoss": str(strict).lower()},
                              cluster_source.READ_OPTIONS, "rocketmq")
    table = cluster_source.ClusterReader(cluster.options, table_schema(cluster.options))
    part, = table.partitions()
    rows = table._messages(cluster, part.spans[0])
    before = [next(rows).keys for _ in range(2)]
    thing(cluster)
    if strict:
        with pytest.raises(PipelineError, match="another message at offset . than when the query was planned|are gone"):
            before += [message.keys for message in rows]
    else:
        before += [message.keys for message in rows]
    assert before == ["m0", "m1"]


def test_positions_are_encoded_and_decoded_unchanged():
    queues = FakeCluster("A", "B", "C", "D").queues.values()
    for seed in range(200):
        rand = random.Random(seed)
        positions = {}
        for queue in queues:
            at = rand.randint(0, 1 << 40)
            positions[queue] = rand.choice((Position(at), Position(at, None, rand.randint(0, at)), Position(
                at, Mark(at - 1, rand.randint(0, 1 << 62), rand.randint(0, 1 << 42)))))
        assert decode(json.loads(json.dumps(encode(positions)))) == positions
