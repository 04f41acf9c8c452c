"""A RocketMQ cluster within a test's process: name server, brokers, fault injection and a temporary folder.

    EmbeddedRocketMQ --> EmbeddedNameServer <-- EmbeddedBroker, one for each place in the topology --> TemporaryFolder
         |                                           ^
         +--> RequestFaults, and other faults -------+

`stored_messages` reads the messages of a topic from a running broker's store.
"""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rmqha.common import mix_all
from rmqha.common.compression import MOST_IN_ALL, BodyBudget
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.topics import TopicConfig
from rmqha.namesrv.kv_config_manager import KVConfigSerializeWrapper
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.addresses import PortError
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.testing.broker_keys import check_config
from rmqha.testing.cluster_parts import (
    EmbeddedError,
    TemporaryFolder,
    check_new_topic,
    parse_topology,
    wait_until,
)
from rmqha.testing.faults import SENDS, Fault, RequestFault, RequestFaults, codes_of, response_code_of
from rmqha.testing.node import EmbeddedBroker, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqha.store.consume_queue import ConsumeQueue
    from rmqha.store.default_message_store import DefaultMessageStore
    from rmqha.testing.cluster_admin import ClusterAdmin


class EmbeddedNameServer:
    """A name server on `port` (0: any free port) with its files in `folder`. It runs from its creation to `shutdown`.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self._kv_file = folder / "kvConfig.json"
        config = NamesrvConfig(rocketmqHome=str(folder), kvConfigPath=str(self._kv_file),
                               configStorePath=str(folder / "namesrv.properties"))
        self.controller = NamesrvController(config, ServerConfig(listenPort=port))
        try:
            self.controller.initialize()
            self.controller.start()
        except PortError as error:
            self.controller.shutdown()
            raise EmbeddedError(f"the name server can't start: {error}") from error

    @property
    def port(self) -> int:
        """The bound port."""
        return self.controller.local_listen_port

    def addresses(self) -> set[str]:
        """Return the addresses of all registered brokers."""
        cluster = self.controller.route_info_manager.get_all_cluster_info()
        return {address for broker in (cluster.brokerAddrTable or {}).values() for address in
                broker.brokerAddrs.values()}

    def forget_settings(self) -> None:
        """Delete all entries of its key-value table, which has the queue orders of topics."""
        text = mix_all.file2string(str(self._kv_file))
        if text is None:
            return
        table = remoting_serializable.from_json(KVConfigSerializeWrapper, text).configTable or {}
        for namespace, values in table.items():
            for key in values:
                self.controller.kv_config_manager.delete_kv_config(namespace, key)

    def shutdown(self) -> None:
        """Stop the name server. Idempotent."""
        self.controller.shutdown()


_TIMEOUT_S = 60


def stored_messages(broker: EmbeddedBroker, topic: str) -> list[MessageExt]:
    """Return a topic's messages on one broker, by queue and offset, as a consumer gets them; [] without the topic.

    The bodies share a BodyBudget: a body that is damaged or too large is replaced by a MissingBody.
    """
    store = broker.store
    reput = store.reput_message_service
    # Triggers the dispatch now. Without a waiter, the store gathers records for a few milliseconds first
    store.call_when_dispatched(_nothing)
    wait_until(lambda: store.dispatch_behind_bytes() <= 0 or reput.has_only_part_of_a_record(), _TIMEOUT_S,
               f"{broker.node} has put its messages into their queues")
    queues = sorted((queue for queue in store.all_consume_queues() if queue.topic == topic),
                    key=lambda queue: queue.queue_id)
    budget = BodyBudget(most_each=MOST_IN_ALL)
    messages = [message for queue in queues for message in _messages_of(store, queue, budget)]
    for message in messages:
        message.broker_name = broker.broker_name
    return messages


def _messages_of(store: DefaultMessageStore, queue: ConsumeQueue, budget: BodyBudget) -> Iterator[MessageExt]:
    for index in range(queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()):
        unit = queue.get_unit(index)
        record = store.select_one_message_by_offset(unit[0], unit[1]) if unit is not None and unit[1] else None
        # None if the file was deleted meanwhile
        if record is not None:
            with record:
                yield message_decoder.client_decode_or_missing(record.buffer, 0, budget)


def _nothing() -> None:
    """Do nothing: the caller polls."""


_LOGGERS = ("RocketmqBroker", "RocketmqCommon", "RocketmqFilter", "RocketmqNamesrv", "RocketmqProtection",
            "RocketmqRebalanceLock", "RocketmqRemoting", "RocketmqStats", "RocketmqStore", "RocketmqStoreError",
            "RocketmqTransaction", "RocketmqWaterMark", "RocketmqCommercial")
_FULL_DISK = "rmqha.testing"  # not the name of a real disk
_READY_S = 60
_AT_ONCE_MS = 1
_SOON_S = 0.06


class EmbeddedRocketMQ:
    """A name server and brokers on free ports, with small stores that are deleted at the end.

        with EmbeddedRocketMQ() as mq:
            producer = Producer("group", mq.namesrv_addr)

    `topology`: "1m", "1m-1s", "2m-2s" ...; `sync`: masters answer a send only when a slave has the message. `host`: the
    address of the name server and brokers for clients. `port`: the name server's port, 0 for any free port.
    `store_dir`: the parent of the temporary folder; None: in memory, if there is enough space. `config`: more keys of
    broker.conf, for all brokers.

    Only one thread, the test's, may use it. A call that it can't carry out raises EmbeddedError.

    The `rocketmq` fixture needs a clean broker for each test. Starting new processes each time would be slow, and
    deleting the topics is not enough: it leaves delayed messages, half transactions and the log itself, so that a test
    would depend on the tests before it. So `reset` keeps only the name server, whose key-value table it empties. It
    stops the brokers, deletes their folders, and starts new brokers on empty stores. Their files are small and not
    preallocated, so this takes some 40 ms.

    The new brokers use the ports of the old ones, so all addresses stay valid. Producers and consumers that outlive a
    test, because they belong to fixtures of a wider scope, reconnect. Each reset uses a new folder (`stores-<n>`), so
    the new stores are empty even if a file of the old ones could not be deleted. Faults belong to a test: they are
    healed after it, and requests that are still delayed at the reset are never served.
    """

    def __init__(self, topology: str = "1m", *, sync: bool = False, host: str = "127.0.0.1", port: int = 0,
                 store_dir: str | os.PathLike[str] | None = None, config: Mapping[str, object] | None = None) -> None:
        self.topology = topology
        self._places = parse_topology(topology)
        self._settings = Settings(host, sync, dict(config or {}))
        check_config(self._settings.config)
        self._port = port
        self._store_dir = store_dir
        # These three are set while the cluster is running. The brokers are by node, masters first
        self._folder: TemporaryFolder | None = None
        self._namesrv: EmbeddedNameServer | None = None
        self._brokers: dict[str, EmbeddedBroker] = {}
        self._stores = count()
        self._request_faults = RequestFaults()
        self._faults: list[Fault] = []
        self._admin: ClusterAdmin | None = None  # from its first use to `stop`
        # Of running brokers, by node, while open transactions are checked whatever their age
        self._time_outs: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"EmbeddedRocketMQ({self.topology!r}, {self.namesrv_addr if self._namesrv else 'down'})"

    # Life.

    def __enter__(self) -> EmbeddedRocketMQ:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all servers. On return the slaves are connected, and all brokers are registered at the name server."""
        if self._namesrv is not None:
            raise EmbeddedError("the cluster is already running")
        _keep_quiet()
        self._folder = TemporaryFolder(self._store_dir)
        try:
            self._namesrv = EmbeddedNameServer(self._folder.path, self._port)
            self._start_new_brokers()
        except BaseException:
            self.stop()
            raise

    def _start_new_brokers(self) -> None:
        assert self._folder is not None  # the cluster is running
        self._request_faults = RequestFaults()
        folder = self._folder.path / f"stores-{next(self._stores)}"
        old, self._brokers = self._brokers, {
            place.node: EmbeddedBroker(place, folder / place.node, self._settings, self.namesrv_addr)
            for place in self._places}
        for node, broker in old.items():
            self._brokers[node].take_port_of(broker)
        self._start_brokers(self._brokers.values())

    def stop(self) -> None:
        """Stop all servers and delete their data. Idempotent."""
        self._request_faults.shutdown()
        for fault in self._faults:
            fault.is_active = False
        self._faults.clear()
        self._close_admin()
        self._admin = None  # the next start has another address
        for broker in reversed(self._brokers.values()):
            broker.stop()
        self._brokers = {}
        if self._namesrv is not None:
            self._namesrv.shutdown()
            self._namesrv = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _close_admin(self) -> None:
        """Close the connections to brokers that are about to stop, before a request meets a broken one."""
        if self._admin is not None:
            self._admin.close()

    def reset(self) -> None:
        """Return to the state after the start, with the same addresses.

        No topic, group, message, offset or fault is left. The brokers are replaced by new ones with empty stores.
        Running producers and consumers reconnect.
        """
        namesrv = self._running()
        self.heal()
        self._close_admin()
        self._request_faults.shutdown()
        for broker in reversed(self._brokers.values()):
            broker.wipe()
        namesrv.forget_settings()
        self._start_new_brokers()

    # Servers.

    @property
    def is_running(self) -> bool:
        """True from `start` to `stop`."""
        return self._namesrv is not None

    def _running(self) -> EmbeddedNameServer:
        if self._namesrv is None:
            raise EmbeddedError("the cluster is not started; use `with EmbeddedRocketMQ() as mq`, or start()")
        return self._namesrv

    @property
    def namesrv_addr(self) -> str:
        """The address ("host:port") of the name server for clients. It stays the same until `stop`."""
        return f"{self._settings.host}:{self._running().port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process, with NAMESRV_ADDR, for clients in other processes."""
        return {**os.environ, "NAMESRV_ADDR": self.namesrv_addr}

    @property
    def admin(self) -> ClusterAdmin:
        """Requests to the cluster, as an admin tool sends them."""
        self._running()
        if self._admin is None:
            from rmqha.testing.cluster_admin import ClusterAdmin

            self._admin = ClusterAdmin(self.namesrv_addr)
        return self._admin

    @property
    def brokers(self) -> list[EmbeddedBroker]:
        """All brokers, masters first, including those that are down."""
        self._running()
        return list(self._brokers.values())

    def broker(self, node: str) -> EmbeddedBroker:
        """Return the broker with this name: "broker-a" (a master), "broker-a-s" (its slave) ..."""
        self._running()
        if node not in self._brokers:
            raise EmbeddedError(f"unknown broker {node!r}; {self.topology} has {', '.join(self._brokers)}")
        return self._brokers[node]

    def _masters(self) -> list[EmbeddedBroker]:
        return [broker for broker in self.brokers if broker.is_master]

    def _slaves(self) -> list[EmbeddedBroker]:
        return [broker for broker in self.brokers if not broker.is_master]

    # Topics and messages.

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic with `queues` queues on each running master. On return, the name server and slaves know it."""
        check_new_topic(name, queues)
        masters = [broker for broker in self._masters() if broker.is_running]
        if not masters:
            raise EmbeddedError(f"topic {name!r}: no master is running; restart() starts them again")
        for broker in masters:
            config = TopicConfig(name, queues, queues)
            broker.controller.topic_config_manager.update_topic_config(config)
            broker.controller.registration.register_increment_broker_data(config)
        self._copy_tables()
        for slave, _master in self._connected_pairs():
            if name not in slave.controller.topic_config_manager.topic_config_table:
                raise EmbeddedError(f"{slave.node} does not have topic {name!r} yet; see the logger RocketmqBroker for "
                                    "the reason")

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages."""
        self.admin.delete_topic(name)

    def delete_group(self, name: str) -> None:
        """Delete a consumer group with its offsets, its retry topic and its dead letters."""
        self.admin.delete_group(name)

    def messages(self, topic: str, node: str | None = None) -> list[MessageExt]:
        """Return all messages of a topic, by broker, queue and offset; [] if the topic does not exist (yet).

        They are read from the masters, or from the slave of a master that is down; with `node`, only from that broker.
        """
        if node is not None:
            return stored_messages(self.broker(node), topic)
        return [message for master in self._masters() for message in stored_messages(self._readable(master), topic)]

    def _readable(self, master: EmbeddedBroker) -> EmbeddedBroker:
        """Return the master, or a running slave of it if it is down."""
        return next((broker for broker in self.brokers
                     if broker.broker_name == master.broker_name and broker.is_running), master)

    def hurry_transaction_checks(self, on: bool) -> None:
        """Have the masters check open transactions of any age now; each call begins another round. `on` False: restore
        transactionTimeOut."""
        for broker in (broker for broker in self._masters() if broker.is_running):
            config = broker.controller.broker_config
            if not on:
                config.transactionTimeOut = self._time_outs.pop(broker.node, config.transactionTimeOut)
                continue
            self._time_outs.setdefault(broker.node, config.transactionTimeOut)
            config.transactionTimeOut = _AT_ONCE_MS
            broker.controller.transactional_message_check_service.wakeup()

    # Replication.

    def wait_for_slaves(self, timeout_s: float = 60) -> None:
        """Wait until each slave has all data of its master: the log, topics, groups and consumers' offsets."""
        pairs = self._connected_pairs()
        left_out = {slave.node for slave in self._slaves()} - {slave.node for slave, _master in pairs}
        if left_out:
            raise EmbeddedError(f"{', '.join(sorted(left_out))} can't replicate: it or its master is down, or it is "
                                "cut off")
        for slave, master in pairs:
            wait_until(partial(_has_all, slave, master), timeout_s, f"{slave.node} has all data of {master.node}")
        self._copy_tables()

    def _copy_tables(self) -> None:
        """Have the slaves copy their masters' tables now; they do it on their own only every 10 s."""
        for slave, _master in self._connected_pairs():
            slave.controller.slave_synchronize.sync_all()

    def _connected_pairs(self) -> list[tuple[EmbeddedBroker, EmbeddedBroker]]:
        """Return pairs of a slave and its master that are both running, with a link that is not cut."""
        return [(slave, self._brokers[slave.broker_name]) for slave in self._slaves() if slave.is_running
                and self._brokers[slave.broker_name].is_running and not slave.is_cut_off]

    # Kills and restarts.

    def kill_master(self, name: str | None = None) -> str:
        """Kill a master as SIGKILL would, and return its name. `name`: such as "broker-a"; None: the first that is
        running.

        The name server has noticed it when this returns.
        """
        running = [broker for broker in self._masters() if broker.is_running]
        if name is None and not running:
            raise EmbeddedError("no master is running; restart() starts them again")
        master = self.broker(name) if name is not None else running[0]
        if not master.is_master:
            raise EmbeddedError(f"{name} is a slave; use kill({name!r})")
        self.kill(master.node)
        return master.node

    def kill(self, node: str) -> None:
        """Kill a broker like SIGKILL. The name server has noticed it when this returns."""
        namesrv, broker = self._running(), self.broker(node)
        address = broker.address
        self._close_admin()
        broker.kill()
        wait_until(lambda: address not in namesrv.addresses(), _READY_S, f"the name server has noticed {node}'s end")

    def restart(self, node: str | None = None) -> None:
        """Stop and start all brokers, or one; start those that are down. Data and addresses stay; faults are healed."""
        brokers = [self.broker(node)] if node is not None else self.brokers
        self.heal()
        self._close_admin()
        for broker in reversed(brokers):
            broker.stop()
        self._start_brokers(brokers)

    def _start_brokers(self, brokers: Iterable[EmbeddedBroker]) -> None:
        for broker in brokers:
            master = self._brokers[broker.broker_name]
            broker.start(master.ha_address if not broker.is_master and master.is_running else None)
        self._connect_slaves()

    def _connect_slaves(self) -> None:
        """Connect all slaves to their masters, and wait until they are connected."""
        pairs = self._connected_pairs()
        for slave, master in pairs:
            wait_until(partial(_has_followed, slave, master), _READY_S, f"{slave.node} follows {master.node}")
        self._copy_tables()

    # Faults.

    def slow_down(self, ms: float, requests: Iterable[str] | None = None) -> Fault:
        """Delay each request to a broker by `ms`. `requests`: names of RocketMQ's request codes, such as
        "PULL_MESSAGE"; None: all requests."""
        if not ms > 0:
            raise EmbeddedError(f"slow_down by {ms} ms: the delay must be greater than 0")
        codes = None if requests is None else codes_of(requests)
        return self._add_request_fault(RequestFault(f"requests wait {ms:g} ms", self._heal_requests, codes, ms))

    def refuse(self, code: str, times: int | None = None, requests: Iterable[str] = SENDS,
               remark: str = "refused by the test") -> Fault:
        """Answer the next `times` (None: all) requests with a response code. Refused messages are not stored.

        `code`: RocketMQ's name of the response code, such as "SYSTEM_BUSY". `requests`: names of request codes; the
        default is all sends.
        """
        if times is not None and times < 1:
            raise EmbeddedError(f"refuse {times} times: it must be 1 or more, or None for all")
        number, codes = response_code_of(code), codes_of(requests)
        what = f"{'all' if times is None else times} requests are refused with {code}"
        return self._add_request_fault(RequestFault(what, self._heal_requests, codes, refusal=(number, remark),
                                                    times=times))

    def _add_request_fault(self, fault: RequestFault) -> Fault:
        self._request_faults.add(fault, [broker.controller for broker in self.brokers if broker.is_running])
        return self._add(fault)

    def _heal_requests(self, fault: Fault) -> None:
        self._request_faults.remove(fault)
        self._faults.remove(fault)

    def fill_disk(self, node: str | None = None) -> Fault:
        """Simulate a full disk of one or all brokers: sends fail with SERVICE_NOT_AVAILABLE, and reads still work."""
        return self._mark([self.broker(node)] if node is not None else self.brokers, "the disk is full",
                          lambda broker: broker.store.running_flags.get_and_make_disk_full(_FULL_DISK),
                          lambda broker: broker.store.running_flags.get_and_make_disk_ok(_FULL_DISK))

    def partition(self, name: str | None = None) -> Fault:
        """Cut the link between the master `name` (None: each master) and its slaves: they do not replicate until the
        fault is healed. Clients still reach both sides."""
        slaves = [slave for slave in self._slaves() if name is None or slave.broker_name == self.broker(name).node]
        if not slaves:
            raise EmbeddedError(f"topology {self.topology} has no slaves to cut off"
                                + (f" from {name}" if name else ""))
        fault = self._mark(slaves, "slaves are cut off", EmbeddedBroker.cut_off, EmbeddedBroker.end_cut,
                           self._connect_slaves)
        for master in {self._brokers[slave.broker_name] for slave in slaves}:
            if master.is_running:
                master.store.ha_service.destroy_connections()
        return fault

    def _mark(self, brokers: Iterable[EmbeddedBroker], what: str, begin: Callable[[EmbeddedBroker], object],
              end: Callable[[EmbeddedBroker], object], at_last: Callable[[], object] | None = None) -> Fault:
        met = [broker for broker in brokers if broker.is_running]

        def undo(fault: Fault) -> None:
            self._faults.remove(fault)
            for broker in met:
                if broker.is_running:
                    end(broker)
            if at_last is not None:
                at_last()

        for broker in met:
            begin(broker)
        return self._add(Fault(f"{what}: {', '.join(broker.node for broker in met)}", undo))

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    @property
    def faults(self) -> list[Fault]:
        """The active faults."""
        return list(self._faults)

    def heal(self) -> None:
        """End all faults."""
        for fault in self.faults:
            fault.heal()


def _has_all(slave: EmbeddedBroker, master: EmbeddedBroker) -> bool:
    return slave.store.get_max_phy_offset() >= master.store.get_max_phy_offset()


def _has_followed(slave: EmbeddedBroker, master: EmbeddedBroker) -> bool:
    """Return True if the slave connects within 60 ms. Otherwise have it connect again now.

    After a failed connect, the slave would pause for seconds on its own.
    """
    try:
        wait_until(partial(_follows, slave, master), _SOON_S, "")
    except EmbeddedError:
        slave.follow(master.ha_address)
        return False
    return True


def _follows(slave: EmbeddedBroker, master: EmbeddedBroker) -> bool:
    address = slave.store.ha_service.ha_client.local_address
    return address != "" and any(one.client_addr == address and one.is_serving
                                 for one in master.store.ha_service.connection_list)


def _keep_quiet() -> None:
    """Silence the servers' loggers, unless the program has set up logging."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
