"""The broker: builds its parts, starts and stops them in order, and registers at the name servers.

    NettyServerNIOSelector (one per port)  read, decode, serve inline, write
    SendMessageThread_, PullMessageThread_, HeartbeatThread_   the requests of those kinds that may block
    QueryMessageThread_, AdminBrokerThread_                    all requests of those kinds
    ClientManageThread_                    locks of queues, and offsets by time, which consumers ask for
    BrokerControllerScheduledThread1       registration, saving, slave synchronisation, marks
    TransactionalMessageCheckService       half messages that nobody ended (masters)
    ClientHousekeepingScheduledThread1, BrokerStatsThread1, PullRequestHoldService, brokerOutApi_thread_, the store's
"""
import copy
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from rmqha.acl.common import AccessRPCHook
from rmqha.broker import broker_path_config_helper
from rmqha.broker.broker_fast_failure import BrokerFastFailure
from rmqha.broker.broker_outer_api import BrokerOuterAPI, Registration
from rmqha.broker.client.broker2_client import Broker2Client
from rmqha.broker.client.client_channels import ClientHousekeepingService, DefaultConsumerIdsChangeListener
from rmqha.broker.client.consumer_manager import ConsumerManager
from rmqha.broker.client.producer_manager import ProducerManager
from rmqha.broker.client.rebalance_lock_manager import RebalanceLockManager
from rmqha.broker.consumer_filter_manager import ConsumerFilterManager
from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager, LmqConsumerOffsetManager
from rmqha.broker.expression_message_filter import CommitLogDispatcherCalcBitMap
from rmqha.broker.processor import admin_handlers
from rmqha.broker.processor.admin_broker_processor import AdminBrokerProcessor
from rmqha.broker.processor.admin_handlers import AdminTurns
from rmqha.broker.processor.client_manage_processor import ClientManageProcessor
from rmqha.broker.processor.consumer_manage_processor import ConsumerManageProcessor
from rmqha.broker.processor.end_transaction_processor import EndTransactionProcessor
from rmqha.broker.processor.express_send import ExpressSend
from rmqha.broker.processor.pull_message_processor import PullMessageProcessor
from rmqha.broker.processor.query_message_processor import QueryMessageProcessor
from rmqha.broker.processor.reply_message_processor import ReplyMessageProcessor
from rmqha.broker.processor.send_message_processor import SendMessageProcessor
from rmqha.broker.pull_request_hold_service import NotifyMessageArrivingListener, PullRequestHoldService
from rmqha.broker.record_access import RecordAccess
from rmqha.broker.slave_synchronize import SlaveSynchronize, ask_checksums, ask_main_port, ask_record
from rmqha.broker.subscription_group_manager import LmqSubscriptionGroupManager, SubscriptionGroupManager
from rmqha.broker.topic_config_manager import LmqTopicConfigManager, TopicConfigManager, TopicDeletion
from rmqha.broker.transaction.transactional_message_service import (
    TransactionalMessageCheckService,
    TransactionalMessageService,
)
from rmqha.broker.transaction.transactional_message_service_impl import (
    DefaultTransactionalMessageCheckListener,
    TransactionalMessageBridge,
    TransactionalMessageServiceImpl,
)
from rmqha.common import sys_flags, util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import Configuration
from rmqha.common.process import StallWatch
from rmqha.common.protocol import request_code
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, ScheduledService
from rmqha.common.topics import TopicConfig
from rmqha.remoting.addresses import FAST_PORT, resolved_host
from rmqha.remoting.http_port import MetricsPort
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.remoting_server import CertificateWatch, RemotingServer
from rmqha.store.broker_stats_manager import BrokerStats, BrokerStatsManager, LmqBrokerStatsManager
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig

if TYPE_CHECKING:
    from rmqha.acl.plain_access_validator import PlainAccessValidator
    from rmqha.broker.controller.replicas_manager import ReplicasManager
    from rmqha.broker.metrics.broker_metrics import BrokerMetrics

log = logging.getLogger("RocketmqBroker")
LOG_PROTECTION = logging.getLogger("RocketmqProtection")
LOG_WATER_MARK = logging.getLogger("RocketmqWaterMark")

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_DAY_MS = 24 * 60 * _MINUTE_MS
_FIRST_SLAVE_SYNC_MS, _SLAVE_SYNC_MS = 3 * _SECOND_MS, 10 * _SECOND_MS
# Differs: a slave that a controller may make the master at any time asks each 3 s; in 5.1.4 each 10 s, too
_FIRST_CONTROLLED_SYNC_MS, _CONTROLLED_SYNC_MS = 200, 3 * _SECOND_MS
_REGISTER_PATIENCE_S = 0.05
_REGISTER_AGAIN_MS = (100, 200, 400, 800, 1600, 3200)  # waits after a start; 10 s after it begins the period
_ADMIN_QUEUE_CAPACITY = 10_000  # Differs: the original's queue of admin requests has no end
_MIN_HA_ADDRESS_LENGTH = 6  # a shorter haMasterAddress counts as none


class BrokerController:
    """One broker. `initialize()`, `start()`, `shutdown()`; the parts are attributes.

    Java: org.apache.rocketmq.broker.BrokerController (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, server_config: ServerConfig, client_config: RemotingClientConfig,
                 message_store_config: MessageStoreConfig, config_file: str | None = None) -> None:
        self.broker_config = broker_config
        self.server_config = server_config
        self.client_config = client_config
        self.message_store_config = message_store_config
        self.configs = (broker_config, server_config, client_config, message_store_config)
        self.configured_role = message_store_config.brokerRole
        if broker_config.enableControllerMode:
            message_store_config.brokerRole = BrokerRole.SLAVE  # until the controller has decided
        is_lmq = message_store_config.enableLmq
        self.consumer_offset_manager = (LmqConsumerOffsetManager if is_lmq else ConsumerOffsetManager)(self)
        self.topic_config_manager = (LmqTopicConfigManager if is_lmq else TopicConfigManager)(self)
        self.consumer_filter_manager = ConsumerFilterManager(self)
        self.pull_message_processor = PullMessageProcessor(self)
        self.pull_request_hold_service = PullRequestHoldService(self)
        self.message_arriving_listener = NotifyMessageArrivingListener(self.pull_request_hold_service)
        self.consumer_manager = ConsumerManager(DefaultConsumerIdsChangeListener(self))
        self.producer_manager = ProducerManager()
        self.client_housekeeping_service = ClientHousekeepingService(self)
        self.broker2_client = Broker2Client(self)
        self.subscription_group_manager = (LmqSubscriptionGroupManager if is_lmq else SubscriptionGroupManager)(self)
        self.rebalance_lock_manager = RebalanceLockManager()
        self.broker_outer_api = BrokerOuterAPI(client_config)
        self.slave_synchronize = SlaveSynchronize(self)
        self.broker_stats_manager = (LmqBrokerStatsManager if is_lmq else BrokerStatsManager)(
            broker_config.brokerClusterName, broker_config.enableDetailStat)
        self.topic_deletion = TopicDeletion(self)
        self.broker_fast_failure = BrokerFastFailure(lambda: broker_config.brokerFastFailureEnable)
        self.configuration = Configuration(
            log, *self.configs,
            store_path=config_file or broker_path_config_helper.get_default_broker_config_path())
        self.store_host = (broker_config.brokerIP1, server_config.listenPort)  # once started: address and bound port
        self.message_store: DefaultMessageStore = None  # type: ignore[assignment]  # from initialize on
        self.broker_stats: BrokerStats = None  # type: ignore[assignment]  # from initialize on
        self.transactional_message_service: TransactionalMessageService = None  # type: ignore[assignment]  # as above
        self.access_validator: PlainAccessValidator | None = None  # from initialize on, when aclEnable
        self.replicas_manager: ReplicasManager | None = None  # from initialize on, when enableControllerMode
        self.record_access = RecordAccess(self)
        self.transactional_message_check_listener = DefaultTransactionalMessageCheckListener(self)
        self.transactional_message_check_service = TransactionalMessageCheckService(self)
        self.remoting_server = RemotingServer(server_config, self.client_housekeeping_service)
        self.fast_remoting_server = RemotingServer(_fast_config(server_config), self.client_housekeeping_service,
                                                   port_use=FAST_PORT)
        self.fast_remoting_server.large_requests = self.remoting_server.large_requests
        self.fast_remoting_server.io.begun_frames = self.remoting_server.io.begun_frames
        self.certificate_watch = CertificateWatch((self.remoting_server, self.fast_remoting_server))
        self.stall_watch = StallWatch(broker_config.stallWatchMs)
        self.metrics_port = MetricsPort(broker_config.metricsHost, broker_config.metricsPort or None, self._metrics)
        self.admin_turns = AdminTurns()
        self._make_executors()
        self._scheduler = ScheduledService("BrokerControllerScheduledThread1")
        self._register_lock = threading.RLock()  # one registration at a time
        self._update_master_ha_server_addr_periodically = False
        self.lacks_master = False  # a slave, and no name server knows a master of its name; under _register_lock
        # a controller has not decided this broker's role yet: no name server hears of it
        self.is_isolated = broker_config.enableControllerMode
        # main address and HA address of the master that the first name server has told; guarded by _register_lock
        self.registered_master: tuple[str, str] | None = None
        self._special_services_lock = threading.Lock()
        self._slave_sync_generation = 0  # a synchronisation of an older generation no longer runs
        self._outer_api_started = threading.Event()  # set by start(), and by shutdown()
        self._shutdown_lock = threading.Lock()
        self._is_shutdown = False  # guarded by _shutdown_lock
        self.is_started = False  # written by start()
        self.name_servers_registered = 0  # that took the last registration; guarded by _register_lock
        self.failure: str | None = None  # why it can't go on; written by the service that has given up
        self.on_failed: Callable[[], None] | None = None  # told of it
        for server in (self.remoting_server, self.fast_remoting_server):
            server.io.on_failed = self._service_failed

    def _make_executors(self) -> None:
        config = self.broker_config
        self.send_message_executor = NamedThreadPool(
            "SendMessageThread_", config.sendMessageThreadPoolNums, config.sendThreadPoolQueueCapacity)
        self.pull_message_executor = NamedThreadPool(
            "PullMessageThread_", config.pullMessageThreadPoolNums, config.pullThreadPoolQueueCapacity)
        self.query_message_executor = NamedThreadPool(
            "QueryMessageThread_", config.queryMessageThreadPoolNums, config.queryThreadPoolQueueCapacity)
        self.admin_broker_executor = NamedThreadPool("AdminBrokerThread_", config.adminBrokerThreadPoolNums,
                                                     _ADMIN_QUEUE_CAPACITY)
        # Differs: four threads at most: what they do takes the interpreter, and more of them would only share it
        self.client_manage_executor = NamedThreadPool(
            "ClientManageThread_", min(config.clientManageThreadPoolNums, 4),
            config.clientManagerThreadPoolQueueCapacity)
        self.heartbeat_executor = NamedThreadPool(
            "HeartbeatThread_", config.heartbeatThreadPoolNums, config.heartbeatThreadPoolQueueCapacity)

    def _metrics(self) -> "BrokerMetrics":
        from rmqha.broker.metrics.broker_metrics import BrokerMetrics  # many brokers have no metrics port

        return BrokerMetrics(self)

    def initialize(self) -> bool:
        """Load the tables and the store. False when a file can't be used; the log says which.

        PortError when the metrics port is taken: it is opened first, to tell what a long recovery does.
        """
        self.metrics_port.start()
        loaded = (self.topic_config_manager.load() and self.consumer_offset_manager.load()
                  and self.subscription_group_manager.load() and self.consumer_filter_manager.load())
        if not loaded:
            return False
        try:
            self.message_store = DefaultMessageStore(self.message_store_config, self.broker_stats_manager,
                                                     self.message_arriving_listener, self.broker_config)
        except OSError:
            log.exception("Failed to initialize")
            return False
        self.message_store.deleted_topics.queues_of = self.topic_deletion.queues_of
        self.broker_stats = BrokerStats(self.message_store.store_stats_service)
        # Differs: whether bit maps are computed is decided at the start: dispatching in bulk needs to know
        if self.broker_config.enableCalcFilterBitMap:
            self.message_store.record_dispatcher.dispatcher_list.insert(0, CommitLogDispatcherCalcBitMap(self.broker_config,
                                                                                       self.consumer_filter_manager))
        if self.broker_config.enableControllerMode:
            from rmqha.broker.controller.replicas_manager import ReplicasManager  # most brokers have no controller

            self.replicas_manager = ReplicasManager(self)
            self.replicas_manager.prepare()
        if not self.message_store.load():
            return False
        self.message_store.ha_service.accept_socket_service.on_failed = self._service_failed
        self.register_processor()
        self._initialize_name_servers()
        self._initialize_role()
        self._initial_transaction()
        self._initial_acl()
        return True

    def _initial_transaction(self) -> None:
        # Differs: the services are fixed; the original looks for other ones in META-INF/service
        self.transactional_message_service = TransactionalMessageServiceImpl(
            TransactionalMessageBridge(self, self.message_store))

    def _initial_acl(self) -> None:
        if not self.broker_config.aclEnable:
            log.info("The broker dose not enable acl")
            return
        from rmqha.acl.plain_access_validator import PlainAccessValidator  # with OpenSSL

        # Differs: the validator is fixed; the original looks for others in META-INF/service
        home = self.broker_config.rocketmqHome
        assert home is not None  # the start has asked for it
        self.access_validator = PlainAccessValidator(home)
        self.access_validator.load()
        self.register_server_rpc_hook(AccessRPCHook(self.access_validator))

    def _initialize_name_servers(self) -> None:
        namesrv_addr = self.broker_config.namesrvAddr
        if namesrv_addr is not None:
            self.broker_outer_api.update_name_server_address_list(namesrv_addr)
            log.info("Set user specified name server address: %s", namesrv_addr)

    @property
    def is_outer_api_started(self) -> bool:
        """Whether other brokers may be asked."""
        return self._outer_api_started.is_set() and not self._is_shutdown

    def wait_outer_api_started(self, timeout_s: float) -> bool:
        """Whether other brokers may be asked, within this time: the store's services start before that."""
        self._outer_api_started.wait(timeout_s)
        return self.is_outer_api_started

    def _initialize_role(self) -> None:
        client = self.message_store.ha_service.ha_client
        client.ask_main_port, client.ask_record = partial(ask_main_port, self), partial(ask_record, self)
        self.message_store.ha_service.scrub_service.ask_checksums = partial(ask_checksums, self)
        if self.message_store_config.brokerRole is not BrokerRole.SLAVE \
                and not self.message_store_config.enableAutoSwitchHA:
            return
        if self.broker_config.enableControllerMode:
            return
        address = self.message_store_config.haMasterAddress
        if address is not None and len(address) >= _MIN_HA_ADDRESS_LENGTH:
            self.message_store.update_ha_master_address(address)
        else:
            self._update_master_ha_server_addr_periodically = True

    def _schedule_tasks(self) -> None:
        at_fixed_rate = self._scheduler.schedule_at_fixed_rate
        morning_ms = util_all.compute_next_morning_time_millis() - util_all.current_time_millis()
        at_fixed_rate(self.broker_stats.record, morning_ms, _DAY_MS)
        at_fixed_rate(self._persist_consumer_offsets, 10 * _SECOND_MS, self.broker_config.flushConsumerOffsetInterval)
        at_fixed_rate(self._persist_consumer_filter, 10 * _SECOND_MS, 10 * _SECOND_MS)
        at_fixed_rate(self.protect_broker, 3 * _MINUTE_MS, 3 * _MINUTE_MS)
        at_fixed_rate(self.print_water_mark, 10 * _SECOND_MS, _SECOND_MS)
        at_fixed_rate(self._print_dispatch_behind, 10 * _SECOND_MS, _MINUTE_MS)
        if self.broker_config.namesrvAddr is not None:
            at_fixed_rate(self._update_name_servers, 10 * _SECOND_MS, 2 * _MINUTE_MS)
        elif self.broker_config.fetchNamesrvAddrByAddressServer:
            at_fixed_rate(self._fetch_name_servers, 10 * _SECOND_MS, 2 * _MINUTE_MS)
        if self.message_store_config.brokerRole is not BrokerRole.SLAVE:
            at_fixed_rate(self._print_master_and_slave_diff, 10 * _SECOND_MS, _MINUTE_MS)
        period = max(10 * _SECOND_MS, min(self.broker_config.registerNameServerPeriod, _MINUTE_MS))
        at_fixed_rate(self._register_periodically, 10 * _SECOND_MS, period)

    def register_processor(self) -> None:
        """Say who serves which request code. Without an executor: the thread that read the request."""
        send = SendMessageProcessor(self)
        client = ClientManageProcessor(self)
        consumer = ConsumerManageProcessor(self)
        query = QueryMessageProcessor(self)
        admin = AdminBrokerProcessor(self)
        self.remoting_server.register_processor(request_code.PULL_MESSAGE, self.pull_message_processor)
        end_transaction = EndTransactionProcessor(self)
        reply = ReplyMessageProcessor(self)
        for server in (self.remoting_server, self.fast_remoting_server):
            server.io.express_lane = ExpressSend(self, server, send)
            for code in (request_code.SEND_MESSAGE, request_code.SEND_MESSAGE_V2, request_code.SEND_BATCH_MESSAGE,
                         request_code.CONSUMER_SEND_MSG_BACK):
                server.register_processor(code, send)
            for code in (request_code.QUERY_MESSAGE, request_code.VIEW_MESSAGE_BY_ID):
                server.register_processor(code, query, self.query_message_executor)
            for code in (request_code.HEART_BEAT, request_code.UNREGISTER_CLIENT, request_code.CHECK_CLIENT_CONFIG):
                server.register_processor(code, client)
            for code in (request_code.GET_CONSUMER_LIST_BY_GROUP, request_code.UPDATE_CONSUMER_OFFSET,
                         request_code.QUERY_CONSUMER_OFFSET):
                server.register_processor(code, consumer)
            server.register_processor(request_code.END_TRANSACTION, end_transaction)
            for code in (request_code.SEND_REPLY_MESSAGE, request_code.SEND_REPLY_MESSAGE_V2):
                server.register_processor(code, reply)
            for code in admin_handlers.AT_ONCE:
                server.register_processor(code, admin)
            for code in admin_handlers.OF_CONSUMERS:
                server.register_processor(code, admin, self.client_manage_executor)
            server.register_default_processor(admin, self.admin_broker_executor)

    def protect_broker(self) -> None:
        """Stop groups that are too far behind from reading, if the configuration wants that."""
        if not self.broker_config.disableConsumeIfConsumerReadSlowly:
            return
        for item in list(self.broker_stats_manager.moment_stats_item_set_fall_size.stats_item_table.values()):
            if item.value > self.broker_config.consumerFallbehindThreshold:
                group = item.stats_key.split("@")[2]
                LOG_PROTECTION.info("[PROTECT_BROKER] the consumer[%s] consume slowly, %d bytes, disable it", group,
                                    item.value)
                self.subscription_group_manager.disable_consume(group)

    def print_water_mark(self) -> None:
        """Log how many requests wait for a thread."""
        for name, executor in (("Send", self.send_message_executor), ("Pull", self.pull_message_executor),
                               ("Query", self.query_message_executor)):
            LOG_WATER_MARK.info("[WATERMARK] %s Queue Size: %d SlowTimeMills: %d", name, executor.queue_size(), 0)

    def start(self) -> None:
        """Open the store and the ports, and register. OSError when a port is taken, or nobody knows brokerIP1."""
        host = self._own_host()
        self.stall_watch.start()
        self.message_store.start()
        if self.access_validator is not None:
            self.access_validator.start()
        self.remoting_server.start()
        self.store_host = (host, self.remoting_server.local_listen_port)
        self.fast_remoting_server.start()
        self.certificate_watch.start()
        self.broker_outer_api.start()
        self._outer_api_started.set()
        self.pull_request_hold_service.start()
        self.client_housekeeping_service.start()
        self.handle_slave_synchronize(self.message_store_config.brokerRole)
        if self.message_store_config.brokerRole is not BrokerRole.SLAVE:
            self.transactional_message_service.open()
            self.transactional_message_check_service.start()
        if self.replicas_manager is not None:
            self.replicas_manager.start()
        self.register_broker_all(True, False, True)
        self._schedule_tasks()
        self._register_again_soon()
        self.broker_stats_manager.start()
        self.is_started = True

    def shutdown(self) -> None:
        """Stop everything, save the offsets, leave the name servers. Idempotent."""
        with self._shutdown_lock:
            if self._is_shutdown:
                return
            self._is_shutdown = True
        was_outer_api_started = self._outer_api_started.is_set()
        self._outer_api_started.set()
        self._leave_controllers()
        self.metrics_port.shutdown()
        self.broker_stats_manager.shutdown()
        self.client_housekeeping_service.shutdown()
        self.pull_request_hold_service.shutdown()
        if self.transactional_message_service is not None:
            self.transactional_message_service.close()
        self.transactional_message_check_service.shutdown()
        self.certificate_watch.shutdown()
        self.remoting_server.shutdown()
        self.fast_remoting_server.shutdown()
        if self.access_validator is not None:
            self.access_validator.shutdown()
        if self.message_store is not None:
            self.message_store.shutdown()
        self._scheduler.shutdown()
        if was_outer_api_started and self.replicas_manager is None:
            self._unregister_broker_all()
        self.send_message_executor.shutdown()
        self.pull_message_executor.shutdown()
        self.admin_broker_executor.shutdown()
        self.client_manage_executor.shutdown()
        self.broker_outer_api.shutdown()
        if self.message_store is not None:  # the table was loaded: an empty one would replace the file's
            self.consumer_offset_manager.persist()
            self.consumer_filter_manager.persist()
        self.heartbeat_executor.shutdown()
        self.query_message_executor.shutdown()
        self.stall_watch.shutdown()

    def _leave_controllers(self) -> None:
        """Have another master elected. Name servers first: they would forget the new one, which has the same id."""
        if self.replicas_manager is None:
            return
        with self._register_lock:
            if self._outer_api_started.is_set() and self._may_register:
                self._unregister_broker_all()
            self.is_isolated = True
        self.replicas_manager.shutdown()

    def lives(self, timeout_s: float) -> bool:
        """Whether it serves: both ports' threads answer within `timeout_s`, and messages are flushed and dispatched."""
        store = self.message_store
        services = (store.commit_log.flush_commit_log_service, store.reput_message_service)
        return (self.failure is None and all(service.is_alive() for service in services)
                and self.remoting_server.io.answers(timeout_s / 2)
                and self.fast_remoting_server.io.answers(timeout_s / 2))

    def waits_for_role(self) -> str | None:
        """Why it has no role and takes no messages, and who gives it one; None: it has one."""
        config, service = self.broker_config, self.message_store.ha_service
        if not self.message_store_config.enableAutoSwitchHA \
                or self.message_store_config.brokerRole is not BrokerRole.SLAVE:
            return None
        if self.replicas_manager is not None:
            if self.replicas_manager.role.master_id is not None:
                return None
            return f"the controllers at {config.controllerAddr} have not given it one yet"
        if self.configured_role is BrokerRole.SLAVE or service.ha_client.master_address is not None:
            return None
        return ("enableAutoSwitchHA=true, and its store was in use: another broker may be the master by now. `rmqha ha "
                f"promote -b {self.broker_addr}` makes it the master; without that key it is a "
                f"{self.configured_role.name} at once")

    def _service_failed(self, service: ServiceThread) -> None:
        """A port is closed for good, and a broker without it would only look like one."""
        self.failure = f"{service.get_service_name()} has given up: {service.failure!r}"
        log.critical("The broker can't go on: %s", self.failure)
        if self.on_failed is not None:
            self.on_failed()

    def _unregister_broker_all(self) -> None:
        config = self.broker_config
        self.broker_outer_api.unregister_broker_all(config.brokerClusterName, self.broker_addr, config.brokerName,
                                                    config.brokerId)

    def _own_host(self) -> str:
        """The address that messages carry."""
        try:
            return resolved_host(self.broker_config.brokerIP1)
        except OSError as error:
            raise OSError(f"brokerIP1={self.broker_config.brokerIP1} is no address, and no host of that name is known: "
                          f"{error}. Set it to an address of this host, or to a name that this host knows") from error

    @property
    def broker_addr(self) -> str:
        """`brokerIP1:port`, at which clients find this broker."""
        return f"{self.broker_config.brokerIP1}:{self.store_host[1]}"

    @property
    def ha_server_addr(self) -> str:
        """The `ip:port` at which slaves find this broker."""
        port = self.message_store_config.haListenPort
        if port == 0 and self.message_store is not None:
            port = self.message_store.ha_service.ha_listen_port
        return f"{self.broker_config.brokerIP2}:{port}"

    @property
    def _may_register(self) -> bool:
        manager = self.replicas_manager
        return not self.is_isolated and (manager is None or manager.may_register())

    def register_increment_broker_data(self, topic_config: TopicConfig) -> None:
        """Register one topic that was made or changed."""
        with self._register_lock:
            if self._may_register:
                self._do_register_broker_all(True, False, topic_config.topicName)

    def register_broker_all(self, check_order_config: bool, oneway: bool, force_register: bool) -> None:
        """Register all topics, unless the name servers have them already and `force_register` is false."""
        with self._register_lock:
            if self._may_register and (force_register or self._need_register()):
                self._do_register_broker_all(check_order_config, oneway)

    def register_broker_at_once(self) -> None:
        """Register all topics, even while another registration still waits for a name server that does not answer."""
        has_lock = self._register_lock.acquire(timeout=_REGISTER_PATIENCE_S)
        try:
            if self._may_register:
                self._do_register_broker_all(True, False)
        finally:
            if has_lock:
                self._register_lock.release()

    def _registered_topics(self, names: Iterable[str] | None) -> TopicConfigSerializeWrapper:
        """These topics, or all, as name servers are told of them."""
        wrapper = self.topic_config_manager.build_topic_config_serialize_wrapper(names)
        wrapper.topicConfigTable = {name: self._as_permitted(config)
                                    for name, config in wrapper.topicConfigTable.items()}
        return wrapper

    def _as_permitted(self, config: TopicConfig) -> TopicConfig:
        permission = self.broker_config.brokerPermission
        if sys_flags.is_writeable(permission) and sys_flags.is_readable(permission):
            return config
        return TopicConfig(config.topicName, config.readQueueNums, config.writeQueueNums, permission)

    def _do_register_broker_all(self, check_order_config: bool, oneway: bool, alone: str | None = None) -> None:
        config = self.broker_config
        registration = Registration(self.topic_config_manager.changes, self._registered_topics, alone)
        results = self.broker_outer_api.register_broker_all(
            config.brokerClusterName, self.broker_addr, config.brokerName, config.brokerId, self.ha_server_addr,
            registration, [], oneway, config.registerBrokerTimeoutMills, config.compressedRegister)
        if not oneway:
            self.name_servers_registered = len(results)
        if not results:
            return
        result = results[0]
        self.registered_master = None if result.masterAddr is None or result.haServerAddr is None \
            else (result.masterAddr, result.haServerAddr)
        if self._update_master_ha_server_addr_periodically and result.haServerAddr is not None:
            self.message_store.update_ha_master_address(result.haServerAddr)
        if self.replicas_manager is None:
            self.slave_synchronize.master_addr = result.masterAddr
            self._note_master(has_master=bool(result.masterAddr))
        if check_order_config:
            self.topic_config_manager.update_order_topic_config(result.kvTable)

    def _note_master(self, has_master: bool) -> None:
        """Warn once when no master has a slave's name: it is misspelt, or the master is gone."""
        lacked = self.lacks_master
        self.lacks_master = not has_master and self.message_store_config.brokerRole is BrokerRole.SLAVE
        # Differs: the original says nothing, and follows nobody for ever
        if self.lacks_master and not lacked:
            log.warning("%s", self.lacking_master_text())
        elif lacked and has_master:
            log.info("a master of brokerName=%s is registered now", self.broker_config.brokerName)

    def lacking_master_text(self) -> str:
        """What is wrong when `lacks_master`."""
        follows = self.message_store_config.haMasterAddress
        return (f"no master of brokerName={self.broker_config.brokerName} is registered at {self._name_servers()}: "
                + (f"this slave follows {follows} by its haMasterAddress, and gets neither topics nor offsets"
                   if follows else "this slave has nobody to follow")
                + ". Start the master, or correct brokerName: it has to be the master's")

    def _name_servers(self) -> str:
        return self.broker_config.namesrvAddr or "the name server"

    def _need_register(self) -> bool:
        config = self.broker_config
        version = self.topic_config_manager.data_version.copy()
        return any(self.broker_outer_api.need_register(
            config.brokerClusterName, self.broker_addr, config.brokerName, config.brokerId, version,
            config.registerBrokerTimeoutMills))

    def register_server_rpc_hook(self, rpc_hook: RPCHook) -> None:
        """Let a hook see the requests of both ports."""
        self.remoting_server.register_rpc_hook(rpc_hook)
        self.fast_remoting_server.register_rpc_hook(rpc_hook)

    def handle_slave_synchronize(self, role: BrokerRole, master_address: str | None = None) -> None:
        """Begin to take a master's tables, or stop it, as `role` asks; `master_address`: as a controller says."""
        self._slave_sync_generation += 1
        self.slave_synchronize.begin_anew()
        self.slave_synchronize.master_addr = master_address
        if role is BrokerRole.SLAVE:
            is_controlled = self.broker_config.enableControllerMode
            self._schedule_slave_sync(self._slave_sync_generation,
                                      _FIRST_CONTROLLED_SYNC_MS if is_controlled else _FIRST_SLAVE_SYNC_MS,
                                      _CONTROLLED_SYNC_MS if is_controlled else _SLAVE_SYNC_MS)

    def _schedule_slave_sync(self, generation: int, delay_ms: int, period_ms: int) -> None:
        """Each round plans the next one: rounds of an older generation end by themselves."""
        def sync() -> None:
            if generation == self._slave_sync_generation:
                try:
                    self.slave_synchronize.sync_all()
                finally:
                    self._schedule_slave_sync(generation, period_ms, period_ms)

        self._scheduler.schedule(sync, delay_ms)

    def change_special_service_status(self, should_start: bool) -> None:
        """Begin or end what only a master does: deliver delayed messages, ask about transactions.

        Java: org.apache.rocketmq.broker.BrokerController#changeSpecialServiceStatus (5.1.4)
        """
        with self._special_services_lock:
            self.message_store.handle_schedule_message_service(
                BrokerRole.SYNC_MASTER if should_start else BrokerRole.SLAVE)
            if should_start:
                self.transactional_message_service.open()
                self.transactional_message_check_service.start()
            else:
                self.transactional_message_check_service.shutdown()

    def _persist_consumer_offsets(self) -> None:
        self.consumer_offset_manager.persist_changes()

    def _persist_consumer_filter(self) -> None:
        self.consumer_filter_manager.persist_changes()

    def _print_dispatch_behind(self) -> None:
        log.info("dispatch behind commit log %d bytes", self.message_store.dispatch_behind_bytes())

    def _print_master_and_slave_diff(self) -> None:
        log.info("Slave fall behind master: %d bytes", self.message_store.slave_fall_behind_much())

    def _update_name_servers(self) -> None:
        self.broker_outer_api.update_name_server_address_list(self.broker_config.namesrvAddr or "")

    def _fetch_name_servers(self) -> None:
        self.broker_outer_api.fetch_name_server_addr()

    def _register_periodically(self) -> None:
        self.register_broker_all(True, False, self.broker_config.forceRegister)

    def _register_again_soon(self, tries: int = 0) -> None:
        # Differs: a broker whose name server is not up yet tries again 0.1 to 6.3 s after its own start; the original
        # registers again after 10 s
        if tries == len(_REGISTER_AGAIN_MS) or self._is_registered_everywhere():
            return

        def register() -> None:
            self.register_broker_all(True, False, True)
            self._register_again_soon(tries + 1)
        self._scheduler.schedule(register, _REGISTER_AGAIN_MS[tries])

    def _is_registered_everywhere(self) -> bool:
        addresses = self.broker_outer_api.remoting_client.get_name_server_address_list() or []
        return self.name_servers_registered >= len(addresses)


def _fast_config(server_config: ServerConfig) -> ServerConfig:
    """The same two ports below; any port stays any port."""
    fast = copy.copy(server_config)
    fast.listenPort = server_config.listenPort - 2 if server_config.listenPort else 0
    return fast
