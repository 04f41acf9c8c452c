"""The local cache of a queue."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.impl.consumer.process_queue import PULL_MAX_IDLE_TIME_MS, ProcessQueue
from rmqha.client.impl.consumer.rebalance import RebalanceImpl
from rmqha.common import util_all
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt
from rmqha.common.protocol.client_bodies import ProcessQueueInfo
from rmqha.common.subscriptions import SubscriptionData


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
    assert queue.remove_message(messages(7)) == 8, "one past the highest when nothing is left"
    assert queue.remove_message(messages(7)) == -1, "nothing was there"


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
def test_cache_behaves_as_a_sorted_map(steps):
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


def test_message_that_a_listener_keeps_too_long_is_named():
    queue = ProcessQueue()
    queue.put_message(messages(1, 2))
    assert queue.first_expired_msg(1000) is None, "not given to a listener yet"
    first = message(1)
    queue.put_message([first])
    queue.consume_begins([first])
    assert queue.first_expired_msg(-1) is first
    assert queue.first_expired_msg(60_000) is None
    queue.remove_message([first])
    queue.put_message([first])
    assert queue.first_expired_msg(-1) is None, "it came anew"


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_step_of_the_clock_drops_no_queue_and_keeps_no_lock(monkeypatch, step_ms):
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


def test_backlog_at_the_broker_is_remembered():
    queue, last = ProcessQueue(), message(7)
    last.properties[message_const.PROPERTY_MAX_OFFSET] = "100"
    queue.put_message([message(6), last])
    assert queue.msg_acc_cnt == 93


def test_queue_that_is_not_pulled_for_two_minutes_is_expired():
    queue = ProcessQueue()
    assert not queue.is_pull_expired()
    queue.last_pull_ms -= PULL_MAX_IDLE_TIME_MS + 1000
    assert queue.is_pull_expired()


def test_info_for_admins_shows_the_bounds():
    queue, info = ProcessQueue(), ProcessQueueInfo()
    queue.put_message(messages(3, 9))
    queue.fill_process_queue_info(info)
    assert (info.cachedMsgMinOffset, info.cachedMsgMaxOffset, info.cachedMsgCount) == (3, 9, 2)


def test_newer_subscription_is_newer_though_the_clock_went_back():
    rebalance = RebalanceImpl()
    first, second = SubscriptionData("T", "a", subVersion=2_000), SubscriptionData("T", "b", subVersion=1_000)
    rebalance.put_subscription("T", first)
    rebalance.put_subscription("T", second)
    assert rebalance.subscription_inner["T"] is second and second.subVersion == 2_001
