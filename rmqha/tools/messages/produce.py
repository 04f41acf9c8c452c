"""`rmqha produce`, and the input lines, message JSON and clients shared with `consume`, `export` and `import`.

- `read_line`, `lines_of`, `parsed`: read untrusted lines and the JSON in them in bounded memory; a ValueError reports
  the problem.
- `as_object`, `outgoing`: a message as a JSON object. `consume -o json` and `export` write it; `produce -f json` and
  `import` read it. `produce` also reads the objects of `store dump -o json`.
- `new_producer`, `new_consumer`: clients of the commands. They query the name server first, so that one that does not
  answer is reported in one line.
"""
import base64
import contextlib
import os
import reprlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any, BinaryIO

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import CLIENT_ERRORS, MQClientException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendResult, SendStatus
from rmqha.common.compression import MAX_DECOMPRESSED_SIZE, MissingBody
from rmqha.common.configuration import nearest_key
from rmqha.common.message import message_const as names
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.mix_all import TOOLS_CONSUMER_GROUP
from rmqha.common.program import examples, interrupted_later
from rmqha.common.texts import JsonTextError, parse_json
from rmqha.common.topics import is_system_topic
from rmqha.tools.connection import account, connected, namesrv_option, set_tls
from rmqha.tools.errors import one_line
from rmqha.tools.terminal import (
    CannotAnswerError,
    WorkFailedError,
    counted,
    emit,
    iso_time,
    output_option,
    put,
    topic_option,
)

# Clients could not read a longer one.
LONGEST_BODY = MAX_DECOMPRESSED_SIZE
# A longer body is written as base64, which adds a third; as a JSON string a byte may take six.
LONGEST_TEXT = 32 << 20
LONGEST_LINE = LONGEST_BODY // 3 * 4 + (1 << 20)
_SKIPPED_AT_ONCE = 1 << 16
# Bytes of a line: an input without a newline within these does not consist of lines.
LONGEST_SKIPPED = 1 << 30


class LineTooLongError(ValueError):
    """A line exceeds the limit; the rest of the line is still unread."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the line is longer than {limit:,} bytes")


class NoEndOfLineError(ValueError):
    """A line does not end within LONGEST_SKIPPED bytes; no more of the input is read."""

    def __init__(self) -> None:
        super().__init__(f"the line does not end within {LONGEST_SKIPPED:,} bytes; stopped reading. Is it the right "
                         "file?")


def read_line(stream: BinaryIO, limit: int = LONGEST_LINE) -> bytes:
    """Return the next line with its newline, b"" after the last. LineTooLongError above `limit` bytes."""
    line = stream.readline(limit + 1)
    if len(line) > limit and not line.endswith(b"\n"):
        raise LineTooLongError(limit)
    return line


def skip_line(stream: BinaryIO) -> bytes:
    """Skip the rest of a line; return its last bytes, b"" if nothing was left. Raises NoEndOfLineError."""
    last, skipped = b"", 0
    while piece := stream.readline(_SKIPPED_AT_ONCE):
        last, skipped = piece, skipped + len(piece)
        if piece.endswith(b"\n"):
            break
        if skipped > LONGEST_SKIPPED:
            raise NoEndOfLineError
    return last


def lines_of(stream: BinaryIO, limit: int) -> Iterator[bytes | LineTooLongError | NoEndOfLineError]:
    """Yield each line without its newline, or an error for a line that is too long.

    After LineTooLongError reading continues with the next line; NoEndOfLineError is the last item.
    """
    while True:
        try:
            line = read_line(stream, limit)
        except LineTooLongError as error:
            try:
                skip_line(stream)
            except NoEndOfLineError as endless:
                yield endless
                return
            yield error
            continue
        if not line:
            return
        yield line.removesuffix(b"\n")


def parsed(line: bytes) -> Any:
    """Return the value of a JSON text; ValueError when it is invalid or nested too deeply."""
    try:
        return parse_json(line, "the line")
    except JsonTextError as error:
        raise ValueError(error.reason) from None


def shown(value: Any) -> str:
    """Return a value for an error message, shortened if it is long."""
    return reprlib.repr(value)


_WORDS = {str: "a text", int: "a whole number", dict: "an object"}


def typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """Return a field, or None when it is absent or null; ValueError for a value of another kind."""
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise ValueError(f"{shown(name)[1:-1]}: expected {_WORDS[kind]}, not {shown(value)}")
    return value


def needed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """Return a required field; ValueError when it is absent, null or of another kind."""
    if name not in fields:
        raise ValueError(f"{name} is missing")
    value = typed(fields, name, kind)
    if value is None:
        raise ValueError(f"{name}: expected {_WORDS[kind]}, not null")
    return value


def number(fields: dict[str, Any], name: str, least: int, most: int) -> int | None:
    """Return a whole number within bounds, or None when it is absent or null."""
    value: int | None = typed(fields, name, int)
    if value is not None and not least <= value <= most:
        raise ValueError(f"{shown(name)[1:-1]}: {value} is {'below' if value < least else 'above'} "
                         f"{least if value < least else most}")
    return value


_AFTER_NAME, _AFTER_VALUE = "\x01", "\x02"  # on the wire
_LEAST_INT, _MOST_INT = -(1 << 31), (1 << 31) - 1
# Fields that describe the stored message: ignored when a message is sent again.
_OF_THE_STORE = frozenset({
    "topic", "offset", "msgId", "offsetMsgId", "size", "bornTimestamp", "bornTime", "bornHost", "storeTimestamp",
    "storeTime", "storeHost", "reconsumeTimes", "system"})
# Further fields of `store dump -o json`, also ignored. Each of its objects has the first.
_OFFSET_OF_DUMP = "commitLogOffset"
_OF_A_DUMP = frozenset({_OFFSET_OF_DUMP, "storeSize", "queueId", "queueOffset", "sysFlag", "preparedTransactionOffset",
                        "bodyCRC", "physicalOffset"})
_KNOWN = frozenset({"body", "bodyBase64", "keys", "tags", "properties", "delay", "flag", "queue", "broker"})
_SYSTEM = names.STRING_HASH_SET | {names.PROPERTY_TRANSACTION_CHECK_TIMES, names.PROPERTY_INNER_MULTI_DISPATCH}


@dataclass(frozen=True)
class Outgoing:
    """A message and its target; None means any queue, or for any broker that has the queue."""

    message: Message
    queue: int | None = None
    broker: str | None = None


def user_properties(message: Message) -> dict[str, str]:
    """Return the properties that the producer set, without keys and tags."""
    return {name: value for name, value in message.properties.items() if name not in _SYSTEM}


def system_properties(message: Message) -> dict[str, str]:
    """Return the properties that RocketMQ set, without keys and tags."""
    return {name: value for name, value in message.properties.items()
            if name in _SYSTEM and name not in (names.PROPERTY_KEYS, names.PROPERTY_TAGS)}


def as_object(message: MessageExt) -> dict[str, Any]:
    """Return a stored message as an object with all fields. Times are given as ms and as ISO 8601; a body that is not
    UTF-8, or is long, is base64; `bodyError` is the reason for a missing body."""
    return {
        "topic": message.topic, "broker": message.broker_name, "queue": message.queue_id,
        "offset": message.queue_offset, "keys": message.keys, "tags": message.tags,
        "properties": user_properties(message), **_body_fields_of(message), "flag": message.flag,
        "size": message.store_size, "msgId": message.msg_id, "offsetMsgId": getattr(message, "offset_msg_id", None),
        "bornTimestamp": message.born_timestamp, "bornTime": iso_time(message.born_timestamp),
        "bornHost": _host(message.born_host), "storeTimestamp": message.store_timestamp,
        "storeTime": iso_time(message.store_timestamp), "storeHost": _host(message.store_host),
        "reconsumeTimes": message.reconsume_times, "system": system_properties(message)}


def _body_fields_of(message: MessageExt) -> dict[str, str]:
    body = message.body
    return {"bodyError": body.reason} if isinstance(body, MissingBody) else body_fields(bytes(body))


def body_fields(body: bytes) -> dict[str, str]:
    """Return `body`, or `bodyBase64` if the body is not UTF-8 or has more than LONGEST_TEXT bytes."""
    if len(body) <= LONGEST_TEXT:
        with contextlib.suppress(UnicodeDecodeError):
            return {"body": body.decode()}
    return {"bodyBase64": base64.b64encode(body).decode()}


def body_of(fields: dict[str, Any]) -> bytes:
    """Return the bytes of `body` or `bodyBase64`; ValueError unless exactly one of them is present."""
    if ("body" in fields) == ("bodyBase64" in fields):
        raise ValueError("either `body` or, for bytes, `bodyBase64` is required")
    if "body" in fields:
        body: str = typed(fields, "body", str) or ""
        return body.encode("utf-8", "surrogatepass")
    text = typed(fields, "bodyBase64", str) or ""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii.Error, or ValueError for non-ASCII
        raise ValueError(f"bodyBase64: {error}") from None


def outgoing(fields: Any, topic: str) -> Outgoing:
    """Return the message of a JSON object; ValueError names the invalid field."""
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    if _OFFSET_OF_DUMP in fields:
        fields = _without_dump_fields(fields)
    unknown = sorted(fields.keys() - _KNOWN - _OF_THE_STORE)
    if unknown:
        raise ValueError(f"unknown field {shown(unknown[0])}; valid fields are {', '.join(sorted(_KNOWN))}")
    message = Message(topic, body_of(fields), flag=flag_of(fields))
    keys, tags = fields.get("keys"), typed(fields, "tags", str)
    if isinstance(keys, list) and not all(isinstance(key, str) for key in keys):
        raise ValueError("keys: expected strings")
    if not isinstance(keys, (str, list, type(None))):
        raise ValueError(f"keys: expected a string or a list of strings, not {shown(keys)}")
    decorate(message, keys, tags, typed(fields, "properties", dict) or {}, typed(fields, "delay", int))
    return Outgoing(message, number(fields, "queue", 0, _MOST_INT), typed(fields, "broker", str))


def _without_dump_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an object of `store dump` like one of `consume`: there, keys, tags and RocketMQ's properties are apart."""
    if "damage" in fields:
        raise ValueError(f"the message is damaged: {shown(fields['damage'])}")
    properties = typed(fields, "properties", dict) or {}
    return {**{name: value for name, value in fields.items() if name not in _OF_A_DUMP},
            "keys": properties.get(names.PROPERTY_KEYS), "tags": properties.get(names.PROPERTY_TAGS),
            "properties": {name: value for name, value in properties.items() if name not in _SYSTEM}}


def flag_of(fields: dict[str, Any]) -> int:
    """Return the 32-bit flag; 0 when it is absent."""
    return number(fields, "flag", _LEAST_INT, _MOST_INT) or 0


def check_property(name: str, value: Any) -> None:
    """Check that the wire can carry a property, else ValueError. A value may have \\x01: the first ends the name."""
    if not isinstance(value, str):
        raise ValueError(f"property {shown(name)[1:-1]}: expected a string, not {shown(value)}")
    if _AFTER_NAME in name or _AFTER_VALUE in name + value:
        raise ValueError(f"property {shown(name)}: the characters \\x01 and \\x02 separate properties on the wire")
    try:
        name.encode()
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"property {shown(name)}: a lone surrogate is not a valid character: "
                         f"{error.object[error.start]!r}") from None


def decorate(message: Message, keys: str | list[str] | None, tags: str | None, properties: dict[str, Any],
             delay: int | None) -> None:
    """Set a message's properties; ValueError for one that the wire can't carry, or that RocketMQ reserves."""
    for name, value in properties.items():
        check_property(name, value)
        if name in names.STRING_HASH_SET:
            raise ValueError(f"property {name}: RocketMQ reserves this name; use another one")
        # Blank texts can be carried, empty ones can't.
        if not name or not value:
            raise ValueError(f"property {shown(name)}: name and value must not be empty")
        message.put_property(name, value)
    if keys:
        message.set_keys(keys)
    if tags:
        message.tags = tags
    if delay is not None and not 0 <= delay <= _MOST_INT:
        raise ValueError(f"delay: {delay} is {'below 0' if delay < 0 else 'too much'}; levels begin at 1")
    if delay:
        message.delay_time_level = delay
    for name, value in message.properties.items():
        check_property(name, value)


def _host(host: Any) -> str | None:
    return f"{host[0]}:{host[1]}" if host else None


NO_GROUP = "none"
PRODUCER_GROUP = "rmqha_tools_producer"
_ASK_TIMEOUT_MS = 3_000


def checked(namesrv: str | None) -> str:
    """Return the name servers, once one of them has answered; CannotAnswerError, with a hint, if none does."""
    with connected(namesrv, _ASK_TIMEOUT_MS / 1000) as admin:
        admin.examine_broker_cluster_info()
    assert namesrv is not None
    return namesrv


def new_producer(namesrv: str | None, group: str = PRODUCER_GROUP) -> DefaultMQProducer:
    """Return a producer that is not started yet."""
    producer = DefaultMQProducer(group, checked(namesrv), account().rpc_hook)
    set_tls(producer)
    return producer


def new_consumer(namesrv: str | None, group: str = NO_GROUP, topics: Iterable[str] = ()) -> DefaultMQPullConsumer:
    """Return a pull consumer that is not started yet. With a group and topics it takes its share of the topics' queues.

    A body that can't be decompressed becomes a MissingBody: the error appears in its row.
    """
    if group == NO_GROUP:
        group, topics = TOOLS_CONSUMER_GROUP, ()
    consumer = DefaultMQPullConsumer(group, checked(namesrv), account().rpc_hook)
    set_tls(consumer)
    consumer.keep_bad_bodies = True
    consumer.register_topics = set(topics)
    return consumer


def read_queues(consumer: DefaultMQPullConsumer, topic: str) -> list[MessageQueue]:
    """Return the readable queues of a topic, in order."""
    try:
        return sorted(consumer.fetch_subscribe_message_queues(topic))
    except MQClientException as error:
        raise no_queues(consumer.api, topic, error) from error


def write_queues(producer: DefaultMQProducer, topic: str) -> list[MessageQueue]:
    """Return the writable queues of a topic, in order."""
    try:
        return sorted(producer.fetch_publish_message_queues(topic))
    except MQClientException as error:
        raise no_queues(producer.api, topic, error) from error


def queues_to_be(producer: DefaultMQProducer, topic: str) -> list[MessageQueue]:
    """Return the writable queues of a topic, or those that it will have when its first message creates it."""
    try:
        return sorted(producer.fetch_publish_message_queues(topic))
    except MQClientException as error:
        try:
            models = producer.fetch_publish_message_queues(producer.create_topic_key)
        except MQClientException:  # no broker creates topics automatically
            raise no_queues(producer.api, topic, error) from error
        return [MessageQueue(topic, model.brokerName, queue_id) for model in sorted(models) if model.queueId == 0
                for queue_id in range(producer.default_topic_queue_nums)]


def no_queues(api: MQClientAPIImpl, topic: str, error: MQClientException) -> CannotAnswerError:
    """Return the error for a topic without queues; it suggests a topic of a similar name, if there is one."""
    known = set(api.get_topic_list_from_name_server(_ASK_TIMEOUT_MS).topicList or ())
    if topic in known:
        return CannotAnswerError(f"topic {topic!r} has no usable queue: {one_line(error)}")
    near = nearest_key(topic, known)
    return CannotAnswerError(f"no topic {topic!r} at the name server" + (f"; did you mean {near}?" if near else ""))


def chosen_queues(queues: list[MessageQueue], broker: str | None, queue_id: int | None) -> list[MessageQueue]:
    """Return the queues of a broker's name, or with an id; CannotAnswerError when none matches."""
    found = [queue for queue in queues if broker in (None, queue.brokerName) and queue_id in (None, queue.queueId)]
    if not found:
        there = ", ".join(f"{queue.brokerName}:{queue.queueId}" for queue in queues[:20])
        what = f"broker {broker!r}" if queue_id is None else f"queue {queue_id}"
        raise CannotAnswerError(f"topic {queues[0].topic!r} has no queues for {what}; its queues are {there}")
    return found


_FAILURES_IN_A_ROW = 5
# Bytes: the default limit of a producer.
LONGEST_SENT = 4 << 20


@dataclass(frozen=True)
class Decoration:
    """The values that the options set for each message."""

    key: str | None
    tag: str | None
    properties: dict[str, str]
    delay: int | None
    queue: int | None
    broker: str | None

    def given_to(self, message: Message) -> Outgoing:
        """Return a message with all of these values; ValueError when one can't be sent."""
        decorate(message, self.key, self.tag, self.properties, self.delay)
        return Outgoing(message, self.queue, self.broker)

    def defaults_of(self, given: Outgoing) -> Outgoing:
        """Return a message, with these values where it has none itself."""
        message = given.message
        missing = {name: value for name, value in self.properties.items() if name not in message.properties}
        decorate(message, None if message.keys else self.key, None if message.tags else self.tag, missing,
                 None if message.delay_time_level else self.delay)
        return Outgoing(message, self.queue if given.queue is None else given.queue, given.broker or self.broker)


@dataclass(frozen=True)
class Item:
    """One message of the input, or the reason why it is invalid; `place` is file:line."""

    place: str
    outgoing: Outgoing | None
    error: str = ""


def new_topic_note(producer: DefaultMQProducer, topic: str) -> str | None:
    """Return the note for a topic without a route, which the first message creates; None if it has one.

    The note suggests a topic of a similar name, if there is one.
    """
    try:
        producer.fetch_publish_message_queues(topic)
    except MQClientException:
        known = set(producer.api.get_topic_list_from_name_server(_ASK_TIMEOUT_MS).topicList or ())
        if topic in known:
            return None
        near = nearest_key(topic, {each for each in known if not is_system_topic(each) and not each.startswith("%")})
        return f"note: the broker created topic {topic!r}" + (f"; did you mean {near!r}?" if near else "")
    return None


class Sender:
    """Sends messages to any queue, or to the queue that a message names. Says so if the first one makes the topic."""

    def __init__(self, producer: DefaultMQProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._is_first = True
        self._queues: list[MessageQueue] | None = None  # read when a message names one
        self._turns: dict[tuple[str | None, int | None], Iterator[MessageQueue]] = {}

    def send(self, outgoing: Outgoing) -> SendResult:
        """Send a message and wait for the result."""
        queue = None
        if outgoing.queue is not None or outgoing.broker is not None:
            queue = self._named_queue(outgoing.broker, outgoing.queue)
        note = new_topic_note(self._producer, self._topic) if self._is_first else None
        result = self._producer.send(outgoing.message, queue=queue)
        self._is_first = False
        if note is not None:
            put(note, err=True)
        return result

    def _named_queue(self, broker: str | None, queue_id: int | None) -> MessageQueue:
        turn = self._turns.get((broker, queue_id))
        if turn is None:
            if self._queues is None:
                self._queues = queues_to_be(self._producer, self._topic)
            found = chosen_queues(self._queues, broker, queue_id)
            if queue_id is not None and len(found) > 1:
                names = " and ".join(queue.brokerName for queue in found)
                raise CannotAnswerError(f"queue {queue_id} exists on {names}: name the broker too, with -b or `broker`")
            turn = self._turns[broker, queue_id] = cycle(found)
        return next(turn)


class Tally:
    """Counts the results of sends, prints them on request, and prints a summary at the end."""

    def __init__(self, output: str, verbose: bool) -> None:
        self._output = output
        self._verbose = verbose
        self.sent = self.failed = self.in_a_row = self.empty_lines = 0
        self.by_status: dict[str, int] = defaultdict(int)
        self.begin = time.monotonic()

    def stored(self, result: SendResult) -> None:
        """Count a stored message, by its send status."""
        self.sent, self.in_a_row = self.sent + 1, 0
        if result.send_status is not SendStatus.SEND_OK:
            self.by_status[result.send_status.name] += 1

    def show(self, result: SendResult) -> None:
        """Print the place of a stored message, if requested."""
        queue, status = result.message_queue, result.send_status
        if self._output != "table":
            emit({"topic": queue.topic, "broker": queue.brokerName, "queue": queue.queueId,
                  "offset": result.queue_offset, "msgId": result.msg_id, "offsetMsgId": result.offset_msg_id,
                  "status": status.name}, self._output)
        elif self._verbose:
            put(f"{queue.brokerName}:{queue.queueId}  {result.queue_offset}  {result.msg_id}  {status.name}")

    def lost(self, place: str, error: str) -> None:
        """Count and report a message that is not stored, or may not be."""
        self.failed, self.in_a_row = self.failed + 1, self.in_a_row + 1
        put(f"{click.style(place, fg='red')}: {error}", err=True)

    def sum(self) -> str:
        """Return the summary so far as text."""
        seconds = time.monotonic() - self.begin
        rate = f", {self.sent / seconds:,.0f}/s" if self.sent > 1 and seconds > 0 else ""
        said = [f"{counted(self.sent, 'message')} sent in {seconds:.1f} s{rate}"]
        if self.empty_lines:
            said.append(f"{counted(self.empty_lines, 'empty line')} skipped: a message needs a body")
        if self.failed:
            said.append(f"{self.failed:,} failed")
        if self.by_status:
            weak = ", ".join(f"{count:,} {name}" for name, count in sorted(self.by_status.items()))
            said.append(f"stored, but not SEND_OK: {weak}")
        return "; ".join(said)

    def tell(self) -> None:
        """Print the summary to standard error; WorkFailedError if a message failed or is not SEND_OK."""
        if self.failed or self.by_status:
            raise WorkFailedError(self.sum())
        put(self.sum(), err=True)


def items(source: str, stream: BinaryIO, kind: str, topic: str, decoration: Decoration, tally: Tally) -> Iterator[Item]:
    """Yield the messages of an input: one per line or JSON line, or one in all. Empty lines are counted and skipped.

    A line of blanks is a message, except between JSON lines, where it counts as empty.
    """
    if kind == "whole":
        yield _item(source, lambda: decoration.given_to(Message(topic, _whole(stream))))
        return
    for number, line in enumerate(lines_of(stream, LONGEST_LINE if kind == "json" else LONGEST_SENT), 1):
        if isinstance(line, bytes) and not (line.strip() if kind == "json" else line.removesuffix(b"\r")):
            tally.empty_lines += 1
            continue
        yield _item(f"{source}:{number}", partial(_of_line, line, kind, topic, decoration))


def _whole(stream: BinaryIO) -> bytes:
    data = stream.read(LONGEST_SENT + 1)
    if len(data) > LONGEST_SENT:
        raise ValueError(f"longer than {LONGEST_SENT:,} bytes, the limit for a message")
    return data


def _of_line(line: bytes | ValueError, kind: str, topic: str, decoration: Decoration) -> Outgoing:
    if isinstance(line, ValueError):
        raise line
    if kind == "json":
        return decoration.defaults_of(outgoing(parsed(line), topic))
    return decoration.given_to(Message(topic, line))


def _item(place: str, make: Callable[[], Outgoing]) -> Item:
    try:
        return Item(place, make())
    except ValueError as error:  # also JSONDecodeError and UnicodeDecodeError
        return Item(place, None, str(error))


def _texts(texts: tuple[str, ...], count: int | None, topic: str, decoration: Decoration) -> Iterator[Item]:
    for number, text in enumerate(texts if count is None else cycle(texts), 1):
        # Keeps any bytes that the shell has passed.
        line = text.encode("utf-8", "surrogateescape")
        yield _item(f"-m {number}", partial(_of_line, line, "lines", topic, decoration))


def _files(files: tuple[str, ...], kind: str, topic: str, decoration: Decoration, tally: Tally) -> Iterator[Item]:
    for name in files or ("-",):
        if name == "-":
            if sys.stdin.isatty():
                put("Enter one message per line; end with Ctrl-D.", err=True)
            yield from items("stdin", sys.stdin.buffer, kind, topic, decoration, tally)
        else:
            with open(name, "rb") as stream:
                yield from items(name, stream, kind, topic, decoration, tally)


def _properties(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not of the form name=value", param_hint="--property")
        found[name] = value
    try:
        decorate(Message("T", b"b"), None, None, found, None)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--property") from None
    return found


def send_all(sender: Sender, inputs: Iterable[Item], count: int | None, rate: float | None, tally: Tally) -> None:
    """Send messages one after the other; stop after 5 failures in a row.

    An interrupt waits for the answer to the outstanding send, and the summary is printed.
    """
    begin = tally.begin = time.monotonic()
    try:
        # islice does not read past the last one.
        for number, item in enumerate(islice(inputs, count)):
            if rate is not None:
                time.sleep(max(begin + number / rate - time.monotonic(), 0))
            _send(sender, item, tally)
            if tally.in_a_row >= _FAILURES_IN_A_ROW:
                put(f"{_FAILURES_IN_A_ROW} failures in a row; not sending the rest", err=True)
                break
    except BaseException:
        put(tally.sum(), err=True)
        raise
    tally.tell()


def _send(sender: Sender, item: Item, tally: Tally) -> None:
    if item.outgoing is None:
        tally.lost(item.place, item.error)
        return
    try:
        with interrupted_later():
            result = sender.send(item.outgoing)
            tally.stored(result)
    except CLIENT_ERRORS as error:
        tally.lost(item.place, one_line(error))
    except CannotAnswerError as error:  # a queue that does not exist
        tally.lost(item.place, error.message)
    else:
        tally.show(result)


class _ProduceCommand(click.Command):
    """The command; when -t is missing, it says so for `rmqha produce orders`, where the topic is taken for a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter:  # also a missing one
            options, _left, _order = self.make_parser(ctx).parse_args(given)
            topics, files = options.get("topic"), options.get("files")
            if not (isinstance(topics, (list, tuple)) and topics) and isinstance(files, (list, tuple)) and (
                    len(files) == 1 and files[0] != "-" and not os.path.exists(files[0])):
                raise click.UsageError(f"give the topic with -t {files[0]}", ctx) from None
            raise


@click.command("produce", cls=_ProduceCommand, epilog=examples(
    "echo hello | rmqha produce -n 127.0.0.1:9876 -t orders",
    "rmqha produce -n 127.0.0.1:9876 -t orders --tag new -m one -m two -o json"))
@namesrv_option
@topic_option
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("-g", "--group", default=PRODUCER_GROUP, show_default=True, help="The producer's group.")
@click.option("-f", "--format", "kind", type=click.Choice(["lines", "json", "whole"]), default="lines",
              show_default=True, help="The input format: one message per line, one JSON object per line, or each "
                                      "file as one message.")
@click.option("-m", "--message", "texts", multiple=True,
              help="Send this message instead of reading input. Can be repeated.")
@click.option("-k", "--key", help="The messages' key; separate several keys by blanks.")
@click.option("--tag", help="The messages' tag.")
@click.option("-p", "--property", "pairs", multiple=True, metavar="NAME=VALUE",
              help="A property of the messages. Can be repeated.")
@click.option("--delay", type=click.IntRange(1), metavar="LEVEL",
              help="Delay the delivery: a level of the broker's messageDelayLevel; 1 is 1 s, 4 is 30 s, 18 is 2 h.")
@click.option("-b", "--broker", help="Send only to the broker with this name.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Send only to the queue with this id.")
@click.option("--count", type=click.IntRange(1),
              help="Stop after N messages. With -m, the given messages are sent over and over until then.")
@click.option("--rate", type=click.FloatRange(0.001), help="The maximum rate, in messages/s.")
@click.option("-v", "--verbose", is_flag=True, help="Print the queue, offset, id and status of each message.")
@output_option
def produce_command(namesrv: str | None, topic: str, files: tuple[str, ...], group: str, kind: str,
                    texts: tuple[str, ...], key: str | None, tag: str | None, pairs: tuple[str, ...], delay: int | None,
                    broker: str | None, queue_id: int | None, count: int | None, rate: float | None, verbose: bool,
                    output: str) -> None:
    """Send lines, JSON objects or whole files as messages.

    The input is standard input, or FILES.

    JSON lines may have body or bodyBase64, keys, tags, properties, delay, queue, broker and flag. -o json prints
    the place of each stored message. Exit code 1 when a message failed, or its status is not SEND_OK. If a broker
    creates the topic for the first message, a note says so.
    """
    if texts and (files or kind != "lines"):
        raise click.UsageError("-m replaces the input: omit files and -f")
    decoration, tally = Decoration(key, tag, _properties(pairs), delay, queue_id, broker), Tally(output, verbose)
    inputs = _texts(texts, count, topic, decoration) if texts else _files(files, kind, topic, decoration, tally)
    with new_producer(namesrv, group) as producer:
        # The input may be the output of `consume`. The broker checks the size: it counts the compressed body.
        if kind == "json":
            producer.max_message_size = LONGEST_BODY
        send_all(Sender(producer, topic), inputs, count, rate, tally)
