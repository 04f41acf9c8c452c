"""Browsing the messages of a topic: pages of rows, over all its queues, in the order of their store times.

    Browser --topic stats--> brokers: ranges of the queues
            --heads, queue by queue--> rows --merge by store time--> Page, with the Cursor of the next one

- `Query`: the wanted messages. `Browser.browse` returns a page, `Browser.tail` the messages since the last page, and
  `Browser.whole` one message with its body. A list never contains whole bodies: see `rmqha.tools.view.heads`.
- A row is shown once all queues are known to have no earlier one (backwards: no later one). So pages have no gaps and
  no duplicates, and rows are in order. Messages that arrive while someone pages forwards may be an exception: one queue
  may get an earlier message after another queue's later one has been shown. Rows of one queue are always in order.
- A search for something rare ends after WORK_S, or after ROWS_S if it has found rows, and the next page continues.
"""
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rmqha.client.exception import CLIENT_ERRORS, MQBrokerException
from rmqha.common import body_parts, sys_flags, topics
from rmqha.common.compression import BodyBudget, CompressionError
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.protocol import message_heads, response_code
from rmqha.common.protocol.command_custom_header import HeaderFieldError
from rmqha.common.protocol.message_heads import GetMessageHeadsRequestHeader, MessageHead, MessageHeads
from rmqha.common.texts import parse_json
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.view.heads import HeadReader
from rmqha.tools.view.questions import (
    MAX_HEX_BYTES,
    MAX_LISTED_BYTES,
    QuestionError,
    asked,
    hex_dump,
    question_error,
    text_of,
)

EARLIEST, LATEST = "earliest", "latest"
MAX_ROWS = 1000
MAX_QUEUES = 10_000  # of one broker
WORK_S, ROWS_S = 2.0, 0.7
MAX_PAGE_BYTES = 32 << 20  # received for one page
MAX_WHOLE_BYTES = 64 << 20
MAX_CURSOR_CHARACTERS = 1 << 20
_LEAST_AT_ONCE = 3
_OFFSETS = (1 << 63) - 1
_TRANSACTIONS = {sys_flags.TRANSACTION_PREPARED_TYPE: "prepared", sys_flags.TRANSACTION_COMMIT_TYPE: "committed",
                 sys_flags.TRANSACTION_ROLLBACK_TYPE: "rolled back"}
# Answers that mean that the query is wrong, not that a broker has a problem.
_WRONG_QUERY = frozenset((response_code.SUBSCRIPTION_PARSE_FAILED,))


@dataclass(frozen=True)
class Filters:
    """Which messages are wanted; all filters that are given must match.

    `tags`: "a || b". `key`: a key, or a producer's id. `sql`: SQL92 over the properties. `text`: a part of the
    decompressed body.
    """

    tags: str | None = None
    key: str | None = None
    sql: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Query:
    """The wanted messages of a topic: of all its queues, or those of a broker name, or of one queue id.

    Pages begin at `begin` (EARLIEST or LATEST), at `offset` in each queue, or at `time_ms`, a store time. By default
    they begin at the end that is right for the direction. `until_ms`: the last store time. `until_offset`: the last
    offset of each queue. `body_bytes` of each body are shown.
    """

    topic: str
    broker: str | None = None
    queue_id: int | None = None
    begin: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    until_ms: int | None = None
    until_offset: int | None = None
    backwards: bool = False
    filters: Filters = Filters()
    limit: int = 50
    body_bytes: int = MAX_LISTED_BYTES

    def header(self, queue_id: int, offset: int, count: int) -> GetMessageHeadsRequestHeader:
        """Return the request for a part of one queue. QuestionError for an invalid query."""
        wanted = self.filters
        # One byte more shows whether the body is longer.
        header = GetMessageHeadsRequestHeader(
            self.topic, queue_id, offset, count, min(self.body_bytes + 1, message_heads.MAX_BODY_BYTES),
            backwards=self.backwards, tags=wanted.tags, key=wanted.key, sql=wanted.sql, text=wanted.text)
        try:
            header.check_fields()
        except HeaderFieldError as error:
            raise QuestionError(str(error)) from None
        return header

    def check(self) -> None:
        """Raise QuestionError for an invalid query."""
        if not self.topic:
            raise QuestionError("topic: a name")
        if self.begin not in (None, EARLIEST, LATEST):
            raise QuestionError(f"begin must be {EARLIEST} or {LATEST}")
        if sum(each is not None for each in (self.begin, self.offset, self.time_ms)) > 1:
            raise QuestionError("only one of begin, offset and time can be given")
        for name, value, least, most in (("offset", self.offset, 0, _OFFSETS), ("time", self.time_ms, 0, _OFFSETS),
                                         ("until", self.until_ms, 0, _OFFSETS),
                                         ("until_offset", self.until_offset, 0, _OFFSETS),
                                         ("limit", self.limit, 1, MAX_ROWS),
                                         ("queue", self.queue_id, 0, 0x7FFF_FFFF),
                                         ("body bytes", self.body_bytes, 0, message_heads.MAX_BODY_BYTES - 1)):
            if value is not None and not least <= value <= most:
                raise QuestionError(f"{name} is {value}, and must be from {least} to {most}")
        self.header(0, 0, 1)

    def is_beyond(self, store_ms: int) -> bool:
        """Return whether a message stored at this time, and all that follow, are not wanted any more."""
        return self.until_ms is not None and (
            store_ms < self.until_ms if self.backwards else store_ms > self.until_ms)

    def is_past(self, offset: int) -> bool:
        """Return whether a message at this offset of its queue, and all that follow, are not wanted any more."""
        return self.until_offset is not None and (
            offset < self.until_offset if self.backwards else offset > self.until_offset)


@dataclass(frozen=True)
class Row:
    """A message in a list. Times are in ms, sizes in bytes.

    `message_id` is made of the broker's address and the commit log offset; `unique_id` is the producer's.
    `body_size`: of the stored body, compressed if `compression` names a type. The beginning of the plain body is
    `text`, or `hex` if it is not text. `is_cut`: the body has more. `body_error`: why none of it is shown.
    `transaction`: "", half, prepared, committed or rolled back. `delay_level`: 0 without a delay.
    `topic` differs from the query's in light queues only; `real_topic` is where a half or delayed message will go.
    """

    broker: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    message_id: str
    unique_id: str
    topic: str
    real_topic: str
    store_ms: int
    born_ms: int
    born_host: str
    store_host: str
    tags: str
    keys: tuple[str, ...]
    size: int
    body_size: int
    flag: int
    properties: dict[str, str]
    has_all_properties: bool
    text: str | None
    hex: str
    is_cut: bool
    body_error: str
    compression: str
    transaction: str
    delay_level: int
    reconsume_times: int

    @property
    def order(self) -> tuple[int, str, int, int]:
        """The sort key of rows: store time, then the order in the broker's log."""
        return self.store_ms, self.broker, self.commit_log_offset, self.queue_id


def row_of(broker: str, queue_id: int, head: MessageHead, body_bytes: int) -> Row:
    """Return the row of a message of a queue, with at most `body_bytes` of its plain body."""
    plain, error = b"", ""
    try:
        plain = body_parts.beginning(head.body, head.sys_flag, body_bytes + 1)
    except CompressionError as failure:
        error = str(failure)
    is_whole = len(head.body) == head.body_length and len(plain) <= body_bytes
    if not plain and not is_whole and not error:
        error = "the beginning of this body can't be decompressed without the rest"
    shown = plain[:body_bytes]
    text = text_of(shown, not is_whole)
    properties = head.properties
    return Row(
        broker=broker, queue_id=queue_id, queue_offset=head.queue_offset, commit_log_offset=head.commit_log_offset,
        message_id=head.message_id,
        unique_id=properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, ""), topic=head.topic,
        real_topic=properties.get(message_const.PROPERTY_REAL_TOPIC, ""), store_ms=head.store_timestamp,
        born_ms=head.born_timestamp, born_host=_host(head.born_host), store_host=_host(head.store_host),
        tags=properties.get(message_const.PROPERTY_TAGS, ""),
        keys=_keys(properties), size=head.store_size,
        body_size=head.body_length, flag=head.flag, properties=properties, has_all_properties=head.has_all_properties,
        text=None if error else text, hex="" if error or text is not None else hex_dump(shown[:MAX_HEX_BYTES]),
        is_cut=not is_whole, body_error=error, compression=_compression(head.sys_flag),
        transaction=_transaction(head), delay_level=_number(properties.get(message_const.PROPERTY_DELAY_TIME_LEVEL)),
        reconsume_times=head.reconsume_times)


def _keys(properties: dict[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, properties.get(message_const.PROPERTY_KEYS, "").split(message_const.KEY_SEPARATOR)))


def _host(host: tuple[str, int]) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def _compression(sys_flag: int) -> str:
    try:
        kind = body_parts.type_of(sys_flag)
    except CompressionError:
        return "unknown"
    return kind.name.lower() if kind is not None else ""


def _transaction(head: MessageHead) -> str:
    if head.topic == topics.RMQ_SYS_TRANS_HALF_TOPIC:
        return "half"
    return _TRANSACTIONS.get(head.sys_flag & sys_flags.TRANSACTION_ROLLBACK_TYPE, "")


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0


@dataclass(frozen=True)
class Cursor:
    """The beginning of the next page: in each queue the index of the next message to examine, None if not known yet.

    `since_ms`: when the first page was asked for, by this host's clock.
    """

    backwards: bool
    since_ms: int
    places: dict[tuple[str, int], int | None]

    def as_text(self) -> str:
        """Return the cursor as a text, for a link or a later request."""
        queues: dict[str, dict[str, int | None]] = {}
        for (broker, queue_id), offset in self.places.items():
            queues.setdefault(broker, {})[str(queue_id)] = offset
        return json.dumps({"backwards": self.backwards, "since": self.since_ms, "queues": queues},
                          separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor of a text; QuestionError if it is invalid."""
        if len(text) > MAX_CURSOR_CHARACTERS:
            raise QuestionError(f"the cursor has {len(text)} characters; at most {MAX_CURSOR_CHARACTERS} are allowed")
        try:
            content = parse_json(text, "the cursor")
            places = {(broker, int(queue_id)): _offset(offset) for broker, queues in content["queues"].items()
                      for queue_id, offset in queues.items()}
            if not isinstance(content["backwards"], bool) or not all(queue_id >= 0 for _, queue_id in places):
                raise ValueError("a wrong value")
            return cls(content["backwards"], _whole(content["since"]), places)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise QuestionError(f"the cursor is not valid: {error}. Begin again without it") from None


def _offset(value: Any) -> int | None:
    return None if value is None else _whole(value, -1)


def _whole(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _OFFSETS:
        raise ValueError(f"{str(value)[:50]} is not an offset")
    return value


@dataclass(frozen=True)
class Page:
    """Rows, and the cursor of the next page. `at_end`: there is nothing more at present.

    `examined`: messages that brokers examined. `searched_bytes`, `received_bytes`: bytes that their filters read, and
    that they sent. `unreadable`: messages among them whose records are deleted or damaged. `unsearched`: bodies that
    could not be searched for the text. `behind`: messages of the queues that are not examined yet.
    `errors`: brokers and queues that are missing, and why. `notes`: other remarks for the reader.
    """

    rows: tuple[Row, ...]
    cursor: Cursor
    at_end: bool
    examined: int = 0
    searched_bytes: int = 0
    received_bytes: int = 0
    unreadable: int = 0
    unsearched: int = 0
    behind: int = 0
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Place:
    """A queue while a page is made. `next`: the index to examine next; None if not known yet.

    `known`: all wanted rows before this store time (backwards: after it) are in `rows`, or were taken from there.
    """

    queue: MessageQueue
    address: str
    next: int | None = None
    least: int = 0
    end: int = _OFFSETS
    rows: deque[Row] = field(default_factory=deque)
    known: int | None = None
    is_done: bool = False  # in this page
    is_missing: bool = False  # because of an error
    begin: int | None = None  # `position` when the page was begun
    # The first store time that is wanted, if the queue begins at a time: brokers find the nearest message.
    from_ms: int | None = None

    @property
    def position(self) -> int | None:
        """The index at which the next page begins."""
        return self.rows[0].queue_offset if self.rows else self.next

    @property
    def name(self) -> str:
        """The queue for people."""
        return f"{self.queue.brokerName}:{self.queue.queueId}"


class Browser:
    """Reads pages of messages. Thread-safe; each page is made on the thread that asks for it."""

    def __init__(self, admin: DefaultMQAdminExt) -> None:
        self._admin = admin
        self._reader = HeadReader(admin)

    def browse(self, query: Query, cursor: Cursor | None = None) -> Page:
        """Return the first page of a query, or the one at a cursor that an earlier page of the same query gave.

        QuestionError for an invalid query, and if no broker answers.
        """
        query.check()
        if cursor is not None and cursor.backwards != query.backwards:
            raise QuestionError("the cursor belongs to a query in the other direction. Begin again without it")
        return _PageMaker(self._admin, self._reader, query, cursor).page()

    def tail(self, query: Query, cursor: Cursor | None = None) -> Page:
        """Return what is new since the last page. Without a cursor return an empty page, at the ends of the queues.

        Only the query's topic, queues, filters and sizes count.
        """
        following = Query(query.topic, query.broker, query.queue_id, LATEST, filters=query.filters, limit=query.limit,
                          body_bytes=query.body_bytes)
        return self.browse(following, cursor)

    def whole(self, topic: str, broker: str, queue_id: int, queue_offset: int,
              most_bytes: int = MAX_WHOLE_BYTES) -> MessageExt:
        """Return one message with its whole body.

        QuestionError if it does not exist, is damaged, or has a body of more than `most_bytes`, decompressed.
        """
        query = Query(topic, broker, queue_id, offset=queue_offset, limit=1, body_bytes=0)
        query.check()
        places = asked(lambda: list(_places(self._admin, query)))
        if not places:
            raise QuestionError(f"topic {topic!r} has no queue {broker}:{queue_id}", not_there=True)
        header = query.header(queue_id, queue_offset, 1)
        record = asked(lambda: self._reader.whole(places[0].address, header))
        if record is None:
            raise QuestionError(f"queue {places[0].name} of topic {topic!r} has no message {queue_offset}",
                                not_there=True)
        try:
            message = message_decoder.decode(record, budget=BodyBudget(most_bytes, most_bytes))
        except MessageDecodeError as error:
            raise QuestionError(f"message {queue_offset} of {places[0].name}: {error.reason}") from None
        if len(message.body) > most_bytes:
            raise QuestionError(f"message {queue_offset} of {places[0].name}: the body has {len(message.body)} bytes; "
                                f"the limit is {most_bytes}")
        message.broker_name = broker
        return message


def _places(admin: DefaultMQAdminExt, query: Query) -> Iterator[_Place]:
    """Yield the queues of a query. Their brokers may be unknown: then they have an empty address."""
    route = admin.api.get_topic_route_info_from_name_server(query.topic, admin.timeout_millis)
    addresses = {broker.brokerName: broker.select_broker_addr() or "" for broker in route.brokerDatas}
    for data in sorted(route.queueDatas):
        if query.broker in (None, data.brokerName):
            count = max(data.readQueueNums, data.writeQueueNums)
            first, end = (0, count) if query.queue_id is None else (query.queue_id, min(count, query.queue_id + 1))
            if end - first > MAX_QUEUES:
                raise QuestionError(f"topic {query.topic!r} has {count} queues on {data.brokerName}; at most "
                                    f"{MAX_QUEUES} can be shown together. Choose one of them")
            for queue_id in range(first, end):
                yield _Place(MessageQueue(query.topic, data.brokerName, queue_id), addresses.get(data.brokerName, ""))


def _malformed(error: ValueError) -> MQBrokerException:
    return MQBrokerException(response_code.SYSTEM_ERROR, f"malformed answer: {error}")


class _PageMaker:
    """Makes one page."""

    def __init__(self, admin: DefaultMQAdminExt, reader: HeadReader, query: Query, cursor: Cursor | None) -> None:
        self._admin, self._reader, self._query = admin, reader, query
        self._cursor = cursor or Cursor(query.backwards, round(time.time() * 1000), {})
        self._is_first = cursor is None
        self._places = asked(lambda: list(_places(admin, query)))
        if not self._places:
            raise QuestionError(f"topic {query.topic!r} has no such queue", not_there=True)
        self._begin_s = time.monotonic()
        self._rows: list[Row] = []
        self._examined = self._searched = self._received = self._unreadable = self._unsearched = 0
        self._errors: dict[str, Exception] = {}
        self._notes: list[str] = []

    def page(self) -> Page:
        """Return the page."""
        self._open()
        while len(self._rows) < self._query.limit:
            waiting = self._waiting_for()
            if waiting is not None:
                if self._is_enough:
                    break
                self._fetch(waiting)
            elif not self._take():
                break
        if not self._rows and all(place.is_missing for place in self._places):
            raise question_error(next(iter(self._errors.values())))
        pulled = sorted({place.queue.brokerName for place in self._places if self._reader.pulls_from(place.address)})
        if pulled:
            self._notes.append(f"{', '.join(pulled)}: brokers without a request for parts of messages send them whole, "
                               "so large messages are slow")
        places = {**self._cursor.places, **{(place.queue.brokerName, place.queue.queueId): place.position
                                            for place in self._places}}
        return Page(
            tuple(self._rows), Cursor(self._query.backwards, self._cursor.since_ms, places),
            at_end=all(place.is_done and not place.rows and not place.is_missing for place in self._places),
            examined=self._examined, searched_bytes=self._searched, received_bytes=self._received,
            unreadable=self._unreadable, unsearched=self._unsearched, behind=sum(map(self._behind, self._places)),
            errors=tuple(f"{where}: {question_error(error).message}" for where, error in self._errors.items()),
            notes=tuple(self._notes))

    @property
    def _is_enough(self) -> bool:
        """True if the page ends before it is full: it took long, and the next page begins elsewhere."""
        limit_s = min(ROWS_S, WORK_S) if self._rows and self._query.filters != Filters() else WORK_S
        return ((time.monotonic() - self._begin_s > limit_s or self._received > MAX_PAGE_BYTES)
                and (bool(self._rows) or any(place.position != place.begin for place in self._places)))

    def _behind(self, place: _Place) -> int:
        position = place.position
        if position is None or place.end == _OFFSETS:
            return 0
        return max(0, position + 1 - place.least if self._query.backwards else place.end - max(position, place.least))

    # Where each queue begins.

    def _open(self) -> None:
        """Ask each broker for the ranges of its queues, and find out where they begin."""
        by_broker: dict[str, list[_Place]] = {}
        for place in self._places:
            by_broker.setdefault(place.queue.brokerName, []).append(place)
        for name, places in by_broker.items():
            address = places[0].address
            try:
                if not address:
                    raise MQBrokerException(response_code.SYSTEM_ERROR, "the name server has no address of this broker")
                self._open_at(address, places)
            except CLIENT_ERRORS as error:
                self._failed(address or name, error, places)
            except ValueError as error:
                self._failed(address, _malformed(error), places)

    def _open_at(self, address: str, places: list[_Place]) -> None:
        api, timeout_ms = self._admin.api, self._admin.timeout_millis
        ranges = api.get_topic_stats_info(address, self._query.topic, timeout_ms).offsetTable
        by_id = {queue.queueId: found for queue, found in ranges.items()}
        for place in places:
            known = by_id.get(place.queue.queueId)
            if known is not None:
                place.least, place.end = known.minOffset, known.maxOffset
            else:  # a broker lists only the queues for writing
                place.least = api.get_min_offset(address, place.queue, timeout_ms)
                place.end = api.get_max_offset(address, place.queue, timeout_ms)
            place.next = place.begin = self._first_of(place)
            place.is_done = self._is_at_end(place)

    def _first_of(self, place: _Place) -> int:
        """Return the index of the first message to examine."""
        query, key = self._query, (place.queue.brokerName, place.queue.queueId)
        place.from_ms = query.time_ms
        position = self._cursor.places.get(key)
        if position is not None:
            return self._checked(place, position)
        if query.backwards and not self._is_first and key not in self._cursor.places:
            return place.least - 1  # it is newer than the first page
        if query.offset is not None:
            return min(query.offset, place.end - 1 if query.backwards else place.end)
        if query.time_ms is not None:
            return self._by_time(place, query.time_ms)
        if query.begin == EARLIEST or query.begin is None and not query.backwards:
            return place.least
        if query.backwards:
            return place.end - 1
        # A queue that appears later is followed from the time at which the following began.
        return place.end if self._is_first else self._by_time(place, self._cursor.since_ms)

    def _by_time(self, place: _Place, time_ms: int) -> int:
        """Return the index nearest to a time, on the side where the page begins.

        Of several messages of the same ms a broker may find any. So it is asked for the ms before (backwards: after).
        """
        place.from_ms = time_ms
        if place.least >= place.end:
            return place.least - 1 if self._query.backwards else place.end
        wanted = time_ms + 1 if self._query.backwards else max(time_ms - 1, 0)
        return self._admin.api.search_offset(place.address, place.queue, wanted, self._admin.timeout_millis)

    def _checked(self, place: _Place, position: int) -> int:
        """Return where to continue: a queue may have lost its first messages, or may have been created again."""
        if self._query.backwards:
            return min(position, place.end - 1)
        if position > place.end:
            self._notes.append(f"{place.name} ends at offset {place.end}, before {position}: the topic may have been "
                               f"deleted and created again. It is shown from its first offset, {place.least}")
            return place.least
        if position < place.least:
            self._notes.append(f"{place.name}: offsets {position} to {place.least - 1} are deleted")
            return place.least
        return position

    def _is_at_end(self, place: _Place) -> bool:
        return place.next is not None and (self._query.is_past(place.next) or (
            place.next < place.least if self._query.backwards else place.next >= place.end))

    # Rows.

    def _waiting_for(self) -> _Place | None:
        """Return a queue that has to be read before the next row can be shown; None if the row can be shown."""
        best = self._best()
        waiting = [place for place in self._places if not place.is_done and not place.rows
                   and (best is None or not self._is_known(place, best))]
        if not waiting:
            return None
        # The one that is known least.
        unknown = next((place for place in waiting if place.known is None), None)
        return unknown or (max if self._query.backwards else min)(waiting, key=lambda place: place.known or 0)

    def _is_known(self, place: _Place, best: _Place) -> bool:
        """Return whether a queue can't have a row before the first of the best queue."""
        if place.known is None:
            return False
        ours, theirs = (place.known, place.queue.brokerName), best.rows[0].order[:2]
        return ours < theirs if self._query.backwards else ours > theirs

    def _best(self) -> _Place | None:
        """Return the queue whose first row is the next one."""
        ready = [place for place in self._places if place.rows]
        if not ready:
            return None
        return (max if self._query.backwards else min)(ready, key=lambda place: place.rows[0].order)

    def _take(self) -> bool:
        """Add the next row to the page; return False if all rows are taken."""
        best = self._best()
        if best is None:
            return False
        self._rows.append(best.rows.popleft())
        return True

    def _fetch(self, place: _Place) -> None:
        """Read the next part of a queue."""
        query = self._query
        active = sum(not each.is_done for each in self._places)
        left = query.limit - len(self._rows)
        count = min(left, max(_LEAST_AT_ONCE, 2 * left // max(1, active)))
        begin = place.next
        assert begin is not None  # `_open` has set it for all that are not done
        try:
            answer = self._reader.read(place.address, query.header(place.queue.queueId, max(begin, 0), count))
        except CLIENT_ERRORS as error:
            if isinstance(error, MQBrokerException):
                if error.response_code in _WRONG_QUERY:
                    raise QuestionError(error.error_message or str(error)) from None
                self._failed(place.name, error, [place])
            else:
                self._failed(place.address, error, [each for each in self._places if each.address == place.address])
            return
        except ValueError as error:
            self._failed(place.name, _malformed(error), [place])
            return
        self._add(place, answer)
        # A broker must not make the page endless.
        place.is_done |= place.next == begin

    def _add(self, place: _Place, answer: MessageHeads) -> None:
        query, told = self._query, answer.told
        self._examined += told.examined
        self._searched += told.searchedBytes
        self._received += answer.body_size
        self._unreadable += told.unreadable
        self._unsearched += told.unsearched
        place.least, place.end, place.next = told.minOffset, told.maxOffset, told.nextOffset
        for head in answer.heads:
            if query.is_beyond(head.store_timestamp) or query.is_past(head.queue_offset):
                place.is_done = True
                return
            if not self._is_before(place, head.store_timestamp):
                place.rows.append(row_of(place.queue.brokerName, place.queue.queueId, head, query.body_bytes))
        if told.lastTimestamp >= 0:
            place.known = told.lastTimestamp
        place.is_done = self._is_at_end(place) or place.known is not None and query.is_beyond(place.known)

    def _is_before(self, place: _Place, store_ms: int) -> bool:
        """Return whether a message stored at this time is before the first wanted one."""
        return place.from_ms is not None and (
            store_ms > place.from_ms if self._query.backwards else store_ms < place.from_ms)

    def _failed(self, where: str, error: Exception, places: Iterable[_Place]) -> None:
        """Leave queues out of this page."""
        self._errors[where] = error
        for place in places:
            place.is_done = place.is_missing = True
            if place.next == place.begin:
                place.next = self._cursor.places.get((place.queue.brokerName, place.queue.queueId))
