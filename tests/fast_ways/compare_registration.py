"""Tables by change beside whole tables: registration with name servers, and tables that a slave takes over."""
from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.broker_outer_api import Told
from rmqha.broker.slave_synchronize import TableVersions
from rmqha.common import data_version
from rmqha.common.data_version import ChangeLog
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code, table_version
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.namesrv.default_request_processor import DefaultRequestProcessor
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.remoting.exception import RemotingSendRequestException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from tests.broker.support import new_controller
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced

# A slave's tables: taken over by change, and as a whole.

MASTER = "10.0.0.1:10911"
NAMES = tuple("ABCDEF")
TABLES = ("_sync_topic_config", "_sync_consumer_offset", "_sync_subscription_group_config")


class Broker:
    """A broker that is opened and never started: tables, files, and the answers to requests."""

    controller: BrokerController

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open()

    def open(self) -> None:
        """Open the broker, as at a start."""
        self.controller = new_controller(self._folder)
        assert self.controller.initialize()
        self.topics = self.controller.topic_config_manager
        self.groups = self.controller.subscription_group_manager
        self.offsets = self.controller.consumer_offset_manager

    def restart(self, cleanly: bool) -> None:
        """Close it and open it again; unsaved state is lost unless it closes cleanly."""
        if cleanly:
            for manager in (self.topics, self.groups, self.offsets):
                manager.persist()
        self.controller.message_store.shutdown()
        self.open()

    def tables(self) -> dict[str, object]:
        """Return the tables that slaves take over."""
        return {"topics": dict(self.topics.topic_config_table), "topics' version": self.topics.data_version,
                "groups": dict(self.groups.subscription_group_table), "groups' version": self.groups.data_version,
                "offsets": {key: dict(offsets) for key, offsets in self.offsets.offset_table.items()}}

    def change(self, rng: random.Random) -> Callable[[Broker], None]:
        """Return one change by an administrator or a consumer, to be applied to any number of brokers."""
        name, number, kind = rng.choice(NAMES), rng.randint(1, 9), rng.random()
        if kind < 0.25:
            return lambda broker: broker.topics.update_topic_config(TopicConfig(name, number, number))
        if kind < 0.32:
            return lambda broker: broker.topics.delete_topic_config(name)
        if kind < 0.55:
            return lambda broker: broker.groups.update_subscription_group_config(
                SubscriptionGroupConfig(name, retryMaxTimes=number))
        if kind < 0.62:
            return lambda broker: broker.groups.delete_subscription_group_config(name)
        if kind < 0.66:
            return lambda broker: broker.offsets.remove_topic(name)
        offset = rng.randint(0, 1000)
        return lambda broker: broker.offsets.commit_offset("10.0.0.9:1", "g" + name, name, number % 3, offset)


class Slave(Broker):
    """A slave that asks its master without a network; requests and answers may be lost."""

    def __init__(self, folder: Path, master: Broker, knows: bool, taken: Counter[str]) -> None:
        self._master, self._knows, self._taken = master, knows, taken
        self.lost = ""  # "request" or "answer"
        super().__init__(folder)

    def open(self) -> None:
        """Open the slave, which then knows nothing of its master."""
        super().open()
        api = self.controller.broker_outer_api
        ask = api._ask_for_table

        def counted(cls: type, addr: str, code: int, known: str) -> Told[Any]:
            told = ask(cls, addr, code, known)
            self._taken[FAST if told.table is None or told.only_changes else PLAIN] += 1
            return told
        if self._knows:
            api._ask_for_table = counted  # type: ignore[method-assign]
        api._invoke = self._invoke  # type: ignore[method-assign, assignment]
        self.controller.slave_synchronize.master_addr = MASTER

    def _invoke(self, _addr: str, request: RemotingCommand, *_timeout: int) -> RemotingCommand:
        if self.lost == "request":
            raise RemotingSendRequestException(MASTER)
        asked = RemotingCommand.decode(request.encode()[4:])
        master = self._master.controller.remoting_server
        processor, _ = master.default_request_processor  # type: ignore[misc]  # the admin processor
        response = processor.process_request(None, asked)  # type: ignore[arg-type]  # the channel is not used
        if self.lost == "answer":
            raise RemotingSendRequestException(MASTER)
        return RemotingCommand.decode(response.encode()[4:])  # type: ignore[union-attr]

    def synchronize(self, what: str, take_lower: bool) -> None:
        """Request one table, or all of them."""
        synchronize = self.controller.slave_synchronize
        synchronize.take_lower_offsets = take_lower
        if not self._knows:
            synchronize._versions.forget()
        for name in TABLES if what == "all" else [what]:
            with contextlib.suppress(RemotingSendRequestException):
                getattr(synchronize, name)(MASTER)


@contextlib.contextmanager
def _three_brokers(taken: Counter[str]) -> Iterator[tuple[Broker, list[Slave]]]:
    with tempfile.TemporaryDirectory() as folder:
        brokers: list[Broker] = []
        try:
            brokers.append(Broker(Path(folder, "master")))
            for knows in (True, False):
                brokers.append(Slave(Path(folder, f"slave-{knows}"), brokers[0], knows, taken))
            yield brokers[0], brokers[1:]  # type: ignore[misc]  # slaves
        finally:
            for broker in brokers:
                broker.controller.message_store.shutdown()


def compare_slaves(rng: random.Random) -> Counter[str]:
    """Check that two slaves with the same history have the same tables: one gets changes, the other all tables each
    time."""
    taken: Counter[str] = Counter()
    # Two changes never happen in the same millisecond.
    clock = itertools.count(1 << 41)
    with (lowered(data_version, _now_ms=lambda: next(clock)), lowered(os, fsync=lambda _file: None),
          _three_brokers(taken) as (master, slaves)):
        for _ in range(rng.choice([5, 20, 60])):
            event = rng.random()
            if event < 0.44:
                master.change(rng)(master)
            elif event < 0.56:
                change = master.change(rng)
                # The slave was a master in between, or had consumers.
                for slave in slaves:
                    change(slave)
            elif event < 0.6:
                master.restart(rng.random() < 0.7)
            elif event < 0.64:
                cleanly = rng.random() < 0.7
                for slave in slaves:
                    slave.restart(cleanly)
            elif event < 0.66:
                for slave in slaves:
                    slave.controller.slave_synchronize.begin_anew()
                    slave.controller.slave_synchronize.master_addr = MASTER
            else:
                what = rng.choice(["all", "all", *TABLES])
                lost, lower = rng.choice(["", "", "", "", "request", "answer"]), rng.random() < 0.1
                for slave in slaves:
                    slave.lost = lost
                    slave.synchronize(what, lower)
                    slave.lost = ""
        for slave in slaves:
            slave.synchronize("all", False)
        theirs, told, whole = master.tables(), slaves[0].tables(), slaves[1].tables()
        for name in told:
            assert told[name] == whole[name], f"{name}: {_difference(told[name], whole[name])}"
            assert name == "offsets" or told[name] == theirs[name], \
                f"{name}, and the master's: {_difference(told[name], theirs[name])}"
        for slave, before in zip(slaves, (told, whole)):
            # Runs every five seconds; all else was saved when it was taken over.
            slave.offsets.persist_changes()
            slave.restart(False)
            for name, table in slave.tables().items():
                assert table == before[name], f"{name}, in the file: {_difference(table, before[name])}"
    return taken


def _difference(one: object, other: object) -> str:
    """Return the items in which two tables differ."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return f"{one}, {other}"
    return str({name: (one.get(name), other.get(name)) for name in one.keys() | other.keys()
                if one.get(name) != other.get(name)})


def _own_state_forgotten(self: TableVersions, table: str, master_addr: str,
                         own: str = "") -> tuple[str, Callable[..., None]]:
    """Ignore changes that were made here in the meantime."""
    return _of(self, table, master_addr, self._known.get(table, ("", "", ""))[2])


def _gone_is_no_change(self: ChangeLog) -> None:
    """Leave all marks as they are when an entry is removed."""


def one_too_few(self: ChangeLog, mark: str) -> list[str] | None:
    """Miss the change directly after the mark."""
    life, _, number = mark.rpartition(".")
    return _since(self, f"{life}.{int(number) + 1}" if number.isdigit() and mark != self.mark() else mark)


_of, _since = TableVersions.of, ChangeLog.since

WAYS = [
    Way("slave's tables by change", "rmqha/broker/slave_synchronize.py::SlaveSynchronize",
        "the master knows the state that the slave reports", "the whole table", compare_slaves,
        (Plant("the slave's own changes do not count", replaced(TableVersions, "of", _own_state_forgotten)),
         Plant("removals are not noted", replaced(ChangeLog, "note_all", _gone_is_no_change)),
         Plant("the first change is missed", replaced(ChangeLog, "since", one_too_few))), seeds=12),
]


# Registration with name servers: by change, and as a whole.

OURS = ("10.0.1.1:9876", "10.0.1.2:9876")
ORIGINAL = "10.0.1.3:9876"  # receives everything each time
KNOWN_TOPICS = (*NAMES, "TBW102", "BenchmarkTest")


class NameServer:
    """A name server that answers registrations; it is never started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        controller = NamesrvController(NamesrvConfig(kvConfigPath=str(self._folder / "kv.json"),
                                                     configStorePath=str(self._folder / "ns.properties")),
                                       ServerConfig(listenPort=0))
        controller.initialize()
        self.routes = controller.route_info_manager
        self._processor = DefaultRequestProcessor(controller.namesrv_config, controller.configuration,
                                                  controller.kv_config_manager, controller.route_info_manager)
        self._channel = SimpleNamespace(remote_address=("10.0.0.1", 1))

    def serve(self, request: RemotingCommand) -> RemotingCommand:
        """Return the answer; request and answer go through their wire format."""
        asked = RemotingCommand.decode(request.encode()[4:])
        answer = self._processor.process_request(self._channel, asked)  # type: ignore[arg-type]  # has an address
        return RemotingCommand.decode(answer.encode()[4:])  # type: ignore[union-attr]  # the code is known

    def seen(self) -> dict[str, object]:
        """Return everything that clients can ask for."""
        info = self.routes.get_all_cluster_info()
        return {"cluster": (info.brokerAddrTable, info.clusterAddrTable),
                **{name: self.routes.pickup_topic_route_data(name) for name in KNOWN_TOPICS}}


class Cluster:
    """A broker and three name servers. Requests and answers between them may be lost, except with the one that gets
    everything."""

    def __init__(self, folder: Path, rng: random.Random, taken: Counter[str]) -> None:
        self.servers = {address: NameServer(folder / str(index)) for index, address in enumerate((*OURS, ORIGINAL))}
        self.broker = Broker(folder / "broker")
        self._taken = taken
        self.losses: dict[str, str] = {}  # by address: "request" or "answer"
        self.connect()

    @property
    def controller(self) -> BrokerController:
        """The broker's controller."""
        return self.broker.controller

    def connect(self) -> None:
        """Connect the broker, which was just opened, with the name servers."""
        client = self.controller.broker_outer_api.remoting_client
        client.update_name_server_address_list(list(self.servers))
        client.invoke_sync = self._ask  # type: ignore[method-assign]
        client.invoke_oneway = self._tell  # type: ignore[method-assign]
        client.invoke_async = self._ask_without_waiting  # type: ignore[method-assign]

    def _tell(self, address: str, request: RemotingCommand, timeout_ms: int) -> None:
        with contextlib.suppress(RemotingSendRequestException):
            self._ask(address, request, timeout_ms)

    def _ask_without_waiting(self, address: str, request: RemotingCommand, timeout_ms: int,
                             callback: Callable[[Any], None]) -> None:
        answer = None
        with contextlib.suppress(RemotingSendRequestException):
            answer = self._ask(address, request, timeout_ms)
        callback(SimpleNamespace(response_command=answer, cause=None))

    def _ask(self, address: str, request: RemotingCommand, _timeout_ms: int) -> RemotingCommand:
        is_registration = request.code == request_code.REGISTER_BROKER
        if address == ORIGINAL and is_registration:
            request = self._of_all(request)
        if self.losses.get(address) == "request":
            raise RemotingSendRequestException(address)
        answer = self.servers[address].serve(request)
        if address != ORIGINAL and is_registration:
            self._taken[FAST if (request.ext_fields or {}).get(table_version.SINCE) else PLAIN] += 1
        if self.losses.get(address) == "answer":
            raise RemotingSendRequestException(address)
        return answer

    def _of_all(self, request: RemotingCommand) -> RemotingCommand:
        """Return a registration that carries all topics and names no states."""
        whole = RemotingCommand.create_request_command(request.code, request.custom_header)
        topics = self.controller.registration._registered_topics(None)
        whole.body = remoting_serializable.encode(RegisterBrokerBody(topics, []))
        whole.custom_header.bodyCrc32 = 0  # type: ignore[union-attr]  # that of the other body
        alone = (request.ext_fields or {}).get(table_version.ALONE)
        if alone is not None:
            whole.add_ext_field(table_version.ALONE, alone)
        return whole

    def register(self, oneway: bool = False, alone: str | None = None) -> None:
        """Register the broker with all three name servers."""
        self.controller.registration._do_register_broker_all(False, oneway, alone)

    def close(self) -> None:
        """Close everything that was opened."""
        self.controller.broker_outer_api.shutdown()
        self.controller.message_store.shutdown()


@contextlib.contextmanager
def _cluster(rng: random.Random, taken: Counter[str]) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), rng, taken)
        try:
            yield cluster
        finally:
            cluster.close()


def _act(rng: random.Random, cluster: Cluster, loses: bool) -> None:
    """Let one thing happen. If one name server can lose permissions that another keeps, permissions do not change."""
    topics, kind, name = cluster.broker.topics, rng.random(), rng.choice(NAMES)
    if kind < 0.35:
        topics.update_topic_config(TopicConfig(name, rng.randint(0, 9), rng.randint(1, 9), rng.choice([2, 4, 6, 6, 6])))
    elif kind < 0.42:  # as mqadmin deleteTopic does
        topics.delete_topic_config(name)
        for server in cluster.servers.values():
            server.routes.delete_topic(name)
    elif kind < 0.46:
        body = b"brokerPermission=%d" % rng.choice([4, 6])
        request = RemotingCommand.create_request_command(request_code.UPDATE_BROKER_CONFIG)
        request.body = body
        processor, _ = cluster.controller.remoting_server.default_request_processor  # type: ignore[misc]  # the admin's
        channel: Any = SimpleNamespace(remote_address=("10.0.0.9", 1))
        assert processor.process_request(channel, request).code == 0  # type: ignore[union-attr]  # at once
    elif kind < 0.5:
        for server in cluster.servers.values() if not loses else [cluster.servers[rng.choice(OURS)]]:
            server.restart()
        if not loses:
            # Until then changes mean nothing to them, and there is nothing whose permission could be wiped.
            cluster.register()
    elif kind < 0.54 and not loses:
        change = rng.choice([RouteInfoManager.wipe_write_perm_of_broker_by_lock,
                             RouteInfoManager.add_write_perm_of_broker_by_lock])
        # All have the same topics, whose permissions are changed.
        cluster.register()
        for server in cluster.servers.values():
            change(server.routes, "broker-a")
    elif kind < 0.6:
        config = cluster.controller.broker_config
        if rng.random() < 0.5:
            for server in cluster.servers.values():
                server.routes.unregister_broker(config.brokerClusterName, cluster.controller.broker_addr,
                                                config.brokerName, config.brokerId)
        permission = config.brokerPermission
        cluster.controller.broker_outer_api.shutdown()
        cluster.broker.restart(True)
        # A real broker has it in its configuration file.
        cluster.controller.broker_config.brokerPermission = permission
        cluster.connect()
        cluster.register()  # as its start does
    else:
        cluster.losses = {address: rng.choice(["", "", "request", "answer"]) for address in OURS} if loses else {}
        if rng.random() < 0.4:
            topics.update_topic_config(TopicConfig(name, 3, 3))
            cluster.register(alone=name)
        else:
            # A server whose state is unknown ignores it, and the broker does not notice: see the next one.
            cluster.register(oneway=loses and rng.random() < 0.3)
        cluster.losses = {}


def compare_registrations(rng: random.Random) -> Counter[str]:
    """Check that clients get the same from each name server: a broker sends changes to two, and everything to a
    third."""
    taken: Counter[str] = Counter()
    # Two changes never happen in the same millisecond.
    clock, loses = itertools.count(1 << 41), rng.random() < 0.6
    with (lowered(data_version, _now_ms=lambda: next(clock)), lowered(os, fsync=lambda _file: None),
          _cluster(rng, taken) as cluster):
        cluster.register()
        for _ in range(rng.choice([5, 15, 40])):
            _act(rng, cluster, loses)
            if rng.random() < 0.2:
                _check_all_the_same(cluster)
        _check_all_the_same(cluster)
    return taken


def _check_all_the_same(cluster: Cluster) -> None:
    cluster.register()
    expected = cluster.servers[ORIGINAL].seen()
    for address in OURS:
        for name, seen in cluster.servers[address].seen().items():
            assert seen == expected[name], f"{address}, {name}: {seen}, with everything {expected[name]}"


def _no_gap(_self: RouteInfoManager, _registration: object) -> None:
    """Apply changes to any state."""


WAYS += [
    Way("registration by change", "rmqha/broker/broker_outer_api.py::Registration",
        "the name server has reported its state", "all topics", compare_registrations,
        (Plant("changes of an unknown state are applied", replaced(RouteInfoManager, "_check_gap", _no_gap)),
         Plant("the first change is missed", replaced(ChangeLog, "since", one_too_few))), seeds=15),
]
