"""A consumer's queues: allocation, the local cache, and orderly consumption."""
import threading
from collections import defaultdict
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueAveragely
from rmqha.client.consumer.listeners import ConsumeOrderlyStatus, MessageListenerOrderly
from rmqha.client.impl.consumer.process_queue import PULL_MAX_IDLE_TIME_MS, ProcessQueue
from rmqha.client.impl.consumer.rebalance import RebalanceImpl
from rmqha.common import util_all
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.protocol import client_bodies
from rmqha.common.protocol.client_bodies import ProcessQueueInfo
from rmqha.common.subscriptions import SubscriptionData
from tests.client.test_client_with_servers import (
    consuming,
    make_topic,  # noqa: F401
    producer,  # noqa: F401
)
from tests.support.wait import wait_until

# Orderly consumption with rmqha's own servers in this process.

SUCCESS, SUSPEND = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
COMMIT, ROLLBACK = ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK
LONG_MS = 60_000


class InOrder(MessageListenerOrderly):
    """Records the bodies of each queue; `say(body, times seen)` may return another status than SUCCESS."""

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
    """Send `count` numbers to the queues in turn."""
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


def test_suspended_queue_delivers_the_same_message_first(servers, make_topic, producer):
    topic = make_topic("Suspended", 1)
    listener = InOrder(lambda body, times: SUSPEND if body == 4 and times < 3 else SUCCESS)
    with consuming(servers, servers.unique("suspended"), topic, listener, suspend_current_queue_time_millis=10):
        send_in_order(producer, topic, 0, 20)
        wait_until(lambda: listener.total == 22, LONG_MS, "all messages, one of them three times")
    assert sorted(listener.seen.values()) == [[0, 2, 4, 4, 4, *range(6, 20, 2)], [*range(1, 20, 2)]]


def test_message_tried_too_often_becomes_a_dead_letter(servers, make_topic, producer):
    topic, group = make_topic("Given", 1), servers.unique("given_up")
    listener = InOrder(lambda body, times: SUSPEND if body == 0 else SUCCESS)
    with consuming(servers, group, topic, listener, suspend_current_queue_time_millis=10, max_reconsume_times=1):
        send_in_order(producer, topic, 0, 4)
        wait_until(lambda: listener.total == 5, LONG_MS, "all messages, one of them twice")
        stores = [broker.message_store for broker in servers.brokers.values()]
        wait_until(lambda: sum(store.get_max_offset_in_queue(f"%DLQ%{group}", 0) for store in stores) == 1, LONG_MS,
                   "the dead letter")
    assert sorted(listener.seen.values()) == [[0, 0, 2], [1, 3]]


def test_rollback_without_auto_commit_delivers_everything_again(servers, make_topic, producer):
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


def test_second_consumer_takes_over_its_queues_in_order(servers, make_topic, producer):
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
            # Otherwise a queue that is still locked is requested again only after 20 s.
            for consumer in consumers:
                consumer.default_mq_push_consumer_impl.mq_client_factory.rebalance_immediately()
            return second.total >= 20

        wait_until(both_have_some, LONG_MS, "messages for the second consumer")
        wait_until(lambda: len(first.distinct | second.distinct) == sent, LONG_MS, "all messages")
    # A message that a listener is processing when its queue is taken over is delivered again.
    for queue in {*first.seen, *second.seen}:
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


# The local cache of a queue.


def message(offset, size=10):
    msg = MessageExt("T", b"x" * size)
    msg.queue_offset = offset
    return msg


def messages(*offsets):
    return [message(offset) for offset in offsets]


def test_lowest_unconsumed_offset_may_be_committed():
    queue = ProcessQueue()
    queue.put_message(messages(5, 6, 7))
    assert queue.remove_message(messages(6)) == 5
    assert queue.remove_message(messages(5)) == 7
    assert queue.remove_message(messages(7)) == 8, "one past the highest once the queue is empty"
    assert queue.remove_message(messages(7)) == -1, "the queue was already empty"


def test_counts_follow_puts_and_removals():
    queue = ProcessQueue()
    queue.put_message([message(1, 100), message(2, 50)])
    queue.put_message([message(2, 50)])
    assert (queue.msg_count, queue.msg_size, queue.get_max_span()) == (2, 150, 1)
    queue.remove_message([message(1, 100)])
    assert (queue.msg_count, queue.msg_size, queue.get_max_span()) == (1, 50, 0)
    queue.clear()
    assert (queue.msg_count, queue.msg_size, queue.has_temp_message()) == (0, 0, False)


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 30), min_size=1, max_size=5)), max_size=20))
def test_cache_behaves_like_a_sorted_map(steps):
    queue, model, highest = ProcessQueue(), {}, 0
    for is_put, offsets in steps:
        if is_put:
            for offset in offsets:
                highest = offset if offset not in model else highest
                model[offset] = True
            queue.put_message(messages(*offsets))
        else:
            was_empty = not model
            for offset in offsets:
                model.pop(offset, None)
            expected = -1 if was_empty else min(model, default=highest + 1)
            assert queue.remove_message(messages(*offsets)) == expected
        assert queue.msg_count == len(model)
        assert queue.get_max_span() == (max(model) - min(model) if model else 0)


def test_message_held_too_long_by_a_listener_is_found():
    queue = ProcessQueue()
    queue.put_message(messages(1, 2))
    assert queue.first_expired_msg(1000) is None, "not delivered to a listener yet"
    first = message(1)
    queue.put_message([first])
    queue.consume_begins([first])
    assert queue.first_expired_msg(-1) is first
    assert queue.first_expired_msg(60_000) is None
    queue.remove_message([first])
    queue.put_message([first])
    assert queue.first_expired_msg(-1) is None, "delivered again"


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_clock_step_drops_no_queue_and_extends_no_lock(monkeypatch, step_ms):
    queue, real = ProcessQueue(), util_all.current_time_millis
    queue.put_message(messages(1))
    queue.consume_begins(messages(1))
    monkeypatch.setattr(util_all, "current_time_millis", lambda: real() + step_ms)
    assert not queue.is_pull_expired() and not queue.is_lock_expired() and queue.first_expired_msg(60_000) is None
    later = util_all.monotonic_millis() + PULL_MAX_IDLE_TIME_MS + 1000
    monkeypatch.setattr(util_all, "monotonic_millis", lambda: later)
    assert queue.is_pull_expired() and queue.is_lock_expired() and queue.first_expired_msg(60_000) is not None


def test_info_for_admins_shows_wall_clock_times():
    queue, info, begin = ProcessQueue(), ProcessQueueInfo(), util_all.current_time_millis()
    queue.fill_process_queue_info(info)
    for time_ms in (info.lastPullTimestamp, info.lastConsumeTimestamp, info.lastLockTimestamp):
        assert begin - 60_000 < time_ms <= util_all.current_time_millis()


def test_backlog_at_the_broker_is_recorded():
    queue, last = ProcessQueue(), message(7)
    last.properties[message_const.PROPERTY_MAX_OFFSET] = "100"
    queue.put_message([message(6), last])
    assert queue.msg_acc_cnt == 93


def test_queue_not_pulled_for_two_minutes_is_expired():
    queue = ProcessQueue()
    assert not queue.is_pull_expired()
    queue.last_pull_ms -= PULL_MAX_IDLE_TIME_MS + 1000
    assert queue.is_pull_expired()


def test_info_for_admins_shows_the_bounds():
    queue, info = ProcessQueue(), ProcessQueueInfo()
    queue.put_message(messages(3, 9))
    queue.fill_process_queue_info(info)
    assert (info.cachedMsgMinOffset, info.cachedMsgMaxOffset, info.cachedMsgCount) == (3, 9, 2)


def test_newer_subscription_is_newer_even_if_the_clock_went_back():
    rebalance = RebalanceImpl()
    first, second = SubscriptionData("T", "a", subVersion=2_000), SubscriptionData("T", "b", subVersion=1_000)
    rebalance.put_subscription("T", first)
    rebalance.put_subscription("T", second)
    assert rebalance.subscription_inner["T"] is second and second.subVersion == 2_001


# Allocation of queues.

STRATEGY = AllocateMessageQueueAveragely()


def queues(count):
    return [MessageQueue("T", "broker-a", number) for number in range(count)]


def shares(mq_all, cid_all):
    return [STRATEGY.allocate("G", cid, mq_all, cid_all) for cid in cid_all]


@given(st.integers(1, 200), st.integers(1, 60))
def test_every_queue_is_allocated_to_exactly_one_client_in_order_and_evenly(queue_count, client_count):
    mq_all, cid_all = queues(queue_count), [f"client-{number:03}" for number in range(client_count)]
    parts = shares(mq_all, cid_all)
    assert [queue for part in parts for queue in part] == mq_all
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("queue_count, client_count, sizes", [
    (8, 3, [3, 3, 2]), (3, 5, [1, 1, 1, 0, 0]), (4, 4, [1, 1, 1, 1]), (4, 1, [4])])
def test_shares_have_the_same_sizes_as_javas(queue_count, client_count, sizes):
    cid_all = [f"c{number}" for number in range(client_count)]
    assert [len(part) for part in shares(queues(queue_count), cid_all)] == sizes


def test_client_outside_the_group_gets_no_queue():
    assert STRATEGY.allocate("G", "stranger", queues(4), ["c1", "c2"]) == []


@pytest.mark.parametrize("cid, mq_all, cid_all", [("", queues(1), ["c"]), ("c", [], ["c"]), ("c", queues(1), [])])
def test_empty_arguments_are_refused(cid, mq_all, cid_all):
    with pytest.raises(ValueError, match="empty"):
        STRATEGY.allocate("G", cid, mq_all, cid_all)


def test_name_equals_javas():
    assert STRATEGY.get_name() == "AVG"
