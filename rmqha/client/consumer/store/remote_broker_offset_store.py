"""Offsets of a consumer group, kept by the brokers."""
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqha.client.consumer.store.offset_table import NO_OFFSET, OffsetTable
from rmqha.client.consumer.store.read_offset_type import ReadOffsetType
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.find_broker_result import FindBrokerResult
from rmqha.common import mix_all
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.client.impl.factory.mq_client_instance import MQClientInstance

log = logging.getLogger("RocketmqClient")

TIMEOUT_MS = 5_000
NO_ANSWER = -2


class RemoteBrokerOffsetStore(OffsetTable):
    """Memory first; every 5 s, and when a queue is given up, to the broker: the master, or its slave while it is gone.

    Java: org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore (4.9.8)
    """

    def __init__(self, mq_client_factory: "MQClientInstance", group_name: str) -> None:
        super().__init__()
        self._mq_client_factory = mq_client_factory
        self._group_name = group_name

    def load(self) -> None:
        """Nothing: each queue's offset is read when it is taken."""

    def read_offset(self, mq: MessageQueue, kind: ReadOffsetType) -> int:
        """The next offset to consume; -1 when the broker says that there is none, -2 when it does not say."""
        if kind is not ReadOffsetType.READ_FROM_STORE:
            offset = self._offset_table.get(mq)
            if offset is not None:
                return offset
            if kind is ReadOffsetType.READ_FROM_MEMORY:
                return NO_OFFSET
        try:
            offset = self._fetch_consume_offset_from_broker(mq)
        except MQBrokerException as error:
            # Differs: 4.9.8 takes each error for "no offset", so that a broker that is busy, or refuses, has a group
            # begin anew, behind or in front of its whole backlog
            if error.response_code != response_code.QUERY_NOT_FOUND:
                log.warning("fetchConsumeOffsetFromBroker exception, %s: %s", mq, error)
                return NO_ANSWER
            log.debug("no offset of %s at the broker for %s: %s", self._group_name, mq, error)
            return NO_OFFSET
        except (MQClientException, RemotingException) as error:
            log.warning("fetchConsumeOffsetFromBroker exception, %s: %s", mq, error)
            return NO_ANSWER
        self.update_offset(mq, offset, increase_only=False)
        return offset

    def persist_all(self, mqs: Iterable[MessageQueue]) -> None:
        """Tell the brokers the offsets of `mqs`, and forget those of other queues."""
        wanted = set(mqs)
        if not wanted:
            return
        with self._lock:
            offsets = dict(self._offset_table)
        for mq, offset in offsets.items():
            if mq in wanted:
                self._persist(mq, offset)
            else:
                self.remove_offset(mq)
                log.info("remove unused mq, %s, %s", mq, self._group_name)

    def persist(self, mq: MessageQueue) -> None:
        """Tell the broker the offset of one queue."""
        offset = self._offset_table.get(mq)
        if offset is not None:
            self._persist(mq, offset)

    def _persist(self, mq: MessageQueue, offset: int) -> None:
        try:
            self.update_consume_offset_to_broker(mq, offset, is_oneway=True)
        except (MQClientException, MQBrokerException, RemotingException) as error:
            log.error("updateConsumeOffsetToBroker exception, %s: %s", mq, error)

    def remove_offset(self, mq: MessageQueue) -> None:
        """Forget one queue."""
        with self._lock:
            self._offset_table.pop(mq, None)

    def update_consume_offset_to_broker(self, mq: MessageQueue, offset: int, is_oneway: bool) -> None:
        """Tell the broker at once; MQClientException, MQBrokerException, RemotingException when that fails."""
        broker = self._find_broker(mq)
        header = UpdateConsumerOffsetRequestHeader(
            consumerGroup=self._group_name, topic=mq.topic, queueId=mq.queueId, commitOffset=offset,
            bname=mq.brokerName)
        api = self._mq_client_factory.mq_client_api_impl
        update = api.update_consumer_offset_oneway if is_oneway else api.update_consumer_offset
        update(broker.broker_addr, header, TIMEOUT_MS)

    def _fetch_consume_offset_from_broker(self, mq: MessageQueue) -> int:
        broker = self._find_broker(mq)
        header = QueryConsumerOffsetRequestHeader(
            consumerGroup=self._group_name, topic=mq.topic, queueId=mq.queueId, bname=mq.brokerName)
        return self._mq_client_factory.mq_client_api_impl.query_consumer_offset(
            broker.broker_addr, header, TIMEOUT_MS)

    def _find_broker(self, mq: MessageQueue) -> FindBrokerResult:
        find = self._mq_client_factory.find_broker_address_in_subscribe
        broker = find(mq.brokerName, mix_all.MASTER_ID, only_this_broker=True)
        if broker is None:
            self._mq_client_factory.update_topic_route_info_from_name_server(mq.topic)
            broker = find(mq.brokerName, mix_all.MASTER_ID, only_this_broker=False)
        if broker is None:
            raise MQClientException(f"The broker[{mq.brokerName}] not exist")
        return broker
