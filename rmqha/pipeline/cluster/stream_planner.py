"""Planning the batches of a stream: how much each takes of each queue, and what happens to queues that have changed.

`StreamPlanner` works on the answers of `Queues` only, so it needs neither Spark nor servers.

`begin_of` and `end_of` evaluate the options for where reading of a live cluster begins and ends:

    startingTimestamp | startingOffsetsByTimestamp | startingOffsets        one of them
    endingTimestamp   | endingOffsetsByTimestamp   | endingOffsets          one of them; tables only
"""
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from rmqha.common import util_all
from rmqha.common.message.message import MessageQueue
from rmqha.pipeline.cluster.cluster_queues import (
    EARLIEST,
    LATEST,
    Bounds,
    ClusterQueues,
    Finding,
    Look,
    Position,
    QueueOffsets,
    Seen,
    What,
    data_loss,
    get_offset,
    judge,
    named,
    needs_look,
    set_offset,
    walk,
)
from rmqha.pipeline.format_options import Options, PipelineError, is_long, queue_id_of
from rmqha.pipeline.worker import shares

log = logging.getLogger("RocketmqPipeline")

# After a failover a queue may end a little before what was read until its broker has dispatched its log.
SETTLE_S = 1.0


class Queues(Protocol):
    """The interface that the planner uses: `cluster_queues.ClusterQueues`."""

    def seen(self) -> dict[MessageQueue, Seen]:
        """Return all queues that exist."""

    def looks(self, wanted: Iterable[tuple[MessageQueue, int]]) -> dict[MessageQueue, Look]:
        """Return the messages at one offset of each queue."""

    def absent(self) -> dict[str, PipelineError]:
        """Return the topics that do not exist, with the errors for them."""

    def refresh(self) -> None:
        """Discard cached answers."""


class Plan(NamedTuple):
    """A batch: where it begins and ends in each queue, the queues' ends, and how many messages are left in each."""

    begin: dict[MessageQueue, int]
    positions: dict[MessageQueue, Position]
    ends: dict[MessageQueue, int]
    left: dict[MessageQueue, int]
    # There is something to read or to store.
    is_new: bool


class _Judged(NamedTuple):
    """The offsets at which a stream continues in the existing queues, and what happened to some."""

    begins: dict[MessageQueue, int]
    findings: dict[MessageQueue, Finding]


class StreamPlanner:
    """Plans the batches of one query. Spark keeps the offsets.

    A planned batch is stored by Spark before it is read, and read again after a crash. So `plan` fixes where the batch
    begins and ends in each queue, and the evidence of the queue's life at the end; `read` then checks whether the
    queues still hold those messages. With data loss allowed, a queue that changed in between is read from the right
    place in the next batch (`_unread`).
    """

    def __init__(self, fail_on_data_loss: bool) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        # Queue or topic -> the occurrence that was logged.
        self._warned: dict[object, object] = {}
        # If data loss is allowed: the queues that a planned batch could not read completely. The next one begins there.
        self._unread: dict[MessageQueue, tuple[Position, int]] = {}

    def plan(self, queues: Queues, known: Mapping[MessageQueue, Position], stop_at: Mapping[MessageQueue, int] | None,
             holds_back: Callable[[int], bool], most: int | None, is_first: bool = False) -> Plan:
        """Return the batch after the positions `known`: up to the ends or to `stop_at`, with at most `most` messages.
        The first batch of a query always counts as new, since it records which queues exist.

        PipelineError for queues that lost messages, unless that is allowed.
        """
        self._unread = {queue: each for queue, each in self._unread.items() if known.get(queue) == each[0]}
        seen, others, stalled = queues.seen(), set[MessageQueue](), set[MessageQueue]()
        is_sure, is_held = False, True
        while True:
            judged = _judge(known, seen, others, self._unread)
            # Cached routes, and answers after a failover, may be outdated.
            if not is_sure and self._is_news(judged.findings):
                seen, others, is_sure = _seen_again(queues, judged.findings.values()), set(), True
                continue
            backlog = {queue: 0 if queue in stalled else max(end - judged.begins[queue], 0)
                       for queue, end in _ends(judged, seen, stop_at).items()}
            is_held = is_held and holds_back(sum(backlog.values()))
            taken = dict.fromkeys(backlog, 0) if is_held else backlog if most is None else shares(backlog, most)
            # The messages before the ends are fetched first: if those before the beginnings are still the right ones
            # afterwards, so were these.
            ends = {queue: judged.begins[queue] + count for queue, count in taken.items()}
            same = {queue: each for queue, each in known.items()
                    if ends.get(queue) == each.offset == judged.begins.get(queue)}
            is_new = not is_held and (is_first or ends.keys() != same.keys() or any(
                queue not in seen and not self._is_kept(queue, each) for queue, each in known.items()))
            positions, gone = _positions(queues, ends, seen, same) if is_new else (same, set())
            new = _others(queues, known, judged.findings, seen, taken) - others
            if not new and gone <= stalled:
                break
            others |= new
            stalled |= gone
        self._report(known, judged.findings, queues)
        kept = {queue: each for queue, each in known.items()
                if queue in stalled or (queue not in seen and self._is_kept(queue, each))}
        positions = {queue: each for queue, each in positions.items() if queue not in stalled} | kept
        begin = {queue: judged.begins[queue] for queue in positions if queue not in kept and queue in seen}
        begin |= {queue: each.offset for queue, each in kept.items()}
        return Plan(begin, positions, {queue: each.end for queue, each in seen.items()},
                    {queue: count - taken[queue] for queue, count in backlog.items()}, is_new)

    def _is_kept(self, queue: MessageQueue, position: Position) -> bool:
        """Return whether the position of a missing queue is of further use. Otherwise it is dropped, and the queue
        counts as new when it comes back.
        """
        return position.has_evidence and queue not in self._unread

    def _is_news(self, findings: Mapping[MessageQueue, Finding]) -> bool:
        """Return whether something was found that has not been warned of yet."""
        return any(self._warned.get(queue) != each.key for queue, each in findings.items())

    def read(self, queues: Queues, begin: Mapping[MessageQueue, int], after: Mapping[MessageQueue, Position],
             is_just_planned: bool) -> dict[MessageQueue, int]:
        """Return where a planned batch begins in each queue that has messages for it which can be read now.

        A repeated batch may contain queues that have changed meanwhile: PipelineError, unless data loss is allowed.
        Then the missing messages are left out, and the next batch begins at the right place. `is_just_planned`: the
        messages at the ends need no second check.
        """
        wanted = {queue: each for queue, each in after.items() if begin.get(queue, -1) < each.offset}
        seen, is_sure = queues.seen(), False
        while True:
            begins: dict[MessageQueue, int] = {}
            findings: dict[MessageQueue, Finding] = {}
            others = set() if is_just_planned else _others(queues, wanted, {}, seen, dict.fromkeys(wanted, 1))
            for queue, each in wanted.items():
                _, finding = judge(queue, each, seen.get(queue), queue in others)
                if finding is None or finding.what in (What.MOVED, What.UNSURE):
                    first = seen[queue].first
                    begins[queue] = max(begin.get(queue, first), first)
                    if begin.get(queue, first) < first:
                        finding = Finding(queue, What.MOVED, Position(begin[queue]), seen[queue])
                if finding is not None:
                    findings[queue] = finding
            if not findings or is_sure:
                break
            seen, is_sure = _seen_again(queues, findings.values()), True
        self._report(wanted, findings)
        for queue in wanted.keys() - begins.keys():
            first = begin.get(queue, 0) if findings[queue].what is What.VANISHED else 0
            self._unread[queue] = wanted[queue], first
        return {queue: at for queue, at in begins.items() if at < after[queue].offset}

    def _report(self, known: Mapping[MessageQueue, Position], findings: Mapping[MessageQueue, Finding],
                queues: Queues | None = None) -> None:
        """Raise the error for what was found, or warn once of each occurrence. With `queues`, do the same for topics
        that do not exist; then an occurrence that is no longer found is over.
        """
        losses = [each for each in findings.values() if each.what is not What.UNSURE]
        if losses and self._fail_on_data_loss:
            raise data_loss(losses)
        topics = {queue.topic for queue in known}
        absent = {} if queues is None else {
            name: error for name, error in queues.absent().items() if name not in topics}
        if queues is not None and absent and self._fail_on_data_loss:
            queues.refresh()
            raise next(iter(absent.values()))
        now: dict[object, object] = {queue: each.key for queue, each in findings.items()} | dict.fromkeys(absent)
        texts = {queue: f"{each.reason}; the stream {each.remedy}" for queue, each in findings.items()} | {
            name: f"{error}; the stream continues without it" for name, error in absent.items()}
        for key, text in texts.items():
            if key not in self._warned or self._warned[key] != now[key]:
                log.warning("%s", text)
        self._warned = now if queues is not None else self._warned | now


def _judge(known: Mapping[MessageQueue, Position], seen: Mapping[MessageQueue, Seen], others: set[MessageQueue],
           unread: Mapping[MessageQueue, tuple[Position, int]]) -> _Judged:
    begins = {queue: each.first for queue, each in seen.items() if queue not in known}
    findings = {}
    for queue, position in known.items():
        at, finding = judge(queue, position, seen.get(queue), queue in others)
        if finding is not None:
            findings[queue] = finding
        elif queue in unread and unread[queue][0] == position:
            at = min(at, max(unread[queue][1], seen[queue].first))
        if queue in seen:
            begins[queue] = at
    return _Judged(begins, findings)


def _seen_again(queues: Queues, findings: Iterable[Finding]) -> dict[MessageQueue, Seen]:
    if any(each.what is What.SHORTER for each in findings):
        time.sleep(SETTLE_S)
    queues.refresh()
    return queues.seen()


def _ends(judged: _Judged, seen: Mapping[MessageQueue, Seen], stop_at: Mapping[MessageQueue, int] | None
          ) -> dict[MessageQueue, int]:
    """Return how far each queue may be read."""
    found = {}
    for queue, begin in judged.begins.items():
        finding = judged.findings.get(queue)
        if finding is not None and finding.what is What.UNSURE:
            found[queue] = begin
        else:
            found[queue] = seen[queue].end if stop_at is None else min(seen[queue].end, stop_at.get(queue, begin))
    return found


def _positions(queues: Queues, ends: Mapping[MessageQueue, int], seen: Mapping[MessageQueue, Seen],
               same: Mapping[MessageQueue, Position]) -> tuple[dict[MessageQueue, Position], set[MessageQueue]]:
    """Return (the positions at these offsets with the evidence of the queue's life, the queues that are gone).
    Positions in `same` are kept.
    """
    found = {queue: same.get(queue, Position(end)) for queue, end in ends.items()}
    wanted = [queue for queue, each in found.items() if not each.has_evidence and queue in seen]
    looks = queues.looks([(queue, ends[queue] - 1) for queue in wanted if seen[queue].first < ends[queue]])
    for queue in wanted:
        look = looks.get(queue)
        mark = None if look is None else look.mark
        found[queue] = Position(ends[queue], mark, seen[queue].first if mark is None else None)
    return found, {queue for queue, look in looks.items() if look.is_gone}


def _others(queues: Queues, known: Mapping[MessageQueue, Position], findings: Mapping[MessageQueue, Finding],
            seen: dict[MessageQueue, Seen], taken: Mapping[MessageQueue, int]) -> set[MessageQueue]:
    """Return the queues that have another message before the position. A slave's answer is marked so in `seen`."""
    wanted = [(queue, each.offset - 1) for queue, each in known.items() if queue in seen and queue not in findings
              and needs_look(each, seen[queue], taken.get(queue, 0) > 0)]
    found = set()
    for queue, look in queues.looks(wanted).items():
        mark = known[queue].mark
        assert mark is not None  # needs_look
        if look.is_another(mark):
            found.add(queue)
            if not look.by_master:
                seen[queue] = seen[queue]._replace(by_master=False)
    return found


STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STRATEGY = "startingOffsetsByTimestampStrategy"
OPTIONS = (*STARTING, *ENDING, STRATEGY)
_ERROR = "error"
_OFFSETS = ('earliest, latest, or JSON such as {"TopicA": {"broker-a": {"0": 23, "1": -2}}} (-2: earliest, -1: latest)')
_TIMES = 'JSON such as {"TopicA": {"broker-a": {"0": 1700000000000}}} (milliseconds)'


def check_batch(options: Options) -> None:
    """Raise PipelineError for options that are wrong, that contradict each other, or that select nothing."""
    _check(options)
    options.one_of(*ENDING)
    if options.text("startingOffsets", EARLIEST).lower() == LATEST:
        raise PipelineError(f"{options.where}: startingOffsets=latest selects nothing of a table; it is for streams")
    if options.text("endingOffsets", LATEST).lower() == EARLIEST:
        raise PipelineError(f"{options.where}: endingOffsets=earliest selects nothing")
    begin, end = options.integer("startingTimestamp"), options.integer("endingTimestamp")
    if begin is not None and end is not None and begin > end:
        raise PipelineError(f"{options.where}: startingTimestamp={begin} is later than endingTimestamp={end}")
    starts = _asked(options, "startingOffsets", -2)
    ends = _asked(options, "endingOffsets", -2)
    for asked, name, special in ((starts, "startingOffsets", -1), (ends, "endingOffsets", -2)):
        for queue, offset in walk(asked):
            if offset == special:
                raise PipelineError(f"{options.where}: {name}={special} selects nothing of {named(queue)}")
    for queue, offset in walk(starts):
        stop = get_offset(ends, queue, -1)
        if 0 <= stop < offset:
            raise PipelineError(f"{options.where}: startingOffsets={offset} is after endingOffsets={stop}: "
                                f"{named(queue)}")
    _asked(options, "endingOffsetsByTimestamp", 0)


def check_stream(options: Options) -> None:
    """Raise PipelineError for options that are wrong, that contradict each other, or that are not for streams."""
    _check(options)
    for name in ENDING:
        if name in options:
            raise PipelineError(f"{options.where}: {name} is for tables: a stream has no end")


def _check(options: Options) -> None:
    options.one_of(*STARTING)
    options.choice(STRATEGY, (_ERROR, LATEST), _ERROR)
    for name in ("startingTimestamp", "endingTimestamp"):
        options.integer(name)
    _asked(options, "startingOffsets", -2)
    _asked(options, "startingOffsetsByTimestamp", 0)


def begin_of(queues: ClusterQueues, default: str) -> QueueOffsets:
    """Return the offsets of all queues at which reading begins.

    PipelineError if a queue has no message as late as a requested time, unless the strategy is `latest`.
    """
    options = queues.options
    from_end = options.choice(STRATEGY, (_ERROR, LATEST), _ERROR) == LATEST
    found = _at_times(queues, "startingTimestamp", "startingOffsetsByTimestamp", EARLIEST, from_end)
    return _at_offsets(queues, "startingOffsets", default) if found is None else found


def end_of(queues: ClusterQueues) -> QueueOffsets:
    """Return the offsets of all queues at which reading ends. If a time is later than all messages, it is the end."""
    found = _at_times(queues, "endingTimestamp", "endingOffsetsByTimestamp", LATEST, True)
    return _at_offsets(queues, "endingOffsets", LATEST) if found is None else found


def _at_times(queues: ClusterQueues, name: str, by_queue: str, default: str, from_end: bool) -> QueueOffsets | None:
    """Return the offsets that belong to times; None if neither option is given."""
    options = queues.options
    same, times = options.integer(name), _asked(options, by_queue, 0)
    if same is None and by_queue not in options:
        return None
    found: QueueOffsets = {}
    bounds = queues.bounds()
    for queue, _ in walk(times):
        _known(options, by_queue, queue, bounds)
    for queue, own in bounds.items():
        time = get_offset(times, queue) if same is None else same
        offset: int | None = own.end if default == LATEST else own.first
        if time is not None:
            offset = queues.first_at(queue, time, own)
        if offset is None and time is not None and not from_end:
            when = util_all.utc_text(time)
            raise PipelineError(f"{named(queue)} has no message stored at {when} ({time} ms) or later. With "
                                f"{STRATEGY}=latest such queues are read from their ends")
        set_offset(found, queue, own.end if offset is None else offset)
    return found


def _at_offsets(queues: ClusterQueues, name: str, default: str) -> QueueOffsets:
    text = queues.options.text(name, default).lower()
    if text in (EARLIEST, LATEST):
        return queues.offsets(text)
    bounds = queues.bounds()
    found: QueueOffsets = {}
    for queue, own in bounds.items():
        set_offset(found, queue, own.end if name == "endingOffsets" else own.first)
    for queue, offset in walk(_asked(queues.options, name, -2)):
        own = _known(queues.options, name, queue, bounds)
        begin = {-2: own.first, -1: own.end}.get(offset, offset)
        if name == "startingOffsets" and begin > own.end:
            begin = _beyond(queues.options, queue, begin, own)
        set_offset(found, queue, begin)
    return found


def _beyond(options: Options, queue: MessageQueue, wanted: int, own: Bounds) -> int:
    """Return the offset at which reading begins if the requested offset is beyond the end of the queue: it was meant
    for another queue, or the topic was created again. PipelineError unless data loss is allowed.
    """
    reason = (f"startingOffsets={wanted} is beyond the end of {named(queue)}, which is {own.end}: the topic may have "
              "been deleted and created again")
    if options.boolean("failOnDataLoss", True):
        raise PipelineError(f"{options.where}: {reason}. With failOnDataLoss=false the query reads the queue from its "
                            f"beginning, offset {own.first}.")
    log.warning("%s; reading it from its beginning, offset %d", reason, own.first)
    return own.first


def _known(options: Options, name: str, queue: MessageQueue, bounds: dict[MessageQueue, Bounds]) -> Bounds:
    own = bounds.get(queue)
    if own is None:
        raise options.wrong(name, f"possible: {queue.topic} has no queue {queue.queueId} on {queue.brokerName}")
    return own


def _asked(options: Options, name: str, least: int) -> QueueOffsets:
    """Return the values by queue of an option in JSON; empty if it is not given, or is a word."""
    text = options.text(name)
    if text is None or (least < 0 and text.lower() in (EARLIEST, LATEST)):
        return {}
    wanted = _TIMES if least == 0 else _OFFSETS
    asked = options.json(name, wanted)
    try:
        numbers = [(queue_id, number) for brokers in asked.values() for queues in brokers.values()
                   for queue_id, number in queues.items()]
    except AttributeError:
        raise options.wrong(name, wanted) from None
    for queue_id, number in numbers:
        if queue_id_of(queue_id) is None or not is_long(number, least):
            raise options.wrong(name, wanted)
    return asked
