"""Orderly consumption with rmqha's own servers in this process."""
import threading
from collections import defaultdict
from contextlib import ExitStack

from rmqha.client.consumer.listeners import ConsumeOrderlyStatus, MessageListenerOrderly
from rmqha.client.impl.consumer.process_queue import ProcessQueue
from rmqha.common.message.message import Message, MessageExt
from rmqha.common.protocol import client_bodies
from tests.client.test_client_with_servers import consuming, make_topic, producer  # noqa: F401
from tests.support.wait import wait_until

SUCCESS, SUSPEND = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
COMMIT, ROLLBACK = ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK
LONG_MS = 60_000


class InOrder(MessageListenerOrderly):
    """Keeps the bodies of each queue; `say(body, times seen)` may give another status than SUCCESS."""

    def __init__(self, say=lambda body, times: SUCCESS, context_wants=lambda context: None):
        self.seen = defaultdict(list)
        self.overlaps = 0
        self._busy = set()
        self._say = say
        self._context_wants = context_wants
        self._lock = threading.Lock()

    def consume_message(self, msgs, context):
        queue = context.message_queue
        with self._lock:
            self.overlaps += queue in self._busy
            self._busy.add(queue)
            for msg in msgs:
                self.seen[queue].append(int(msg.body))
            self._context_wants(context)
            self._busy.discard(queue)
            return self._say(int(msgs[0].body), self.seen[queue].count(int(msgs[0].body)))

    @property
    def distinct(self):
        with self._lock:
            return {body for bodies in self.seen.values() for body in bodies}

    @property
    def total(self):
        with self._lock:
            return sum(len(bodies) for bodies in self.seen.values())


def send_in_order(producer, topic, first, count):
    """`count` numbers, round the queues."""
    queues = sorted(producer.fetch_publish_message_queues(topic))
    for number in range(first, first + count):
        producer.send(Message(topic, b"%d" % number), queue=queues[number % len(queues)])


def test_each_queue_is_consumed_in_its_order(servers, make_topic, producer):
    topic, listener = make_topic("Ordered", 2), InOrder()
    with consuming(servers, servers.unique("ordered"), topic, listener) as consumer:
        send_in_order(producer, topic, 0, 200)
        wait_until(lambda: listener.total == 200, LONG_MS, "all messages")
        info = consumer.default_mq_push_consumer_impl.consumer_running_info()
        assert info.properties[client_bodies.PROP_CONSUME_ORDERLY] == "true"
        assert {queue_info.locked for mq, queue_info in info.mqTable.items() if mq.topic == topic} == {True}
    assert len(listener.seen) == 4 and listener.overlaps == 0
    assert all(bodies == sorted(bodies) for bodies in listener.seen.values())


def test_suspended_queue_gives_the_same_message_first(servers, make_topic, producer):
    topic = make_topic("Suspended", 1)
    listener = InOrder(lambda body, times: SUSPEND if body == 4 and times < 3 else SUCCESS)
    with consuming(servers, servers.unique("suspended"), topic, listener, suspend_current_queue_time_millis=10):
        send_in_order(producer, topic, 0, 20)
        wait_until(lambda: listener.total == 22, LONG_MS, "all messages, one of them three times")
    assert sorted(listener.seen.values()) == [[0, 2, 4, 4, 4, *range(6, 20, 2)], [*range(1, 20, 2)]]


def test_what_was_tried_too_often_becomes_a_dead_letter(servers, make_topic, producer):
    topic, group = make_topic("Given", 1), servers.unique("given_up")
    listener = InOrder(lambda body, times: SUSPEND if body == 0 else SUCCESS)
    with consuming(servers, group, topic, listener, suspend_current_queue_time_millis=10, max_reconsume_times=1):
        send_in_order(producer, topic, 0, 4)
        wait_until(lambda: listener.total == 5, LONG_MS, "all messages, one of them twice")
        stores = [broker.message_store for broker in servers.brokers.values()]
        wait_until(lambda: sum(store.get_max_offset_in_queue(f"%DLQ%{group}", 0) for store in stores) == 1, LONG_MS,
                   "the dead letter")
    assert sorted(listener.seen.values()) == [[0, 0, 2], [1, 3]]


def test_without_auto_commit_a_rollback_gives_all_again(servers, make_topic, producer):
    topic = make_topic("Manual", 1)

    def say(body, times):
        if body in (4, 5):
            return ROLLBACK if times == 1 else COMMIT
        return SUCCESS

    def manual(context):
        context.auto_commit = False
        context.suspend_current_queue_time_millis = 10

    listener = InOrder(say, manual)
    with consuming(servers, servers.unique("manual"), topic, listener):
        send_in_order(producer, topic, 0, 6)
        wait_until(lambda: listener.total == 12, LONG_MS, "all messages twice")
    assert sorted(listener.seen.values()) == [[0, 2, 4, 0, 2, 4], [1, 3, 5, 1, 3, 5]]


def test_second_consumer_takes_its_queues_over_in_order(servers, make_topic, producer):
    topic, group = make_topic("Shared", 2), servers.unique("shared")
    first, second = InOrder(), InOrder()
    with ExitStack() as stack:
        consumers = [stack.enter_context(consuming(servers, group, topic, first))]
        send_in_order(producer, topic, 0, 80)
        wait_until(lambda: first.total == 80, LONG_MS, "the first consumer's messages")
        consumers.append(stack.enter_context(consuming(servers, group, topic, second, instance_name="second")))
        sent = 80

        def both_have_some():
            nonlocal sent
            send_in_order(producer, topic, sent, 4)
            sent += 4
            for consumer in consumers:  # else a queue that is still locked is asked for again after 20 s
                consumer.default_mq_push_consumer_impl.mq_client_factory.rebalance_immediately()
            return second.total >= 20

        wait_until(both_have_some, LONG_MS, "messages for the second consumer")
        wait_until(lambda: len(first.distinct | second.distinct) == sent, LONG_MS, "all messages")
    for queue in {*first.seen, *second.seen}:  # what was in a listener's hands when its queue went comes again
        bodies = list(dict.fromkeys(first.seen[queue] + second.seen[queue]))
        assert bodies == sorted(bodies), queue


def test_taken_messages_count_until_they_are_committed():
    queue = ProcessQueue()
    messages = [MessageExt("T", b"xx") for _ in range(5)]
    for offset, message in enumerate(messages):
        message.queue_offset = 10 + offset
    assert queue.put_message(messages[:3]) is True
    assert queue.put_message(messages[3:]) is False
    assert queue.take_messages(2) == messages[:2]
    queue.rollback()
    assert queue.take_messages(3) == messages[:3]
    queue.make_message_to_consume_again(messages[1:3])
    assert (queue.commit(), queue.msg_count, queue.msg_size) == (11, 4, 8)
    assert queue.commit() == -1
    assert queue.take_messages(9) == messages[1:]
    assert (queue.commit(), queue.msg_count, queue.msg_size) == (15, 0, 0)
    assert queue.take_messages(1) == []
    assert queue.put_message(messages[:1]) is True
