"""An unexpected exception in a service ends one round, not the service; one is planted into each of them.

Each ServiceThread of rmqha has a plan: how to run it, which of its steps fails once, and the work that its next round
has to do.
"""
import importlib
import logging
import pkgutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import rmqha
from rmqha.acl.acl_files import AclFileWatchService
from rmqha.broker.controller.controller_heartbeat import ControllerHeartbeat, MasterLease
from rmqha.broker.controller.replicas_manager import State
from rmqha.broker.controller.role_callback import RoleCallback
from rmqha.client.async_trace_dispatcher import AsyncTraceDispatcher
from rmqha.client.client_config import AccessChannel
from rmqha.client.impl.consumer.pulling import PullMessageService
from rmqha.client.impl.consumer.rebalance import RebalanceService
from rmqha.client.trace import TraceBean, TraceContext, TraceDispatcherType, TraceType
from rmqha.common import process
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.file_watch_service import FileWatchService
from rmqha.common.metrics import Page
from rmqha.common.process import StallWatch
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import BrokerHeartbeatResponseHeader, GetReplicaInfoResponseHeader
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import ScheduledService
from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness
from rmqha.controller.controller_manager import BrokerLivenessWatch
from rmqha.controller.etcd_store import EtcdStore
from rmqha.remoting.http_port import HttpPort
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import PeerWatch, RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha.ha_connection_state_notification_service import HAConnectionStateNotificationRequest
from rmqha.store.ha.log_comparison import read_tail
from rmqha.store.ha.peers import HAConnectionState
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.store.results import PutMessageStatus
from rmqha.tools.view.questions import ViewPoller
from rmqha.tools.view.snapshot import History, Snapshot
from tests.broker.support import registered_manager, running_broker
from tests.store.ha.support import Peer
from tests.store.support import bodies, message, open_store, put, wait_dispatched
from tests.support.auto_switch import RmqhaReplica, wait_same_end
from tests.support.etcd import FakeEtcd, FakeEtcdClient
from tests.support.raw_remoting import http_get
from tests.support.wait import wait_until

# They need optional libraries, and have no services.
_WITHOUT_EXTRAS = ("rmqha.pipeline", "rmqha.tools.top.top_app", "rmqha.tools.console.app", "rmqha.tools.console.server")


def _service_classes() -> list[type[ServiceThread]]:
    for module in pkgutil.walk_packages(rmqha.__path__, "rmqha."):
        if not module.name.startswith(_WITHOUT_EXTRAS):
            importlib.import_module(module.name)
    found, left = [], [ServiceThread]
    while left:
        kinds = left.pop().__subclasses__()
        left += kinds
        found += [kind for kind in kinds if kind.__module__.startswith("rmqha.")
                  and kind.run is not ServiceThread.run]
    return sorted(set(found), key=lambda kind: kind.__name__)


@dataclass
class Plan:
    """A running service. `step` (owner, name) is called in each round, `poke` triggers a round, `work` raises unless
    the service works."""

    service: ServiceThread
    step: tuple[object, str]
    work: Callable[[], object]
    poke: Callable[[], object] = lambda: None


class Plant:
    """Replaces a method and fails once."""

    def __init__(self, owner: object, name: str, error: BaseException) -> None:
        self._real, self._error = getattr(owner, name), error
        self.has_failed = threading.Event()

    def __call__(self, *args, **kwargs):
        if not self.has_failed.is_set():
            self.has_failed.set()
            raise self._error
        return self._real(*args, **kwargs)


PLANS: dict[str, Callable] = {}


def plan_of(*names: str):
    def register(make: Callable) -> Callable:
        for name in names:
            PLANS[name] = contextmanager(make)
        return make
    return register


def _started(service: ServiceThread, stack: ExitStack) -> ServiceThread:
    service.start()
    stack.callback(service.shutdown)
    return service


# ---- common, acl, remoting


@plan_of("FileWatchService")
def _file_watch(folder) -> Iterator[Plan]:
    file, seen = folder / "cert.pem", []
    file.write_text("old")
    service = FileWatchService([str(file)], seen.append)
    service.watch_interval_ms = 5

    def work() -> None:
        new = folder / "new"
        new.write_text("new")
        new.replace(file)
        wait_until(lambda: seen == [str(file)])

    with ExitStack() as stack:
        yield Plan(_started(service, stack), (service, "_check_file"), work)


@plan_of("AclFileWatchService")
def _acl_watch(folder) -> Iterator[Plan]:
    seen = []
    listener = SimpleNamespace(on_file_changed=seen.append, on_file_num_changed=seen.append)
    service = AclFileWatchService(str(folder), str(folder / "none"), listener)
    service.remember()

    def work() -> None:
        (folder / "plain_acl.yml").write_text("accounts:")
        wait_until(lambda: service.wakeup() or seen)

    with ExitStack() as stack:
        yield Plan(_started(service, stack), (service, "_stamps"), work, service.wakeup)


@plan_of("ScheduledService")
def _scheduled(folder) -> Iterator[Plan]:
    service, ran = ScheduledService("StoreScheduledThread1"), threading.Event()
    service.schedule_at_fixed_rate(lambda: None, 0, 1)
    with ExitStack() as stack:
        stack.callback(service.shutdown)
        yield Plan(service, (service, "_take"), lambda: (service.schedule(ran.set, 1), wait_until(ran.is_set)))


class _Echo:
    def process_request(self, _channel, request: RemotingCommand) -> RemotingCommand:
        response = RemotingCommand.create_response_command(0, "echo")
        response.body = request.body
        return response

    def reject_request(self) -> bool:
        return False


class _Events:
    def __init__(self) -> None:
        self.seen = []

    def __getattr__(self, name: str) -> Callable:
        return lambda addr, _channel: self.seen.append(name)


def _serving(stack: ExitStack) -> tuple[RemotingServer, _Events, Callable[[], None]]:
    """Return a server that echoes, the events of its listener, and a function that calls it from a new client."""
    events = _Events()
    server = RemotingServer(ServerConfig(listenPort=0), events)
    server.register_default_processor(_Echo())
    server.start()
    stack.callback(server.shutdown)

    def call() -> None:
        client = RemotingClient(RemotingClientConfig())
        client.start()
        try:
            request = RemotingCommand.create_request_command(1)
            request.body = b"hello"
            answer = client.invoke_sync(f"127.0.0.1:{server.local_listen_port}", request, 20_000)
            assert bytes(answer.body) == b"hello"
        finally:
            client.shutdown()

    return server, events, call


@plan_of("IoThread")
def _io_thread(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        server, _events, call = _serving(stack)
        yield Plan(server.io, (server.io._selector, "select"), call, server.io.wakeup)


@plan_of("HttpPort")
def _http_port(folder) -> Iterator[Plan]:
    service = HttpPort("127.0.0.1", 0, "metricsPort", lambda path: Page(200, "text/plain", [path.encode()]))
    with ExitStack() as stack:
        _started(service, stack)
        yield Plan(service, (service, "_accept_all"), lambda: http_get(service.local_port, "/x")[1] == b"/x" or 1 / 0,
                   service.wakeup)


@plan_of("BrokerLivenessWatch")
def _broker_liveness_watch(folder) -> Iterator[Plan]:
    liveness, silent = BrokerLiveness(3000), []
    service = BrokerLivenessWatch(liveness, lambda: 5, silent.append)

    def work() -> None:
        liveness.heartbeat(BrokerLiveInfo(("c", "b", 1), "h:1", time.monotonic_ns(), 5, None))
        wait_until(lambda: len(silent) == 1)

    with ExitStack() as stack:
        yield Plan(_started(service, stack), (service, "look"), work, service.wakeup)


@plan_of("EventExecutor")
def _event_executor(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        server, events, call = _serving(stack)
        executor = server.event_executor
        yield Plan(executor, (executor, "_deliver"),
                   lambda: (call(), wait_until(lambda: "on_channel_close" in events.seen)), executor.wakeup)


# ---- store


def _store(folder, stack: ExitStack, **keys):
    return stack.enter_context(open_store(folder / "store", **keys))


@plan_of("ReputMessageService")
def _reput(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        store = _store(folder, stack)
        service = store.reput_message_service
        yield Plan(service, (service, "do_reput"), lambda: (
            put(store, message(body=b"one")), wait_dispatched(store), bodies(store).index(b"one")), service.wakeup)


def _flush_plan(folder, step: str, **keys) -> Iterator[Plan]:
    with ExitStack() as stack:
        store = _store(folder, stack, **keys)
        service = store.commit_log.flush_commit_log_service

        def work() -> None:
            put(store, message())
            wait_until(lambda: store.commit_log.remain_how_many_data_to_flush() == 0)
            assert store.running_flags.is_writeable

        yield Plan(service, (service, step), work, service.wakeup)


@plan_of("FlushRealTimeService")
def _flush_real_time(folder) -> Iterator[Plan]:
    yield from _flush_plan(folder, "wait_for_running", flushIntervalCommitLog=5, flushCommitLogLeastPages=0)


@plan_of("GroupCommitService")
def _group_commit(folder) -> Iterator[Plan]:
    yield from _flush_plan(folder, "_do_commit", flushDiskType=FlushDiskType.SYNC_FLUSH)


@plan_of("CommitRealTimeService")
def _commit_real_time(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        store = _store(folder, stack, transientStorePoolEnable=True, transientStorePoolSize=2,
                       commitIntervalCommitLog=5)
        service = store.commit_log.commit_log_service
        yield Plan(service, (service, "_commit"), lambda: (
            put(store, message(body=b"one")), wait_until(lambda: store.get_max_phy_offset() > 0)), service.wakeup)


@plan_of("FlushDiskWatcher")
def _flush_disk_watcher(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        service = _store(folder, stack).commit_log.flush_disk_watcher

        def work() -> None:
            request = GroupCommitRequest(1, 0)
            service.add(request)
            assert request.get(120_000) is PutMessageStatus.FLUSH_DISK_TIMEOUT

        yield Plan(service, (service, "_complete_overdue"), work, service.wakeup)


@plan_of("FlushConsumeQueueService")
def _flush_consume_queue(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        store = _store(folder, stack, flushIntervalConsumeQueue=5, flushConsumeQueueLeastPages=0)
        service = store.flush_consume_queue_service

        def work() -> None:
            put(store, message())
            wait_dispatched(store)
            queue = store.consume_queue_table.find_queue("T", 0).mapped_file_queue
            wait_until(lambda: queue.flushed_where == queue.get_max_offset())

        yield Plan(service, (service, "do_flush"), work, service.wakeup)


@plan_of("StoreStatsService")
def _store_stats(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        service = _store(folder, stack).store_stats_service

        def work() -> None:
            samples = len(service._samples)
            wait_until(lambda: service.wakeup() or len(service._samples) > samples)

        yield Plan(service, (service, "sampling"), work, service.wakeup)


@plan_of("StallWatch")
def _stall_watch(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        service = StallWatch(20)
        service.start()
        stack.callback(service.shutdown)
        told: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: told.append(record.getMessage())
        logging.getLogger("RocketmqCommon").addHandler(handler)
        stack.callback(logging.getLogger("RocketmqCommon").removeHandler, handler)
        yield Plan(service, (process, "_waited_for_a_core"), lambda: wait_until(
            lambda: sum(range(5_000_000)) and any("had a turn" in line for line in told)), service.wakeup)


@plan_of("AllocateMappedFileService")
def _allocate(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        store = _store(folder, stack)
        service, names = store.allocate_mapped_file_service, iter(range(0, 1 << 30, 1 << 20))

        def ask() -> object:
            return service.put_request_and_return_mapped_file(
                str(folder / f"{next(names):020}"), str(folder / f"{next(names):020}"), 4096)

        yield Plan(service, (service, "_mmap_operation"), lambda: wait_until(ask),
                   lambda: _ask_unheard(service, folder))


def _ask_unheard(service, folder) -> None:
    with service._lock:
        service._submit(str(folder / f"{1 << 31:020}"), 4096, True)
    service.wakeup()


# ---- replication


def _pair(folder, stack: ExitStack):
    """Return a SYNC_MASTER, a slave that follows it, and a put that both acknowledge."""
    master = stack.enter_context(open_store(folder / "master", brokerRole=BrokerRole.SYNC_MASTER,
                                            haSendHeartbeatInterval=100))
    slave = stack.enter_context(open_store(folder / "slave", brokerRole=BrokerRole.SLAVE, haSendHeartbeatInterval=100))
    slave.update_ha_master_address(f"127.0.0.1:{master.ha_service.ha_listen_port}")
    wait_until(lambda: master.ha_service.slave_count() == 1)

    def work() -> None:
        wait_until(lambda: _put_status(master) is PutMessageStatus.PUT_OK, what="an acknowledged put")
        wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset())

    return master, slave, work


def _put_status(store) -> PutMessageStatus:
    return store.put_message(message()).put_message_status


@plan_of("AcceptSocketService")
def _accept(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, _slave, work = _pair(folder, stack)
        service = master.ha_service.accept_socket_service

        def work_with_another() -> None:
            with Peer.connect(master) as peer:
                wait_until(lambda: master.ha_service.connection_count.get() == 2)
                peer.close()
            work()

        yield Plan(service, (service, "_accept_all"), work_with_another, service.wakeup)


@plan_of("GroupTransferService")
def _group_transfer(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, _slave, work = _pair(folder, stack)
        service = master.ha_service.group_transfer_service

        def work_and_time_out() -> None:
            work()
            request = GroupCommitRequest(1 << 40, 0)
            service.put_request(request)
            assert request.get(120_000) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT

        yield Plan(service, (service, "_do_wait_transfer"), work_and_time_out, service.wakeup)


@plan_of("HAConnectionStateNotificationService")
def _notification(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, _slave, _work = _pair(folder, stack)
        service = master.ha_service.ha_connection_state_notification_service
        # Otherwise the service starts with the first request.
        service.start()

        def work() -> None:
            request = HAConnectionStateNotificationRequest(HAConnectionState.TRANSFER, "127.0.0.1", True)
            master.ha_service.put_group_connection_state_request(request)
            assert request.request_future.get(120_000) is True

        yield Plan(service, (service, "_do_wait_connection_state"), work, service.wakeup)


@plan_of("HAClient")
def _ha_client(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, slave, work = _pair(folder, stack)
        client = slave.ha_service.ha_client

        # The break makes it run its loop once more.
        def break_off() -> None:
            master.ha_service.destroy_connections()

        yield Plan(client, (client, "_close_master"), work, break_off)


@plan_of("ScrubService")
def _scrub(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, slave, put_one = _pair(folder, stack)
        service = slave.ha_service.scrub_service

        def ask(_address: str, offset: int, block_size: int, count: int) -> LogChecksums:
            crcs = (read_tail(master, offset + number * block_size, block_size) for number in range(count))
            return LogChecksums(0, master.get_max_phy_offset(), tuple(crc for crc in crcs if crc is not None))
        service.ask_checksums = ask

        def work() -> None:
            put_one()
            wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset(), what="replicated")
            wait_until(lambda: service.wakeup() or service.state.position == slave.get_max_phy_offset(),
                       what="all is compared")
            assert service.state.compared_bytes and not service.state.differences

        yield Plan(service, (service, "_step"), work, service.wakeup)


@plan_of("ReadSocketService")
def _read_socket(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, _slave, work = _pair(folder, stack)
        service = master.ha_service.connection_list[0].read_socket_service
        yield Plan(service, (service, "hear"), work)


@plan_of("WriteSocketService")
def _write_socket(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, _slave, work = _pair(folder, stack)
        service = master.ha_service.connection_list[0].write_socket_service
        yield Plan(service, (service, "_transfer_once"), work)


def _auto_switch(folder, stack: ExitStack):
    master, slave = RmqhaReplica(folder / "a", 1).start(), RmqhaReplica(folder / "b", 2)
    stack.callback(master.shutdown)
    slave.start()
    stack.callback(slave.shutdown)
    master.promote(2)
    slave.follow(master.address, 2)
    numbers = iter(range(1 << 30))

    def work() -> None:
        wait_until(lambda: len(master.service.sync_state_set.members) == 2)
        wait_until(lambda: master._put(next(numbers), 100))
        wait_same_end(master, slave)

    work()
    return master, slave, work


@plan_of("AutoSwitchHAClient")
def _auto_switch_client(folder) -> Iterator[Plan]:
    with ExitStack() as stack:
        master, slave, work = _auto_switch(folder, stack)
        client = slave.service.ha_client
        yield Plan(client, (client, "_close_master"), work, master.service.destroy_connections)


# ---- broker


class _Active:
    is_active = True


@plan_of("PullRequestHoldService")
def _pull_request_hold(folder) -> Iterator[Plan]:
    with running_broker(folder) as broker:
        service, scans = broker.controller.pull_request_hold_service, []
        request = SimpleNamespace(pull_from_this_offset=0, is_expired=lambda _now: scans.append(1),
                                  client_channel=_Active())

        def work() -> None:
            service.suspend_pull_request("T", 0, request)
            begin = len(scans)
            wait_until(lambda: service.wakeup() or len(scans) > begin + 1)

        yield Plan(service, (service, "check_hold_request"), work, service.wakeup)
        service.pull_request_table.clear()


@plan_of("TransactionalMessageCheckService")
def _transaction_check(folder) -> Iterator[Plan]:
    with running_broker(folder) as broker:
        controller, checks = broker.controller, []
        controller.transactional_message_service.check = lambda *args: checks.append(args)
        service = controller.transactional_message_check_service
        yield Plan(service, (controller.transactional_message_service, "check"),
                   lambda: wait_until(lambda: service.wakeup() or checks), service.wakeup)


@plan_of("ReplicasManager")
def _replicas_manager(_folder) -> Iterator[Plan]:
    manager, looks = registered_manager(syncBrokerMetadataPeriod=60_000), []
    manager.state, manager.controller_leader_address = State.RUNNING, "leader"
    manager.api.get_replica_info = lambda *_args: looks.append(1) or (
        GetReplicaInfoResponseHeader(masterBrokerId=2, masterAddress="127.0.0.1:1", masterHaAddress="127.0.0.1:2"),
        SyncStateSet())
    manager.start()
    try:
        yield Plan(manager, (manager, "_sync_broker_metadata"),
                   lambda: wait_until(lambda: manager.wakeup() or looks), manager.wakeup)
    finally:
        manager.shutdown()


@plan_of("RoleCallback")
def _role_callback(folder) -> Iterator[Plan]:
    told = folder / "told"
    config = BrokerConfig(onRoleChange=f"sh -c 'echo $0 >> {told}'", onRoleChangeTimeoutMills=60_000)
    service = RoleCallback(config, SimpleNamespace(broker_addr="", ha_server_addr=""), MasterLease(), lambda: 1)

    def work() -> None:
        service.becomes_slave(1, "127.0.0.1:1", None)
        wait_until(lambda: told.exists() and told.read_text().endswith("slave\n"))

    with ExitStack() as stack:
        yield Plan(_started(service, stack), (service, "_tell"), work, lambda: service.becomes_slave(2, "", None))


@plan_of("ControllerHeartbeat")
def _controller_heartbeat(_folder) -> Iterator[Plan]:
    manager, beats = registered_manager(), []
    manager.api.send_heartbeat = lambda *args: beats.append(args) or BrokerHeartbeatResponseHeader(leaseMillis=0)
    with ExitStack() as stack:
        stack.callback(manager.shutdown)
        heartbeat = _started(ControllerHeartbeat(manager, "127.0.0.1:1", 1), stack)
        yield Plan(heartbeat, (manager.api, "send_heartbeat"),
                   lambda: wait_until(lambda: heartbeat.wakeup() or beats), heartbeat.wakeup)


# ---- controller


def _etcd_store() -> EtcdStore:
    client = FakeEtcdClient(FakeEtcd())
    client.watch_s = 1.0
    return EtcdStore(ControllerConfig(etcdLeaseSeconds=1), "n0", "n0:1", client=client)


@plan_of("ControllerElectionService")
def _controller_election(_folder) -> Iterator[Plan]:
    store = _etcd_store()
    store.start()
    try:
        yield Plan(store._leadership._election, (store._leadership, "_step"), lambda: wait_until(lambda: store.leads),
                   store._leadership.wake_election)
    finally:
        store.shutdown()


@plan_of("PeerWatch")
def _peer_watch(_folder) -> Iterator[Plan]:
    looks = []
    with ExitStack() as stack:
        service = _started(PeerWatch("ControllerLeaderWatch", lambda: looks.append(1) or "127.0.0.1:1", str), stack)

        def work() -> None:
            before = len(looks)
            wait_until(lambda: service.wakeup() or len(looks) > before)
        yield Plan(service, (service, "_ends_for_good"), work, service.wakeup)


@plan_of("ControllerKeepAliveService")
def _controller_keep_alive(_folder) -> Iterator[Plan]:
    store = _etcd_store()
    store.start()
    service = store._leadership._keep_alive
    try:
        wait_until(lambda: store.leads)

        def work() -> None:
            until_ns = store._leadership._until_ns
            wait_until(lambda: store._leadership._until_ns > until_ns)
        yield Plan(service, (store._client, "keep_alive"), work, service.wakeup)
    finally:
        store.shutdown()


# ---- client


@plan_of("PullMessageService")
def _pull_message(folder) -> Iterator[Plan]:
    pulled = []
    consumer = SimpleNamespace(pull_message=pulled.append)
    service = PullMessageService(lambda _group: consumer)
    request = SimpleNamespace(consumer_group="g")

    def ask() -> None:
        service.execute_pull_request_immediately(request)

    with ExitStack() as stack:
        yield Plan(_started(service, stack), (service, "_pull_message"), lambda: (ask(), wait_until(lambda: pulled)),
                   ask)


@plan_of("RebalanceService")
def _rebalance(folder) -> Iterator[Plan]:
    rounds = []
    service = RebalanceService(lambda: rounds.append(1))
    with ExitStack() as stack:
        yield Plan(_started(service, stack), (service, "_do_rebalance"),
                   lambda: wait_until(lambda: service.wakeup() or rounds), service.wakeup)


class _TraceProducer(SimpleNamespace):
    def start(self) -> None:
        self.sent = []

    def send_async(self, message, callback, _timeout_ms) -> None:
        self.sent.append(message)
        callback.on_success(None)

    def shutdown(self) -> None:
        """Do nothing: no connection was opened."""


@plan_of("AsyncTraceDispatcher")
def _trace_dispatcher(folder) -> Iterator[Plan]:
    producer = _TraceProducer()
    dispatcher = AsyncTraceDispatcher("g", TraceDispatcherType.PRODUCE, "Traces", producer)
    dispatcher.start("127.0.0.1:1", AccessChannel.LOCAL)
    try:
        yield Plan(dispatcher, (dispatcher, "_send_data_by_time_threshold"), lambda: (
            dispatcher.append(_trace()), wait_until(lambda: dispatcher._on_their_way == 0)), dispatcher.wakeup)
    finally:
        dispatcher.shutdown()


def _trace() -> TraceContext:
    return TraceContext(TraceType.EndTransaction, trace_beans=[TraceBean()])


# ---- tools


@plan_of("ViewPoller")
def _view_poller(folder) -> Iterator[Plan]:
    poller = ViewPoller(SimpleNamespace(collect=lambda: Snapshot(1, time.monotonic())), History(), 1.0)

    def work() -> None:
        before = poller.latest
        wait_until(lambda: poller.wakeup() or poller.latest is not before, what="a new picture")

    with ExitStack() as stack:
        yield Plan(_started(poller, stack), (poller, "_round"), work, poller.wakeup)


# ---- the tests


def test_each_service_has_a_plan():
    assert {kind.__name__ for kind in _service_classes()} == PLANS.keys()


@pytest.mark.parametrize("error", [RuntimeError("planted"), SystemExit("planted")], ids=["error", "exit"])
@pytest.mark.parametrize("name", sorted(PLANS))
def test_service_continues_after_an_exception(name, error, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    with PLANS[name](tmp_path) as plan:
        service = plan.service
        plant = Plant(*plan.step, error)
        monkeypatch.setattr(*plan.step, plant)
        wait_until(lambda: plan.poke() or plant.has_failed.is_set(), what="a round that fails")
        plan.work()

        def is_logged() -> bool:
            return any(service.get_service_name() in record.getMessage() for record in list(caplog.records)
                       if record.levelno >= logging.WARNING and record.exc_info and record.exc_info[1] is error)

        wait_until(is_logged, what="the exception in the log, with the service's name")
        if service.goes_on:
            assert service.is_alive() and service.failure is None
        else:
            # It ends with its connection; `work` has shown that another one serves.
            wait_until(lambda: not service.is_alive())


def test_io_thread_with_a_broken_selector_closes_its_port_and_reports_it(caplog):
    with ExitStack() as stack:
        server, _events, call = _serving(stack)
        call()
        peer = socket.create_connection(("127.0.0.1", server.local_listen_port), 120)
        stack.callback(peer.close)
        wait_until(lambda: server.io.channels)
        told = []
        server.io.on_failed = told.append
        server.io._pause_after = lambda _failures: None

        def broken(_timeout_s) -> list:
            raise OSError("selector")

        server.io._selector.select = broken
        server.io.wakeup()
        wait_until(lambda: told)
        assert told == [server.io] and "NettyServerNIOSelector_1_1 service gives up" in caplog.text
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.local_listen_port), 120)


def test_port_is_closed_when_its_thread_cannot_start(monkeypatch):
    server = RemotingServer(ServerConfig(listenPort=0))

    def no_thread(_thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="new thread"):
        server.start()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.local_listen_port), 120)


def test_accepting_service_with_a_broken_socket_reports_it(tmp_path, caplog):
    with open_store(tmp_path) as store:
        service = store.ha_service.accept_socket_service
        told = []
        service.on_failed, service._pause_after = told.append, lambda _failures: None
        service._server_socket.close()  # no production code does this
        service.wakeup()
        wait_until(lambda: told)
        assert "AcceptSocketService service gives up" in caplog.text and not service.is_alive()


def test_broker_without_its_port_reports_the_reason_and_exits(tmp_path, capsys, monkeypatch):
    from rmqha.broker import broker_startup
    from rmqha.common import server_util
    from rmqha.common.program import StopSignal
    from tests.broker.support import new_controller

    controller, stop = new_controller(tmp_path), StopSignal()
    codes = []
    runner = threading.Thread(target=lambda: codes.append(broker_startup.run(controller, stop)))
    runner.start()
    try:
        wait_until(lambda: controller.message_store is not None and not controller.message_store.is_shutdown
                   and controller.remoting_server.io._selector is not None)
        io = controller.remoting_server.io

        def broken(_timeout_s) -> list:
            raise OSError("selector")

        io._pause_after = lambda _failures: None
        io._selector.select = broken
        io.wakeup()
        runner.join(240)
    finally:
        stop.set()
        runner.join(240)
    assert codes == [server_util.EXIT_SERVICE_FAILED]
    assert "The broker cannot continue and is shutting down: NettyServerNIOSelector_1_1 failed: OSError('selector')" \
        in capsys.readouterr().err
    assert controller.message_store.shut_down_normal


def test_failing_channel_does_not_block_the_others_of_its_thread(caplog):
    with ExitStack() as stack:
        server, _events, call = _serving(stack)
        peer = socket.create_connection(("127.0.0.1", server.local_listen_port), 120)
        stack.callback(peer.close)
        [channel] = wait_until(lambda: list(server.io.channels))

        def broken(*_args) -> None:
            raise RuntimeError("planted")

        server.io.handler.on_exception, real = broken, server.io.handler.on_exception
        monkey_read = server.io._read
        server.io._read = lambda one: broken() if one is channel else monkey_read(one)
        peer.sendall(b"\0\0\0\4")
        assert peer.recv(1) == b""
        server.io.handler.on_exception = real
        call()
        assert server.io.is_alive()
        assert caplog.text.count("handling an event failed") == 1
