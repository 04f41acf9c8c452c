"""The queues of a live cluster, asked of the name server and the brokers: which there are, and their offsets."""
import re
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.producer_parts import topic_route_data2_topic_subscribe_info
from rmqha.client.results import PullStatus
from rmqha.common import mix_all, subscriptions, sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.pipeline.at_once import at_once
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, cluster_client
from rmqha.pipeline.cluster.queue_lives import Look, Mark, Seen
from rmqha.pipeline.cluster.queue_offsets import QueueOffsets, named, set_offset
from rmqha.pipeline.options import Options, PipelineError
from rmqha.remoting.exception import RemotingException

EARLIEST, LATEST = "earliest", "latest"
TIMEOUT_MS = 6_000  # of one question
ROUTES_MS = 30_000  # a stream asks the name server again after so long
# Topics of the brokers themselves: only read when they are named.
_INNER_PREFIXES = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX, "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX",
                   "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC")

AnswerT = TypeVar("AnswerT")


class _AbsentError(PipelineError):
    """A topic that is not there."""


def _is_absent(error: Exception) -> bool:
    """Return whether a server says that a topic is not there."""
    return getattr(error, "response_code", None) == response_code.TOPIC_NOT_EXIST


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
        self._absent: dict[str, PipelineError] = {}  # topics, or the pattern, of which nothing is there
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
        return sorted(queue for topic, route in self._present().items() for queue in self._readable(topic, route))

    def _readable(self, topic: str, route: TopicRouteData) -> set[MessageQueue]:
        found = topic_route_data2_topic_subscribe_info(topic, route)
        if not found:
            raise PipelineError(f"topic {topic} has no queue that may be read")
        return found

    def refresh(self) -> None:
        """Ask the name server at the next question, whatever it has said in the last 30 s."""
        self._routes_until = 0.0

    def absent(self) -> dict[str, PipelineError]:
        """Return the topics that nobody has, or the pattern that none matches, each with the error for it."""
        self._all_routes()
        return self._absent

    def _present(self) -> dict[str, TopicRouteData]:
        """Return who has the queues of each topic. PipelineError when nobody has one that is subscribed to."""
        routes = self._all_routes()
        for error in self._absent.values():
            self.refresh()
            raise error
        return routes

    def _all_routes(self) -> dict[str, TopicRouteData]:
        """Return who has the queues of each topic that is there, as the name server said in the last 30 s."""
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
        """Of all queues, in order: one question for each topic and broker. PipelineError when a topic is not there."""
        self._present()
        return {queue: Bounds(seen.first, seen.end) for queue, seen in self._seen(is_strict=True).items()}

    def seen(self) -> dict[MessageQueue, Seen]:
        """Return the same, and who says so; topics that are not there, or that nobody may read, are left out."""
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
        except MQBrokerException as error:  # it may still tell of each queue, or it says there what is wrong
            if _is_absent(error):
                raise _AbsentError(f"topic {topic}, {broker}: {self.cluster.said(error)}") from None
        # a broker tells of the queues that may be written: there may be more that may be read
        return {queue: known.get(queue.queueId) or self._seen_alone(queue) for queue in queues}

    def _seen_alone(self, queue: MessageQueue) -> Seen:
        api, wrapped = self.consumer.api, self.consumer.queue_with_namespace(queue)
        asked, first = self._ask(queue, lambda addr: api.get_min_offset(addr, wrapped, TIMEOUT_MS))
        also, end = self._ask(queue, lambda addr: api.get_max_offset(addr, wrapped, TIMEOUT_MS))
        return Seen(max(first, 0), max(end, 0), by_master=asked == also == mix_all.MASTER_ID)

    def looks(self, wanted: Iterable[tuple[MessageQueue, int]]) -> dict[MessageQueue, Look]:
        """Return the messages at one offset of each of these queues; their messages' bodies are not looked at."""
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
        is_there = result.next_begin_offset == offset + 1  # not the next one that can be read
        return Look(Mark(offset, message.commit_log_offset, message.store_timestamp) if is_there else None, False,
                    by_master)

    def ask(self, queue: MessageQueue, question: Callable[[str], AnswerT]) -> AnswerT:
        """The answer of the queue's broker. PipelineError that has what was said, or that nobody answers."""
        return self._ask(queue, question)[1]

    def _ask(self, queue: MessageQueue, question: Callable[[str], AnswerT]) -> tuple[int, AnswerT]:
        try:
            return self._of_broker(queue.brokerName, queue.topic, question)
        except MQBrokerException as error:
            raise PipelineError(f"{named(queue)}: {self.cluster.said(error)}") from None

    def _of_broker(self, broker: str, topic: str, question: Callable[[str], AnswerT]) -> tuple[int, AnswerT]:
        """(broker id, its answer): the master's, or a slave's when the master is gone. MQBrokerException when it
        refuses. A slave does not decide that a topic is not there.
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
