"""A slave copies its master's tables, even while its own broker is still starting."""
import logging
import threading
from types import SimpleNamespace

import pytest

from rmqha.broker.broker_outer_api import BrokerOuterAPI, Told
from rmqha.broker.master_main_port import MasterMainPort
from rmqha.broker.processor.admin_handlers import table_answer
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.common import mix_all
from rmqha.common.data_version import ChangeLog, DataVersion
from rmqha.common.protocol import request_code, table_version
from rmqha.common.protocol.table_bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.exception import RemotingConnectException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.ports import free_broker_port
from tests.support.wait import wait_until

MASTER = "10.0.0.1:10911"


class Manager:
    """A table with a version that counts how often it was saved."""

    def __init__(self, **attributes) -> None:
        self.__dict__.update(attributes)
        self.persisted = 0
        self.noted = False
        self.changes = ChangeLog()

    def persist(self) -> None:
        self.persisted += 1

    def note_change(self, *_names: str) -> None:
        self.noted = True

    def persist_changes(self) -> None:
        self.persisted += self.noted
        self.noted = False


class MasterApi:
    """A master's answers; an answer that is an exception is raised."""

    def __init__(self) -> None:
        self.topics = TopicConfigSerializeWrapper({"T": TopicConfig("T", 4, 4)}, DataVersion(1, 5))
        self.offsets = ConsumerOffsetSerializeWrapper({"T@g": {0: 10, 1: 20}})
        self.delay_offset = '{"offsetTable":{1:5,3:7}}'
        self.groups = SubscriptionGroupWrapper({"g": SubscriptionGroupConfig("g")}, DataVersion(1, 7))
        self.end = 1000
        # Without versions it acts as an original master.
        self.versions: dict[str, str] = {}
        self.only_changes = False
        self.known: dict[str, str] = {}  # the versions that the slave sent
        self.asked: list[str] = []

    def _table(self, name: str, addr: str, known: str):
        answer, version = self._answer(name, addr), self.versions.get(name, "")
        self.known[name] = known
        return Told(None if version and known == version else answer, version, self.only_changes)

    def _answer(self, name: str, addr: str):
        self.asked.append(f"{name} {addr}")
        answer = getattr(self, name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get_all_topic_config(self, addr, known):
        return self._table("topics", addr, known)

    def get_all_consumer_offset(self, addr, known):
        return self._table("offsets", addr, known)

    def get_all_delay_offset(self, addr):
        return self._answer("delay_offset", addr)

    def get_commit_log_max_offset(self, addr):
        return self._answer("end", addr)

    def get_all_subscription_group_config(self, addr, known):
        return self._table("groups", addr, known)


@pytest.fixture
def broker(tmp_path):
    return SimpleNamespace(
        addresses=SimpleNamespace(broker_addr="10.0.0.2:10911"), broker_outer_api=MasterApi(),
        topic_config_manager=Manager(topic_config_table={"old": TopicConfig("old")}, data_version=DataVersion(0, 0)),
        consumer_offset_manager=Manager(offset_table={}),
        subscription_group_manager=Manager(subscription_group_table={}, data_version=DataVersion(0, 0)),
        topic_deletion=SimpleNamespace(),
        message_store_config=SimpleNamespace(storePathRootDir=str(tmp_path)))


@pytest.fixture
def slave(broker):
    slave = SlaveSynchronize(
        broker.broker_outer_api, broker.addresses, broker.message_store_config, broker.topic_config_manager,
        broker.subscription_group_manager, broker.consumer_offset_manager, broker.topic_deletion,
        lambda: 1000)
    slave.master_addr = MASTER
    return slave


def delay_offset_file(broker) -> str:
    with open(f"{broker.message_store_config.storePathRootDir}/config/delayOffset.json", encoding="utf-8") as file:
        return file.read()


def test_slave_copies_all_four_tables(slave, broker):
    slave.sync_all()
    assert broker.topic_config_manager.topic_config_table == {"T": TopicConfig("T", 4, 4)}
    assert broker.topic_config_manager.data_version == DataVersion(1, 5)
    assert broker.consumer_offset_manager.offset_table == {"T@g": {0: 10, 1: 20}}
    assert list(broker.subscription_group_manager.subscription_group_table) == ["g"]
    assert delay_offset_file(broker) == '{"offsetTable":{1:5,3:7}}'
    assert broker.broker_outer_api.asked == [f"{name} {MASTER}" for name in ("topics", "offsets", "delay_offset",
                                                                            "end", "groups")]


@pytest.mark.parametrize("address", [None, "10.0.0.2:10911"])
def test_nothing_is_requested_without_a_master_or_from_itself(slave, broker, address):
    slave.master_addr = address
    slave.sync_all()
    assert broker.broker_outer_api.asked == []


def test_unchanged_table_is_not_saved_again(slave, broker):
    slave.sync_all()
    slave.sync_all()
    assert broker.topic_config_manager.persisted == 1
    assert broker.consumer_offset_manager.persisted == 1
    assert broker.subscription_group_manager.persisted == 1


def test_table_is_requested_by_the_version_last_copied(slave, broker):
    master = broker.broker_outer_api
    master.versions = {"topics": "t1", "offsets": "o1", "groups": "g1"}
    slave.sync_all()
    assert master.known == {"topics": "", "offsets": "", "groups": ""}
    broker.consumer_offset_manager.offset_table.clear()
    slave.sync_all()
    assert master.known == master.versions
    assert broker.consumer_offset_manager.offset_table == {}  # nothing was sent
    master.versions["offsets"] = "o2"
    slave.sync_all()
    assert broker.consumer_offset_manager.offset_table == {"T@g": {0: 10, 1: 20}}
    slave.master_addr = "10.0.0.3:10911"  # another master has other versions
    slave.sync_all()
    assert master.known == {"topics": "", "offsets": "", "groups": ""}
    slave.begin_anew()  # it was a master in between
    slave.master_addr = "10.0.0.3:10911"
    slave.sync_all()
    assert master.known == {"topics": "", "offsets": "", "groups": ""}


def test_lower_offsets_are_accepted_whatever_the_version(slave, broker):
    master = broker.broker_outer_api
    master.versions, slave.take_lower_offsets = {"offsets": "o1"}, True
    slave.sync_all()
    broker.consumer_offset_manager.offset_table["T@g"][0] = 11  # by a consumer
    slave.sync_all()
    assert broker.consumer_offset_manager.offset_table["T@g"][0] == 10


def test_table_that_failed_to_apply_is_requested_again(slave, broker, monkeypatch):
    master = broker.broker_outer_api
    master.versions = {"groups": "g1"}
    with monkeypatch.context() as full:
        full.setattr(broker.subscription_group_manager, "persist", lambda: 1 / 0, raising=False)
        slave.sync_all()
    slave.sync_all()
    assert master.known["groups"] == ""


def entries(table) -> set[str]:
    """Return the names in any of the three tables."""
    for name in ("topicConfigTable", "subscriptionGroupTable", "offsetTable"):
        if hasattr(table, name):
            return set(getattr(table, name))
    raise AssertionError(table)


def asked_tables(broker):
    """Return, for each table, functions that request it, add an entry and remove one."""
    api, topics = broker.controller.broker_outer_api, broker.controller.topic_config_manager
    groups, offsets = broker.controller.subscription_group_manager, broker.controller.consumer_offset_manager
    return [
        (api.get_all_topic_config, lambda name: topics.update_topic_config(TopicConfig(name)),
         topics.delete_topic_config),
        (api.get_all_subscription_group_config,
         lambda name: groups.update_subscription_group_config(SubscriptionGroupConfig(name)),
         groups.delete_subscription_group_config),
        (api.get_all_consumer_offset, lambda name: offsets.commit_offset("addr", "g", name, 0, 5),
         offsets.remove_topic)]


@pytest.fixture
def one_port(monkeypatch):
    monkeypatch.setattr(mix_all, "broker_vip_channel", lambda _is_change, addr: addr)


@pytest.mark.usefixtures("one_port")
def test_master_sends_only_changes(tmp_path):
    with running_broker(tmp_path) as broker:
        for ask, make, take_away in asked_tables(broker):
            make("first")
            table, state, only_changes = ask(broker.address, "")
            assert {name.partition("@")[0] for name in entries(table)} >= {"first"} and state and not only_changes
            assert ask(broker.address, state) == (None, state, False)
            make("second")
            make("third")
            table, later, only_changes = ask(broker.address, state)
            assert {name.partition("@")[0] for name in entries(table)} == {"second", "third"} and only_changes
            assert ask(broker.address, later) == (None, later, False)
            take_away("second")
            table, _state, only_changes = ask(broker.address, later)
            names = {name.partition("@")[0] for name in entries(table)}
            assert names >= {"first", "third"} and "second" not in names and not only_changes


@pytest.mark.usefixtures("one_port")
def test_restarted_master_sends_everything(tmp_path):
    states = []
    for _start in range(2):
        with running_broker(tmp_path) as broker:
            for number, (ask, make, _take_away) in enumerate(asked_tables(broker)):
                make("first")
                known = states[number] if len(states) > number else ""
                table, state, only_changes = ask(broker.address, known)
                assert table is not None and not only_changes
                states.append(state)


def test_change_during_the_encoding_of_a_table_is_in_the_next_answer():
    changes, encoded = ChangeLog(), []
    request = RemotingCommand.create_request_command(request_code.GET_ALL_TOPIC_CONFIG)
    request.add_ext_field(table_version.KNOWN, "")
    request.add_ext_field(table_version.CHANGES, "true")

    def encode(names) -> str:
        encoded.append(names)
        if len(encoded) == 1:
            changes.note(["meanwhile"])
        return "{}"

    told = table_answer(request, changes, encode).ext_fields[table_version.TOLD]
    request.add_ext_field(table_version.KNOWN, told)
    assert table_answer(request, changes, encode).body
    assert encoded == [None, ["meanwhile"]]


def test_slave_that_does_not_support_changes_gets_everything():
    changes, encoded = ChangeLog(), []
    request = RemotingCommand.create_request_command(request_code.GET_ALL_TOPIC_CONFIG)
    request.add_ext_field(table_version.KNOWN, f"{changes.mark()} ")
    changes.note(["one"])

    def encode(names) -> str:
        encoded.append(names)
        return "{}"

    answer = table_answer(request, changes, encode)
    assert encoded == [None] and table_version.CHANGES not in answer.ext_fields


def test_changes_alone_remove_nothing(slave, broker):
    master = broker.broker_outer_api
    master.versions = {"topics": "t1", "groups": "g1"}
    slave.sync_all()
    master.versions, master.only_changes = {"topics": "t2", "groups": "g2"}, True
    master.topics = TopicConfigSerializeWrapper({"U": TopicConfig("U", 1, 1)}, DataVersion(2, 6))
    master.groups = SubscriptionGroupWrapper({"h": SubscriptionGroupConfig("h")}, DataVersion(2, 8))
    slave.sync_all()
    assert (master.known["topics"], master.known["groups"]) == ("t1", "g1")
    assert set(broker.topic_config_manager.topic_config_table) == {"T", "U"}
    assert set(broker.subscription_group_manager.subscription_group_table) == {"g", "h"}
    assert broker.topic_config_manager.data_version == DataVersion(2, 6)


def test_change_that_arrives_after_its_version_is_applied(slave, broker):
    master = broker.broker_outer_api
    master.versions = {"topics": "t1", "groups": "g1"}
    slave.sync_all()
    master.only_changes = True
    # The master has not recorded the topic yet.
    master.topics = TopicConfigSerializeWrapper({}, DataVersion(2, 6))
    master.groups = SubscriptionGroupWrapper({}, DataVersion(2, 8))
    master.versions = {"topics": "t1 ", "groups": "g1 "}
    slave.sync_all()
    assert broker.topic_config_manager.data_version == DataVersion(2, 6)
    master.topics.topicConfigTable = {"U": TopicConfig("U", 1, 1)}
    master.groups.subscriptionGroupTable = {"h": SubscriptionGroupConfig("h")}
    master.versions = {"topics": "t2", "groups": "g2"}
    slave.sync_all()
    assert set(broker.topic_config_manager.topic_config_table) == {"T", "U"}
    assert set(broker.subscription_group_manager.subscription_group_table) == {"g", "h"}


def test_slave_whose_own_table_changed_requests_everything(slave, broker):
    master = broker.broker_outer_api
    master.versions = {"topics": "t1", "groups": "g1", "offsets": "o1"}
    slave.sync_all()
    broker.subscription_group_manager.changes.note(["made here"])
    slave.sync_all()
    assert (master.known["topics"], master.known["groups"], master.known["offsets"]) == ("t1", "", "o1")
    del broker.consumer_offset_manager.offset_table["T@g"]  # its topic was deleted
    broker.consumer_offset_manager.changes.note(["T@g"])
    slave.sync_all()
    assert (master.known["groups"], master.known["offsets"]) == ("g1", "")
    assert broker.consumer_offset_manager.offset_table == {"T@g": {0: 10, 1: 20}}


@pytest.mark.parametrize("name", ["topics", "offsets", "delay_offset", "end", "groups"])
@pytest.mark.parametrize("failure", [RemotingConnectException(MASTER), RuntimeError("a fault")])
def test_failure_of_one_table_does_not_stop_the_others(slave, broker, name, failure, caplog):
    setattr(broker.broker_outer_api, name, failure)
    with caplog.at_level(logging.ERROR, "RocketmqBroker"):
        slave.sync_all()
    assert len(broker.broker_outer_api.asked) == (4 if name == "delay_offset" else 5)
    assert len(caplog.records) == 1 and MASTER in caplog.text
    taken = [broker.topic_config_manager.persisted, broker.consumer_offset_manager.persisted,
             broker.subscription_group_manager.persisted]
    assert sum(taken) == (3 if name in ("delay_offset", "end") else 2)


@pytest.mark.parametrize("bad", [TopicConfig("another", 4, 4), TopicConfig(None, 4, 4), TopicConfig("bad", -1, 4),
                                 None])
def test_invalid_topic_does_not_stop_the_others(slave, broker, bad, caplog):
    table = {"A": TopicConfig("A"), "bad": bad, "Z": TopicConfig("Z")}
    broker.broker_outer_api.topics = TopicConfigSerializeWrapper(table, DataVersion(1, 5))
    broker.topic_config_manager.topic_config_table["bad"] = mine = TopicConfig("bad", 7, 7)
    with caplog.at_level(logging.ERROR, "RocketmqBroker"):
        slave.sync_all()
    assert set(broker.topic_config_manager.topic_config_table) == {"A", "bad", "Z"}
    assert broker.topic_config_manager.topic_config_table["bad"] is mine
    assert "'bad'" in caplog.text
    assert broker.subscription_group_manager.persisted == 1


def test_invalid_offsets_of_one_group_do_not_stop_the_others(slave, broker):
    offsets = {"a": {0: 1}, "b": None, "c": {0: "x"}, "d": {0: 2}}
    broker.broker_outer_api.offsets = ConsumerOffsetSerializeWrapper(offsets)
    broker.consumer_offset_manager.offset_table["c"] = {0: 5}
    slave.sync_all()
    assert broker.consumer_offset_manager.offset_table["d"] == {0: 2}
    assert broker.consumer_offset_manager.offset_table["c"] == {0: 5}


def test_offsets_before_an_invalid_one_are_saved(slave, broker):
    broker.broker_outer_api.offsets = ConsumerOffsetSerializeWrapper({"c": {0: 7, 1: "x"}})
    broker.consumer_offset_manager.offset_table["c"] = {0: 5, 1: 5}
    slave.sync_all()
    assert broker.consumer_offset_manager.offset_table["c"] == {0: 7, 1: 5}
    assert broker.consumer_offset_manager.persisted == 1


def test_offsets_never_go_back(slave, broker):
    """A master that was down returns with its old offsets; the consumers have continued on the slave."""
    broker.consumer_offset_manager.offset_table["T@g"] = {0: 15, 2: 3}
    slave.sync_all()
    assert broker.consumer_offset_manager.offset_table == {"T@g": {0: 15, 1: 20, 2: 3}}


def test_offsets_go_back_on_request(slave, broker):
    broker.consumer_offset_manager.offset_table["T@g"] = {0: 15}
    slave.take_lower_offsets = True
    slave.sync_all()
    assert broker.consumer_offset_manager.offset_table == {"T@g": {0: 10, 1: 20}}


@pytest.mark.parametrize("text", ["{", '{"offsetTable":{1:"x"}}', '{"offsetTable":[1]}'])
def test_invalid_delay_offsets_are_not_written(slave, broker, text):
    slave.sync_all()
    broker.broker_outer_api.delay_offset = text
    slave.sync_all()
    assert delay_offset_file(broker) == '{"offsetTable":{1:5,3:7}}'
    assert broker.subscription_group_manager.persisted == 1


def test_delay_offsets_wait_until_the_log_has_their_messages(slave, broker):
    """A slave that is promoted while it is behind delivers messages again, and skips none."""
    api, ends = broker.broker_outer_api, [500]
    slave._log_end = lambda: ends[0]
    with pytest.raises(FileNotFoundError):
        slave.sync_all()
        delay_offset_file(broker)
    api.delay_offset, api.end = '{"offsetTable":{1:6}}', 2000
    ends[0] = 1500
    slave.sync_all()
    assert delay_offset_file(broker) == '{"offsetTable":{1:5,3:7}}'
    ends[0] = 2000
    slave.sync_all()
    assert delay_offset_file(broker) == '{"offsetTable":{1:6}}'


def test_waiting_tables_of_delay_offsets_are_bounded_however_long_a_slave_is_behind(slave, broker):
    api, ends = broker.broker_outer_api, [0]
    slave._log_end = lambda: ends[0]
    for count in range(100):
        api.delay_offset, api.end = f'{{"offsetTable":{{1:{count}}}}}', 1000 + count
        slave.sync_all()
    assert len(slave._delay_offsets) == 30
    ends[0] = 1005
    slave.sync_all()
    assert delay_offset_file(broker) == '{"offsetTable":{1:5}}'
    ends[0] = 1099
    slave.sync_all()
    assert delay_offset_file(broker) == '{"offsetTable":{1:99}}'


def test_delay_offsets_of_another_master_are_discarded(slave, broker):
    api = broker.broker_outer_api
    api.end = 2000
    slave.sync_all()
    slave.master_addr, api.end, api.delay_offset = "10.0.0.3:10911", 900, '{"offsetTable":{1:1}}'
    slave.sync_all()
    assert delay_offset_file(broker) == '{"offsetTable":{1:1}}' and not slave._delay_offsets


def test_concurrent_requests_find_every_topic(slave, broker):
    """The table is changed in place and never empty."""
    seen = []

    class Table(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            seen.append(set(self))

    broker.topic_config_manager.topic_config_table = table = Table(old=TopicConfig("old"))
    slave.sync_all()
    assert seen == [{"old", "T"}] and set(table) == {"T"}


def test_marks_of_deleted_topics_are_copied_before_the_consumer_offsets(slave, broker):
    taken = []
    broker.topic_deletion.take_over = lambda marks: taken.append((marks, list(broker_api.asked)))
    broker_api = broker.broker_outer_api
    slave.sync_all()
    assert not taken
    broker_api.asked.clear()
    broker_api.topics.deletedTopics = {"T": 4711}
    slave.sync_all()
    assert taken == [({"T": 4711}, [f"topics {MASTER}"])]


# A slave whose own broker is still starting.


def test_slave_connecting_before_its_broker_can_ask_waits(tmp_path, monkeypatch):
    """The HA client starts with the store; without the wait, it treated the master as RocketMQ 4.9's, which compares
    no logs."""
    asks = threading.Event()
    may_ask, start = MasterMainPort.wait_until_may_ask, BrokerOuterAPI.start

    def noted(main_port, timeout_s):
        asks.set()
        return may_ask(main_port, 300)

    def start_late(api):
        assert asks.wait(300)
        start(api)

    port = free_broker_port()
    with running_broker(tmp_path / "master", brokerRole=BrokerRole.ASYNC_MASTER, listenPort=port,
                        haListenPort=port + 1) as master:
        ha_service = master.store.ha_service
        monkeypatch.setattr(MasterMainPort, "wait_until_may_ask", noted)
        monkeypatch.setattr(BrokerOuterAPI, "start", start_late)
        with running_broker(tmp_path / "slave", brokerRole=BrokerRole.SLAVE, brokerId=1,
                            haMasterAddress=f"127.0.0.1:{ha_service.ha_listen_port}"):
            wait_until(lambda: any(one.is_serving for one in ha_service.connection_list))
            assert [one.slave_identity for one in ha_service.connection_list] == ["DefaultCluster/broker-a/1"]


def test_broker_that_ends_before_it_started_releases_waiters(tmp_path):
    with running_broker(tmp_path) as broker:
        controller = broker.controller
    assert controller.master_main_port.wait_until_may_ask(300) is False
