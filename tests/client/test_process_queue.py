"""The local cache of a queue."""
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.impl.consumer.process_queue import PULL_MAX_IDLE_TIME_MS, ProcessQueue
from rmqha.common import util_all
from rmqha.common.message import message_const
from rmqha.common.message.message_ext import MessageExt
from rmqha.common.protocol.body.process_queue_info import ProcessQueueInfo


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
    first.properties[message_const.PROPERTY_CONSUME_START_TIMESTAMP] = str(util_all.current_time_millis() - 2000)
    queue.put_message([first])
    assert queue.first_expired_msg(1000) is first
    assert queue.first_expired_msg(60_000) is None


def test_backlog_at_the_broker_is_remembered():
    queue, last = ProcessQueue(), message(7)
    last.properties[message_const.PROPERTY_MAX_OFFSET] = "100"
    queue.put_message([message(6), last])
    assert queue.msg_acc_cnt == 93


def test_queue_that_is_not_pulled_for_two_minutes_is_expired():
    queue = ProcessQueue()
    assert not queue.is_pull_expired()
    queue.last_pull_timestamp -= PULL_MAX_IDLE_TIME_MS + 1000
    assert queue.is_pull_expired()


def test_info_for_admins_shows_the_bounds():
    queue, info = ProcessQueue(), ProcessQueueInfo()
    queue.put_message(messages(3, 9))
    queue.fill_process_queue_info(info)
    assert (info.cachedMsgMinOffset, info.cachedMsgMaxOffset, info.cachedMsgCount) == (3, 9, 2)
