"""Brokers and rmqha's name servers, whatever happens between them: the routes equal those of the original.

Broker and name servers exchange the bytes of the wire. Beside each name server runs a model of 4.9.8's route table,
which receives what an original broker sends: all topics, or the one that an administrator has created.
"""
from types import SimpleNamespace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmqha.broker.broker_outer_api import BrokerOuterAPI, Registration
from rmqha.common.data_version import ChangeLog, DataVersion, entries_of
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.topics import TopicConfig
from rmqha.namesrv.default_request_processor import DefaultRequestProcessor
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig

NAMES = ("A", "B", "C", "D")
# A broker always has topics of its own.
OWN = "TBW102"
CLUSTER, BROKER, MASTER, SLAVE = "c", "broker-a", "10.0.0.1:10911", "10.0.0.2:10911"
SERVERS = ("10.0.1.1:9876", "10.0.1.2:9876")
ARRIVES, LOST, UNANSWERED, TWICE, LATE = "arrives", "lost", "unanswered", "twice", "late"
FATES = st.tuples(*(st.sampled_from([ARRIVES, ARRIVES, ARRIVES, LOST, UNANSWERED, TWICE, LATE]) for _ in SERVERS))
ALL_ARRIVE = (ARRIVES,) * len(SERVERS)


class Original:
    """The route table of 4.9.8 for one broker name: RouteInfoManager."""

    def __init__(self):
        self.topics, self.addrs, self.versions = {}, {}, {}

    def register(self, broker_id, addr, version, table):
        """Register and return True if the topics are accepted."""
        self.addrs = {number: other for number, other in self.addrs.items() if other != addr or number == broker_id}
        is_first = broker_id not in self.addrs
        self.addrs[broker_id] = addr
        takes = broker_id == 0 and (is_first or self.versions.get(addr) != version)
        if takes:
            self.topics |= {name: [config.readQueueNums, config.writeQueueNums, config.perm, config.topicSysFlag]
                            for name, config in table.items()}
        self.versions[addr] = version
        return takes

    def unregister(self, broker_id, addr):
        self.versions.pop(addr, None)
        self.addrs.pop(broker_id, None)
        if not self.addrs:
            self.topics.clear()

    def set_perm(self, change):
        for queues in self.topics.values():
            queues[2] = change(queues[2])


class NameServer:
    """An rmqha name server, and the original beside it."""

    def __init__(self):
        self.restart()

    def restart(self):
        self.routes, self.original = RouteInfoManager(), Original()
        config, kv = NamesrvConfig(), SimpleNamespace(get_kv_list_by_namespace=lambda _name: None)
        self._processor = DefaultRequestProcessor(config, None, kv, self.routes)
        self._channel = SimpleNamespace(remote_address=("10.0.0.1", 1))
        # It lacks the last registration, or all of them.
        self.lacks = True
        # The original has missed a topic: it accepted the version of another topic, registered alone.
        self.is_doubtful = False
        # It will ask for everything when it gets changes, since a topic was deleted at the broker.
        self.asks_for_all = False
        # Topics that the broker has deleted since, which the original may have missed.
        self.gone = set()
        self.deleted = set()  # topics deleted only here
        self.late = []

    def serve(self, request):
        answer = self._processor.process_request(self._channel, RemotingCommand.decode(request.encode()[4:]))
        return RemotingCommand.decode(answer.encode()[4:])

    def tell_original(self, version, table, alone):
        if self.original.register(0, MASTER, version, {alone: table[alone]} if alone else table):
            if not alone:
                if self.is_doubtful:
                    self.gone.update(NAMES)
                self.gone.difference_update(table)
                self.is_doubtful = False
                self.deleted.clear()
            elif self.lacks:
                self.is_doubtful = True
        self.deleted.discard(alone)
        self.gone.discard(alone)
        self.lacks = self.asks_for_all = False

    def table(self):
        return {topic: [data.readQueueNums, data.writeQueueNums, data.perm, data.topicSysFlag]
                for topic in (*NAMES, OWN) if (route := self.routes.pickup_topic_route_data(topic)) is not None
                for data in route.queueDatas}


class Wire:
    """The broker's client without sockets; asynchronous answers arrive at once."""

    def __init__(self, servers):
        self._servers, self.fates = servers, dict.fromkeys(servers, ARRIVES)

    def get_name_server_address_list(self):
        return list(self._servers)

    def invoke_sync(self, addr, request, _timeout):
        server, fate = self._servers[addr], self.fates[addr]
        if fate == LATE:
            server.late.append(request)
        if fate in (LOST, LATE):
            raise RemotingTimeoutException(addr)
        answers = [server.serve(request) for _ in range(2 if fate == TWICE else 1)]
        if fate == UNANSWERED:
            raise RemotingTimeoutException(addr)
        return answers[0]

    def invoke_oneway(self, addr, request, timeout):
        self.invoke_async(addr, request, timeout, lambda _future: None)

    def invoke_async(self, addr, request, timeout, callback):
        try:
            answer = self.invoke_sync(addr, request, timeout)
        except RemotingTimeoutException as failure:
            callback(SimpleNamespace(response_command=None, cause=failure))
        else:
            callback(SimpleNamespace(response_command=answer, cause=None))


class AtOnce:
    """An executor that runs the broker's calls at once."""

    def submit(self, task, *args):
        task(*args)


class Cluster(RuleBasedStateMachine):
    """A master, its slave, and two name servers."""

    @initialize()
    def begin(self):
        self.servers = {addr: NameServer() for addr in SERVERS}
        self.topics, self.number = {OWN: TopicConfig(OWN, 8, 8)}, 0
        self.is_slave_there = False
        self._start_broker()
        self._register(ALL_ARRIVE)

    def _start_broker(self):
        self.changes, self.api = ChangeLog(), BrokerOuterAPI(RemotingClientConfig())
        self.api.remoting_client, self.api._executor = Wire(self.servers), AtOnce()
        for server in self.servers.values():
            server.late.clear()

    @property
    def _version(self):
        return DataVersion(1, self.number)

    def _changed(self, *names):
        self.number += 1
        if names:
            self.changes.note(names)
        else:
            self.changes.note_all()

    def _wrapper(self, names):
        return TopicConfigSerializeWrapper(entries_of(self.topics, names), self._version)

    def _register(self, fates, oneway=False, alone=None):
        for (addr, server), fate in zip(self.servers.items(), fates, strict=True):
            if fate == UNANSWERED and (server.lacks or server.asks_for_all):
                # The answer would be that it lacks something.
                fate = LOST
            if fate == LATE:
                server.late.clear()
            self.api.remoting_client.fates[addr] = fate
            if fate in (LOST, LATE):
                server.lacks = True
            else:
                # Requests that are late now have been overtaken: see `overtaken_comes_late`.
                server.late.clear()
                server.tell_original(self._version, dict(self.topics), alone)
        self.api.register_broker_all(CLUSTER, MASTER, BROKER, 0, "10.0.0.1:10912",
                                     Registration(self.changes, self._wrapper, alone), [], oneway, 1000, False)

    @rule(name=st.sampled_from(NAMES), queues=st.integers(1, 3), perm=st.sampled_from([2, 4, 6, 6, 6]), fates=FATES)
    def update_topic(self, name, queues, perm, fates):
        self.topics[name] = TopicConfig(name, queues, queues, perm)
        self._changed(name)
        self._register(fates, alone=name)

    @rule(name=st.sampled_from(NAMES), fates=FATES)
    def send_to_topic(self, name, fates):
        if name not in self.topics:
            self.topics[name] = TopicConfig(name, 4, 4)
            self._changed(name)
            self._register(fates, oneway=True)

    @rule(name=st.sampled_from(NAMES), fates=FATES)
    def set_unit_flag(self, name, fates):
        if name in self.topics:
            old = self.topics[name]
            self.topics[name] = TopicConfig(name, old.readQueueNums, old.writeQueueNums, old.perm,
                                            topicSysFlag=old.topicSysFlag ^ 1)
            self._changed(name)
            self._register(fates, oneway=True)

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name):
        if self.topics.pop(name, None) is not None:
            self._changed()
            for server in self.servers.values():
                server.asks_for_all = True

    @rule(name=st.sampled_from((*NAMES, OWN)), addr=st.sampled_from(SERVERS))
    def delete_topic_at_name_server(self, name, addr):
        server = self.servers[addr]
        server.routes.delete_topic(name)
        server.original.topics.pop(name, None)
        server.deleted.add(name)

    @rule(fates=FATES)
    def register_all(self, fates):
        self._register(fates)

    @rule(fates=FATES)
    def change_owner(self, fates):
        self._changed()
        self._register(fates)

    @rule(addr=st.sampled_from(SERVERS))
    def wipe_write_perm(self, addr):
        server = self.servers[addr]
        server.original.set_perm(lambda perm: perm & ~2)
        assert server.routes.wipe_write_perm_of_broker_by_lock(BROKER) == len(server.table())

    @rule(addr=st.sampled_from(SERVERS))
    def add_write_perm(self, addr):
        server = self.servers[addr]
        server.original.set_perm(lambda _perm: 6)
        server.routes.add_write_perm_of_broker_by_lock(BROKER)

    @rule(addr=st.sampled_from(SERVERS))
    def restart_name_server(self, addr):
        self.servers[addr].restart()

    @rule(says_so=st.booleans(), fates=FATES)
    def restart_broker(self, says_so, fates):
        for server in self.servers.values() if says_so else ():
            server.routes.unregister_broker(CLUSTER, MASTER, BROKER, 0)
            server.original.unregister(0, MASTER)
            server.lacks = True
        self._start_broker()
        self._register(fates)

    @rule(addr=st.sampled_from(SERVERS))
    def close_connection(self, addr):
        self.servers[addr].routes.on_channel_destroy(MASTER, None)
        self.servers[addr].original.unregister(0, MASTER)
        self.servers[addr].lacks = True

    @rule(addr=st.sampled_from(SERVERS), leaves=st.booleans())
    def slave_comes_or_goes(self, addr, leaves):
        server = self.servers[addr]
        if leaves:
            server.routes.unregister_broker(CLUSTER, SLAVE, BROKER, 1)
            server.original.unregister(1, SLAVE)
        else:
            api = BrokerOuterAPI(RemotingClientConfig())
            api.remoting_client, api._executor = Wire({addr: server}), AtOnce()
            api.register_broker_all(CLUSTER, SLAVE, BROKER, 1, "10.0.0.2:10912",
                                    Registration(ChangeLog(), self._wrapper), [], False, 1000, False)
            server.original.register(1, SLAVE, self._version, {})

    @precondition(lambda self: any(server.late for server in self.servers.values()))
    @rule()
    def overtaken_comes_late(self):
        """A late request arrives after the next one, which reported the same and more."""
        for addr, server in self.servers.items():
            waits, server.late = server.late, []
            if waits:
                self.api.remoting_client.fates[addr] = ARRIVES
                self._register([ARRIVES if other == addr else LOST for other in SERVERS])
                for request in waits:
                    assert request.code == request_code.REGISTER_BROKER
                    assert server.serve(request).code == 0

    @invariant()
    def routes_are_the_originals(self):
        for server in getattr(self, "servers", {}).values():
            ours = server.table()
            if not server.is_doubtful:
                expected = server.original.topics if server.original.addrs else {}
                for name in {*ours, *expected} - server.gone:
                    assert ours.get(name) == expected.get(name), f"{name}: {ours}, the original: {expected}"
            if not server.lacks:
                assert set(self.topics) - server.deleted <= set(ours)
                assert all(ours[name][:2] == [config.readQueueNums, config.writeQueueNums]
                           for name, config in self.topics.items() if name in ours and name not in server.deleted)


TestCluster = Cluster.TestCase


def test_topic_deleted_by_the_broker_after_a_change_here_keeps_the_last_change():
    cluster = Cluster()
    cluster.begin()
    addr, all_but_late = SERVERS[1], (ARRIVES, LATE)
    for act in (lambda: cluster.update_topic("A", 1, 2, ALL_ARRIVE), lambda: cluster.delete_topic("A"),
                lambda: cluster.wipe_write_perm(addr), lambda: cluster.change_owner(ALL_ARRIVE),
                lambda: cluster.send_to_topic("B", all_but_late), lambda: cluster.add_write_perm(addr),
                cluster.overtaken_comes_late):
        act()
        cluster.routes_are_the_originals()


class OriginalServer:
    """An original name server, which knows none of rmqha's fields."""

    def __init__(self):
        self.late, self.original = [], Original()

    def serve(self, request):
        wrapper = remoting_serializable.from_json(RegisterBrokerBody, request.body).topicConfigSerializeWrapper
        self.original.register(0, MASTER, wrapper.dataVersion, wrapper.topicConfigTable)
        return RemotingCommand.create_response_command(0, None)


def test_original_that_replaces_an_rmqha_name_server_receives_all_topics():
    cluster = Cluster()
    cluster.begin()
    server = cluster.api.remoting_client._servers[SERVERS[0]] = OriginalServer()
    cluster.topics["A"] = TopicConfig("A", 1, 1)
    cluster._changed("A")
    registration = Registration(cluster.changes, cluster._wrapper, "A")
    cluster.api.register_broker_all(CLUSTER, MASTER, BROKER, 0, "h", registration, [], False, 1000, False)
    assert set(server.original.topics) == {"A", OWN}
    cluster.api.register_broker_all(CLUSTER, MASTER, BROKER, 0, "h", Registration(cluster.changes, cluster._wrapper),
                                    [], False, 1000, False)
    assert server.original.versions[MASTER] == cluster._version
