"""The queues of a live cluster: their offsets, whether they are still the same queues, and pulling from them.

- `QueueOffsets`: offsets as nested dicts, as in JSON: topic -> broker -> queue id -> offset.
- `Position`, `judge`: whether a queue is still the one that a stream has read. Pure functions: they send no
  requests.
- `ClusterQueues`: asks the name server and the brokers for the queues and their offsets.
- `QueuePuller`: pulls in tasks, from the master, or from the broker that it redirects to, or from a slave while the
  master is gone.

Identity of a queue. A queue has no id of its own: if a topic is deleted and created again, or a broker comes back with
another store, the same queue has other messages at the same offsets. A stream that trusts offsets alone would skip the
new messages below its offset, without any error. So a stream stores for each queue the log position and the store time
of the message before its offset (`Mark`). Every broker returns both, they are equal on all replicas, and no two
messages share them. If that message could not be read any more, the stream stores the queue's first offset instead: it
never decreases during one life of the queue, so a lower one means another life.
"""
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar, cast, overload

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.client_routes import topic_route_data2_topic_subscribe_info
from rmqha.client.results import PullResult, PullStatus
from rmqha.common import mix_all, subscriptions, sys_flags, util_all
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageQueue
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, ClusterClient, cluster_client
from rmqha.pipeline.format_options import Options, PipelineError, is_long, queue_id_of
from rmqha.pipeline.streams import at_once
from rmqha.remoting.exception import RemotingException

QueueOffsets = dict[str, dict[str, dict[str, int]]]


def named(queue: MessageQueue) -> str:
    """Return the name of a queue for an error."""
    return f"topic {queue.topic}, queue {queue.queueId} of {queue.brokerName}"


def walk(offsets: QueueOffsets) -> Iterator[tuple[MessageQueue, int]]:
    """Yield (queue, offset) of all queues, in order."""
    for topic in sorted(offsets):
        for broker in sorted(offsets[topic]):
            for queue_id, offset in sorted(offsets[topic][broker].items(), key=lambda item: int(item[0])):
                yield MessageQueue(topic, broker, int(queue_id)), offset


def set_offset(offsets: QueueOffsets, queue: MessageQueue, offset: int) -> None:
    """Set the offset of a queue."""
    offsets.setdefault(queue.topic, {}).setdefault(queue.brokerName, {})[str(queue.queueId)] = offset


@overload
def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: int) -> int: ...


@overload
def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: None = None) -> int | None: ...


def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: int | None = None) -> int | None:
    """Return the offset of a queue."""
    return offsets.get(queue.topic, {}).get(queue.brokerName, {}).get(str(queue.queueId), default)


def of_checkpoint(offset: object, name: str = "queues") -> QueueOffsets:
    """Return the queues in an offset kept by Spark. PipelineError if it does not have this format."""
    queues = offset.get(name) if isinstance(offset, dict) else None
    if not _is_by_queue(queues, lambda number: is_long(number, -1)):
        raise _damaged(offset, f"{name} is not offsets")
    return cast(QueueOffsets, queues)


def numbers_of_checkpoint(offset: object, name: str, most: int) -> dict[MessageQueue, list[int]]:
    """Return 1 to `most` numbers by queue from an offset kept by Spark; none if it has no such field. PipelineError."""
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
                         "Start with a new checkpoint")


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else [value]


def as_text(offsets: QueueOffsets) -> str:
    """Return offsets in the syntax of the options."""
    return json.dumps(offsets, sort_keys=True)


VERSION = 1
OTHER_LIFE = "the topic was deleted and created again, or its broker came back with another store"


class Mark(NamedTuple):
    """A message as its queue's broker returns it: its queue offset, its position in the log and its store time (ms)."""

    offset: int
    physical: int
    stored: int


class Position(NamedTuple):
    """The position of a stream in a queue, with its evidence of the queue's life: the message before, or else the
    queue's first offset. Neither exists in checkpoints of earlier releases, or at offset 0.
    """

    offset: int
    mark: Mark | None = None
    began: int | None = None

    @property
    def has_evidence(self) -> bool:
        """Return whether another life of the queue would be noticed."""
        return self.mark is not None or self.began is not None or not self.offset


class Seen(NamedTuple):
    """A queue at a broker: its first offset, the next one, when its last message was stored (ms; 0 or less: unknown),
    and whether the master answered.
    """

    first: int
    end: int
    stored: int = 0
    by_master: bool = True


class Look(NamedTuple):
    """The answer for one offset of a queue: the message; or `is_gone`, if the queue does not exist or ends earlier; or
    neither, if only the message can't be read. Also whether the master answered.
    """

    mark: Mark | None
    is_gone: bool = False
    by_master: bool = True

    def is_another(self, mark: Mark) -> bool:
        """Return whether this is certainly not the message of `mark`."""
        return self.is_gone or (self.mark is not None and self.mark != mark)


class What(Enum):
    """The kinds of things that can happen to a queue."""

    VANISHED = auto()
    # It ends before the position of the stream.
    SHORTER = auto()
    # Another life, which ends at or after the position of the stream.
    OTHER = auto()
    # Messages that were not read yet were deleted.
    MOVED = auto()
    # A slave that answers for its master has fewer or other messages: no verdict until the master answers.
    UNSURE = auto()


class Finding(NamedTuple):
    """A queue to which something happened, the stream's position in it, and its present state."""

    queue: MessageQueue
    what: What
    position: Position
    seen: Seen | None

    @property
    def reason(self) -> str:
        """The queue, the offsets, and what happened, without a full stop."""
        at, seen, queue = self.position.offset, self.seen, named(self.queue)
        if seen is None:
            return (f"{queue} no longer exists, the stream has read up to offset {at}: the topic was deleted or has "
                    "fewer queues now, or the name server no longer knows the broker")
        if self.what is What.MOVED:
            return (f"{queue}: offsets {at} to {seen.first} are gone, the queue begins at {seen.first}. They may have "
                    "been deleted")
        if self.what is What.UNSURE:
            return (f"{queue}: the master does not answer, and a slave does not have all that the stream has read up "
                    f"to offset {at}, it ends at {seen.end}")
        if self.what is What.SHORTER:
            return f"{queue} ends at offset {seen.end}, the stream has read up to {at}: {OTHER_LIFE}"
        mark = self.position.mark
        if mark is None:
            return (f"{queue} begins at offset {seen.first}, it began at {self.position.began} when the stream was at "
                    f"{at}: {OTHER_LIFE}")
        return (f"{queue} has another message at offset {mark.offset} than the one stored at "
                f"{util_all.utc_text(mark.stored)} (position {mark.physical} of the log) that was there when the "
                f"stream was at {at}: {OTHER_LIFE}")

    @property
    def remedy(self) -> str:
        """The way a query continues with failOnDataLoss=false."""
        if self.seen is None:
            return ("continues without the queue. Once it is back it is read from there on, or from its beginning if "
                    "it was created again")
        if self.what is What.MOVED:
            return f"continues without them, at offset {self.seen.first}"
        if self.what is What.UNSURE:
            return "reads nothing from the queue until the master is back"
        return f"reads the queue from its beginning, offset {self.seen.first}"

    @property
    def key(self) -> tuple[What, Position]:
        """A key that stays the same during the same occurrence."""
        return self.what, self.position


def data_loss(findings: list[Finding]) -> PipelineError:
    """Return the error for the first finding."""
    first = findings[0]
    more = f" (The same applies to {len(findings) - 1} more.)" if len(findings) > 1 else ""
    return PipelineError(f"{first.reason}.{more} With failOnDataLoss=false the query {first.remedy}. A query with a "
                         "new checkpointLocation begins where startingOffsets says.")


def judge(queue: MessageQueue, position: Position, seen: Seen | None, is_other: bool) -> tuple[int, Finding | None]:
    """Return (the offset at which a stream continues in a queue, what happened to the queue). `is_other`: it turned out
    to have other messages.
    """
    at = position.offset
    if seen is None:
        return at, Finding(queue, What.VANISHED, position, seen)
    began_later = position.began is not None and seen.first < position.began
    if seen.end < at or ((is_other or began_later) and at):
        if not seen.by_master:
            return at, Finding(queue, What.UNSURE, position, seen)
        return seen.first, Finding(queue, What.SHORTER if seen.end < at else What.OTHER, position, seen)
    if seen.first > at:
        return seen.first, Finding(queue, What.MOVED, position, seen)
    return at, None


def needs_look(position: Position, seen: Seen, takes: bool) -> bool:
    """Return whether the message before a position must be checked: if messages after it are taken, or if the broker
    reports another store time for the queue's last message.
    """
    mark = position.mark
    if mark is None or not seen.first < position.offset <= seen.end:
        # It can't be checked, or is judged already.
        return False
    return takes or (seen.end == position.offset and seen.stored != mark.stored)


# -- in the checkpoint --

def encode(positions: Mapping[MessageQueue, Position], begin: QueueOffsets | None = None) -> dict[str, Any]:
    """Return a stream's offset as Spark keeps it: {"version": 1, "queues": topic -> broker -> queue id -> offset,
    "last": the same, with [position in the log, store time] of the message before or [first offset], "begin": offsets}.

    `begin` is where the batch that ends there begins.
    """
    queues: QueueOffsets = {}
    last: dict[str, dict[str, dict[str, list[int]]]] = {}
    for queue, each in sorted(positions.items()):
        set_offset(queues, queue, each.offset)
        if each.mark is not None:
            known = [each.mark.physical, each.mark.stored]
        elif each.began is not None:
            known = [each.began]
        else:
            continue
        last.setdefault(queue.topic, {}).setdefault(queue.brokerName, {})[str(queue.queueId)] = known
    return {"version": VERSION, "queues": queues, **({"last": last} if last else {}),
            **({} if begin is None else {"begin": begin})}


def decode(offset: Mapping[str, Any]) -> dict[MessageQueue, Position]:
    """Return the positions of a stream's offset, also of earlier releases. PipelineError if it is damaged."""
    last = numbers_of_checkpoint(offset, "last", 2)
    found = {}
    for queue, at in walk(of_checkpoint(offset)):
        known = last.get(queue)
        if known is None:
            found[queue] = Position(at)
        elif len(known) == 1:
            found[queue] = Position(at, None, known[0])
        else:
            found[queue] = Position(at, Mark(at - 1, *known))
    return found


EARLIEST, LATEST = "earliest", "latest"
# Of one request.
TIMEOUT_MS = 6_000
# How long a stream uses the name server's answer.
ROUTES_MS = 30_000
# Topics of the brokers themselves: only read if they are named.
_INNER_PREFIXES = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX, "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX",
                   "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC")

AnswerT = TypeVar("AnswerT")


class _AbsentError(PipelineError):
    """A topic that does not exist."""


def _is_absent(error: Exception) -> bool:
    """Return whether a server reports that a topic does not exist."""
    return getattr(error, "response_code", None) == response_code.TOPIC_NOT_EXIST


class Bounds(NamedTuple):
    """The first offset that a queue still has, and the offset of its next message."""

    first: int
    end: int


class ClusterQueues:
    """The queues that the options subscribe to. Use it as a context manager, or close it. For one thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.cluster = cluster_client(options)
        self.topics, self.pattern = subscription(options)
        self.consumer = self.cluster.consumer()
        self._running = False
        # By topic, as the user names it.
        self._routes: dict[str, TopicRouteData] = {}
        # Topics that do not exist, or the pattern that matches none.
        self._absent: dict[str, PipelineError] = {}
        # Monotonic.
        self._routes_until = 0.0

    def __enter__(self) -> "ClusterQueues":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(self) -> None:
        """Connect. Idempotent. PipelineError if the settings do not permit it."""
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
        """Return all queues, in order. PipelineError if the name server or a topic can't be found."""
        return sorted(queue for topic, route in self._present().items() for queue in self._readable(topic, route))

    def _readable(self, topic: str, route: TopicRouteData) -> set[MessageQueue]:
        found = topic_route_data2_topic_subscribe_info(topic, route)
        if not found:
            raise PipelineError(f"topic {topic} has no queue that may be read")
        return found

    def refresh(self) -> None:
        """Discard the cached routes: the next request asks the name server."""
        self._routes_until = 0.0

    def absent(self) -> dict[str, PipelineError]:
        """Return the topics that no broker has, or the pattern that matches none, each with the error for it."""
        self._all_routes()
        return self._absent

    def _present(self) -> dict[str, TopicRouteData]:
        """Return the routes of all topics. PipelineError if no broker has a subscribed one."""
        routes = self._all_routes()
        for error in self._absent.values():
            self.refresh()
            raise error
        return routes

    def _all_routes(self) -> dict[str, TopicRouteData]:
        """Return the routes of the topics that exist; the name server's answer is at most 30 s old."""
        self.start()
        if time.monotonic() >= self._routes_until:
            absent: dict[str, PipelineError] = {}
            names = self.topics or self._matching(self.pattern or "")
            if not names:
                absent[self.pattern or ""] = PipelineError(f"{self.options.where}, option subscribePattern: no topic "
                                                           f"matches {self.pattern!r}")
            routes = {}
            for name in names:
                try:
                    routes[name] = self._route(name)
                except _AbsentError as error:
                    absent[name] = PipelineError(str(error))
            self._routes, self._absent = routes, absent
            self._routes_until = time.monotonic() + ROUTES_MS / 1000
        return self._routes

    def _route(self, topic: str) -> TopicRouteData:
        return self._of_name_server(lambda: self.consumer.api.get_topic_route_info_from_name_server(
            self.consumer.with_namespace(topic), TIMEOUT_MS))

    def _of_name_server(self, ask: Callable[[], AnswerT]) -> AnswerT:
        try:
            return ask()
        except UNREACHABLE as error:
            kind = _AbsentError if _is_absent(error) else PipelineError
            raise kind(f"name server {self.cluster.name_server}: {self.cluster.said(error)}") from None

    def _matching(self, pattern: str) -> list[str]:
        listed = self._of_name_server(
            lambda: self.consumer.api.get_topic_list_from_name_server(TIMEOUT_MS).topicList)
        names = [name for name in listed if not name.startswith(_INNER_PREFIXES)]
        if namespace := self.consumer.get_namespace():
            names = [namespace_util.without_namespace(name, namespace) for name in names
                     if namespace_util.without_namespace(name, namespace) != name]
        return sorted(name for name in names if re.fullmatch(pattern, name))

    # -- their offsets --

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """Return the bounds of all queues, in order, with one request per topic and broker. PipelineError for a
        missing topic.
        """
        self._present()
        return {queue: Bounds(seen.first, seen.end) for queue, seen in self._seen(is_strict=True).items()}

    def seen(self) -> dict[MessageQueue, Seen]:
        """Return the same with the answering role; topics that do not exist or may not be read are left out."""
        return self._seen(is_strict=False)

    def _seen(self, is_strict: bool) -> dict[MessageQueue, Seen]:
        found: dict[MessageQueue, Seen] = {}
        for topic, route in self._all_routes().items():
            own = topic_route_data2_topic_subscribe_info(topic, route)
            if is_strict:
                self._readable(topic, route)
            for data in route.brokerDatas:
                mine = [queue for queue in own if queue.brokerName == data.brokerName]
                try:
                    if mine:
                        found.update(self._seen_at(data.brokerName, topic, mine))
                except _AbsentError as error:
                    if is_strict:
                        raise PipelineError(str(error)) from None
        return dict(sorted(found.items()))

    def _seen_at(self, broker: str, topic: str, queues: list[MessageQueue]) -> dict[MessageQueue, Seen]:
        api, wrapped = self.consumer.api, self.consumer.with_namespace(topic)
        known: dict[int, Seen] = {}
        try:
            asked, table = self._of_broker(broker, topic,
                                           lambda addr: api.get_topic_stats_info(addr, wrapped, TIMEOUT_MS))
            known = {queue.queueId: Seen(each.minOffset, each.maxOffset, each.lastUpdateTimestamp,
                                         asked == mix_all.MASTER_ID) for queue, each in table.offsetTable.items()}
        # It may still answer for each queue, or say there what is wrong.
        except MQBrokerException as error:
            if _is_absent(error):
                raise _AbsentError(f"topic {topic}, {broker}: {self.cluster.said(error)}") from None
        # A broker reports the writable queues; there may be further readable ones.
        return {queue: known.get(queue.queueId) or self._seen_alone(queue) for queue in queues}

    def _seen_alone(self, queue: MessageQueue) -> Seen:
        api, wrapped = self.consumer.api, self.consumer.queue_with_namespace(queue)
        asked, first = self._ask(queue, lambda addr: api.get_min_offset(addr, wrapped, TIMEOUT_MS))
        also, end = self._ask(queue, lambda addr: api.get_max_offset(addr, wrapped, TIMEOUT_MS))
        return Seen(max(first, 0), max(end, 0), by_master=asked == also == mix_all.MASTER_ID)

    def looks(self, wanted: Iterable[tuple[MessageQueue, int]]) -> dict[MessageQueue, Look]:
        """Return the message at one offset of each of these queues, without its body."""
        return dict(at_once(lambda each: (each[0], self._look(*each)), wanted))

    def _look(self, queue: MessageQueue, offset: int) -> Look:
        header = PullMessageRequestHeader(
            consumerGroup=self.consumer.with_namespace(self.cluster.group),
            topic=self.consumer.with_namespace(queue.topic), queueId=queue.queueId, queueOffset=offset, maxMsgNums=1,
            sysFlag=sys_flags.build_pull_sys_flag(False, False, True, False), commitOffset=0, suspendTimeoutMillis=0,
            subscription="*", subVersion=0, expressionType=subscriptions.TAG, bname=queue.brokerName)
        try:
            asked, result = self._of_broker(queue.brokerName, queue.topic,
                                            lambda addr: self.consumer.api.pull_message(addr, header, TIMEOUT_MS))
        except MQBrokerException as error:
            if _is_absent(error):
                return Look(None, is_gone=True)
            raise PipelineError(f"{named(queue)} at offset {offset}: {self.cluster.said(error)}") from None
        by_master = asked == mix_all.MASTER_ID
        if result.pull_status is not PullStatus.FOUND or not result.message_binary:
            return Look(None, result.max_offset <= offset, by_master)
        message = message_decoder.decode(result.message_binary, read_body=False)
        # Otherwise it is the next one that can be read.
        is_there = result.next_begin_offset == offset + 1
        return Look(Mark(offset, message.commit_log_offset, message.store_timestamp) if is_there else None, False,
                    by_master)

    def ask(self, queue: MessageQueue, question: Callable[[str], AnswerT]) -> AnswerT:
        """Return the answer of the queue's broker. PipelineError with the broker's error, or if no broker answers."""
        return self._ask(queue, question)[1]

    def _ask(self, queue: MessageQueue, question: Callable[[str], AnswerT]) -> tuple[int, AnswerT]:
        try:
            return self._of_broker(queue.brokerName, queue.topic, question)
        except MQBrokerException as error:
            raise PipelineError(f"{named(queue)}: {self.cluster.said(error)}") from None

    def _of_broker(self, broker: str, topic: str, question: Callable[[str], AnswerT]) -> tuple[int, AnswerT]:
        """Return (broker id, its answer): the master's, or a slave's if the master is gone. MQBrokerException if it
        refuses. A slave does not decide that a topic does not exist.
        """
        route = self._routes.get(topic)
        addresses = next((data.brokerAddrs for data in (route.brokerDatas if route is not None else ())
                          if data.brokerName == broker), {})
        failed: Exception = MQClientException("it is not known to the name server")
        for broker_id, address in sorted(addresses.items()):
            try:
                return broker_id, question(address)
            except (MQClientException, RemotingException) as error:
                failed = error
            except MQBrokerException as error:
                if broker_id == mix_all.MASTER_ID or not _is_absent(error):
                    raise
                failed = error if len(addresses) == 1 else failed
        self.refresh()
        raise PipelineError(f"topic {topic}, {broker}: {self.cluster.said(failed)}") from None

    def offsets(self, which: str) -> QueueOffsets:
        """Return the first (`earliest`) or the next (`latest`) offset of each queue."""
        found: QueueOffsets = {}
        for queue, bounds in self.bounds().items():
            set_offset(found, queue, bounds.first if which == EARLIEST else bounds.end)
        return found

    def first_at(self, queue: MessageQueue, timestamp: int, bounds: Bounds) -> int | None:
        """Return the offset of the first message stored at a time (ms) or later, or None.

        Brokers of 4.9 return a nearby one: any of several stored in this millisecond, or perhaps the last one before
        it.
        """
        api, wrapped = self.consumer.api, self.consumer.queue_with_namespace(queue)
        near = self.ask(queue, lambda addr: api.search_offset(addr, wrapped, timestamp, TIMEOUT_MS))
        found = first_true(lambda offset: self._stored_at(queue, offset) >= timestamp, bounds.first, bounds.end, near)
        return None if found >= bounds.end else found

    def _stored_at(self, queue: MessageQueue, offset: int) -> int:
        """Return the store time (ms) of the message at an offset, or of the next one; 0 if neither exists any more."""
        try:
            found = self.consumer.pull(queue, "*", offset, 1, TIMEOUT_MS).msg_found_list
        except UNREACHABLE as error:
            raise PipelineError(f"{named(queue)} at offset {offset}: {self.cluster.said(error)}") from None
        return found[0].store_timestamp if found else 0


def subscription(options: Options) -> tuple[list[str], str | None]:
    """Return (topics, pattern), of which one is given. PipelineError otherwise, and for an invalid pattern."""
    topics = options.words("subscribe", options.same("subscribe", "topic") or "")
    pattern = options.text("subscribePattern")
    if bool(topics) == (pattern is not None):
        raise PipelineError(f"{options.where} needs either subscribe or subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise options.wrong("subscribePattern", f"a pattern ({error})") from None
    return topics, pattern


def first_true(holds: Callable[[int], bool], begin: int, end: int, near: int) -> int:
    """Return the first number of [begin, end) for which `holds`, which must hold for all later numbers too; `end` if
    it holds for none. `near`: a guess; the nearer it is, the fewer calls are needed.
    """
    # Below `low` it does not hold; at `high` it does, unless that is the end.
    low, high, step = begin, end, 1
    at = min(max(near, begin), end - 1)
    # Search from `near` in growing steps.
    while low < high and begin <= at < end:
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


class QueuePuller:
    """Pulls from any queue with one running consumer."""

    def __init__(self, cluster: ClusterClient, consumer: DefaultMQPullConsumer, expression: str, batch_size: int,
                 timeout_ms: int) -> None:
        self._cluster, self._consumer = cluster, consumer
        self._expression, self._batch_size, self._timeout_ms = expression, batch_size, timeout_ms
        # Broker name -> id of the slave that answers in place of its master.
        self._stand_in: dict[str, int] = {}

    def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """Return the messages from `offset` on. PipelineError if no broker has them or answers, and if a broker
        refuses.

        A slave that is behind does not know what is gone, so the master is asked then.
        """
        asked, result = self._ask(queue, offset)
        if asked != MASTER_ID and result.max_offset <= offset:
            self._stand_in.pop(queue.brokerName, None)
            self._choose(queue, MASTER_ID)
            asked, result = self._ask(queue, offset)
            if asked != MASTER_ID and result.max_offset <= offset:
                raise PipelineError(f"{named(queue)} at offset {offset}: the master does not answer, and slave {asked} "
                                    f"only has messages up to {result.max_offset}")
        return result

    def _ask(self, queue: MessageQueue, offset: int) -> tuple[int, PullResult]:
        """Return (id of the broker that answered, its answer)."""
        failed: Exception | None = None
        for broker_id in self._ids(queue):
            self._choose(queue, broker_id)
            try:
                result = self._consumer.pull(queue, self._expression, offset, self._batch_size, self._timeout_ms)
            except (MQClientException, RemotingException) as error:
                failed = failed or error
                continue
            except UNREACHABLE as error:
                failed = error
                break
            if failed is not None:
                self._stand_in[queue.brokerName] = broker_id
            return broker_id, result
        assert failed is not None
        raise PipelineError(f"{named(queue)} at offset {offset}: {self._cluster.said(failed)}") from None

    def _ids(self, queue: MessageQueue) -> Iterator[int]:
        """Yield the ids of the brokers that may have a queue, in the order in which they are asked."""
        impl = self._consumer.default_mq_pull_consumer_impl
        wrapped = self._consumer.queue_with_namespace(queue)
        first = self._stand_in.get(queue.brokerName, impl.pull_api_wrapper.recalculate_pull_from_which_node(wrapped))
        yield first
        yield from sorted(set(impl.mq_client_factory.routes.broker_addr_table.get(queue.brokerName, ())) - {first})

    def _choose(self, queue: MessageQueue, broker_id: int) -> None:
        impl = self._consumer.default_mq_pull_consumer_impl
        impl.pull_api_wrapper.update_pull_from_which_node(self._consumer.queue_with_namespace(queue), broker_id)
