"""One message in several queues: light message queues (LMQ) and others named by INNER_MULTI_DISPATCH.

A message for a thousand devices is stored once and has to appear in a thousand queues. Its property
INNER_MULTI_DISPATCH names the further queues, and the record itself has to state its offset in each of them
(INNER_MULTI_QUEUE_OFFSET): consume queues can be rebuilt from the log at any time, and must come out the same.

So the offsets have to be known before the record is written, and no other put may take the same ones. Therefore the
record is encoded under the put lock, unlike all others: `wrap_multi_dispatch` reads the next offset of each queue,
writes them into the properties and encodes the row; `update_multi_queue_offset` advances the offsets once the record is
written, so a failed append leaves no gap. The dispatching thread later adds one unit per queue, as the record says.
If the offsets were assigned at dispatch instead, a rebuild after records had expired would number them differently, and
consumers would skip or repeat messages.
"""
from __future__ import annotations

import logging
from collections.abc import Callable

from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.store.append import MessageExtBrokerInner, MessageExtEncoder, PutMessageContext
from rmqha.store.consume_queue_layout import is_safe_topic
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.results import DispatchRequest, PutMessageResult

log = logging.getLogger("RocketmqStore")

_SPLITTER = mix_all.MULTI_DISPATCH_QUEUE_SPLITTER


class MultiDispatch:
    """The offsets of the further queues of a message, and the queues that a record names.

    `next_offsets_of` returns the table of next offsets that contains a key; the put lock guards it.

    Java: org.apache.rocketmq.store.MultiDispatch (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig, message_ext_encoder: MessageExtEncoder,
                 next_offsets_of: Callable[[str], dict[str, int]]) -> None:
        self._config = config
        self._encoder = message_ext_encoder
        self._next_offsets_of = next_offsets_of

    def is_multi_dispatch_msg(self, msg: MessageExtBrokerInner) -> bool:
        """Return whether the message goes to further queues."""
        return self._config.enableMultiDispatch and bool(
            (msg.properties.get(message_const.PROPERTY_INNER_MULTI_DISPATCH) or "").strip())

    def queue_key(self, queue_name: str, queue_id: int) -> str:
        """Return the key of a further queue in the table of queue offsets."""
        return f"{queue_name}-{self._queue_id(queue_name, queue_id)}"

    def wrap_multi_dispatch(self, msg: MessageExtBrokerInner, context: PutMessageContext) -> bool:
        """Write the offsets into the message's properties and encode its row; return False on failure.

        Called under the put lock.
        """
        offsets = []
        for queue_name in java_split(msg.properties[message_const.PROPERTY_INNER_MULTI_DISPATCH]):
            if not is_safe_topic(queue_name):
                log.error("multiDispatch: %r in a message of topic %s is not a valid queue name", queue_name, msg.topic)
                return False
            key = self.queue_key(queue_name, msg.queue_id)
            offsets.append(self._next_offsets_of(key).setdefault(key, 0))
        properties = msg.properties
        properties[message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET] = _SPLITTER.join(map(str, offsets))
        # WAIT is obeyed but not stored
        stored = {name: value for name, value in properties.items()
                  if name != message_const.PROPERTY_WAIT_STORE_MSG_OK}
        msg.properties_string = message_properties2string(stored)
        row = self._encoder.encode(msg)
        if isinstance(row, PutMessageResult):
            log.error("rebuild msgInner for multiDispatch %s", row)
            return False
        context.rows, context.size = [row], row.size
        return True

    def update_multi_queue_offset(self, msg: MessageExtBrokerInner) -> None:
        """Advance the offsets of the further queues, under the put lock, once the message is written."""
        if not self._config.enableMultiDispatch:
            return
        pairs = self._pairs(msg.properties)
        for queue_name, queue_offset in pairs:
            key = self.queue_key(queue_name, msg.queue_id)
            self._next_offsets_of(key)[key] = queue_offset + 1

    def is_multi_dispatch_request(self, request: DispatchRequest) -> bool:
        """Return whether the record belongs to further queues."""
        return self._config.enableMultiDispatch and bool(self._pairs(request.properties_map or {}))

    def queues_of(self, request: DispatchRequest) -> list[tuple[str, int, int]]:
        """Return (queue name, queue id, queue offset) of each further queue of a record."""
        return [(queue_name, self._queue_id(queue_name, request.queue_id), queue_offset)
                for queue_name, queue_offset in self._pairs(request.properties_map or {})]

    def _queue_id(self, queue_name: str, queue_id: int) -> int:
        return 0 if self._config.enableLmq and mix_all.is_lmq(queue_name) else queue_id

    @staticmethod
    def _pairs(properties: dict[str, str]) -> list[tuple[str, int]]:
        names = (properties.get(message_const.PROPERTY_INNER_MULTI_DISPATCH) or "").strip()
        texts = (properties.get(message_const.PROPERTY_INNER_MULTI_QUEUE_OFFSET) or "").strip()
        if not names or not texts:
            return []
        queues, offsets = java_split(names), java_split(texts)
        if len(queues) != len(offsets) or not all(text.isdecimal() for text in offsets):
            log.error("[bug] queues.length!=queueOffsets.length %s %s", names, texts)
            return []
        return [(queue, int(text)) for queue, text in zip(queues, offsets)]


def java_split(text: str) -> list[str]:
    """Split at the splitter as Java does: empty parts at the end are dropped."""
    parts = text.split(_SPLITTER)
    while parts and not parts[-1]:
        parts.pop()
    return parts
