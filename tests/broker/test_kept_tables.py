"""What the files of tables hold, after any changes: the whole table, although only what has changed is encoded."""
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqha.broker.consumer_offset_manager import LmqConsumerOffsetManager
from rmqha.common.protocol.table_bodies import (
    ConsumerOffsetSerializeWrapper,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.fastjson import WrittenEntries, entry_text
from tests.broker.support import new_controller

NAMES = st.sampled_from(["A", "B", "C", "%LMQ%light", "broker-a"])
GROUPS = st.sampled_from(["g", "h", "%LMQ%group"])


def lines(text: str) -> list[str]:
    """The lines of a file in any order: new entries of ours stand in the order of their last changes."""
    return sorted(line.rstrip(",") for line in text.splitlines())


class Tables(RuleBasedStateMachine):
    """The managers of a broker that was never started; each rule ends with a look at all files."""

    @initialize(light=st.booleans())
    def begin(self, light):
        self._folder = tempfile.TemporaryDirectory()
        self.controller = new_controller(Path(self._folder.name), enableLmq=light)
        self.topics = self.controller.topic_config_manager
        self.groups = self.controller.subscription_group_manager
        self.offsets = self.controller.consumer_offset_manager

    def teardown(self):
        if hasattr(self, "controller"):
            self.controller.shutdown()
            self._folder.cleanup()

    @rule(topic=NAMES, queues=st.integers(0, 9))
    def put_topic(self, topic, queues):
        self.topics.update_topic_config(TopicConfig(topic, queues, queues))

    @rule(topic=NAMES)
    def make_topic(self, topic):
        self.topics.create_topic_in_send_message_method(topic, "TBW102", "addr", 4, 0)

    @rule(topic=NAMES)
    def delete_topic(self, topic):
        self.topics.delete_topic_config(topic)

    @rule(topics=st.sets(NAMES))
    def order(self, topics):
        self.topics.update_order_topic_config(KVTable(dict.fromkeys(topics, "broker-a:1")))

    @rule(topic=NAMES)
    def inherit_with_creation_off(self, topic):
        self.controller.broker_config.autoCreateTopicEnable = False
        self.topics.create_topic_in_send_message_method(topic + "2", "TBW102", "addr", 4, 0)

    @rule(group=GROUPS, retries=st.integers(0, 9))
    def put_group(self, group, retries):
        self.groups.update_subscription_group_config(SubscriptionGroupConfig(group, retryMaxTimes=retries))

    @rule(group=GROUPS)
    def make_group(self, group):
        self.groups.find_subscription_group_config(group)

    @rule(group=GROUPS)
    def stop_group(self, group):
        self.groups.disable_consume(group)

    @rule(group=GROUPS)
    def delete_group(self, group):
        self.groups.delete_subscription_group_config(group)

    @rule(group=GROUPS, topic=NAMES, queue_id=st.integers(0, 3), offset=st.integers(0, 9))
    def commit(self, group, topic, queue_id, offset):
        self.offsets.commit_offset("addr", group, topic, queue_id, offset)

    @rule(source=GROUPS, other=GROUPS, topic=NAMES)
    def clone(self, source, other, topic):
        self.offsets.clone_offset(source, other, topic)

    @rule(group=GROUPS)
    def remove_group_offsets(self, group):
        self.offsets.remove_offset(group)

    @rule(topic=NAMES)
    def remove_topic_offsets(self, topic):
        self.offsets.remove_topic(topic)

    @rule()
    def read_again(self):
        for manager in (self.topics, self.groups, self.offsets):
            manager.decode(manager.encode(True))

    @invariant()
    def files_hold_the_tables(self):
        if not hasattr(self, "topics"):
            return
        topics, groups, offsets = self.topics, self.groups, self.offsets
        expected = [
            (topics, TopicConfigSerializeWrapper(topics.topic_config_table, topics.data_version)),
            (groups, SubscriptionGroupWrapper(groups.subscription_group_table, groups.data_version))]
        if not isinstance(offsets, LmqConsumerOffsetManager):
            expected.append((offsets, ConsumerOffsetSerializeWrapper(offsets.offset_table)))
        for manager, table in expected:
            text = manager.encode(True)
            assert lines(text) == lines(fastjson.dumps(table, True))
            assert remoting_serializable.from_json(type(table), text) == table
        if isinstance(offsets, LmqConsumerOffsetManager):
            again = LmqConsumerOffsetManager(self.controller.message_store_config, topics, groups, lambda _topic: True)
            again.decode(offsets.encode(True))
            assert (again.offset_table, again.lmq_offset_table) == (offsets.offset_table, offsets.lmq_offset_table)


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_what_has_not_changed_is_not_encoded_again(tmp_path, monkeypatch):
    controller = new_controller(tmp_path)
    offsets, encoded = controller.consumer_offset_manager, []
    try:
        for number in range(50):
            offsets.commit_offset("addr", "g", f"T{number}", 0, 1)
        before = offsets.encode(True)
        real = offsets._kept._value
        monkeypatch.setattr(offsets._kept, "_value", lambda key: encoded.append(key) or real(key))
        assert offsets.encode(True) == before and encoded == []
        offsets.commit_offset("addr", "g", "T7", 0, 2)
        assert offsets.encode(True) == before.replace('"T7@g":{0:1', '"T7@g":{0:2') != before
        assert encoded == ["T7@g"]
    finally:
        controller.shutdown()


@pytest.mark.parametrize("table", [
    {}, {"a": {}}, {"T@g": {0: 1, 1: 2}, 'q"\n': {5: 6}}, {"a": {"b": {"c": 1}, "d": [1]}}])
def test_written_entries_are_what_a_map_is(table):
    texts = [entry_text(key, value, 1) for key, value in table.items()]
    assert fastjson.dumps(WrittenEntries(texts), True) == fastjson.dumps(table, True)
