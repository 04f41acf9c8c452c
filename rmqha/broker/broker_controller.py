"""The broker: builds its parts, starts and stops them in order, and registers at the name servers.

    NettyServerNIOSelector (one per port)  read, decode, serve inline, write
    SendMessageThread_, PullMessageThread_, HeartbeatThread_   the requests of those kinds that may block
    QueryMessageThread_, AdminBrokerThread_                    all requests of those kinds
    ClientManageThread_                    consumers' requests for locks of queues and for offsets by time
    BrokerControllerScheduledThread1       registration, saving, slave synchronization, watermarks
    TransactionalMessageCheckService       half messages without an outcome (masters)
    ClientHousekeepingScheduledThread1, BrokerStatsThread1, PullRequestHoldService, brokerOutApi_thread_, the store's
"""
import copy
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from rmqha.acl.common import AccessRPCHook
from rmqha.broker import broker_path_config_helper
from rmqha.broker.broker_addresses import BrokerAddresses
from rmqha.broker.broker_fast_failure import BrokerFastFailure, BrokerPools
from rmqha.broker.broker_outer_api import BrokerOuterAPI
from rmqha.broker.broker_registration import BrokerRegistration
from rmqha.broker.client.broker2_client import Broker2Client
from rmqha.broker.client.client_channels import ClientHousekeepingService, DefaultConsumerIdsChangeListener
from rmqha.broker.client.consumer_manager import ConsumerManager
from rmqha.broker.client.producer_manager import ProducerManager
from rmqha.broker.client.rebalance_lock_manager import RebalanceLockManager
from rmqha.broker.consumer_filter_manager import ConsumerFilterManager
from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager, LmqConsumerOffsetManager
from rmqha.broker.consumer_subscription_manager import GRACE_MS, ConsumerSubscriptionManager
from rmqha.broker.expression_message_filter import CommitLogDispatcherCalcBitMap
from rmqha.broker.master_main_port import MasterMainPort
from rmqha.broker.processor import admin_handlers
from rmqha.broker.processor.admin_broker_handlers import AdminBrokerHandlers, ConfigFile
from rmqha.broker.processor.admin_broker_processor import AdminBrokerProcessor
from rmqha.broker.processor.admin_browse_handlers import AdminBrowseHandlers
from rmqha.broker.processor.admin_client_handlers import AdminClientHandlers
from rmqha.broker.processor.admin_group_handlers import AdminAclHandlers, AdminGroupHandlers, AdminTransactionHandlers
from rmqha.broker.processor.admin_handlers import AdminHandlers, AdminTurns
from rmqha.broker.processor.admin_offset_handlers import AdminOffsetHandlers
from rmqha.broker.processor.admin_queue_handlers import AdminQueueHandlers
from rmqha.broker.processor.admin_role_handlers import AdminHaHandlers, AdminRoleHandlers
from rmqha.broker.processor.admin_topic_handlers import AdminTopicHandlers
from rmqha.broker.processor.client_manage_processor import ClientManageProcessor
from rmqha.broker.processor.consumer_manage_processor import ConsumerManageProcessor
from rmqha.broker.processor.end_transaction_processor import EndTransactionProcessor
from rmqha.broker.processor.express_send import ExpressSend
from rmqha.broker.processor.pull_admission import PullAdmission
from rmqha.broker.processor.pull_message_processor import PullMessageProcessor
from rmqha.broker.processor.query_message_processor import QueryMessageProcessor
from rmqha.broker.processor.reply_message_processor import ReplyMessageProcessor
from rmqha.broker.processor.send_back import SendBack
from rmqha.broker.processor.send_message_processor import SendMessageProcessor
from rmqha.broker.pull_request_hold_service import NotifyMessageArrivingListener, PullRequestHoldService
from rmqha.broker.record_access import RecordAccess
from rmqha.broker.role_services import RoleServices
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.subscription_group_manager import LmqSubscriptionGroupManager, SubscriptionGroupManager
from rmqha.broker.topic_config_manager import LmqTopicConfigManager, TopicConfigManager, TopicDeletion
from rmqha.broker.transaction.transactional_message_service import TransactionalMessageCheckService
from rmqha.broker.transaction.transactional_message_service_impl import (
    DefaultTransactionalMessageCheckListener,
    TransactionalMessageBridge,
    TransactionalMessageServiceImpl,
)
from rmqha.common import util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import Configuration
from rmqha.common.process import StallWatch
from rmqha.common.protocol import request_code
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import ScheduledService
from rmqha.remoting.addresses import FAST_PORT, resolved_host
from rmqha.remoting.http_port import MetricsPort
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.remoting_server import CertificateWatch, RemotingServer
from rmqha.store.broker_stats_manager import BrokerStats, BrokerStatsManager, LmqBrokerStatsManager
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import SLAVE, MessageStoreConfig
from rmqha.store.record_check import block_checksums
from rmqha.store.role import Role

if TYPE_CHECKING:
    from rmqha.acl.plain_access_validator import PlainAccessValidator
    from rmqha.broker.controller.replicas_manager import ReplicasManager
    from rmqha.broker.metrics.broker_metrics import BrokerMetrics
    from rmqha.broker.relay.master_relay import MasterRelay

log = logging.getLogger("RocketmqBroker")
LOG_PROTECTION = logging.getLogger("RocketmqProtection")
LOG_WATER_MARK = logging.getLogger("RocketmqWaterMark")

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_DAY_MS = 24 * 60 * _MINUTE_MS
# Pauses between registrations after a start; the periodic registration begins 10 s after the start.
_REGISTER_AGAIN_MS = (100, 200, 400, 800, 1600, 3200)
# A shorter haMasterAddress is treated as not set.
_MIN_HA_ADDRESS_LENGTH = 6


class BrokerController:
    """One broker: call `initialize()`, `start()` and `shutdown()`. Its parts are attributes.

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
        self.role = Role(message_store_config, broker_config)
        if broker_config.enableControllerMode:
            self.role.take(SLAVE)  # until the controller has decided
        self.addresses = BrokerAddresses(broker_config, message_store_config, server_config.listenPort)
        self.broker_outer_api = BrokerOuterAPI(client_config)
        self._make_tables()
        self.registration = BrokerRegistration(broker_config, message_store_config, self.role, self.addresses,
                                               self.topic_config_manager, self.broker_outer_api)
        self.broker_fast_failure = BrokerFastFailure(lambda: broker_config.brokerFastFailureEnable)
        self.pools = BrokerPools(broker_config)
        self.admin_turns = AdminTurns()
        self.configuration = Configuration(
            log, *self.configs,
            store_path=config_file or broker_path_config_helper.get_default_broker_config_path())
        self.config_file = ConfigFile(self.configuration, is_read=config_file is not None)
        self.message_store: DefaultMessageStore = None  # type: ignore[assignment]  # from initialize on
        self.access_validator: PlainAccessValidator | None = None  # from initialize on, when aclEnable
        self.replicas_manager: ReplicasManager | None = None  # from initialize on, when enableControllerMode
        self.master_relay: MasterRelay | None = None  # from initialize on, when relayToMaster in controller mode
        self.remoting_server = RemotingServer(server_config, self.client_housekeeping_service)
        self.fast_remoting_server = RemotingServer(_fast_config(server_config), self.client_housekeeping_service,
                                                   port_use=FAST_PORT)
        self.fast_remoting_server.large_requests = self.remoting_server.large_requests
        self.fast_remoting_server.io.begun_frames = self.remoting_server.io.begun_frames
        self.certificate_watch = CertificateWatch((self.remoting_server, self.fast_remoting_server))
        self.stall_watch = StallWatch(broker_config.stallWatchMs)
        self.metrics_port = MetricsPort(broker_config.metricsHost, broker_config.metricsPort or None, self._metrics)
        self._scheduler = ScheduledService("BrokerControllerScheduledThread1")
        self._shutdown_lock = threading.Lock()
        self._is_shutdown = False  # guarded by _shutdown_lock
        self._is_api_started = False  # written by start()
        self.is_started = False  # written by start()
        # Why the broker cannot continue; written by the service that failed.
        self.failure: str | None = None
        # Called after `failure` is set.
        self.on_failed: Callable[[], None] | None = None
        for server in (self.remoting_server, self.fast_remoting_server):
            server.io.on_failed = self._service_failed

    def _make_tables(self) -> None:
        """Create the tables: topics, groups, offsets, filters, statistics and connected clients."""
        broker_config, store_config = self.broker_config, self.message_store_config
        is_lmq = store_config.enableLmq
        self.topic_config_manager = (LmqTopicConfigManager if is_lmq else TopicConfigManager)(
            broker_config, store_config, lambda: self.registration.register_broker_all(False, True, True))
        self.subscription_group_manager = (LmqSubscriptionGroupManager if is_lmq else SubscriptionGroupManager)(
            broker_config, store_config)
        named = store_config, self.topic_config_manager, self.subscription_group_manager
        self.consumer_offset_manager = LmqConsumerOffsetManager(*named, self._has_light_queue) if is_lmq \
            else ConsumerOffsetManager(*named)
        self.consumer_filter_manager = ConsumerFilterManager(broker_config, store_config)
        self.consumer_subscription_manager = ConsumerSubscriptionManager(
            store_config, lambda task, delay_ms: self._scheduler.schedule(task, delay_ms))
        self.broker_stats_manager = (LmqBrokerStatsManager if is_lmq else BrokerStatsManager)(
            broker_config.brokerClusterName, broker_config.enableDetailStat)
        self.consumer_manager = ConsumerManager(DefaultConsumerIdsChangeListener(
            broker_config, self.consumer_filter_manager, self.consumer_subscription_manager,
            lambda channel, group: self.broker2_client.notify_consumer_ids_changed(channel, group)),
            has_two_addresses=bool(broker_config.masterAddress))
        self.producer_manager = ProducerManager()
        self.rebalance_lock_manager = RebalanceLockManager()
        self.client_housekeeping_service = ClientHousekeepingService(
            (self.producer_manager.do_channel_close_event, self.consumer_manager.do_channel_close_event),
            (self.producer_manager.scan_not_active_channel, self.consumer_manager.scan_not_active_channel,
             self.rebalance_lock_manager.remove_expired, self.consumer_subscription_manager.drop_expired))

    def _has_light_queue(self, topic: str) -> bool:
        return self.message_store.get_consume_queue(topic, 0) is not None

    def _metrics(self) -> "BrokerMetrics":
        # Imported here because many brokers have no metrics port.
        from rmqha.broker.metrics.broker_metrics import BrokerMetrics

        return BrokerMetrics(self)

    def initialize(self) -> bool:
        """Load the tables and the store. Returns False when a file cannot be used; the log says which.

        Raises PortError when the metrics port is in use: it is opened first, to report progress during a long recovery.
        """
        self.metrics_port.start()
        self.config_file.remember()
        loaded = (self.topic_config_manager.load() and self.consumer_offset_manager.load()
                  and self.subscription_group_manager.load() and self.consumer_filter_manager.load()
                  and self.consumer_subscription_manager.load())
        if not loaded:
            return False
        if self.broker_config.aclEnable:
            # Differs: access control always uses PlainAccessValidator; the original looks for other validators in
            # META-INF/service
            home = self.broker_config.rocketmqHome
            assert home is not None  # set at the start
            # Imported here because most brokers have no access control.
            from rmqha.acl.plain_access_validator import PlainAccessValidator

            self.access_validator = PlainAccessValidator(home)
        try:
            self.message_store = DefaultMessageStore(self.message_store_config, self.broker_stats_manager, None,
                                                     self.broker_config, self.role)
        except OSError:
            log.exception("Failed to initialize")
            return False
        self._make_services()
        # Differs: the bit maps of filters are enabled or disabled at the start only, because bulk dispatch depends on
        # it
        if self.broker_config.enableCalcFilterBitMap:
            self.message_store.record_dispatcher.dispatcher_list.insert(
                0, CommitLogDispatcherCalcBitMap(self.broker_config, self.consumer_filter_manager))
        if self.broker_config.enableControllerMode:
            self._make_replicas_manager().prepare()
        else:
            self.registration.on_master = self.slave_synchronize.follow
        if not self.message_store.load():
            return False
        self.message_store.ha_service.accept_socket_service.on_failed = self._service_failed
        self.register_processor()
        if self.replicas_manager is not None and self.broker_config.relayToMaster:
            self._make_relay(self.replicas_manager)
        self._initialize_name_servers()
        self._initialize_role()
        self._initial_acl()
        return True

    def _make_services(self) -> None:
        """Create the services that use the store."""
        store, topics, offsets = self.message_store, self.topic_config_manager, self.consumer_offset_manager
        reput = store.reput_message_service
        self.addresses.replicates_by(store.ha_service)
        if store.auto_switch is not None:
            self.registration.master_epoch = store.auto_switch.epoch_cache.last_epoch
        store.deleted_topics.queues_of = topics.queues_of
        self.broker_stats = BrokerStats(store.store_stats_service)
        self.broker2_client = Broker2Client(self.addresses, self.remoting_server, store, topics, offsets,
                                            self.consumer_manager)
        self.record_access = RecordAccess(self.access_validator, self.message_store_config, store.consume_queue_table,
                                          reput)
        self.pull_request_hold_service = PullRequestHoldService(
            self.broker_config, store, reput, store.deleted_topics, topics.queues_of)
        reput.message_arriving_listener = NotifyMessageArrivingListener(self.pull_request_hold_service)
        self.topic_deletion = TopicDeletion(store, topics, (
            offsets.remove_topic, self.consumer_filter_manager.remove_topic,
            self.broker_stats_manager.on_topic_deleted, self.pull_request_hold_service.answer_all))
        self.slave_synchronize = SlaveSynchronize(
            self.broker_outer_api, self.addresses, self.message_store_config, topics, self.subscription_group_manager,
            offsets, self.topic_deletion, store.get_max_phy_offset)
        self.slave_synchronize.asks_for_state = self.broker_config.metricsPort > 0
        self.master_main_port = MasterMainPort(self.broker_outer_api, self.addresses, self.slave_synchronize)
        self.master_main_port.followed = lambda: store.ha_service.ha_client.master_address
        self.slave_synchronize.own_address_of = self.master_main_port.own_address_of
        self._make_transactions()
        self.role_services = RoleServices(
            self.broker_config, self.role, self.slave_synchronize,
            store.handle_schedule_message_service, self.transactional_message_service,
            self.transactional_message_check_service, self._scheduler)

    def _make_transactions(self) -> None:
        # Differs: the classes of the transaction services are fixed; the original looks for other ones in
        # META-INF/service
        store, topics = self.message_store, self.topic_config_manager
        self.transactional_message_service = TransactionalMessageServiceImpl(TransactionalMessageBridge(
            store, self.broker_stats_manager, self.addresses, topics, self.consumer_offset_manager))
        self.transactional_message_check_listener = DefaultTransactionalMessageCheckListener(
            self.producer_manager, self.record_access, self.broker2_client, store.put_message, topics)
        self.transactional_message_check_service = TransactionalMessageCheckService(
            self.broker_config, self.transactional_message_service, self.transactional_message_check_listener)

    def _make_replicas_manager(self) -> "ReplicasManager":
        # Imported here because most brokers have no controller.
        from rmqha.broker.controller.controller_heartbeat import MasterHaAddress
        from rmqha.broker.controller.replicas_manager import ReplicasManager

        self.replicas_manager = manager = ReplicasManager(
            self.broker_config, self.client_config, self.addresses, self.message_store, self.topic_config_manager,
            self.role_services, self.registration, MasterHaAddress(self.broker_outer_api, self.registration))
        self.registration.may_register = manager.may_register
        return manager

    def _make_relay(self, manager: "ReplicasManager") -> None:
        # Imported here because most brokers have no controller.
        from rmqha.broker.relay.master_relay import MasterRelay
        from rmqha.broker.relay.relay_processor import RelayProcessor

        self.master_relay = relay = MasterRelay(self.role, lambda: manager.followed, self.addresses,
                                                lambda: manager.broker_id, self.client_config)
        processor = RelayProcessor(relay.master_route, self.addresses)
        for server in (self.remoting_server, self.fast_remoting_server):
            server.register_processor(request_code.RELAY_CLIENT, processor)
            relay.serve_through(server)
        held, io = self.pull_request_hold_service, self.remoting_server.io

        def role_changed() -> None:
            relay.role_changed()
            # Clients pull again at once, and the new pulls are served by the present master.
            held.wake_all()
            io.post(held.run_woken)

        manager.on_role_changed = role_changed

    def _initial_acl(self) -> None:
        if self.access_validator is None:
            log.info("The broker dose not enable acl")
            return
        self.access_validator.load()
        self.register_server_rpc_hook(AccessRPCHook(self.access_validator))

    def _initialize_name_servers(self) -> None:
        namesrv_addr = self.broker_config.namesrvAddr
        if namesrv_addr is not None:
            self.broker_outer_api.update_name_server_address_list(namesrv_addr)
            log.info("Set user specified name server address: %s", namesrv_addr)

    def _initialize_role(self) -> None:
        client, main_port = self.message_store.ha_service.ha_client, self.master_main_port
        client.ask_main_port, client.ask_record = main_port.ask_main_port, main_port.ask_record
        self.message_store.ha_service.scrub_service.ask_checksums = main_port.ask_checksums
        if not self.role.is_slave \
                and not self.message_store_config.enableAutoSwitchHA:
            return
        if self.broker_config.enableControllerMode:
            return
        address = self.message_store_config.haMasterAddress
        if address is not None and len(address) >= _MIN_HA_ADDRESS_LENGTH:
            self.message_store.update_ha_master_address(address)
        else:
            self.registration.on_master_ha = self.message_store.update_ha_master_address

    def _schedule_tasks(self) -> None:
        at_fixed_rate = self._scheduler.schedule_at_fixed_rate
        morning_ms = util_all.compute_next_morning_time_millis() - util_all.current_time_millis()
        at_fixed_rate(self.broker_stats.record, morning_ms, _DAY_MS)
        at_fixed_rate(self.consumer_offset_manager.persist_changes, 10 * _SECOND_MS,
                      self.broker_config.flushConsumerOffsetInterval)
        at_fixed_rate(self.consumer_filter_manager.persist_changes, 10 * _SECOND_MS, 10 * _SECOND_MS)
        at_fixed_rate(self.consumer_subscription_manager.persist_changes, 10 * _SECOND_MS, 10 * _SECOND_MS)
        self._scheduler.schedule(self._notify_put_off, GRACE_MS)
        at_fixed_rate(self.protect_broker, 3 * _MINUTE_MS, 3 * _MINUTE_MS)
        at_fixed_rate(self.print_water_mark, 10 * _SECOND_MS, _SECOND_MS)
        at_fixed_rate(self._print_dispatch_behind, 10 * _SECOND_MS, _MINUTE_MS)
        if self.broker_config.namesrvAddr is not None:
            at_fixed_rate(self._update_name_servers, 10 * _SECOND_MS, 2 * _MINUTE_MS)
        elif self.broker_config.fetchNamesrvAddrByAddressServer:
            at_fixed_rate(self.broker_outer_api.fetch_name_server_addr, 10 * _SECOND_MS, 2 * _MINUTE_MS)
        if not self.role.is_slave:
            at_fixed_rate(self._print_master_and_slave_diff, 10 * _SECOND_MS, _MINUTE_MS)
        period = max(10 * _SECOND_MS, min(self.broker_config.registerNameServerPeriod, _MINUTE_MS))
        at_fixed_rate(self.registration.register_periodically, 10 * _SECOND_MS, period)

    def register_processor(self) -> None:
        """Register a processor for each request code. Without an executor, the thread that read the request runs it."""
        self._register_clients()
        send, pools, store = self._send_processor(), self.pools, self.message_store
        reply = ReplyMessageProcessor(
            self.broker_config, self.topic_config_manager, send.hand_over, store.async_put_message,
            self.broker_stats_manager, self.addresses, self.producer_manager, self.remoting_server)
        query = QueryMessageProcessor(self.message_store_config, store.query_message,
                                      store.select_one_message_by_offset, self.record_access,
                                      self.admin_turns.computing)
        admin = AdminBrokerProcessor(store.reput_message_service, self.admin_turns, self._admin_handlers())
        self.remoting_server.register_processor(request_code.PULL_MESSAGE, self._pull_processor())
        for server in (self.remoting_server, self.fast_remoting_server):
            server.io.express_lane = ExpressSend(
                self.broker_config, self.message_store_config, server, send, store.put_rows, store.count_rows,
                self.broker_stats_manager, self.addresses)
            for code in (request_code.SEND_MESSAGE, request_code.SEND_MESSAGE_V2, request_code.SEND_BATCH_MESSAGE,
                         request_code.CONSUMER_SEND_MSG_BACK):
                server.register_processor(code, send)
            for code in (request_code.QUERY_MESSAGE, request_code.VIEW_MESSAGE_BY_ID):
                server.register_processor(code, query, pools.query_message_executor)
            for code in (request_code.SEND_REPLY_MESSAGE, request_code.SEND_REPLY_MESSAGE_V2):
                server.register_processor(code, reply)
            for code in admin_handlers.AT_ONCE:
                server.register_processor(code, admin)
            for code in admin_handlers.OF_CONSUMERS:
                server.register_processor(code, admin, pools.client_manage_executor)
            server.register_default_processor(admin, pools.admin_broker_executor)

    def _register_clients(self) -> None:
        """Register the processors of heartbeats, consumer offsets and the ends of transactions."""
        config, store, hand_over_to = self.broker_config, self.message_store, self.broker_fast_failure.hand_over_to
        client = ClientManageProcessor(
            config, self.topic_config_manager, self.subscription_group_manager, self.consumer_manager,
            self.consumer_subscription_manager, self.producer_manager, self.record_access,
            self.client_housekeeping_service,
            hand_over_to(self.pools.heartbeat_executor, lambda: config.waitTimeMillsInHeartbeatQueue))
        consumer = ConsumerManageProcessor(store, self.consumer_manager, self.consumer_subscription_manager,
                                           self.consumer_offset_manager, self.topic_deletion)
        end_transaction = EndTransactionProcessor(
            self.message_store_config, self.role, store.deleted_topics, store.async_put_message,
            self.transactional_message_service, self.record_access,
            hand_over_to(self.pools.send_message_executor, lambda: config.waitTimeMillsInTransactionQueue))
        for server in (self.remoting_server, self.fast_remoting_server):
            for code in (request_code.HEART_BEAT, request_code.UNREGISTER_CLIENT, request_code.CHECK_CLIENT_CONFIG):
                server.register_processor(code, client)
            for code in (request_code.GET_CONSUMER_LIST_BY_GROUP, request_code.UPDATE_CONSUMER_OFFSET,
                         request_code.QUERY_CONSUMER_OFFSET):
                server.register_processor(code, consumer)
            server.register_processor(request_code.END_TRANSACTION, end_transaction)

    def _send_processor(self) -> SendMessageProcessor:
        config, store, stats, topics = (self.broker_config, self.message_store, self.broker_stats_manager,
                                        self.topic_config_manager)
        send_back = SendBack(config, store.look_message_by_offset, store.async_put_message, stats, topics,
                             self.subscription_group_manager, self.record_access)
        hand_over = self.broker_fast_failure.hand_over_to(self.pools.send_message_executor,
                                                          lambda: config.waitTimeMillsInSendQueue)
        return SendMessageProcessor(config, topics, hand_over, store, stats, self.addresses,
                                    self.transactional_message_service, send_back)

    def _pull_processor(self) -> PullMessageProcessor:
        config, held = self.broker_config, self.pull_request_hold_service
        admission = PullAdmission(
            config, self.topic_config_manager, self.subscription_group_manager, self.consumer_manager,
            self.consumer_subscription_manager, self.consumer_filter_manager, self.broker_fast_failure.hand_over_to(
                self.pools.pull_message_executor, lambda: config.waitTimeMillsInPullQueue))
        held.processor = processor = PullMessageProcessor(
            config, self.message_store, self.broker_stats_manager, self.addresses, admission, held,
            self.consumer_offset_manager, self.topic_deletion.is_stale)
        return processor

    def _admin_handlers(self) -> Iterator[AdminHandlers]:
        """Yield the handlers of all admin requests."""
        config, role, store = self.broker_config, self.role, self.message_store
        topics, groups, offsets = (self.topic_config_manager, self.subscription_group_manager,
                                   self.consumer_offset_manager)
        consumers, stats, access = self.consumer_manager, self.broker_stats_manager, self.record_access
        yield AdminTopicHandlers(role, topics, self.topic_deletion, self.registration,
                                 self.slave_synchronize, store.execute_delete_files_manually)
        yield AdminQueueHandlers(self.addresses, store, store.consume_queue_table, topics, consumers,
                                 self.consumer_filter_manager)
        yield AdminBrowseHandlers(topics, store.consume_queue_table, store.commit_log)
        yield AdminGroupHandlers(config, role, groups, offsets, consumers, self.producer_manager, stats)
        yield AdminOffsetHandlers(self.addresses, store, stats, topics, groups, offsets, consumers, access)
        yield AdminBrokerHandlers(self.configuration, config, self.registration, store, self.pools, stats,
                                  self.broker_stats, self.config_file)
        yield AdminClientHandlers(self.addresses, store.select_one_message_by_offset, access, consumers,
                                  self.rebalance_lock_manager, self.broker2_client)
        yield AdminAclHandlers(config, self.addresses, self.access_validator)
        yield AdminTransactionHandlers(store.look_message_by_offset, store.put_message, access)
        yield AdminHaHandlers(self.message_store_config, role, self.addresses, store.ha_service, store.commit_log,
                              partial(block_checksums, store), store.schedule_message_service.encode)
        yield AdminRoleHandlers(config, store.auto_switch, store.get_max_phy_offset, self.role_services,
                                self.registration, self.replicas_manager)

    def protect_broker(self) -> None:
        """Disable groups that are too far behind, if disableConsumeIfConsumerReadSlowly is set."""
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
        pools = self.pools
        for name, executor in (("Send", pools.send_message_executor), ("Pull", pools.pull_message_executor),
                               ("Query", pools.query_message_executor)):
            LOG_WATER_MARK.info("[WATERMARK] %s Queue Size: %d SlowTimeMills: %d", name, executor.queue_size(), 0)

    def start(self) -> None:
        """Open the store and the ports, and register.

        Raises OSError when a port is in use or brokerIP1 cannot be resolved.
        """
        host = self._own_host()
        self.stall_watch.start()
        self.message_store.start()
        if self.access_validator is not None:
            self.access_validator.start()
        self.consumer_subscription_manager.begin()
        self.remoting_server.start()
        self.addresses.listens_at(host, self.remoting_server.local_listen_port)
        self.fast_remoting_server.start()
        self.certificate_watch.start()
        self.broker_outer_api.start()
        self._is_api_started = True
        if self.master_relay is not None:
            self.master_relay.start()
        self.master_main_port.begin()
        self.pull_request_hold_service.start()
        self.client_housekeeping_service.start()
        self.role_services.handle_slave_synchronize(self.role.kind)
        if not self.role.is_slave:
            self.role_services.begin_transactions()
        if self.replicas_manager is not None:
            self.replicas_manager.start()
        self.registration.register_broker_all(True, False, True)
        self._schedule_tasks()
        self._register_again_soon()
        self.broker_stats_manager.start()
        self.is_started = True

    def shutdown(self) -> None:
        """Stop all services, save the offsets, and unregister from the name servers. Idempotent."""
        with self._shutdown_lock:
            if self._is_shutdown:
                return
            self._is_shutdown = True
        is_initialized = self.message_store is not None
        if is_initialized:
            self.master_main_port.end()
        self._leave_controllers()
        self.metrics_port.shutdown()
        self.broker_stats_manager.shutdown()
        self.client_housekeeping_service.shutdown()
        if is_initialized:
            self.consumer_subscription_manager.shutdown()
            self.pull_request_hold_service.end_holding()
            self.pull_request_hold_service.shutdown()
            self.role_services.end()
        if self.master_relay is not None:
            self.master_relay.shutdown()
        self.certificate_watch.shutdown()
        self.remoting_server.shutdown()
        self.fast_remoting_server.shutdown()
        if self.access_validator is not None:
            self.access_validator.shutdown()
        if is_initialized:
            self.message_store.shutdown()
        self._scheduler.shutdown()
        if self._is_api_started and self.replicas_manager is None:
            self.registration.unregister_broker_all()
        self.pools.send_message_executor.shutdown()
        self.pools.pull_message_executor.shutdown()
        self.pools.admin_broker_executor.shutdown()
        self.pools.client_manage_executor.shutdown()
        self.broker_outer_api.shutdown()
        # Only save tables that were loaded: an empty one would overwrite the file.
        if is_initialized:
            self.consumer_offset_manager.persist()
            self.consumer_filter_manager.persist()
        self.pools.heartbeat_executor.shutdown()
        self.pools.query_message_executor.shutdown()
        self.stall_watch.shutdown()

    def _leave_controllers(self) -> None:
        """Leave the controllers, so that they elect another master.

        The name servers come first. The new master registers under the same id, so unregistering after the election
        would remove the new master.
        """
        if self.replicas_manager is not None:
            self.registration.isolate()
            self.replicas_manager.shutdown()

    def lives(self, timeout_s: float) -> bool:
        """Return whether the broker works: the threads of both ports respond within `timeout_s`, and the services that
        flush and dispatch messages run."""
        store = self.message_store
        services = (store.commit_log.flush_commit_log_service, store.reput_message_service)
        return (self.failure is None and all(service.is_alive() for service in services)
                and self.remoting_server.io.answers(timeout_s / 2)
                and self.fast_remoting_server.io.answers(timeout_s / 2))

    def waits_for_role(self) -> str | None:
        """Return why the broker has no role, and so accepts no messages, and how it gets one; None when it has one."""
        config, service = self.broker_config, self.message_store.ha_service
        if not self.message_store_config.enableAutoSwitchHA \
                or not self.role.is_slave:
            return None
        if self.replicas_manager is not None:
            if self.replicas_manager.role.master_id is not None:
                return None
            return f"the controllers at {config.controllerAddr} have not assigned one yet"
        if self.configured_role is SLAVE or service.ha_client.master_address is not None:
            return None
        return ("enableAutoSwitchHA=true and its store has been used before, so another broker may be the master now. "
                f"Run `rmqha ha promote -b {self.broker_addr}` to make it the master; without enableAutoSwitchHA it "
                f"starts as {self.configured_role.name}")

    def _service_failed(self, service: ServiceThread) -> None:
        """Stop the broker after a service of a port failed for good: without the port it would only seem to run."""
        self.failure = f"{service.get_service_name()} failed: {service.failure!r}"
        log.critical("The broker cannot continue: %s", self.failure)
        if self.on_failed is not None:
            self.on_failed()

    def _own_host(self) -> str:
        """Return the address that is stored in messages as their store host."""
        try:
            return resolved_host(self.broker_config.brokerIP1)
        except OSError as error:
            raise OSError(f"brokerIP1={self.broker_config.brokerIP1} is neither a valid address nor a resolvable host "
                          f"name: {error}. Set it to an address of this host or to a host name that it can resolve"
                          ) from error

    @property
    def broker_addr(self) -> str:
        """The address for clients, `brokerIP1:port`."""
        return self.addresses.broker_addr

    @property
    def ha_server_addr(self) -> str:
        """The address for slaves, `brokerIP2:port`."""
        return self.addresses.ha_server_addr

    def register_server_rpc_hook(self, rpc_hook: RPCHook) -> None:
        """Register a hook that is called with the requests and responses of both ports."""
        self.remoting_server.register_rpc_hook(rpc_hook)
        self.fast_remoting_server.register_rpc_hook(rpc_hook)

    def _notify_put_off(self) -> None:
        for group in self.consumer_subscription_manager.end_grace():
            self.consumer_manager.notify_members(group)

    def _print_dispatch_behind(self) -> None:
        log.info("dispatch behind commit log %d bytes", self.message_store.dispatch_behind_bytes())

    def _print_master_and_slave_diff(self) -> None:
        log.info("Slave fall behind master: %d bytes", self.message_store.slave_fall_behind_much())

    def _update_name_servers(self) -> None:
        self.broker_outer_api.update_name_server_address_list(self.broker_config.namesrvAddr or "")

    def _register_again_soon(self, tries: int = 0) -> None:
        # Differs: a broker whose name server is not up yet retries 0.1 to 6.3 s after its own start; the original
        # registers again after 10 s
        if tries == len(_REGISTER_AGAIN_MS) or self.registration.is_registered_everywhere():
            return

        def register() -> None:
            self.registration.register_broker_all(True, False, True)
            self._register_again_soon(tries + 1)
        self._scheduler.schedule(register, _REGISTER_AGAIN_MS[tries])


def _fast_config(server_config: ServerConfig) -> ServerConfig:
    """Return the configuration of the fast port, which is listenPort - 2; port 0 stays "any port"."""
    fast = copy.copy(server_config)
    fast.listenPort = server_config.listenPort - 2 if server_config.listenPort else 0
    return fast
