"""Whether master and slave hold the same bytes, by a look at records: all that can be asked of brokers of 4.9.

Each file of a commit log begins with a record, so two logs of files of one size can be compared there without knowing
any message. A difference is a proof; that there is none is not: `rmqha store diff` compares all.
"""
import time

from rmqha.tools.ha.answers import Told
from rmqha.tools.ha.broker_admin import BrokerAdmin, ReplicationToolError

_FILE_SIZE = 1 << 30  # bytes, by default


def sample_offsets(master: Told, slave: Told) -> list[int]:
    """Where the first and the last file begin of which both hold the beginning."""
    size = master.setting("mappedFileSizeCommitLog", _FILE_SIZE)
    end = min(master.max_offset, slave.max_offset)
    if size <= 0 or slave.setting("mappedFileSizeCommitLog", _FILE_SIZE) != size or end <= 0:
        return []
    last = (end - 1) // size * size
    first = -(-max(master.min_offset, slave.min_offset) // size) * size
    return sorted({first, last}) if first <= last else []


def first_difference(admin: BrokerAdmin, master: Told, slave: Told, deadline: float) -> int | None:
    """The lowest of the samples at which the two hold other bytes; None when there is none, or it can't be asked.

    Nor when it takes longer than to `deadline`, a monotonic time.
    """
    for offset in sample_offsets(master, slave):
        if time.monotonic() > deadline:
            return None
        try:
            records = [admin.record_at(told.broker.address, offset) for told in (slave, master)]
        except ReplicationToolError:
            return None
        if records[0] != records[1]:
            return offset
    return None
