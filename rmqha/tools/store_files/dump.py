"""`store dump`: print messages of a commit log as a table or as JSON lines, or one message in full."""
import base64
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt
from rmqha.common.message.message_decoder import create_message_id, decode, decode_message_id
from rmqha.common.message.message_layout import Host, MessageDecodeError, body_crc32
from rmqha.common.program import examples
from rmqha.common.units import TIMES
from rmqha.tools.store_files.readers import list_index, open_log
from rmqha.tools.store_files.reading import CommitLogReader, LogEnd, LogRecord, plain_keys, whole_log
from rmqha.tools.terminal import (
    CannotAnswerError,
    cell,
    emit,
    output_option,
    progress,
    put,
    render_table,
    time_text,
    time_type,
)

_HEADINGS = ("offset", "size", "topic", "queue", "queueOffset", "tags", "keys", "bornTime", "storeTime")
_RIGHT = {"offset", "size", "queue", "queueOffset"}
_ROWS_AT_ONCE = 1000
_READ = 256 << 10
_TAGS, _UNIQUE = message_const.PROPERTY_TAGS, message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX


@dataclass(frozen=True)
class Wanted:
    """A filter for messages; None matches any. Times are store times in ms, both included."""

    topic: str | None = None
    queue: int | None = None
    begin: int | None = None
    end: int | None = None
    key: str | None = None
    tag: str | None = None
    unique_key: str | None = None

    def fits(self, record: LogRecord) -> bool:
        """Return whether a record matches."""
        if (self.topic is not None and record.topic != self.topic) \
                or (self.queue is not None and record.queue_id != self.queue) \
                or (self.begin is not None and record.store_timestamp < self.begin) \
                or (self.end is not None and record.store_timestamp > self.end):
            return False
        if self.key is None and self.tag is None and self.unique_key is None:
            return True
        properties = record.properties()
        return (self.key is None or self.key in plain_keys(properties)) \
            and (self.tag is None or properties.get(_TAGS) == self.tag) \
            and (self.unique_key is None or properties.get(_UNIQUE) == self.unique_key)


class Dump:
    """The matching records of one log; `holes` counts the damaged places."""

    def __init__(self, log: CommitLogReader, wanted: Wanted) -> None:
        self.log = log
        self.wanted = wanted
        self.holes = 0

    def records(self, come_to: Callable[[int], None] = lambda position: None) -> Iterator[LogRecord]:
        """Yield the records in order, from the file in which the wanted time range begins."""
        fits = self.wanted.fits
        begin = self._begin()
        for walk, records in whole_log(self.log, self._hole, begin):
            yield from filter(fits, records)
            come_to(walk.position - self.log.min_offset)

    def _begin(self) -> int:
        """Return where to begin: a file has no match if the next file begins before the wanted time."""
        begin = self.log.min_offset
        if self.wanted.begin is not None:
            for segment in self.log.folder.segments[1:]:
                first = self.log.record_at(segment.start, check_crc=False)
                if first is None or first.store_timestamp >= self.wanted.begin:
                    break
                begin = segment.start
        return begin

    def _hole(self, end: LogEnd, record: LogRecord) -> bool:
        self.holes += 1
        where = f"{end.segment.path} at {end.position}" if end.segment is not None else "between the files"
        click.echo(f"damaged: {where}: no record at offset {end.offset}: {end.reason or 'nothing is there'}; "
                   f"continuing at {record.offset}", err=True)
        return True


class RecordBytes:
    """Reads the bytes of records that are requested in order, many at a time."""

    def __init__(self, log: CommitLogReader) -> None:
        self.log = log
        self._offset = 0
        self._data = b""

    def of(self, record: LogRecord) -> bytes:
        """Return the bytes of a record."""
        at = record.offset - self._offset
        if not 0 <= at <= len(self._data) - record.size:
            self._data, self._offset, at = self.log.read(record.offset, max(_READ, record.size)), record.offset, 0
        return self._data[at:at + record.size]


def message_object(log: CommitLogReader, offset: int) -> dict[str, Any]:
    """Return the message at `offset` with all fields. CannotAnswerError when no record begins there."""
    data = log.record_bytes(offset)
    if not data:
        raise CannotAnswerError(f"no message at offset {offset}; the files hold {log.min_offset} to {log.files_end}. "
                                "The offset must be the first byte of a record.")
    return decoded(data, offset)


def decoded(data: bytes, offset: int) -> dict[str, Any]:
    """Return all fields of the record `data` at `offset`, by Java's names; the body is "body" (text) or "bodyBase64"
    (bytes)."""
    notes = {}
    stored = decode(data, True, False)
    try:
        message = decode(data)
    except MessageDecodeError as error:
        message, notes = stored, {"damage": error.reason}
    if stored.body and body_crc32(stored.body) != stored.body_crc:
        notes["damage"] = "the CRC of the body is wrong"
    return {**_fields(message, offset), **notes, "properties": message.properties, **_body(message.body)}


def _fields(message: MessageExt, offset: int) -> dict[str, Any]:
    born_host, store_host = message.born_host, message.store_host
    assert born_host is not None and store_host is not None  # it was decoded
    fields = {
        "commitLogOffset": offset, "storeSize": message.store_size, "msgId": message.msg_id, "topic": message.topic,
        "queueId": message.queue_id, "queueOffset": message.queue_offset, "flag": message.flag,
        "sysFlag": message.sys_flag, "bornTimestamp": message.born_timestamp, "bornHost": _host(born_host),
        "storeTimestamp": message.store_timestamp, "storeHost": _host(store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset, "bodyCRC": message.body_crc}
    if message.commit_log_offset != offset:
        # The wrong offset that the record contains.
        fields["physicalOffset"] = message.commit_log_offset
        fields["msgId"] = create_message_id(store_host, offset)
    return fields


def _host(host: Host) -> str:
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def _body(body: bytes | memoryview) -> dict[str, str]:
    data = bytes(body)
    try:
        return {"body": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(data).decode()}


def _row(record: LogRecord) -> tuple[str, ...]:
    properties = record.properties()
    return (str(record.offset), str(record.size), cell(record.topic), str(record.queue_id), str(record.queue_offset),
            cell(properties.get(_TAGS, "")), cell(properties.get(message_const.PROPERTY_KEYS, "")),
            time_text(record.born_timestamp), time_text(record.store_timestamp))


def _print_table(records: Iterable[LogRecord]) -> None:
    """Print rows in blocks, so that the first appear at once; columns never become narrower from block to block."""
    rows = map(_row, records)
    widths: list[int] = [len(heading) for heading in _HEADINGS]
    first = True
    while block := list(islice(rows, _ROWS_AT_ONCE)):
        widths = [max(width, *map(len, column)) for width, column in zip(widths, zip(*block))]
        filler = tuple("-" * width for width in widths)
        lines = render_table(_HEADINGS, [*block, filler], _RIGHT).split("\n")[:-1]
        put("\n".join(lines if first else lines[2:]))
        first = False


def _print_full(message: dict[str, Any]) -> None:
    properties = message.pop("properties")
    texts = {name: f"{value} ({time_text(value)})" if name.endswith("Timestamp") else cell(str(value))
             for name, value in message.items() if not name.startswith("body") or name == "bodyCRC"}
    texts |= {f"property {cell(name)}": cell(value) for name, value in properties.items()}
    width = max(map(len, texts))
    for name, value in texts.items():
        put(f"{name.ljust(width)}  {value}")
    name = "bodyBase64" if "bodyBase64" in message else "body"
    body = message[name]
    put(f"{name}:")
    put("\n".join(map(cell, body.split("\n"))))


def _one_offset(log: CommitLogReader, path: str, wanted: Wanted, offset: int | None, msg_id: str | None) -> int:
    """Return the offset of the one requested message."""
    if msg_id is not None:
        try:
            return decode_message_id(msg_id).offset
        except MessageDecodeError as error:
            raise CannotAnswerError(f"--msg-id {msg_id!r}: {error.reason}. To find a unique key, use "
                                    "--unique-key.") from None
    if offset is not None:
        return offset
    found = _by_index(log, path, wanted)
    if found is None:
        dump = Dump(log, wanted)
        with progress("search", log.files_end - log.min_offset) as come_to:
            found = next(dump.records(come_to), None)
    if found is None:
        raise CannotAnswerError(f"no message has the unique key {wanted.unique_key!r}")
    return found.offset


def _by_index(log: CommitLogReader, path: str, wanted: Wanted) -> LogRecord | None:
    """Find a message by the store's index; None without a topic or an entry."""
    folder = os.path.join(path, "index")
    if wanted.topic is None or wanted.unique_key is None or not os.path.isdir(folder):
        return None
    for reader in reversed(list_index(folder)[0]):
        for offset in reader.find(wanted.topic, wanted.unique_key):
            record = log.record_at(offset, check_crc=False) if offset >= 0 else None
            if record is not None and wanted.fits(record):
                return record
    return None


@click.command("dump", short_help="Print the messages of a store or of a commit log file.", epilog=examples(
    "rmqha store dump ~/store --topic orders --limit 5",
    "rmqha store dump ~/store --msg-id 7F00000100002A9F0000000000000000 -o json"))
@click.argument("path", metavar="ROOT|FILE", type=click.Path(exists=True))
@click.option("-t", "--topic", help="Print only messages of this topic.")
@click.option("--queue", type=click.IntRange(0), help="Print only messages of this queue id.")
@click.option("--from", "begin", type=time_type(), help=f"Stored at TIME or later: {TIMES}. Earlier files are skipped "
              "by the time of their first message.")
@click.option("--to", "end", type=time_type(), help="Stored at TIME or earlier.")
@click.option("--key", help="Print only messages with this word among their keys, or this unique key.")
@click.option("--tag", help="Print only messages with this tag.")
@click.option("--limit", type=click.IntRange(1), help="Print at most N messages.")
@click.option("--offset", type=click.IntRange(0), help="Print the message at this commit log offset, in full.")
@click.option("--msg-id", help="Print the message with this offset message id, in full.")
@click.option("--unique-key", help="Print the message with this unique key, in full; faster with --topic.")
@output_option
def dump_command(path: str, topic: str | None, queue: int | None, begin: int | None, end: int | None, key: str | None,
                 tag: str | None, limit: int | None, offset: int | None, msg_id: str | None, unique_key: str | None,
                 output: str) -> None:
    """Print the messages of a store, of a commit log folder, or of one commit log file.

    -o json prints one line of JSON per message, with its body as text or as base64. Exit code 1 when a place in the log
    is damaged; the messages after it are printed too.
    """
    if sum(option is not None for option in (offset, msg_id, unique_key)) > 1:
        raise CannotAnswerError("--offset, --msg-id and --unique-key exclude each other: each selects one message")
    wanted = Wanted(topic, queue, begin, end, key, tag, unique_key)
    log = open_log(path)
    if offset is not None or msg_id is not None or unique_key is not None:
        message = message_object(log, _one_offset(log, path, wanted, offset, msg_id))
        if output != "table":
            emit(message, output)
        else:
            _print_full(message)
        return
    dump = Dump(log, wanted)
    with ExitStack() as stack:
        come_to: Callable[[int], None] = lambda position: None  # noqa: E731, no name is needed
        if not sys.stdout.isatty():
            come_to = stack.enter_context(progress("dump", log.files_end - log.min_offset))
        records = islice(dump.records(come_to), limit)
        if output != "table":
            record_bytes = RecordBytes(log)
            for record in records:
                emit(decoded(record_bytes.of(record), record.offset), output)
        else:
            _print_table(records)
    if dump.holes:
        raise SystemExit(1)


