"""Fast paths over many records: recovery, the tools' rebuild, and columns for Spark."""
from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from rmqha.common.message import message_layout as layout
from rmqha.common.sys_flags import COMPRESSED_FLAG
from rmqha.store import commit_log_recovery, dispatch
from rmqha.store import store_path_config_helper as paths
from rmqha.store.bulk import bulk, bulk_python
from rmqha.store.bulk.bulk_layout import Span
from rmqha.store.commit_log_recovery import CommitLogRecovery
from rmqha.store.dispatch import RecordDispatcher
from rmqha.store.mapped_file import MappedFile
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.store_files import builders, reading, rebuild
from rmqha.tools.store_files.builders import IndexBuilder, QueueBuilder
from rmqha.tools.store_files.readers import StoreReader
from rmqha.tools.store_files.reading import RunOfUnits
from rmqha.tools.store_files.rebuild import Rebuild
from rmqha.tools.store_files.verify import LogCheck, Verification
from rmqha.tools.terminal import CannotAnswerError
from tests.fast_ways.support_store import (
    TOPICS,
    LogMaker,
    counting,
    damage,
    dispatch_rest,
    loaded_store,
    queue_state,
    same,
    scratch,
    store_files,
    write_store,
)
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.store.support import tree

# Fast paths of recovery: many records at once, several files at once.

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
    """Return the state of a store after a start."""
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
    if rng.random() < 0.3:
        keys["enableAutoSwitchHA"] = True
    maker.add(rng.choice(counts))
    with scratch() as root:
        write_store(rng, root / "written", maker, rng.random() < clean, **keys)
        damage(rng, root / "written", maker)
        keys["checkCRCOnRecover"] = rng.random() < 0.8
        found, span_records = [], rng.choice((1, 4, 1 << 15))
        for way in (fast, plain):
            # At the same path: names are in the compared state.
            shutil.copytree(root / "written", root / "store")
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
    condition="always for records with nothing unusual, in whole spans where the bulk kernel is compiled",
    plain="a record is checked alone, as each unusual one is; only the test does so for all records",
    compare=_compare_bulk,
    plants=(
        Plant("a span's bodies are not checked", replaced(RecordDispatcher, "scan", _without_crc)),
        Plant("a queue's end is noted one too high", replaced(CommitLogRecovery, "_note_runs", _notes_the_next)),
        Plant("a span is noted but not dispatched",
              replaced(CommitLogRecovery, "_walk_spans", _forgets_the_last_span)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
THREADS = Way(
    name="store: recovery by threads",
    where="rmqha/store/commit_log_recovery.py::CommitLogRecovery._look_over_file",
    condition="nothing to dispatch (a clean stop), several files, two cores, and the kernel is compiled",
    plain="one file after the other",
    compare=_compare_threads,
    plants=(
        Plant("a thread's findings about the queues are lost",
              replaced(CommitLogRecovery, "_look_over_file", _sees_no_queue)),
        Plant("bodies and offsets are not checked",
              replaced(CommitLogRecovery, "_look_over_file", _checks_little)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
WAYS = [BULK, THREADS]


# Fast path of the tools: the records of a block at once, when a rebuild or a check goes over a log.


def _rebuilt(root: Path, target: Path | None, with_index: bool, queue_file_size: int) -> dict[str, Any]:
    """Return what a rebuild reports, and what it writes if it has a target."""
    try:
        done = Rebuild(StoreReader(str(root)), str(target) if target else None, skip_damage=True,
                       queue_file_size=queue_file_size, with_index=with_index).run()
    except CannotAnswerError as error:
        return {"refused": str(error)}
    said = asdict(done)
    for built in said["index"] if target else ():
        del built["name"]  # the time
    files = tree(target) if target else {}
    return {"said": said, "queues": {path: data for path, data in files.items() if path.startswith("consumequeue")},
            "index": [data for path, data in sorted(files.items()) if path.startswith("index")]}


def _rebuild_compare(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    maker = LogMaker(rng, rng.choice((4096, 16384)), rng.choice((0, 0, 0.1, 0.6)), rng.choice((0, 300, 1000)))
    keys: dict[str, Any] = {
        "mappedFileSizeCommitLog": maker.file_size, "mappedFileSizeConsumeQueue": rng.choice((60, 200, 1000)),
        "maxHashSlotNum": rng.choice((3, 50)), "maxIndexNum": rng.choice((40, 1000))}
    if rng.random() < 0.3:
        keys |= {"enableLmq": True, "enableMultiDispatch": True}
    maker.add(rng.choice((1, 20, 60, 120)))
    real = Rebuild._take

    def take(self: Rebuild, span: Span) -> bool:
        done = real(self, span)
        taken[FAST] += done and span.count > 0
        return done

    with scratch() as root, contextlib.ExitStack() as stack:
        write_store(rng, root / "store", maker, rng.random() < 0.8, **keys)
        damage(rng, root / "store", maker)
        if rng.random() < 0.3:
            os.makedirs(root / "store" / "config", exist_ok=True)
            marks = {rng.choice(TOPICS): rng.choice(maker.records).offset for _ in range(2)}
            Path(paths.get_deleted_topics_path(str(root / "store"))).write_text(json.dumps({"deletedTopics": marks}))
        stack.enter_context(lowered(reading, BLOCK=rng.choice((600, 3000, 1 << 20))))
        stack.enter_context(lowered(builders, _WINDOW=rng.choice((3, 70))))
        stack.enter_context(lowered(rebuild, _BUFFERS=rng.choice((60, 1000, 1 << 20))))
        with_target, with_index, verifies = rng.random() < 0.6, rng.random() < 0.8, rng.random() < 0.4
        found = []
        for way in ("fast", "plain"):
            with mock.patch.object(Rebuild, "_take", take), counting(
                    taken, (Rebuild, "_record", PLAIN), (LogCheck, "_record", PLAIN)), \
                    lowered(bulk, is_compiled=lambda fast=way == "fast": fast):
                target = root / way if with_target else None
                found.append(_rebuilt(root / "store", target, with_index, keys["mappedFileSizeConsumeQueue"]))
                if verifies:
                    found[-1]["verified"] = str(Verification(StoreReader(str(root / "store")), limit=50).run().__dict__)
        same(*found, "rebuild")
    return taken


def _of_the_first_queue(span: Span, real: Any = rebuild.runs_of) -> list[RunOfUnits] | None:
    runs = real(span)
    return runs and [run._replace(queue_id=runs[0].queue_id) if run.topic == runs[0].topic else run for run in runs]


def _without_the_last_key(self: IndexBuilder, rows: bytes, real: Any = IndexBuilder.put_rows) -> None:
    real(self, rows[:-24] if len(rows) > 24 * 8 else rows)


def _counts_one_less(self: QueueBuilder, index: int, units: bytes, real: Any = QueueBuilder.put_run) -> None:
    real(self, index, units)
    if self.next_index % 3 == 0:
        self.next_index -= 1


REBUILD = Way(
    name="store: rebuild and verify in bulk",
    where="rmqha/tools/store_files/reading.py::SpanTaker",
    condition="the bulk kernel is compiled, and the units of a block continue their queues",
    plain="record by record",
    compare=_rebuild_compare,
    plants=(
        Plant("units go to the neighbouring queue", replaced(rebuild, "runs_of", _of_the_first_queue)),
        Plant("deletions are ignored", replaced(rebuild, "has_dead", lambda _runs, _marks: False)),
        Plant("the last key of a block is lost", replaced(IndexBuilder, "put_rows", _without_the_last_key)),
        Plant("a run counts one unit too few", replaced(QueueBuilder, "put_run", _counts_one_less)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
WAYS += [REBUILD]


# Whole columns out of blocks of records, for Spark, beside the decoder of single messages.

LARGEST_BODY = 4 << 20
LARGEST_LOG = 6 << 20
NAMED = (b"KEYS", b"TAGS", b"UNIQ_KEY")
SCRAPS = (b"\1", b"\2", b"a", b"KEYS", b"TAGS", b"\0", b"\xff", b"\xe5\x90", b"\xed\xa0\x80", b"KEYS\1k\2",
          b"TAGS\1t\2", b"WAIT\1true\2", "é\1主题".encode(), "\U0001f600\1x\2".encode())
HOSTS = tuple(layout.host_to_bytes(host) for host in (
    ("127.0.0.1", 10911), ("127.0.0.1", 10911), ("10.1.2.3", 4), ("255.255.255.255", 65535), ("::1", 5),
    ("fe80::2", 6)))


def _properties(rng: random.Random, orderly: float = 0.7) -> bytes:
    """Return the property text of a record, as clients write it or an odd one."""
    if rng.random() < orderly:
        pairs = {name: b"v" * some_size(rng, [127, 128, 255, 256, 4096], 30_000 if rng.random() < 0.05 else 40)
                 for name in rng.sample([*NAMED, b"WAIT", b"own", "名".encode()], rng.randint(0, 5))}
        text = b"\2".join(name + b"\1" + value for name, value in pairs.items())
        return text + rng.choice([b"", b"\2"])
    if rng.random() < 0.2:
        return b"\2".join(b"%d\1%d" % (rng.randrange(200), index)
                          for index in range(rng.choice([15, 16, 17, 63, 64, 90])))
    return b"".join(rng.choice(SCRAPS) for _ in range(rng.randint(0, 20)))


# -- properties --

def compare_properties(rng: random.Random) -> Counter[str]:
    """Compare the compiled columns with those in Python, for any records of a block, in any order."""
    data, begins, ends = bytearray(b"before"), array("q"), array("q")
    for _ in range(rng.choice([0, 1, 7, 8, 9, 64, 300])):
        begins.append(len(data))
        data += _properties(rng, 0.5)
        ends.append(len(data))
        data += rng.choice([b"", b"\1between\2", b"\2"])
    order = list(range(len(begins)))
    rng.shuffle(order)
    if rng.random() < 0.5:
        begins, ends = array("q", [begins[at] for at in order]), array("q", [ends[at] for at in order])
    names = tuple(rng.sample([*NAMED, b"own", "名".encode(), b"", b"\xff"], rng.randint(0, 7)))
    with_map = rng.random() < 0.7
    quick = bulk_python.property_columns(bytes(data), begins, ends, names, with_map)
    slow = bulk_python.columns_in_python(bytes(data), begins, ends, names, with_map)
    assert quick == slow, f"{bytes(data)[:2000]!r}, {names}"
    return Counter({FAST: len(begins), PLAIN: len(begins)})


def _bits_from_the_highest(data: Any, begins: Any, ends: Any, names: tuple[bytes, ...], with_map: bool) -> Any:
    """Count a record's bit from the highest of its byte."""
    found, columns = _columns(data, begins, ends, names, with_map)
    return found, [(bytes(int(f"{byte:08b}"[::-1], 2) for byte in valid), *rest) for valid, *rest in columns]


def _first_value_counts(data: Any, begins: Any, ends: Any, names: tuple[bytes, ...], with_map: bool) -> Any:
    """Use the first value of equal names."""
    def read(text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for entry in text.split("\2"):
            name, separator, value = entry.partition("\1")
            if name and separator and value and "\1" not in value:
                found.setdefault(name, value)
        return found
    with lowered(bulk_python, string2message_properties=read):
        return bulk_python.columns_in_python(data, begins, ends, names, with_map)


_columns = bulk_python.property_columns


# -- rows --

def _log(rng: random.Random) -> tuple[bytes, list[int]]:
    """Return a log of any records, and where each begins. The kernel accepts none of some, for example with a wrong
    body CRC."""
    data, begins, room = bytearray(), [], LARGEST_LOG
    for number in range(rng.choice([1, 3, 20, 120])):
        born, stored = rng.choice(HOSTS), rng.choice(HOSTS[:1] * 3 + HOSTS)
        sys_flag = layout.host_flags(born, stored)
        body = rng.randbytes(min(room, some_size(rng, [64 << 10, 2 << 20], LARGEST_BODY)))
        if rng.random() < 0.2:
            sys_flag |= COMPRESSED_FLAG
            body = zlib.compress(body, 1)
        crc = layout.body_crc32(body) ^ (body != b"" and rng.random() < 0.03)
        begins.append(len(data))
        data += layout.encode_record(
            crc, rng.randrange(8), rng.randrange(1 << 31), number, len(data), sys_flag,
            rng.choice([0, 1, 1_700_000_000_123, 1 << 62]), born, 1_700_000_000_000 + number, stored, rng.randrange(5),
            rng.randrange(1 << 40), body, layout.encode_topic(rng.choice(["T", "other", "主题", "t" * 127])),
            _properties(rng))
        room = max(0, room - len(body))
    return bytes(data), begins


def compare_rows(rng: random.Random) -> Counter[str]:
    """Compare all columns of the blocks of a log, read in ranges cut anywhere, with the decoder, row by row."""
    import numpy as np  # is not installed everywhere

    from rmqha.pipeline.log import log_scan
    from rmqha.pipeline.log.columns import BlockColumns
    from tests.pipeline.log.test_log_scan import SCHEMA, check_row

    taken: Counter[str] = Counter()
    data, begins = _log(rng)
    marks = sorted({0, len(data)} | {rng.randrange(len(data)) for _ in range(rng.choice([0, 0, 1, 5]))})
    wanted = rng.choice([1.0, 1.0, 0.5])
    rows: list[dict[str, Any]] = []
    left_out: set[int] = set()
    with (tempfile.TemporaryDirectory() as folder,
          lowered(log_scan, BLOCK=rng.choice([300, 5000, 2 << 20]), _SLACK=rng.choice([0, 100, 64 << 10]))):
        path = Path(folder, f"{0:020d}")
        path.write_bytes(data)
        for begin, end in pairwise(marks):
            for block in log_scan.scan_range(log_scan.ByteRange(str(path), 0, begin, end, len(data), begin == 0), True):
                assert isinstance(block, log_scan.Block), block
                taken[FAST if len(block.rows) > 1 else PLAIN] += len(block.rows)
                chosen = np.array([rng.random() < wanted for _ in block.rows], bool)
                left_out |= set(block.rows["offset"][~chosen].tolist())
                found = BlockColumns(block, None if chosen.all() else chosen, "store", True).batch(SCHEMA).to_pylist()
                for row in found:
                    assert row["crcOk"] == block.crc_ok
                    rows.append(row | {"crcOk": True})
    assert sorted([row["physicalOffset"] for row in rows] + sorted(left_out)) == begins
    for row in rows:
        check_row(row, data, 0)
    return taken


def _first_host_for_all() -> AbstractContextManager[object]:
    """Use the first record's host for all."""
    from rmqha.pipeline.log import columns

    def host(self: Any, position: Any, v6: Any) -> Any:
        keys = self.number(">u8", position)
        if v6.any() or len(keys) < 2:
            return real(self, position, v6)
        return self.same(columns._host_text(int(keys[0]).to_bytes(8, "big")), columns.pa.string())
    real = columns.BlockColumns.host
    return replaced(columns.BlockColumns, "host", host)()


@contextmanager
def _chosen_by_place() -> Iterator[None]:
    """Begin a column with the block, whichever rows are chosen."""
    from rmqha.pipeline.log import columns

    def row(self: Any, name: str) -> Any:
        return columns.pa.array(columns.np.ascontiguousarray(self._block.rows[name][:len(self)]))
    with replaced(columns.BlockColumns, "row", row)():
        yield


WAYS += [
    Way("properties as columns", "rmqha/store/bulk/bulk_python.py::property_columns",
        "a C compiler was available at installation", "`columns_in_python`", compare_properties,
        (Plant("the bits for present values are counted from the highest one",
               replaced(bulk_python, "property_columns", _bits_from_the_highest)),
         Plant("the first value of a repeated name counts",
               replaced(bulk_python, "property_columns", _first_value_counts))),
        needs=("rmqha.native._properties",)),
    Way("columns of blocks", "rmqha/pipeline/log/columns.py::BlockColumns",
        "Spark reads a log, and the kernel accepts the records", "message_decoder.decode, record by record",
        compare_rows,
        (Plant("all rows get the first host", _first_host_for_all),
         Plant("rows are chosen by their place in the block", _chosen_by_place)), seeds=25,
        needs=("numpy", "pyarrow", "pyspark")),
]
