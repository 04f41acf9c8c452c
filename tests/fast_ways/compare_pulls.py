"""Pulls: many records out of one share of the log, and held pulls that arrivals wake, beside record by record."""
from __future__ import annotations

import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqha.broker.processor.pull_message_processor import PullMessageProcessor
from rmqha.broker.pull_request_hold_service import ManyPullRequest, PullRequestHoldService
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.remoting.interfaces import ResponseFuture
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store import message_reader
from rmqha.store.message_reader import MessageReader
from rmqha.store.results import GetMessageResult
from tests.broker.support import BrokerHarness, running_broker
from tests.fast_ways.kept import Kept
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.support.wait import wait_until

FILE_SIZE = 256 << 10
LARGEST_BODY = 200_000
QUEUES = 2
TAGS = ("Aa", "BB", "TagC", "TagD", None)  # the first two have one hash
WAIT_MS = 120_000


class Stored(NamedTuple):
    """What one place of a queue holds."""

    tag: str | None
    number: int  # a property
    record: bytes


@contextlib.contextmanager
def _running_broker() -> Iterator[BrokerHarness]:
    with (tempfile.TemporaryDirectory() as folder,
          running_broker(Path(folder), mappedFileSizeCommitLog=FILE_SIZE, enablePropertyFilter=True) as broker):
        broker.cases = 0  # type: ignore[attr-defined]
        yield broker


BROKER = Kept(_running_broker, most=60)


class Topic:
    """A topic of one case, and what was put into its queues."""

    def __init__(self, broker: BrokerHarness, rng: random.Random) -> None:
        broker.cases += 1  # type: ignore[attr-defined]
        self.broker, self.rng, self.name = broker, rng, f"Topic{broker.cases}"  # type: ignore[attr-defined]
        self.queues: list[list[Stored]] = [[] for _ in range(QUEUES)]

    def put(self, queue_id: int, tag: str | None, number: int, size: int) -> None:
        """Send one, and remember its record, read by the offset that the answer names."""
        properties = {"n": str(number)} | ({} if tag is None else {"TAGS": tag})
        answer = self.broker.send(self.name, self.rng.randbytes(size), queue_id, properties)
        assert answer.code == response_code.SUCCESS, answer
        offset = message_decoder.decode_message_id(answer.ext_fields["msgId"]).offset
        with self.broker.store.select_one_message_by_offset(offset) as record:
            self.queues[queue_id].append(Stored(tag, number, bytes(record.buffer)))

    def fill(self, count: int, largest: int) -> None:
        """Put so many, most of them small."""
        for _ in range(count):
            self.put(self.rng.randrange(QUEUES), self.rng.choice(TAGS), self.rng.randrange(10),
                     some_size(self.rng, [4096], largest))


class Wish(NamedTuple):
    """A subscription: tags, or an expression over the property n."""

    expression: str
    kind: str
    codes: frozenset[int] | None
    above: int | None

    def takes(self, stored: Stored) -> bool:
        """Whether it wants a message."""
        if self.codes is not None:
            return string_hash_code(stored.tag or "") in self.codes if stored.tag else 0 in self.codes
        return self.above is None or stored.number > self.above


def _wish(rng: random.Random) -> Wish:
    kind = rng.random()
    if kind < 0.4:
        return Wish("*", "TAG", None, None)
    if kind < 0.75:
        tags = rng.sample([tag for tag in TAGS if tag], rng.randint(1, 2))
        return Wish("||".join(tags), "TAG", frozenset(map(string_hash_code, tags)), None)
    above = rng.choice([-1, 3, 8, 9])
    return Wish(f"n > {above}", "SQL92", None, above)


def _looked_at(queue: list[Stored], wish: Wish, begin: int, end: int) -> list[bytes]:
    """The records of the places from `begin` to `end` that are wanted, one by one."""
    return [each.record for each in queue[begin:end] if wish.takes(each)]


def _end_of_one_pull(queue: list[Stored], wish: Wish, begin: int, most: int, most_bytes: int, units: int) -> int:
    """The place that a pull ends in front of."""
    found = size = 0
    for place in range(begin, min(len(queue), begin + units)):
        record = queue[place].record
        if found and (found >= most or size + len(record) > most_bytes):
            return place
        if wish.takes(queue[place]):
            found, size = found + 1, size + len(record)
    return min(len(queue), begin + units)


def compare_pulls(rng: random.Random) -> Counter[str]:
    """Pull from any place with any subscription and limit."""
    taken: Counter[str] = Counter()
    add_part, add_record = GetMessageResult.add_part, GetMessageResult.add_record

    def counted_part(self: GetMessageResult, part: object) -> None:
        taken[PLAIN] += 1
        add_part(self, part)  # type: ignore[arg-type]

    def counted_record(self: GetMessageResult, record: memoryview) -> None:
        taken[FAST] += 1
        add_record(self, record)
    with BROKER.using() as broker, contextlib.ExitStack() as stack:
        topic = Topic(broker, rng)
        topic.fill(rng.choice([1, 5, 30, 60]), rng.choice([50, 3000, LARGEST_BODY]))
        store_config = broker.controller.message_store_config
        most_bytes, most = rng.choice([1000, 70_000, 1 << 20, 1 << 20]), rng.choice([1, 3, 32, 1000])
        units = rng.choice([1, 7, 800, 800])
        in_disk = rng.random() < 0.3
        for name, value in (("InMemory", (1 << 30, 1000) if in_disk else (most_bytes, most)),
                            ("InDisk", (most_bytes, most) if in_disk else (1, 1))):
            stack.enter_context(lowered(store_config, **{f"maxTransferBytesOnMessage{name}": value[0],
                                                         f"maxTransferCountOnMessage{name}": value[1]}))
        stack.enter_context(lowered(message_reader, MIN_FILTER_BYTES=20 * units, MAX_FILTER_UNITS=units,
                                    _FILTER_NS=1 << 60))
        stack.enter_context(lowered(store_config, accessMessageInMemoryMaxRatio=-100 if in_disk else 40))
        stack.enter_context(replaced(GetMessageResult, "add_part", counted_part)())
        stack.enter_context(replaced(GetMessageResult, "add_record", counted_record)())
        wait_until(lambda: broker.store.dispatch_behind_bytes() <= 0, WAIT_MS, "dispatch")
        for _ in range(8):
            queue_id, wish = rng.randrange(QUEUES), _wish(rng)
            queue = topic.queues[queue_id]
            if not queue:
                continue
            begin, wanted = rng.randrange(len(queue)), rng.choice([1, 2, 32, 1000, 1000])
            answer = broker.pull(topic.name, begin, queue_id=queue_id, expression=wish.expression,
                                 expressionType=wish.kind, maxMsgNums=wanted)
            end = _end_of_one_pull(queue, wish, begin, min(wanted, most), most_bytes, units)
            expected = _looked_at(queue, wish, begin, end)
            why = f"{wish} from {begin} of {len(queue)}, {wanted}, {most}, {most_bytes}, {units}"
            assert (answer.body or b"") == b"".join(expected), f"{why}: other records"
            assert answer.code == (response_code.SUCCESS if expected else response_code.PULL_RETRY_IMMEDIATELY), why
            fields = answer.ext_fields
            assert int(fields["nextBeginOffset"]) == end, f"{why}: next {fields['nextBeginOffset']}, {end}"
            assert (fields["minOffset"], fields["maxOffset"]) == ("0", str(len(queue))), why
    taken[FAST] -= taken[PLAIN]  # the first record of a part has it mapped
    return taken


def _part_without_its_end(self: MessageReader, offset: int, size: int, result: GetMessageResult) -> memoryview | None:
    """A part that a record begins in is taken to have all of it."""
    part = result.last_part
    if 0 <= offset - part.start_offset < part.size + 64:
        return part.buffer[offset - part.start_offset:offset - part.start_offset + size]
    return _record(self, offset, size, result)


def _place_in_its_file(self: MessageReader, offset: int, size: int, result: GetMessageResult) -> memoryview | None:
    """A part is taken to begin where its file does."""
    part, begin = result.last_part, offset % FILE_SIZE
    if part.size and part.start_offset <= offset and begin <= part.size - size:
        return part.buffer[begin:begin + size]
    return _record(self, offset, size, result)


def _all_tags_are_wanted_below(self: MessageReader, *arguments: object) -> None:
    """What the units say of tags is not looked at."""
    with replaced(MessageReader, "_matches_unit", staticmethod(lambda *_: True))():
        _collect(self, *arguments)  # type: ignore[arg-type]


_record, _collect = MessageReader._record, MessageReader._collect


# -- held --

def _ask(broker: BrokerHarness, topic: Topic, queue_id: int, offset: int, wish: Wish,
         answers: dict[int, RemotingCommand], at: int) -> None:
    """Pull, and wait for messages as long as the case lasts."""
    request = RemotingCommand.create_request_command(request_code.PULL_MESSAGE, broker.pull_header(
        topic.name, offset, queue_id=queue_id, expression=wish.expression, expressionType=wish.kind,
        suspend_ms=2 * WAIT_MS))

    def answered(future: ResponseFuture) -> None:
        if future.response_command is not None:
            answers[at] = future.response_command
    broker.client.invoke_async(broker.address, request, 2 * WAIT_MS, answered)


def compare_held(rng: random.Random) -> Counter[str]:
    """Several pulls wait at the ends of the queues while messages come; each gets what reading finds there."""
    taken: Counter[str] = Counter()
    execute, process = PullMessageProcessor.execute_request_when_wakeup, PullMessageProcessor.process_request
    notify = PullRequestHoldService.notify_message_arriving
    woken_ones: set[int] = set()  # by the number of the request
    all_woken: set[int] = set()  # queues that were looked at again since a message came while a pull was to be held

    def woken(self: PullMessageProcessor, channel: object, request: RemotingCommand, *rest: bool) -> None:
        taken[FAST] += 1
        if not any(rest):  # one that waits for the dispatch only was not held
            woken_ones.add(request.opaque)
        execute(self, channel, request, *rest)  # type: ignore[arg-type]

    def came(self: PullRequestHoldService, topic: str, queue_id: int, max_offset: int, tags_code: int | None = None,
             *rest: object) -> None:
        if tags_code is None:
            all_woken.add(queue_id)
        notify(self, topic, queue_id, max_offset, tags_code, *rest)  # type: ignore[arg-type]

    def asked(self: PullMessageProcessor, channel: object, request: RemotingCommand) -> object:
        answer = process(self, channel, request)  # type: ignore[arg-type]
        taken[PLAIN] += answer is not None
        return answer
    with (BROKER.using() as broker, replaced(PullMessageProcessor, "execute_request_when_wakeup", woken)(),
          replaced(PullMessageProcessor, "process_request", asked)(),
          replaced(PullRequestHoldService, "notify_message_arriving", came)(),
          replaced(PullRequestHoldService, "check_hold_request", lambda _self: None)()):  # nothing but arrivals wakes
        topic = Topic(broker, rng)
        topic.fill(rng.choice([1, 3]), 100)
        for queue_id in range(QUEUES):
            topic.put(queue_id, None, 0, 5)
        count = rng.choice([1, 3, 8])
        pulls = [(rng.randrange(QUEUES), _wish(rng)) for _ in range(count)]
        at = [len(topic.queues[queue_id]) - rng.choice([0, 0, 0, 1]) for queue_id, _ in pulls]
        answers: dict[int, RemotingCommand] = {}
        for index, (queue_id, wish) in enumerate(pulls):
            _ask(broker, topic, queue_id, at[index], wish, answers, index)
            if rng.random() < 0.3:
                topic.fill(1, 2000)
        topic.fill(rng.choice([0, 1, 6]), 2000)
        for queue_id in range(QUEUES):  # that all want
            for tag in ("Aa", "TagC", "TagD"):
                topic.put(queue_id, tag, 99, 3)
        done: set[int] = set()
        while len(done) < count:
            wait_until(lambda: set(answers) - done, WAIT_MS, f"answers to {set(range(count)) - done} of {pulls}")
            for index in set(answers) - done:
                (queue_id, wish), answer = pulls[index], answers[index]
                end = int(answer.ext_fields["nextBeginOffset"])
                expected = _looked_at(topic.queues[queue_id], wish, at[index], end)
                assert (answer.body or b"") == b"".join(expected), f"{wish} from {at[index]} to {end}"
                if answer.code == response_code.SUCCESS:
                    done.add(index)
                    continue
                assert answer.code == response_code.PULL_RETRY_IMMEDIATELY, f"{wish} from {at[index]}: {answer}"
                assert end > at[index] and (answer.opaque not in woken_ones or queue_id in all_woken), (
                    f"woken for nothing: {wish} from {at[index]} to {end}")
                at[index] = end
                del answers[index]
                _ask(broker, topic, queue_id, end, wish, answers, index)
    return taken


def _all_wake_up(self: ManyPullRequest, wants_to_go: object) -> list[object]:
    """Whoever waits is woken, whatever has come."""
    return _take(self, lambda _request: True)  # type: ignore[return-value]


_take = ManyPullRequest.take

WAYS = [
    Way("pulls by share", "rmqha/store/message_reader.py::MessageReader._record",
        "a record lies in the part of the log that the answer holds already", "the part that it lies in is looked for",
        compare_pulls,
        (Plant("a record that leads out of its part", replaced(MessageReader, "_record", _part_without_its_end)),
         Plant("a part that begins with its file", replaced(MessageReader, "_record", _place_in_its_file)),
         Plant("tags are not looked at", replaced(MessageReader, "_collect", _all_tags_are_wanted_below))), seeds=40),
    Way("held pulls", "rmqha/broker/pull_request_hold_service.py::PullRequestHoldService",
        "a pull finds nothing, and messages come while it waits", "an answer at once", compare_held,
        (Plant("all that wait are woken", replaced(ManyPullRequest, "take", _all_wake_up)),), seeds=250),
]
