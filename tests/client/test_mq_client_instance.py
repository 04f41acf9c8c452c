"""The tables of a client: routes in, addresses out; no connection is made."""
import pytest

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQClientException
from rmqha.client.impl.mq_client_manager import MQClientManager, make_client_instance
from rmqha.client.producer.producer_config import ProducerConfig
from rmqha.common.protocol.topic_route_data import BrokerData, QueueData, TopicRouteData


def route(**addrs):
    """A topic with two queues on each of the named brokers."""
    return TopicRouteData(queueDatas=[QueueData(name, 2, 2, 6) for name in addrs],
                          brokerDatas=[BrokerData("C", name, table) for name, table in addrs.items()])


class FakeApi:
    """Answers route questions from a dict."""

    def __init__(self):
        self.routes = {}

    def get_topic_route_info_from_name_server(self, topic, timeout_ms):
        if topic not in self.routes:
            raise MQClientException("no route", 17)
        return self.routes[topic]

    get_default_topic_route_info_from_name_server = get_topic_route_info_from_name_server


@pytest.fixture
def instance():
    return make_client_instance(ClientConfig(client_ip="127.0.0.1"), 0, "127.0.0.1@test")


@pytest.fixture
def api(instance, monkeypatch):
    fake = FakeApi()
    for name in ("get_topic_route_info_from_name_server", "get_default_topic_route_info_from_name_server"):
        monkeypatch.setattr(instance.mq_client_api_impl, name, getattr(fake, name))
    return fake


@pytest.fixture
def learn(instance, api):
    def learn(topic, **addrs):
        api.routes[topic] = route(**addrs)
        return instance.routes.update_topic_route_info_from_name_server(topic)

    return learn


def test_master_is_asked_to_publish_and_unknown_brokers_are_none(instance, learn):
    assert learn("T", a={0: "1:1", 1: "1:5"}, b={1: "1:6"})
    assert instance.routes.find_broker_address_in_publish("a") == "1:1"
    assert instance.routes.find_broker_address_in_publish("b") is None
    assert instance.routes.find_broker_address_in_publish("x") is None


def test_slave_stands_in_for_a_missing_master_unless_only_the_master_will_do(instance, learn):
    learn("T", a={0: "1:1", 1: "1:5"}, b={1: "1:6", 2: "1:7"})
    find = instance.routes.find_broker_address_in_subscribe
    assert find("a", 0, True).broker_addr == "1:1" and not find("a", 0, True).slave
    assert find("a", 1, False).broker_addr == "1:5" and find("a", 1, False).slave
    assert find("b", 0, True) is None
    assert find("b", 0, False).broker_addr == "1:6" and find("b", 0, False).slave
    assert find("a", 3, False).broker_addr == "1:1"
    assert find("b", 1, True).broker_addr == "1:6"
    assert find("x", 0, False) is None


def test_next_slave_is_asked_when_the_suggested_one_is_gone(instance, learn):
    learn("T", b={2: "1:7"})
    assert instance.routes.find_broker_address_in_subscribe("b", 1, True).broker_addr == "1:7"


def test_route_that_says_the_same_changes_nothing(instance, learn):
    assert learn("T", a={0: "1:1"})
    assert not learn("T", a={0: "1:1"})
    assert learn("T", a={0: "1:2"})
    assert instance.routes.find_broker_address_in_publish("a") == "1:2"


def test_unknown_topic_changes_nothing(instance, api):
    assert not instance.routes.update_topic_route_info_from_name_server("nowhere")
    assert instance.routes.get_an_exist_topic_route_data("nowhere") is None


def test_new_topic_gets_the_default_topics_brokers_and_at_most_the_producers_queues(instance, api):
    api.routes["TBW102"] = route(a={0: "1:1"})
    config = ProducerConfig()
    config.default_topic_queue_nums = 1
    assert instance.routes.update_topic_route_info_from_name_server("New", True, config)
    assert [data.writeQueueNums for data in instance.routes.get_an_exist_topic_route_data("New").queueDatas] == [1]


def test_addresses_that_no_route_names_any_more_are_forgotten(instance, learn):
    learn("T", a={0: "1:1", 1: "1:5"}, b={0: "1:2"})
    learn("T", a={1: "1:5"})
    instance.routes.broker_addr_table["a"] = {0: "1:1", 1: "1:5"}
    instance.routes.clean_offline_broker()
    assert instance.routes.broker_addr_table == {"a": {1: "1:5"}}


def test_producers_and_consumers_hear_of_routes_and_groups_are_unique(instance, learn):
    heard = {}

    class Producer:
        def is_publish_topic_need_update(self, topic):
            return False

        def update_topic_publish_info(self, topic, info):
            heard[topic] = info

    assert instance.register_producer("g", Producer())
    assert not instance.register_producer("g", Producer())
    learn("T", a={0: "1:1"})
    assert len(heard["T"].message_queue_list) == 2 and heard["T"].have_topic_router_info


def test_manager_shares_instances_by_client_id():
    manager = MQClientManager()
    one, other = ClientConfig(client_ip="1"), ClientConfig(client_ip="1")
    first = manager.get_or_create_mq_client_instance(one)
    assert manager.get_or_create_mq_client_instance(other) is first
    other.instance_name = "another"
    assert manager.get_or_create_mq_client_instance(other) is not first
    manager.remove_client_factory(first.client_id)
    assert manager.get_or_create_mq_client_instance(one) is not first
