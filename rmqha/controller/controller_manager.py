"""Assembly of a controller: its port, its threads, and the events that trigger an election.

A broker counts as dead when its connection ends, and when it has been silent for longer than its timeout.

    the port's event thread --close, exception, idle--> ControllerManager.on_broker_channel_close
    BrokerLivenessWatch: waits for the next timeout --> the silent ones --> their names may need an election

The threads of a controller:

    NettyServerNIOSelector  --heartbeats--> noted;  others--> ControllerRequestExecutorThread_<n>: Controller
    NettyEventExecutor      --a connection has ended--|
    BrokerLivenessWatch     --a broker is silent------+--> ControllerElectionThread_<n>: Controller.elect_if_needed
    the store's thread      --it leads now------------|        |
    ControllerScheduledThread: when a lease is over --|        +--> NotifyService --> brokers
"""
from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.configuration import ConfigError, Configuration
from rmqha.common.controller_config import ControllerConfig, ControllerStoreKind, check_controller, peers_of
from rmqha.common.protocol import request_code
from rmqha.common.protocol.admin_headers import NotifyBrokerRoleChangedRequestHeader
from rmqha.common.protocol.cluster_bodies import ElectMasterResponseBody, SyncStateSet
from rmqha.common.protocol.controller_headers import ElectMasterResponseHeader
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError, ScheduledService
from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness
from rmqha.controller.controller import Controller
from rmqha.controller.controller_metrics import ControllerCounts
from rmqha.controller.controller_request_processor import ControllerRequestProcessor, HeartbeatProcessor
from rmqha.controller.local_store import ControllerStore, LocalStore
from rmqha.controller.notify_service import Audience, NotifyService, RoleChange
from rmqha.controller.replicas_info_manager import Decision
from rmqha.remoting.http_port import MetricsPort
from rmqha.remoting.interfaces import ChannelEventListener
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.remoting_server import CertificateWatch, RemotingServer
from rmqha.remoting.tls_system_config import use_tls

if TYPE_CHECKING:
    from rmqha.controller.controller_metrics import ControllerMetrics
    from rmqha.remoting.channel import Channel


class BrokerHousekeepingService(ChannelEventListener):
    """Passes on which connections have ended.

    Java: org.apache.rocketmq.controller.BrokerHousekeepingService (5.1.4)
    """

    def __init__(self, on_channel_close: Callable[[Channel], None]) -> None:
        self._on_channel_close = on_channel_close

    def on_channel_close(self, remote_addr: str, channel: Channel) -> None:
        """Handle the end of a connection, whatever the reason."""
        self._on_channel_close(channel)


log = logging.getLogger("RocketmqController")

_NS_PER_MS = 1_000_000


class BrokerLivenessWatch(ServiceThread):
    """Calls `on_silent` for brokers whose time is out. Wake it up when a broker's time may run out sooner.

    Differs: a broker that is silent too long is noticed as soon as its time runs out; RocketMQ's controller checks
    every five seconds.

    Java: org.apache.rocketmq.controller.impl.heartbeat.DefaultBrokerHeartbeatManager#scanNotActiveBroker (5.1.4)
    """

    join_time_ms = 5_000

    def __init__(self, liveness: BrokerLiveness, interval_ms: Callable[[], int],
                 on_silent: Callable[[BrokerLiveInfo], object]) -> None:
        super().__init__()
        self._liveness, self._interval_ms, self._on_silent = liveness, interval_ms, on_silent

    def run(self) -> None:
        """Check, and wait until the next broker's time could run out."""
        while not self.stopped:
            self.look()
            self.wait_for_running(self._wait_ms())

    def look(self) -> None:
        """Report all brokers that have been silent for too long."""
        for info in self._liveness.expired():
            log.warning("The broker channel %s expired, brokerInfo %s, expired %dms", info.channel, info.identity,
                        info.timeout_ms)
            self._on_silent(info)

    def _wait_ms(self) -> float:
        expiry_ns = self._liveness.next_expiry_ns()
        longest = self._interval_ms()
        if expiry_ns is None:
            return longest
        return min(longest, max(1, (expiry_ns - time.monotonic_ns()) / _NS_PER_MS))


_ELECTION_THREADS = 4
_AT_ONCE_MS = 1


class ControllerManager:
    """Builds, starts and stops a controller: `initialize`, `start`, `shutdown`.

    Java: org.apache.rocketmq.controller.ControllerManager (5.1.4)
    """

    def __init__(self, controller_config: ControllerConfig, server_config: ServerConfig,
                 client_config: RemotingClientConfig | None = None) -> None:
        self.controller_config, self.server_config = controller_config, server_config
        check_controller(controller_config, _refuse)
        self.peers = peers_of(controller_config)
        self.self_id: str = controller_config.controllerDLegerSelfId  # type: ignore[assignment]  # checked above
        server_config.listenPort = int(self.address.rpartition(":")[2])
        self.configuration = Configuration(log, controller_config, server_config)
        self.configuration.set_store_path_from_config(controller_config, "configStorePath")
        self.liveness = BrokerLiveness(controller_config.maxLeaseMillis)
        self.remoting_server = RemotingServer(server_config, BrokerHousekeepingService(self.on_broker_channel_close))
        self._client = RemotingClient(client_config or RemotingClientConfig(useTLS=use_tls()))
        self._scheduled_service = ScheduledService("ControllerScheduledThread")
        self._notify_service = NotifyService(self._client, self._scheduled_service)
        self.controller = Controller(controller_config, self._new_store(), self.liveness, ControllerCounts(),
                                     self._notify_service.hand_over)
        self.controller.on_new_master, self.controller.on_due = self._on_new_master, self._look_in
        self._executor = NamedThreadPool("ControllerRequestExecutorThread_", controller_config.controllerThreadPoolNums,
                                         controller_config.controllerRequestThreadPoolQueueCapacity)
        self._elections = NamedThreadPool("ControllerElectionThread_", _ELECTION_THREADS)
        self._heartbeats = HeartbeatProcessor(self.controller, self.note_heartbeat)
        self.watch = BrokerLivenessWatch(self.liveness, lambda: controller_config.scanNotActiveBrokerInterval,
                                         self._on_silent)
        self._certificate_watch = CertificateWatch((self.remoting_server,))
        self.metrics_port = MetricsPort(controller_config.metricsHost, controller_config.metricsPort or None,
                                        self.metrics)
        # True from start to shutdown.
        self.is_started = False
        # Why it can't continue; written by the service that failed.
        self.failure: str | None = None
        # Called when it can't continue; set before the start.
        self.on_failed: Callable[[], None] | None = None
        self.remoting_server.io.on_failed = self._service_failed

    @property
    def address(self) -> str:
        """The address at which others reach this controller."""
        return self.peers[self.self_id]

    def _new_store(self) -> ControllerStore:
        config = self.controller_config
        if config.controllerStore is ControllerStoreKind.local:
            return LocalStore(config.controllerStorePath, self.self_id, self.address)
        # It needs more libraries.
        from rmqha.controller.etcd_store import EtcdStore

        try:
            return EtcdStore(config, self.self_id, self.address)
        except ValueError as failure:
            raise ConfigError(str(failure)) from failure

    def metrics(self) -> ControllerMetrics:
        """Return the metrics for a metrics port."""
        # Many controllers have no metrics port.
        from rmqha.controller.controller_metrics import ControllerMetrics

        return ControllerMetrics(self, self.controller, (self.address, self.self_id), self.requests_waiting)

    def _service_failed(self, service: ServiceThread) -> None:
        """Report that the port is closed for good."""
        self.failure = f"{service.get_service_name()} has given up: {service.failure!r}"
        log.critical("The controller can't continue: %s", self.failure)
        if self.on_failed is not None:
            self.on_failed()

    def initialize(self) -> bool:
        """Register the processors."""
        processor = ControllerRequestProcessor(self.controller, self.configuration, self.peers, self.is_to_wait)
        for code in processor.handlers:
            self.remoting_server.register_processor(code, processor, self._executor)
        self.remoting_server.register_processor(request_code.BROKER_HEARTBEAT, self._heartbeats)
        return True

    def start(self) -> None:
        """Open the store, and listen. OSError: a port is taken, or the store can't be used; ConfigError: TLS, or the
        store's contents, can't be used.
        """
        self.controller.store.on_leader_changed = self._on_leader_changed
        self.metrics_port.start()
        self._client.start()
        self.remoting_server.start()
        try:
            self.controller.store.start()
        except ValueError as failure:
            raise ConfigError(str(failure)) from failure
        self._certificate_watch.start()
        self.watch.start()
        interval = self.controller_config.scanInactiveMasterInterval
        self._scheduled_service.schedule_at_fixed_rate(self.scan_inactive_master, interval, interval)
        self.is_started = True

    def shutdown(self) -> None:
        """Stop all threads and close all connections. Idempotent."""
        self.is_started = False
        self.metrics_port.shutdown()
        self._certificate_watch.shutdown()
        self._scheduled_service.shutdown()
        self.watch.shutdown()
        self.controller.store.shutdown()
        self.remoting_server.shutdown()
        for pool in (self._heartbeats, self._elections, self._notify_service, self._executor):
            pool.shutdown()
        self._client.shutdown()

    @property
    def local_listen_port(self) -> int:
        """The bound port, after `start`."""
        return self.remoting_server.local_listen_port

    def lives(self, timeout_s: float) -> bool:
        """Return whether requests are served: the port's thread answers within `timeout_s`."""
        return self.failure is None and self.remoting_server.io.answers(timeout_s)

    def requests_waiting(self) -> int:
        """Return the number of requests that wait for a thread."""
        return self._executor.queue_size()

    # what makes elections

    def note_heartbeat(self, info: BrokerLiveInfo) -> None:
        """Note that a broker is alive. On the IO thread. ControllerLimitError."""
        was_alive = self.liveness.is_alive(info.identity)
        if self.liveness.heartbeat(info):
            self.watch.wakeup()
        if not was_alive:
            log.info("new broker registered, %s, brokerId:%d", info.identity, info.identity[2])

    def on_broker_channel_close(self, channel: Channel) -> None:
        """Handle the end of a connection: brokers that are heard over no other one are dead."""
        for identity in self.liveness.closed(channel, channel.ended_by_peer):
            log.info("Channel %s inactive, broker %s, id:%d", channel, identity[1], identity[2])
            self._look_at(identity[1], has_ended=True)

    def _on_silent(self, info: BrokerLiveInfo) -> None:
        # A Channel; closing it makes the broker reconnect.
        info.channel.close()  # type: ignore[attr-defined]
        self._look_at(info.identity[1], has_ended=True)

    def _on_leader_changed(self) -> None:
        store = self.controller.store
        log.info("the controller that leads is %s, %s", store.leader_id, store.leader_address)
        self.scan_inactive_master()
        self._tell_masters()

    def _tell_masters(self) -> None:
        """Notify each master of a new leader at once, so that it no longer accepts leases of other controllers."""
        for decided in self.controller.replica_sets():
            master = decided.master_id
            info = None if master is None else self.liveness.get((decided.cluster_name, decided.broker_name, master))
            address = decided.address(master)
            if info is None or not info.takes_leases or master is None or address is None:
                continue
            self._notify_service.notify([address], RoleChange(
                NotifyBrokerRoleChangedRequestHeader(
                    masterAddress=address, masterBrokerId=master, masterEpoch=decided.master_epoch,
                    syncStateSetEpoch=decided.sync_state_set_epoch, masterHaAddress=info.ha_address),
                SyncStateSet(sorted(decided.sync_state_set), decided.sync_state_set_epoch)))

    def scan_inactive_master(self) -> None:
        """Check all broker names, for anything that a lost event left behind. Does nothing on a controller that
        follows.

        Java: org.apache.rocketmq.controller.impl.DLedgerController#scanInactiveMasterAndTriggerReelect (5.1.4)
        """
        for name in self.controller.names_to_look_at():
            self._look_at(name)

    def _look_at(self, broker_name: str, has_ended: bool = False) -> None:
        try:
            self._elections.submit(self.controller.elect_if_needed, broker_name, has_ended)
        except RejectedExecutionError:
            log.info("%s is not checked: the controller is shutting down", broker_name)

    def _look_in(self, broker_name: str, delay_ms: float) -> None:
        if delay_ms < _AT_ONCE_MS:
            self._look_at(broker_name)
        else:
            self._scheduled_service.schedule(lambda: self._look_at(broker_name), delay_ms)

    def is_to_wait(self, channel: Channel, broker_name: str | None) -> bool:
        """Return whether the broker that polls over this connection will soon be notified of a new master."""
        return self._notify_service.has_slaves_to_notify(broker_name) and self.liveness.is_of_rocketmq(channel)

    def _on_new_master(self, decision: Decision) -> None:
        """Notify the replicas that are alive.

        Java: org.apache.rocketmq.controller.ControllerManager#notifyBrokerRoleChanged (5.1.4)
        """
        header, body, decided = decision.header, decision.body, decision.replica_set
        if not self.controller_config.notifyBrokerRoleChanged or decided is None:
            return
        assert isinstance(header, ElectMasterResponseHeader) and isinstance(body, ElectMasterResponseBody)
        assert decided.master_id is not None
        old_master, new_master, at_once, later = None, None, [], []
        for id_, replica in decided.replicas.items():
            info = self.liveness.get((decided.cluster_name, decided.broker_name, id_))
            if info is None:
                continue
            if id_ == decided.master_id:
                new_master = replica.address
            elif info.takes_leases and header.masterHaAddress is not None:
                at_once.append(replica.address)
            elif id_ == decision.old_master_id:
                old_master = replica.address
            else:
                later.append(replica.address)
        change = RoleChange(
            NotifyBrokerRoleChangedRequestHeader(
                masterAddress=header.masterAddress, masterBrokerId=decided.master_id,
                masterEpoch=decided.master_epoch, syncStateSetEpoch=decided.sync_state_set_epoch,
                masterHaAddress=header.masterHaAddress),
            SyncStateSet(body.syncStateSet, decided.sync_state_set_epoch))
        self._notify_service.notify_in_turn(
            decided.broker_name, Audience(old_master, new_master, tuple(at_once), tuple(later)), change)


def _refuse(key: str, problem: str) -> None:
    raise ConfigError(problem, key=key)
