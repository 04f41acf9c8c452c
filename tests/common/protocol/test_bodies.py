"""Request and response bodies as JSON, compared with those of a real RocketMQ, and their methods."""
import dataclasses
import importlib
import pkgutil
import time
import typing

import pytest

import rmqha.common.protocol
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.client_bodies import (
    PROP_CONSUME_ORDERLY,
    PROP_CONSUMER_START_TIMESTAMP,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.topic_route_data import BrokerData, QueueData, TopicRouteData
from rmqha.common.subscriptions import SubscriptionData
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.protocol import remoting_serializable
from tests.common import model_golden
from tests.common.model_golden import golden

GOLDEN = golden("bodies")
NAMES = set(model_golden.bodies())
OWN_FIELDS = {"TopicConfigSerializeWrapper": {"deletedTopics"}}  # rmqha's own fields, in addition to the original's
# fastjson writes an object that occurs again as a reference to its first occurrence ($ref). The real servers send no
# such bodies, but the capture happens to contain them.
WITH_REFERENCES = {name for name, text in GOLDEN["json"].items() if "$ref" in text}


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    """Use the capture's time zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def body_of(name: str):
    """Return the sample, created at the time of the call: some samples contain times as text, in the current zone."""
    return model_golden.bodies()[name]


def body_classes() -> dict[str, type]:
    found = {}
    for module in pkgutil.iter_modules(rmqha.common.protocol.__path__, "rmqha.common.protocol."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if dataclasses.is_dataclass(value) and value.__module__ == module.name \
                    and not issubclass(value, CommandCustomHeader):
                found[name] = value
    return found


def test_the_capture_is_covered():
    assert set(GOLDEN["json"]) == NAMES
    assert WITH_REFERENCES == {"BrokerStatsData", "GetConsumerStatusBody"}


@pytest.mark.parametrize("name", sorted(NAMES - WITH_REFERENCES))
def test_bodies_are_written_as_java_does(name):
    assert remoting_serializable.to_json(body_of(name)) == GOLDEN["json"][name]


@pytest.mark.parametrize("name", sorted(NAMES - WITH_REFERENCES))
def test_java_bodies_are_read(name):
    assert remoting_serializable.from_json(type(body_of(name)), GOLDEN["json"][name]) == body_of(name)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_bodies_survive_a_round_trip(name):
    body = body_of(name)
    assert remoting_serializable.decode(type(body), remoting_serializable.encode(body)) == body


@pytest.mark.parametrize("name", sorted(OWN_FIELDS))
def test_own_fields_are_written_only_when_they_are_set(name):
    text = remoting_serializable.to_json(type(body_of(name))())
    assert not any(f'"{field}"' in text for field in OWN_FIELDS[name])


@pytest.mark.parametrize("name", sorted(GOLDEN["keys"]))
def test_body_fields_equal_javas(name):
    found = body_classes() | {"HeartbeatData": type(body_of("HeartbeatData")), "TopicRouteData": TopicRouteData,
                              "ConsumeStats": type(model_golden.STATS)}
    own = OWN_FIELDS.get(name, set())
    assert sorted({field.name for field in dataclasses.fields(found[name])} - own) == GOLDEN["keys"][name]


@pytest.mark.parametrize("name", sorted(body_classes()))
def test_every_body_can_be_created_empty_and_its_annotations_resolve(name):
    body = body_classes()[name]
    assert typing.get_type_hints(body)
    assert remoting_serializable.from_json(body, "{}") is not None
    body()


@pytest.mark.parametrize(("name", "value"), [
    ("TopicConfig.toString", body_of("TopicConfigSerializeWrapper").topicConfigTable["TopicTest"]),
    ("DataVersion.toString", model_golden.VERSION), ("MessageQueue.toString", model_golden.QUEUE)])
def test_texts_equal_javas(name, value):
    assert str(value) == GOLDEN["texts"][name]


def test_readable_running_info_equals_javas():
    assert model_golden.running_info().format_string() == GOLDEN["texts"]["ConsumerRunningInfo.formatString"]


def test_cluster_info_lists_addresses():
    info: ClusterInfo = body_of("ClusterInfo")
    assert info.retrieve_all_addr_by_cluster("DefaultCluster") == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert info.retrieve_all_addr_by_cluster("other") == []
    assert info.retrieve_all_cluster_names() == ["DefaultCluster"]


def test_master_is_preferred_over_slaves():
    assert model_golden.BROKER.select_broker_addr() == "10.0.0.1:10911"
    assert BrokerData("c", "b", {2: "s"}).select_broker_addr() == "s"
    assert BrokerData("c", "b").select_broker_addr() is None


def test_parts_of_a_route_are_ordered_by_broker():
    route: TopicRouteData = body_of("TopicRouteData")
    assert [queue.brokerName for queue in sorted([*route.queueDatas, QueueData("a")])] == ["a", "broker-a"]
    assert sorted([BrokerData("c", "b"), BrokerData("c", "a")])[0].brokerName == "a"


def test_lowest_version_of_a_group():
    assert body_of("ConsumerConnection").compute_min_version() == 407
    assert ConsumerConnection().compute_min_version() == 2**31 - 1


def test_lag_of_a_group():
    assert model_golden.STATS.compute_total_diff() == 6


def test_sets_of_models_deduplicate_equal_ones():
    assert len({model_golden.subscription(), model_golden.subscription(), SubscriptionData("TopicTest", "*")}) == 2
    assert sorted([SubscriptionData("b", "*"), SubscriptionData("a", "*")])[0].topic == "a"


def old_client(**changes: object) -> ConsumerRunningInfo:
    info = dataclasses.replace(model_golden.running_info(), **changes)
    info.properties = info.properties | {PROP_CONSUMER_START_TIMESTAMP: "1"}
    return info


def test_clients_of_a_group_must_have_equal_subscriptions():
    analyze = ConsumerRunningInfo.analyze_subscription
    assert analyze({"a": old_client(), "b": old_client()})
    assert not analyze({"a": old_client(), "b": old_client(subscriptionSet=[SubscriptionData("T", "*", subVersion=1)])})
    assert not analyze({"a": old_client(subscriptionSet=[])})
    assert ConsumerRunningInfo.analyze_rebalance({})
    young = model_golden.running_info()
    young.properties[PROP_CONSUMER_START_TIMESTAMP] = str(current_time_millis())
    assert analyze({"a": young, "b": old_client(subscriptionSet=[])})


@pytest.mark.parametrize(("orderly", "queue", "trouble"), [
    (False, ProcessQueueInfo(lastConsumeTimestamp=1, cachedMsgCount=1), "can't consume for a while, maybe blocked"),
    (False, ProcessQueueInfo(lastConsumeTimestamp=1), None),
    (True, ProcessQueueInfo(), "can't lock for a while"),
    (True, ProcessQueueInfo(locked=True, droped=True, tryUnlockTimes=3), "unlock 3 times, still failed"),
    (True, ProcessQueueInfo(locked=True), None)])
def test_stuck_queues_are_named(orderly, queue, trouble):
    info = model_golden.running_info()
    info.properties[PROP_CONSUME_ORDERLY] = str(orderly).lower()
    info.mqTable = {MessageQueue("T", "b", 1): queue}
    text = ConsumerRunningInfo.analyze_process_queue("cid", info)
    assert trouble is None and text == "" or text.startswith("cid MessageQueue [topic=T,") and trouble in text
    info.properties = {}
    assert ConsumerRunningInfo.analyze_process_queue("cid", info) == ""
