"""Topic routes of a client: which brokers have a topic, their addresses, and the queues to send to and pull from.

- `TopicPublishInfo`: the queues that a topic can be sent to.
- `MQProducerInner`, `MQConsumerInner`: interfaces through which a client instance uses producers and consumers; both
  are notified of new routes.
- `ClientRoutes`: the routes of one client.
- `topic_route_data2_topic_publish_info`, `topic_route_data2_topic_subscribe_info`: derive the queues from a route.
"""
from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Protocol

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.life import ThreadLocalIndex
from rmqha.client.results import FindBrokerResult
from rmqha.common import mix_all, sys_flags
from rmqha.common import topics as topic_validator
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader
from rmqha.common.protocol.topic_route_data import QueueData, TopicRouteData
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl


log = logging.getLogger("RocketmqClient")


@dataclass
class TopicPublishInfo:
    """The writable queues of a topic, used in turn. Replaced as a whole when the route changes.

    Java: org.apache.rocketmq.client.impl.producer.TopicPublishInfo (4.9.8)
    """

    order_topic: bool = False
    have_topic_router_info: bool = False
    message_queue_list: list[MessageQueue] = field(default_factory=list)
    send_which_queue: ThreadLocalIndex = field(default_factory=ThreadLocalIndex)
    topic_route_data: TopicRouteData | None = None

    def ok(self) -> bool:
        """Return True if there is a queue to send to."""
        return bool(self.message_queue_list)

    def select_one_message_queue(self, last_broker_name: str | None = None) -> MessageQueue:
        """Return this thread's next queue in turn, on a broker other than `last_broker_name` if there is one."""
        queues = self.message_queue_list
        if last_broker_name is not None:
            for _ in queues:
                queue = queues[self.send_which_queue.increment_and_get() % len(queues)]
                if queue.brokerName != last_broker_name:
                    return queue
        return queues[self.send_which_queue.increment_and_get() % len(queues)]

    def get_queue_id_by_broker(self, broker_name: str) -> int:
        """Return the number of writable queues of the topic on `broker_name`; -1 if it takes no messages of it."""
        for data in self.topic_route_data.queueDatas if self.topic_route_data else ():
            if sys_flags.is_writeable(data.perm) and data.brokerName == broker_name:
                return data.writeQueueNums
        return -1


class MQProducerInner(Protocol):
    """The interface through which the instance uses a producer, for heartbeats and routes.

    Java: org.apache.rocketmq.client.impl.producer.MQProducerInner (4.9.8)
    """

    def get_publish_topic_list(self) -> set[str]:
        """Return the topics whose routes are kept up to date."""

    def is_publish_topic_need_update(self, topic: str) -> bool:
        """Return True if no queues of `topic` to send to are known."""

    def check_transaction_state(
        self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader
    ) -> None:
        """Handle a broker's check of a half message."""

    def update_topic_publish_info(self, topic: str, info: TopicPublishInfo) -> None:
        """Use a new route."""


class MQConsumerInner(Protocol):
    """The interface through which the instance uses a consumer, for heartbeats, routes, rebalance and offsets.

    Java: org.apache.rocketmq.client.impl.consumer.MQConsumerInner (4.9.8)
    """

    def group_name(self) -> str:
        """Return the consumer group."""

    def message_model(self) -> MessageModel:
        """Return whether each message goes to one consumer of the group, or to all."""

    def consume_type(self) -> ConsumeType:
        """Return whether the library (passively) or the user (actively) decides when to pull."""

    def consume_from_where(self) -> ConsumeFromWhere:
        """Return where a new group starts."""

    def subscriptions(self) -> list[SubscriptionData]:
        """Return the subscriptions of the group."""

    def do_rebalance(self) -> None:
        """Compute this consumer's share of the queues, and take exactly those."""

    def persist_consumer_offset(self) -> None:
        """Store the group's offsets."""

    def update_topic_subscribe_info(self, topic: str, info: set[MessageQueue]) -> None:
        """Use the new queues of a topic."""

    def is_subscribe_topic_need_update(self, topic: str) -> bool:
        """Return True if the topic is subscribed to and its queues are not known yet."""

    def is_unit_mode(self) -> bool:
        """Return True for a consumer of a unit."""

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """Return the consumer's current state, for the admin commands."""


class NewTopics(Protocol):
    """A producer's settings for new topics: the topic whose route they copy, and their maximum number of queues."""

    create_topic_key: str
    default_topic_queue_nums: int


LOCK_TIMEOUT_MILLIS = 3000


class ClientRoutes:
    """The route cache of a client: the topics' routes and the brokers' addresses, as last read from a name server.

    A producer can't ask a name server before each send, and name servers don't notify clients. So routes are cached and
    may be stale. A route is read when a topic is first used, when a lookup finds no broker, and every 30 s
    (`poll_name_server_interval`) for all topics that a producer or consumer of this client uses. In between, a client
    may use a broker that is down or is no longer the master. That is safe, only slow: the broker, or the missing
    connection, fails the request, and the caller retries. A producer asks for the new route as soon as a failed send
    makes its route doubtful (see `MasterSearch`), so it does not wait up to 30 s for a new master.

    A new route is distributed in a fixed order: the addresses of its brokers, then the producers' and consumers'
    queues, then `topic_route_table`. A thread that sees a new queue can therefore always find its broker. An unchanged
    route is skipped, unless a producer or consumer that registered later still lacks its queues. An address stays in
    the cache as long as the route of any topic names it; `clean_offline_broker` removes the others before each
    heartbeat, so that heartbeats to a removed broker end.

    Only one thread at a time updates routes. Another one waits at most 3 s for it, then keeps the route that it has.
    The tables are dicts that several threads read without a lock: each change is a single assignment or removal, and a
    thread that iterates copies the items to a list first.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#updateTopicRouteInfoFromNameServer (4.9.8)
    """

    def __init__(
        self, client_config: ClientConfig, client_id: str, api: MQClientAPIImpl,
        producer_table: dict[str, MQProducerInner], consumer_table: dict[str, MQConsumerInner],
    ) -> None:
        self._config = client_config
        self._client_id = client_id
        self._api = api
        self._producer_table = producer_table  # the instance's
        self._consumer_table = consumer_table  # the instance's
        self.topic_route_table: dict[str, TopicRouteData] = {}  # by topic; written under _lock_namesrv
        # Broker name -> id -> address. The inner dicts are replaced, never changed
        self.broker_addr_table: dict[str, dict[int, str]] = {}
        # Broker name -> address -> version
        self.broker_version_table: dict[str, dict[str, int]] = {}
        self._lock_namesrv = threading.Lock()

    def update_topic_route_info_of_all(self) -> bool:
        """Ask for the routes of all topics that this client's producers send to or its consumers consume.

        Return True if one of them changed.
        """
        topics: set[str] = set()
        changed = False
        for consumer in list(self._consumer_table.values()):
            topics.update(subscription.topic for subscription in consumer.subscriptions())
        for producer in list(self._producer_table.values()):
            topics.update(producer.get_publish_topic_list())
        for topic in sorted(topics):
            try:
                changed |= self.update_topic_route_info_from_name_server(topic)
            except RemotingException as error:
                # Already logged where it was raised. The next topic may succeed
                log.debug("route of %s not updated: %s", topic, error)
            except Exception:
                log.exception("route of %s not updated", topic)
        return changed

    def clean_offline_broker(self) -> None:
        """Remove the addresses that no route names any more."""
        with self._lock_namesrv:
            known = {addr for route in self.topic_route_table.values()
                     for broker in route.brokerDatas for addr in (broker.brokerAddrs or {}).values()}
            for broker_name, addrs in list(self.broker_addr_table.items()):
                left = {broker_id: addr for broker_id, addr in addrs.items() if addr in known}
                if len(left) == len(addrs):
                    continue
                log.info("the broker[%s] addresses %s are offline, remove them", broker_name,
                         sorted(set(addrs.values()) - known))
                if left:
                    self.broker_addr_table[broker_name] = left
                else:
                    del self.broker_addr_table[broker_name]

    def update_topic_route_info_from_name_server(
        self, topic: str, is_default: bool = False, producer: NewTopics | None = None
    ) -> bool:
        """Ask for a topic's route and pass it to all producers and consumers; return True if it changed.

        RemotingException if no name server answers. `is_default`: `topic` does not exist yet, so ask for the route of
        the topic that it will be created from.
        """
        if not self._lock_namesrv.acquire(timeout=LOCK_TIMEOUT_MILLIS / 1000):
            log.warning("updateTopicRouteInfoFromNameServer tryLock timeout %dms. [%s]",
                        LOCK_TIMEOUT_MILLIS, self._client_id)
            return False
        try:
            route = self._ask_for_route(topic, producer if is_default else None)
            return self._take_over_route(topic, route)
        except MQClientException as error:
            if not topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX) \
                    and topic != topic_validator.AUTO_CREATE_TOPIC_KEY_TOPIC:
                log.warning("updateTopicRouteInfoFromNameServer Exception: %s", error)
        except RemotingException as error:
            log.error("updateTopicRouteInfoFromNameServer Exception: %s", error)
            raise
        finally:
            self._lock_namesrv.release()
        return False

    def _ask_for_route(self, topic: str, new_topics: NewTopics | None) -> TopicRouteData:
        timeout_ms = self._config.mq_client_api_timeout
        if new_topics is None:
            return self._api.get_topic_route_info_from_name_server(topic, timeout_ms)
        route = self._api.get_default_topic_route_info_from_name_server(
            new_topics.create_topic_key, timeout_ms)
        for data in route.queueDatas:
            data.readQueueNums = data.writeQueueNums = min(
                new_topics.default_topic_queue_nums, data.readQueueNums)
        return route

    def _take_over_route(self, topic: str, route: TopicRouteData) -> bool:
        old = self.topic_route_table.get(topic)
        if topic_route_data_is_change(old, route):
            log.info("the topic[%s] route info changed, old[%s] ,new[%s]", topic, old, route)
        elif not self._is_need_update_topic_route_info(topic):
            return False
        for broker in route.brokerDatas:
            self.broker_addr_table[broker.brokerName] = dict(broker.brokerAddrs)
        publish_info = topic_route_data2_topic_publish_info(topic, route)
        publish_info.have_topic_router_info = True
        for producer in list(self._producer_table.values()):
            producer.update_topic_publish_info(topic, publish_info)
        subscribe_info = topic_route_data2_topic_subscribe_info(topic, route)
        for consumer in list(self._consumer_table.values()):
            consumer.update_topic_subscribe_info(topic, subscribe_info)
        self.topic_route_table[topic] = route
        return True

    def _is_need_update_topic_route_info(self, topic: str) -> bool:
        return any(producer.is_publish_topic_need_update(topic) for producer in list(self._producer_table.values())) \
            or any(consumer.is_subscribe_topic_need_update(topic) for consumer in list(self._consumer_table.values()))

    def find_broker_address_in_publish(self, broker_name: str) -> str | None:
        """Return the master's address; None if it is unknown."""
        return self.broker_addr_table.get(broker_name, {}).get(mix_all.MASTER_ID)

    def find_broker_address_in_subscribe(
        self, broker_name: str, broker_id: int, only_this_broker: bool
    ) -> FindBrokerResult | None:
        """Return the broker to pull from: the one with this id, or the slave with the next id if that slave is gone.

        Without `only_this_broker`, the broker with the lowest id is used if both are gone: so a slave can replace its
        master.
        """
        addrs = self.broker_addr_table.get(broker_name)
        if not addrs:
            return None
        chosen = broker_id
        if chosen not in addrs and broker_id != mix_all.MASTER_ID:
            chosen = broker_id + 1
        if chosen not in addrs:
            if only_this_broker:
                return None
            chosen = min(addrs)
        addr = addrs[chosen]
        return FindBrokerResult(addr, chosen != mix_all.MASTER_ID, self.find_broker_version(broker_name, addr))

    def find_broker_version(self, broker_name: str, broker_addr: str) -> int:
        """Return the version in the broker's last heartbeat answer; 0 if it has not answered one."""
        return self.broker_version_table.get(broker_name, {}).get(broker_addr, 0)

    def find_consumer_id_list(self, topic: str, group: str) -> list[str] | None:
        """Return the client ids of a group, from any broker of the topic; None if it does not answer."""
        addr = self.find_broker_addr_by_topic(topic)
        if addr is None:
            self.update_topic_route_info_from_name_server(topic)
            addr = self.find_broker_addr_by_topic(topic)
        if addr is None:
            return None
        try:
            return self._api.get_consumer_id_list_by_group(addr, group, self._config.mq_client_api_timeout)
        except (RemotingException, MQBrokerException) as error:
            log.warning("getConsumerIdListByGroup exception, %s %s: %s", addr, group, error)
            return None

    def find_broker_addr_by_topic(self, topic: str) -> str | None:
        """Return the address of any broker that has the topic, preferably of a master."""
        route = self.topic_route_table.get(topic)
        if route is None or not route.brokerDatas:
            return None
        return random.choice(route.brokerDatas).select_broker_addr()

    def get_an_exist_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """Return the cached route of a topic."""
        return self.topic_route_table.get(topic)


def topic_route_data2_topic_publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """Return the queues that can be sent to: those with write permission whose broker has a master.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicPublishInfo (4.9.8)
    """
    info = TopicPublishInfo(topic_route_data=route)
    if route.orderTopicConf:
        info.order_topic = True
        info.message_queue_list = _ordered_queues(topic, route.orderTopicConf)
        return info
    with_master = {broker.brokerName for broker in route.brokerDatas if mix_all.MASTER_ID in broker.brokerAddrs}
    for data in sorted(route.queueDatas, key=_broker_name):
        if sys_flags.is_writeable(data.perm) and data.brokerName in with_master:
            info.message_queue_list.extend(
                MessageQueue(topic, data.brokerName, queue_id) for queue_id in range(data.writeQueueNums))
    return info


def topic_route_data2_topic_subscribe_info(topic: str, route: TopicRouteData) -> set[MessageQueue]:
    """Return the queues that can be pulled: those with read permission. A slave is enough.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicSubscribeInfo (4.9.8)
    """
    return {
        MessageQueue(topic, data.brokerName, queue_id)
        for data in route.queueDatas if sys_flags.is_readable(data.perm)
        for queue_id in range(data.readQueueNums)
    }


def topic_route_data_is_change(old: TopicRouteData | None, now: TopicRouteData) -> bool:
    """Return True unless both routes have the same content, in any order.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteDataIsChange (4.9.8)
    """
    return old is None or _comparable(old) != _comparable(now)


def _comparable(route: TopicRouteData) -> tuple[object, ...]:
    queues = sorted(route.queueDatas, key=_broker_name)
    brokers = sorted(route.brokerDatas, key=lambda broker: broker.brokerName)
    return route.orderTopicConf, queues, brokers, route.filterServerTable


def _broker_name(data: QueueData) -> str:
    return data.brokerName


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for broker in order_topic_conf.split(";"):
        if broker:
            name, count = broker.split(":")
            queues.extend(MessageQueue(topic, name, queue_id) for queue_id in range(int(count)))
    return queues
