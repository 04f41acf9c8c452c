"""Admin calls that need routes: topics, offsets, messages by id and key."""
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.client import exception
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_routes import (
    ClientRoutes,
    topic_route_data2_topic_publish_info,
    topic_route_data2_topic_subscribe_info,
)
from rmqha.client.results import QueryResult
from rmqha.common import mix_all
from rmqha.common.compression import MOST_IN_ALL, BodyBudget
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_headers import QueryMessageRequestHeader, QueryMessageResponseHeader
from rmqha.common.topics import TopicConfig
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl

log = logging.getLogger("RocketmqClient")

CREATE_TOPIC_TRIES = 5
UNIQ_KEY_QUERY_MAX = 32
FOREVER_MS = 0x7FFF_FFFF_FFFF_FFFF


class MQAdminImpl:
    """The admin calls of producers and consumers about topics and queues.

    Java: org.apache.rocketmq.client.impl.MQAdminImpl (4.9.8)
    """

    def __init__(self, api: "MQClientAPIImpl", routes: ClientRoutes) -> None:
        self._api = api
        self._routes = routes
        self.timeout_millis = 6_000

    def create_topic(self, key: str, new_topic: str, queue_num: int, topic_sys_flag: int = 0) -> None:
        """Create a topic with `queue_num` queues on each master that has the topic `key` (TBW102: all masters).

        MQClientException if it could not be created on any master.
        """
        exception.check_topic(new_topic)
        exception.is_system_topic(new_topic)
        try:
            route = self._api.get_topic_route_info_from_name_server(key, self.timeout_millis)
        except (MQClientException, RemotingException) as error:
            raise MQClientException("create new topic failed") from error
        if not route.brokerDatas:
            raise MQClientException("Not found broker, maybe key is wrong")
        config = TopicConfig(topicName=new_topic, readQueueNums=queue_num, writeQueueNums=queue_num,
                             topicSysFlag=topic_sys_flag)
        masters = [broker.brokerAddrs[mix_all.MASTER_ID] for broker in sorted(route.brokerDatas)
                   if mix_all.MASTER_ID in broker.brokerAddrs]
        errors = [failure for addr in masters if (failure := self._create_topic_on(addr, key, config)) is not None]
        if errors and len(errors) == len(masters):
            raise MQClientException("create topic to broker exception") from errors[-1]

    def _create_topic_on(self, addr: str, key: str, config: TopicConfig) -> Exception | None:
        failure: Exception | None = None
        for _ in range(CREATE_TOPIC_TRIES):
            try:
                self._api.create_topic(addr, key, config, self.timeout_millis)
                return None
            except (MQClientException, RemotingException) as error:
                log.info("create topic %s on %s: %s", config.topicName, addr, error)
                failure = error
        return failure

    def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that can be sent to; MQClientException if the topic has none."""
        try:
            route = self._api.get_topic_route_info_from_name_server(topic, self.timeout_millis)
        except (MQClientException, RemotingException) as error:
            raise MQClientException(f"Can not find Message Queue for this topic, {topic}") from error
        queues = topic_route_data2_topic_publish_info(topic, route).message_queue_list
        if not queues:
            raise MQClientException(f"Unknow why, Can not find Message Queue for this topic, {topic}")
        return queues

    def fetch_subscribe_message_queues(self, topic: str) -> set[MessageQueue]:
        """Return the queues that can be pulled; MQClientException if the topic has none."""
        try:
            route = self._api.get_topic_route_info_from_name_server(topic, self.timeout_millis)
            queues = topic_route_data2_topic_subscribe_info(topic, route)
            if not queues:
                raise MQClientException(
                    f"Can not find Message Queue for this topic, {topic} Namesrv return empty")
        except (MQClientException, RemotingException) as error:
            raise MQClientException(f"Can not find Message Queue for this topic, {topic}"
                                    + namespace_util.suggest_todo(namespace_util.MQLIST_NOT_EXIST)) from error
        return queues

    def search_offset(self, mq: MessageQueue, timestamp: int) -> int:
        """Return the first queue offset stored at or after `timestamp` (ms), as the master finds it."""
        return self._ask_master(mq, lambda addr: self._api.search_offset(addr, mq, timestamp, self.timeout_millis))

    def max_offset(self, mq: MessageQueue) -> int:
        """Return the queue offset that the next message will get."""
        return self._ask_master(mq, lambda addr: self._api.get_max_offset(addr, mq, self.timeout_millis))

    def min_offset(self, mq: MessageQueue) -> int:
        """Return the lowest queue offset that the queue still has."""
        return self._ask_master(mq, lambda addr: self._api.get_min_offset(addr, mq, self.timeout_millis))

    def earliest_msg_store_time(self, mq: MessageQueue) -> int:
        """Return the time (ms) at which the queue's first message was stored; -1 if the queue is empty."""
        return self._ask_master(mq, lambda addr: self._api.get_earliest_msg_storetime(addr, mq, self.timeout_millis))

    def _ask_master(self, mq: MessageQueue, ask: Callable[[str], int]) -> int:
        addr = self._routes.find_broker_address_in_publish(mq.brokerName)
        if addr is None:
            self._routes.update_topic_route_info_from_name_server(mq.topic)
            addr = self._routes.find_broker_address_in_publish(mq.brokerName)
        if addr is None:
            raise MQClientException(f"The broker[{mq.brokerName}] not exist")
        try:
            return ask(addr)
        except (MQBrokerException, RemotingException) as error:
            raise MQClientException(f"Invoke Broker[{addr}] exception") from error

    def view_message(self, msg_id: str) -> MessageExt:
        """Return the message with an offset message id (address and log offset)."""
        try:
            message_id = message_decoder.decode_message_id(msg_id)
        except ValueError:
            raise MQClientException(
                "query message by id finished, but no message.", response_code.NO_MESSAGE) from None
        host, port = message_id.address
        return self._api.view_message(f"{host}:{port}", message_id.offset, self.timeout_millis)

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int,
                      budget: BodyBudget | None = None) -> QueryResult:
        """Return the messages of a topic with a key, stored between `begin` and `end` (ms).

        MQClientException if no message is found. The bodies share `budget`, by default 256 MiB: a body that is damaged
        or too large is replaced by a MissingBody.
        """
        return self._query(topic, key, max_num, begin, end, False, budget or BodyBudget())

    def query_message_by_uniq_key(
        self, topic: str, uniq_key: str, max_num: int = UNIQ_KEY_QUERY_MAX, begin: int | None = None,
        end: int = FOREVER_MS
    ) -> QueryResult:
        """Return the message with a unique id; by default `begin` (ms) is taken from the id."""
        if begin is None:
            begin = message_client_id_setter.get_nearly_time_from_id(uniq_key) - 1_000
        return self._query(topic, uniq_key, max_num, begin, end, True, BodyBudget(most_each=MOST_IN_ALL))

    def _query(self, topic: str, key: str, max_num: int, begin: int, end: int, is_uniq_key: bool,
               budget: BodyBudget) -> QueryResult:
        route = self._routes.get_an_exist_topic_route_data(topic)
        if route is None:
            self._routes.update_topic_route_info_from_name_server(topic)
            route = self._routes.get_an_exist_topic_route_data(topic)
        addrs = [broker.select_broker_addr() for broker in route.brokerDatas] if route is not None else []
        if not any(addrs):
            raise MQClientException(
                f"The topic[{topic}] not matched route info", response_code.TOPIC_NOT_EXIST)
        result = QueryResult(0)
        header = QueryMessageRequestHeader(topic, key, max_num, begin, end)
        for addr in filter(None, addrs):
            self._query_broker(addr, header, is_uniq_key, result, budget)
        if is_uniq_key:
            result.message_list = sorted(result.message_list, key=lambda msg: msg.store_timestamp)[:1]
        if not result.message_list:
            raise MQClientException("query message by key finished, but no message.", response_code.NO_MESSAGE)
        return result

    def _query_broker(
        self, addr: str, header: QueryMessageRequestHeader, is_uniq_key: bool, result: QueryResult,
        budget: BodyBudget
    ) -> None:
        # Differs: a query by key asks one broker after the other, where Java asks all of them at once
        try:
            response = self._api.query_message(addr, header, self.timeout_millis * 3, is_uniq_key)
        except RemotingException as error:
            log.warning("queryMessage exception, %s: %s", addr, error)
            return
        if response.code != response_code.SUCCESS:
            log.warning("getResponseCommand failed, %d %s", response.code, response.remark)
            return
        upto = response.decode_command_custom_header(QueryMessageResponseHeader).indexLastUpdateTimestamp
        result.index_last_update_timestamp = max(result.index_last_update_timestamp, upto)
        # Differs: a query by key limits the decompressed bodies, and returns the messages after a damaged one, too;
        # Java decompresses all bodies, however large they become, and drops the rest of the answer after a damaged one
        for msg in message_decoder.decodes(response.body or b"", budget=budget, keep_bad=True):
            if _matches(msg, header.topic, header.key, is_uniq_key):
                result.message_list.append(msg)
            else:
                # The index compares only hash codes
                log.warning("queryMessage, find message key not matched, maybe hash duplicate %s", msg)


def _matches(msg: MessageExt, topic: str, key: str, is_uniq_key: bool) -> bool:
    if is_uniq_key:
        return msg.msg_id == key
    return msg.topic == topic and key in (msg.keys or "").split(message_const.KEY_SEPARATOR)
