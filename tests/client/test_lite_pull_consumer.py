"""The lite pull consumer with rmqha's own brokers, and a new group on a topic whose beginning is deleted."""
import pytest

from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import MessageQueueListener, MessageSelector, TopicMessageQueueChangeListener
from rmqha.client.exception import MQClientException
from rmqha.client.impl.consumer import rebalance
from rmqha.client.impl.consumer.default_mq_push_consumer_impl import DefaultMQPushConsumerImpl
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.subscriptions import ConsumeFromWhere
from tests.support.wait import wait_until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def producer(servers):
    """A producer shared by all tests of the module."""
    with DefaultMQProducer("lite-producer", servers.namesrv) as running:
        yield running


@pytest.fixture
def filled(servers, producer):
    """filled(tags...) -> a topic with one message "<tag>-<number>" per tag, spread over both brokers."""
    def make(*tags: str) -> str:
        topic = servers.unique("Lite")
        producer.admin.create_topic("TBW102", topic, 2)
        for number, tag in enumerate(tags):
            message = Message(topic, f"{tag}-{number}".encode(), tags=tag)
            message.put_user_property("number", str(number))
            producer.send(message)
        return topic
    return make


def consumer_of(servers, group: str | None = None, **settings) -> DefaultLitePullConsumer:
    """Return a consumer that starts at the first messages; it is not started yet."""
    consumer = DefaultLitePullConsumer(group or servers.unique("lite"), servers.namesrv)
    consumer.consume_from_where = FIRST
    for name, value in settings.items():
        setattr(consumer, name, value)
    return consumer


def taken(consumer: DefaultLitePullConsumer, count: int) -> list[str]:
    """Poll until there are `count` messages, and return their sorted bodies."""
    bodies: list[str] = []

    def enough() -> bool:
        bodies.extend(bytes(msg.body).decode() for msg in consumer.poll(200))
        return len(bodies) >= count
    wait_until(enough, 60_000, f"{count} messages")
    return sorted(bodies)


def test_each_message_is_delivered_once_and_the_next_consumer_continues_after_it(servers, filled, producer):
    topic, group = filled(*"abcdefgh"), servers.unique("lite")
    consumer = consumer_of(servers, group)
    consumer.subscribe(topic)
    with consumer:
        assert taken(consumer, 8) == [f"{tag}-{number}" for number, tag in enumerate("abcdefgh")]
        assert consumer.poll(50) == []
        consumer.commit_sync()
    producer.send(Message(topic, b"later"))
    with (again := consumer_of(servers, group)):
        again.subscribe(topic)
        assert taken(again, 1) == ["later"]


def test_tags_and_sql_expressions_select_messages(servers, filled):
    topic = filled("a", "b", "a", "c")
    with (by_tag := consumer_of(servers)):
        by_tag.subscribe(topic, "a || c")
        assert taken(by_tag, 3) == ["a-0", "a-2", "c-3"]


def test_two_consumers_of_a_group_share_the_queues_and_are_notified(servers, filled):
    topic, group = filled(*"abcdefgh"), servers.unique("lite")
    shares: dict[str, set] = {}

    class Listener(MessageQueueListener):
        def __init__(self, name):
            self.name = name

        def message_queue_changed(self, topic, mq_all, mq_divided):
            shares[self.name] = set(mq_divided)

    one, two = consumer_of(servers, group), consumer_of(servers, group)
    one.subscribe(topic, "*", Listener("one"))
    two.subscribe(topic, "*", Listener("two"))
    with one, two:
        wait_until(lambda: len(shares.get("one", ())) == 2 and len(shares.get("two", ())) == 2, 60_000, "two shares")
        assert shares["one"] | shares["two"] == one.fetch_message_queues(topic)


def test_assigned_queues_are_pulled_regardless_of_other_consumers(servers, filled):
    topic = filled(*"aabb")
    with (consumer := consumer_of(servers)):
        queues = sorted(consumer.fetch_message_queues(topic))
        consumer.assign(queues)
        assert taken(consumer, 4) == ["a-0", "a-1", "b-2", "b-3"]
        with pytest.raises(RuntimeError, match="mutually exclusive"):
            consumer.subscribe(topic)


def test_assigned_queues_can_be_filtered(servers, filled):
    topic = filled(*"aabb")
    consumer = consumer_of(servers)
    consumer.set_sub_expression_for_assign(topic, "b")
    with consumer:
        consumer.assign(consumer.fetch_message_queues(topic))
        assert taken(consumer, 2) == ["b-2", "b-3"]
        with pytest.raises(RuntimeError, match="before start"):
            consumer.set_sub_expression_for_assign(topic, "a")


def test_seek_repeats_or_skips_messages(servers, filled, producer):
    topic = filled(*"abcd")
    with (consumer := consumer_of(servers)):
        queues = sorted(consumer.fetch_message_queues(topic))
        consumer.assign(queues)
        first = taken(consumer, 4)
        for queue in queues:
            consumer.seek_to_begin(queue)
        assert taken(consumer, 4) == first
        for queue in queues:
            consumer.seek_to_begin(queue)
            consumer.seek_to_end(queue)
        producer.send(Message(topic, b"behind the end"))
        assert taken(consumer, 1) == ["behind the end"]
        with pytest.raises(MQClientException, match="Seek offset illegal"):
            consumer.seek(queues[0], 1_000)
        consumer.assign(queues[:1])
        with pytest.raises(MQClientException, match="not in assigned list"):
            consumer.seek(queues[1], 0)


def test_paused_queues_are_not_pulled_until_resumed(servers, filled, producer):
    topic = filled("a")
    queues = producer.fetch_publish_message_queues(topic)
    consumer = consumer_of(servers)
    consumer.assign(queues)
    consumer.pause(queues)
    with consumer:
        assert consumer.poll(300) == []
        consumer.resume(queues)
        assert taken(consumer, 1) == ["a-0"]


def test_commits_are_controlled_by_the_user(servers, filled):
    topic, group = filled("a", "b", "c", "d"), servers.unique("lite")
    with (consumer := consumer_of(servers, group, auto_commit=False)):
        queues = sorted(consumer.fetch_message_queues(topic))
        consumer.assign(queues)
        taken(consumer, 4)
        # The broker's answer for a queue that begins at 0.
        assert {consumer.committed(queue) for queue in queues} == {0}
        consumer.commit({queues[0]: 1}, persist=True)
        assert consumer.committed(queues[0]) == 1
        assert consumer.offset_for_timestamp(queues[0], 0) == 0


def test_added_queues_of_a_topic_are_noticed(servers, filled, producer):
    topic = filled("a")
    seen: list[set] = []

    class Listener(TopicMessageQueueChangeListener):
        def on_changed(self, topic, message_queues):
            seen.append(message_queues)

    consumer = consumer_of(servers)
    with consumer:
        consumer.register_topic_message_queue_change_listener(topic, Listener())
        producer.admin.create_topic("TBW102", topic, 3)
        compare = consumer.default_lite_pull_consumer_impl._fetch_topic_message_queues_and_compare

        def noticed() -> bool:
            compare()
            return bool(seen) and len(seen[-1]) == 6
        wait_until(noticed, 60_000, "six queues")


def test_wrong_use_is_reported(servers):
    consumer = consumer_of(servers)
    with pytest.raises(RuntimeError, match="not running"):
        consumer.poll()
    with pytest.raises(ValueError, match="null or empty"):
        consumer.assign([])
    with pytest.raises(MQClientException, match="subscribe exception"):
        consumer.subscribe("T", MessageSelector("", "NOKIND"))
    consumer.broker_suspend_max_time_millis = 40_000
    with pytest.raises(MQClientException, match="Long polling mode"):
        consumer.start()
    with pytest.raises(MQClientException, match="maybe started once"):
        consumer.start()


# A new group on a topic whose beginning is deleted.

LONG_MS = 120_000
COUNT = 30


@pytest.fixture(scope="module")
def shortened(servers):
    """A topic of one queue, and the numbers of the messages that it still has."""
    topic = servers.unique("Shortened")
    broker = servers.brokers["broker-a"]
    with DefaultMQProducer(servers.unique("maker"), servers.namesrv, compress_msg_body_over_howmuch=1 << 22) \
            as producer:
        producer.admin.create_topic("TBW102", topic, 1)
        queue = MessageQueue(topic, "broker-a", 0)
        for number in range(COUNT):
            producer.send(Message(topic, b"%d " % number + b"-" * 300_000), queue=queue)
        store = broker.message_store
        wait_until(lambda: store.get_max_offset_in_queue(topic, 0) == COUNT, LONG_MS, "dispatch")
        store.commit_log.delete_expired_file(0, 0, 0, True)
        store.get_consume_queue(topic, 0).correct_min_offset(store.commit_log.get_min_offset())
        first = producer.admin.min_offset(queue)
        assert 0 < first < COUNT
    return topic, list(range(first, COUNT))


def _numbers(messages):
    return [int(bytes(message.body).split()[0]) for message in messages if message.queue_id == 0
            and message.broker_name == "broker-a"]


def _received(servers, topic, wanted):
    came = []
    consumer = DefaultMQPushConsumer(servers.unique("new"), servers.namesrv,
                                     lambda messages: came.extend(_numbers(messages)))
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic)
    with consumer:
        wait_until(lambda: len(came) >= len(wanted), LONG_MS, "the remaining messages")
    return sorted(came)


@pytest.fixture
def corrections(monkeypatch):
    """Record each time a queue was dropped for 10 s because its offset was moved, as the original's clients do."""
    made = []
    real = DefaultMQPushConsumerImpl._offset_illegal

    def note(*arguments):
        made.append(arguments)
        real(*arguments)
    monkeypatch.setattr(DefaultMQPushConsumerImpl, "_offset_illegal", note)
    return made


def test_client_that_starts_at_0_like_the_originals_continues_without_a_correction(
        servers, shortened, corrections, monkeypatch):
    topic, left = shortened
    monkeypatch.setattr(rebalance, "_beginning", lambda mq, admin: 0)
    assert _received(servers, topic, left) == left
    assert corrections == []


def test_own_client_asks_for_the_first_offset(servers, shortened, corrections):
    topic, left = shortened
    store = servers.brokers["broker-a"].message_store
    before = store.get_max_offset_in_queue("OFFSET_MOVED_EVENT", 0)
    assert _received(servers, topic, left) == left
    assert corrections == [] and store.get_max_offset_in_queue("OFFSET_MOVED_EVENT", 0) == before


def test_lite_pull_consumer_asks_for_the_first_offset_too(servers, shortened):
    topic, left = shortened
    consumer = DefaultLitePullConsumer(servers.unique("lite"), servers.namesrv)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic)
    came = []
    with consumer:
        wait_until(lambda: came.extend(_numbers(consumer.poll(1000))) or len(came) >= len(left), LONG_MS, "messages")
    assert sorted(came) == left


@pytest.mark.parametrize("answer, begins", [(0, 0), (7, 7), (-1, 0), (MQClientException("no master"), 0)])
@pytest.mark.parametrize("topic, where", [
    ("T", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET), ("%RETRY%g", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    ("%RETRY%g", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)])
def test_first_offset_of_a_new_group(answer, begins, topic, where):
    class Admin:
        @staticmethod
        def min_offset(mq):
            if isinstance(answer, Exception):
                raise answer
            return answer
    assert rebalance.first_offset(MessageQueue(topic, "b", 0), where, "", Admin()) == begins
