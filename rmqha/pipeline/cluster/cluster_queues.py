"""The queues of a live cluster, asked of the name server and the brokers: which there are, and their offsets.

Offsets of many queues are nested dicts, as JSON: topic -> broker -> queue id -> offset.
"""
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar, overload

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.factory.topic_route import topic_route_data2_topic_subscribe_info
from rmqha.common import mix_all
from rmqha.common.message.message_queue import MessageQueue
from rmqha.common.protocol import namespace_util
from rmqha.common.protocol.route.topic_route_data import TopicRouteData
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, cluster_client
from rmqha.pipeline.options import Options, PipelineError, is_long, queue_id_of
from rmqha.remoting.exception import RemotingException

EARLIEST, LATEST = "earliest", "latest"
TIMEOUT_MS = 6_000  # of one question
ROUTES_MS = 30_000  # a stream asks the name server again after so long
# Topics of the brokers themselves: only read when they are named.
_INNER_PREFIXES = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX, "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX",
                   "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC")

QueueOffsets = dict[str, dict[str, dict[str, int]]]
AnswerT = TypeVar("AnswerT")


class Bounds(NamedTuple):
    """The first offset of a queue that is still there, and the one that the next message gets."""

    first: int
    end: int


class ClusterQueues:
    """The queues that the options subscribe to. Use as a context manager, or close it. For one thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.cluster = cluster_client(options)
        self.topics, self.pattern = subscription(options)
        self.consumer = self.cluster.consumer()
        self._running = False
        self._routes: dict[str, TopicRouteData] = {}  # by topic, as the user knows it
        self._routes_until = 0.0  # monotonic

    def __enter__(self) -> "ClusterQueues":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(self) -> None:
        """Connect. Idempotent. PipelineError for settings with which that is not possible."""
        if not self._running:
            try:
                self.consumer.start()
            except UNREACHABLE as error:
                raise PipelineError(f"{self.options.where}: {self.cluster.said(error)}") from None
            self._running = True

    def close(self) -> None:
        """Disconnect. Idempotent."""
        if self._running:
            self.consumer.shutdown()
            self._running = False

    # -- which queues there are --

    def queues(self) -> list[MessageQueue]:
        """All queues, in order. PipelineError when the name server or a topic can't be found."""
        return sorted(queue for topic, route in self._all_routes().items() for queue in self._readable(topic, route))

    def _readable(self, topic: str, route: TopicRouteData) -> set[MessageQueue]:
        found = topic_route_data2_topic_subscribe_info(topic, route)
        if not found:
            raise PipelineError(f"topic {topic} has no queue that may be read")
        return found

    def _all_routes(self) -> dict[str, TopicRouteData]:
        """Who has the queues of each topic, as the name server said in the last 30 s."""
        self.start()
        if time.monotonic() >= self._routes_until:
            names = self.topics or self._matching(self.pattern or "")
            self._routes = {name: self._route(name) for name in names}
            self._routes_until = time.monotonic() + ROUTES_MS / 1000
        return self._routes

    def _route(self, topic: str) -> TopicRouteData:
        return self._of_name_server(lambda: self.consumer.api.get_topic_route_info_from_name_server(
            self.consumer.with_namespace(topic), TIMEOUT_MS))

    def _of_name_server(self, ask: Callable[[], AnswerT]) -> AnswerT:
        try:
            return ask()
        except UNREACHABLE as error:
            raise PipelineError(f"name server {self.cluster.name_server}: {self.cluster.said(error)}") from None

    def _matching(self, pattern: str) -> list[str]:
        listed = self._of_name_server(
            lambda: self.consumer.api.get_topic_list_from_name_server(TIMEOUT_MS).topicList)
        names = [name for name in listed if not name.startswith(_INNER_PREFIXES)]
        if namespace := self.consumer.get_namespace():
            names = [namespace_util.without_namespace(name, namespace) for name in names
                     if namespace_util.without_namespace(name, namespace) != name]
        found = [name for name in names if re.fullmatch(pattern, name)]
        if not found:
            raise PipelineError(f"{self.options.where}, option subscribePattern: no topic matches {pattern!r}")
        return sorted(found)

    # -- their offsets --

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """Of all queues, in order: one question for each topic and broker."""
        found: dict[MessageQueue, Bounds] = {}
        for topic, route in self._all_routes().items():
            own = self._readable(topic, route)
            for data in route.brokerDatas:
                mine = [queue for queue in own if queue.brokerName == data.brokerName]
                if mine:
                    found.update(self._bounds_at(data.brokerName, topic, mine))
        return dict(sorted(found.items()))

    def _bounds_at(self, broker: str, topic: str, queues: list[MessageQueue]) -> dict[MessageQueue, Bounds]:
        api, wrapped = self.consumer.api, self.consumer.with_namespace(topic)
        try:
            table = self._of_broker(broker, topic, lambda addr: api.get_topic_stats_info(addr, wrapped, TIMEOUT_MS))
        except MQBrokerException:  # it may still tell of each queue, or it says there what is wrong
            table = None
        known = {} if table is None else {queue.queueId: Bounds(offsets.minOffset, offsets.maxOffset)
                                          for queue, offsets in table.offsetTable.items()}
        # a broker tells of the queues that may be written: there may be more that may be read
        return {queue: known.get(queue.queueId) or self._bounds_of(queue) for queue in queues}

    def _bounds_of(self, queue: MessageQueue) -> Bounds:
        api, wrapped = self.consumer.api, self.consumer.queue_with_namespace(queue)
        return Bounds(self.ask(queue, lambda addr: api.get_min_offset(addr, wrapped, TIMEOUT_MS)),
                      self.ask(queue, lambda addr: api.get_max_offset(addr, wrapped, TIMEOUT_MS)))

    def ask(self, queue: MessageQueue, question: Callable[[str], AnswerT]) -> AnswerT:
        """The answer of the queue's broker. PipelineError that has what was said, or that nobody answers."""
        try:
            return self._of_broker(queue.brokerName, queue.topic, question)
        except MQBrokerException as error:
            raise PipelineError(f"{named(queue)}: {self.cluster.said(error)}") from None

    def _of_broker(self, broker: str, topic: str, question: Callable[[str], AnswerT]) -> AnswerT:
        """The master's answer, or a slave's when the master is gone. MQBrokerException when it refuses."""
        addresses = next((data.brokerAddrs for data in self._all_routes()[topic].brokerDatas
                          if data.brokerName == broker), {})
        failed: Exception = MQClientException("it is not known to the name server")
        for _, address in sorted(addresses.items()):
            try:
                return question(address)
            except (MQClientException, RemotingException) as error:
                failed = error
        self._routes_until = 0.0
        raise PipelineError(f"topic {topic}, {broker}: {self.cluster.said(failed)}") from None

    def offsets(self, which: str) -> QueueOffsets:
        """The first (`earliest`) or the next (`latest`) offset of each queue."""
        found: QueueOffsets = {}
        for queue, bounds in self.bounds().items():
            set_offset(found, queue, bounds.first if which == EARLIEST else bounds.end)
        return found

    def first_at(self, queue: MessageQueue, timestamp: int, bounds: Bounds) -> int | None:
        """The offset of the first message stored at a time (ms) or later; None when there is none.

        Brokers of 4.9 give one near by: of several stored in this millisecond any, else the last one before it, maybe.
        """
        api, wrapped = self.consumer.api, self.consumer.queue_with_namespace(queue)
        near = self.ask(queue, lambda addr: api.search_offset(addr, wrapped, timestamp, TIMEOUT_MS))
        found = first_true(lambda offset: self._stored_at(queue, offset) >= timestamp, bounds.first, bounds.end, near)
        return None if found >= bounds.end else found

    def _stored_at(self, queue: MessageQueue, offset: int) -> int:
        """Store time (ms) of the message at an offset, or of the next one; 0 when there is none any more."""
        try:
            found = self.consumer.pull(queue, "*", offset, 1, TIMEOUT_MS).msg_found_list
        except UNREACHABLE as error:
            raise PipelineError(f"{named(queue)} at offset {offset}: {self.cluster.said(error)}") from None
        return found[0].store_timestamp if found else 0


def subscription(options: Options) -> tuple[list[str], str | None]:
    """(topics, pattern): one of them is given. PipelineError otherwise, and for a bad pattern."""
    topics = options.words("subscribe", options.same("subscribe", "topic") or "")
    pattern = options.text("subscribePattern")
    if bool(topics) == (pattern is not None):
        raise PipelineError(f"{options.where} needs one of the options subscribe and subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise options.wrong("subscribePattern", f"a pattern ({error})") from None
    return topics, pattern


def first_true(holds: Callable[[int], bool], begin: int, end: int, near: int) -> int:
    """The first number of [begin, end) for which `holds`, which holds for all numbers behind it too; `end` when there
    is none. `near`: where it may be; nearer means fewer questions.
    """
    low, high, step = begin, end, 1  # below `low` it does not hold, at `high` it does, if that is not the end
    at = min(max(near, begin), end - 1)
    while low < high and begin <= at < end:  # from `near` in ever longer steps
        if holds(at):
            high = at
            if low == at or low > begin:
                break
            at = max(at - step, begin)
        else:
            low = at + 1
            if high < end:
                break
            at = min(at + step, end - 1)
        step *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


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
    numbers = [(queue_id, number) for brokers in _values(queues) for of_broker in _values(brokers)
               for queue_id, number in (of_broker.items() if isinstance(of_broker, dict) else [("", None)])]
    if not isinstance(queues, dict) or not all(queue_id_of(queue_id) is not None and is_long(number, -1)
                                               for queue_id, number in numbers):
        raise PipelineError(f"the checkpoint's offset is damaged: {name} is not offsets by topic, broker and queue: "
                            f"{offset!s:.1000}. Begin with a new checkpoint")
    return queues


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else [value]


def as_text(offsets: QueueOffsets) -> str:
    """Offsets as the options take them."""
    return json.dumps(offsets, sort_keys=True)
