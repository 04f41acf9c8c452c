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
    """A topic's writable queues, taken in turns. Replaced as a whole when the route changes.

    Java: org.apache.rocketmq.client.impl.producer.TopicPublishInfo (4.9.8)
    """

    order_topic: bool = False
    have_topic_router_info: bool = False
    message_queue_list: list[MessageQueue] = field(default_factory=list)
    send_which_queue: ThreadLocalIndex = field(default_factory=ThreadLocalIndex)
    topic_route_data: TopicRouteData | None = None

    def ok(self) -> bool:
        """True when there is a queue to send to."""
        return bool(self.message_queue_list)

    def select_one_message_queue(self, last_broker_name: str | None = None) -> MessageQueue:
        """The next queue of this thread's turn, on another broker than `last_broker_name` when there is one."""
        queues = self.message_queue_list
        if last_broker_name is not None:
            for _ in queues:
                queue = queues[self.send_which_queue.increment_and_get() % len(queues)]
                if queue.brokerName != last_broker_name:
                    return queue
        return queues[self.send_which_queue.increment_and_get() % len(queues)]

    def get_queue_id_by_broker(self, broker_name: str) -> int:
        """How many queues of the topic `broker_name` takes messages for; -1 when none."""
        for data in self.topic_route_data.queueDatas if self.topic_route_data else ():
            if sys_flags.is_writeable(data.perm) and data.brokerName == broker_name:
                return data.writeQueueNums
        return -1


class MQProducerInner(Protocol):
    """A producer as the instance sees it: for heartbeats and routes.

    Java: org.apache.rocketmq.client.impl.producer.MQProducerInner (4.9.8)
    """

    def get_publish_topic_list(self) -> set[str]:
        """Topics whose routes are kept fresh."""

    def is_publish_topic_need_update(self, topic: str) -> bool:
        """True when nothing is known about where `topic` can be sent."""

    def check_transaction_state(
        self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader
    ) -> None:
        """A broker asks what became of a half message."""

    def update_topic_publish_info(self, topic: str, info: TopicPublishInfo) -> None:
        """Take over a new route."""


class MQConsumerInner(Protocol):
    """A push or pull consumer as the instance sees it: for heartbeats, routes, rebalance and offsets.

    Java: org.apache.rocketmq.client.impl.consumer.MQConsumerInner (4.9.8)
    """

    def group_name(self) -> str:
        """The consumer group."""

    def message_model(self) -> MessageModel:
        """Each message to one of the group, or to all."""

    def consume_type(self) -> ConsumeType:
        """Who decides when to pull: the library (passively) or the user (actively)."""

    def consume_from_where(self) -> ConsumeFromWhere:
        """Where a new group begins."""

    def subscriptions(self) -> list[SubscriptionData]:
        """What the group is interested in."""

    def do_rebalance(self) -> None:
        """Take the queues that are this consumer's share."""

    def persist_consumer_offset(self) -> None:
        """Store how far the group has come."""

    def update_topic_subscribe_info(self, topic: str, info: set[MessageQueue]) -> None:
        """The queues of a topic changed."""

    def is_subscribe_topic_need_update(self, topic: str) -> bool:
        """True when the topic is subscribed to and its queues are not known yet."""

    def is_unit_mode(self) -> bool:
        """True for a unit's consumer."""

    def consumer_running_info(self) -> ConsumerRunningInfo:
        """What this consumer does now, for the admin commands."""


class NewTopics(Protocol):
    """After which topic a producer has new ones made, and with how many queues at most."""

    create_topic_key: str
    default_topic_queue_nums: int


LOCK_TIMEOUT_MILLIS = 3000


class ClientRoutes:
    """Topic -> route, broker name -> addresses: as last heard of the name servers, and handed to all of one client id.

    The tables are dicts that several threads read; each change is one item's assignment or removal, and who iterates
    takes a list first.

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
        self._consumer_table = consumer_table  # the same
        self.topic_route_table: dict[str, TopicRouteData] = {}  # by topic; written under _lock_namesrv
        self.broker_addr_table: dict[str, dict[int, str]] = {}  # broker name -> id -> address; inner dicts are constant
        self.broker_version_table: dict[str, dict[str, int]] = {}  # broker name -> address -> version
        self._lock_namesrv = threading.Lock()

    def update_topic_route_info_of_all(self) -> None:
        """Ask for the routes of all topics that somebody here sends to or consumes."""
        topics: set[str] = set()
        for consumer in list(self._consumer_table.values()):
            topics.update(subscription.topic for subscription in consumer.subscriptions())
        for producer in list(self._producer_table.values()):
            topics.update(producer.get_publish_topic_list())
        for topic in sorted(topics):
            try:
                self.update_topic_route_info_from_name_server(topic)
            except RemotingException as error:  # logged where it was raised; the next topic may fare better
                log.debug("route of %s not updated: %s", topic, error)
            except Exception:
                log.exception("route of %s not updated", topic)

    def clean_offline_broker(self) -> None:
        """Forget the addresses that no route names any more."""
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
        """Ask for a topic's route and hand it to all; True when it changed. RemotingException without an answer.

        `is_default`: `topic` does not exist yet; the route is that of the topic it will be created after.
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
        """The master's address."""
        return self.broker_addr_table.get(broker_name, {}).get(mix_all.MASTER_ID)

    def find_broker_address_in_subscribe(
        self, broker_name: str, broker_id: int, only_this_broker: bool
    ) -> FindBrokerResult | None:
        """Where to pull: the broker of this id, the next slave's when that slave is gone, or (unless
        `only_this_broker`) any other of the name: so a slave stands in for its master.
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
        """The version of the broker's last heartbeat answer; 0 when there was none."""
        return self.broker_version_table.get(broker_name, {}).get(broker_addr, 0)

    def find_consumer_id_list(self, topic: str, group: str) -> list[str] | None:
        """The client ids of a group, from any broker of the topic; None when none answers."""
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
        """The address of some broker that has the topic, its master if it can be."""
        route = self.topic_route_table.get(topic)
        if route is None or not route.brokerDatas:
            return None
        return random.choice(route.brokerDatas).select_broker_addr()

    def get_an_exist_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """The route as last heard."""
        return self.topic_route_table.get(topic)


def topic_route_data2_topic_publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """The queues that can be sent to: write permission, and a master that is there.

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
    """The queues that can be pulled: read permission; a slave alone will do.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicSubscribeInfo (4.9.8)
    """
    return {
        MessageQueue(topic, data.brokerName, queue_id)
        for data in route.queueDatas if sys_flags.is_readable(data.perm)
        for queue_id in range(data.readQueueNums)
    }


def topic_route_data_is_change(old: TopicRouteData | None, now: TopicRouteData) -> bool:
    """True unless both say the same, in whatever order.

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
