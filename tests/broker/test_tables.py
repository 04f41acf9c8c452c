"""Topics, groups and offsets, and their files."""
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
from rmqha.common.protocol.table_bodies import KVTable
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from tests.broker.support import new_controller


@pytest.fixture
def controller(tmp_path):
    """A broker that was never initialized: its tables only."""
    controller = new_controller(tmp_path)
    yield controller
    controller.shutdown()


def test_broker_begins_with_the_system_topics(controller):
    table = controller.topic_config_manager.topic_config_table
    assert {name: (config.readQueueNums, config.writeQueueNums, config.perm) for name, config in table.items()} == {
        "SELF_TEST_TOPIC": (1, 1, 6), "TBW102": (8, 8, 7), "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7), "broker-a": (1, 1, 7), "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6), "DefaultCluster_REPLY_TOPIC": (1, 1, 6)}


def test_switches_decide_on_some_system_topics(tmp_path):
    controller = new_controller(tmp_path, autoCreateTopicEnable=False, clusterTopicEnable=False, traceTopicEnable=True)
    table = controller.topic_config_manager.topic_config_table
    assert "TBW102" not in table and table["DefaultCluster"].perm == 1 and table["RMQ_SYS_TRACE_TOPIC"].perm == 6
    controller.shutdown()


def test_system_topics_of_one_broker_are_not_those_of_another(tmp_path):
    one = new_controller(tmp_path / "1", brokerName="one")
    other = new_controller(tmp_path / "2", brokerName="other")
    assert one.topic_config_manager.topic_validator.is_system_topic("one")
    assert not other.topic_config_manager.topic_validator.is_system_topic("one")
    one.shutdown()
    other.shutdown()


def test_topic_inherits_from_its_default_topic(controller):
    topics = controller.topic_config_manager
    config = topics.create_topic_in_send_message_method("New", "TBW102", "addr", 100, 1)
    assert (config.readQueueNums, config.writeQueueNums, config.perm, config.topicSysFlag) == (8, 8, 6, 1)
    assert topics.create_topic_in_send_message_method("New", "nothing", "addr", 1, 0) is config
    assert topics.create_topic_in_send_message_method("Other", "BenchmarkTest", "addr", 1, 0) is None
    assert topics.create_topic_in_send_message_method("Odd", "TBW102", "addr", -5, 0).writeQueueNums == 0


def test_switching_creation_off_takes_inheritance_from_the_default_topic(controller):
    topics = controller.topic_config_manager
    controller.broker_config.autoCreateTopicEnable = False
    assert topics.create_topic_in_send_message_method("New", "TBW102", "addr", 4, 0) is None
    assert topics.select_topic_config("TBW102").perm == 6


def test_each_change_counts_the_version_and_is_saved(controller):
    topics = controller.topic_config_manager
    topics.update_topic_config(TopicConfig("A", 2, 3))
    topics.create_topic_in_send_message_back_method("%RETRY%g", 1, 6, 0)
    topics.delete_topic_config("A")
    topics.delete_topic_config("A")
    assert topics.data_version.counter == 3
    with open(topics.config_file_path(), encoding="utf-8") as file:
        saved = json.load(file)
    assert saved["dataVersion"]["counter"] == 3
    assert "A" not in saved["topicConfigTable"] and "%RETRY%g" in saved["topicConfigTable"]


def test_order_follows_the_name_server(controller):
    topics = controller.topic_config_manager
    topics.update_topic_config(TopicConfig("A"))
    topics.update_order_topic_config(KVTable({"A": "broker-a:4", "unknown": "x"}))
    assert topics.is_order_topic("A") and not topics.is_order_topic("unknown")
    topics.update_order_topic_config(None)
    assert topics.is_order_topic("A")
    topics.update_order_topic_config(KVTable({}))
    assert not topics.is_order_topic("A")


def test_tables_are_what_they_were_after_a_restart(tmp_path):
    first = new_controller(tmp_path)
    first.topic_config_manager.update_topic_config(TopicConfig("A", 2, 3, 4))
    first.subscription_group_manager.update_subscription_group_config(SubscriptionGroupConfig("g", retryMaxTimes=3))
    first.consumer_offset_manager.commit_offset("addr", "g", "A", 1, 77)
    first.consumer_offset_manager.persist()
    second = new_controller(tmp_path)
    assert second.topic_config_manager.load() and second.subscription_group_manager.load()
    assert second.consumer_offset_manager.load()
    assert second.topic_config_manager.select_topic_config("A") == TopicConfig("A", 2, 3, 4)
    assert second.topic_config_manager.data_version == first.topic_config_manager.data_version
    assert second.subscription_group_manager.find_subscription_group_config("g").retryMaxTimes == 3
    assert second.consumer_offset_manager.query_offset("g", "A", 1) == 77
    first.shutdown()
    second.shutdown()


def test_files_look_as_the_originals_do(controller):
    controller.consumer_offset_manager.commit_offset("addr", "g", "T", 0, 5)
    controller.consumer_offset_manager.commit_offset("addr", "g", "T", 1, 6)
    assert controller.consumer_offset_manager.encode() == '{"offsetTable":{"T@g":{0:5,1:6}}}'
    assert controller.consumer_offset_manager.encode(True) == (
        '{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:6\n\t\t}\n\t}\n}')
    topics = controller.topic_config_manager.encode(True)
    assert topics.startswith('{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"timestamp":')
    assert ('\t\t"SELF_TEST_TOPIC":{\n\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":1,\n\t\t\t'
            '"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"SELF_TEST_TOPIC",\n\t\t\t"topicSysFlag":0,\n\t\t\t'
            '"writeQueueNums":1\n\t\t}') in topics
    groups = json.loads(controller.subscription_group_manager.encode())["subscriptionGroupTable"]
    assert groups["TOOLS_CONSUMER"] == {
        "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True,
        "groupName": "TOOLS_CONSUMER", "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16,
        "retryQueueNums": 1, "whichBrokerWhenConsumeSlowly": 1}
    assert len(groups) == 7


def test_groups_are_made_only_when_allowed(controller):
    groups = controller.subscription_group_manager
    controller.broker_config.autoCreateSubscriptionGroup = False
    assert groups.find_subscription_group_config("new") is None
    assert groups.find_subscription_group_config("CID_RMQ_SYS_TRANS").groupName == "CID_RMQ_SYS_TRANS"
    controller.broker_config.autoCreateSubscriptionGroup = True
    assert groups.find_subscription_group_config("new").groupName == "new"
    groups.disable_consume("new")
    assert not groups.find_subscription_group_config("new").consumeEnable
    groups.delete_subscription_group_config("new")
    assert "new" not in groups.subscription_group_table


NAMES = st.text("abc%@|", max_size=5)


@given(st.dictionaries(NAMES, st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))))
def test_any_offset_table_survives_its_file(table):
    manager, copy = ConsumerOffsetManager(None, None, None), ConsumerOffsetManager(None, None, None)
    manager.offset_table = table
    copy.decode(manager.encode(True))
    assert copy.offset_table == table


@given(st.text(max_size=40))
def test_broken_tables_raise_one_kind_of_error(text):
    manager = ConsumerOffsetManager(None, None, None)
    try:
        manager.decode(text)
    except ValueError:
        assert manager.offset_table == {}


def test_offsets_by_group_and_by_topic(controller):
    offsets = controller.consumer_offset_manager
    for group, topic in (("g1", "A"), ("g1", "B"), ("g2", "A")):
        offsets.commit_offset("addr", group, topic, 0, 1)
    assert offsets.which_topic_by_consumer("g1") == {"A", "B"} and offsets.which_group_by_topic("A") == {"g1", "g2"}
    offsets.clone_offset("g1", "g3", "A")
    offsets.commit_offset("addr", "g3", "A", 0, 9)
    assert offsets.query_offset("g1", "A", 0) == 1 and offsets.query_offset("g3", "A", 0) == 9
    offsets.remove_offset("g1")
    assert offsets.which_topic_by_consumer("g1") == set() and offsets.query_offset("g1", "A", 0) == -1
    assert offsets.query_offset("g2", "A", 5) == -1


@pytest.mark.parametrize("seed", range(6))
def test_offsets_are_saved_when_they_change_and_only_then(tmp_path, seed):
    pick = random.Random(seed)
    controller = new_controller(tmp_path, enableLmq=seed % 2 == 1)
    offsets = controller.consumer_offset_manager
    groups, topics = ("g1", "g2", "%LMQ%1"), ("A", "B")
    steps = [
        lambda: offsets.commit_offset("addr", pick.choice(groups), pick.choice(topics), 0, pick.randrange(9)),
        lambda: offsets.commit_offset("addr", pick.choice(groups), pick.choice(topics), 0, pick.randrange(9)),
        lambda: offsets.clone_offset(pick.choice(groups), "g1", pick.choice(topics)),
        lambda: offsets.remove_offset(pick.choice(groups)), lambda: offsets.remove_topic(pick.choice(topics))]
    file, backup = (Path(offsets.config_file_path() + end) for end in ("", ".bak"))
    for _ in range(40):
        for _step in range(pick.randrange(3)):
            pick.choice(steps)()
        offsets.persist_changes()
        assert file.read_text("utf-8") == offsets.encode(True)
    offsets.persist_changes()
    assert backup.read_text("utf-8") == offsets.encode(True)
    for one in (file, backup):
        one.unlink()
    for group in groups:  # what consumers at rest say
        for topic in topics:
            known = offsets.query_offset(group, topic, 0)
            if known >= 0:
                offsets.commit_offset("addr", group, topic, 0, known)
    offsets.persist_changes()
    assert not file.exists() and not backup.exists()
    controller.shutdown()


def test_offsets_that_could_not_be_saved_are_saved_later(controller, monkeypatch):
    offsets = controller.consumer_offset_manager
    offsets.commit_offset("addr", "g", "A", 0, 1)
    with monkeypatch.context() as full:
        full.setattr("rmqha.common.mix_all.string2file", _no_space)
        offsets.persist_changes()
    offsets.persist_changes()
    assert Path(offsets.config_file_path()).read_text("utf-8") == offsets.encode(True)


def _no_space(*_arguments):
    raise OSError(28, "No space left on device")
