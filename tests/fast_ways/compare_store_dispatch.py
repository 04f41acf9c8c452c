"""Fast ways of dispatch: spans instead of records, and another thread that scans ahead."""
from __future__ import annotations

import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from rmqha.common.futures import WorkAhead
from rmqha.store import dispatch as span_dispatcher
from rmqha.store import reput_message_service
from rmqha.store.bulk.bulk_layout import RECORD, Run, Span, Stop
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, unpack_unit
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.dispatch import MessageArrivingListener, RecordDispatcher
from rmqha.store.index.index_service import IndexService
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.results import SelectMappedBufferResult
from tests.fast_ways.support_store import NEVER, counting, cuts, loaded_store, same, scratch
from tests.fast_ways.support_store_log import TOPICS, LogMaker
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced
from tests.store.support import tree

_Ways = Callable[[], dict[str, int]]
"""Draws thresholds of the service for one dispatch."""


class _Listener(MessageArrivingListener):
    """Waits for some queues; what it is told, by queue."""

    def __init__(self, queues: set[tuple[str, int]]) -> None:
        self.queues = queues
        self.told: dict[tuple[str, int], list[Any]] = defaultdict(list)

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in self.queues

    def arriving(self, topic: str, queue_id: int, *rest: object) -> None:
        self.told[topic, queue_id].append(rest)


class _Side:
    """One of the two stores, and how it dispatches."""

    def __init__(self, store: DefaultMessageStore, listener: _Listener, draw_ways: _Ways) -> None:
        self.store, self.listener, self.draw_ways = store, listener, draw_ways
        self.service = store.reput_message_service
        self.says_places = True  # all records say where they lie

    def append(self, data: bytes | bytearray, begin: int, end: int) -> None:
        """A piece of the log, in which a file may end."""
        while begin < end:
            stop = min(end, self.store.commit_log.roll_next_file(begin))
            assert self.store.append_to_commit_log(begin, data, begin, stop - begin)
            begin = stop

    def dispatch(self, after: int = -1, act: Callable[[], object] | None = None) -> None:
        """Dispatch what is there; `act` in front of span or round number `after`, by default end, as the service does
        when its role changes."""
        with lowered(reput_message_service, **self.draw_ways()), self._acting(after, act or self.service.make_stop):
            limit = self.service._limit()
            self.service.do_reput()
            assert not self.says_places or all(queue.max_physic_offset <= limit
                                               for queue in self.store.all_consume_queues()), limit

    @contextlib.contextmanager
    def _acting(self, after: int, act: Callable[[], object]) -> Iterator[None]:
        real = ReputMessageService._dispatch_span
        left = [after]

        def dispatch_span(service: ReputMessageService, *args: Any) -> int:
            left[0] -= 1
            if left[0] == 0:
                act()
            return real(service, *args)

        try:
            with mock.patch.object(ReputMessageService, "_dispatch_span", dispatch_span):
                yield
        finally:
            self.service._stopped = False

    def delete(self, topic: str, after: int) -> None:
        """Delete a topic, perhaps in the middle of a dispatch, which has its queues go between two records."""
        def act() -> None:
            with mock.patch.object(self.service, "run_between_records", self.service._between.append):
                self.store.delete_topic(topic)

        if after:
            self.dispatch(after, act)
        if topic not in self.store.deleted_topics.marks:
            self.store.delete_topic(topic)

    def built(self, root: Path) -> dict[str, Any]:
        """All that dispatch has made."""
        stats, files = self.store.store_stats_service, tree(root)
        queues = [queue for queue in self.store.all_consume_queues() if queue.mapped_file_queue.mapped_files]
        return {"queues": {path: data for path, data in files.items() if path.startswith("consumequeue/")},
                "index": [data for path, data in files.items() if path.startswith("index/")],
                "ends": {f"{queue.topic}-{queue.queue_id}": (
                    queue.max_physic_offset, queue.min_logic_offset, queue.get_max_offset_in_queue(), queue.is_dirty)
                    for queue in queues},
                "dispatched": self.store.store_checkpoint.dispatched_timestamp,
                "came to": self.service.reput_from_offset,
                "counted": (dict(stats.put_message_topic_times_total), dict(stats.put_message_topic_size_total)),
                "flags": (self.store.running_flags.is_writeable, self.store.running_flags.is_cq_writeable)}


class _Case:
    """One log for two stores: pieces of it, deletions and truncations at the same places, dispatch whenever."""

    def __init__(self, rng: random.Random, sides: tuple[_Side, _Side], maker: LogMaker, is_slave: bool,
                 together: bool) -> None:
        self.rng, self.sides, self.maker = rng, sides, maker
        self.is_slave, self.together = is_slave, together
        self.at = 0  # of the log, what the stores have
        self.may_delete = rng.random() < 0.3
        self.has_cut = False
        for side in sides:
            side.says_places = not maker.odd

    def more(self) -> None:
        """Some records more, in pieces: a slave gets them cut anywhere."""
        rng, maker = self.rng, self.maker
        maker.add(rng.choice((1, 2, 5, 20, 60)))
        ends = [record.offset + record.size for record in maker.records if record.offset + record.size > self.at]
        places = [rng.randrange(self.at, len(maker.data)) for _ in range(rng.choice((0, 1, 4)))] if self.is_slave \
            else rng.sample(ends, min(len(ends), rng.choice((0, 1, 4))))
        for begin, end in cuts(maker.data, [self.at, *places]):
            if end <= self.at:
                continue
            for side in self.sides:
                side.append(maker.data, begin, end)
            self.at = end
            self._dispatch()

    def _dispatch(self) -> None:
        if self.together:
            moments = [self.rng.random() < 0.5] * 2
        else:
            moments = [self.rng.random() < 0.4, self.rng.random() < 0.9]
        for side, is_due in zip(self.sides, moments):
            if is_due:
                side.dispatch()

    def flush(self) -> None:
        """What was flushed may be dispatched."""
        for side in self.sides:
            side.store.flush()

    def cut(self) -> None:
        """The role changes: records at the end give way to others, perhaps in the middle of a dispatch."""
        rng, service = self.rng, self.sides[0].service
        if not self.maker.records:
            return
        self.sides[0].dispatch(rng.randint(1, 6))
        places = [record.offset for record in self.maker.records[-30:]]
        offset = service.reput_from_offset if service.reput_from_offset in places and rng.random() < 0.5 \
            else rng.choice(places)
        for side in self.sides:
            side.store.truncate_dirty_files(offset)
        self.maker.cut(offset, self.sides[0].store.deleted_topics.marks)
        self.at, self.has_cut = offset, True
        # the records that come instead are of the same size now and then
        if rng.random() < 0.5:
            self.maker.rng = random.Random(0)

    def delete(self) -> None:
        """A topic goes; its next message is its first again."""
        if not self.may_delete:
            return
        left = [topic for topic in TOPICS if topic not in self.sides[0].store.deleted_topics.marks]
        if left:
            topic = self.rng.choice(left)
            self.sides[0].delete(topic, self.rng.choice((0, 1, 2, 4)) if not self.together else 0)
            self.sides[1].delete(topic, 0)
            for key in [key for key in self.maker.next_offsets if key[0] == topic.encode()]:
                del self.maker.next_offsets[key]

    def compare(self, roots: list[Path]) -> None:
        """Both, once all is dispatched."""
        self.flush()
        for side in self.sides:
            side.dispatch()
        found = [side.built(root) for side, root in zip(self.sides, roots)]
        if self.may_delete or self.maker.odd or self.has_cut:  # of records that have no unit, or none any more
            for each in found:
                del each["dispatched"]
        if self.has_cut:  # what gave way was counted, and told, where it was dispatched
            for each in found:
                del each["counted"]
        same(found[0], found[1], "built")
        with_unit = {record.store_timestamp for record in self.maker.records if record.has_unit}
        told = [{queue: [each for each in told if each[2] in with_unit] for queue, told in side.listener.told.items()}
                for side in self.sides]  # nobody misses that of a record without a unit
        same(*[{queue: entries for queue, entries in each.items() if entries} for each in told], "told")


def _single() -> dict[str, int]:
    return {"BULK_BYTES": NEVER, "_AHEAD_BYTES": NEVER}


def _spans(rng: random.Random) -> dict[str, int]:
    return {"BULK_BYTES": rng.choice((1, 1, 200, 2048, NEVER)), "_AHEAD_BYTES": NEVER}


def _ahead(rng: random.Random) -> dict[str, int]:
    return {"BULK_BYTES": rng.choice((1, 1, 200)), "_AHEAD_BYTES": rng.choice((1, 1, 4000, NEVER))}


def _compare(rng: random.Random, counted: list[tuple[object, str, str]], fast: _Ways, plain: _Ways,
             truncates: bool) -> Counter[str]:
    taken: Counter[str] = Counter()
    is_slave, together, odd = rng.random() < 0.4, rng.random() < 0.5, rng.choice((0, 0, 0.1, 0.5))
    if truncates:
        together, odd = False, 0
    maker = LogMaker(rng, rng.choice((5000, 16384)), odd if together else odd * 0.2, rng.choice((0, 300, 2500)),
                     repeats=not truncates)  # of a key twice a truncation keeps one
    keys: dict[str, Any] = {
        "mappedFileSizeCommitLog": maker.file_size, "mappedFileSizeConsumeQueue": rng.choice((60, 200, 1000)),
        "maxHashSlotNum": rng.choice((3, 50)), "maxIndexNum": rng.choice((5, 40, 1000)),
        "messageIndexEnable": rng.random() < 0.9, "preallocateMappedFile": rng.random() < 0.5,
        "dispatchBehindFlush": rng.random() < 0.3}
    if rng.random() < 0.4:
        keys |= {"enableLmq": True, "enableMultiDispatch": True}
    if is_slave:
        keys["brokerRole"] = BrokerRole.SLAVE
    queues = {(topic, queue_id) for topic in TOPICS for queue_id in range(3) if rng.random() < 0.3}
    with scratch() as root, lowered(span_dispatcher, SPAN_RECORDS=rng.choice((1, 3, 20, 1 << 15))), \
            lowered(reput_message_service, usable_cores=lambda: 2), \
            counting(taken, *counted), contextlib.ExitStack() as stack:
        sides = []
        for name, draw_ways in (("fast", fast), ("plain", plain)):
            listener = _Listener(queues)
            sides.append(_Side(stack.enter_context(loaded_store(root / name, listener, **keys)), listener, draw_ways))
        case = _Case(rng, (sides[0], sides[1]), maker, is_slave, together)
        for _ in range(rng.randint(1, 6)):
            case.more()
            if truncates:
                rng.choice((case.cut, case.cut, case.delete, case.flush, case.flush))()
            elif rng.random() < 0.4:
                rng.choice((case.delete, case.flush))()
        case.compare([root / "fast", root / "plain"])
    return taken


def _compare_spans(rng: random.Random) -> Counter[str]:
    counted: list[tuple[object, str, str]] = [
        (RecordDispatcher, "dispatch_span", FAST), (RecordDispatcher, "do_dispatch", PLAIN)]
    return _compare(rng, counted, partial(_spans, rng), _single, False)


def _compare_ahead(rng: random.Random) -> Counter[str]:
    counted: list[tuple[object, str, str]] = [(WorkAhead, "begin", FAST), (ReputMessageService, "_scan", PLAIN)]
    return _compare(rng, counted, partial(_ahead, rng), rng.choice((_single, partial(_spans, rng))), True)


# Faults.

def _to_the_neighbouring_queue(self: RecordDispatcher, span: Span, run: Run, units: memoryview,
                               real: Any = RecordDispatcher._put_run) -> bool:
    first = span.runs[0]
    return bool(real(self, span, run._replace(queue_id=first.queue_id) if run.topic == first.topic else run, units))


def _without_the_last_run(self: RecordDispatcher, span: Span, real: Any = RecordDispatcher.dispatch_span) -> None:
    real(self, span._replace(runs=span.runs[:-1]) if len(span.runs) > 3 else span)


def _all_of_them(self: ConsumeQueue, index: int, units: memoryview, real: Any = ConsumeQueue._put_block) -> int:
    size = int(real(self, index, units))
    if size:
        offset, record_size, _ = unpack_unit(units, len(units) - CQ_STORE_UNIT_SIZE)
        self.max_physic_offset = offset + record_size
    return size


def _in_a_full_file(_self: IndexService, index_file: Any, rows: bytes, first: int) -> None:
    if index_file is not None:
        index_file.put_key_rows(rows, first)


def _not_of_the_last(self: ReputMessageService, listener: Any, span: Span, result: SelectMappedBufferResult,
                     real: Any = ReputMessageService._notify_of_span) -> None:
    real(self, listener, span._replace(records=span.records[:RECORD.size * max(1, span.count - 1)]), result)


def _kept_for_a_place(self: ReputMessageService, buffer: memoryview, position: int, size: int, start: int) -> Span:
    found: dict[int, Span] = self.__dict__.setdefault("kept", {})  # of the log; nobody throws it away
    span = found.pop(start + position, None) or self._dispatcher.scan(buffer, position, size, start)
    if span.stop is Stop.LIMIT:
        found[start + span.position] = self._dispatcher.scan(buffer, span.position, size, start)
    return span


def _up_to_the_end_of_the_file(self: ReputMessageService, result: SelectMappedBufferResult, position: int, size: int,
                               work: WorkAhead, real: Any = ReputMessageService._dispatch_span) -> int:
    return int(real(self, result, position, result.size if work.threads else size, work))


SPANS = Way(
    name="store: spans in dispatch",
    where="rmqha/store/reput_message_service.py::ReputMessageService._dispatch_span",
    condition="2 KiB (BULK_BYTES) or more are to be dispatched, the bulk kernel is compiled, and nothing unusual is on",
    plain="record by record",
    compare=_compare_spans,
    plants=(
        Plant("units go to the neighbouring queue", replaced(RecordDispatcher, "_put_run", _to_the_neighbouring_queue)),
        Plant("the last run is left out", replaced(RecordDispatcher, "dispatch_span", _without_the_last_run)),
        Plant("units that have no room in the queue's file count as put",
              replaced(ConsumeQueue, "_put_block", _all_of_them)),
        Plant("keys behind a full index file are lost", replaced(IndexService, "_put_rows", _in_a_full_file)),
        Plant("nobody is told of a span's last record",
              replaced(ReputMessageService, "_notify_of_span", _not_of_the_last)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=24,
)
SCAN_AHEAD = Way(
    name="store: a thread that scans ahead",
    where="rmqha/store/reput_message_service.py::ReputMessageService._scan",
    condition="16 MiB (_AHEAD_BYTES) or more of a file are to be dispatched, and there are two cores",
    plain="scanning and dispatching in turn",
    compare=_compare_ahead,
    plants=(
        Plant("what was scanned outlives a truncation", replaced(ReputMessageService, "_scan", _kept_for_a_place)),
        Plant("what may not be dispatched yet is scanned, too",
              replaced(ReputMessageService, "_dispatch_span", _up_to_the_end_of_the_file)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
WAYS = [SPANS, SCAN_AHEAD]
