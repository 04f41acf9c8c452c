"""Between a broker and a name server of ours: a registration carries what has changed, and the routes are as if it
carried everything."""
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqha.broker.broker_outer_api import Registration, ToldStates
from rmqha.common.data_version import ChangeLog, DataVersion
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code, table_version
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.topics import TopicConfig
from rmqha.namesrv import registrations
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.namesrv.route_info_manager import BrokerRegistration, RegistrationGap, RouteInfoManager
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.remoting_config import ServerConfig
from tests.broker.support import running_broker
from tests.support.wait import wait_until


class NameServer:
    """One of ours, started again on its port by `restart`; notes what brokers register."""

    def __init__(self, folder):
        self._folder, self._port, self.registered = folder, 0, []
        self._start()

    def _start(self):
        config = NamesrvConfig(kvConfigPath=str(self._folder / "kv.json"),
                               configStorePath=str(self._folder / "ns.properties"))
        self.controller = NamesrvController(config, ServerConfig(listenPort=self._port))
        assert self.controller.initialize()
        self.controller.start()
        self._port = self.controller.local_listen_port
        self.controller.remoting_server.register_rpc_hook(self)

    def do_before_request(self, _addr, request):
        if request.code == request_code.REGISTER_BROKER:
            body = remoting_serializable.from_json(RegisterBrokerBody, request.body)
            table = body.topicConfigSerializeWrapper.topicConfigTable
            self.registered.append((request.ext_fields[table_version.SINCE], set(table)))

    def do_after_response(self, _addr, _request, _response):
        """Nothing."""

    @property
    def address(self):
        return f"127.0.0.1:{self._port}"

    @property
    def routes(self):
        return self.controller.route_info_manager

    def queues(self, topic):
        route = self.routes.pickup_topic_route_data(topic)
        return None if route is None else [(each.brokerName, each.writeQueueNums, each.perm)
                                           for each in route.queueDatas]

    def restart(self):
        self.controller.shutdown()
        self._start()

    def shutdown(self):
        self.controller.shutdown()


@pytest.fixture
def name_server(tmp_path):
    server = NameServer(tmp_path)
    yield server
    server.shutdown()


def test_only_changes_are_told_and_routes_have_all(tmp_path, name_server):
    with running_broker(tmp_path / "b", name_server.address) as broker:
        controller, topics = broker.controller, broker.controller.topic_config_manager
        since, names = name_server.registered[0]
        assert since == "" and "TBW102" in names
        controller.registration.register_broker_all(True, False, True)
        assert name_server.registered[1][0] and name_server.registered[1][1] == set()
        topics.update_topic_config(TopicConfig("Made", 3, 3))
        controller.registration.register_increment_broker_data(TopicConfig("Made", 3, 3))
        assert name_server.registered[2][1] == {"Made"} and name_server.queues("Made") == [("broker-a", 3, 6)]
        broker.send("Sent")  # makes the topic, one way
        wait_until(lambda: name_server.queues("Sent"), 60_000, "the route of a topic that a send made")
        controller.registration.register_broker_all(True, False, True)
        topics.delete_topic_config("Made")
        controller.registration.register_broker_all(True, False, True)
        assert name_server.registered[-1][0] == "" and "Sent" in name_server.registered[-1][1]
        assert name_server.queues("Sent") == [("broker-a", 4, 6)]


def test_name_server_that_forgot_is_told_everything(tmp_path, name_server):
    with running_broker(tmp_path / "b", name_server.address) as broker:
        name_server.restart()
        name_server.registered.clear()

        def is_known():
            broker.controller.registration.register_broker_all(True, False, True)
            return name_server.queues("TBW102")

        wait_until(is_known, 60_000, "the broker is registered again")
        assert [bool(since) for since, _names in name_server.registered] == [True, False]


def test_permission_of_the_broker_goes_to_all_topics(tmp_path, name_server):
    with running_broker(tmp_path / "b", name_server.address) as broker:
        body = b"brokerPermission=4"
        assert broker.call(request_code.UPDATE_BROKER_CONFIG, None, body).code == 0
        assert {perm for _name, _queues, perm in name_server.queues("TBW102")} == {4}


def test_wiped_write_permission_lasts_when_another_topic_is_made(tmp_path, name_server):
    with running_broker(tmp_path / "b", name_server.address) as broker:
        controller, routes = broker.controller, name_server.routes
        controller.registration.register_broker_all(True, False, True)
        assert routes.wipe_write_perm_of_broker_by_lock("broker-a") > 5
        controller.topic_config_manager.update_topic_config(TopicConfig("Other", 1, 1))
        controller.registration.register_increment_broker_data(TopicConfig("Other", 1, 1))
        controller.registration.register_broker_all(True, False, True)
        assert name_server.queues("Other") == [("broker-a", 1, 6)]
        assert name_server.queues("BenchmarkTest")[0][2] == 4


@pytest.mark.parametrize("happens", ["wiped", "restarted"])
def test_route_of_a_topic_that_a_send_makes_comes_at_once(tmp_path, name_server, monkeypatch, happens):
    """Without a periodic registration; a wiped permission is back then, as in the original."""
    with running_broker(tmp_path / "b", name_server.address) as broker:
        register_all = broker.controller.registration.register_broker_all
        monkeypatch.setattr(broker.controller.registration, "register_broker_all",
                            lambda check, oneway, force: register_all(check, oneway, force) if oneway else None)
        if happens == "wiped":
            assert name_server.routes.wipe_write_perm_of_broker_by_lock("broker-a") > 5
        else:
            name_server.restart()
        broker.send("Sent")
        wait_until(lambda: name_server.queues("Sent"), 60_000, "the route of a topic that a send made")
        wait_until(lambda: name_server.queues("BenchmarkTest") == [("broker-a", 1024, 6)], 60_000, "all topics")


def register(routes, wrapper, state="", since="", alone=""):
    return routes.register_broker(BrokerRegistration("c", "10.0.0.1:10911", "broker-a", 0, "10.0.0.1:10912", wrapper,
                                                     [], None, state, since, alone))


def wrapper_of(version, **topics):
    table = {name: TopicConfig(name, queues, queues) for name, queues in topics.items()}
    return TopicConfigSerializeWrapper(table, DataVersion(1, version))


def queues_of(routes, topic):
    route = routes.pickup_topic_route_data(topic)
    return None if route is None else route.queueDatas[0].writeQueueNums


def test_changes_of_an_unknown_state_are_refused_and_change_nothing():
    routes = RouteInfoManager()
    with pytest.raises(RegistrationGap):
        register(routes, wrapper_of(2, A=1), "life.2", "life.1")
    assert queues_of(routes, "A") is None
    register(routes, wrapper_of(1, A=1), "life.1")
    for since in ("life.2", "other.1", "other.0", "x"):
        with pytest.raises(RegistrationGap):
            register(routes, wrapper_of(3, A=2), "life.3", since)
    assert queues_of(routes, "A") == 1


def test_changes_that_come_late_undo_nothing():
    routes = RouteInfoManager()
    register(routes, wrapper_of(1, A=1), "life.1")
    register(routes, wrapper_of(3, A=3, B=1), "life.3", "life.1")
    register(routes, wrapper_of(2, A=2), "life.2", "life.1")
    assert queues_of(routes, "A") == 3
    register(routes, wrapper_of(4, B=2), "life.4", "life.3")
    assert queues_of(routes, "B") == 2


def test_all_topics_are_taken_behind_a_registration_of_one():
    """Which brings their version along, and no other topic."""
    routes = RouteInfoManager()
    register(routes, wrapper_of(2, A=1))
    register(routes, wrapper_of(2, A=1, B=1), "life.2")
    assert queues_of(routes, "B") == 1


@pytest.mark.parametrize("state", ["", "life.1"])
def test_all_topics_keep_a_wiped_permission_of_the_same_version(state):
    """The name server has one topic, of this version, and gets the others."""
    routes = RouteInfoManager()
    register(routes, wrapper_of(2, A=1), state)
    routes.wipe_write_perm_of_broker_by_lock("broker-a")
    register(routes, wrapper_of(2, A=1, B=1), "life.2")
    assert [routes.pickup_topic_route_data(name).queueDatas[0].perm for name in "AB"] == [4, 6]


def test_deleted_topics_are_not_kept_without_end(monkeypatch):
    """A broker whose topics an administrator deletes here, too many of them, has to register them all."""
    routes = RouteInfoManager()
    register(routes, wrapper_of(1, T=1), "life.1")
    for number in range(2, 6):
        topic = f"T{number}"
        register(routes, wrapper_of(number, **{topic: 1}), f"life.{number}", f"life.{number - 1}", topic)
        with monkeypatch.context() as patch:  # what is kept of deleted topics has the limit of topics, here lowered
            patch.setattr(registrations, "MAX_TOPICS_OF_BROKER", 3)
            routes.delete_topic(topic)
    with pytest.raises(RegistrationGap):
        register(routes, wrapper_of(6, A=1), "life.6", "life.5")


class Told(RuleBasedStateMachine):
    """A route table that is told changes, and one that is told everything as in the original."""

    NAMES = st.sampled_from("ABCD")

    @initialize()
    def begin(self):
        self.changes, self.told, self.version, self.topics = ChangeLog(), ToldStates(), 0, {}
        self.routes, self.original = RouteInfoManager(), RouteInfoManager()
        self.is_told = True

    def _changed(self, *names):
        self.version += 1
        self.is_told = False
        if names:
            self.changes.note(names)
        else:
            self.changes.note_all()

    @rule(name=NAMES, queues=st.integers(1, 9))
    def put(self, name, queues):
        self.topics[name] = queues
        self._changed(name)

    @rule(name=NAMES)
    def delete(self, name):
        if self.topics.pop(name, None) is not None:
            self._changed()

    @rule(name=NAMES)
    def delete_at_the_name_servers(self, name):
        for routes in (self.routes, self.original):
            routes.delete_topic(name)

    @rule()
    def wipe(self):
        for routes in (self.routes, self.original):
            routes.wipe_write_perm_of_broker_by_lock("broker-a")

    @rule()
    def restart_the_name_servers(self):
        self.routes, self.original, self.is_told = RouteInfoManager(), RouteInfoManager(), False

    @rule()
    def restart_the_broker(self):
        self.changes, self.told = ChangeLog(), ToldStates()
        for routes in (self.routes, self.original):
            routes.unregister_broker("c", "10.0.0.1:10911", "broker-a", 0)
        self.is_told = False

    @rule(answer_comes=st.booleans())
    def register(self, answer_comes):
        def some(names):
            return wrapper_of(self.version, **{name: queues for name, queues in self.topics.items()
                                               if names is None or name in names})

        registration = Registration(self.changes, some)
        part = registration.part(self.told.of("n"))
        try:
            register(self.routes, part.wrapper, part.now, part.since)
        except RegistrationGap:
            part = registration.everything()
            register(self.routes, part.wrapper, part.now)
        if answer_comes:
            self.told.note("n", part.now)
        register(self.original, some(None))
        self.is_told = True

    @invariant()
    def routes_are_the_same(self):
        if getattr(self, "is_told", False):
            for name in "ABCD":
                assert self.routes.pickup_topic_route_data(name) == self.original.pickup_topic_route_data(name)


TestTold = Told.TestCase
