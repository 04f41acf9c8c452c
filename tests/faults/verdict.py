"""What must hold after a fault, told from the files alone by the oracle tests/support/store_compare.py.

    A  each acknowledged message is there, once, where it was acknowledged to be, with its body
    B  master's and slave's logs are the same bytes over the range that both hold
    C  queue offsets have no gap and no repeat, and the consume queues on disk equal a rebuild from the log
    E  each request was answered within its deadline
"""
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.faults.senders import Acknowledged
from tests.support import store_compare
from tests.support.wait import wait_until

_SHOWN = 3
_SETTLE_MS = 60_000


class Violation(AssertionError):
    """An invariant does not hold."""


def check_acknowledged(commit_log: Path, acknowledged: dict[str, Acknowledged], where: str) -> int:
    """Invariant A on one log, from its first file on. The number of messages looked for."""
    found: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for record in _whole_records(commit_log):
        name = record.body.split(b"|", 1)[0].decode("utf-8", "replace")
        found[name].append((record.queue_id, record.queue_offset, record.offset, zlib.crc32(record.body)))
    begin = min(store_compare.segments(commit_log), default=0)
    wanted = {name: placed for name, placed in acknowledged.items() if placed.offset >= begin}
    lost = {name: found.get(name, []) for name, placed in wanted.items() if found.get(name) != [placed.place()]}
    if lost:
        first = [f"{name} at {acknowledged[name]}, found {places}" for name, places in list(lost.items())[:_SHOWN]]
        raise Violation(f"A: {len(lost)} of {len(wanted)} acknowledged messages are not on the {where}, whose log ends "
                        f"at {store_compare.log_end(commit_log)}: " + "; ".join(first))
    return len(wanted)


def _whole_records(commit_log: Path) -> Iterator[store_compare.Record]:
    """All records up to one that is not whole: a slave appends frame by frame, and a record may span several.

    Nothing acknowledged may lie behind the end of this walk, so a flaw further to the front is found all the same.
    """
    records = store_compare.walk(commit_log)
    while True:
        try:
            record = next(records, None)
        except AssertionError:
            return
        if record is None:
            return
        yield record


def check_queues(store: Path, where: str) -> int:
    """Invariant C on one store that takes no message meanwhile; waits until all is dispatched. Number of units."""
    try:
        count = sum(map(len, store_compare.rebuild_consume_queues(store / "commitlog").values()))
        wait_until(lambda: store_compare.unit_count(store) >= count, _SETTLE_MS, f"{count} units dispatched")
        return store_compare.check_consume_queues(store)
    except AssertionError as failure:
        raise Violation(f"C on the {where}: {failure}") from failure


def check_equal(master: Path, slave: Path) -> tuple[int, int]:
    """Invariant B once the slave has caught up with a master that takes nothing meanwhile. The range that both hold."""
    end = store_compare.log_end(master)

    def log_end_of_slave() -> int:
        return store_compare.log_end(slave)
    try:
        wait_until(lambda: log_end_of_slave() >= end, _SETTLE_MS, f"the slave's log at {end}")
    except AssertionError as failure:
        raise Violation(f"B: the slave stays at {log_end_of_slave()}: {failure}") from failure
    try:
        both = store_compare.compare_commit_logs(master, slave)
    except AssertionError as failure:
        raise Violation(f"B: {failure}") from failure
    if log_end_of_slave() != end:
        raise Violation(f"B: the slave's log ends at {log_end_of_slave()}, beyond the master's {end}")
    return both
