"""Operations on dead letters, the messages that a group failed on too often: list, read, send again.

    consumer --fails 16 times--> %DLQ%group --read here--> DeadLetter --resend--> %RETRY%group: only this group
                                                                              --> a topic: all its groups

- `list_dead_letters`: how many each group has, from when to when, over all masters.
- `Reading`: the dead letters of one group, of all brokers by store time, with bounded memory.
- `Resender`: sends them again, one by one, and reports each outcome. Body, keys, tag and properties stay.
- `Marks`: how far they were sent again, kept by the brokers as the offsets of a group of the system.

A dead letter stays in its topic after it was sent again, until its broker deletes it with the log.
"""
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqha.client.results import PullStatus, SendStatus
from rmqha.common import subscriptions, sys_flags, topics
from rmqha.common.compression import MOST_IN_ALL, BodyBudget, CompressionError, MissingBody
from rmqha.common.message import message_const as names
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.mix_all import (
    CID_RMQ_SYS_PREFIX,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    TOOLS_CONSUMER_GROUP,
    get_dlq_topic,
    get_retry_topic,
)
from rmqha.common.program import interrupted_later
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import QueryConsumerOffsetRequestHeader
from rmqha.common.protocol.client_headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, NoAnswerError, RefusedError
from rmqha.tools.admin.topic_tables import Settings
from rmqha.tools.manage.masters import Outcomes
from rmqha.tools.manage.topics import (
    ALL_MS,
    Alteration,
    QueueBounds,
    TopicSettings,
    alter_topic,
    check_name,
    configs_on,
    matcher,
    on_all,
    own_names,
    queues_on,
    settings_on,
    unknown_topic,
)
from rmqha.tools.messages.export_file import NOT_CARRIED
from rmqha.tools.messages.produce import PRODUCER_GROUP, system_properties, user_properties
from rmqha.tools.replication.ask import in_parallel
from rmqha.tools.terminal import CannotAnswerError, iso_time
from rmqha.tools.view.questions import body_view

RESENT_FROM = "RESENT_DEAD_LETTER_ID"
"""The property of a message that was sent again: the id of its dead letter, which is the broker's address and the
offset in its log."""
MARK_GROUP = CID_RMQ_SYS_PREFIX + "RMQHA_RESEND"
_PULLED_AT_ONCE = 32
# What belongs to the earlier deliveries: the next one begins as if the message had just been sent.
_NOT_KEPT = NOT_CARRIED | {names.PROPERTY_REAL_TOPIC, names.PROPERTY_REAL_QUEUE_ID, names.PROPERTY_RECONSUME_TIME,
                           names.PROPERTY_MAX_RECONSUME_TIMES}
_BODY_FLAGS = sys_flags.COMPRESSED_FLAG | sys_flags.COMPRESSION_TYPE_COMPARATOR
_MOST_QUEUES = 1024  # of one broker, that a resend uses
_STORED_AFTER = 100  # messages, after which the marks are kept
_SHOWN_BODIES = (64 << 20, 16 << 20)  # bytes of all bodies of a list, and of one, decompressed


def group_of(name: str) -> str:
    """Return the group of a dead letter topic, or the group itself."""
    return name.removeprefix(DLQ_GROUP_TOPIC_PREFIX)


# ---- counting


@dataclass(frozen=True)
class DeadQueue:
    """A queue of dead letters. `mark`: the first offset that was not sent again, see `Marks`."""

    broker: Broker
    bounds: QueueBounds
    mark: int

    @property
    def new(self) -> int:
        """The number of dead letters from the mark on."""
        return max(0, self.bounds.end - max(self.mark, self.bounds.begin))


@dataclass(frozen=True)
class DeadLetterCount:
    """The dead letters of a group; `new`: not sent again yet, by the marks. Times in ms, None without dead letters."""

    group: str
    brokers: tuple[str, ...]
    count: int
    new: int
    oldest_ms: int | None
    newest_ms: int | None
    perm: str

    @property
    def is_readable(self) -> bool:
        """False if a broker refuses to deliver them; see `make_readable`."""
        return "-W" not in self.perm and "--" not in self.perm


@dataclass(frozen=True)
class _OnBroker:
    config: TopicConfig
    queues: list[DeadQueue]
    oldest_ms: int | None


def list_dead_letters(admin: ClusterAdmin, brokers: list[Broker], pattern: str | None = None,
                      topics_of: Callable[[Broker], Mapping[str, Settings]] | None = None
                      ) -> tuple[list[DeadLetterCount], Outcomes[Any]]:
    """Return the groups that have a dead letter topic and match a glob, sorted; counted on all masters that answer.

    `topics_of` returns the topics of a broker; by default the broker is asked for them.
    """
    matches = matcher(pattern)

    def ask(broker: Broker) -> dict[str, _OnBroker]:
        table = settings_on(admin, broker) if topics_of is None else topics_of(broker)
        return _count_all(admin, broker, {name: settings.config(name) for name, settings in sorted(table.items())
                                          if name.startswith(DLQ_GROUP_TOPIC_PREFIX) and matches(group_of(name))})
    outcomes = on_all(admin, brokers, ask)
    merged: dict[str, list[tuple[Broker, _OnBroker]]] = {}
    for broker, table in outcomes.needed().items():
        for name, part in table.items():
            merged.setdefault(name, []).append((broker, part))
    return [_counted(name, parts) for name, parts in sorted(merged.items())], outcomes


def _count_all(admin: ClusterAdmin, broker: Broker, configs: Mapping[str, TopicConfig]) -> dict[str, _OnBroker]:
    """Count the dead letters of many topics on a broker, several at the same time, until the first request fails."""
    failed: list[Exception] = []

    def count(topic: str) -> _OnBroker | Exception:
        if failed:
            return failed[0]
        try:
            queues = _dead_queues(admin, broker, topic, configs[topic])
            oldest = [_oldest(admin, queue, topic) for queue in queues if queue.bounds.count]
            return _OnBroker(configs[topic], queues, min((each for each in oldest if each > 0), default=None))
        except Exception as error:  # raised below
            failed.append(error)
            return error
    found: dict[str, _OnBroker] = {}
    for topic, counted in in_parallel(count, list(configs), ALL_MS, lambda topic: NoAnswerError(
            f"broker {broker.address} did not report the queues of {topic}")).items():
        if isinstance(counted, Exception):
            raise counted
        found[topic] = counted
    return found


def _counted(topic: str, parts: list[tuple[Broker, _OnBroker]]) -> DeadLetterCount:
    queues = [queue for _broker, part in parts for queue in part.queues]
    oldest = [part.oldest_ms for _broker, part in parts if part.oldest_ms is not None]
    newest = [queue.bounds.last_ms for queue in queues if queue.bounds.count and queue.bounds.last_ms]
    perms = {sys_flags.perm2_string(part.config.perm)[:2] for _broker, part in parts}
    return DeadLetterCount(
        group_of(topic), tuple(sorted(broker.name for broker, _part in parts)),
        sum(queue.bounds.count for queue in queues), sum(queue.new for queue in queues), min(oldest, default=None),
        max(newest, default=None), " ".join(sorted(perms)))


def _oldest(admin: ClusterAdmin, queue: DeadQueue, topic: str) -> int:
    return admin.ask_broker(queue.broker.address, admin.api.get_earliest_msg_storetime,
                            MessageQueue(topic, queue.broker.name, queue.bounds.queue_id), admin.timeout_millis)


def _dead_queues(admin: ClusterAdmin, broker: Broker, topic: str, config: TopicConfig | None) -> list[DeadQueue]:
    return [DeadQueue(broker, bounds, _mark(admin, broker, topic, bounds))
            for bounds in queues_on(admin, broker, topic, config) or []]


def _mark(admin: ClusterAdmin, broker: Broker, topic: str, bounds: QueueBounds) -> int:
    """Return the first offset that was not sent again; the queue's first one without a mark, or with an old topic's."""
    header = QueryConsumerOffsetRequestHeader(consumerGroup=MARK_GROUP, topic=topic, queueId=bounds.queue_id,
                                              bname=broker.name)
    try:
        mark = admin.ask_broker(broker.address, admin.api.query_consumer_offset, header, admin.timeout_millis)
    except RefusedError as refusal:
        if refusal.code != response_code.QUERY_NOT_FOUND:
            raise
        return bounds.begin
    return bounds.begin if mark > bounds.end else max(mark, bounds.begin)


# ---- reading


@dataclass(frozen=True)
class Start:
    """The place to begin in each queue: an offset (-5: the last 5), a store time (ms), or the mark; else the first
    dead letter."""

    offset: int | None = None
    time_ms: int | None = None
    is_new: bool = False


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter of a broker. `message` has its body as it is stored, that is, perhaps compressed."""

    broker: Broker
    message: MessageExt

    @property
    def dead_letter_id(self) -> str:
        """The id of this very record: the broker's address, and the offset in its log."""
        return getattr(self.message, "offset_msg_id", None) or ""

    @property
    def message_id(self) -> str:
        """The id that the producer got for the message."""
        return self.message.msg_id or ""

    @property
    def origin_id(self) -> str | None:
        """The id, as of `dead_letter_id`, of the record that the group first failed on."""
        return self.message.properties.get(names.PROPERTY_ORIGIN_MESSAGE_ID)

    @property
    def origin_topic(self) -> str | None:
        """The topic that the message was sent to; None when it is unknown."""
        return self.message.properties.get(names.PROPERTY_RETRY_TOPIC)

    @property
    def resent_from(self) -> str | None:
        """The dead letter that this message was sent again from, before it became one again."""
        return self.message.properties.get(RESENT_FROM)

    @property
    def ids(self) -> set[str]:
        """All its ids."""
        return {each for each in (self.dead_letter_id, self.message_id, self.origin_id) if each}

    def body(self, budget: BodyBudget | None = None) -> bytes:
        """Return the body decompressed; a MissingBody when that fails, or beyond the budget."""
        try:
            return (budget or BodyBudget()).plain(bytes(self.message.body), self.message.sys_flag)
        except CompressionError as error:
            return MissingBody(f"the body does not decompress: {error}")

    def as_object(self, max_body: int, budget: BodyBudget | None = None) -> dict[str, Any]:
        """Return all fields; of the body at most `max_body` bytes, as text if it is UTF-8, else as a dump."""
        message, body = self.message, self.body(budget)
        view = body_view(body, max_body)
        shown = {"text": view.text} if view.text is not None else {"hex": view.hex}
        error = {"error": body.reason} if isinstance(body, MissingBody) else {}
        return {
            "group": group_of(message.topic), "broker": self.broker.name, "queue": message.queue_id,
            "offset": message.queue_offset, "deadLetterId": self.dead_letter_id, "msgId": self.message_id,
            "originTopic": self.origin_topic, "originMsgId": self.origin_id, "resentFrom": self.resent_from,
            "reconsumeTimes": message.reconsume_times, "bornTimestamp": message.born_timestamp,
            "bornTime": iso_time(message.born_timestamp), "storeTimestamp": message.store_timestamp,
            "storeTime": iso_time(message.store_timestamp), "keys": message.keys, "tags": message.tags,
            "properties": user_properties(message), "system": system_properties(message),
            "body": {"size": view.size, **shown, "cut": view.is_cut, **error}}


def shown_bodies() -> BodyBudget:
    """Return the memory limit of a list that shows the beginnings of bodies."""
    return BodyBudget(*_SHOWN_BODIES)


class Reading:
    """Reads the dead letters of a group from all masters. A broker that fails is left out, and its error kept."""

    def __init__(self, admin: ClusterAdmin, brokers: list[Broker], group: str) -> None:
        """Find the queues. CannotAnswerError when no broker has dead letters of the group, or may not deliver them."""
        self.group, self.topic = group, get_dlq_topic(group)
        self.errors: dict[Broker, CannotAnswerError] = {}
        self.retry_queues: dict[Broker, int] = {}
        """The number of queues of the group's retry topic, by broker."""
        self._admin = admin
        tables = on_all(admin, brokers, lambda broker: configs_on(admin, broker))
        configs = {broker: table[self.topic] for broker, table in tables.needed().items() if self.topic in table}
        if not configs:
            raise _no_dead_letters(admin, group, tables)
        refusing = [broker.name for broker, config in configs.items() if not sys_flags.is_readable(config.perm)]
        if refusing:
            raise CannotAnswerError(
                f"the dead letters of {group} can't be read on {', '.join(refusing)}: {self.topic} is write-only "
                "there, as brokers before 4.9.2 create it. Run the command with --make-readable")
        for broker, table in tables.values.items():
            retry = table.get(get_retry_topic(group))
            self.retry_queues[broker] = max(1, retry.writeQueueNums) if retry is not None else 1
        found = on_all(admin, configs, lambda broker: _dead_queues(admin, broker, self.topic, configs[broker]))
        self.queues = [queue for queues in found.values.values() for queue in queues]
        self.errors |= {**tables.errors, **found.errors}

    @property
    def brokers(self) -> list[Broker]:
        """The masters that answered."""
        return sorted(self.retry_queues)

    def count(self, start: Start) -> int:
        """Return how many dead letters there are from `start` on; with a time, how many there are at most."""
        return sum(max(0, queue.bounds.end - self._first(queue, start)) for queue in self.queues)

    def letters(self, start: Start) -> Iterator[DeadLetter]:
        """Yield those that exist now, of all brokers by store time. The errors of brokers are kept, not raised."""
        streams = [self._kept(queue, start) for queue in self.queues]
        yield from heapq.merge(*streams, key=lambda letter: letter.message.store_timestamp)

    def _kept(self, queue: DeadQueue, start: Start) -> Iterator[DeadLetter]:
        try:
            yield from self._of_queue(queue, start)
        except CannotAnswerError as error:
            self.errors[queue.broker] = error

    def _first(self, queue: DeadQueue, start: Start) -> int:
        begin, end = queue.bounds.begin, queue.bounds.end
        if start.is_new:
            return queue.mark
        if start.offset is None:
            return begin
        return max(begin, start.offset if start.offset >= 0 else end + start.offset)

    def _of_queue(self, queue: DeadQueue, start: Start) -> Iterator[DeadLetter]:
        admin, broker, number = self._admin, queue.broker, queue.bounds.queue_id
        who, offset = f"broker {broker.address}", self._first(queue, start)
        if start.time_ms is not None:
            # Among several messages of one ms the broker may find any. So it is asked for the ms before.
            offset = max(offset, admin.asked(who, admin.api.search_offset, broker.address, MessageQueue(
                self.topic, broker.name, number), max(0, start.time_ms - 1), admin.timeout_millis))
        while offset < queue.bounds.end:
            answer = admin.asked(who, admin.api.pull_message, broker.address, self._pull_of(broker, number, offset),
                                 admin.timeout_millis)
            if answer.pull_status is PullStatus.NO_NEW_MSG:
                return
            if answer.pull_status is PullStatus.FOUND:
                for message in admin.asked(who, _decoded, answer.message_binary or b""):
                    if (offset <= message.queue_offset < queue.bounds.end
                            and message.store_timestamp >= (start.time_ms or 0)):
                        yield DeadLetter(broker, message)
            if answer.next_begin_offset <= offset:
                raise CannotAnswerError(f"the {who} continues {self.topic} queue {number} at offset "
                                        f"{answer.next_begin_offset} after {offset}. Is it a RocketMQ broker?")
            offset = answer.next_begin_offset

    def _pull_of(self, broker: Broker, queue_id: int, offset: int) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumerGroup=TOOLS_CONSUMER_GROUP, topic=self.topic, queueId=queue_id, queueOffset=offset,
            maxMsgNums=_PULLED_AT_ONCE, sysFlag=sys_flags.build_pull_sys_flag(False, False, True, False),
            commitOffset=0, suspendTimeoutMillis=0, subscription="*", subVersion=0, expressionType=subscriptions.TAG,
            bname=broker.name)


def _no_dead_letters(admin: ClusterAdmin, group: str, tables: Outcomes[dict[str, TopicConfig]]) -> CannotAnswerError:
    known = {group_of(name) for table in tables.values.values() for name in table
             if name.startswith(DLQ_GROUP_TOPIC_PREFIX)}
    if tables.errors:
        return unknown_topic(admin, get_dlq_topic(group), tables.errors)
    others = f"; {', '.join(sorted(known)[:10])} {'has' if len(known) == 1 else 'have'} some" if known else ""
    return CannotAnswerError(f"group {group!r} has no dead letters on the masters of this cluster{others}")


def _decoded(records: bytes | memoryview) -> list[MessageExt]:
    """Return the messages of an answer, with their bodies as stored. MessageDecodeError."""
    found: list[MessageExt] = []
    position = 0
    while position < len(records):
        found.append(message_decoder.decode(records, True, False, position, is_client=True))
        position += found[-1].store_size
    return found


def make_readable(admin: ClusterAdmin, brokers: list[Broker], group: str) -> Alteration:
    """Let the brokers deliver the dead letters of a group: before 4.9.2 they create its topic write-only."""
    return alter_topic(admin, brokers, get_dlq_topic(group),
                       TopicSettings(perm=sys_flags.PERM_READ | sys_flags.PERM_WRITE))


def chosen(letters: Iterable[DeadLetter], ids: Iterable[str]) -> tuple[list[DeadLetter], list[str]]:
    """Return the dead letters with these ids, and the ids that none has.

    An id is any of a DeadLetter's. Of several with the same message id, the newest is taken.
    """
    wanted = {each.strip().upper(): each for each in ids}
    found: dict[str, DeadLetter] = {}
    exact: set[str] = set()
    for letter in letters:
        for each in letter.ids & wanted.keys() - exact:
            found[each] = letter
            if each == letter.dead_letter_id:
                exact.add(each)
        if len(exact) == len(wanted):
            break
    unknown = [said for each, said in wanted.items() if each not in found]
    return list({letter.dead_letter_id: letter for letter in found.values()}.values()), unknown


# ---- sending again


@dataclass(frozen=True)
class Resent:
    """The outcome for one dead letter: `status` is the broker's answer, None without one; `error` says what failed.

    `is_lost`: it can never be sent again from here, whatever the brokers' state.
    """

    letter: DeadLetter
    to: str
    broker: str
    status: SendStatus | None = None
    offset_msg_id: str | None = None
    error: str = ""
    is_lost: bool = False

    @property
    def is_ok(self) -> bool:
        """True if a broker stored it as safely as its configuration promises."""
        return self.status is SendStatus.SEND_OK


class Resender:
    """Sends dead letters again: to the group's retry topic, where only this group gets them, or to `topic`.

    A dead letter goes to the retry topic of its own broker, and to the queues of `topic` in turn.
    """

    def __init__(self, admin: ClusterAdmin, reading: Reading, topic: str | None = None) -> None:
        """Find the queues. CannotAnswerError for a topic that does not exist, or can't be sent to."""
        self._admin, self._reading = admin, reading
        self.topic = topic or get_retry_topic(reading.group)
        self._is_retry = topic is None
        self._turn = 0
        self._silent: dict[Broker, str] = {}  # brokers that gave no answer, and why
        self._queues = [] if topic is None else self._writable(topic)

    def _writable(self, topic: str) -> list[tuple[Broker, int]]:
        if topic.startswith((DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX)):
            raise CannotAnswerError(f"--to {topic}: give a topic of users; without --to the messages go to the retry "
                                    f"topic of {self._reading.group}")
        brokers = self._reading.brokers
        check_name(topic, own_names(brokers))
        tables = on_all(self._admin, brokers, lambda broker: configs_on(self._admin, broker).get(topic))
        configs = {broker: config for broker, config in tables.needed().items() if config is not None}
        if not configs:
            raise unknown_topic(self._admin, topic, tables.errors)
        queues = [(broker, number) for broker, config in configs.items() if sys_flags.is_writeable(config.perm)
                  for number in range(min(config.writeQueueNums, _MOST_QUEUES))]
        if not queues:
            raise CannotAnswerError(f"topic {topic} can't be written on any master; `rmqha topic alter {topic} --perm "
                                    "rw` changes that")
        return sorted(queues, key=lambda each: (each[1], each[0]))

    def problem(self, letter: DeadLetter) -> Resent | None:
        """Return the outcome for a dead letter that can't be sent again; None if it can be tried."""
        if self._is_retry and not letter.origin_topic:
            return self._failed(letter, "its original topic is unknown: send it to a topic with --to")
        try:
            BodyBudget(most_each=MOST_IN_ALL).plain(bytes(letter.message.body), letter.message.sys_flag)
        except CompressionError as error:
            needs_library = isinstance(error.__cause__, ImportError)
            return self._failed(letter, f"its body does not decompress: {error}", is_lost=not needs_library)
        return None

    def _failed(self, letter: DeadLetter, error: str, is_lost: bool = False) -> Resent:
        return Resent(letter, self.topic, letter.broker.name, error=error, is_lost=is_lost)

    def send(self, letter: DeadLetter) -> Resent:
        """Send one dead letter again and wait for the answer; no exception for one that fails."""
        problem = self.problem(letter)
        if problem is not None:
            return problem
        broker, queue_id = self._target(letter)
        if broker in self._silent:
            return Resent(letter, self.topic, broker.name, error=f"not sent: {self._silent[broker]}")
        message = letter.message
        sent = Message(self.topic, bytes(message.body))
        sent.properties = self._properties(letter)
        header = SendMessageRequestHeaderV2(
            a=PRODUCER_GROUP, b=self.topic, c=topics.AUTO_CREATE_TOPIC_KEY_TOPIC, d=1, e=queue_id,
            f=message.sys_flag & _BODY_FLAGS, g=message.born_timestamp, h=message.flag,
            i=message_decoder.message_properties2string(sent.properties), j=0, n=broker.name)
        admin = self._admin
        try:
            sending = admin.ask_broker(broker.address, admin.api.send_message, broker.name, sent, header, sent.body,
                                    admin.timeout_millis)
        except CannotAnswerError as error:
            if isinstance(error, NoAnswerError):
                self._silent[broker] = error.message
            return Resent(letter, self.topic, broker.name, error=error.message)
        error_text = "" if sending.send_status is SendStatus.SEND_OK else f"stored, but {sending.send_status.name}"
        return Resent(letter, self.topic, broker.name, sending.send_status, sending.offset_msg_id, error_text)

    def _target(self, letter: DeadLetter) -> tuple[Broker, int]:
        self._turn += 1
        if self._is_retry:
            return letter.broker, self._turn % self._reading.retry_queues.get(letter.broker, 1)
        return self._queues[self._turn % len(self._queues)]

    def _properties(self, letter: DeadLetter) -> dict[str, str]:
        dropped = _NOT_KEPT if self._is_retry else _NOT_KEPT | {names.PROPERTY_RETRY_TOPIC}
        kept = {name: value for name, value in letter.message.properties.items() if name not in dropped}
        return {**kept, RESENT_FROM: letter.dead_letter_id}


@dataclass
class Marks:
    """The places up to which the dead letters of a reading were sent again. A mark stops before the first failed one.

    One that can never be sent again does not stop it.
    """

    admin: ClusterAdmin
    reading: Reading
    errors: dict[Broker, CannotAnswerError] = field(default_factory=dict)  # of brokers that did not keep them
    _next: dict[tuple[Broker, int], int] = field(default_factory=dict)
    _failed: set[tuple[Broker, int]] = field(default_factory=set)

    def note(self, resent: Resent) -> None:
        """Note the outcome of the next dead letter of its queue."""
        letter = resent.letter
        queue = letter.broker, letter.message.queue_id
        if not resent.is_ok and not resent.is_lost:
            self._failed.add(queue)
        elif queue not in self._failed:
            self._next[queue] = letter.message.queue_offset + 1

    def store(self) -> None:
        """Have the brokers keep the marks that moved on."""
        for queue in self.reading.queues:
            offset = self._next.pop((queue.broker, queue.bounds.queue_id), queue.mark)
            if offset > queue.mark and queue.broker not in self.errors:
                place = MessageQueue(self.reading.topic, queue.broker.name, queue.bounds.queue_id)
                try:
                    self.admin.ask_broker(queue.broker.address, self.admin.update_consume_offset, MARK_GROUP, place,
                                          offset)
                except CannotAnswerError as error:
                    self.errors[queue.broker] = error


def resend(resender: Resender, letters: Iterable[DeadLetter], marks: Marks | None, report: Callable[[Resent], None]
           ) -> None:
    """Send dead letters again; call `report` after each.

    With `marks` the brokers keep how far it came: after each 100, and at the end, also when it is interrupted. An
    interrupt waits for the answer to the message that is being sent.
    """
    try:
        for number, letter in enumerate(letters, 1):
            with interrupted_later():
                resent = resender.send(letter)
                if marks is not None:
                    marks.note(resent)
                report(resent)
            if marks is not None and number % _STORED_AFTER == 0:
                marks.store()
    finally:
        if marks is not None:
            marks.store()
