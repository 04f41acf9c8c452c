"""How queues are shared."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.consumer.allocate_message_queue_strategy import AllocateMessageQueueAveragely
from rmqha.common.message.message import MessageQueue

STRATEGY = AllocateMessageQueueAveragely()


def queues(count):
    return [MessageQueue("T", "broker-a", number) for number in range(count)]


def shares(mq_all, cid_all):
    return [STRATEGY.allocate("G", cid, mq_all, cid_all) for cid in cid_all]


@given(st.integers(1, 200), st.integers(1, 60))
def test_every_queue_goes_to_exactly_one_client_in_order_and_evenly(queue_count, client_count):
    mq_all, cid_all = queues(queue_count), [f"client-{number:03}" for number in range(client_count)]
    parts = shares(mq_all, cid_all)
    assert [queue for part in parts for queue in part] == mq_all
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("queue_count, client_count, sizes", [
    (8, 3, [3, 3, 2]), (3, 5, [1, 1, 1, 0, 0]), (4, 4, [1, 1, 1, 1]), (4, 1, [4])])
def test_sizes_are_javas(queue_count, client_count, sizes):
    cid_all = [f"c{number}" for number in range(client_count)]
    assert [len(part) for part in shares(queues(queue_count), cid_all)] == sizes


def test_client_that_is_not_in_the_group_gets_nothing():
    assert STRATEGY.allocate("G", "stranger", queues(4), ["c1", "c2"]) == []


@pytest.mark.parametrize("cid, mq_all, cid_all", [("", queues(1), ["c"]), ("c", [], ["c"]), ("c", queues(1), [])])
def test_empty_arguments_are_refused(cid, mq_all, cid_all):
    with pytest.raises(ValueError, match="empty"):
        STRATEGY.allocate("G", cid, mq_all, cid_all)


def test_name_is_javas():
    assert STRATEGY.get_name() == "AVG"
