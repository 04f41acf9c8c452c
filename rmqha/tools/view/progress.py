"""The progress of all groups of a broker: requested and decoded quickly, and merged over brokers.

    ask_progress --GET_BROKER_CONSUME_STATS--> broker --decode_progress--> Progress --merged--> GroupState

A broker with 5,000 groups reports 40,000 queues or more, in a text whose maps have objects as keys. No standard parser
reads that. `decode_progress` reads the text that brokers write queue by queue, with one pattern; any other text is read
by `remoting_serializable`, with the same result, and twenty times as slowly.
"""
import logging
import re
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqha.common.mix_all import is_sys_consumer_group
from rmqha.common.protocol import request_code
from rmqha.common.protocol.admin_headers import GetConsumeStatsInBrokerHeader
from rmqha.common.protocol.table_bodies import ConsumeStatsList
from rmqha.common.texts import real
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.default_mq_admin_ext import SYSTEM_GROUPS
from rmqha.tools.admin.large_answers import AnswerTooLargeError, ask_large, check_unusual

if TYPE_CHECKING:
    from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt

log = logging.getLogger("RocketmqTools")

MAX_GROUPS = 400_000  # of a broker; those of rmqha have at most 100,000
# Brokers limit them to 255 characters.
MAX_NAME = 1024


class QueuePlace(NamedTuple):
    """A group in one queue; `consumed_ms` is the store time of the last consumed message, 0 for none."""

    topic: str
    broker: str
    queue_id: int
    end: int
    offset: int
    consumed_ms: int

    @property
    def behind(self) -> int:
        """The number of unread messages."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True)
class GroupState:
    """The progress of a group in all queues of its topics. `tps` are messages per second, as counted by the brokers."""

    name: str
    places: tuple[QueuePlace, ...] = ()
    tps: float = 0.0

    @cached_property
    def behind(self) -> int:
        """The number of unread messages."""
        return sum(place.behind for place in self.places)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics, sorted."""
        return tuple(sorted({place.topic for place in self.places}))

    @cached_property
    def consumed(self) -> int:
        """The sum of its offsets: its growth is the rate of the group."""
        return sum(place.offset for place in self.places)

    @cached_property
    def ends(self) -> int:
        """The sum of the ends of its queues: its growth is the rate of writes to its topics."""
        return sum(place.end for place in self.places)

    def delay_ms(self, now_ms: int) -> int | None:
        """Return the age of the last consumed message in the latest queue; 0 if nothing is unread, None if unknown."""
        late = [place for place in self.places if place.behind]
        times = [place.consumed_ms for place in late if place.consumed_ms > 0]
        if not late:
            return 0
        return max(0, now_ms - min(times)) if times else None


@dataclass
class Progress:
    """A group on one broker: its places, and the messages per second that the broker has counted."""

    places: list[QueuePlace] = field(default_factory=list)
    tps: float = 0.0


def is_system_group(name: str) -> bool:
    """Return whether a group belongs to the brokers themselves or to tools."""
    return name in SYSTEM_GROUPS or is_sys_consumer_group(name)


def group_states(answers: Sequence[ConsumeStatsList]) -> tuple[GroupState, ...]:
    """Return the groups of all asked brokers, sorted by name; system groups only if they consume."""
    return merged([progress_of(answer) for answer in answers])


def merged(answers: Iterable[dict[str, Progress]]) -> tuple[GroupState, ...]:
    """Return the groups of all asked brokers, sorted by name; system groups only if they consume."""
    found: dict[str, list[Progress]] = {}
    for answer in answers:
        for group, progress in answer.items():
            found.setdefault(group, []).append(progress)
    return tuple(_state(group, parts) for group, parts in sorted(found.items())
                 if any(part.places for part in parts) or not is_system_group(group))


def _state(group: str, parts: list[Progress]) -> GroupState:
    places = parts[0].places if len(parts) == 1 else [place for part in parts for place in part.places]
    return GroupState(group, tuple(sorted(places)), sum(part.tps for part in parts))


def progress_of(answer: ConsumeStatsList) -> dict[str, Progress]:
    """Return the groups of one broker's answer, without queues that lack a name."""
    found: dict[str, Progress] = {}
    for each in answer.consumeStatsList:
        for group, stats in each.items():
            progress = found.setdefault(group, Progress())
            for one in stats:
                progress.tps += real(one.consumeTps) or 0.0
                progress.places += [QueuePlace(queue.topic, queue.brokerName, queue.queueId, place.brokerOffset,
                                               place.consumerOffset, place.lastTimestamp)
                                    for queue, place in one.offsetTable.items() if queue.topic and queue.brokerName]
    return found


def ask_progress(admin: "DefaultMQAdminExt", address: str, timeout_ms: float) -> dict[str, Progress]:
    """Ask a broker for the progress of all its groups.

    Raises the client's exceptions, and ValueError for an answer that can't be read.
    """
    request = RemotingCommand.create_request_command(request_code.GET_BROKER_CONSUME_STATS,
                                                     GetConsumeStatsInBrokerHeader(isOrder=False))
    return decode_progress(ask_large(admin.api.remoting_client, address, request, timeout_ms).body or b"")


def decode_progress(body: bytes | bytearray | memoryview) -> dict[str, Progress]:
    """Return the groups of a broker, without groups and places whose names have more than MAX_NAME characters.

    Raises FastjsonError and AnswerTooLargeError, which are ValueErrors.
    """
    found = _Usual(body).read()
    if found is None:
        check_unusual(body)
        found = progress_of(remoting_serializable.from_json(ConsumeStatsList, body))
    _check_number(found)
    longest = max(map(len, (*found, *{name for progress in found.values() for place in progress.places
                                      for name in place[:2]})), default=0)
    if longest <= MAX_NAME:
        return found
    log.warning("groups and queues are left out, whose names have more than %d characters", MAX_NAME)
    return {group: Progress([place for place in progress.places if max(map(len, place[:2])) <= MAX_NAME], progress.tps)
            for group, progress in found.items() if len(group) <= MAX_NAME}


def _check_number(groups: Sized) -> None:
    if len(groups) > MAX_GROUPS:
        raise AnswerTooLargeError(f"it has more than {MAX_GROUPS} groups")


_NUMBER = rb"(-?(?:0|[1-9]\d{0,17}))"
_TEXT = rb'"([^"\\\x00-\x1f]*+)"'
_HEAD = rb'\{(?:"brokerAddr":"[^"\\\x00-\x1f]*+",)?"consumeStatsList":\['
_GROUP = rb"\{" + _TEXT + rb":\["
_STATS = rb'\{"consumeTps":(-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?),"offsetTable":\{'
_PLACE = (rb'\{"brokerName":' + _TEXT + rb',"queueId":' + _NUMBER + rb',"topic":' + _TEXT + rb'\}:\{"brokerOffset":'
          + _NUMBER + rb',"consumerOffset":' + _NUMBER + rb',"lastTimestamp":' + _NUMBER + rb"\}([,}])")
_TAIL = rb'\](?:,"totalDiff":-?(?:0|[1-9]\d{0,17}))?\}\Z'


class _Usual:
    """Reads an answer in the usual form, from its beginning to its end."""

    def __init__(self, body: bytes | bytearray | memoryview) -> None:
        self._body = body
        self._at = 0
        self._names: dict[bytes, str] = {}  # each name once, however often it occurs
        self._place = re.compile(_PLACE).match

    def read(self) -> dict[str, Progress] | None:
        """Return the groups; None for any other text."""
        # A text with references means something else.
        if self._take(_HEAD) is None or re.search(b'"\\$ref"', self._body) is not None:
            return None
        found: dict[str, Progress] = {}
        while True:
            group = self._take(_GROUP)
            if group is None:
                return None
            progress = found.setdefault(self._name(group[1]), Progress())
            if not self._read_stats(progress):
                return None
            _check_number(found)
            if not self._comes(b"},"):
                return found if self._comes(b"}") and self._take(_TAIL) is not None else None

    def _read_stats(self, progress: Progress) -> bool:
        if self._comes(b"]"):
            return True
        while True:
            stats = self._take(_STATS)
            if stats is None:
                return False
            progress.tps += real(float(stats[1])) or 0.0
            if not self._comes(b"}") and not self._read_places(progress.places):
                return False
            if not self._comes(b"},"):
                return self._comes(b"}]")

    def _read_places(self, places: list[QueuePlace]) -> bool:
        """Read the places of a table up to the bracket that ends it."""
        names, at, table = self._names, self._at, {}
        while (place := self._place(self._body, at)) is not None:
            broker, queue_id, topic, end, offset, consumed, after = place.groups()
            if topic and broker:
                where = (names.get(topic) or self._name(topic), names.get(broker) or self._name(broker), int(queue_id))
                table[where] = QueuePlace(*where, int(end), int(offset), int(consumed))
            at = place.end()
            if after == b"}":
                self._at = at
                places += table.values()
                return True
        return False

    def _name(self, text: bytes) -> str:
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = str(text, "utf-8", "replace")
        return name

    def _take(self, pattern: bytes) -> re.Match[bytes] | None:
        match = re.compile(pattern).match(self._body, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _comes(self, text: bytes) -> bool:
        if bytes(self._body[self._at:self._at + len(text)]) != text:
            return False
        self._at += len(text)
        return True
