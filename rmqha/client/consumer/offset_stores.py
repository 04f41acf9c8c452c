"""Offset stores of consumers: offsets in memory, saved at the brokers or in a local file.

- `OffsetTable`: the offsets that a consumer holds in memory; base of both stores.
- `LocalFileOffsetStore`: for a broadcasting consumer, in a file of its own.
- `RemoteBrokerOffsetStore`: for a consumer group, at the brokers.
- `ReadOffsetType`: the source that an offset is read from.
"""
import logging
import os
import threading
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.results import FindBrokerResult
from rmqha.common import mix_all
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError

if TYPE_CHECKING:
    from rmqha.client.impl.client_routes import ClientRoutes
    from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl


NO_OFFSET = -1


class OffsetTable:
    """The next offset to consume of each queue; base class of both stores. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset_table: dict[MessageQueue, int] = {}  # guarded by _lock

    def update_offset(self, mq: MessageQueue, offset: int, increase_only: bool) -> None:
        """Set the next offset to consume; with `increase_only` keep the higher one."""
        with self._lock:
            old = self._offset_table.get(mq)
            if old is None or not increase_only or offset > old:
                self._offset_table[mq] = offset

    def clone_offset_table(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the offsets in memory, of one topic or of all."""
        with self._lock:
            return {mq: offset for mq, offset in self._offset_table.items() if not topic or mq.topic == topic}


class ReadOffsetType(Enum):
    """The source of an offset: the client's memory, the broker, or memory first and then the broker.

    Java: org.apache.rocketmq.client.consumer.store.ReadOffsetType (4.9.8)
    """

    READ_FROM_MEMORY = "READ_FROM_MEMORY"
    READ_FROM_STORE = "READ_FROM_STORE"
    MEMORY_FIRST_THEN_STORE = "MEMORY_FIRST_THEN_STORE"


log = logging.getLogger("RocketmqClient")

@dataclass
class OffsetSerializeWrapper:
    """The content of the offsets file.

    Java: org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper (4.9.8)
    """

    offsetTable: dict[MessageQueue, int] = field(default_factory=dict)


class LocalFileOffsetStore(OffsetTable):
    """Offsets in memory, saved every 5 s to `~/.rocketmq_offsets/<client id>/<group>/offsets.json`.

    The client id contains the instance name. Give the consumer an `instance_name`, so that it finds its offsets again
    after a restart.

    Java: org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore (4.9.8)
    """

    def __init__(self, client_id: str, group_name: str, folder: str | None = None) -> None:
        super().__init__()
        self._group_name = group_name
        root = folder or os.path.join(os.path.expanduser("~"), ".rocketmq_offsets")
        self.store_path = os.path.join(root, client_id, group_name, "offsets.json")

    def load(self) -> None:
        """Read the file; MQClientException if neither the file nor its backup can be parsed."""
        for path in (self.store_path, self.store_path + ".bak"):
            if not os.path.exists(path):
                continue
            try:
                wrapper = remoting_serializable.from_json(OffsetSerializeWrapper, mix_all.file2string(path) or "")
            except (FastjsonError, UnicodeDecodeError) as error:
                log.warning("readLocalOffset Exception, %s: %s", path, error)
                continue
            with self._lock:
                self._offset_table.update(wrapper.offsetTable)
            return
        if os.path.exists(self.store_path):
            raise MQClientException(f"readLocalOffset Exception, {self.store_path}")

    def read_offset(self, mq: MessageQueue, kind: ReadOffsetType) -> int:
        """Return the next offset to consume, or -1. The file was loaded at the start."""
        return self._offset_table.get(mq, NO_OFFSET)

    def persist_all(self, mqs: Iterable[MessageQueue]) -> None:
        """Write the offsets of `mqs`, which are all queues that the consumer holds."""
        wanted = set(mqs)
        if not wanted:
            return
        with self._lock:
            table = {mq: offset for mq, offset in self._offset_table.items() if mq in wanted}
        try:
            text = remoting_serializable.to_json(OffsetSerializeWrapper(table), pretty=True)
            mix_all.string2file(text, self.store_path)
        except OSError as error:
            log.error("persistAll consumer offset Exception, %s: %s", self.store_path, error)

    def persist(self, mq: MessageQueue) -> None:
        """Do nothing: the file is written as a whole."""

    def remove_offset(self, mq: MessageQueue) -> None:
        """Do nothing: a broadcasting consumer keeps all queues."""

    def update_consume_offset_to_broker(self, mq: MessageQueue, offset: int, is_oneway: bool) -> None:
        """Set the offset in memory; nothing is sent to the broker."""
        self.update_offset(mq, offset, increase_only=False)


TIMEOUT_MS = 5_000
NO_ANSWER = -2


class RemoteBrokerOffsetStore(OffsetTable):
    """Offsets in memory, sent to the broker every 5 s and when a queue is given up.

    The broker is the master, or its slave while the master is down.

    Java: org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore (4.9.8)
    """

    def __init__(self, api: "MQClientAPIImpl", routes: "ClientRoutes", group_name: str) -> None:
        super().__init__()
        self._api = api
        self._routes = routes
        self._group_name = group_name

    def load(self) -> None:
        """Do nothing: the offset of each queue is read when the consumer takes the queue."""

    def read_offset(self, mq: MessageQueue, kind: ReadOffsetType) -> int:
        """Return the next offset to consume; -1 if the broker has none, -2 if the broker does not answer."""
        if kind is not ReadOffsetType.READ_FROM_STORE:
            offset = self._offset_table.get(mq)
            if offset is not None:
                return offset
            if kind is ReadOffsetType.READ_FROM_MEMORY:
                return NO_OFFSET
        try:
            offset = self._fetch_consume_offset_from_broker(mq)
        except MQBrokerException as error:
            # Differs: only QUERY_NOT_FOUND means that a group has no offset. 4.9.8 treats every error as "no offset".
            # If a broker is busy or refuses, the group then starts from scratch: it skips its whole backlog or consumes
            # all of it again.
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
        """Send the offsets of `mqs` to the brokers, and forget those of other queues."""
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
        """Send the offset of one queue to the broker."""
        offset = self._offset_table.get(mq)
        if offset is not None:
            self._persist(mq, offset)

    def _persist(self, mq: MessageQueue, offset: int) -> None:
        try:
            self.update_consume_offset_to_broker(mq, offset, is_oneway=True)
        except (MQClientException, MQBrokerException, RemotingException) as error:
            log.error("updateConsumeOffsetToBroker exception, %s: %s", mq, error)

    def remove_offset(self, mq: MessageQueue) -> None:
        """Forget the offset of one queue."""
        with self._lock:
            self._offset_table.pop(mq, None)

    def update_consume_offset_to_broker(self, mq: MessageQueue, offset: int, is_oneway: bool) -> None:
        """Send an offset to the broker now; MQClientException, MQBrokerException or RemotingException on failure."""
        broker = self._find_broker(mq)
        header = UpdateConsumerOffsetRequestHeader(
            consumerGroup=self._group_name, topic=mq.topic, queueId=mq.queueId, commitOffset=offset,
            bname=mq.brokerName)
        update = self._api.update_consumer_offset_oneway if is_oneway else self._api.update_consumer_offset
        update(broker.broker_addr, header, TIMEOUT_MS)

    def _fetch_consume_offset_from_broker(self, mq: MessageQueue) -> int:
        broker = self._find_broker(mq)
        header = QueryConsumerOffsetRequestHeader(
            consumerGroup=self._group_name, topic=mq.topic, queueId=mq.queueId, bname=mq.brokerName)
        return self._api.query_consumer_offset(broker.broker_addr, header, TIMEOUT_MS)

    def _find_broker(self, mq: MessageQueue) -> FindBrokerResult:
        find = self._routes.find_broker_address_in_subscribe
        broker = find(mq.brokerName, mix_all.MASTER_ID, only_this_broker=True)
        if broker is None:
            self._routes.update_topic_route_info_from_name_server(mq.topic)
            broker = find(mq.brokerName, mix_all.MASTER_ID, only_this_broker=False)
        if broker is None:
            raise MQClientException(f"The broker[{mq.brokerName}] not exist")
        return broker
