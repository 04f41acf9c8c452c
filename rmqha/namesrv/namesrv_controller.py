"""A name server, put together.

    NettyServerNIOSelector  --requests--> RemotingExecutorThread_<n>: DefaultRequestProcessor
    the server's event thread --channel events--> BrokerHousekeepingService
    NSScheduledThread1      every 10 s: silent brokers; every 10 min: the KV config to the log
"""
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common.configuration import Configuration
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, ScheduledService
from rmqha.namesrv.kvconfig.kv_config_manager import KVConfigManager
from rmqha.namesrv.processor.cluster_test_request_processor import ClusterTestRequestProcessor
from rmqha.namesrv.processor.default_request_processor import DefaultRequestProcessor
from rmqha.namesrv.routeinfo.broker_housekeeping_service import BrokerHousekeepingService
from rmqha.namesrv.routeinfo.route_info_manager import RouteInfoManager
from rmqha.remoting.http_port import MetricsPort
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import CertificateWatch, RemotingServer

if TYPE_CHECKING:
    from rmqha.controller.controller_manager import ControllerManager
    from rmqha.namesrv.metrics.namesrv_metrics import NamesrvMetrics

log = logging.getLogger("RocketmqNamesrv")

SCAN_NOT_ACTIVE_BROKER_DELAY_MS = 5_000
SCAN_NOT_ACTIVE_BROKER_PERIOD_MS = 10_000
PRINT_DELAY_MS = 60_000
PRINT_PERIOD_MS = 10 * 60_000

# requests that wait for a thread; beyond it they are answered SYSTEM_BUSY
_QUEUE_CAPACITY = 100_000


class NamesrvController:
    """Builds, starts and stops a name server, and the controller in it: `initialize`, `start`, `shutdown`.

    Java: org.apache.rocketmq.namesrv.NamesrvController (4.9.8)
    """

    def __init__(self, namesrv_config: NamesrvConfig, server_config: ServerConfig,
                 controller_manager: "ControllerManager | None" = None) -> None:
        self.controller_manager = controller_manager  # with enableControllerInNamesrv; goes with this one
        self.namesrv_config = namesrv_config
        self.server_config = server_config
        self.kv_config_manager = KVConfigManager(self)
        self.route_info_manager = RouteInfoManager()
        self.broker_housekeeping_service = BrokerHousekeepingService(self)
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
        self.metrics_port = MetricsPort(namesrv_config.metricsHost, namesrv_config.metricsPort or None, self._metrics)
        self.is_started = False  # from start to shutdown
        self.failure: str | None = None  # why it can't go on; written by the service that has given up
        self.on_failed: Callable[[], None] | None = None  # told of it; set before the start
        self.remoting_server.io.on_failed = self._service_failed
        if controller_manager is not None:
            controller_manager.remoting_server.io.on_failed = self._service_failed

    def _service_failed(self, service: ServiceThread) -> None:
        """The port is closed for good."""
        self.failure = f"{service.get_service_name()} has given up: {service.failure!r}"
        log.critical("The Name Server can't go on: %s", self.failure)
        if self.on_failed is not None:
            self.on_failed()

    def _metrics(self) -> "NamesrvMetrics":
        from rmqha.namesrv.metrics.namesrv_metrics import NamesrvMetrics  # many name servers have no metrics port

        return NamesrvMetrics(self)

    def initialize(self) -> bool:
        """Load the KV config and register the processor. Raises ConfigError when the KV config is not readable."""
        self.kv_config_manager.load()
        self._register_processor()
        if self.controller_manager is not None:
            self.controller_manager.initialize()
        return True

    def _register_processor(self) -> None:
        if self.namesrv_config.clusterTest:
            self._processor = ClusterTestRequestProcessor(self, self.namesrv_config.productEnvName)
        else:
            self._processor = DefaultRequestProcessor(self)
        self.remoting_server.register_default_processor(self._processor, self._remoting_executor)

    def start(self) -> None:
        """Listen. Raises OSError when a port is taken, ConfigError for TLS settings that it can't serve with."""
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
        """Requests that wait for a thread."""
        return self._remoting_executor.queue_size()

    @property
    def local_listen_port(self) -> int:
        """The bound port, after `start`."""
        return self.remoting_server.local_listen_port

    def lives(self, timeout_s: float) -> bool:
        """Whether requests are served: the port's thread answers within `timeout_s`."""
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
