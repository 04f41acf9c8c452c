"""Assembly of a name server: its port, its threads and its metrics.

    NettyServerNIOSelector  --requests--> RemotingExecutorThread_<n>: DefaultRequestProcessor
    the server's event thread --channel events--> BrokerHousekeepingService
    NSScheduledThread1      every 10 s: removal of silent brokers; every 10 min: the KV config to the log

A broker is removed from the routes when its connection ends:

    the remoting server's event thread --close, exception, idle--> RouteInfoManager.on_channel_destroy

`NamesrvMetrics` has only rmqha's own metrics: RocketMQ's exporter and 5.x have no metrics of name servers.
"""
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import rmqha
from rmqha.common import java
from rmqha.common.configuration import Configuration
from rmqha.common.metrics import GAUGE, Family, Metric, Pace, RolePage, Sample, Subject
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, ScheduledService
from rmqha.namesrv.default_request_processor import ClusterTestRequestProcessor, DefaultRequestProcessor
from rmqha.namesrv.kv_config_manager import KVConfigManager
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.remoting.http_port import MetricsPort
from rmqha.remoting.interfaces import ChannelEventListener
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import CertificateWatch, RemotingServer

if TYPE_CHECKING:
    from rmqha.controller.controller_manager import ControllerManager
    from rmqha.remoting.channel import Channel


class BrokerHousekeepingService(ChannelEventListener):
    """Removes brokers from the route table when their channels close.

    Java: org.apache.rocketmq.namesrv.routeinfo.BrokerHousekeepingService (4.9.8)
    """

    def __init__(self, route_info_manager: RouteInfoManager) -> None:
        self._routes = route_info_manager

    def on_channel_connect(self, remote_addr: str, channel: "Channel") -> None:
        """Do nothing: a broker counts from its registration."""

    def on_channel_close(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the brokers of a connection that ended."""
        self._routes.on_channel_destroy(remote_addr, channel)

    def on_channel_exception(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the brokers of a connection that failed."""
        self._routes.on_channel_destroy(remote_addr, channel)

    def on_channel_idle(self, remote_addr: str, channel: "Channel") -> None:
        """Remove the brokers of a connection that was idle for too long."""
        self._routes.on_channel_destroy(remote_addr, channel)


log = logging.getLogger("RocketmqNamesrv")

SCAN_NOT_ACTIVE_BROKER_DELAY_MS = 5_000
SCAN_NOT_ACTIVE_BROKER_PERIOD_MS = 10_000
PRINT_DELAY_MS = 60_000
PRINT_PERIOD_MS = 10 * 60_000

# Limit of requests that wait for a thread; beyond it the response is SYSTEM_BUSY.
_QUEUE_CAPACITY = 100_000


class NamesrvController:
    """A name server, with an optional controller: call `initialize`, `start` and `shutdown`.

    Java: org.apache.rocketmq.namesrv.NamesrvController (4.9.8)
    """

    def __init__(self, namesrv_config: NamesrvConfig, server_config: ServerConfig,
                 controller_manager: "ControllerManager | None" = None) -> None:
        # With enableControllerInNamesrv; started and stopped with this name server.
        self.controller_manager = controller_manager
        self.namesrv_config = namesrv_config
        self.server_config = server_config
        self.kv_config_manager = KVConfigManager(namesrv_config)
        self.route_info_manager = RouteInfoManager()
        self.broker_housekeeping_service = BrokerHousekeepingService(self.route_info_manager)
        self.configuration = Configuration(log, namesrv_config, server_config)
        self.configuration.set_store_path_from_config(namesrv_config, "configStorePath")
        if controller_manager is not None:
            controller_manager.configuration.share_file(self.configuration)
        self.remoting_server = RemotingServer(server_config, self.broker_housekeeping_service)
        self._certificate_watch = CertificateWatch((self.remoting_server,))
        self._remoting_executor = NamedThreadPool("RemotingExecutorThread_", server_config.serverWorkerThreads,
                                                  _QUEUE_CAPACITY)
        self._scheduled_service = ScheduledService("NSScheduledThread1")
        self._processor: DefaultRequestProcessor | None = None
        self.metrics_port = MetricsPort(namesrv_config.metricsHost, namesrv_config.metricsPort or None, self.metrics)
        self.is_started = False  # from start to shutdown
        # Why the name server cannot continue; written by the service that failed.
        self.failure: str | None = None
        # Called after `failure` is set. Set before the start.
        self.on_failed: Callable[[], None] | None = None
        self.remoting_server.io.on_failed = self._service_failed
        if controller_manager is not None:
            controller_manager.remoting_server.io.on_failed = self._service_failed

    def _service_failed(self, service: ServiceThread) -> None:
        """Stop the name server after the service of a port failed for good."""
        self.failure = f"{service.get_service_name()} failed: {service.failure!r}"
        log.critical("The Name Server cannot continue: %s", self.failure)
        if self.on_failed is not None:
            self.on_failed()

    def metrics(self) -> "NamesrvMetrics":
        """Return the metrics for a metrics port."""
        return NamesrvMetrics(self, self.route_info_manager, self.requests_waiting, self.controller_manager)

    def initialize(self) -> bool:
        """Load the KV config and register the processor. Raises ConfigError when the KV config cannot be read."""
        self.kv_config_manager.load()
        self._register_processor()
        if self.controller_manager is not None:
            self.controller_manager.initialize()
        return True

    def _register_processor(self) -> None:
        config, kv, routes = self.namesrv_config, self.kv_config_manager, self.route_info_manager
        self._processor = ClusterTestRequestProcessor(config, self.configuration, kv, routes, config.productEnvName) \
            if config.clusterTest else DefaultRequestProcessor(config, self.configuration, kv, routes)
        self.remoting_server.register_default_processor(self._processor, self._remoting_executor)

    def start(self) -> None:
        """Open the ports and start the threads. Raises OSError when a port is in use, ConfigError for invalid TLS
        settings."""
        self.metrics_port.start()
        self.remoting_server.start()
        self._certificate_watch.start()
        if self.controller_manager is not None:
            self.controller_manager.start()
        if isinstance(self._processor, ClusterTestRequestProcessor):
            self._processor.start()
        self._scheduled_service.schedule_at_fixed_rate(
            self.route_info_manager.scan_not_active_broker, SCAN_NOT_ACTIVE_BROKER_DELAY_MS,
            SCAN_NOT_ACTIVE_BROKER_PERIOD_MS)
        self._scheduled_service.schedule_at_fixed_rate(
            self.kv_config_manager.print_all_periodically, PRINT_DELAY_MS, PRINT_PERIOD_MS)
        self.is_started = True

    def requests_waiting(self) -> int:
        """Return the number of requests that wait for a thread."""
        return self._remoting_executor.queue_size()

    @property
    def local_listen_port(self) -> int:
        """The bound port, after `start`."""
        return self.remoting_server.local_listen_port

    def lives(self, timeout_s: float) -> bool:
        """Return whether requests are served: the port's thread responds within `timeout_s`."""
        alive = self.failure is None and self.remoting_server.io.answers(timeout_s)
        return alive and (self.controller_manager is None or self.controller_manager.lives(timeout_s))

    def shutdown(self) -> None:
        """Stop all threads and close all connections. Idempotent."""
        self.is_started = False
        if self.controller_manager is not None:
            self.controller_manager.shutdown()
        self.metrics_port.shutdown()
        self._certificate_watch.shutdown()
        self.remoting_server.shutdown()
        self._remoting_executor.shutdown()
        self._scheduled_service.shutdown()
        if isinstance(self._processor, ClusterTestRequestProcessor):
            self._processor.shutdown()


_BROKER = ("cluster", "broker", "broker_id", "address")

INFO = Metric("rmqha_namesrv_info", GAUGE, ("version", "rocketmq_version"), "Always 1; the labels describe the server")
READY = Metric("rmqha_namesrv_ready", GAUGE, (), "1 when it serves; if not, /readyz shows the reasons")
BROKERS = Metric("rmqha_namesrv_brokers", GAUGE, ("cluster",), "Registered brokers, masters and slaves")
MASTERS = Metric("rmqha_namesrv_masters", GAUGE, ("cluster",), "Registered masters")
WITHOUT_MASTER = Metric("rmqha_namesrv_broker_names_without_master", GAUGE, ("cluster",),
                        "Broker names with registered slaves but no master")
HEARTBEAT_AGE = Metric("rmqha_namesrv_broker_heartbeat_age_seconds", GAUGE, _BROKER,
                       "Time since the broker's last registration; after 120 s the broker is removed")
TOPICS = Metric("rmqha_namesrv_topics", GAUGE, (), "Topics that have a route")
CONNECTIONS = Metric("rmqha_namesrv_connections", GAUGE, (), "Connections of brokers and clients")
WAITING = Metric("rmqha_namesrv_requests_waiting", GAUGE, (), "Requests that wait for a thread")
DEPARTED = Metric("rmqha_namesrv_brokers_departed", GAUGE, ("cluster",),
                  "Brokers that disconnected without unregistering, and have not returned")
NAMESRV_METRICS = (INFO, READY, BROKERS, MASTERS, WITHOUT_MASTER, HEARTBEAT_AGE, TOPICS, CONNECTIONS, WAITING,
                   DEPARTED)


class _Life(Protocol):
    """The state of a name server."""

    is_started: bool
    failure: str | None
    remoting_server: RemotingServer


class NamesrvMetrics(Subject):
    """The metrics and health of a name server, for its metrics port."""

    def __init__(self, life: _Life, route_info_manager: RouteInfoManager, requests_waiting: Callable[[], int],
                 controller_manager: "ControllerManager | None") -> None:
        self._life = life
        self._routes = route_info_manager
        self._requests_waiting = requests_waiting
        self._controller_manager = controller_manager

    def families(self, pace: Pace) -> Iterator[Family]:
        """Yield each metric once."""
        routes = self._routes
        yield Family(INFO, [((rmqha.__version__, java.get_version_desc(java.CURRENT_VERSION)), 1)])
        yield Family(READY, [((), float(not self.why_not_ready()))])
        brokers = routes.live_brokers()
        in_cluster = Counter(one.cluster for one in brokers)
        masters = {(one.cluster, one.name) for one in brokers if one.broker_id == 0}
        slaves_only = {(one.cluster, one.name) for one in brokers} - masters
        yield Family(BROKERS, _by_cluster(in_cluster, in_cluster))
        yield Family(MASTERS, _by_cluster(Counter(cluster for cluster, _name in masters), in_cluster))
        yield Family(WITHOUT_MASTER, _by_cluster(Counter(cluster for cluster, _name in slaves_only), in_cluster))
        yield Family(HEARTBEAT_AGE, (((one.cluster, one.name, str(one.broker_id), one.address), one.age_ms / 1000)
                                     for one in brokers))
        yield Family(TOPICS, [((), routes.topic_count())])
        yield Family(CONNECTIONS, [((), len(self._life.remoting_server.io.channels))])
        yield Family(WAITING, [((), self._requests_waiting())])
        departed = Counter(one.cluster for one in routes.departed_brokers())
        yield Family(DEPARTED, _by_cluster(departed, in_cluster | departed))
        if self._controller_manager is not None:
            yield from self._controller_manager.metrics().families(pace)

    def why_not_healthy(self) -> list[str]:
        """Return a reason if the thread of its port has ended."""
        life = self._life
        if life.failure is not None:
            return [life.failure]
        if life.is_started and not life.remoting_server.io.is_alive():
            return ["the thread of its port has ended"]
        return []

    def why_not_ready(self) -> list[str]:
        """Return the reasons if it has not started yet, or is not healthy."""
        return self.why_not_healthy() if self._life.is_started else ["it is starting or shutting down"]

    def role_pages(self) -> Mapping[str, RolePage]:
        """Return the pages of the controller inside this name server; a name server itself has no role."""
        return {} if self._controller_manager is None else self._controller_manager.metrics().role_pages()


def _by_cluster(counts: "Counter[str]", clusters: "Counter[str]") -> list[Sample]:
    return [((cluster,), counts[cluster]) for cluster in clusters]
