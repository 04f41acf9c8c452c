"""The client instance: routes, broker addresses, heartbeats and services shared by the clients of one client id.

    MQClientFactoryScheduledThread --30 s--> routes     --30 s--> heartbeats     --5 s--> offsets to the brokers
    RebalanceService               --20 s, or woken by a broker--> division of the queues among the consumers
    PullMessageService             <--PullRequest-- rebalance, pull callbacks; --asynchronous pull--> broker
    remoting client                --answers, code 40 and similar--> callbacks, ClientRemotingProcessor

- `log_what_is_left`: logs the unfinished work of a client that was not shut down before its process ended.
- `reset_offset`: moves a running consumer to other offsets.
"""
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer_stats_manager import ConsumerStatsManager
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_remoting_processor import ClientRemotingProcessor
from rmqha.client.impl.client_routes import ClientRoutes, MQConsumerInner, MQProducerInner
from rmqha.client.impl.consumer.pulling import PullMessageService
from rmqha.client.impl.consumer.rebalance import RebalanceService
from rmqha.client.impl.mq_admin_impl import MQAdminImpl
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.life import ServiceState
from rmqha.client.producer.request_response_future import RequestFutureHolder
from rmqha.client.results import SendResult
from rmqha.common import java, mix_all, subscriptions, util_all
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.protocol import client_bodies
from rmqha.common.protocol.client_bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmqha.common.subscriptions import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rmqha.common.threads import ScheduledService
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.remoting_config import RemotingClientConfig

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook
    from rmqha.remoting.remoting_client import RemotingClient


log = logging.getLogger("RocketmqClient")


def log_what_is_left(
    client_id: str, pid: int, remoting_client: "RemotingClient", requests: RequestFutureHolder,
    producers: dict[str, MQProducerInner], consumers: dict[str, MQConsumerInner],
) -> None:
    """Log pending work at DEBUG when the process that started the client exits; do nothing in a forked process."""
    if os.getpid() != pid or not log.isEnabledFor(logging.DEBUG):
        return
    groups = sorted({*producers} - {mix_all.CLIENT_INNER_PRODUCER_GROUP})
    log.debug("the process exits without a shutdown of the client [%s]: producers %s, consumers %s, %d calls and %d "
              "requests without an answer", client_id, groups, sorted(consumers),
              len(remoting_client.response_table), len(requests.request_future_table))
    for group, consumer in sorted(consumers.items()):
        rebalance = getattr(consumer, "rebalance_impl", None)
        for queue, process_queue in list(rebalance.process_queue_table.items()) if rebalance is not None else ():
            if process_queue.msg_count:
                log.debug("the group %s has not consumed %d pulled messages of %s", group,
                          process_queue.msg_count, queue)


def reset_offset(consumer: Any, topic: str, group: str, offset_table: dict[MessageQueue, int]) -> None:
    """Pause, drop the queues of `topic` that are in `offset_table`, store the new offsets, and rebalance.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#resetOffset (4.9.8)
    """
    rebalance = getattr(consumer, "rebalance_impl", None)
    if consumer is None or not hasattr(consumer, "suspend") or rebalance is None:
        log.info("[reset-offset] consumer dose not exist. group=%s", group)
        return
    consumer.suspend()
    try:
        # Differs: a consumer whose offsets are reset does not wait for its listeners. 4.9.8 sleeps for 10 s, so that
        # they finish. That is not necessary, because the results of a dropped queue are discarded
        for queue, process_queue in list(rebalance.process_queue_table.items()):
            if queue.topic == topic and queue in offset_table:
                process_queue.dropped = True
                process_queue.clear()
                _store_and_remove(consumer, queue, offset_table[queue], group)
    finally:
        consumer.resume()


def _store_and_remove(consumer: Any, queue: MessageQueue, offset: int, group: str) -> None:
    try:
        # Wait for the answer, because the following rebalance reads the offset back
        consumer.offset_store.update_consume_offset_to_broker(queue, offset, is_oneway=False)
        consumer.offset_store.remove_offset(queue)
        consumer.rebalance_impl.remove_process_queue(queue)
    except (MQClientException, MQBrokerException, RemotingException) as error:
        log.warning("reset offset failed. group=%s, %s: %s", group, queue, error)


class InnerProducer(Protocol):
    """The instance's inner producer, which sends messages back for the consumers."""

    def start_on(self, mq_client_factory: "MQClientInstance") -> None:
        """Start on an instance that is being started."""

    def send_own(self, msg: Message) -> SendResult:
        """Send and wait."""

    def shutdown_on(self) -> bool:
        """Shut down without the instance; return False if the producer is not running."""


class MQClientInstance:
    """A client towards the brokers, with one client id. Shut down with its last producer or consumer.

    The tables are dicts that several threads read: each change is a single assignment or removal, and a thread that
    iterates copies the items to a list first. Created by `make_client_instance`.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance (4.9.8)
    """

    def __init__(
        self,
        client_config: ClientConfig,
        instance_index: int,
        client_id: str,
        inner_producer: InnerProducer,
        rpc_hook: "RPCHook | None" = None,
        on_shutdown: Callable[[str], None] | None = None,
    ) -> None:
        self.client_config = client_config
        self.instance_index = instance_index
        self.client_id = client_id
        self.boot_timestamp = util_all.current_time_millis()
        self.producer_table: dict[str, MQProducerInner] = {}  # by group
        self.consumer_table: dict[str, MQConsumerInner] = {}  # by group
        self._lock_heartbeat = threading.Lock()
        self._state_lock = threading.RLock()  # guards service_state and the registrations
        self.service_state = ServiceState.CREATE_JUST
        self._on_shutdown = on_shutdown
        self.mq_client_api_impl = self._make_api(rpc_hook)
        self.routes = ClientRoutes(
            client_config, client_id, self.mq_client_api_impl, self.producer_table, self.consumer_table)
        self.mq_admin_impl = MQAdminImpl(self.mq_client_api_impl, self.routes)
        self.scheduled_executor_service = ScheduledService("MQClientFactoryScheduledThread")
        self.pull_message_service = PullMessageService(self.select_consumer)
        self.rebalance_service = RebalanceService(self.do_rebalance)
        self.default_mq_producer = inner_producer
        self.consumer_stats_manager = ConsumerStatsManager()
        self.request_future_holder = RequestFutureHolder()
        self._left_at_exit: weakref.finalize[..., MQClientInstance] | None = None  # guarded by _state_lock
        self._heartbeat_times = 0  # guarded by _lock_heartbeat
        log.info("Created a new client Instance, InstanceIndex:%d, ClientID:%s, ClientConfig:%s",
                 instance_index, client_id, client_config)

    def _make_api(self, rpc_hook: "RPCHook | None") -> MQClientAPIImpl:
        remoting_config = RemotingClientConfig(
            clientCallbackExecutorThreads=self.client_config.client_callback_executor_threads,
            useTLS=self.client_config.use_tls)
        api = MQClientAPIImpl(remoting_config, self.client_config, rpc_hook)
        self.client_remoting_processor = ClientRemotingProcessor(self)
        self.client_remoting_processor.register(api.remoting_client)
        namesrv_addr = self.client_config.get_namesrv_addr()
        if namesrv_addr:
            api.update_name_server_address_list(namesrv_addr)
            log.info("user specified name server address: %s", namesrv_addr)
        return api

    def start(self) -> None:
        """Start connections and services; a second call does nothing.

        MQClientException after a failed start, and in a process that was forked after the start.
        """
        self.mq_client_api_impl.remoting_client.check_process()
        with self._state_lock:
            if self.service_state is ServiceState.START_FAILED:
                raise MQClientException(
                    f"The Factory object[{self.client_id}] has been created before, and failed.")
            if self.service_state is not ServiceState.CREATE_JUST:
                return
            self.service_state = ServiceState.START_FAILED
            self.mq_client_api_impl.start()
            self._start_scheduled_task()
            self.pull_message_service.start()
            self.rebalance_service.start()
            self.default_mq_producer.start_on(self)
            log.info("the client factory [%s] start OK", self.client_id)
            self._left_at_exit = weakref.finalize(
                self, log_what_is_left, self.client_id, os.getpid(), self.mq_client_api_impl.remoting_client,
                self.request_future_holder, self.producer_table, self.consumer_table)
            self.service_state = ServiceState.RUNNING

    def _start_scheduled_task(self) -> None:
        config, every = self.client_config, self.scheduled_executor_service.schedule_at_fixed_rate
        every(self._poll_name_server, 10, config.poll_name_server_interval)
        every(self._heartbeat_task, 1_000, config.heartbeat_broker_interval)
        every(self.persist_all_consumer_offset, 10_000, config.persist_consumer_offset_interval)
        self.consumer_stats_manager.start(self.scheduled_executor_service)

    def _poll_name_server(self) -> None:
        # Differs: consumers rebalance at once when a poll brings another route; 4.9.8 waits for the next rebalance, up
        # to 20 s. Before the first heartbeat, brokers do not know the group, and its start rebalances anyway.
        if self.routes.update_topic_route_info_of_all() and self._heartbeat_times:
            self.rebalance_immediately()

    def _heartbeat_task(self) -> None:
        self.routes.clean_offline_broker()
        self.send_heartbeat_to_all_broker_with_lock()

    # ---- heartbeats

    def check_client_in_broker(self) -> None:
        """Have a broker parse the expressions that are not tags; MQClientException if it refuses one."""
        for group, consumer in list(self.consumer_table.items()):
            for subscription in consumer.subscriptions():
                if not subscriptions.is_tag_type(subscription.expressionType):
                    self._check_expression(group, subscription)

    def _check_expression(self, group: str, subscription: SubscriptionData) -> None:
        addr = self.routes.find_broker_addr_by_topic(subscription.topic)
        if addr is None:
            return
        try:
            self.mq_client_api_impl.check_client_in_broker(
                addr, group, self.client_id, subscription, self.client_config.mq_client_api_timeout)
        except RemotingException as error:
            raise MQClientException(
                f"Check client in broker error, maybe because you use {subscription.expressionType} to filter message, "
                "but server has not been upgraded to support!") from error

    def send_heartbeat_to_all_broker_with_lock(self, wait: bool = False) -> None:
        """Send heartbeats. If another thread is sending them, `wait` for it first, or else do nothing."""
        if not self._lock_heartbeat.acquire(blocking=wait):
            log.warning("lock heartBeat, but failed. [%s]", self.client_id)
            return
        try:
            self._send_heartbeat_to_all_broker()
        finally:
            self._lock_heartbeat.release()

    def _send_heartbeat_to_all_broker(self) -> None:
        heartbeat_data = self._prepare_heartbeat_data()
        if not heartbeat_data.producerDataSet and not heartbeat_data.consumerDataSet:
            log.warning("sending heartbeat, but no consumer and no producer. [%s]", self.client_id)
            return
        self._heartbeat_times += 1
        for broker_name, addrs in list(self.routes.broker_addr_table.items()):
            for broker_id, addr in addrs.items():
                if broker_id == mix_all.MASTER_ID or heartbeat_data.consumerDataSet:
                    self._send_heartbeat(broker_name, broker_id, addr, heartbeat_data)

    def _send_heartbeat(self, broker_name: str, broker_id: int, addr: str, heartbeat_data: HeartbeatData) -> None:
        try:
            version = self.mq_client_api_impl.send_heartbeat(
                addr, heartbeat_data, self.client_config.mq_client_api_timeout)
        except (RemotingException, MQBrokerException) as error:
            log.info("send heart beat to broker[%s %s %s] failed: %s", broker_name, broker_id, addr, error)
            return
        except Exception:
            # The other brokers still get their heartbeats
            log.exception("send heart beat to broker[%s %s %s] failed", broker_name, broker_id, addr)
            return
        self.routes.broker_version_table.setdefault(broker_name, {})[addr] = version
        if self._heartbeat_times % 20 == 1:
            log.info("send heart beat to broker[%s %s %s] success", broker_name, broker_id, addr)

    def _prepare_heartbeat_data(self) -> HeartbeatData:
        consumers = [
            ConsumerData(
                groupName=consumer.group_name(),
                consumeType=consumer.consume_type(),
                messageModel=consumer.message_model(),
                consumeFromWhere=consumer.consume_from_where(),
                subscriptionDataSet=set(consumer.subscriptions()),
                unitMode=consumer.is_unit_mode(),
            )
            for consumer in list(self.consumer_table.values())
        ]
        producers = [ProducerData(groupName=group) for group in list(self.producer_table)]
        return HeartbeatData(
            clientID=self.client_id, producerDataSet=set(producers), consumerDataSet=set(consumers))

    def persist_all_consumer_offset(self) -> None:
        """Send the groups' offsets to the brokers."""
        for group, consumer in list(self.consumer_table.items()):
            try:
                consumer.persist_consumer_offset()
            except Exception:
                log.exception("persistConsumerOffset exception, %s", group)

    # ---- registrations

    def shutdown(self) -> None:
        """Stop everything, unless a producer or consumer is still registered. Idempotent; a no-op in a forked process.
        """
        if self.mq_client_api_impl.remoting_client.is_left():
            return
        with self._state_lock:
            # The inner producer remains registered
            if self.consumer_table or len(self.producer_table) > 1 or self.service_state is not ServiceState.RUNNING:
                return
            self.default_mq_producer.shutdown_on()
            self.service_state = ServiceState.SHUTDOWN_ALREADY
            if self._left_at_exit is not None:
                self._left_at_exit.detach()
        self.pull_message_service.shutdown(interrupt=True)
        self.scheduled_executor_service.shutdown()
        self.rebalance_service.shutdown()
        self.client_remoting_processor.shutdown()
        self.mq_client_api_impl.shutdown()
        self.request_future_holder.fail_all(MQClientException("the client was shut down before a reply arrived"))
        if self._on_shutdown is not None:
            self._on_shutdown(self.client_id)
        log.info("the client factory [%s] shutdown OK", self.client_id)

    def register_consumer(self, group: str, consumer: MQConsumerInner) -> bool:
        """Register a consumer; return False if the instance already has one of this group."""
        with self._state_lock:
            if group in self.consumer_table:
                log.warning("the consumer group[%s] exist already.", group)
                return False
            self.consumer_table[group] = consumer
            return True

    def unregister_consumer(self, group: str) -> None:
        """Remove a consumer, and unregister it from the brokers."""
        with self._state_lock:
            self.consumer_table.pop(group, None)
        self._unregister_client(None, group)

    def register_producer(self, group: str, producer: MQProducerInner) -> bool:
        """Register a producer; return False if the instance already has one of this group."""
        with self._state_lock:
            if group in self.producer_table:
                log.warning("the producer group[%s] exist already.", group)
                return False
            self.producer_table[group] = producer
            return True

    def unregister_producer(self, group: str) -> None:
        """Remove a producer, and unregister it from the brokers."""
        with self._state_lock:
            self.producer_table.pop(group, None)
        self._unregister_client(group, None)

    def _unregister_client(self, producer_group: str | None, consumer_group: str | None) -> None:
        for broker_name, addrs in list(self.routes.broker_addr_table.items()):
            for broker_id, addr in addrs.items():
                try:
                    self.mq_client_api_impl.unregister_client(
                        addr, self.client_id, producer_group, consumer_group, self.client_config.mq_client_api_timeout)
                    log.info("unregister client[Producer: %s Consumer: %s] from broker[%s %s %s] success",
                             producer_group, consumer_group, broker_name, broker_id, addr)
                except (RemotingException, MQBrokerException) as error:
                    log.warning("unregister client exception from broker: %s, %s", addr, error)

    def rebalance_immediately(self) -> None:
        """Wake the rebalance thread."""
        self.rebalance_service.wakeup()

    def do_rebalance(self) -> None:
        """Rebalance all groups."""
        for consumer in list(self.consumer_table.values()):
            try:
                consumer.do_rebalance()
            except BaseException as error:  # a strategy or a listener is the user's code
                log.error("doRebalance exception", exc_info=error)

    def select_producer(self, group: str) -> MQProducerInner | None:
        """Return the producer of a group."""
        return self.producer_table.get(group)

    def select_consumer(self, group: str) -> MQConsumerInner | None:
        """Return the consumer of a group."""
        return self.consumer_table.get(group)

    # ---- requests from brokers

    def reset_offset(self, topic: str, group: str, offset_table: dict[MessageQueue, int]) -> None:
        """Move a consumer to other offsets (RESET_CONSUMER_CLIENT_OFFSET)."""
        reset_offset(self.consumer_table.get(group), topic, group, offset_table)

    def get_consumer_status(self, topic: str, group: str) -> dict[MessageQueue, int]:
        """Return a consumer's offsets in memory."""
        consumer = self.consumer_table.get(group)
        store = getattr(consumer, "offset_store", None)
        return store.clone_offset_table(topic) if store is not None else {}

    def consume_message_directly(
        self, msg: MessageExt, consumer_group: str, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult | None:
        """Pass one message to the group's listener now; return None if this client does not have the group."""
        consumer = self.consumer_table.get(consumer_group)
        service = getattr(consumer, "consume_message_service", None)
        return service.consume_message_directly(msg, broker_name) if service is not None else None

    def consumer_running_info(self, consumer_group: str) -> ConsumerRunningInfo | None:
        """Return a consumer's current state; None if this client does not have the group."""
        consumer = self.consumer_table.get(consumer_group)
        if consumer is None:
            return None
        info = consumer.consumer_running_info()
        name_servers = self.mq_client_api_impl.get_name_server_address_list()
        info.properties[client_bodies.PROP_NAMESERVER_ADDR] = "".join(addr + ";" for addr in name_servers)
        info.properties[client_bodies.PROP_CONSUME_TYPE] = consumer.consume_type().name
        info.properties[client_bodies.PROP_CLIENT_VERSION] = \
            java.get_version_desc(java.CURRENT_VERSION)
        return info


FindInstance = Callable[[], MQClientInstance]
"""A function that returns the instance of a client id, and creates it if necessary. It is called at the start."""
