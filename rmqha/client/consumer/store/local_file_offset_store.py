"""Offsets of a broadcasting consumer, kept in a file of its own."""
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqha.client.consumer.store.offset_table import NO_OFFSET, OffsetTable
from rmqha.client.consumer.store.read_offset_type import ReadOffsetType
from rmqha.client.exception import MQClientException
from rmqha.common import mix_all
from rmqha.common.message.message import MessageQueue
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError

if TYPE_CHECKING:
    from rmqha.client.impl.factory.mq_client_instance import MQClientInstance

log = logging.getLogger("RocketmqClient")

@dataclass
class OffsetSerializeWrapper:
    """The file's content.

    Java: org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper (4.9.8)
    """

    offsetTable: dict[MessageQueue, int] = field(default_factory=dict)


class LocalFileOffsetStore(OffsetTable):
    """Memory first; every 5 s to `~/.rocketmq_offsets/<client id>/<group>/offsets.json`.

    The client id holds the instance's name: give the consumer an `instance_name` to find its offsets again.

    Java: org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore (4.9.8)
    """

    def __init__(self, mq_client_factory: "MQClientInstance", group_name: str, folder: str | None = None) -> None:
        super().__init__()
        self._group_name = group_name
        root = folder or os.path.join(os.path.expanduser("~"), ".rocketmq_offsets")
        self.store_path = os.path.join(root, mq_client_factory.client_id, group_name, "offsets.json")

    def load(self) -> None:
        """Read the file; MQClientException when neither it nor its backup can be understood."""
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
        """The next offset to consume; -1 when there is none. What is in the file was loaded at the start."""
        return self._offset_table.get(mq, NO_OFFSET)

    def persist_all(self, mqs: Iterable[MessageQueue]) -> None:
        """Write the offsets of `mqs` (all that are held)."""
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
        """Nothing: the file is written as a whole."""

    def remove_offset(self, mq: MessageQueue) -> None:
        """Nothing: each consumer keeps all queues."""

    def update_consume_offset_to_broker(self, mq: MessageQueue, offset: int, is_oneway: bool) -> None:
        """Nothing goes to brokers; memory takes the offset."""
        self.update_offset(mq, offset, increase_only=False)
