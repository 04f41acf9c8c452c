"""What must hold after a fault, read from the files alone by log_copy.py and the oracle tests/support/store_compare.py.

    A  each acknowledged message is there, once, where it was acknowledged to be, with its body and its properties
    B  master's and slave's logs are the same bytes over the range that both hold, and whole records up to their ends:
       each one's body is that of its CRC, acknowledged or not
    C  queue offsets have no gap and no repeat, and the consume queues on disk equal a rebuild from the log
       (on the original: hold at least what the rebuild has)
    E  each request was answered within its deadline
"""
import time
from collections.abc import Callable
from typing import cast

from tests.faults.log_copy import LogCopy
from tests.faults.pair_broker import Broker
from tests.faults.senders import Acknowledged
from tests.support import store_compare
from tests.support.wait import wait_until

_SHOWN = 3
_SETTLE_MS = 60_000
_WRITE_MS = 10_000  # for what a slave is about to write
_JAVA_IS_ASKED_EACH_S = 0.1


class Violation(AssertionError):
    """An invariant does not hold."""


class Repeat(Violation):
    """Invariant C does not hold: an index was given twice, by whoever was the master."""


def check_acknowledged(broker: Broker, copy: LogCopy, acknowledged: dict[str, Acknowledged], where: str = "",
                       limit: int | None = None) -> int:
    """Invariant A on one log, from its first file up to `limit`, as LogCopy.read. The number of messages looked for.

    Nothing acknowledged may lie behind a record that is not whole, as the last one may not be while a broker writes, or
    where it was killed.
    """
    copy.read(limit)
    wanted = {name: placed for name, placed in acknowledged.items() if placed.offset >= copy.begin}
    lost = {name: copy.places.get(name, []) for name, placed in wanted.items()
            if copy.places.get(name) != [placed.place()]}
    if lost:
        first = [f"{name} at {acknowledged[name]}, found {places}" for name, places in list(lost.items())[:_SHOWN]]
        raise Violation(f"A: {len(lost)} of {len(wanted)} acknowledged messages are not on the {broker.base_name}"
                        f"{where}, whose whole records end at {copy.end} ({copy.flaw or 'no flaw'}): "
                        + "; ".join(first))
    return len(wanted)


def check_records(broker: Broker, copy: LogCopy, end: int) -> int:
    """The second half of invariant B: a log that nobody writes to has whole records, with the bodies of their CRCs, up
    to its end. The number of records."""
    copy.read(end)
    if copy.flaw or copy.end != end:
        raise Violation(f"B: the log of the {broker.base_name} ends at {end}, its whole records at {copy.end}: "
                        f"{copy.flaw or 'nothing is there'}")
    return copy.count


def check_queues(broker: Broker, copy: LogCopy | None = None) -> int:
    """Invariant C on a broker that takes no message meanwhile; waits until all is dispatched. Number of units."""
    copy = copy or LogCopy(broker.commit_log)
    copy.read(broker.log_end())
    if copy.repeated:
        raise Repeat(f"C on the {broker.base_name}: {copy.repeated}")
    for (topic, queue_id), expected in copy.queues.items():
        if len(expected) != max(expected) - min(expected) + 1:
            raise Violation(f"C on the {broker.base_name}: {topic}/{queue_id} has a gap in {min(expected)}.."
                            f"{max(expected)}: {len(expected)} messages")
    count = sum(map(len, copy.queues.values()))
    try:
        if broker.kind != "rmqha":
            wait_until(lambda: _holds(broker, copy), _SETTLE_MS // 2, f"{count} units dispatched")
        else:
            wait_until(lambda: store_compare.unit_count(broker.store) >= count, _SETTLE_MS, f"{count} units dispatched")
            _check_units(broker, copy)
    except AssertionError as failure:
        raise Violation(f"C on the {broker.base_name}: {failure}") from failure
    return count


def _check_units(broker: Broker, copy: LogCopy) -> None:
    on_disk = store_compare.queues_on_disk(broker.store)
    assert set(on_disk) == set(copy.queues), f"queues in one only: {set(on_disk) ^ set(copy.queues)}"
    for key, expected in copy.queues.items():
        found = dict(store_compare.units(on_disk[key]))
        wrong = [index for index in sorted(found.keys() | expected.keys())
                 if not _is_same(found.get(index), expected.get(index))]
        assert not wrong, (f"{key}: {len(wrong)} units differ, the first has index {wrong[0]}: {found.get(wrong[0])} "
                           f"on disk, {expected.get(wrong[0])} from the log")


def _is_same(found: tuple | None, expected: tuple | None) -> bool:
    if found is None or expected is None:
        return False
    return found[:2] == expected[:2] and expected[2] in (None, found[2])


def _holds(broker: Broker, copy: LogCopy) -> bool:
    """Whether all rebuilt units are on disk; the original leaves old units behind the last one after a recovery."""
    for (topic, queue_id), expected in copy.queues.items():
        found = dict(store_compare.units(broker.store / "consumequeue" / topic / str(queue_id)))
        for index, unit in expected.items():
            if found.get(index, (None, None))[:2] != unit[:2]:
                return False
    return True


def end_of(broker: Broker, copy: LogCopy) -> Callable[[], int]:
    """Asks again and again where a log that grows ends: the files, from where they ended before; a broker of Java
    itself, not too often."""
    if broker.ends_by_its_files:
        return copy.followed_end()

    def asked() -> int:
        time.sleep(_JAVA_IS_ASKED_EACH_S)
        return broker.log_end()
    return asked


def _equal_range(master: Broker, slave: Broker, end: int) -> tuple[int, int]:
    """The range that both logs hold, which is the same in both once the slave has written all of it: the head of its
    last record is in the file before the record's last byte, and the end of a log that grows is told by heads."""
    differs: list[AssertionError] = []

    def compared() -> tuple[int, int] | None:
        try:
            return store_compare.compare_commit_logs(master.commit_log, slave.commit_log, end)
        except AssertionError as failure:
            differs[:] = [failure]
            return None
    try:
        return cast(tuple[int, int], wait_until(compared, _WRITE_MS))
    except AssertionError:
        raise Violation(f"B: {differs[0]}") from differs[0]


def check_equal(master: Broker, slave: Broker, copies: dict[str, LogCopy]) -> tuple[int, int]:
    """Invariant B once the slave has caught up with a master that takes nothing meanwhile. The range that both hold."""
    end, its_end = end_of(master, copies["master"])(), end_of(slave, copies["slave"])
    try:
        wait_until(lambda: its_end() >= end, _SETTLE_MS, f"the slave's log at {end}")
    except AssertionError as failure:
        raise Violation(f"B: the slave stays at {its_end()}: {failure}") from failure
    behind = end_of(slave, copies["slave"])()
    if behind != end:
        raise Violation(f"B: the slave's log ends at {behind}, beyond the master's {end}")
    begin, end = _equal_range(master, slave, end)
    for broker in (master, slave):
        check_records(broker, copies[broker.base_name], end)
    return begin, end
