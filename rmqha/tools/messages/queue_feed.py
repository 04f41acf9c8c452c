"""The messages of many queues at once: one pull of each is always on its way, and the broker holds it until there is
something.
"""
import queue as thread_queue
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import MQBrokerException
from rmqha.client.results import PullCallback, PullResult, PullStatus
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import response_code
from rmqha.tools.dialect.errors import CLIENT_ERRORS, one_line
from rmqha.tools.dialect.exit_codes import CannotAnswerError, WorkFailedError
from rmqha.tools.dialect.output import put

_AT_ONCE = 32
_RETRY_S = 1.0
_TRIES = 3
# A broker that answers with one of these may answer otherwise in a second.
_PASSING = frozenset({response_code.SYSTEM_ERROR, response_code.SYSTEM_BUSY, response_code.SERVICE_NOT_AVAILABLE,
                      response_code.SUBSCRIPTION_NOT_EXIST, response_code.SUBSCRIPTION_NOT_LATEST})


@dataclass(eq=False)
class _Place:
    """How far a queue is read: `end` None follows it for ever."""

    queue: MessageQueue
    offset: int
    end: int | None
    failures: int = 0
    retry_at: float | None = None  # monotonic
    asked: bool = False


@dataclass(frozen=True)
class Batch:
    """Messages of one queue in order, and the offset behind them."""

    queue: MessageQueue
    messages: list[MessageExt]
    next_offset: int


class QueueFeed:
    """Hands out what the queues have, on the caller's thread. A queue that has an end is left there."""

    def __init__(self, consumer: DefaultMQPullConsumer, selector: MessageSelector) -> None:
        self._consumer = consumer
        self._selector = selector
        self._places: dict[MessageQueue, _Place] = {}
        # (place, answer), put by the client's callback threads
        self._answers: thread_queue.SimpleQueue[tuple[_Place, PullResult | Exception]] = thread_queue.SimpleQueue()

    @property
    def queues(self) -> set[MessageQueue]:
        """Those that are read."""
        return set(self._places)

    def open(self, queue: MessageQueue, offset: int, end: int | None = None) -> None:
        """Read a queue from an offset on, up to `end`."""
        if end is None or offset < end:
            self._places[queue] = _Place(queue, offset, end)

    def close(self, queue: MessageQueue) -> None:
        """Read it no longer; an answer on its way is thrown away."""
        self._places.pop(queue, None)

    def batches(self, timeout_s: float | None) -> Iterator[Batch]:
        """What comes, until all queues are at their ends, or for `timeout_s` nothing came.

        WorkFailedError when a queue with an end can't be read three times in a row; one that is followed is tried
        for ever, and the first failure is told. CannotAnswerError when a broker refuses for good. Offsets that are gone
        are reported; a queue with an end that ends before what was read is a WorkFailedError.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._places:
            self._ask()
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            waits = [each - now for each in (deadline, *(place.retry_at for place in self._places.values()))
                     if each is not None]
            try:
                place, answer = self._answers.get(timeout=max(min(waits), 0.001) if waits else None)
            except thread_queue.Empty:
                continue
            if self._places.get(place.queue) is not place:
                continue  # closed meanwhile
            batch = self._take(place, answer)
            if batch is not None:
                yield batch
                deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def _ask(self) -> None:
        for place in self._places.values():
            if place.asked or (place.retry_at is not None and time.monotonic() < place.retry_at):
                continue
            place.asked, place.retry_at = True, None
            callback = PullCallback(partial(self._answered, place), partial(self._answered, place))
            try:
                self._consumer.pull_block_if_not_found_async(
                    place.queue, self._selector, place.offset, _AT_ONCE, callback)
            except CLIENT_ERRORS as error:
                self._answers.put((place, error))

    def _answered(self, place: _Place, answer: PullResult | Exception) -> None:
        self._answers.put((place, answer))

    def _take(self, place: _Place, answer: PullResult | Exception) -> Batch | None:
        place.asked = False
        if isinstance(answer, Exception):
            self._failed(place, answer)
            return None
        place.failures = 0
        messages = answer.msg_found_list if answer.pull_status is PullStatus.FOUND else []
        if answer.pull_status is PullStatus.OFFSET_ILLEGAL:
            self._moved(place, answer)
        else:
            place.offset = answer.next_begin_offset
        if place.end is not None:
            messages = [message for message in messages if message.queue_offset < place.end]
            if place.offset >= place.end:
                self.close(place.queue)
        return Batch(place.queue, messages, messages[-1].queue_offset + 1) if messages else None

    def _moved(self, place: _Place, answer: PullResult) -> None:
        """Read on at the queue's beginning: it begins after what was read, or ends before."""
        where = _named(place.queue)
        if answer.max_offset >= place.offset:
            following = max(answer.next_begin_offset, answer.min_offset, place.offset)
            if following > place.offset:
                put(f"{where}: offsets {place.offset} to {following} are gone, the queue begins at {answer.min_offset}",
                    err=True)
            place.offset = following
            return
        reason = (f"{where} ends at offset {answer.max_offset}, before {place.offset}: the topic may have been deleted "
                  "and made again")
        if place.end is not None:
            raise WorkFailedError(f"{reason}. Run the command again")
        put(f"{reason}; it is read from its beginning, offset {answer.min_offset}", err=True)
        place.offset = answer.min_offset

    def _failed(self, place: _Place, error: Exception) -> None:
        place.failures += 1
        place.retry_at = time.monotonic() + _RETRY_S
        where = _named(place.queue)
        if isinstance(error, MQBrokerException) and error.response_code not in _PASSING:
            raise CannotAnswerError(f"{where}: {one_line(error)}") from error
        if place.end is not None and place.failures >= _TRIES:
            raise WorkFailedError(f"{where} can't be read from offset {place.offset} on: {one_line(error)}") from error
        if place.end is None and place.failures == 1:
            put(f"{where}: {one_line(error)}; trying again", err=True)


def _named(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.brokerName}:{queue.queueId}"
