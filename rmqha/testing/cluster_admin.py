"""Requests to a running cluster of any backend: its brokers, and their topics, groups, messages and offsets.

    test's thread --ClusterAdmin--> name servers, brokers

`Cluster` is what clusters of all backends have in common. The connections are made on first use. A request that fails
is an EmbeddedError.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.common import mix_all, sys_flags
from rmqha.common.compression import MOST_IN_ALL, BodyBudget
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import QueryConsumerOffsetRequestHeader
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.common.protocol.topic_route_data import QueueData
from rmqha.common.subscriptions import SUB_ALL, TAG, PullStatus
from rmqha.common.topics import TopicConfig
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.testing.cluster_parts import EmbeddedError, check_new_topic, wait_until

_TIMEOUT_MS = 10_000
_WAIT_S = 60
_PULL = 32  # messages; a broker returns no more by default
_UNITS = 1_000  # of a consume queue in one request
_PULL_FLAGS = sys_flags.build_pull_sys_flag(False, False, True, False)
_RETRY, _DEAD = mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX
_DISPATCH_BEHIND, _LOG_END = "dispatchBehindBytes", "commitLogMaxOffset"


class Cluster(Protocol):
    """A cluster of any backend, or an existing one: the part that topics, clients and transactions of a test need."""

    @property
    def namesrv_addr(self) -> str:
        """ "host:port" of the name server."""

    @property
    def admin(self) -> ClusterAdmin:
        """The requests to the cluster."""

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def delete_group(self, name: str) -> None:
        """Delete a consumer group."""

    def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic."""


class ClusterAdmin:
    """The requests to one cluster. `namesrv_addr`: its name servers, separated by semicolons.

    Only one thread, the test's, may use it.
    """

    def __init__(self, namesrv_addr: str) -> None:
        self._namesrv_addr = namesrv_addr
        self._api: MQClientAPIImpl | None = None  # from the first request to `close`

    def close(self) -> None:
        """Close the connections. Idempotent; the next request opens them again."""
        api, self._api = self._api, None
        if api is not None:
            api.shutdown()

    @property
    def api(self) -> MQClientAPIImpl:
        """The requests, one method for each kind."""
        if self._api is None:
            config = ClientConfig()
            api = MQClientAPIImpl(RemotingClientConfig(useTLS=config.use_tls), config)
            api.update_name_server_address_list(self._namesrv_addr)
            api.start()
            self._api = api
        return self._api

    # Brokers.

    def brokers(self) -> dict[str, dict[int, str]]:
        """Return the addresses ("host:port") by broker name and id, from the first name server that answers."""
        problems = []
        request = RemotingCommand.create_request_command(request_code.GET_BROKER_CLUSTER_INFO, None)
        try:
            for address in self.api.get_name_server_address_list():
                try:
                    response = self.api.remoting_client.invoke_sync(address, request, _TIMEOUT_MS)
                except (RemotingException, ValueError) as error:
                    problems.append(f"{address}: {error}")
                    continue
                info = remoting_serializable.from_json(ClusterInfo, response.body or b"{}")
                return {name: dict(data.brokerAddrs) for name, data in sorted((info.brokerAddrTable or {}).items())}
        except MQClientException as error:  # an address that is not host:port
            problems.append(str(error.error_message))
        raise EmbeddedError("no name server answers: " + "; ".join(problems))

    def masters(self) -> dict[str, str]:
        """Return the addresses of the registered masters, by broker name."""
        return {name: by_id[mix_all.MASTER_ID] for name, by_id in self.brokers().items() if mix_all.MASTER_ID in by_id}

    # Topics and groups.

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic with `queues` queues on each master. On return, the name server knows it."""
        check_new_topic(topic, queues)
        masters = self.masters()
        if not masters:
            raise EmbeddedError(f"topic {topic!r}: no master is registered at {self._namesrv_addr}")
        for address in masters.values():
            with _explained(f"creating topic {topic} at {address}"):
                self.api.create_topic(address, "", TopicConfig(topic, queues, queues), _TIMEOUT_MS)
        wait_until(lambda: masters.keys() <= self._route(topic).keys(), _WAIT_S, f"the name server knows topic {topic}")

    def _route(self, topic: str) -> dict[str, QueueData]:
        """Return the queues of a topic by broker name, as the name server knows them."""
        try:
            route = self.api.get_default_topic_route_info_from_name_server(topic, _TIMEOUT_MS)
        except MQClientException as error:
            if error.response_code != response_code.TOPIC_NOT_EXIST:
                raise
            return {}
        return {data.brokerName: data for data in route.queueDatas or ()}

    def delete_topic(self, topic: str) -> None:
        """Delete a topic on all registered masters and name servers, with its messages. Do nothing if it does not
        exist."""
        for address in self.masters().values():
            with _explained(f"deleting topic {topic} at {address}"):
                self.api.delete_topic_in_broker(address, topic, _TIMEOUT_MS)
        for address in self.api.get_name_server_address_list():
            with _explained(f"deleting topic {topic} at {address}"):
                self.api.delete_topic_in_name_server(address, topic, _TIMEOUT_MS)

    def delete_group(self, group: str) -> None:
        """Delete a group on all registered masters, with its offsets, its retry topic and its dead letters. Do nothing
        if it does not exist."""
        for address in self.masters().values():
            with _explained(f"deleting group {group} at {address}"):
                self.api.delete_subscription_group(address, group, True, _TIMEOUT_MS)
        for topic in {_RETRY + group, _DEAD + group} & self.topics().keys():
            self.delete_topic(topic)

    def topics(self) -> dict[str, TopicConfig]:
        """Return the topics of all masters."""
        found: dict[str, TopicConfig] = {}
        for address in self.masters().values():
            found.update(self._topics_at(address))
        return found

    def _topics_at(self, address: str) -> dict[str, TopicConfig]:
        with _explained(f"reading the topics at {address}"):
            return dict(self.api.get_all_topic_config(address, _TIMEOUT_MS).topicConfigTable or {})

    # Messages and offsets.

    def messages(self, topic: str, broker_name: str, address: str) -> list[MessageExt]:
        """Return a topic's messages on the broker at `address`, by queue and offset, as a consumer gets them.

        [] if the topic does not exist.
        """
        known = self._topics_at(address).get(topic)
        # A slave knows a new topic only after it has copied the table of its master, but has the messages before
        config = known or self._route(topic).get(broker_name)
        if config is None:
            return []
        self._wait_for_dispatch(address)
        queues = [MessageQueue(topic, broker_name, number)
                  for number in range(max(config.readQueueNums, config.writeQueueNums))]
        if known is None:
            return [message for queue in queues for message in self.queue_messages(queue, address, 0)]
        return [message for queue in queues for message in self._messages_of(queue, address)]

    def _wait_for_dispatch(self, address: str) -> None:
        """Wait until the stored messages are in their queues."""
        def is_done() -> bool:
            try:
                table = self.api.get_broker_runtime_info(address, _TIMEOUT_MS).table or {}
            except MQBrokerException:
                # 5.x fails in its first second, without samples for its statistics
                return False
            return int(table.get(_DISPATCH_BEHIND) or 0) <= 0

        with _explained(f"reading the state of {address}"):
            wait_until(is_done, _WAIT_S, f"{address} has put its messages into their queues")

    def has_all_data(self, slave: str, master: str) -> bool:
        """Return True if a slave has the log, topics, groups and offsets of its master; both are addresses."""
        with _explained(f"comparing {slave} with {master}"):
            ends = [(self.api.get_broker_runtime_info(address, _TIMEOUT_MS).table or {}).get(_LOG_END)
                    for address in (slave, master)]
            tables = [(self.api.get_all_topic_config(address, _TIMEOUT_MS).topicConfigTable,
                       self.api.get_all_subscription_group(address, _TIMEOUT_MS).subscriptionGroupTable,
                       self.api.get_all_consumer_offset(address, _TIMEOUT_MS).offsetTable)
                      for address in (slave, master)]
        return ends[0] == ends[1] and tables[0] == tables[1]

    def _messages_of(self, queue: MessageQueue, address: str) -> Iterator[MessageExt]:
        with _explained(f"reading {queue.topic} at {address}"):
            offset, end = (ask(address, queue, _TIMEOUT_MS) for ask in
                           (self.api.get_min_offset, self.api.get_max_offset))
            while offset < end:
                found, after = self._pulled(queue, offset, address)
                yield from found
                offset = max(after, offset + 1)

    def _pulled(self, queue: MessageQueue, offset: int, address: str) -> tuple[list[MessageExt], int]:
        """Return messages from `offset` on, and the offset after them."""
        header = PullMessageRequestHeader(
            consumerGroup=mix_all.TOOLS_CONSUMER_GROUP, topic=queue.topic, queueId=queue.queueId, queueOffset=offset,
            maxMsgNums=_PULL, sysFlag=_PULL_FLAGS, commitOffset=0, suspendTimeoutMillis=0,
            subscription=SUB_ALL, subVersion=0, expressionType=TAG)
        result = self.api.pull_message(address, header, _TIMEOUT_MS)
        if result.pull_status is not PullStatus.FOUND or result.message_binary is None:
            return [], result.next_begin_offset
        budget = BodyBudget(most_each=MOST_IN_ALL)
        found, left_out = message_decoder.decode_fitting(result.message_binary, budget, keep_bad=True)
        for message in found:
            message.broker_name = queue.brokerName
        if left_out is None:
            return found, result.next_begin_offset
        return found or [left_out], left_out.queue_offset + (0 if found else 1)

    def queue_messages(self, queue: MessageQueue, address: str, offset: int) -> list[MessageExt]:
        """Return the messages of a queue from `offset` on, one request each, also of a topic that can't be pulled."""
        self._wait_for_dispatch(address)
        found: list[MessageExt] = []
        with _explained(f"reading {queue.topic} at {address}"):
            end = self.api.get_max_offset(address, queue, _TIMEOUT_MS)
            offset = max(offset, self.api.get_min_offset(address, queue, _TIMEOUT_MS))
            while offset < end:
                units = self.api.query_consume_queue(address, queue.topic, queue.queueId, offset, _UNITS, None,
                                                     _TIMEOUT_MS).queueData or ()
                if not units:
                    break
                found += [self.api.view_message(address, unit.physicOffset, _TIMEOUT_MS) for unit in units]
                offset += len(units)
        for message in found:
            message.broker_name = queue.brokerName
        return found

    def consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int:
        """Return a group's offset in a queue of a broker; 0 if the broker has none."""
        header = QueryConsumerOffsetRequestHeader(consumerGroup=group, topic=queue.topic, queueId=queue.queueId)
        try:
            return self.api.query_consumer_offset(address, header, _TIMEOUT_MS)
        except MQBrokerException as error:
            if error.response_code != response_code.QUERY_NOT_FOUND:
                raise
            return 0

    def has_producer(self, address: str, group: str) -> bool:
        """Return True if a producer of the group is registered at a broker."""
        try:
            return bool(self.api.get_producer_connection_list(address, group, _TIMEOUT_MS).connectionSet)
        except MQBrokerException:  # "the producer group[...] not exist"
            return False

    def update_broker_config(self, address: str, properties: dict[str, str]) -> None:
        """Change settings of a running broker."""
        with _explained(f"changing the config of {address}"):
            self.api.update_broker_config(address, properties, _TIMEOUT_MS)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise the errors of a client as an EmbeddedError that says what was being done."""
    try:
        yield
    except (MQClientException, MQBrokerException, RemotingException) as error:
        raise EmbeddedError(f"{what}: {error}") from error

