"""Registration with name servers: by change beside as a whole."""
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
from rmqha.common import data_version
from rmqha.common.data_version import ChangeLog
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code, table_version
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.topics import TopicConfig
from rmqha.namesrv.default_request_processor import DefaultRequestProcessor
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.remoting.exception import RemotingSendRequestException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from tests.fast_ways.compare_slave import NAMES, Broker, one_too_few
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced

OURS = ("10.0.1.1:9876", "10.0.1.2:9876")
ORIGINAL = "10.0.1.3:9876"  # is told everything each time
KNOWN_TOPICS = (*NAMES, "TBW102", "BenchmarkTest")


class NameServer:
    """What answers registrations; it is never started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.restart()

    def restart(self) -> None:
        """It knows nothing any more."""
        controller = NamesrvController(NamesrvConfig(kvConfigPath=str(self._folder / "kv.json"),
                                                     configStorePath=str(self._folder / "ns.properties")),
                                       ServerConfig(listenPort=0))
        controller.initialize()
        self.routes = controller.route_info_manager
        self._processor = DefaultRequestProcessor(controller.namesrv_config, controller.configuration,
                                                  controller.kv_config_manager, controller.route_info_manager)
        self._channel = SimpleNamespace(remote_address=("10.0.0.1", 1))

    def serve(self, request: RemotingCommand) -> RemotingCommand:
        """The answer, over the wire's bytes."""
        asked = RemotingCommand.decode(request.encode()[4:])
        answer = self._processor.process_request(self._channel, asked)  # type: ignore[arg-type]  # has an address
        return RemotingCommand.decode(answer.encode()[4:])  # type: ignore[union-attr]  # the code is known

    def seen(self) -> dict[str, object]:
        """All that clients can ask for."""
        info = self.routes.get_all_cluster_info()
        return {"cluster": (info.brokerAddrTable, info.clusterAddrTable),
                **{name: self.routes.pickup_topic_route_data(name) for name in KNOWN_TOPICS}}


class Cluster:
    """A broker, and three name servers; what is between them may be lost, but not to the one that is told all."""

    def __init__(self, folder: Path, rng: random.Random, taken: Counter[str]) -> None:
        self.servers = {address: NameServer(folder / str(index)) for index, address in enumerate((*OURS, ORIGINAL))}
        self.broker = Broker(folder / "broker")
        self._taken = taken
        self.losses: dict[str, str] = {}  # by address: the request, or the answer
        self.connect()

    @property
    def controller(self) -> BrokerController:
        """Of the broker."""
        return self.broker.controller

    def connect(self) -> None:
        """Have the broker, which was opened, ask these."""
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
        """The registration that carries all topics, and names no states."""
        whole = RemotingCommand.create_request_command(request.code, request.custom_header)
        topics = self.controller.registration._registered_topics(None)
        whole.body = remoting_serializable.encode(RegisterBrokerBody(topics, []))
        whole.custom_header.bodyCrc32 = 0  # type: ignore[union-attr]  # of the other body
        alone = (request.ext_fields or {}).get(table_version.ALONE)
        if alone is not None:
            whole.add_ext_field(table_version.ALONE, alone)
        return whole

    def register(self, oneway: bool = False, alone: str | None = None) -> None:
        """Register the broker with all three."""
        self.controller.registration._do_register_broker_all(False, oneway, alone)

    def close(self) -> None:
        """End what was opened."""
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
    """One thing that happens; what is lost of one name server's permissions is not lost of another's."""
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
            cluster.register()  # before that changes tell them nothing, and there is nothing whose permission is wiped
    elif kind < 0.54 and not loses:
        change = rng.choice([RouteInfoManager.wipe_write_perm_of_broker_by_lock,
                             RouteInfoManager.add_write_perm_of_broker_by_lock])
        cluster.register()  # all have the same topics, whose permissions are changed
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
        cluster.controller.broker_config.brokerPermission = permission  # it is in the file of the broker's settings
        cluster.connect()
        cluster.register()  # as its start does
    else:
        cluster.losses = {address: rng.choice(["", "", "request", "answer"]) for address in OURS} if loses else {}
        if rng.random() < 0.4:
            topics.update_topic_config(TopicConfig(name, 3, 3))
            cluster.register(alone=name)
        else:
            # one whose state is unknown takes nothing of it, and nobody hears so: see the next one
            cluster.register(oneway=loses and rng.random() < 0.3)
        cluster.losses = {}


def compare_registrations(rng: random.Random) -> Counter[str]:
    """A broker tells two name servers changes and a third one everything: clients get the same from each."""
    taken: Counter[str] = Counter()
    clock, loses = itertools.count(1 << 41), rng.random() < 0.6  # two changes are never of one millisecond
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
            assert seen == expected[name], f"{address}, {name}: {seen}, told everything {expected[name]}"


def _no_gap(_self: RouteInfoManager, _registration: object) -> None:
    """Changes are taken whatever state they complete."""


WAYS = [
    Way("registration by change", "rmqha/broker/broker_outer_api.py::Registration",
        "the name server has said which state it has", "all topics", compare_registrations,
        (Plant("changes of an unknown state are taken", replaced(RouteInfoManager, "_check_gap", _no_gap)),
         Plant("the first change is missed", replaced(ChangeLog, "since", one_too_few))), seeds=15),
]
