"""The file of `rmqha export` and `import`: JSON lines, compressed when its name ends in .gz.

First line: {"rmqhaExport": 1, "exportedTimestamp": ms, "exportedTime": ..., "topics": {topic: {broker: queues}}}
Then a message a line, in the form of `message_json`: topic after topic, queue after queue, each in its order.
Last line: {"end": true, "messages": count}. A file without it was cut off.
"""
import gzip
import io
import json
import os
import sys
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Self

import click

from rmqha.common.message import message_const as names
from rmqha.common.message.message import Message
from rmqha.common.topic.topic_validator import check_topic
from rmqha.tools.dialect.exit_codes import CannotAnswerError, WorkFailedError
from rmqha.tools.dialect.output import iso_time, to_json
from rmqha.tools.messages.message_json import SEPARATORS, body_of

VERSION = 1
STANDARD = "-"
MOST_OF_A_LINE = 128 << 20  # characters: a message of 16 MiB whose every byte is escaped
MOST_QUEUES, MOST_QUEUES_OF_A_FILE = 65_536, 1_000_000
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


@dataclass(frozen=True)
class Exported:
    """A message of a file: the line it stands in, and where it was."""

    line: int
    topic: str
    queue: QueueName
    message: Message


@contextmanager
def writing(path: str, force: bool) -> Iterator[IO[str]]:
    """A text stream into a file that appears under its name when it is whole, or to standard output."""
    if path == STANDARD:
        yield sys.stdout
        return
    if os.path.exists(path) and not force:
        raise CannotAnswerError(f"{path} exists: --force writes over it")
    part = f"{path}.part"
    try:
        with open(part, "wb") as file:
            with _text(file, path, "wb") as stream:
                yield stream
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


@contextmanager
def _text(file: IO[bytes], path: str, mode: str) -> Iterator[IO[str]]:
    raw = gzip.GzipFile(fileobj=file, mode=mode) if path.endswith(".gz") else file
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
        self._lines = self._read_lines()
        self._number = 0

    def __enter__(self) -> Self:
        """Read the header. CannotAnswerError for a file that is no export."""
        try:
            try:
                first = self._parsed(next(self._lines, ""))
            except WorkFailedError as error:
                raise CannotAnswerError(f"{error.message}; this is no export of rmqha") from None
            if first.get("rmqhaExport") != VERSION:
                raise CannotAnswerError(f"{self.path}:1: no export of rmqha, or of a newer one: the first line must "
                                        f'have "rmqhaExport": {VERSION}')
            self.topics = _topics(first.get("topics"), self.path)
        except click.ClickException:
            self._lines.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._lines.close()

    def messages(self) -> Iterator[Exported]:
        """Each message. WorkFailedError for a line that is none, and in the end for a file that was cut off."""
        for count, text in enumerate(self._lines):
            fields = self._parsed(text)
            if fields.get("end") is True:
                if fields.get("messages") != count or next(self._lines, ""):
                    raise WorkFailedError(f"{self.path}:{self._number}: written were {fields.get('messages')} messages,"
                                          f" and {count} are there")
                return
            yield self._exported(fields)
        raise WorkFailedError(f"{self.path}: cut off behind line {self._number}: its last line is missing")

    def _read_lines(self) -> Generator[str, None, None]:
        if self.path == STANDARD:
            yield from self._bounded(sys.stdin)
            return
        try:
            with open(self.path, "rb") as file, _text(file, self.path, "rb") as stream:
                for line in self._bounded(stream):  # noqa: UP028, yield from closes it too early
                    yield line
        except (EOFError, gzip.BadGzipFile, UnicodeDecodeError, zlib.error) as error:
            raise WorkFailedError(f"{self.path}: damaged behind line {self._number}: {error}") from error

    def _bounded(self, stream: IO[str]) -> Iterator[str]:
        """The lines. A few packed bytes may stand for very many, so WorkFailedError for one that is too long."""
        while line := stream.readline(MOST_OF_A_LINE + 1):
            if len(line) > MOST_OF_A_LINE:
                raise WorkFailedError(f"{self.path}:{self._number + 1}: the line is longer than {MOST_OF_A_LINE} "
                                      "characters, which no message's is")
            yield line

    def _parsed(self, text: str) -> dict[str, Any]:
        self._number += 1
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise WorkFailedError(f"{self.path}:{self._number}: {error}") from None
        except RecursionError:
            raise WorkFailedError(f"{self.path}:{self._number}: nested too deeply") from None
        if not isinstance(fields, dict):
            raise WorkFailedError(f"{self.path}:{self._number}: not a JSON object")
        return fields

    def _exported(self, fields: dict[str, Any]) -> Exported:
        try:
            topic, queue = fields["topic"], (fields["broker"], fields["queue"])
            if type(queue[1]) is not int:
                raise ValueError(f"queue: a whole number is wanted, not {queue[1]!r:.80}")
            if queue[0] not in self.topics.get(topic, {}) or not 0 <= queue[1] < self.topics[topic][queue[0]]:
                raise ValueError(f"queue {queue[1]!r:.80} of {topic!r:.200} at {queue[0]!r:.200} is not in the "
                                 "first line")
            return Exported(self._number, topic, queue, restored(fields, topic))
        except KeyError as error:
            raise WorkFailedError(f"{self.path}:{self._number}: {error.args[0]} is missing") from None
        except (TypeError, ValueError) as error:
            raise WorkFailedError(f"{self.path}:{self._number}: {error}") from None


def _topics(value: object, path: str) -> dict[str, dict[str, int]]:
    """Topic -> broker -> number of queues, as the first line has them. CannotAnswerError for anything else."""
    try:
        if not isinstance(value, dict):
            raise ValueError("an object of topics is wanted")
        for topic, brokers in value.items():
            problem = check_topic(topic)
            if problem is not None:
                raise ValueError(f"topic {topic!r:.200}: {problem}")
            if not isinstance(brokers, dict) or not brokers or not all(
                    type(count) is int and 0 < count <= MOST_QUEUES for count in brokers.values()):
                raise ValueError(f"topic {topic!r}: each broker has 1 to {MOST_QUEUES} queues, and there is one at "
                                 "least")
        if sum(sum(brokers.values()) for brokers in value.values()) > MOST_QUEUES_OF_A_FILE:
            raise ValueError(f"more than {MOST_QUEUES_OF_A_FILE} queues")
    except ValueError as error:
        raise CannotAnswerError(f"{path}:1: topics: {error}") from None
    return value


def _check_fields(fields: dict[str, Any]) -> None:
    """ValueError for what could not be sent."""
    flag = fields["flag"]
    if type(flag) is not int or not -(1 << 31) <= flag < 1 << 31:
        raise ValueError(f"flag: a whole number of 32 bits is wanted, not {flag!r:.80}")
    for name in ("properties", "system"):
        properties = fields[name]
        if not isinstance(properties, dict):
            raise ValueError(f"{name}: an object of texts is wanted, not {properties!r:.80}")
        for key, value in properties.items():
            if not isinstance(value, str):
                raise ValueError(f"property {key:.80} of {name}: a text is wanted, not {value!r:.80}")
            if any(separator in key + value for separator in SEPARATORS):
                raise ValueError(f"property {key:.80} of {name}: the characters \\x01 and \\x02 separate properties "
                                 "on the wire")
    for name in ("keys", "tags"):
        text = fields[name]
        if not isinstance(text, (str, type(None))) or any(separator in (text or "") for separator in SEPARATORS):
            raise ValueError(f"{name}: a text without \\x01 and \\x02 is wanted, not {text!r:.80}")


def restored(fields: dict[str, Any], topic: str) -> Message:
    """The message of an export's line, with all properties that can be carried; its message id is one of them.

    KeyError, ValueError for fields that are missing or wrong.
    """
    _check_fields(fields)
    message = Message(topic, body_of(fields), flag=fields["flag"])
    message.clear_property(names.PROPERTY_WAIT_STORE_MSG_OK)  # brokers keep it in a batch, and not else
    for name, value in {**fields["properties"], **fields["system"]}.items():
        if name not in NOT_CARRIED:
            message.put_property(name, value)
    for name, value in ((names.PROPERTY_KEYS, fields["keys"]), (names.PROPERTY_TAGS, fields["tags"])):
        if value is not None:
            message.put_property(name, value)
    return message
