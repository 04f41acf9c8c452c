"""`--from` and `--to` of `consume` and `export`: the messages in between, as a plain list has them, and no others."""
import json
from types import SimpleNamespace

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.results import PullResult, PullStatus
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.tools.messages.consume import Reading, Wanted
from rmqha.tools.messages.positions import EARLIEST, END, LATEST, Position, PositionType, first_after
from rmqha.tools.messages.produce import NO_GROUP
from tests.support.tiers import drawn

QUEUE = MessageQueue("T", "b", 0)


class Queue:
    """A consumer of one queue whose messages have these store times; the first offsets are deleted.

    `search`: what the broker's search by time returns; brokers return any message of the time, or a neighbour of it.
    """

    def __init__(self, first, times, search):
        self.first, self.times, self.search = first, times, search
        self.end = first + len(times)
        self.admin = SimpleNamespace(min_offset=lambda _queue: first, max_offset=lambda _queue: self.end,
                                     search_offset=lambda _queue, time_ms: self.found(time_ms))
        self.last_read = -1

    def found(self, time_ms):
        equal = [at for at, each in enumerate(self.times) if each == time_ms]
        below = [at for at, each in enumerate(self.times) if each < time_ms][-1:]
        above = [at for at, each in enumerate(self.times) if each > time_ms][:1]
        near = equal or below + above
        return self.first + near[self.search % len(near)] if near else 0

    def fetch_subscribe_message_queues(self, _topic):
        return {QUEUE}

    def message(self, offset):
        message = MessageExt("T", b"")
        message.queue_offset, message.store_timestamp = offset, self.times[offset - self.first]
        return message

    def pull(self, _queue, _expression, offset, most):
        if not self.first <= offset < self.end:
            return PullResult(PullStatus.OFFSET_ILLEGAL, self.first, self.first, self.end)
        found = [self.message(at) for at in range(offset, min(offset + most, self.end))]
        return PullResult(PullStatus.FOUND, offset + len(found), self.first, self.end, found)

    def pull_block_if_not_found_async(self, queue, _selector, offset, most, callback):
        answer = self.pull(queue, "*", offset, most)
        if answer.pull_status is PullStatus.FOUND:
            self.last_read = answer.next_begin_offset - 1
        callback.on_success(answer)


class Printed(list):
    """A printer that keeps the offsets."""

    def print(self, message):
        self.append(message.queue_offset)

    def flush(self):
        pass


def read(queue, begin, end):
    wanted = Wanted(("T",), NO_GROUP, begin, end, MessageSelector.by_tag("*"), None, 0)
    printed = Printed()
    Reading(queue, wanted).run(printed)
    return printed


# Few different times, so that several messages have the same one.
TIMES = st.lists(st.integers(2, 12), max_size=90).map(sorted)
PLACES = st.one_of(st.integers(1, 14).map(lambda ms: Position(time_ms=ms)),
                   st.integers(-100, 110).map(lambda at: Position(offset=at)), st.none())
BEGIN, LAST = (st.one_of(PLACES, st.just(Position(word=word))) for word in (EARLIEST, LATEST))


def is_from(position, at, time_ms, end):
    if position is None or position.word is not None:
        return True
    if position.time_ms is not None:
        return time_ms >= position.time_ms
    return at >= (position.offset if position.offset >= 0 else end + position.offset)


def is_to(position, at, time_ms, end):
    if position is None or position.word is not None:
        return True
    if position.time_ms is not None:
        return time_ms <= position.time_ms
    return at <= (position.offset if position.offset >= 0 else end + position.offset)


@settings(deadline=None, max_examples=drawn(300))
@given(TIMES, st.integers(0, 20), st.integers(0, 99), BEGIN, LAST)
def test_a_range_has_what_a_plain_list_has(times, first, search, begin, end):
    queue = Queue(first, times, search)
    wanted = [at for at, time_ms in enumerate(times, first)
              if is_from(begin, at, time_ms, queue.end) and is_to(end, at, time_ms, queue.end)]
    assert read(queue, begin, end) == wanted
    assert queue.last_read <= max([*wanted, -1]) or not wanted, "nothing beyond the end is read"


@settings(deadline=None, max_examples=drawn(300))
@given(TIMES, st.integers(0, 20), st.integers(0, 99), st.integers(0, 15), st.integers(0, 200))
def test_first_message_after_a_time_is_found_wherever_the_broker_begins(times, first, search, time_ms, wrong):
    queue = Queue(first, times, search)
    wanted = next((at for at, each in enumerate(times, first) if each > time_ms), queue.end)
    assert first_after(queue, QUEUE, time_ms) == wanted
    # As of a queue whose files were copied: the broker looks in the wrong file.
    queue.found = lambda _time_ms: wrong
    assert first_after(queue, QUEUE, time_ms) == wanted


@pytest.mark.parametrize("text, position", [
    ("start", Position(EARLIEST)), ("beginning", Position(EARLIEST)), ("earliest", Position(EARLIEST)),
    ("end", Position(LATEST)), ("latest", Position(LATEST))])
def test_words_of_other_tools_are_understood(text, position):
    assert PositionType().convert(text, None, None) == position


@pytest.mark.parametrize("text", ["earliest", "start", "committed", "soon", ""])
def test_end_is_a_time_an_offset_or_the_end(text):
    assert END.convert("end", None, None) == Position(LATEST) and END.convert("-2", None, None) == Position(offset=-2)
    with pytest.raises(click.BadParameter, match="is not latest, an offset .* or a time"):
        END.convert(text, None, None)


# With a broker.


@pytest.fixture(scope="module")
def stored(line):
    """The messages of a topic of two queues as (time, queue, offset, body), in order."""
    for number in range(8):
        line.ok("produce", "-t", "Ranges", "--queue", number % 2, "-m", f"a{number}", "-m", f"b{number}")
    rows = [json.loads(row) for row in line.ok("consume", "Ranges", "-o", "json").stdout.splitlines()]
    return sorted((row["storeTimestamp"], row["queue"], row["offset"], row["body"]) for row in rows)


def consumed(line, *options):
    found = line.ok("consume", "Ranges", "-o", "json", *options).stdout.splitlines()
    return sorted((row["storeTimestamp"], row["queue"], row["offset"], row["body"]) for row in map(json.loads, found))


def test_messages_from_a_time_to_a_time_are_printed_both_included(line, stored):
    times = sorted({each[0] for each in stored})
    assert len(times) >= 8
    for begin, end in ((times[0], times[0]), (times[2], times[5]), (times[-1], times[-1]), (times[1], times[1] + 1)):
        wanted = [each for each in stored if begin <= each[0] <= end]
        assert consumed(line, "--from", begin, "--to", end) == wanted
        dumped = line.ok("store", "dump", line.broker.store.message_store_config.storePathRootDir, "-t", "Ranges",
                         "--from", begin, "--to", end, "-o", "json").stdout.splitlines()
        assert sorted(json.loads(row)["body"] for row in dumped) == sorted(each[3] for each in wanted)
    assert consumed(line, "--to", times[0] - 1) == [] and consumed(line, "--to", "1h") == []
    assert consumed(line, "--from", "start", "--to", "end") == stored
    assert consumed(line, "--to", "20990101000000000") == stored


def test_offsets_of_a_queue_are_printed_both_included(line, stored):
    of_queue = [each for each in stored if each[1] == 1]
    assert consumed(line, "--queue", 1, "--from", 2, "--to", 5) == of_queue[2:6]
    assert consumed(line, "--queue", 1, "--from", -3, "--to", -2) == of_queue[-3:-1]
    assert consumed(line, "--queue", 1, "--to", 0) == of_queue[:1]
    assert consumed(line, "--queue", 1, "--to", 99) == of_queue


def test_group_commits_no_more_than_the_end(line, stored):
    assert len(line.ok("consume", "Ranges", "-g", "Until", "--queue", 0, "--from", 0, "--to", 2,
                       "-f", "x").stdout) == 3
    assert consumed(line, "-g", "Until", "--queue", 0) == [each for each in stored if each[1] == 0][3:]


@pytest.mark.parametrize("options, said", [
    (("--to", 5), "--to with an offset needs --queue"), (("--from", "1h", "--to", "2h"), "--to is before --from"),
    (("--queue", 0, "--from", 5, "--to", 4), "--to is before --from"),
    (("--to", "latest", "--timeout", 1), "--to and --timeout exclude each other"),
    (("--to", "earliest"), "'earliest' is not latest, an offset")])
def test_ends_that_do_not_fit_are_usage_errors(line, stored, options, said):
    result = line.run("consume", "Ranges", *options)
    assert result.exit_code == 2 and said in result.stderr and result.stdout == ""


def test_export_has_the_messages_of_the_range(line, stored, tmp_path):
    times = sorted({each[0] for each in stored})
    for begin, end in ((times[2], times[5]), (times[-1], times[-1]), (times[0] - 9, times[0] - 1)):
        told = line.ok("export", "-t", "Ranges", "--from", begin, "--to", end, "--force", tmp_path / "part").stderr
        wanted = sorted(each[3] for each in stored if begin <= each[0] <= end)
        rows = [json.loads(row) for row in (tmp_path / "part").read_text().splitlines()]
        assert sorted(row["body"] for row in rows[1:-1]) == wanted
        assert rows[-1] == {"end": True, "messages": len(wanted)}
        assert told.startswith(f"{len(wanted)} message")
        line.ok("import", "-t", f"RangesOf{len(wanted)}", tmp_path / "part")
    for options in (("--from", "5"), ("--to", "5"), ("--from", "committed"), ("--from", "1h", "--to", "2h")):
        result = line.run("export", "-t", "Ranges", *options, tmp_path / "none")
        assert result.exit_code == 2 and not (tmp_path / "none").exists()
