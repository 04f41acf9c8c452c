"""Fast ways of recovery: many records at once, several files at once."""
from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from rmqha.store import commit_log_recovery, dispatch
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Span
from rmqha.store.commit_log_recovery import CommitLogRecovery
from rmqha.store.dispatch import RecordDispatcher
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import BrokerRole
from tests.fast_ways.support_store import counting, loaded_store, same, scratch
from tests.fast_ways.support_store_files import damage, dispatch_rest, queue_state, store_files, write_store
from tests.fast_ways.support_store_log import LogMaker
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced

_SINGLE, _SKIPPING, _SPANS, _THREADS = "record by record", "skipping good records", "spans", "several threads"


@contextlib.contextmanager
def _way_of_recovery(way: str, taken: Counter[str], span_records: int, fast: bool) -> Iterator[None]:
    skip = commit_log_recovery.skip_good_records

    def skip_good_records(buffer: memoryview, position: int, *rest: Any) -> int:
        taken[FAST if fast else PLAIN] += 1
        return position if way is _SINGLE else skip(buffer, position, *rest)

    counted: list[tuple[object, str, str]] = [(CommitLogRecovery, "_look_over_file", FAST)] if way is _THREADS else [
        (CommitLogRecovery, "_walk_spans", FAST if fast else PLAIN), (bulk, "walk", FAST if fast else PLAIN)]
    with lowered(commit_log_recovery, usable_cores=lambda: 4 if way is _THREADS else 1,
                 skip_good_records=skip_good_records), \
            lowered(dispatch, SPAN_RECORDS=span_records), counting(taken, *counted), \
            contextlib.nullcontext() if way in (_SPANS, _THREADS) else lowered(bulk, is_compiled=lambda: False):
        yield


def _recovered(root: Path, keys: dict[str, Any]) -> dict[str, Any]:
    """What a start makes of a store."""
    noted: list[Any] = []
    finish = CommitLogRecovery._finish

    def noting(self: CommitLogRecovery, files: list[MappedFile], process_offset: int, *rest: Any) -> None:
        noted.append((process_offset, dict(self._last_queue_offsets)))
        finish(self, files, process_offset, *rest)

    found: dict[str, Any] = {"loaded": False}
    with mock.patch.object(CommitLogRecovery, "_finish", noting), \
            contextlib.suppress(AssertionError), loaded_store(root, **keys) as store:
        checkpoint = store.store_checkpoint
        found = {"loaded": True, "end": store.get_max_phy_offset(), "state": queue_state(store),
                 "table": dict(store.commit_log.topic_queue_table), "lmq": dict(store.commit_log.lmq_topic_queue_table),
                 "checkpoint": (checkpoint.log_flushed, checkpoint.dispatched, checkpoint.by_slave),
                 "after recovery": store_files(root)}
        dispatch_rest(store)
    return {**found, "noted": noted, "files": store_files(root)}


def _compare(rng: random.Random, fast: str, plain: str, clean: float, counts: tuple[int, ...]) -> Counter[str]:
    taken: Counter[str] = Counter()
    maker = LogMaker(rng, rng.choice((4096, 8192)), rng.choice((0, 0, 0.1)), rng.choice((0, 300, 1000)))
    keys: dict[str, Any] = {
        "mappedFileSizeCommitLog": maker.file_size, "mappedFileSizeConsumeQueue": rng.choice((60, 200, 1000)),
        "maxHashSlotNum": 7, "maxIndexNum": rng.choice((40, 1000)), "messageIndexEnable": rng.random() < 0.8}
    if rng.random() < 0.3:
        keys |= {"enableLmq": True, "enableMultiDispatch": True}
    if rng.random() < 0.3:
        keys["brokerRole"] = BrokerRole.SLAVE
    maker.add(rng.choice(counts))
    with scratch() as root:
        write_store(rng, root / "written", maker, rng.random() < clean, **keys)
        damage(rng, root / "written", maker)
        keys["checkCRCOnRecover"] = rng.random() < 0.8
        found, span_records = [], rng.choice((1, 4, 1 << 15))
        for way in (fast, plain):
            shutil.copytree(root / "written", root / "store")  # at the same place: names are in what is compared
            with _way_of_recovery(way, taken, span_records, way is fast):
                found.append(_recovered(root / "store", keys))
            shutil.rmtree(root / "store")
        same(*found, f"{fast}, and {plain}")
    return taken


def _compare_bulk(rng: random.Random) -> Counter[str]:
    return _compare(rng, rng.choice((_SPANS, _SPANS, _SKIPPING)), _SINGLE, 0.5, (0, 3, 40, 120))


def _compare_threads(rng: random.Random) -> Counter[str]:
    return _compare(rng, _THREADS, rng.choice((_SPANS, _SINGLE)), 0.95, (30, 60, 120))


# Faults.

def _without_crc(self: RecordDispatcher, buffer: memoryview, start: int, end: int, file_from_offset: int,
                 _check_crc: bool = False, real: Any = RecordDispatcher.scan) -> Span:
    return real(self, buffer, start, end, file_from_offset, False)  # type: ignore[no-any-return]


def _notes_the_next(self: CommitLogRecovery, span: Span, last_queue_offsets: dict[tuple[bytes, int], int],
                    real: Any = CommitLogRecovery._note_runs) -> None:
    real(self, span._replace(runs=[run._replace(queue_offset=run.queue_offset + 1) for run in span.runs]),
         last_queue_offsets)


def _forgets_the_last_span(self: CommitLogRecovery, buffer: memoryview, position: int, size: int,
                           file_from_offset: int, check_crc: bool, last_queue_offsets: Any, dispatching: Any,
                           real: Any = CommitLogRecovery._walk_spans) -> int:
    if dispatching:
        span = self._dispatcher.scan(buffer, position, size, file_from_offset, check_crc)
        self._note_runs(span, last_queue_offsets)
        return span.position
    return int(real(self, buffer, position, size, file_from_offset, check_crc, last_queue_offsets, dispatching))


def _sees_no_queue(self: CommitLogRecovery, mapped_file: MappedFile,
                   real: Any = CommitLogRecovery._look_over_file) -> Any:
    return real(self, mapped_file)[0], {}


def _checks_little(self: CommitLogRecovery, mapped_file: MappedFile) -> Any:
    size, offsets = self.commit_log.mapped_file_size, {}
    buffer, position = mapped_file.slice_byte_buffer(), 0
    if self._queues_have_files():
        position = self._walk_spans(buffer, 0, size, mapped_file.file_from_offset, False, offsets, None)
    return bulk.walk(buffer, position, size, False).position, offsets


BULK = Way(
    name="store: recovery in bulk",
    where="rmqha/store/commit_log_recovery.py::CommitLogRecovery._good_records_walk",
    condition="always: in spans where the bulk kernel is compiled, else past records without anything unusual",
    plain="each record is looked at by itself; whatever is unusual always is",
    compare=_compare_bulk,
    plants=(
        Plant("a span's bodies are not checked", replaced(RecordDispatcher, "scan", _without_crc)),
        Plant("a queue's end is noted one too far", replaced(CommitLogRecovery, "_note_runs", _notes_the_next)),
        Plant("a span is noted, and not dispatched",
              replaced(CommitLogRecovery, "_walk_spans", _forgets_the_last_span)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
THREADS = Way(
    name="store: recovery by threads",
    where="rmqha/store/commit_log_recovery.py::CommitLogRecovery._look_over_file",
    condition="nothing is dispatched (a clean stop), there are several files and two cores, and the kernel is compiled",
    plain="one file after the other",
    compare=_compare_threads,
    plants=(
        Plant("what a thread sees of the queues is lost",
              replaced(CommitLogRecovery, "_look_over_file", _sees_no_queue)),
        Plant("bodies and places are not checked",
              replaced(CommitLogRecovery, "_look_over_file", _checks_little)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
WAYS = [BULK, THREADS]
