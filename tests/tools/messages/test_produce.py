"""Untrusted lines and fields, queues whose messages are deleted while being read, and the figures of `rmqha bench`."""
import gzip
import io
import itertools
import json
import random
import tracemalloc

import click
import pytest

from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.results import PullResult, PullStatus
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.tools.messages import bench, export_file, produce
from rmqha.tools.messages.consume import QueueFeed
from rmqha.tools.messages.export_file import ExportReader
from rmqha.tools.messages.produce import LineTooLongError, body_fields, body_of, lines_of, outgoing, parsed
from rmqha.tools.terminal import WorkFailedError, to_json

# Untrusted input: any error in a line or a field has a type and a place, and memory is bounded.

HEADER = {"rmqhaExport": 1, "topics": {"T": {"b": 1}}}
MESSAGE = {"topic": "T", "broker": "b", "queue": 0, "body": "x", "flag": 0, "keys": None, "tags": None,
           "properties": {"a": "b"}, "system": {"UNIQ_KEY": "0" * 32}}
ODD = (None, True, -1, 0, 1, 1 << 31, -(1 << 31) - 1, 1 << 70, 1e30, -0.5, float("inf"), "", "x", " ", "\x01", "\x02",
       "a\x02b", "\ud800", "x" * 100_000, [], ["x"], [[]], {}, {"": ""}, {"a": 1}, {"a": None}, {"a\x01": "x"},
       {"a": "\udfff"}, {"\x02": "x"}, {"RECONSUME_TIME": "x"}, {"MAX_RECONSUME_TIMES": str(1 << 40)})


def read(data: bytes, folder, name="file", skip=0):
    (folder / name).write_bytes(data)
    with ExportReader(str(folder / name)) as reader:
        return list(reader.messages(skip))


def lines(*objects) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def place(path, value, of):
    """Return a copy of an object with a value at a path of keys."""
    if not path:
        return value
    return {**of, path[0]: place(path[1:], value, of.get(path[0], {}))}


@pytest.mark.parametrize("path", [("rmqhaExport",), ("topics",), ("topics", "T"), ("topics", "T", "b"), ("topics", ""),
                                  ("topics", "T", "")], ids=str)
def test_header_with_arbitrary_values(tmp_path, path):
    refused = 0
    for value in ODD:
        try:
            read(lines(place(path, value, HEADER), MESSAGE, {"end": True, "messages": 1}), tmp_path)
        except click.ClickException as error:
            refused += 1
            assert str(tmp_path / "file") in error.message and len(error.message) < 1000
    assert refused >= len(ODD) - 2


@pytest.mark.parametrize("path", [(name,) for name in (*MESSAGE, "bodyBase64", "end")] + [
    ("properties", "a"), ("properties", "RECONSUME_TIME"), ("system", "UNIQ_KEY")], ids=str)
def test_message_with_arbitrary_values(tmp_path, path):
    """Check that an accepted message can be sent: its fields fit those of the wire format."""
    for value, topic in itertools.product(ODD, ("T", "%RETRY%g")):
        changed = place(path, value, {**MESSAGE, "topic": topic})
        if path == ("bodyBase64",):
            del changed["body"]
        header = {"rmqhaExport": 1, "topics": {topic: {"b": 1}}}
        try:
            found = read(lines(header, changed, {"end": True, "messages": 1}), tmp_path)
        except click.ClickException as error:
            assert f"{tmp_path / 'file'}:" in error.message and len(error.message) < 1000
            continue
        for each in found:
            text = message_decoder.message_properties2string(each.message.properties)
            if len(text) < 30_000:
                body = MessageBatch([each.message]).encode()
                again, = message_decoder.decode_messages(body)
                given = {name: text for name, text in each.message.properties.items() if name and text}
                assert again.properties == given and again.body == each.message.body
            assert json.dumps(text).encode() and -(1 << 31) <= each.message.flag < 1 << 31


@pytest.mark.parametrize("name", [name for name in MESSAGE if name != "body"])
def test_missing_field_is_named(tmp_path, name):
    changed = {key: value for key, value in MESSAGE.items() if key != name}
    with pytest.raises(click.ClickException, match=f"file:2: {name} is missing"):
        read(lines(HEADER, changed), tmp_path)


@pytest.mark.parametrize("name", ["body", "bodyBase64", "flag", "keys", "tags", "properties", "delay", "queue",
                                  "broker"])
@pytest.mark.parametrize("dump", [{}, {"commitLogOffset": 0}], ids=["consume", "dump"])
def test_input_of_produce_with_arbitrary_values(name, dump):
    for value in ODD:
        fields = {**dump, "body": "x", name: value}
        if name == "bodyBase64":
            del fields["body"]
        try:
            given = outgoing(parsed(lines(fields)), "T")
        except ValueError as error:
            assert 0 < len(str(error)) < 1000
            continue
        if len(message_decoder.message_properties2string(given.message.properties)) < 30_000:
            MessageBatch([given.message]).encode()
        assert given.message.delay_time_level >= 0


@pytest.mark.parametrize("data", [
    b"[" * 200_000, b'{"a":' * 200_000, b"9" * 5_000, b"1e", b"NaN", b"-Infinity", b"\xff", b"", b"\xef\xbb\xbf{}",
    b'{"a": 1', b"'x'", "{}".encode("utf-16")], ids=lambda data: repr(data[:9]))
def test_texts_that_are_not_json_are_refused(tmp_path, data):
    with pytest.raises(ValueError):
        parsed(data)
    with pytest.raises(click.ClickException):
        read(data, tmp_path)
    with pytest.raises(click.ClickException, match="file:2: "):
        read(lines(HEADER) + data + b"\n", tmp_path)


def test_large_numbers_in_a_header_take_no_memory(tmp_path):
    topics = [{"T": {"b": 1_000_000_000}}, {"T": {str(n): 30_000 for n in range(3)}},
              {f"T{n}": {"b": 60_000} for n in range(20)}]
    tracemalloc.start()
    try:
        for each in topics:
            with pytest.raises(click.ClickException, match="file:1: "):
                read(lines({"rmqhaExport": 1, "topics": each}), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_file_without_line_ends_is_not_read_to_its_end(tmp_path, name, monkeypatch):
    monkeypatch.setattr(export_file, "_LONGEST_HEADER", 1 << 20)
    data = b'{"rmqhaExport": 1, "x": "' + bytes(32 << 20)
    data = gzip.compress(data) if name.endswith(".gz") else data
    tracemalloc.start()
    try:
        with pytest.raises(click.ClickException, match="longer than 1,048,576 bytes"):
            read(data, tmp_path, name)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_lines_that_are_too_long_are_errors_and_can_be_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(export_file, "LONGEST_LINE", 10_000)
    data = lines(HEADER, MESSAGE, {**MESSAGE, "body": "x" * 200_000}, {"no": "message"}, MESSAGE,
                 {"end": True, "messages": 4})
    for skip, number in ((0, 3), (1, 3), (2, 4)):
        with pytest.raises(export_file.MessageFailedError, match=f"file:{number}: "):
            read(data, tmp_path, skip=skip)
    assert [each.line for each in read(data, tmp_path, skip=3)] == [5]
    assert read(data, tmp_path, skip=4) == []


def test_compressed_file_with_any_byte_changed(tmp_path):
    data = bytearray(gzip.compress(lines(HEADER, *[MESSAGE] * 50, {"end": True, "messages": 50})))
    for position in [*range(20), *random.Random(1).sample(range(len(data)), 100), len(data) - 1]:
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        try:
            assert len(read(bytes(damaged), tmp_path, "file.gz")) == 50
        except click.ClickException as error:
            assert "file.gz" in error.message


def test_line_of_each_length_around_the_limit():
    for length in range(9):
        stream = io.BytesIO(b"x" * length + b"\n" + b"next\n" + b"y" * length)
        found = [each if isinstance(each, bytes) else None for each in lines_of(stream, 4)]
        text = b"x" * length if length <= 4 else None
        last = [] if not length else [b"y" * length if length <= 4 else None]
        assert found == [text, b"next", *last]
    assert [str(each) for each in lines_of(io.BytesIO(b"y" * 9), 4) if isinstance(each, LineTooLongError)] == [
        "the line is longer than 4 bytes"]


class Endless(io.RawIOBase):
    """A device like /dev/zero: an endless stream of bytes, which counts those that were read."""

    count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        assert self.count < 1 << 24, "the device is read without end"
        self.count += len(buffer)
        buffer[:] = bytes(len(buffer))
        return len(buffer)


def test_endless_line_is_an_error_and_ends_the_input(monkeypatch, tmp_path):
    monkeypatch.setattr(produce, "LONGEST_SKIPPED", 1 << 20)
    stream = io.BufferedReader(Endless())
    found = list(lines_of(stream, 1000))
    assert [type(each) for each in found] == [produce.NoEndOfLineError] and stream.raw.count < 2 << 20
    assert "not end within 1,048,576 bytes" in str(found[0])
    monkeypatch.setattr(export_file, "LONGEST_LINE", 1000)
    with pytest.raises(click.ClickException, match="file:2: .*not end within"):
        read(lines(HEADER) + b"x" * (3 << 20), tmp_path, skip=1)


def test_exported_messages_fit_in_a_line(monkeypatch):
    """Check that, whatever the body, an exported line is not longer than import accepts."""
    monkeypatch.setattr(produce, "LONGEST_TEXT", 1000)
    monkeypatch.setattr("rmqha.tools.messages.produce.LONGEST_TEXT", 1000)
    for body in (b"\x01" * 1000, b"\x01" * 1001, b"\xff" * 2000, "ü".encode() * 800):
        fields = body_fields(body)
        assert body_of(fields) == body and len(to_json(fields)) < 6 * 1000 + 100
    assert produce.LONGEST_LINE > 6 * (32 << 20) + 6 * 32767
    assert produce.LONGEST_LINE > produce.LONGEST_BODY * 4 // 3 + 6 * 32767


# Messages deleted while their queue is read: reported, and reading resumes at the right offset, or an error.

QUEUE = MessageQueue("T", "b", 0)


class FakeConsumer:
    """A consumer of a queue with the offsets [first, end), of which it returns two at a time; no others arrive."""

    def __init__(self, first: int, end: int) -> None:
        self.first, self.end = first, end

    def pull_block_if_not_found_async(self, queue, selector, offset, most, callback) -> None:
        if self.first <= offset < self.end:
            found = []
            for number in range(offset, min(offset + 2, self.end)):
                message = MessageExt("T", b"")
                message.queue_offset = number
                found.append(message)
            callback.on_success(PullResult(PullStatus.FOUND, offset + len(found), self.first, self.end, found))
        elif offset != self.end:
            following = self.first if offset < self.first else 0 if not self.first else self.end
            callback.on_success(PullResult(PullStatus.OFFSET_ILLEGAL, following, self.first, self.end))


def read_feed(first: int, end: int, begin: int, stop: int | None) -> list[int]:
    feed = QueueFeed(FakeConsumer(first, end), MessageSelector.by_tag("*"))
    feed.open(QUEUE, begin, stop)
    return [message.queue_offset for batch in feed.batches(0.2) for message in batch.messages]


@pytest.mark.parametrize("first, end, begin, stop, taken, said", [
    (0, 5, 0, 5, range(5), ""),
    (0, 5, 3, None, range(3, 5), ""),
    (4, 9, 1, 8, range(4, 8), "T b:0: offsets 1 to 4 are deleted; the queue begins at 4"),
    (4, 9, 1, None, range(4, 9), "T b:0: offsets 1 to 4 are deleted; the queue begins at 4"),
    (0, 3, 7, None, range(3), "T b:0 ends at offset 3, before 7: the topic may have been deleted and created again; "
                              "reading it again from its first offset, 0"),
    (2, 3, 7, None, range(2, 3), "T b:0 ends at offset 3, before 7: the topic may have been deleted and created again; "
                                 "reading it again from its first offset, 2"),
])
def test_deleted_offsets_are_reported(first, end, begin, stop, taken, said, capsys):
    assert read_feed(first, end, begin, stop) == list(taken)
    assert capsys.readouterr().err.strip() == said


def test_queue_that_ends_before_the_position_read_is_an_error_where_an_end_was_requested():
    with pytest.raises(WorkFailedError, match="b:0 ends at offset 3, before 7: .*created again. Run the command again"):
        read_feed(0, 3, 7, 9)


# `rmqha bench` prints consistent figures, and fails when a message did.


def figures(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_produce_and_consume(line):
    sent = figures(line.run("bench", "produce", "-t", "Bench", "--count", 300, "--warmup", 20, "--size", 100,
                            "-o", "json"))
    assert (sent["messages"], sent["bytes"], sent["failed"]) == (300, 30_000, 0)
    assert sent["statuses"] == {"SEND_OK": 300} and list(sent["latencyMs"]) == ["p50", "p90", "p99", "p99.9", "max"]
    assert 0 < sent["latencyMs"]["p50"] <= sent["latencyMs"]["max"] <= sent["seconds"] * 1000
    # When this one has ended, everything before it is dispatched as well.
    line.ok("bench", "produce", "-t", "Bench", "--count", 1, "--warmup", 1)
    read = figures(line.run("bench", "consume", "-t", "Bench", "-o", "json"))
    assert read["messages"] == 322 and read["answers"] >= 322 // 32
    assert "messagesPerSecond" in line.ok("bench", "consume", "-t", "Bench", "--count", 10).stdout


def test_requested_rate_is_kept(line):
    sent = figures(line.run("bench", "produce", "-t", "Rate", "--count", 10, "--warmup", 1, "--rate", 20,
                            "-o", "json"))
    assert sent["messagesPerSecond"] <= 25


def test_end_to_end(line):
    seen = figures(line.run("bench", "e2e", "-t", "E2e", "--count", 100, "--rate", 500, "--warmup", 1, "-o", "json"))
    assert (seen["messages"], seen["lost"], seen["doubled"], seen["failed"]) == (100, 0, 0, 0)
    assert 0 < seen["endToEndMs"]["p50"] and seen["acknowledgedMs"]["max"] < 10_000


def test_lost_messages_are_a_failure(line, monkeypatch):
    real, calls = bench.Sends.send, []

    def forgetful(self, producer, message):
        calls.append(message)
        if len(calls) != 3:
            real(self, producer, message)
    monkeypatch.setattr(bench.Sends, "send", forgetful)
    result = line.run("bench", "e2e", "-t", "Lost", "--count", 5, "--timeout", 0.5, "-o", "json")
    assert result.exit_code == 1 and json.loads(result.stdout)["lost"] == 1


def test_failed_sends_are_reported(line):
    result = line.run("bench", "produce", "-t", "no topic", "--count", 3)
    assert result.exit_code == 2 and "illegal characters" in result.stderr


def test_topic_without_messages_has_nothing_to_measure(line):
    line.ok("produce", "-t", "Empty", "-m", "x")
    assert line.run("bench", "consume", "-t", "Empty", "--from", "latest").exit_code == 1
