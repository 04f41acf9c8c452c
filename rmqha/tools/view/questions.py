"""On-demand queries about a cluster, message lookup, and the poller that feeds the terminal and web views.

    ViewPoller --collect--> name servers, brokers
               --Picture--> latest, History <--read-- terminal, web page

- `Questions`: a broker's topics, a topic's queues, a group's clients. Each answer is kept for a moment, so that ten
  viewers of one topic cost the brokers as much as one; see `Answers`.
- `Messages`: messages by id and by key, and their state in each group. `body_view`: a body in displayable form.
"""
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException, MQClientException
from rmqha.client.trace import TraceView
from rmqha.common import java, mix_all, topics
from rmqha.common.compression import BodyBudget, MissingBody
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol import namespace_util, response_code
from rmqha.common.protocol.client_bodies import ConsumerConnection
from rmqha.common.service_thread import ServiceThread
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_track import MessageTrack, TrackType, message_track_detail
from rmqha.tools.admin.topic_tables import Settings
from rmqha.tools.command.message_print import message_fields
from rmqha.tools.manage.topics import TopicRow as TopicRow
from rmqha.tools.replication.ask import in_parallel
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view.answers import Answers
from rmqha.tools.view.group_poll import LONG
from rmqha.tools.view.snapshot import Collector, History, Picture, Snapshot, broker_rates, picture, rate
from rmqha.tools.view.topic_lists import TopicListing, TopicLists, TopicTable, TopicTables

log = logging.getLogger("RocketmqTools")

T = TypeVar("T")

TOPICS_TTL_S = 5.0
# So much longer an older table is shown, while a newer one is on its way, or its broker does not answer.
TOPICS_STALE_S = 60.0
QUEUES_TTL_S = 1.0
CLIENTS_TTL_S = 3.0
_MAX_ANSWERS = 200
_NOT_THERE = (response_code.TOPIC_NOT_EXIST, response_code.NO_MESSAGE, response_code.SUBSCRIPTION_GROUP_NOT_EXIST)


class QuestionError(Exception):
    """A question has no answer, with a text for users; `not_there`: the requested thing does not exist."""

    def __init__(self, message: str, not_there: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.not_there = not_there


class UnreadableAnswerError(QuestionError):
    """The answer of a broker or name server is malformed."""


@dataclass(frozen=True)
class QueueRow:
    """A queue: first and next offset, store time (ms) of its last message, messages per second since the last poll."""

    broker: str
    queue_id: int
    begin: int
    end: int
    last_ms: int
    per_s: float | None = None


@dataclass(frozen=True)
class TopicDetail:
    """A topic's queues, and the groups that consume it."""

    name: str
    queues: tuple[QueueRow, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class ClientRow:
    """A client of a group."""

    client_id: str
    address: str
    language: str
    version: str


@dataclass(frozen=True)
class GroupClients:
    """The clients of a group and their settings; `subscriptions` are (topic, expression). Empty without clients."""

    clients: tuple[ClientRow, ...] = ()
    consume_type: str = ""
    model: str = ""
    consume_from: str = ""
    subscriptions: tuple[tuple[str, str], ...] = ()


class Questions:
    """Questions to the brokers of a snapshot; QuestionError for what they can't answer.

    `tables_admin`: a client of its own for the tables of topics, which may have many MiB: other answers need not wait
    for them, and its connections are not closed because another answer is late. `shutdown` ends the threads.
    """

    def __init__(self, admin: DefaultMQAdminExt, tables_admin: DefaultMQAdminExt | None = None) -> None:
        self.admin = admin
        self.answers = Answers()
        self._tables = TopicTables(tables_admin or admin, LONG * admin.timeout_millis)
        self._lists = TopicLists()
        self._ends: dict[str, tuple[float, dict[MessageQueue, int]]] = {}  # by topic: monotonic, ends; see _queue_rows

    def shutdown(self) -> None:
        """End the threads."""
        self.answers.shutdown()

    def topics(self, now: Snapshot, address: str | None = None) -> Sequence[TopicRow]:
        """Return all topics of the masters that answer, or those of one broker; sorted by name."""
        return self.topic_listing(now, address).rows

    def topic_listing(self, now: Snapshot, address: str | None = None) -> TopicListing:
        """Return all topics of the masters that answer, or those of one broker."""
        brokers = [broker for broker in now.brokers
                   if not broker.error and (broker.address == address if address else broker.is_master)]
        if not address:
            self._tables.keep({broker.address for broker in now.brokers})
        missing = [broker.address for broker in brokers if not self.answers.has(("topics", broker.address))]
        if len(missing) > 1:
            told = in_parallel(self._table_or_error, missing, 2 * LONG * self.admin.timeout_millis, lambda address: (
                QuestionError(f"broker {address} did not report its topics in time")))
            for error in told.values():
                if error is not None:
                    raise error
        return self._lists.listing([(broker.name, self.topic_table(broker.address)) for broker in brokers],
                                   {broker.name for broker in now.brokers} | {broker.cluster for broker in now.brokers})

    def prepare(self, now: Snapshot) -> None:
        """Ask for the topics of all masters on another thread, so that they are there when they are wanted."""
        def ask() -> None:
            try:
                self.topic_listing(now)
            except QuestionError as error:  # the viewer who wants them will see it
                log.info("the topics are not known: %s", error.message)
        self.answers.later(ask)

    def topic_table(self, address: str) -> TopicTable:
        """Return the topics of one broker."""
        return self.answers.get(("topics", address), TOPICS_TTL_S, lambda: asked(lambda: self._tables.ask(address)),
                                TOPICS_STALE_S)

    def topics_of(self, broker: Broker) -> Mapping[str, Settings]:
        """Return the settings of all topics of a broker. CannotAnswerError, as operations on all masters expect it."""
        try:
            return self.topic_table(broker.address).topics
        except QuestionError as error:
            raise CannotAnswerError(error.message) from error

    def _table_or_error(self, address: str) -> Exception | None:
        try:
            self.topic_table(address)
        except Exception as error:  # raised by the caller's thread
            return error
        return None

    def topic(self, name: str) -> TopicDetail:
        """Return one topic's queues."""
        return self.answers.get(("topic", name), QUEUES_TTL_S, lambda: asked(lambda: self._topic(name)))

    def clients(self, now: Snapshot, group: str) -> GroupClients:
        """Return the clients of a group, from all masters that answer."""
        return self.answers.get(("clients", group), CLIENTS_TTL_S, lambda: asked(lambda: self._clients(now, group)))

    def _topic(self, name: str) -> TopicDetail:
        stats = self.admin.examine_topic_stats(name).offsetTable
        ends = {queue: place.maxOffset for queue, place in stats.items()}
        at_s, before = self._ends.get(name, (0.0, {}))
        now_s = time.monotonic()
        self._ends.pop(name, None)
        self._ends[name] = (now_s, ends)
        if len(self._ends) > _MAX_ANSWERS:
            self._ends.pop(next(iter(self._ends)), None)
        rows = [QueueRow(queue.brokerName, queue.queueId, place.minOffset, place.maxOffset, place.lastUpdateTimestamp,
                         rate(before[queue], place.maxOffset, now_s - at_s) if queue in before else None)
                for queue, place in stats.items()]
        groups = self.admin.query_topic_consume_by_who(name)
        return TopicDetail(name, tuple(sorted(rows, key=lambda row: (row.broker, row.queue_id))),
                           tuple(sorted(groups.groupList)) if groups is not None else ())

    def _clients(self, now: Snapshot, group: str) -> GroupClients:
        found: dict[str, ClientRow] = {}
        told = ConsumerConnection()
        for broker in now.brokers:
            if broker.error or not broker.is_master:
                continue
            try:
                told_now = self.admin.api.get_consumer_connection_list(
                    broker.address, group, self.admin.timeout_millis)
            except MQBrokerException as error:
                if error.response_code != response_code.CONSUMER_NOT_ONLINE:
                    raise
                continue
            told = told_now if told_now.connectionSet else told
            for each in told_now.connectionSet:
                found[each.clientId] = ClientRow(each.clientId, each.clientAddr or "", each.language or "",
                                                 java.get_version_desc(each.version))
        return GroupClients(
            tuple(found[name] for name in sorted(found)),
            told.consumeType.name if told.consumeType else "", told.messageModel.name if told.messageModel else "",
            told.consumeFromWhere.name if told.consumeFromWhere else "",
            tuple(sorted((topic, data.subString or "*") for topic, data in told.subscriptionTable.items())))


def asked(ask: Callable[[], T]) -> T:
    """Return the result of `ask`; turn the client's errors into QuestionError."""
    try:
        return ask()
    except CLIENT_ERRORS as error:
        raise question_error(error) from error
    except ValueError as error:  # FastjsonError, MessageDecodeError, UnicodeDecodeError
        log.warning("malformed answer", exc_info=True)
        raise UnreadableAnswerError(f"malformed answer: {error}") from error


def question_error(error: Exception) -> QuestionError:
    """Return an error of the client as a text for users, without the link to a help page."""
    if isinstance(error, (MQClientException, MQBrokerException)):
        text = (error.error_message or str(error)).split(namespace_util.TIP_STRING_BEGIN)[0].strip()
        where = f" ({error.broker_addr})" if isinstance(error, MQBrokerException) and error.broker_addr else ""
        return QuestionError(f"{text}{where}", error.response_code in _NOT_THERE)
    assert isinstance(error, RemotingException)
    return QuestionError(f"no answer: {error}")


MAX_MESSAGES = 64  # of one key
MAX_TEXT_BYTES, MAX_HEX_BYTES = 64 * 1024, 4 * 1024
MAX_LISTED_BYTES = 256  # of a body in a list of messages
MAX_LIST_BYTES = 64 << 20  # of all bodies of a list, decompressed
NO_MEMBER = "no member runs"
_RESERVED = message_const.STRING_HASH_SET | {message_const.PROPERTY_TRANSACTION_CHECK_TIMES,
                                             message_const.PROPERTY_INNER_MULTI_DISPATCH}
_TEXT_CONTROLS = frozenset("\t\n\r")
_ROW = 16


@dataclass(frozen=True)
class Body:
    """A body for display: `text` if it is UTF-8 without control characters, else None; `hex` dumps its beginning.

    `size` is in bytes, `is_cut`: neither shows all of it.
    """

    size: int
    text: str | None
    hex: str
    is_cut: bool


def body_view(body: bytes, max_bytes: int = MAX_TEXT_BYTES) -> Body:
    """Return a body for display, with at most `max_bytes` of text, and of the dump."""
    part = body[:max_bytes]
    text = text_of(part, len(part) < len(body))
    dumped = body[:min(max_bytes, MAX_HEX_BYTES)]
    return Body(len(body), text, hex_dump(dumped), len(part if text is not None else dumped) < len(body))


def text_of(part: bytes, is_cut: bool) -> str | None:
    """Return bytes as text; None if they are not UTF-8 without control characters. `is_cut`: the body has more."""
    for lost in range(4 if is_cut else 1):  # a character may be cut in two
        try:
            text = part[:len(part) - lost].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return text if all(char.isprintable() or char in _TEXT_CONTROLS for char in text) else None
    return None


def hex_dump(data: bytes) -> str:
    """Return lines of offset, 16 bytes, and their ASCII characters."""
    return "\n".join(f"{at:08x}  {data[at:at + _ROW].hex(' '):<47}  {_ascii(data[at:at + _ROW])}"
                     for at in range(0, len(data), _ROW))


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


class Messages:
    """Finds messages; QuestionError when a question has no answer."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._admin = questions.admin

    def by_id(self, now: Snapshot, topic: str | None, msg_id: str) -> list[MessageExt]:
        """Return the message with an offset id, or with a producer's unique id and its topic; else an empty list.

        An offset id contains an address: only brokers of this cluster are asked, whatever address that is.
        """
        known = now.by_address
        try:
            host, port = message_decoder.decode_message_id(msg_id).address
        except ValueError:
            host, port = "", 0
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if address in known:
            return self._found(lambda: [self._admin.mq_admin.view_message(msg_id)])
        if not topic:
            raise QuestionError("this id is not an offset id of a broker of this cluster; to find a producer's id, "
                                "give its topic too")
        return self._found(lambda: self._admin.mq_admin.query_message_by_uniq_key(
            topic, msg_id, begin=_begin_of(msg_id)).message_list)

    def by_key(self, topic: str, key: str) -> list[MessageExt]:
        """Return the messages with a key, newest first."""
        messages = self._found(lambda: self._admin.mq_admin.query_message(
            topic, key, MAX_MESSAGES, 0, _now_ms(), _budget()).message_list)
        return sorted(messages, key=lambda msg: -msg.store_timestamp)[:MAX_MESSAGES]

    def trace(self, msg_id: str, trace_topic: str = topics.RMQ_SYS_TRACE_TOPIC
              ) -> tuple[list[TraceView], list[str]]:
        """Return the trace events of a message from producers and consumers, by time, and errors of unreadable ones.

        Empty when none of them traces.
        """
        found = self._found(lambda: self._admin.mq_admin.query_message(
            trace_topic, msg_id, MAX_MESSAGES, 0, _now_ms(), _budget()).message_list)
        views: list[TraceView] = []
        errors = []
        for msg in found:
            try:
                if isinstance(msg.body, MissingBody):
                    raise ValueError(msg.body.reason)
                views += TraceView.decode_from_trace_trans_data(msg_id, msg)
            except ValueError as error:
                errors.append(f"{trace_topic} holds something that is not a trace, in message {msg.msg_id}: {error}")
        return sorted(views, key=lambda view: view.time_stamp), errors

    def tracks(self, msg: MessageExt) -> list[dict[str, str | None]]:
        """Return the state of a message in each group that consumes its topic, by the groups' offsets."""
        return [{"group": track.consumerGroup, **_state_and_why(track)}
                for track in asked(lambda: message_track_detail(self._admin, msg))]

    def _found(self, ask: Callable[[], Iterable[MessageExt]]) -> list[MessageExt]:
        """Return messages, or an empty list when the brokers have none."""
        def ask_or_nothing() -> list[MessageExt]:
            try:
                return list(ask())
            except MQClientException as error:
                if error.response_code in (response_code.NO_MESSAGE, response_code.TOPIC_NOT_EXIST):
                    return []
                raise
        return asked(ask_or_nothing)


def _state_and_why(track: MessageTrack) -> dict[str, str | None]:
    why = track.exceptionDesc
    # The first member of a group creates its retry topic, by whose route the members are found.
    no_route = f"CODE: {response_code.TOPIC_NOT_EXIST} "
    never_ran = why is not None and no_route in why and mix_all.get_retry_topic(track.consumerGroup) in why
    if never_ran or track.trackType is TrackType.NOT_ONLINE:
        return {"state": TrackType.NOT_ONLINE.name, "why": NO_MEMBER}
    return {"state": track.trackType.name, "why": why}


def message_json(msg: MessageExt, max_body_bytes: int = MAX_TEXT_BYTES) -> dict[str, Any]:
    """Return all fields of a message, named as in mqadmin, and its body as text or dump.

    `userProperties`: the properties without those that have a meaning for RocketMQ.
    """
    error = msg.body.reason if isinstance(msg.body, MissingBody) else ""
    body = body_view(bytes(msg.body), max_body_bytes)
    own = {name: value for name, value in msg.properties.items() if name not in _RESERVED}
    return {**message_fields(msg), "userProperties": own, "body": {
        "size": body.size, "text": None if error else body.text, "hex": body.hex, "cut": body.is_cut, "error": error}}


def trace_json(view: TraceView) -> dict[str, Any]:
    """Return one trace event; times are in ms."""
    return {"type": view.msg_type, "group": view.group_name, "client": view.client_host, "at_ms": view.time_stamp,
            "cost_ms": view.cost_time, "status": view.status, "store_host": view.store_host}


def _begin_of(msg_id: str) -> int | None:
    """Return 0, for all times, if the id contains no time, as ids of other languages' clients may."""
    try:
        message_client_id_setter.get_nearly_time_from_id(msg_id)
    except ValueError:
        return 0
    return None


def _budget() -> BodyBudget:
    """Return the memory limit of a list: several users may ask at once, and a list only shows the start of bodies."""
    return BodyBudget(MAX_LIST_BYTES, MAX_LIST_BYTES // 4)


def _now_ms() -> int:
    return round(time.time() * 1000)


MIN_INTERVAL_S = 1.0


class ViewPoller(ServiceThread):
    """Polls the cluster every `interval_s`, at least 1 s, so that short refresh intervals do not load the brokers."""

    def __init__(self, collector: Collector, history: History, interval_s: float,
                 on_picture: Callable[[Picture], None] = lambda _picture: None) -> None:
        super().__init__()
        self.daemon = True
        self.join_time_ms = 2_000
        self._on_picture = on_picture  # called for each picture, on the service's thread
        self.history = history
        self.interval_s = max(MIN_INTERVAL_S, interval_s)
        self.paused = False  # written under _changed
        self.latest: Picture | None = None  # written by the service
        # Why there is nothing newer than `latest`; "" without an error.
        self.error = ""
        self._collector = collector
        self._before: Snapshot | None = None
        self._groups_before: Snapshot | None = None
        self._changed = threading.Condition()  # notified after each round

    def run(self) -> None:
        while not self.stopped:
            begin = time.monotonic()
            if not self.paused:
                self._round()
            self.wait_for_running(max(50.0, (self.interval_s - (time.monotonic() - begin)) * 1000))

    def _round(self) -> None:
        try:
            self._publish(self._collector.collect())
            self.error = ""
        except CannotAnswerError as error:  # no name server has answered so far
            if self.error != error.message:
                log.warning("no picture of the cluster yet: %s", error.message)
            self.error = error.message
        # Brokers may send anything: the next round asks again.
        except Exception as error:
            log.exception("the cluster can't be shown")
            self.error = f"the cluster can't be shown: {type(error).__name__}: {error}"
        with self._changed:
            self._changed.notify_all()

    def _publish(self, now: Snapshot) -> None:
        before, latest = self._before, self.latest
        if before is not None and before.groups_at_s != now.groups_at_s:
            self._groups_before = before
        if latest is not None and before is not None and before.groups_at_s == now.groups_at_s:
            made = Picture(now, broker_rates(before, now), latest.groups)
        else:
            made = picture(now, before, self._groups_before)
        with self._changed:
            if self.paused and self.latest is not None:
                return  # paused while this picture was being made
            self.history.add(made)
            self._before, self.latest = now, made
        self._on_picture(made)

    def pause(self, paused: bool) -> None:
        """Pause on the latest picture, or continue. While paused no new picture appears."""
        with self._changed:
            self.paused = paused
        if not paused:
            self.wakeup()

    def wait_for_picture(self, timeout_s: float) -> Picture | None:
        """Return the latest picture; wait for the first one, or the first error."""
        return self.wait_until(lambda: self.latest is not None or bool(self.error), timeout_s)

    def wait_until(self, come: Callable[[], bool], timeout_s: float) -> Picture | None:
        """Return the latest picture once `come()`, checked after each round, is true, or after the time-out."""
        with self._changed:
            self._changed.wait_for(come, timeout_s)
        return self.latest
