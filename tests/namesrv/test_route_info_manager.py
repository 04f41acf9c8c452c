"""The route table on its own."""
import logging
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.data_version import DataVersion
from rmqha.common.protocol import cluster_bodies
from rmqha.common.protocol.cluster_bodies import DepartedBroker
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.topics import TopicConfig
from rmqha.namesrv import route_info_manager
from rmqha.namesrv.route_info_manager import (
    BROKER_CHANNEL_EXPIRED_TIME,
    MAX_DEPARTED,
    BrokerRegistration,
    DepartedBrokers,
    RegistrationError,
    RouteInfoManager,
)
from tests.support.tiers import drawn


class FakeChannel:
    """A channel that records whether it was closed."""

    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


class FakeClock:
    """A clock in milliseconds that the test advances."""

    def __init__(self):
        self.now = 5

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def routes(clock):
    return RouteInfoManager(clock)


def topics(*names, version=1, **fields):
    return TopicConfigSerializeWrapper({name: TopicConfig(topicName=name, **fields) for name in names},
                                       DataVersion(1000, version))


def register(routes, addr="10.0.0.1:10911", name="broker-a", broker_id=0, cluster="c1", wrapper=None, channel=None,
             ha="10.0.0.1:10912", filter_servers=(), epoch=0):
    wrapper = topics("T") if wrapper is None else wrapper
    return routes.register_broker(BrokerRegistration(
        cluster, addr, name, broker_id, ha, wrapper, list(filter_servers), channel or FakeChannel(),
        master_epoch=epoch))


def addrs(routes):
    return {name: data.brokerAddrs for name, data in routes.get_all_cluster_info().brokerAddrTable.items()}


def test_registered_master_has_a_route(routes):
    register(routes, wrapper=topics("T", readQueueNums=3, writeQueueNums=5, perm=6, topicSysFlag=1))
    route = routes.pickup_topic_route_data("T")
    queue, broker = route.queueDatas[0], route.brokerDatas[0]
    assert (queue.brokerName, queue.readQueueNums, queue.writeQueueNums, queue.perm) == ("broker-a", 3, 5, 6)
    assert queue.topicSysFlag == 1
    assert (broker.cluster, broker.brokerName, broker.brokerAddrs) == ("c1", "broker-a", {0: "10.0.0.1:10911"})
    assert route.filterServerTable == {} and route.orderTopicConf is None


def test_unknown_topic_has_no_route(routes):
    assert routes.pickup_topic_route_data("T") is None


def test_route_is_a_copy(routes):
    register(routes)
    route = routes.pickup_topic_route_data("T")
    route.queueDatas[0].perm = 0
    route.brokerDatas[0].brokerAddrs.clear()
    routes.get_all_cluster_info().clusterAddrTable["c1"].clear()
    again = routes.pickup_topic_route_data("T")
    assert again.queueDatas[0].perm == 6 and again.brokerDatas[0].brokerAddrs
    assert routes.get_all_cluster_info().clusterAddrTable == {"c1": {"broker-a"}}


def test_slave_receives_its_masters_address(routes):
    assert register(routes).masterAddr is None
    result = register(routes, addr="10.0.0.2:10911", broker_id=1, ha="10.0.0.2:10912")
    assert (result.masterAddr, result.haServerAddr) == ("10.0.0.1:10911", "10.0.0.1:10912")
    assert addrs(routes) == {"broker-a": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}}


def test_slave_without_a_master_receives_no_address(routes):
    assert register(routes, broker_id=1).masterAddr is None


def test_topics_of_a_slave_are_ignored(routes):
    register(routes, broker_id=1)
    assert routes.get_all_topic_list().topicList == set()


def test_topics_are_replaced_only_when_their_version_changes(routes):
    register(routes, wrapper=topics("T", readQueueNums=1))
    register(routes, wrapper=topics("T", readQueueNums=2))
    assert routes.pickup_topic_route_data("T").queueDatas[0].readQueueNums == 1
    register(routes, wrapper=topics("T", readQueueNums=3, version=2))
    assert routes.pickup_topic_route_data("T").queueDatas[0].readQueueNums == 3


def test_topics_missing_from_a_later_registration_stay(routes):
    register(routes, wrapper=topics("T", "U"))
    register(routes, wrapper=topics("U", version=2))
    assert routes.get_all_topic_list().topicList == {"T", "U"}


def test_slave_that_becomes_master_is_listed_under_one_id(routes):
    register(routes)
    register(routes, addr="10.0.0.2:10911", broker_id=1)
    register(routes, addr="10.0.0.2:10911", broker_id=0)
    assert addrs(routes) == {"broker-a": {0: "10.0.0.2:10911"}}


def test_old_master_that_unregisters_leaves_the_new_one(routes):
    register(routes)
    register(routes, addr="10.0.0.2:10911", broker_id=0, wrapper=topics("T"))
    routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0)
    assert addrs(routes) == {"broker-a": {0: "10.0.0.2:10911"}}
    assert routes.pickup_topic_route_data("T") is not None


def test_shared_address_is_unregistered_only_by_the_connection_that_registered_it_last(routes):
    old, new = FakeChannel(), FakeChannel()
    for channel in (old, new):
        register(routes, channel=channel)
    routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0, only_of=old)
    assert addrs(routes) == {"broker-a": {0: "10.0.0.1:10911"}}
    routes.on_channel_destroy("10.0.0.9:40000", old)
    assert addrs(routes) == {"broker-a": {0: "10.0.0.1:10911"}} and routes.departed_brokers() == []
    routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0, only_of=new)
    assert addrs(routes) == {} and routes.departed_brokers() == []
    routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0, only_of=new)


def test_own_address_is_replaced_when_a_restarted_master_registers_another_one(routes, clock):
    """The name server has not noticed the end of the old connection, as after the loss of a host."""
    lost, present = FakeChannel(), FakeChannel()
    register(routes, channel=lost)
    register(routes, "10.9.9.9:10911", channel=present)
    assert addrs(routes) == {"broker-a": {0: "10.9.9.9:10911"}}
    clock.now += BROKER_CHANNEL_EXPIRED_TIME
    register(routes, "10.9.9.9:10911", channel=present)
    clock.now += 1
    assert routes.scan_not_active_broker() == 1 and (lost.closed, present.closed) == (True, False)
    routes.on_channel_destroy("10.0.0.1:40000", lost)
    assert addrs(routes) == {"broker-a": {0: "10.9.9.9:10911"}} and routes.departed_brokers() == []


@pytest.mark.parametrize("is_other", [True, False])
def test_shared_address_is_not_registered_by_a_master_of_an_older_epoch(routes, is_other):
    old, new = FakeChannel(), FakeChannel()
    register(routes, channel=new, epoch=6, ha="10.0.0.2:10912")
    with pytest.raises(RegistrationError, match="the mastership of epoch 5 is over: the master of epoch 6 has regis"):
        register(routes, channel=old if is_other else new, epoch=5, wrapper=topics("Other"))
    register(routes, "10.0.0.3:10911", broker_id=3)
    routes.on_channel_destroy("10.0.0.9:40000", old)
    result = register(routes, "10.0.0.3:10911", broker_id=3)
    assert (result.masterAddr, result.haServerAddr) == ("10.0.0.1:10911", "10.0.0.2:10912")
    assert routes.get_all_topic_list().topicList == {"T"}
    # The same epoch again, another place, and a broker without epochs.
    register(routes, channel=new, epoch=6)
    register(routes, channel=old, epoch=5, broker_id=1)
    register(routes, channel=old)
    register(routes, channel=old, epoch=1)


def test_last_address_removes_name_cluster_and_topics(routes):
    register(routes)
    register(routes, addr="10.0.0.3:10911", name="broker-b", wrapper=topics("T", "B"))
    routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0)
    assert addrs(routes) == {"broker-b": {0: "10.0.0.3:10911"}}
    assert routes.get_all_cluster_info().clusterAddrTable == {"c1": {"broker-b"}}
    assert [queue.brokerName for queue in routes.pickup_topic_route_data("T").queueDatas] == ["broker-b"]
    routes.unregister_broker("c1", "10.0.0.3:10911", "broker-b", 0)
    assert routes.get_all_cluster_info().clusterAddrTable == {} and routes.get_all_topic_list().topicList == set()


def test_slave_alone_keeps_its_topics_routed(routes):
    register(routes)
    register(routes, addr="10.0.0.2:10911", broker_id=1)
    routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0)
    assert routes.pickup_topic_route_data("T").brokerDatas[0].brokerAddrs == {1: "10.0.0.2:10911"}


def test_broker_is_removed_with_its_channel(routes):
    channel = FakeChannel()
    register(routes, channel=channel)
    routes.on_channel_destroy("10.9.9.9:40000", FakeChannel())
    assert addrs(routes)
    routes.on_channel_destroy("10.9.9.9:40001", channel)
    assert addrs(routes) == {} and routes.pickup_topic_route_data("T") is None


def test_all_brokers_of_a_channel_are_removed_with_it(routes):
    channel = FakeChannel()
    register(routes, channel=channel)
    register(routes, addr="10.0.0.2:10911", name="broker-b", channel=channel)
    routes.on_channel_destroy("10.9.9.9:40001", channel)
    assert addrs(routes) == {}


def test_end_of_an_old_connection_keeps_the_broker_that_reconnected(routes):
    old, new = FakeChannel(), FakeChannel()
    register(routes, channel=old)
    register(routes, channel=new)
    routes.on_channel_destroy("10.9.9.9:40000", old)
    assert addrs(routes) == {"broker-a": {0: "10.0.0.1:10911"}}


def test_silent_broker_expires_after_120_seconds(routes, clock):
    silent, talking = FakeChannel(), FakeChannel()
    register(routes, channel=silent)
    clock.now += 1
    register(routes, addr="10.0.0.2:10911", name="broker-b", channel=talking)
    clock.now += BROKER_CHANNEL_EXPIRED_TIME - 1
    assert routes.scan_not_active_broker() == 0
    clock.now += 1
    assert routes.scan_not_active_broker() == 1
    assert silent.closed and not talking.closed
    assert addrs(routes) == {"broker-b": {0: "10.0.0.2:10911"}}


def test_unchanged_version_keeps_a_broker_alive(routes, clock):
    register(routes)
    version = DataVersion(1000, 1)
    assert not routes.is_broker_topic_config_changed("10.0.0.1:10911", version)
    assert routes.is_broker_topic_config_changed("10.0.0.1:10911", DataVersion(1000, 2))
    assert routes.is_broker_topic_config_changed("10.0.0.2:10911", version)
    clock.now += BROKER_CHANNEL_EXPIRED_TIME
    routes.update_broker_info_update_timestamp("10.0.0.1:10911")
    routes.update_broker_info_update_timestamp("10.0.0.2:10911")
    clock.now += BROKER_CHANNEL_EXPIRED_TIME
    assert routes.scan_not_active_broker() == 0


def test_write_permission_is_wiped_and_added(routes):
    register(routes, wrapper=topics("T", "U", perm=7))
    register(routes, addr="10.0.0.2:10911", name="broker-b", wrapper=topics("T"))
    assert routes.wipe_write_perm_of_broker_by_lock("broker-a") == 2
    perms = {queue.brokerName: queue.perm for queue in routes.pickup_topic_route_data("T").queueDatas}
    assert perms == {"broker-a": 5, "broker-b": 6}
    assert routes.add_write_perm_of_broker_by_lock("broker-a") == 2
    assert routes.pickup_topic_route_data("U").queueDatas[0].perm == 6
    assert routes.wipe_write_perm_of_broker_by_lock("broker-x") == 0


def test_topic_is_deleted_everywhere_or_in_a_cluster(routes):
    register(routes)
    register(routes, addr="10.0.0.2:10911", name="broker-b", cluster="c2")
    routes.delete_topic("T", "c1")
    assert [queue.brokerName for queue in routes.pickup_topic_route_data("T").queueDatas] == ["broker-b"]
    routes.delete_topic("T", "c9")
    routes.delete_topic("X", "c2")
    routes.delete_topic("T", "c2")
    assert routes.get_all_topic_list().topicList == set()
    register(routes, wrapper=topics("V", version=9))
    routes.delete_topic("V")
    routes.delete_topic("V")
    assert routes.get_all_topic_list().topicList == set()


def test_topics_of_a_cluster_are_listed(routes):
    register(routes)
    register(routes, addr="10.0.0.2:10911", name="broker-b", cluster="c2", wrapper=topics("U"))
    assert routes.get_topics_by_cluster("c2").topicList == {"U"}
    assert routes.get_topics_by_cluster("c9").topicList == set()


def test_system_topics_are_the_names_of_clusters_and_brokers(routes):
    assert routes.get_system_topic_list().brokerAddr is None
    register(routes)
    topic_list = routes.get_system_topic_list()
    assert topic_list.topicList == {"c1", "broker-a"} and topic_list.brokerAddr == "10.0.0.1:10911"


def test_unit_topics_are_listed(routes):
    wrapper = TopicConfigSerializeWrapper({f"F{flag}": TopicConfig(topicName=f"F{flag}", topicSysFlag=flag)
                                           for flag in range(4)}, DataVersion(1, 1))
    register(routes, wrapper=wrapper)
    assert routes.get_unit_topics().topicList == {"F1", "F3"}
    assert routes.get_has_unit_sub_topic_list().topicList == {"F2", "F3"}
    assert routes.get_has_unit_sub_un_unit_topic_list().topicList == {"F2"}


def test_filter_servers_are_part_of_the_route_until_unregistered(routes):
    register(routes, filter_servers=["10.0.0.1:1"])
    assert routes.pickup_topic_route_data("T").filterServerTable == {"10.0.0.1:10911": ["10.0.0.1:1"]}
    register(routes)
    assert routes.pickup_topic_route_data("T").filterServerTable == {}


BAD = {
    "negative id": {"broker_id": -1},
    "no name": {"name": ""},
    "no address": {"addr": ""},
    "no cluster": {"cluster": ""},
    "null version": {"wrapper": TopicConfigSerializeWrapper({}, None)},
    "null topic": {"wrapper": TopicConfigSerializeWrapper({"T": None}, DataVersion(1, 1))},
    "nameless topic": {"wrapper": TopicConfigSerializeWrapper({"T": TopicConfig()}, DataVersion(1, 1))},
    "huge perm": {"wrapper": TopicConfigSerializeWrapper({"T": TopicConfig("T", perm=1 << 31)}, DataVersion(1, 1))},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_invalid_registration_changes_nothing(routes, bad):
    register(routes, wrapper=topics("old"))
    with pytest.raises(RegistrationError):
        register(routes, **{"addr": "10.0.0.9:1", "name": "broker-z", **bad})
    assert addrs(routes) == {"broker-a": {0: "10.0.0.1:10911"}}
    assert routes.get_all_topic_list().topicList == {"old"}
    assert routes.get_all_cluster_info().clusterAddrTable == {"c1": {"broker-a"}}


def test_all_tables_are_logged(routes, caplog):
    register(routes)
    with caplog.at_level("INFO", "RocketmqNamesrv"):
        routes.print_all_periodically()
    assert "topicQueueTable SIZE: 1" in caplog.text and "brokerAddrTable brokerName: broker-a" in caplog.text


@pytest.mark.parametrize("step", [
    lambda routes, _channel: routes.print_all_periodically(),
    lambda routes, _channel: register(routes, wrapper=topics("New", version=2)),
    lambda routes, _channel: routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0),
    lambda routes, channel: routes.on_channel_destroy("x:1", channel),
    lambda routes, _channel: routes.delete_topic("T", "c1"),
], ids=["tables", "new topic", "unregister", "channel gone", "delete"])
def test_no_step_waits_for_the_log(routes, step):
    """A broker with thousands of topics writes thousands of lines."""
    channel, answered = FakeChannel(), []
    register(routes, channel=channel)

    class Asking(logging.Handler):
        def emit(self, record):
            other = threading.Thread(target=routes.get_all_cluster_info, daemon=True)
            other.start()
            other.join(240)
            answered.append(not other.is_alive())

    logger, handler = logging.getLogger("RocketmqNamesrv"), Asking()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        step(routes, channel)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert answered and all(answered)


def test_readers_are_admitted_while_many_topics_change(routes, monkeypatch):
    """Registering or removing a broker changes each of its topics; meanwhile, others may read, but not change the
    table."""
    many, asked = topics(*(f"T{i}" for i in range(35))), []
    monkeypatch.setattr(route_info_manager, "PIECE", 10)

    def ask(_seconds):
        seen = []
        reader = threading.Thread(target=lambda: seen.append(len(routes.get_all_topic_list().topicList)), daemon=True)
        writer = threading.Thread(target=routes.wipe_write_perm_of_broker_by_lock, args=("x",), daemon=True)
        reader.start(), writer.start()
        reader.join(240)
        asked.append((*seen, writer.is_alive()))

    monkeypatch.setattr(route_info_manager.time, "sleep", ask)
    register(routes, wrapper=many)
    assert asked == [(10, True), (20, True), (30, True)]
    asked.clear()
    routes.unregister_broker("c1", "10.0.0.1:10911", "broker-a", 0)
    assert asked == [(25, True), (15, True), (5, True)]


names, ids = st.sampled_from("ab"), st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("register"), names, ids, st.integers(0, 3), st.sampled_from(["c1", "c2"]), st.integers(0, 3)),
    st.tuples(st.just("unregister"), names, ids, st.integers(0, 3)),
    st.tuples(st.just("close"), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.integers(1, 130)),
)


def turned_round(items):
    """Invert a mapping of keys to values into one of values to keys."""
    table = {}
    for key, values in items:
        for value in values:
            table.setdefault(value, set()).add(key)
    return table


@settings(max_examples=drawn(200))
@given(st.lists(STEPS, max_size=30))
def test_tables_are_consistent_after_any_steps(steps):
    """The tables have no empty broker, no cluster of unknown brokers, and no topic of an unknown broker."""
    clock = FakeClock()
    routes, channels = RouteInfoManager(clock), [FakeChannel() for _ in range(4)]
    for step in steps:
        if step[0] == "register":
            register(routes, addr=f"h:{step[3]}", name=step[1], broker_id=step[2], cluster=step[4],
                     channel=channels[step[5]], wrapper=topics(f"T{step[1]}"))
        elif step[0] == "unregister":
            routes.unregister_broker("c1", f"h:{step[3]}", step[1], step[2])
        elif step[0] == "close":
            routes.on_channel_destroy("x:1", channels[step[1]])
        else:
            clock.now += step[1] * 1000
            routes.scan_not_active_broker()
        info = routes.get_all_cluster_info()
        assert all(data.brokerAddrs for data in info.brokerAddrTable.values())
        assert set().union(*info.clusterAddrTable.values()) == set(info.brokerAddrTable)
        assert all(info.clusterAddrTable.values())
        assert routes._names_of_addr == turned_round(
            (name, data.brokerAddrs.values()) for name, data in info.brokerAddrTable.items())
        assert routes._clusters_of_name == turned_round(info.clusterAddrTable.items())
        assert {topic[1:] for topic in routes.get_all_topic_list().topicList} <= set(info.brokerAddrTable)


def test_brokers_that_vanish_are_remembered_until_they_return_or_unregister():
    now = [1000]
    manager = RouteInfoManager(lambda: now[0])
    channel = object()
    for broker_id, address in ((0, "m:1"), (1, "s:1")):
        manager.register_broker(departing(address, broker_id, channel if broker_id else None))
    manager.on_channel_destroy("x:1", channel)
    now[0] += 500
    assert manager.departed_brokers() == [DepartedBroker("C", "a", 1, "s:1", 500)]
    manager.register_broker(departing("s:2", 1, None))
    assert manager.departed_brokers() == []
    manager.unregister_broker("C", "s:2", "a", 1)
    assert manager.departed_brokers() == []


def test_two_brokers_with_one_id_are_reported_while_both_register():
    manager = RouteInfoManager()
    channel = object()
    for address in ("s:1", "s:2"):
        manager.register_broker(departing(address, 1, channel if address == "s:1" else None))
    assert manager.departed_brokers() == [DepartedBroker("C", "a", 1, "s:1")]
    manager.on_channel_destroy("x:1", channel)
    assert manager.departed_brokers() == []


def test_departed_brokers_are_limited_and_forgotten_after_a_week():
    now = [0]
    departed = DepartedBrokers(lambda: now[0])
    for number in range(MAX_DEPARTED + 5):
        departed.gone("C", f"b{number}", 0, "h:1")
    assert len(departed.all()) == MAX_DEPARTED and departed.all()[0].name == "b5"
    now[0] = 8 * 24 * 3_600_000
    assert departed.all() == []


def departing(address, broker_id, channel):
    return BrokerRegistration("C", address, "a", broker_id, "h:2", TopicConfigSerializeWrapper(), None, channel)


@given(st.text(max_size=200))
def test_any_text_is_parsed_as_departed_brokers_or_refused(text):
    try:
        assert cluster_bodies.encode_departed(cluster_bodies.decode_departed(text)) is not None
    except ValueError:
        return


def test_departed_brokers_survive_saving_and_loading():
    brokers = [DepartedBroker("C", "a", 1, "s:1", 7), DepartedBroker("C", "ü", 2, "s:2")]
    assert cluster_bodies.decode_departed(cluster_bodies.encode_departed(brokers)) == brokers
    assert cluster_bodies.decode_departed(None) == []
    for text in ("{}x", '[{"cluster": 1}]', "[1]", '[{"cluster":"c","name":"n","broker_id":"x","address":"a"}]', "7"):
        with pytest.raises(ValueError):
            cluster_bodies.decode_departed(text)
