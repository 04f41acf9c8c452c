"""From routes to queues."""
from rmqha.client.impl.client_routes import (
    topic_route_data2_topic_publish_info,
    topic_route_data2_topic_subscribe_info,
    topic_route_data_is_change,
)
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.topic_route_data import BrokerData, QueueData, TopicRouteData

READ, WRITE = 4, 2
MASTER_A, MASTER_B = BrokerData("C", "a", {0: "1:1", 1: "1:5"}), BrokerData("C", "b", {0: "1:2"})
SLAVE_B = BrokerData("C", "b", {1: "1:6"})


def route(*brokers, perm_a=READ | WRITE, perm_b=READ | WRITE, read=2, write=2):
    data = [QueueData("b", read, write, perm_b), QueueData("a", read, write, perm_a)]
    return TopicRouteData(queueDatas=data, brokerDatas=list(brokers))


def queues(broker, count):
    return [MessageQueue("T", broker, number) for number in range(count)]


def test_writable_queues_of_masters_can_be_sent_to_sorted_by_broker():
    info = topic_route_data2_topic_publish_info("T", route(MASTER_A, MASTER_B))
    assert info.message_queue_list == queues("a", 2) + queues("b", 2) and info.ok() and not info.order_topic


def test_broker_without_master_cannot_be_sent_to_but_be_pulled():
    both = route(MASTER_A, SLAVE_B)
    assert topic_route_data2_topic_publish_info("T", both).message_queue_list == queues("a", 2)
    assert topic_route_data2_topic_subscribe_info("T", both) == set(queues("a", 2) + queues("b", 2))


def test_permissions_decide():
    info = topic_route_data2_topic_publish_info("T", route(MASTER_A, MASTER_B, perm_a=READ))
    assert info.message_queue_list == queues("b", 2)
    readable = topic_route_data2_topic_subscribe_info("T", route(MASTER_A, MASTER_B, perm_b=WRITE))
    assert readable == set(queues("a", 2))


def test_numbers_of_read_and_write_queues_are_kept_apart():
    both = route(MASTER_A, MASTER_B, read=3, write=1)
    assert len(topic_route_data2_topic_publish_info("T", both).message_queue_list) == 2
    assert len(topic_route_data2_topic_subscribe_info("T", both)) == 6


def test_ordered_topic_takes_its_queues_from_the_configuration():
    ordered = route(MASTER_A)
    ordered.orderTopicConf = "b:2;a:1;"
    info = topic_route_data2_topic_publish_info("T", ordered)
    assert info.order_topic and info.message_queue_list == queues("b", 2) + queues("a", 1)


def test_queue_choice_goes_round_and_leaves_the_last_broker():
    info = topic_route_data2_topic_publish_info("T", route(MASTER_A, MASTER_B))
    assert {info.select_one_message_queue() for _ in range(4)} == set(info.message_queue_list)
    assert {info.select_one_message_queue("a").brokerName for _ in range(8)} == {"b"}
    alone = topic_route_data2_topic_publish_info("T", route(MASTER_A))
    assert alone.select_one_message_queue("a").brokerName == "a", "better the same broker than none"
    assert info.get_queue_id_by_broker("a") == 2 and info.get_queue_id_by_broker("x") == -1


def test_route_is_changed_by_content_not_by_order():
    one, other = route(MASTER_A, MASTER_B), route(MASTER_B, MASTER_A)
    other.queueDatas.reverse()
    assert not topic_route_data_is_change(one, other)
    assert topic_route_data_is_change(one, route(MASTER_A, SLAVE_B))
    assert topic_route_data_is_change(None, one)
