"""What a topic holds, read from a running broker's store."""
from __future__ import annotations

from typing import TYPE_CHECKING

from rmqha.common.compression import MOST_IN_ALL, BodyBudget
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt
from rmqha.testing.errors import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqha.store.consume_queue import ConsumeQueue
    from rmqha.store.default_message_store import DefaultMessageStore
    from rmqha.testing.node import EmbeddedBroker

_TIMEOUT_S = 60


def stored_messages(broker: EmbeddedBroker, topic: str) -> list[MessageExt]:
    """The messages of a topic on one broker by queue, then offset, as a consumer gets them; [] without the topic.

    Their bodies share a BodyBudget: a MissingBody stands in place of one that is damaged or too large.
    """
    store = broker.store
    reput = store.reput_message_service
    store.call_when_dispatched(_nothing)  # has it dispatched now: what nobody waits for gathers for some milliseconds
    wait_until(lambda: store.dispatch_behind_bytes() <= 0 or reput.has_only_part_of_a_record(), _TIMEOUT_S,
               f"{broker.node} has put its messages into their queues")
    queues = sorted((queue for queue in store.all_consume_queues() if queue.topic == topic),
                    key=lambda queue: queue.queue_id)
    budget = BodyBudget(most_each=MOST_IN_ALL)
    messages = [message for queue in queues for message in _messages_of(store, queue, budget)]
    for message in messages:
        message.broker_name = broker.broker_name
    return messages


def _messages_of(store: DefaultMessageStore, queue: ConsumeQueue, budget: BodyBudget) -> Iterator[MessageExt]:
    for index in range(queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue()):
        unit = queue.get_unit(index)
        record = store.select_one_message_by_offset(unit[0], unit[1]) if unit is not None and unit[1] else None
        if record is not None:  # None: its file was deleted meanwhile
            with record:
                yield message_decoder.client_decode_or_missing(record.buffer, 0, budget)


def _nothing() -> None:
    """Whoever waits looks by himself."""
