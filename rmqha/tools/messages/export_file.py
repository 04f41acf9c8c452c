"""The file of `rmqha export` and `import`: JSON lines, compressed when its name ends in .gz.

First line: {"rmqhaExport": 1, "exportedTimestamp": ms, "exportedTime": ..., "topics": {topic: {broker: queues}}}
Then a message a line, in the form of `message_json`: topic after topic, queue after queue, each in its order.
Last line: {"end": true, "messages": count}. A file without it was cut off.
"""
import gzip
import io
import itertools
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, BinaryIO, Self, cast

from rmqha.common import filesystem
from rmqha.common.message import message_const as names
from rmqha.common.message.message import Message, parse_int
from rmqha.common.topics import check_topic
from rmqha.tools.dialect.exit_codes import CannotAnswerError, WorkFailedError
from rmqha.tools.dialect.output import iso_time, to_json
from rmqha.tools.messages.json_lines import (
    LONGEST_LINE,
    LineTooLongError,
    NoEndOfLineError,
    needed,
    number,
    parsed,
    read_line,
    shown,
    skip_line,
    typed,
)
from rmqha.tools.messages.message_json import body_of, check_property, flag_of

VERSION = 1
STANDARD = "-"
_LONGEST_HEADER = 16 << 20  # bytes
MOST_QUEUES = 1 << 16  # of a topic
_MOST_QUEUES_IN_ALL = 1 << 20
_COUNTS = (names.PROPERTY_RECONSUME_TIME, names.PROPERTY_MAX_RECONSUME_TIMES)  # sent as numbers with a retry
# What belongs to a store or to a delivery, and would be wrong in another: a delay that is over, the bounds of a queue,
# the state of a transaction; and whether its sender waited.
NOT_CARRIED = frozenset({
    names.PROPERTY_MIN_OFFSET, names.PROPERTY_MAX_OFFSET, names.PROPERTY_WAIT_STORE_MSG_OK,
    names.PROPERTY_DELAY_TIME_LEVEL, names.PROPERTY_CLUSTER, names.PROPERTY_CONSUME_START_TIMESTAMP,
    names.PROPERTY_TRANSACTION_PREPARED,
    names.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, names.PROPERTY_TRANSACTION_CHECK_TIMES,
    names.PROPERTY_INNER_MULTI_DISPATCH, names.PROPERTY_INNER_MULTI_QUEUE_OFFSET})

QueueName = tuple[str, int]
"""Broker and queue id."""


class MessageFailedError(WorkFailedError):
    """One message can't be imported; those behind it perhaps can."""


class LongLineError(MessageFailedError):
    """The rest of its line is not read yet."""


@dataclass(frozen=True)
class Exported:
    """A message of a file: the line it stands in, and where it was."""

    line: int
    topic: str
    queue: QueueName
    message: Message


@contextmanager
def writing(path: str, force: bool) -> Iterator[IO[str]]:
    """A text stream into a file that appears under its name when it is whole; into a pipe, or to standard output."""
    if path == STANDARD:
        yield sys.stdout
        return
    try:
        with filesystem.writing(path, force) as file, _text(file, path) as stream:
            yield stream
    except FileExistsError:
        raise CannotAnswerError(f"{path} exists: --force writes over it") from None


@contextmanager
def _text(file: IO[bytes], path: str) -> Iterator[IO[str]]:
    raw = gzip.GzipFile(fileobj=file, mode="wb") if path.endswith(".gz") else file
    stream = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    try:
        yield stream
    finally:
        stream.detach()  # flushes; the file is its opener's
        if raw is not file:
            raw.close()


def header(topics: dict[str, dict[str, int]]) -> str:
    """The first line."""
    now = int(time.time() * 1000)
    return to_json({"rmqhaExport": VERSION, "exportedTimestamp": now, "exportedTime": iso_time(now), "topics": topics})


def trailer(count: int) -> str:
    """The last line."""
    return to_json({"end": True, "messages": count})


class ExportReader:
    """Reads a file: its header when it is entered, then its messages. A context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.topics: dict[str, dict[str, int]] = {}
        self._number = 0  # of the last line that was read
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Read the header. CannotAnswerError for a file that is no export."""
        with ExitStack() as stack:
            try:
                self._stream = self._opened(stack)
                first = self._parsed(self._next_line(_LONGEST_HEADER))
                if first.get("rmqhaExport") != VERSION:
                    raise CannotAnswerError(f"{self.path}:1: no export of rmqha, or of a newer one: the first line "
                                            f'must have "rmqhaExport": {VERSION}')
                self.topics = self._checked_topics(first)
            except WorkFailedError as error:
                raise CannotAnswerError(f"{error.message}; this is no export of rmqha") from None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def messages(self, skip: int = 0) -> Iterator[Exported]:
        """Each message after the first `skip`, whatever those are. WorkFailedError for a line that is not one, and in
        the end for a file that was cut off.
        """
        for count in itertools.count():
            line = self._message_line(count < skip)
            if not line:
                raise WorkFailedError(f"{self.path}: cut off behind line {self._number}: its last line is missing")
            fields = self._fields(line, count < skip)
            if fields is not None and fields.get("end") is True:
                self._check_end(fields, count)
                return
            if fields is not None and count >= skip:
                yield self._exported(fields)

    def _opened(self, stack: ExitStack) -> BinaryIO:
        if self.path == STANDARD:
            return sys.stdin.buffer
        file = stack.enter_context(open(self.path, "rb"))  # noqa: SIM115, the stack closes it
        return cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file))) if self.path.endswith(".gz") else file

    def _message_line(self, is_skipped: bool) -> bytes:
        try:
            return self._next_line(LONGEST_LINE)
        except LongLineError:
            if not is_skipped:
                raise
            self._read(skip_line)
            return b"\n"

    def _next_line(self, limit: int) -> bytes:
        """The next line, b"" after the last."""
        line = self._read(partial(read_line, limit=limit))
        self._number += 1 if line else 0
        return line

    def _read(self, read: Callable[[BinaryIO], bytes]) -> bytes:
        try:
            return read(self._stream)
        except LineTooLongError as error:
            self._number += 1
            raise LongLineError(f"{self.path}:{self._number}: {error}") from None
        except NoEndOfLineError as error:
            raise WorkFailedError(f"{self.path}:{self._number}: {error}") from None
        except (EOFError, OSError, zlib.error) as error:  # BadGzipFile is an OSError
            raise WorkFailedError(f"{self.path}: damaged behind line {self._number}: {error}") from error

    def _fields(self, line: bytes, is_skipped: bool) -> dict[str, Any] | None:
        """What a line says; None for one that is skipped, and says nothing."""
        try:
            return self._parsed(line)
        except MessageFailedError:
            if is_skipped:
                return None
            raise

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            fields = parsed(line)
        except ValueError as error:
            raise MessageFailedError(f"{self.path}:{max(self._number, 1)}: {error}") from None
        if not isinstance(fields, dict):
            raise MessageFailedError(f"{self.path}:{self._number}: not a JSON object")
        return fields

    def _check_end(self, fields: dict[str, Any], count: int) -> None:
        if fields.get("messages") != count or self._next_line(LONGEST_LINE):
            raise WorkFailedError(f"{self.path}:{self._number}: written were {shown(fields.get('messages'))} messages,"
                                  f" and {count} are there")

    def _checked_topics(self, first: dict[str, Any]) -> dict[str, dict[str, int]]:
        """Topic -> broker -> queues. WorkFailedError for anything else, and for more queues than any cluster has."""
        try:
            topics: dict[str, dict[str, int]] = needed(first, "topics", dict)
            total = 0
            for topic in topics:
                if (problem := check_topic(topic)) is not None:
                    raise ValueError(f"topic {shown(topic)}: {problem}")
                of_brokers = needed(topics, topic, dict)
                if not of_brokers:
                    raise ValueError(f"topic {shown(topic)} has no queue")
                for broker in of_brokers:
                    needed(of_brokers, broker, int)
                    total += number(of_brokers, broker, 1, MOST_QUEUES) or 0
                if sum(of_brokers.values()) > MOST_QUEUES:
                    raise ValueError(f"topic {shown(topic)} has more than {MOST_QUEUES:,} queues")
            if total > _MOST_QUEUES_IN_ALL:
                raise ValueError(f"{total:,} queues are more than the {_MOST_QUEUES_IN_ALL:,} that are taken")
        except ValueError as error:
            raise WorkFailedError(f"{self.path}:1: {error}") from None
        return topics

    def _exported(self, fields: dict[str, Any]) -> Exported:
        try:
            topic, broker, queue = (needed(fields, "topic", str), needed(fields, "broker", str),
                                    needed(fields, "queue", int))
            if not 0 <= queue < self.topics.get(topic, {}).get(broker, 0):
                raise ValueError(f"queue {queue} of {shown(topic)} at {shown(broker)} is none of the first line")
            return Exported(self._number, topic, (broker, queue), restored(fields, topic))
        except ValueError as error:
            raise MessageFailedError(f"{self.path}:{self._number}: {error}") from None


def restored(fields: dict[str, Any], topic: str) -> Message:
    """The message of an export's line, with all properties that can be carried; its message id is one of them.

    ValueError that says what is wrong with which field.
    """
    needed(fields, "flag", int)
    message = Message(topic, body_of(fields), flag=flag_of(fields))
    message.clear_property(names.PROPERTY_WAIT_STORE_MSG_OK)  # brokers keep it in a batch, and not else
    for name, value in {**needed(fields, "properties", dict), **needed(fields, "system", dict)}.items():
        check_property(name, value)
        if name not in NOT_CARRIED:
            message.put_property(name, value)
    for name, field in ((names.PROPERTY_KEYS, "keys"), (names.PROPERTY_TAGS, "tags")):
        if field not in fields:
            raise ValueError(f"{field} is missing")
        value = typed(fields, field, str)
        if value is not None:
            check_property(name, value)
            message.put_property(name, value)
    for name in _COUNTS:
        if name in message.properties:
            try:
                parse_int(message.properties[name])
            except ValueError:
                raise ValueError(f"property {name}: a number is wanted, not "
                                 f"{shown(message.properties[name])}") from None
    return message
