"""`store verify`: check that a store is what its broker wrote.

One pass over the commit log checks its records, and compares them with the consume queues and the index.
"""
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import click

from rmqha.common.program import examples
from rmqha.store.bulk.bulk_layout import Span
from rmqha.store.index.index_file import Shape
from rmqha.tools.store_files.findings import (
    EnoughFlawsError,
    Findings,
    IndexCheck,
    QueuesCheck,
    check_checkpoint,
    check_commit_log_files,
    check_index_files,
    check_queue_files,
    commitlog_option,
    common_file_size,
    delay_levels_option,
    index_shape,
    index_shape_options,
)
from rmqha.tools.store_files.readers import StoreReader
from rmqha.tools.store_files.reading import (
    DEFAULT_DELAY_LEVELS,
    Dispatcher,
    LogRecord,
    LogWalk,
    has_dead,
    runs_of,
    span_taker,
)
from rmqha.tools.terminal import emit, output_option, progress, put, size_type

_NO_BLANK = ("its last record ends at the end of the file, but brokers leave at least 8 bytes there: it was truncated "
             'to {0} bytes. A broker with another mappedFileSizeCommitLog does not start with it: "{0} length not '
             'matched message store config value, please check it manually"')
_FILE_SIZE = "The size of commit log files; by default the most frequent size."


@dataclass
class Counts:
    """The amounts checked."""

    records: int = 0
    bytes: int = 0
    units: int = 0
    queues: int = 0
    keys: int = 0
    indexFiles: int = 0
    minOffset: int = 0
    maxOffset: int = 0


class Verification:
    """One check of one store."""

    def __init__(self, store: StoreReader, limit: int = 1, delay_levels: str = DEFAULT_DELAY_LEVELS,
                 with_index: bool = True) -> None:
        self.store = store
        self.findings = Findings(limit)
        self.counts = Counts()
        self.with_index = with_index
        self._dispatcher = Dispatcher(delay_levels, store.deleted_topics())
        self._log_check: LogCheck | None = None  # created after the check of the files

    def run(self, come_to: Callable[[int], None] = lambda position: None) -> Findings:
        """Check everything, up to the limit of flaws. `come_to` is called with the number of log bytes checked."""
        try:
            self._run(come_to)
        except EnoughFlawsError:
            self.findings.notes["only the first flaws are shown; --all shows more"] += 1
        if self._log_check is not None:
            self._log_check.count()
        return self.findings

    def _run(self, come_to: Callable[[int], None]) -> None:
        store, findings = self.store, self.findings
        check_commit_log_files(store, findings)
        readers, foreign = store.queues()
        size = common_file_size(readers)
        for reader in readers.values():
            reader.file_size = size
        check_queue_files(readers, foreign, store.live, findings)
        self.counts.queues = len(readers)
        check = self._log_check = LogCheck(store, findings, self.counts, self._dispatcher,
                                           QueuesCheck(store, readers, findings))
        if self.with_index:
            files, foreign = store.index_files()
            check_index_files(files, foreign, store.live, findings)
            self.counts.indexFiles = len(files)
            check.index = IndexCheck(store, files, findings)
        check.run(come_to)
        check_checkpoint(store, check.last_store_timestamp, findings)


class LogCheck:
    """The pass over the log, which checks its records and compares the consume queues and the index with them."""

    def __init__(self, store: StoreReader, findings: Findings, counts: Counts, dispatcher: Dispatcher,
                 queues: QueuesCheck) -> None:
        self.store = store
        self.findings = findings
        self.counts = counts
        self.index: IndexCheck | None = None  # None: it is not checked
        self.last_store_timestamp = 0  # ms
        self._dispatcher = dispatcher
        self._queues = queues
        self._bad_crc: LogRecord | None = None  # the last record so far, if its CRC is wrong

    def run(self, come_to: Callable[[int], None]) -> None:
        """Check the log, the queues and the index."""
        end = self._walk_log(come_to)
        self._queues.finish(end, self.last_store_timestamp)
        if self.index is not None:
            self.index.finish(end)

    def count(self) -> None:
        """Update the counts of units and keys."""
        self.counts.units = self._queues.units
        if self.index is not None:
            self.counts.keys = self.index.keys

    def _walk_log(self, come_to: Callable[[int], None]) -> int:
        """Check the records; return the offset at which they end."""
        log = self.store.log
        self.counts.minOffset = self.counts.maxOffset = log.min_offset
        spans = span_taker(self._dispatcher, self._take)
        walk = log.walk(check_crc=True, spans=spans)
        while True:
            for records in walk:
                for record in records:
                    self._record(record)
                self.counts.maxOffset = walk.position
                come_to(walk.position - log.min_offset)
            self.last_store_timestamp = max(self.last_store_timestamp, walk.last_store_timestamp)
            self._blanks(walk)
            resume = self._at_end(walk)
            if resume is None:
                self.counts.maxOffset = walk.end.offset
                return walk.end.offset
            walk = log.walk(resume, check_crc=True, spans=spans)

    def _take(self, span: Span) -> bool:
        """Take a span of records if it has no flaw; else return False."""
        runs = runs_of(span) if self._bad_crc is None else None
        if runs is None or has_dead(runs, self._dispatcher.marks) or \
                not all(self._queues.fits(run) for run in runs) or \
                self.index is not None and not self.index.take_rows(span.keys):
            return False
        for run in runs:
            self._queues.take(run)
        self.counts.records += span.count
        self.counts.bytes += sum(topic.size for topic in span.topics)
        return True

    def _record(self, record: LogRecord) -> None:
        self.counts.records += 1
        self.counts.bytes += record.size
        place = self._place(record.offset)
        if self._bad_crc is not None:
            self._crc_flaw(self._bad_crc)
        if record.physical_offset != record.offset:
            self.findings.flaw(*place, f"the record at offset {record.offset} contains the offset "
                               f"{record.physical_offset}")
        if not record.crc_ok:
            self._bad_crc = record
        properties = record.properties()
        self._queues.record(record, self._dispatcher.units(record, properties), place)
        if self.index is not None:
            self.index.record(record, self._dispatcher.keys(record, properties))

    def _place(self, offset: int) -> tuple[str, int]:
        segment = self.store.log.folder.segments[self.store.log.folder.at(offset)]
        return segment.path, offset - segment.start

    def _crc_flaw(self, record: LogRecord) -> None:
        self._bad_crc = None
        self.findings.flaw(*self._place(record.offset), f"the CRC of the record at offset {record.offset} (topic "
                           f"{record.topic}, queue {record.queue_id}, queue offset {record.queue_offset}, "
                           f"{record.body_length} bytes of body) is wrong")

    def _blanks(self, walk: LogWalk) -> None:
        for blank in walk.blanks:
            self.findings.flaw(blank.segment.path, blank.position,
                               f"the blank at the end of the file contains the length {blank.says}; "
                               f"{blank.room} bytes are left")
        for segment in walk.without_blank:
            self.findings.flaw(segment.path, self.store.log.file_size, _NO_BLANK.format(segment.size))

    def _at_end(self, walk: LogWalk) -> int | None:
        """Return the offset at which to continue after a hole; None at the real end of the log."""
        log, end = self.store.log, walk.end
        found = log.next_record(end.offset, self.last_store_timestamp)
        # Or a running broker has appended records meanwhile.
        if found is None or log.goes_on_at(end.offset):
            self._real_end(walk)
            return None
        removed = end.segment is not None and end.position == 0 and end.reason == "the file has been removed"
        if removed and self.store.live:
            self.findings.note("the oldest files were deleted meanwhile")
        else:
            file, position = (end.segment.path, end.position) if end.segment else self._place(end.offset)
            self.findings.flaw(file, position, f"no record at offset {end.offset}: {end.reason or 'nothing is there'}; "
                               f"the next one is at {found.offset}")
        return found.offset

    def _real_end(self, walk: LogWalk) -> None:
        end = walk.end
        if self._bad_crc is not None:
            if self.store.may_be_torn:
                self.findings.note(f"the last record, at offset {self._bad_crc.offset}, is incomplete (by its CRC)")
            else:
                self._crc_flaw(self._bad_crc)
        if not end.reason or end.segment is None:
            return
        what = f"no record at offset {end.offset}, the end of the log: {end.reason}"
        if self.store.may_be_torn:
            self.findings.note(what)
        elif end.reason.startswith("magic code") and self.counts.records:
            # Bytes after the end are not part of the log. If this were a message, its unit would be missing too.
            self.findings.note(what)
        else:
            self.findings.flaw(end.segment.path, end.position, what)


def report(verification: Verification) -> dict[str, Any]:
    """Return the findings for JSON and YAML."""
    findings, store = verification.findings, verification.store
    return {"clean": not findings.flaws, "root": store.root, "state": store.state,
            "flaws": [asdict(flaw) for flaw in findings.flaws],
            "notes": [{"what": what, "count": count} for what, count in findings.notes.items()],
            **asdict(verification.counts)}


def _print(verification: Verification) -> None:
    findings, counts = verification.findings, verification.counts
    for flaw in findings.flaws:
        put(f"FLAW {flaw.text()}")
    for what, count in findings.notes.items():
        put(f"note {what}" + (f" (x{count})" if count > 1 else ""))
    put(f"{counts.records} records, {counts.bytes} bytes, offsets {counts.minOffset} to {counts.maxOffset}; "
        f"{counts.units} entries of {counts.queues} queues; {counts.keys} keys, {counts.indexFiles} index files; "
        f"broker {verification.store.state}")
    flaws = len(findings.flaws)
    put("clean" if not flaws else f"{flaws} flaw{'s' if flaws > 1 else ''}")


@click.command("verify", short_help="Check the records, consume queues and index of a store.", epilog=examples(
    "rmqha store verify ~/store",
    "rmqha store verify ~/store --all -o json"))
@click.argument("root", type=click.Path(exists=True, file_okay=False))
@click.option("--all", "limit", is_flag=False, flag_value=1000, default=1, type=click.IntRange(1),
              help="Do not stop at the first flaw: --all reports up to 1000, --all=N up to N. Put a bare --all "
                   "after ROOT.")
@click.option("--no-index", is_flag=True, help="Do not check the index.")
@click.option("--file-size", type=size_type(1), help=_FILE_SIZE)
@commitlog_option
@delay_levels_option
@index_shape_options
@output_option
def verify_command(root: str, limit: int, no_index: bool, file_size: int | None, commitlog: tuple[str, ...],
                   delay_levels: str, index_slots: int | None, index_entries: int | None, output: str) -> None:
    """Check the store at ROOT: its files, its records (no gaps, good CRCs), its consume queues and its index.

    Queues and index are compared with the log in both directions. A broker may be running on the store. Traces of a
    crash that the next start repairs are notes, not flaws. Exit code 0 when the store is clean, 1 when it has a flaw, 2
    when it can't be checked.
    """
    shape: Shape | None = index_shape(index_slots, index_entries)
    store = StoreReader(root, commitlog, shape, file_size)
    verification = Verification(store, limit, delay_levels, not no_index)
    with progress("verify", store.log.files_end - store.log.min_offset) as come_to:
        verification.run(come_to)
    if output != "table":
        emit(report(verification), output)
    else:
        _print(verification)
    if verification.findings.flaws:
        raise SystemExit(1)
