"""Offsets of many queues as nested dicts, as JSON has them: topic -> broker -> queue id -> offset."""
import json
from collections.abc import Callable, Iterator
from typing import cast, overload

from rmqha.common.message.message import MessageQueue
from rmqha.pipeline.options import PipelineError, is_long, queue_id_of

QueueOffsets = dict[str, dict[str, dict[str, int]]]


def named(queue: MessageQueue) -> str:
    """A queue in an error."""
    return f"topic {queue.topic}, queue {queue.queueId} of {queue.brokerName}"


def walk(offsets: QueueOffsets) -> Iterator[tuple[MessageQueue, int]]:
    """(queue, offset) of all, in order."""
    for topic in sorted(offsets):
        for broker in sorted(offsets[topic]):
            for queue_id, offset in sorted(offsets[topic][broker].items(), key=lambda item: int(item[0])):
                yield MessageQueue(topic, broker, int(queue_id)), offset


def set_offset(offsets: QueueOffsets, queue: MessageQueue, offset: int) -> None:
    """Put in the offset of a queue."""
    offsets.setdefault(queue.topic, {}).setdefault(queue.brokerName, {})[str(queue.queueId)] = offset


@overload
def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: int) -> int: ...


@overload
def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: None = None) -> int | None: ...


def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: int | None = None) -> int | None:
    """The offset of a queue."""
    return offsets.get(queue.topic, {}).get(queue.brokerName, {}).get(str(queue.queueId), default)


def of_checkpoint(offset: object, name: str = "queues") -> QueueOffsets:
    """The queues in an offset that Spark has kept. PipelineError when it is not one of this format."""
    queues = offset.get(name) if isinstance(offset, dict) else None
    if not _is_by_queue(queues, lambda number: is_long(number, -1)):
        raise _damaged(offset, f"{name} is not offsets")
    return cast(QueueOffsets, queues)


def numbers_of_checkpoint(offset: object, name: str, most: int) -> dict[MessageQueue, list[int]]:
    """1 to `most` numbers by queue in an offset that Spark has kept; none when it has no such. PipelineError."""
    queues = offset.get(name, {}) if isinstance(offset, dict) else None
    if not _is_by_queue(queues, lambda numbers: isinstance(numbers, list) and 1 <= len(numbers) <= most
                        and all(is_long(number, -(1 << 63)) for number in numbers)):
        raise _damaged(offset, f"{name} is not numbers")
    return cast(dict[MessageQueue, list[int]], dict(walk(cast(QueueOffsets, queues))))


def _is_by_queue(queues: object, is_good: Callable[[object], bool]) -> bool:
    if not isinstance(queues, dict):
        return False
    of_brokers = [of_broker for brokers in queues.values() for of_broker in _values(brokers)]
    return all(isinstance(of_broker, dict) and all(queue_id_of(queue_id) is not None and is_good(value)
                                                   for queue_id, value in of_broker.items())
               for of_broker in of_brokers)


def _damaged(offset: object, why: str) -> PipelineError:
    return PipelineError(f"the checkpoint's offset is damaged: {why} by topic, broker and queue: {offset!s:.1000}. "
                         "Begin with a new checkpoint")


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else [value]


def as_text(offsets: QueueOffsets) -> str:
    """Offsets as the options take them."""
    return json.dumps(offsets, sort_keys=True)
