"""Replicas whose master registers one shared address (masterAddress): what name servers have at any moment, and what a
slave takes the address for."""
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmqha.broker.broker_addresses import BrokerAddresses, Place
from rmqha.broker.broker_outer_api import BrokerAnswerException, BrokerOuterAPI
from rmqha.broker.broker_registration import BrokerRegistration
from rmqha.broker.master_main_port import MasterMainPort
from rmqha.broker.shared_address import SharedAddress
from rmqha.broker.topic_config_manager import TopicConfigManager
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_decoder
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.namesrv_headers import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmqha.namesrv.default_request_processor import DefaultRequestProcessor
from rmqha.namesrv.route_info_manager import BROKER_CHANNEL_EXPIRED_TIME, RouteInfoManager
from rmqha.remoting.exception import RemotingCommandException, RemotingConnectException, RemotingTimeoutException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.store.ha.peers import MasterKind
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.role import Role
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from tests.broker.support import BrokerHarness, new_controller, running_broker
from tests.broker.test_registration import FakeNameServer
from tests.broker.test_replicas_manager import KEYS, WAIT_MS, cluster, route  # noqa: F401, a fixture
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until

NAME, SHARED = "broker-a", "10.9.9.9:10911"
OURS, ORIGINAL = "10.0.1.1:9876", "10.0.1.2:9876"
KNOWN = 0
# Registrations after a role change, which repair what an old master's late one has done.
_AGAIN = 2


class Ours:
    """A name server of rmqha, without sockets."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.routes = RouteInfoManager(lambda: self.now_ms)
        kv = SimpleNamespace(get_kv_list_by_namespace=lambda _name: None)
        self._processor = DefaultRequestProcessor(NamesrvConfig(), None, kv, self.routes)

    def serve(self, channel, request):
        try:
            answer = self._processor.process_request(channel, RemotingCommand.decode(request.encode()[4:]))
        except RemotingCommandException as error:
            answer = RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, str(error))
        return RemotingCommand.decode(answer.encode()[4:])

    def destroyed(self, channel):
        self.routes.on_channel_destroy("10.0.0.1:40000", channel)

    def scan(self):
        self.routes.scan_not_active_broker()

    def addresses(self):
        table = self.routes.get_all_cluster_info().brokerAddrTable
        return dict(table[NAME].brokerAddrs) if NAME in table else {}

    def holder(self):
        info = self.routes._broker_live_table.get(SHARED)
        return None if info is None else info.channel


class Original:
    """RocketMQ's name server: RouteInfoManager of 4.9.8, for one broker name."""

    def __init__(self, finds_last: bool) -> None:
        self.now_ms = 0
        self.addrs, self.live = {}, {}
        # Of several addresses of one connection it finds one, depending on the order of a HashMap.
        self._finds_last = finds_last

    def serve(self, channel, request):
        request = RemotingCommand.decode(request.encode()[4:])
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        if request.code == request_code.REGISTER_BROKER:
            header = request.decode_command_custom_header(RegisterBrokerRequestHeader)
            self.addrs = {number: addr for number, addr in self.addrs.items()
                          if addr != header.brokerAddr or number == header.brokerId}
            self.addrs[header.brokerId] = header.brokerAddr
            self.live.pop(header.brokerAddr, None)
            self.live[header.brokerAddr] = channel, self.now_ms, header.haServerAddr
            master = self.addrs.get(0)
            told = (self.live[master][2], master) if header.brokerId and master in self.live else ()
            response.custom_header = RegisterBrokerResponseHeader(*told)
        elif request.code == request_code.UNREGISTER_BROKER:
            header = request.decode_command_custom_header(UnRegisterBrokerRequestHeader)
            self.live.pop(header.brokerAddr, None)
            self.addrs.pop(header.brokerId, None)
        return RemotingCommand.decode(response.encode()[4:])

    def destroyed(self, channel):
        found = [addr for addr, (of, *_rest) in self.live.items() if of is channel]
        if found:
            self._remove(found[-1 if self._finds_last else 0])

    def _remove(self, addr):
        self.live.pop(addr, None)
        self.addrs = {number: other for number, other in self.addrs.items() if other != addr}

    def scan(self):
        for addr, (channel, since_ms, _ha) in list(self.live.items()):
            if since_ms + BROKER_CHANNEL_EXPIRED_TIME < self.now_ms:
                channel.close()
                self.live.pop(addr, None)
                self.destroyed(channel)
                self._remove(addr)

    def addresses(self):
        return dict(self.addrs)

    def holder(self):
        return self.live[SHARED][0] if SHARED in self.live else None


class Connection:
    """One connection of a broker to a name server; the server learns of its end when the test says so."""

    def __init__(self, end) -> None:
        self.is_open = True
        self.remote_address = ("10.0.0.1", 40000)
        self._end = end

    def close(self):
        if self.is_open:
            self.is_open = False
            self._end(self)


class Replica:
    """One broker: its registration and API are the real ones, its connections are the test's."""

    def __init__(self, folder: Path, number: int, servers, events) -> None:
        self.number, self._servers, self._events = number, servers, events
        config = BrokerConfig(brokerName=NAME, brokerIP1="127.0.0.1", brokerIP2="127.0.0.1", brokerId=number,
                              masterAddress=SHARED)
        store_config = MessageStoreConfig(storePathRootDir=str(folder), brokerRole=BrokerRole.SLAVE)
        self.role = Role(store_config, config)
        self._addresses = BrokerAddresses(config, store_config, 10000 + 10 * number)
        self._api = BrokerOuterAPI(RemotingClientConfig())
        self._api.remoting_client = self
        self._api._executor = SimpleNamespace(submit=lambda run, *args: run(*args))
        self.registration = BrokerRegistration(config, store_config, self.role, self._addresses,
                                               TopicConfigManager(config, store_config, lambda: None), self._api)
        self.registration.master_epoch = lambda: self.epoch
        self.epoch = 0
        self.is_running = True
        # The next registration is sent, but arrives later.
        self.delays = False
        self.late = []
        self._connections = {}

    @property
    def address(self):
        return self._addresses.broker_addr

    @property
    def is_master(self):
        return not self.role.is_slave

    # What the API uses of its client.

    def get_name_server_address_list(self):
        return list(self._servers)

    def connection(self, addr):
        if addr not in self._connections or not self._connections[addr].is_open:
            self._connections[addr] = Connection(lambda ended: self._events.append((addr, ended)))
        return self._connections[addr]

    def invoke_sync(self, addr, request, _timeout_ms):
        if self.delays and request.code == request_code.REGISTER_BROKER:
            self.late.append((addr, self.connection(addr), request))
            raise RemotingTimeoutException(addr)
        return self._servers[addr].serve(self.connection(addr), request)

    def close_channel(self, addr):
        self.connection(addr).close()

    def detach_channel(self, addr):
        return self._connections.pop(addr, None)

    def shutdown(self):
        for connection in self._connections.values():
            connection.close()

    # Its life.

    def lead(self, epoch):
        self.epoch = epoch
        self.role.take(BrokerRole.SYNC_MASTER)
        self.role.take_id(0)
        self.registration.register_another_owner(check_order_config=False)

    def follow(self):
        self.role.take(BrokerRole.SLAVE)
        self.registration.register_broker_all(False, False, True)  # in the middle of the change
        self.role.take_id(self.number)
        self.registration.register_another_owner(check_order_config=False)

    def register(self):
        self.registration.register_broker_all(False, False, True)

    def stop(self, cleanly):
        self.is_running = False
        if cleanly:
            self.registration.unregister_broker_all()
        self.shutdown()


class Replicas(RuleBasedStateMachine):
    """Two name servers and three replicas; elections, late requests, ends of connections and stops in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.events, self.epoch = [], 0
        # An old master's registration stands at the original; a late one of any replica has arrived.
        self.has_late = self.was_late = False

    @initialize(finds_last=st.booleans())
    def begin(self, finds_last):
        self.servers = {OURS: Ours(), ORIGINAL: Original(finds_last)}
        folder = Replicas.folder / str(next(Replicas.numbers))
        self.replicas = [Replica(folder / str(number), number, self.servers, self.events) for number in (1, 2, 3)]
        self.master = None
        for replica in self.replicas:
            replica.register()
        self.elect(0)

    @rule(which=st.integers(0, 2))
    def elect(self, which):
        """Another replica becomes the master. The old one does not know it yet."""
        replica = self.replicas[which]
        if replica.is_running and replica is not self.master:
            self.epoch += 1
            self.master = replica
            replica.delays = self.has_late = False
            replica.lead(self.epoch)

    @rule(which=st.integers(0, 2))
    def learns(self, which):
        """An old master learns that it was replaced."""
        replica = self.replicas[which]
        if replica.is_running and replica.is_master and replica is not self.master:
            replica.follow()

    @precondition(lambda self: self.master is not None)
    @rule()
    def resigns(self):
        """The master becomes a slave before there is another one."""
        replica, self.master = self.master, None
        replica.follow()
        self.notice_ends()
        for server in self.servers.values():
            assert replica.address in server.addresses().values()
            assert self.has_late or 0 not in server.addresses()

    @rule(which=st.integers(0, 2), delays=st.booleans())
    def registers(self, which, delays):
        """A replica registers, as its timer says; the request may arrive late."""
        replica = self.replicas[which]
        if replica.is_running:
            replica.delays = delays
            replica.register()
            replica.delays = False
            if replica.is_master and not delays:
                # An old master that does not know it yet, or the present one, which repairs it.
                self.has_late = replica is not self.master

    @precondition(lambda self: any(replica.late for replica in self.replicas))
    @rule(first=st.booleans())
    def late_request_arrives(self, first):
        replica = next(replica for replica in self.replicas if replica.late)
        addr, connection, request = replica.late.pop(0 if first else -1)
        self.has_late = self.was_late = True
        self.servers[addr].serve(connection, request)

    @precondition(lambda self: self.events)
    @rule(which=st.integers(0, 100))
    def end_of_a_connection_is_noticed(self, which):
        addr, connection = self.events.pop(which % len(self.events))
        self.servers[addr].destroyed(connection)

    @rule(which=st.integers(0, 2), cleanly=st.booleans())
    def stops(self, which, cleanly):
        replica = self.replicas[which]
        if replica.is_running and sum(each.is_running for each in self.replicas) > 1:
            replica.stop(cleanly)
            if replica is self.master:
                self.master = None

    @invariant()
    def present_master_stays_registered(self):
        if getattr(self, "master", None) is None:
            return
        for addr, server in self.servers.items():
            # The original does not compare epochs: a late request may stand until the master registers again.
            if addr == OURS or not self.has_late:
                assert server.addresses().get(0) == SHARED and server.holder() is self.master.connection(addr)
            assert self.was_late or self.master.address not in server.addresses().values()

    def teardown(self):
        if not hasattr(self, "servers"):
            return
        self.settle()

    def settle(self):
        """Everything arrives, all brokers know the master and register; then two minutes pass."""
        while any(replica.late for replica in self.replicas):
            self.late_request_arrives(True)
        for which in range(3):
            self.learns(which)
        if self.master is None:
            self.elect(next(index for index, replica in enumerate(self.replicas) if replica.is_running))
        for _ in range(_AGAIN):
            self.notice_ends()
            for replica in self.replicas:
                if replica.is_running:
                    replica.register()
        self.notice_ends()
        for addr, server in self.servers.items():
            # A slave's registration that was served after the end of its connection may stay until it expires.
            assert self.wanted().items() <= server.addresses().items()
            assert server.holder() is self.master.connection(addr)
        for _ in range(5):
            for server in self.servers.values():
                server.now_ms += BROKER_CHANNEL_EXPIRED_TIME // 4
            for replica in self.replicas:
                if replica.is_running:
                    replica.register()
            for server in self.servers.values():
                server.scan()
            self.notice_ends()
        self.check()

    def notice_ends(self):
        while self.events:
            self.end_of_a_connection_is_noticed(0)

    def check(self):
        for addr, server in self.servers.items():
            assert server.addresses() == self.wanted() and server.holder() is self.master.connection(addr)

    def wanted(self):
        return {0: SHARED} | {replica.number: replica.address for replica in self.replicas
                              if replica.is_running and replica is not self.master}


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory):
    Replicas.folder, Replicas.numbers = tmp_path_factory.mktemp("replicas"), itertools.count()


TestReplicas = Replicas.TestCase


# What is left of a request that fails.

PLACE, SHARED_PLACE = Place("c", "10.0.0.1:1", NAME, 2), Place("c", SHARED, NAME, 0)


class Requests:
    """Records what a SharedAddress does, and fails on request."""

    def __init__(self) -> None:
        self.done, self.fails, self.current = [], False, PLACE

    def unregister(self, *args, shared=""):
        if self.fails:
            raise RemotingTimeoutException(args[0])
        self.done.append(("unregister", *args, shared) if shared else ("unregister", *args))

    def close_channel(self, addr):
        self.done.append(("close", addr))

    def detach_channel(self, addr):
        self.done.append(("detach", addr))
        return SimpleNamespace(close=lambda: self.done.append(("close detached", addr)))


@pytest.fixture
def requests():
    return Requests()


@pytest.fixture
def shared(requests):
    return SharedAddress(SHARED, lambda place: place == requests.current, requests.unregister, requests)


def test_first_registration_needs_nothing_else(shared, requests):
    for _ in range(2):
        assert shared.begins("n:1", PLACE)
        shared.ends("n:1", PLACE)
    assert requests.done == []


def test_own_address_that_could_not_be_unregistered_is_unregistered_with_the_next_registration(shared, requests):
    assert shared.begins("n:1", PLACE)
    shared.ends("n:1", PLACE)
    requests.current, requests.fails = SHARED_PLACE, True
    assert shared.begins("n:1", SHARED_PLACE)
    shared.ends("n:1", SHARED_PLACE)
    assert requests.done == [("detach", "n:1"), ("close detached", "n:1")]
    requests.fails = False
    assert shared.begins("n:1", SHARED_PLACE)
    shared.ends("n:1", SHARED_PLACE)
    assert requests.done[2:] == [("detach", "n:1"), ("unregister", "n:1", *PLACE), ("close detached", "n:1")]
    assert shared.begins("n:1", SHARED_PLACE)
    assert len(requests.done) == 5


@pytest.mark.parametrize("fails", [False, True])
def test_shared_address_is_given_up_with_its_connection(shared, requests, fails):
    requests.current, requests.fails = SHARED_PLACE, fails
    assert shared.begins("n:1", SHARED_PLACE)
    shared.ends("n:1", SHARED_PLACE)
    requests.current = PLACE
    assert shared.begins("n:1", PLACE)
    left = [] if fails else [("unregister", "n:1", "c", "-", NAME, -1, SHARED)]
    assert requests.done == [*left, ("close", "n:1")]
    shared.ends("n:1", PLACE)
    assert shared.begins("n:1", PLACE) and len(requests.done) == len(left) + 1


def test_outdated_registration_is_not_sent_and_leaves_nothing(shared, requests):
    assert not shared.begins("n:1", SHARED_PLACE)
    assert shared.begins("n:1", PLACE)
    assert requests.done == []


def test_registration_that_was_overtaken_is_ended_by_the_next_one(shared, requests):
    requests.current = SHARED_PLACE
    assert shared.begins("n:1", SHARED_PLACE)
    requests.current = PLACE
    shared.ends("n:1", SHARED_PLACE)
    assert requests.done == []
    assert shared.begins("n:1", PLACE)
    assert requests.done == [("unregister", "n:1", "c", "-", NAME, -1, SHARED), ("close", "n:1")]


@pytest.mark.parametrize("place, done", [
    (PLACE, [("unregister", "n:1", *PLACE)]),
    (SHARED_PLACE, [("unregister", "n:1", "c", "-", NAME, -1, SHARED), ("close", "n:1")])])
def test_shutdown_unregisters_whatever_is_known(shared, requests, place, done):
    requests.current = place
    shared.leave_all("n:1", place)
    assert requests.done == done
    requests.done.clear()
    assert shared.begins("n:1", place)
    requests.current = None
    shared.leave_all("n:1", PLACE)
    assert requests.done == done, "what was registered, not what the broker would register now"


# The address in a slave's hands.


def answers(fields_by_address):
    """Return an API whose brokers answer GET_BROKER_HA_STATUS with these fields, or fail."""
    def get_broker_ha_fields(address):
        fields = fields_by_address.get(address, RemotingConnectException(address))
        if isinstance(fields, Exception):
            raise fields
        return fields
    return SimpleNamespace(get_broker_ha_fields=get_broker_ha_fields)


def fields_of(host):
    return {"haHandshake": "2", "haListenPort": "10912", "haServerAddr": f"{host}:10912", "brokerAddr": f"{host}:10911"}


UNKNOWN_REQUEST = BrokerAnswerException(response_code.REQUEST_CODE_NOT_SUPPORTED, "?", "a:1")
ONE, TWO = fields_of("10.0.0.1"), fields_of("10.0.0.2")


@pytest.mark.parametrize("told, own", [
    ({"10.0.0.1:10911": ONE, SHARED: TWO}, "10.0.0.1:10911"),
    ({SHARED: ONE}, "10.0.0.1:10911"),
    ({"10.0.0.1:10911": {**ONE, "haListenPort": "10922"}, SHARED: ONE}, "10.0.0.1:10911"),
    # The proxy leads to another broker, such as this one.
    ({SHARED: TWO}, None), ({}, None),
    # A host name in the configuration, and a broker of an earlier version: the answer of its main port counts.
    ({"10.0.0.1:10911": {"haHandshake": "2", "haListenPort": "10912", "haServerAddr": "one:10912"}}, "10.0.0.1:10911"),
    # RocketMQ's brokers, of 4.9 and 5.x.
    ({"10.0.0.1:10911": UNKNOWN_REQUEST}, "10.0.0.1:10911"),
    ({SHARED: UNKNOWN_REQUEST}, SHARED), ({SHARED: {}}, SHARED),
    ({SHARED: BrokerAnswerException(response_code.SYSTEM_ERROR, "?", "a:1")}, None)])
def test_own_address_is_that_of_the_followed_master(told, own):
    addresses = SimpleNamespace(master_address=SHARED, broker_addr="10.0.0.2:10911")
    port = MasterMainPort(answers(told), addresses, SimpleNamespace(master_addr=SHARED))
    assert port.own_address_of("10.0.0.3:10911") == "10.0.0.3:10911" and port.own_address_of(SHARED) is None
    port.followed = lambda: "10.0.0.1:10912"
    assert port.own_address_of(SHARED) == own


def test_kind_of_a_master_is_not_that_of_the_broker_behind_the_proxy():
    addresses = SimpleNamespace(master_address=SHARED, broker_addr="10.0.0.2:10911")
    for fields, kind in ((ONE, MasterKind.OURS), (TWO, None)):
        port = MasterMainPort(answers({SHARED: fields}), addresses, SimpleNamespace(master_addr=SHARED))
        port.begin()
        assert port.ask_main_port("10.0.0.1:10912") is kind


def test_slave_does_not_follow_its_own_registration_as_a_master(tmp_path):
    server = FakeNameServer()
    try:
        slave = {"brokerRole": BrokerRole.SLAVE, "brokerId": 1, "masterAddress": SHARED}
        with running_broker(tmp_path, server.address, **slave) as broker:
            controller, client = broker.controller, broker.store.ha_service.ha_client
            for own_ha, follows in ((controller.ha_server_addr, None), ("127.0.0.1:1", "127.0.0.1:1"),
                                    (controller.ha_server_addr, "127.0.0.1:1")):
                server.answer = RegisterBrokerResponseHeader(own_ha, SHARED)
                controller.registration.register_broker_all(True, False, True)
                assert client.master_address == follows
                assert controller.slave_synchronize.master_addr == (SHARED if own_ha == follows else None)
                assert controller.registration.lacks_master == (own_ha != follows)
    finally:
        server.server.shutdown()


@pytest.mark.parametrize("is_clean", [True, False])
def test_own_address_is_gone_when_a_running_cluster_gets_a_shared_one(tmp_path, is_clean):
    with running_name_server(tmp_path) as namesrv:
        first = new_controller(tmp_path, namesrv)
        assert first.initialize()
        first.start()
        if not is_clean:
            # As after a crash: nothing is unregistered.
            first.broker_outer_api.shutdown()
        first.shutdown()
        with running_broker(tmp_path, namesrv, masterAddress=SHARED) as broker, ClusterAdmin(namesrv) as admin:
            wait_until(lambda: [each.address for each in admin.brokers()] == [SHARED], what="the own address is gone")
            assert admin.fetch_departed_brokers() == []
            broker.controller.shutdown()
            assert admin.brokers() == [] == admin.fetch_departed_brokers(), "it has unregistered"


def test_failover_keeps_the_shared_address_registered(cluster, monkeypatch):
    monkeypatch.setitem(KEYS, "masterAddress", SHARED)
    for number in range(3):
        cluster.start_broker(number)
    cluster.wait_in_sync(3)

    def wanted():
        master = cluster.master()
        return {0: SHARED} | {broker.replicas_manager.broker_id: broker.broker_addr
                              for broker in cluster.brokers.values() if broker is not master}
    first = cluster.master()
    wait_until(lambda: route(cluster, first) == wanted(), WAIT_MS, "all are registered")
    assert first.replicas_manager.master_address == first.broker_addr, "the controller knows the own address"
    number = next(number for number, broker in cluster.brokers.items() if broker is first)
    cluster.brokers.pop(number).shutdown()
    second = cluster.master()
    wait_until(lambda: route(cluster, second) == wanted(), WAIT_MS, "the new roles are registered")
    cluster.start_broker(number)
    cluster.wait_in_sync(3)
    wait_until(lambda: route(cluster, second) == wanted(), WAIT_MS, "the old master is a slave")
    # Messages name the broker that stored them, not the proxy.
    with BrokerHarness(second) as harness:
        assert harness.send("T").code == 0
    with second.message_store.get_commit_log_data(0) as result:
        record = message_decoder.decode(bytes(result.buffer[:result.size]))
    assert record.store_host == ("127.0.0.1", second.addresses.store_host[1])
