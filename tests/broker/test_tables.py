"""Topics, groups and offsets, their files after arbitrary changes, and topics that are deleted and created again."""
import json
import random
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager, LmqConsumerOffsetManager
from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader
from rmqha.common.protocol.table_bodies import (
    ConsumerOffsetSerializeWrapper,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.fastjson import WrittenEntries, entry_text
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import BrokerHarness, new_controller, running_broker
from tests.store.support import bodies, message, open_store, put
from tests.store.test_store_marks import Slave
from tests.support.load import TopicLoad
from tests.support.wait import wait_until

# Topics, groups and offsets, and their files.


@pytest.fixture
def controller(tmp_path):
    """A broker that was never initialized, for its tables."""
    controller = new_controller(tmp_path)
    yield controller
    controller.shutdown()


def test_broker_starts_with_the_system_topics(controller):
    table = controller.topic_config_manager.topic_config_table
    assert {name: (config.readQueueNums, config.writeQueueNums, config.perm) for name, config in table.items()} == {
        "SELF_TEST_TOPIC": (1, 1, 6), "TBW102": (8, 8, 7), "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7), "broker-a": (1, 1, 7), "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6), "DefaultCluster_REPLY_TOPIC": (1, 1, 6)}


def test_config_keys_decide_on_some_system_topics(tmp_path):
    controller = new_controller(tmp_path, autoCreateTopicEnable=False, clusterTopicEnable=False, traceTopicEnable=True)
    table = controller.topic_config_manager.topic_config_table
    assert "TBW102" not in table and table["DefaultCluster"].perm == 1 and table["RMQ_SYS_TRACE_TOPIC"].perm == 6
    controller.shutdown()


def test_system_topics_are_separate_for_each_broker(tmp_path):
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


def test_switching_creation_off_removes_inheritance_from_the_default_topic(controller):
    topics = controller.topic_config_manager
    controller.broker_config.autoCreateTopicEnable = False
    assert topics.create_topic_in_send_message_method("New", "TBW102", "addr", 4, 0) is None
    assert topics.select_topic_config("TBW102").perm == 6


def test_each_change_increments_the_version_and_is_saved(controller):
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


def test_tables_are_unchanged_after_a_restart(tmp_path):
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


def test_files_look_like_the_originals(controller):
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


def test_groups_are_created_only_when_allowed(controller):
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
def test_any_offset_table_survives_saving_and_loading(table):
    manager, copy = ConsumerOffsetManager(None, None, None), ConsumerOffsetManager(None, None, None)
    manager.offset_table = table
    copy.decode(manager.encode(True))
    assert copy.offset_table == table


@given(st.text(max_size=40))
def test_damaged_tables_raise_one_kind_of_error(text):
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
def test_offsets_are_saved_only_when_they_change(tmp_path, seed):
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
    # Idle consumers commit the same offsets.
    for group in groups:
        for topic in topics:
            known = offsets.query_offset(group, topic, 0)
            if known >= 0:
                offsets.commit_offset("addr", group, topic, 0, known)
    offsets.persist_changes()
    assert not file.exists() and not backup.exists()
    controller.shutdown()


def test_offsets_that_failed_to_save_are_saved_later(controller, monkeypatch):
    offsets = controller.consumer_offset_manager
    offsets.commit_offset("addr", "g", "A", 0, 1)
    with monkeypatch.context() as full:
        full.setattr("rmqha.common.mix_all.string2file", _no_space)
        offsets.persist_changes()
    offsets.persist_changes()
    assert Path(offsets.config_file_path()).read_text("utf-8") == offsets.encode(True)


def _no_space(*_arguments):
    raise OSError(28, "No space left on device")


# The files of tables after arbitrary changes: each file has the whole table, although only changes are encoded.

KEPT_TABLES_NAMES = st.sampled_from(["A", "B", "C", "%LMQ%light", "broker-a"])
GROUPS = st.sampled_from(["g", "h", "%LMQ%group"])


def lines(text: str) -> list[str]:
    """Return the lines of a file in any order: in our files, new entries stand in the order of their last changes."""
    return sorted(line.rstrip(",") for line in text.splitlines())


class Tables(RuleBasedStateMachine):
    """The managers of a broker that was never started; each rule ends by checking all files."""

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

    @rule(topic=KEPT_TABLES_NAMES, queues=st.integers(0, 9))
    def put_topic(self, topic, queues):
        self.topics.update_topic_config(TopicConfig(topic, queues, queues))

    @rule(topic=KEPT_TABLES_NAMES)
    def make_topic(self, topic):
        self.topics.create_topic_in_send_message_method(topic, "TBW102", "addr", 4, 0)

    @rule(topic=KEPT_TABLES_NAMES)
    def delete_topic(self, topic):
        self.topics.delete_topic_config(topic)

    @rule(topics=st.sets(KEPT_TABLES_NAMES))
    def order(self, topics):
        self.topics.update_order_topic_config(KVTable(dict.fromkeys(topics, "broker-a:1")))

    @rule(topic=KEPT_TABLES_NAMES)
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

    @rule(group=GROUPS, topic=KEPT_TABLES_NAMES, queue_id=st.integers(0, 3), offset=st.integers(0, 9))
    def commit(self, group, topic, queue_id, offset):
        self.offsets.commit_offset("addr", group, topic, queue_id, offset)

    @rule(source=GROUPS, other=GROUPS, topic=KEPT_TABLES_NAMES)
    def clone(self, source, other, topic):
        self.offsets.clone_offset(source, other, topic)

    @rule(group=GROUPS)
    def remove_group_offsets(self, group):
        self.offsets.remove_offset(group)

    @rule(topic=KEPT_TABLES_NAMES)
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


def test_unchanged_entries_are_not_encoded_again(tmp_path, monkeypatch):
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
def test_written_entries_equal_an_encoded_map(table):
    texts = [entry_text(key, value, 1) for key, value in table.items()]
    assert fastjson.dumps(WrittenEntries(texts), True) == fastjson.dumps(table, True)


# A deleted topic leaves nothing behind: a topic created again under its name starts from scratch, even under load.

TOPIC = "Again"


def create(broker: BrokerHarness, queues: int = 4, topic: str = TOPIC) -> None:
    header = CreateTopicRequestHeader(topic, "TBW102", queues, queues, 6, "SINGLE_TAG", 0, False)
    answer = broker.call(request_code.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == response_code.SUCCESS, answer.remark


def delete(broker: BrokerHarness, topic: str = TOPIC) -> None:
    answer = broker.call(request_code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
    assert answer.code == response_code.SUCCESS, answer.remark


def read(broker: BrokerHarness, queue_id: int, topic: str = TOPIC) -> list[bytes]:
    """Return the bodies of a queue from its first offset on; that offset must be 0 and no offset may be missing."""
    found = []
    end = broker.next_offset(topic, queue_id)
    while len(found) < end:
        answer = broker.pull(topic, len(found), queue_id=queue_id)
        assert answer.code == response_code.SUCCESS, (answer.code, answer.remark)
        messages = message_decoder.decodes(answer.body)
        assert [message.queue_offset for message in messages] == list(range(len(found), len(found) + len(messages)))
        found += [message.body for message in messages]
    return found


@pytest.mark.parametrize("auto_create", [False, True], ids=["made by an operator", "made by the next send"])
def test_topic_recreated_under_load_has_everything_it_acknowledged(tmp_path, auto_create):
    with running_broker(tmp_path, autoCreateTopicEnable=auto_create) as broker:
        create(broker)
        with TopicLoad(broker.address, TOPIC, 4) as load:
            for queues in (4, 2, 5, 1, 8, 3, 3, 6, 4, 4):
                load.wait_for_more(300)
                delete(broker)
                load.queues = queues
                if not auto_create:
                    create(broker, queues)
                load.generation += 1
                load.wait_for_more(300)
        table = {queue_id: read(broker, queue_id) for queue_id in range(4 if auto_create else queues)}
        lost = [sent for sent in load.of_generation(load.generation)
                if table.get(sent.queue_id, [])[sent.queue_offset:sent.queue_offset + 1] != [sent.body]]
        assert not lost, f"{len(lost)} of {len(load.of_generation(load.generation))}: {lost[:3]}"
        known = {sent.body for sent in load.acknowledged}
        assert all(body in known for queue in table.values() for body in queue)


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path, autoCreateTopicEnable=False, messageDelayLevel="2s 1h") as harness:
        create(harness)
        yield harness


def commit(broker: BrokerHarness, offset: int) -> RemotingCommand:
    return broker.call(request_code.UPDATE_CONSUMER_OFFSET,
                       UpdateConsumerOffsetRequestHeader("consumer", TOPIC, 0, offset))


def committed(broker: BrokerHarness) -> int:
    return broker.controller.consumer_offset_manager.query_offset("consumer", TOPIC, 0)


def test_held_pulls_are_notified_at_once_that_the_topic_is_gone(broker):
    answers = []
    pulls = [threading.Thread(target=lambda queue_id=queue_id: answers.append(
        broker.pull(TOPIC, 0, queue_id=queue_id, suspend_ms=60_000))) for queue_id in range(3)]
    for pull in pulls:
        pull.start()
    held = broker.controller.pull_request_hold_service
    wait_until(lambda: all(held.is_waiting(TOPIC, queue_id) for queue_id in range(3)), 60_000, "held pulls")
    delete(broker)
    for pull in pulls:
        pull.join(240)
    assert [answer.code for answer in answers] == [response_code.TOPIC_NOT_EXIST] * 3


def test_pull_that_is_held_too_late_is_notified_too(broker, monkeypatch):
    held = broker.controller.pull_request_hold_service
    suspend = held.suspend_pull_request

    def delete_before(topic, queue_id, pull_request):
        delete(broker)
        suspend(topic, queue_id, pull_request)

    monkeypatch.setattr(held, "suspend_pull_request", delete_before)
    with ThreadPoolExecutor() as pool:
        assert pool.submit(broker.pull, TOPIC, 0, suspend_ms=60_000).result(600).code == response_code.TOPIC_NOT_EXIST


def test_consumer_offsets_are_deleted_and_late_ones_refused(broker):
    for number in range(5):
        broker.send(TOPIC, b"%d" % number)
    commit(broker, 5)
    assert committed(broker) == 5
    delete(broker)
    assert committed(broker) == -1
    commit(broker, 5)
    assert committed(broker) == -1
    create(broker)
    broker.send(TOPIC, b"new")
    assert commit(broker, 5).code == response_code.SUCCESS
    assert committed(broker) == -1
    commit(broker, 1)
    assert committed(broker) == 1
    assert read(broker, 0) == [b"new"]


def test_topic_that_can_not_be_deleted_is_kept(broker, monkeypatch):
    broker.send(TOPIC, b"old")

    def fail(_marks):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(broker.store.deleted_topics, "_set", fail)
    answer = broker.call(request_code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(TOPIC))
    assert answer.code == response_code.SYSTEM_ERROR and "No space" in answer.remark
    monkeypatch.undo()
    assert broker.send(TOPIC, b"next").code == response_code.SUCCESS
    assert read(broker, 0) == [b"old", b"next"]


def test_send_checked_before_the_deletion_is_refused(broker, monkeypatch):
    put = broker.store.async_put_message

    def delete_before(message):
        monkeypatch.setattr(broker.store, "async_put_message", put)
        broker.controller.topic_deletion.delete(TOPIC)
        return put(message)

    monkeypatch.setattr(broker.store, "async_put_message", delete_before)
    # No client writes this time, so the send avoids the express lane.
    answer = broker.send(TOPIC, b"late", 0, g=1)
    assert answer.code == response_code.TOPIC_NOT_EXIST
    create(broker)
    assert broker.next_offset(TOPIC) == 0


def test_delayed_message_is_deleted_with_its_topic(broker):
    assert broker.send(TOPIC, b"old", 0, {"DELAY": "1"}).code == response_code.SUCCESS
    delete(broker)
    create(broker)
    assert broker.send(TOPIC, b"new", 0, {"DELAY": "1"}).code == response_code.SUCCESS
    wait_until(lambda: broker.next_offset(TOPIC), 60_000, "the new one")
    assert read(broker, 0) == [b"new"]


def test_half_message_is_deleted_with_its_topic(broker):
    def prepare(body: bytes) -> EndTransactionRequestHeader:
        answer = broker.send(TOPIC, body, 0, {"TRAN_MSG": "true", "PGROUP": "producer", "UNIQ_KEY": "u"},
                             f=sys_flags.TRANSACTION_PREPARED_TYPE)
        assert answer.code == response_code.SUCCESS
        offset = int(answer.ext_fields["msgId"][-16:], 16)
        return EndTransactionRequestHeader("producer", int(answer.ext_fields["queueOffset"]), offset,
                                           sys_flags.TRANSACTION_COMMIT_TYPE, False, "u", "u")

    old = prepare(b"old")
    delete(broker)
    create(broker)
    new = prepare(b"new")
    for header in (old, new):
        assert broker.call(request_code.END_TRANSACTION, header).code == response_code.SUCCESS
    assert read(broker, 0) == [b"new"]


def test_other_topics_and_entries_of_unknown_topics_stay(broker):
    create(broker, 1, "Other")
    broker.send("Other", b"other")
    broker.send(TOPIC, b"half", 0, {"TRAN_MSG": "true", "PGROUP": "producer"},
                f=sys_flags.TRANSACTION_PREPARED_TYPE)
    delete(broker)
    assert read(broker, 0, "Other") == [b"other"]
    assert broker.next_offset("RMQ_SYS_TRANS_HALF_TOPIC") == 1


def test_cleaning_unused_topics_spares_one_created_meanwhile(broker, monkeypatch):
    for topic in ("Known", "Unknown"):
        create(broker, 1, topic)
        broker.send(topic, b"1")
        broker.next_offset(topic)
    table = broker.controller.topic_config_manager.topic_config_table
    config, _ = table.pop("Known"), table.pop("Unknown")
    real = broker.store.queue_removal.unused_topics

    def made_meanwhile(topics):
        found = real(topics)
        table["Known"] = config
        return found

    monkeypatch.setattr(broker.store.queue_removal, "unused_topics", made_meanwhile)
    assert broker.call(request_code.CLEAN_UNUSED_TOPIC).code == response_code.SUCCESS
    assert broker.next_offset("Known") == 1 and "Unknown" not in broker.store.consume_queue_table


def test_slave_that_cleans_unused_topics_asks_its_master_first(tmp_path, monkeypatch):
    with open_store(tmp_path / "master", mappedFileSizeCommitLog=1 << 20) as master, \
            running_broker(tmp_path / "slave", brokerRole=BrokerRole.SLAVE, brokerId=1) as broker:
        slave = Slave(broker.store, master)
        put(master, message("Gone"), message("New"))
        slave.follow()
        assert broker.call(request_code.CLEAN_UNUSED_TOPIC).code != response_code.SUCCESS  # there is no master
        assert {"Gone", "New"} <= set(broker.store.consume_queue_table)
        table = broker.controller.topic_config_manager.topic_config_table
        monkeypatch.setattr(broker.controller.slave_synchronize, "take_topics",
                            lambda: table.update(New=TopicConfig("New", 1, 1)))
        assert broker.call(request_code.CLEAN_UNUSED_TOPIC).code == response_code.SUCCESS
        assert "Gone" not in broker.store.consume_queue_table and bodies(broker.store, "New")


def test_slaves_are_notified_of_deleted_topics_and_4_9_slaves_get_nothing_new(broker):
    def topics() -> dict:
        return json.loads(broker.call(request_code.GET_ALL_TOPIC_CONFIG).body)

    assert set(topics()) == {"dataVersion", "topicConfigTable"}
    broker.send(TOPIC, b"old")
    delete(broker)
    assert topics()["deletedTopics"] == {TOPIC: broker.store.get_max_phy_offset()}
    assert set(json.loads(broker.controller.topic_config_manager.encode())) == {"dataVersion", "topicConfigTable"}
