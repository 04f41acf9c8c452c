"""Registration with name servers: which server receives what, when, and only changes."""
import threading

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqha.broker.broker_outer_api import Registration, ToldStates
from rmqha.broker.broker_registration import BrokerRegistration
from rmqha.common.data_version import ChangeLog, DataVersion
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code, response_code, table_version
from rmqha.common.protocol.admin_headers import CreateTopicRequestHeader
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.protocol.namesrv_headers import (
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmqha.common.protocol.table_bodies import KVTable, TopicConfigSerializeWrapper
from rmqha.common.topics import TopicConfig
from rmqha.common.util_all import crc32
from rmqha.namesrv import registrations
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.namesrv.route_info_manager import BrokerRegistration as RegistrationByChangeBrokerRegistration
from rmqha.namesrv.route_info_manager import RegistrationGap, RouteInfoManager
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import new_controller, running_broker
from tests.support.ports import free_port
from tests.support.wait import wait_until

# A broker and its name servers: which server receives what, and when.


class FakeNameServer:
    """Records the requests and gives the configured answers."""

    def __init__(self, port=0):
        self.requests = []
        self.answer = RegisterBrokerResponseHeader()
        self.kv_table = KVTable()
        self.changed = False
        # While cleared, registrations are not answered.
        self.hold = threading.Event()
        self.hold.set()
        self.server = RemotingServer(ServerConfig(listenPort=port))
        self.server.register_default_processor(self)
        self.server.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.local_listen_port}"

    def reject_request(self):
        return False

    def process_request(self, channel, request):
        self.requests.append(request)
        if not self.hold.is_set():
            return None
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        if request.code == request_code.REGISTER_BROKER:
            response.custom_header = self.answer
            response.body = remoting_serializable.encode(self.kv_table)
        elif request.code == request_code.QUERY_DATA_VERSION:
            response.custom_header = QueryDataVersionResponseHeader(self.changed)
            response.body = request.body
        return response

    def of_code(self, code):
        return [request for request in self.requests if request.code == code]


@pytest.fixture
def name_servers():
    """Two name servers."""
    servers = [FakeNameServer(), FakeNameServer()]
    yield servers
    for server in servers:
        server.server.shutdown()


def both(name_servers):
    return ";".join(server.address for server in name_servers)


def registration(request):
    return (request.decode_command_custom_header(RegisterBrokerRequestHeader),
            remoting_serializable.from_json(RegisterBrokerBody, request.body))


def test_broker_registers_with_all_name_servers_at_once_and_unregisters_at_shutdown(tmp_path, name_servers):
    with running_broker(tmp_path, both(name_servers)) as broker:
        for server in name_servers:
            header, body = registration(server.of_code(request_code.REGISTER_BROKER)[0])
            assert (header.brokerName, header.brokerAddr, header.brokerId) == ("broker-a", broker.address, 0)
            ha_port = broker.store.ha_service.ha_listen_port
            assert (header.clusterName, header.haServerAddr) == ("DefaultCluster", f"127.0.0.1:{ha_port}")
            assert header.bodyCrc32 == crc32(server.requests[0].body) and not header.compressed
            assert "TBW102" in body.topicConfigSerializeWrapper.topicConfigTable
    for server in name_servers:
        request = server.of_code(request_code.UNREGISTER_BROKER)[0]
        header = request.decode_command_custom_header(UnRegisterBrokerRequestHeader)
        assert (header.brokerName, header.brokerId) == ("broker-a", 0)


def test_compressed_registration(tmp_path, name_servers):
    with running_broker(tmp_path, name_servers[0].address, compressedRegister=True):
        request = name_servers[0].requests[0]
        assert request.ext_fields["compressed"] == "true"
        assert "TBW102" in RegisterBrokerBody.decode_compressed(
            request.body).topicConfigSerializeWrapper.topicConfigTable


def test_new_topic_is_registered_one_way_with_all_others(tmp_path, name_servers):
    with running_broker(tmp_path, both(name_servers)) as broker:
        broker.send("Fresh")
        for server in name_servers:
            wait_until(lambda: len(server.of_code(request_code.REGISTER_BROKER)) == 2, 60_000, "the registration")
            request = server.of_code(request_code.REGISTER_BROKER)[1]
            table = registration(request)[1].topicConfigSerializeWrapper.topicConfigTable
            assert request.is_oneway_rpc and {"Fresh", "TBW102"} <= set(table)


def test_topic_created_by_an_admin_is_registered_alone(tmp_path, name_servers):
    with running_broker(tmp_path, name_servers[0].address) as broker:
        header = CreateTopicRequestHeader("Made", "TBW102", 2, 2, 6, "SINGLE_TAG", 0)
        assert broker.call(request_code.UPDATE_AND_CREATE_TOPIC, header).code == response_code.SUCCESS
        request = name_servers[0].of_code(request_code.REGISTER_BROKER)[1]
        wrapper = registration(request)[1].topicConfigSerializeWrapper
        assert set(wrapper.topicConfigTable) == {"Made"} and wrapper.dataVersion.counter == 1


def test_broker_without_write_permission_registers_its_topics_without_it(tmp_path, name_servers):
    with running_broker(tmp_path, name_servers[0].address, brokerPermission=4) as broker:
        table = registration(name_servers[0].requests[0])[1].topicConfigSerializeWrapper.topicConfigTable
        assert {config.perm for config in table.values()} == {4}
        assert broker.controller.topic_config_manager.select_topic_config("BenchmarkTest").perm == 6


def test_slave_adopts_its_masters_addresses_from_the_answer(tmp_path, name_servers):
    name_servers[0].answer = RegisterBrokerResponseHeader("127.0.0.1:1", "127.0.0.1:10911")
    slave = {"brokerRole": BrokerRole.SLAVE, "brokerId": 1}
    with running_broker(tmp_path, name_servers[0].address, **slave) as broker:
        assert broker.controller.slave_synchronize.master_addr == "127.0.0.1:10911"
        assert broker.store.ha_service.ha_client.master_address == "127.0.0.1:1"


def test_configured_ha_address_is_kept(tmp_path, name_servers):
    name_servers[0].answer = RegisterBrokerResponseHeader("127.0.0.1:1", "127.0.0.1:10911")
    slave = {"brokerRole": BrokerRole.SLAVE, "brokerId": 1, "haMasterAddress": "127.0.0.1:2"}
    with running_broker(tmp_path, name_servers[0].address, **slave) as broker:
        assert broker.store.ha_service.ha_client.master_address == "127.0.0.1:2"


def test_order_topics_of_the_name_server_are_adopted(tmp_path, name_servers):
    name_servers[0].kv_table = KVTable({"BenchmarkTest": "broker-a:8"})
    with running_broker(tmp_path, name_servers[0].address) as broker:
        assert broker.controller.topic_config_manager.is_order_topic("BenchmarkTest")


def test_silent_name_server_delays_the_others_no_longer_than_the_timeout(tmp_path, name_servers, caplog,
                                                                           monkeypatch):
    returned = threading.Event()
    invoke_sync = RemotingClient.invoke_sync

    def invoke(self, addr, *arguments):
        try:
            return invoke_sync(self, addr, *arguments)
        # The request has the same timeout as the registration, and may time out first.
        finally:
            if addr == name_servers[0].address:
                returned.wait()
    monkeypatch.setattr(RemotingClient, "invoke_sync", invoke)
    name_servers[0].hold.clear()
    name_servers[1].answer = RegisterBrokerResponseHeader("127.0.0.1:1", "127.0.0.1:10911")
    controller = new_controller(tmp_path, both(name_servers))
    controller.broker_outer_api.update_name_server_address_list(both(name_servers))
    controller.broker_outer_api.start()
    topics = controller.topic_config_manager
    registration = Registration(topics.changes, topics.build_topic_config_serialize_wrapper)
    # Up to as long as the other name server takes to answer.
    for timeout_ms in (500, 5_000, 50_000):
        results = controller.broker_outer_api.register_broker_all("c", "a:1", "n", 0, "h:2", registration, [], False,
                                                                  timeout_ms, False)
        assert f"registerBroker Exception, {name_servers[0].address}: no answer within {timeout_ms} ms" in caplog.text
        if results:
            break
    returned.set()
    assert [result.masterAddr for result in results] == ["127.0.0.1:10911"]
    controller.shutdown()


def test_registration_is_skipped_when_nothing_changed(tmp_path, name_servers):
    with running_broker(tmp_path, both(name_servers)) as broker:
        controller = broker.controller
        controller.registration.register_broker_all(True, False, False)
        counts = [len(server.of_code(request_code.REGISTER_BROKER)) for server in name_servers]
        assert counts == [1, 1]
        name_servers[1].changed = True
        controller.registration.register_broker_all(True, False, False)
        assert [len(server.of_code(request_code.REGISTER_BROKER)) for server in name_servers] == [2, 2]


def test_name_server_that_starts_after_the_broker_is_registered_with_soon(tmp_path, name_servers, monkeypatch):
    monkeypatch.setattr(BrokerRegistration, "register_periodically", lambda _self: None)
    port = free_port()
    with running_broker(tmp_path, f"{name_servers[0].address};127.0.0.1:{port}"):
        late = FakeNameServer(port)
        try:
            wait_until(lambda: late.of_code(request_code.REGISTER_BROKER), what="the registration")
            assert not late.of_code(request_code.REGISTER_BROKER)[0].is_oneway_rpc, "registered only a minute later"
        finally:
            late.server.shutdown()


def test_missing_name_server_does_not_keep_the_broker_from_serving(tmp_path):
    with running_broker(tmp_path, "127.0.0.1:1", registerBrokerTimeoutMills=300) as broker:
        assert broker.send("Alone").code == response_code.SUCCESS


# Between a broker and an rmqha name server, a registration carries only changes, and the routes are as if it carried
# everything.


class NameServer:
    """An rmqha name server; `restart` starts it again on its port. It records the brokers' registrations."""

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
        """Do nothing."""

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


def test_only_changes_are_sent_and_routes_are_complete(tmp_path, name_server):
    with running_broker(tmp_path / "b", name_server.address) as broker:
        controller, topics = broker.controller, broker.controller.topic_config_manager
        since, names = name_server.registered[0]
        assert since == "" and "TBW102" in names
        controller.registration.register_broker_all(True, False, True)
        assert name_server.registered[1][0] and name_server.registered[1][1] == set()
        topics.update_topic_config(TopicConfig("Made", 3, 3))
        controller.registration.register_increment_broker_data(TopicConfig("Made", 3, 3))
        assert name_server.registered[2][1] == {"Made"} and name_server.queues("Made") == [("broker-a", 3, 6)]
        # Creates the topic, which is registered one-way.
        broker.send("Sent")
        wait_until(lambda: name_server.queues("Sent"), 60_000, "the route of a topic created by a send")
        controller.registration.register_broker_all(True, False, True)
        topics.delete_topic_config("Made")
        controller.registration.register_broker_all(True, False, True)
        assert name_server.registered[-1][0] == "" and "Sent" in name_server.registered[-1][1]
        assert name_server.queues("Sent") == [("broker-a", 4, 6)]


def test_name_server_that_lost_its_state_receives_everything(tmp_path, name_server):
    with running_broker(tmp_path / "b", name_server.address) as broker:
        name_server.restart()
        name_server.registered.clear()

        def is_known():
            broker.controller.registration.register_broker_all(True, False, True)
            return name_server.queues("TBW102")

        wait_until(is_known, 60_000, "the broker is registered again")
        assert [bool(since) for since, _names in name_server.registered] == [True, False]


def test_broker_permission_applies_to_all_topics(tmp_path, name_server):
    with running_broker(tmp_path / "b", name_server.address) as broker:
        body = b"brokerPermission=4"
        assert broker.call(request_code.UPDATE_BROKER_CONFIG, None, body).code == 0
        assert {perm for _name, _queues, perm in name_server.queues("TBW102")} == {4}


def test_wiped_write_permission_stays_when_another_topic_is_created(tmp_path, name_server):
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
def test_route_of_a_topic_created_by_a_send_is_available_at_once(tmp_path, name_server, monkeypatch, happens):
    """Without a periodic registration; a wiped permission is then restored, as in the original."""
    with running_broker(tmp_path / "b", name_server.address) as broker:
        register_all = broker.controller.registration.register_broker_all
        monkeypatch.setattr(broker.controller.registration, "register_broker_all",
                            lambda check, oneway, force: register_all(check, oneway, force) if oneway else None)
        if happens == "wiped":
            assert name_server.routes.wipe_write_perm_of_broker_by_lock("broker-a") > 5
        else:
            name_server.restart()
        broker.send("Sent")
        wait_until(lambda: name_server.queues("Sent"), 60_000, "the route of a topic created by a send")
        wait_until(lambda: name_server.queues("BenchmarkTest") == [("broker-a", 1024, 6)], 60_000, "all topics")


def register(routes, wrapper, state="", since="", alone=""):
    return routes.register_broker(RegistrationByChangeBrokerRegistration("c", "10.0.0.1:10911", "broker-a", 0,
                                                                         "10.0.0.1:10912", wrapper,
                                                     [], None, state, since, alone))


def wrapper_of(version, **topics):
    table = {name: TopicConfig(name, queues, queues) for name, queues in topics.items()}
    return TopicConfigSerializeWrapper(table, DataVersion(1, version))


def queues_of(routes, topic):
    route = routes.pickup_topic_route_data(topic)
    return None if route is None else route.queueDatas[0].writeQueueNums


def test_changes_since_an_unknown_state_are_refused_and_change_nothing():
    routes = RouteInfoManager()
    with pytest.raises(RegistrationGap):
        register(routes, wrapper_of(2, A=1), "life.2", "life.1")
    assert queues_of(routes, "A") is None
    register(routes, wrapper_of(1, A=1), "life.1")
    for since in ("life.2", "other.1", "other.0", "x"):
        with pytest.raises(RegistrationGap):
            register(routes, wrapper_of(3, A=2), "life.3", since)
    assert queues_of(routes, "A") == 1


def test_late_changes_undo_nothing():
    routes = RouteInfoManager()
    register(routes, wrapper_of(1, A=1), "life.1")
    register(routes, wrapper_of(3, A=3, B=1), "life.3", "life.1")
    register(routes, wrapper_of(2, A=2), "life.2", "life.1")
    assert queues_of(routes, "A") == 3
    register(routes, wrapper_of(4, B=2), "life.4", "life.3")
    assert queues_of(routes, "B") == 2


def test_all_topics_are_accepted_after_a_registration_of_one():
    """The registration of one topic brings the version of all, but no other topic."""
    routes = RouteInfoManager()
    register(routes, wrapper_of(2, A=1))
    register(routes, wrapper_of(2, A=1, B=1), "life.2")
    assert queues_of(routes, "B") == 1


@pytest.mark.parametrize("state", ["", "life.1"])
def test_wiped_permission_survives_a_registration_of_all_topics_of_the_same_version(state):
    """The name server has one topic of this version, and receives the others."""
    routes = RouteInfoManager()
    register(routes, wrapper_of(2, A=1), state)
    routes.wipe_write_perm_of_broker_by_lock("broker-a")
    register(routes, wrapper_of(2, A=1, B=1), "life.2")
    assert [routes.pickup_topic_route_data(name).queueDatas[0].perm for name in "AB"] == [4, 6]


def test_record_of_deleted_topics_is_bounded(monkeypatch):
    """If an administrator deletes too many of a broker's topics at the name server, the broker has to register them
    all."""
    routes = RouteInfoManager()
    register(routes, wrapper_of(1, T=1), "life.1")
    for number in range(2, 6):
        topic = f"T{number}"
        register(routes, wrapper_of(number, **{topic: 1}), f"life.{number}", f"life.{number - 1}", topic)
        # The record of deleted topics has the limit of topics, lowered here.
        with monkeypatch.context() as patch:
            patch.setattr(registrations, "MAX_TOPICS_OF_BROKER", 3)
            routes.delete_topic(topic)
    with pytest.raises(RegistrationGap):
        register(routes, wrapper_of(6, A=1), "life.6", "life.5")


class Told(RuleBasedStateMachine):
    """A route table that receives changes, and one that receives everything as in the original."""

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
