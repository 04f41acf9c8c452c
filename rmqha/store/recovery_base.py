"""What recovery may take for granted."""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")


class RecoveryBase(NamedTuple):
    """Offsets of the commit log: what lies before is on the disk, whatever happened to the machine.

    What lies behind was not forced to the disk, or nobody has noted it: of it, any sector may be missing.
    """

    log_flushed: int
    dispatched: int  # units and keys of the records before are on the disk
    is_noted: bool  # by a store of ours; otherwise it follows from the original's times
    by_slave: bool
    doubts_heads: bool  # a slave wrote, and power may be lost: pieces of records came to the disk in any order
    was_stopped: bool  # in order: everything was flushed


def recovery_base(store: DefaultMessageStore, last_exit_ok: bool) -> RecoveryBase:
    """What the checkpoint says.

    Differs: offsets are believed, not times: after a clock that was set back the original begins behind records that
    never got their units. Times count when the original, or nobody, has written the checkpoint last.
    """
    found = store.store_checkpoint.found
    if found is not None:
        base = RecoveryBase(found.log_flushed, found.dispatched, True, found.by_slave,
                            found.by_slave and not found.is_same_boot, last_exit_ok)
    elif last_exit_ok:
        base = RecoveryBase(0, 0, False, False, False, True)
    else:
        start = store.commit_log.begin_of_recovery_by_times()
        base = RecoveryBase(start, start, False, False, False, False)
    log.info("recover from %s", base)
    return base
