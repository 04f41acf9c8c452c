"""What must hold after a fault, told from the files alone by the oracle tests/support/store_compare.py.

    A  each acknowledged message is there, once, where it was acknowledged to be, with its body
    B  master's and slave's logs are the same bytes over the range that both hold
    C  queue offsets have no gap and no repeat, and the consume queues on disk equal a rebuild from the log
       (on the original: hold at least what the rebuild has)
    E  each request was answered within its deadline
"""
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.faults.pair_broker import Broker
from tests.faults.senders import Acknowledged
from tests.support import store_compare
from tests.support.wait import wait_until

_SHOWN = 3
_SETTLE_MS = 60_000


class Violation(AssertionError):
    """An invariant does not hold."""


class Repeat(Violation):
    """Invariant C does not hold: an index was given twice, by whoever was the master."""


def check_acknowledged(broker: Broker, acknowledged: dict[str, Acknowledged], where: str = "") -> int:
    """Invariant A on one log, from its first file on. The number of messages looked for."""
    commit_log = broker.commit_log
    found: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for record in _whole_records(commit_log):
        name = record.body.split(b"|", 1)[0].decode("utf-8", "replace")
        found[name].append((record.queue_id, record.queue_offset, record.offset, zlib.crc32(record.body)))
    begin = min(store_compare.segments(commit_log), default=0)
    wanted = {name: placed for name, placed in acknowledged.items() if placed.offset >= begin}
    lost = {name: found.get(name, []) for name, placed in wanted.items() if found.get(name) != [placed.place()]}
    if lost:
        first = [f"{name} at {acknowledged[name]}, found {places}" for name, places in list(lost.items())[:_SHOWN]]
        raise Violation(f"A: {len(lost)} of {len(wanted)} acknowledged messages are not on the {broker.base_name}"
                        f"{where}, whose log ends at {store_compare.log_end(commit_log)}: " + "; ".join(first))
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


def check_queues(broker: Broker) -> int:
    """Invariant C on a broker that takes no message meanwhile; waits until all is dispatched. Number of units."""
    try:
        rebuilt = store_compare.rebuild_consume_queues(broker.commit_log, broker.log_end())
        count = sum(map(len, rebuilt.values()))
        if broker.kind != "rmqha":
            wait_until(lambda: _holds(broker.store, rebuilt), _SETTLE_MS // 2, f"{count} units dispatched")
            return count
        wait_until(lambda: store_compare.unit_count(broker.store) >= count, _SETTLE_MS, f"{count} units dispatched")
        return store_compare.check_consume_queues(broker.store)
    except store_compare.RepeatedIndex as failure:
        raise Repeat(f"C on the {broker.base_name}: {failure}") from failure
    except AssertionError as failure:
        raise Violation(f"C on the {broker.base_name}: {failure}") from failure


def _holds(store: Path, rebuilt: dict) -> bool:
    """Whether all rebuilt units are on disk; the original leaves old units behind the last one after a recovery."""
    for (topic, queue_id), expected in rebuilt.items():
        found = dict(store_compare.units(store / "consumequeue" / topic / str(queue_id)))
        for index, unit in expected.items():
            if found.get(index, (None, None))[:2] != unit[:2]:
                return False
    return True


def check_equal(master: Broker, slave: Broker) -> tuple[int, int]:
    """Invariant B once the slave has caught up with a master that takes nothing meanwhile. The range that both hold."""
    end = master.log_end()
    try:
        wait_until(lambda: slave.log_end() >= end, _SETTLE_MS, f"the slave's log at {end}")
    except AssertionError as failure:
        raise Violation(f"B: the slave stays at {slave.log_end()}: {failure}") from failure
    if slave.log_end() != end:
        raise Violation(f"B: the slave's log ends at {slave.log_end()}, beyond the master's {end}")
    try:
        return store_compare.compare_commit_logs(master.commit_log, slave.commit_log, end)
    except AssertionError as failure:
        raise Violation(f"B: {failure}") from failure
