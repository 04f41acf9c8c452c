"""What a master whose role can change and its slaves say to each other before the reports. Pure: no socket, no clock.

    SlaveEpochGreeting.begin    --SlaveHandshake-->   MasterEpochGreeting.receive
    SlaveEpochGreeting.receive  <--MasterHandshake--  at once; the slave may ask again, until it reports
    consistent_point: up to where the slave's log is the master's, by their epochs
"""
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from rmqha.store.ha.autoswitch.auto_switch_transfer import (
    MasterHandshake,
    SlaveHandshake,
    decode_master_handshake,
    decode_slave_frame,
    encode_master_handshake,
    encode_slave_handshake,
)
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry, EpochFileCache

LogEnd = tuple[int, tuple[EpochEntry, ...]]  # a log's max offset, and its epochs


class Refusal(Enum):
    """Why a slave can't be served."""

    SAME_BROKER = "it says that it is the broker that it asks"
    NO_MASTER = "this broker is not a master now"
    REPORTS_FIRST = "it reports before its handshake"


class EpochStep(NamedTuple):
    """One thing that a slave has said, and what the master says to it: `reply`, or nothing but a refusal."""

    said: SlaveHandshake | None  # None: a report
    reply: bytes = b""
    log_end: LogEnd = (0, ())  # as in the reply
    refusal: Refusal | None = None


class MasterEpochGreeting:
    """The master's part.

    `receive` gives a step for each handshake; with the first report `is_over`, and `rest` begins with it.
    """

    def __init__(self, local_broker_id: int, is_master: Callable[[], bool], log_end: Callable[[], LogEnd]) -> None:
        self.is_over = False  # also after a refusal
        self.rest = b""  # not taken yet
        self.reads_log = self.waits = False  # nothing here needs bytes of the log
        self._local_broker_id = local_broker_id
        self._is_master = is_master
        self._log_end = log_end
        self._is_introduced = False

    def receive(self, data: bytes | memoryview) -> Iterator[EpochStep]:
        """What comes of `data`. TransferError, behind the steps before it, when it is not a frame of a slave."""
        self.rest += data
        while not self.is_over:
            found = decode_slave_frame(self.rest)
            if found is None:
                return
            said, size = found
            if isinstance(said, int):
                self.is_over = True
                if not self._is_introduced:
                    yield EpochStep(None, refusal=Refusal.REPORTS_FIRST)
                return
            self.rest = self.rest[size:]
            yield self._answer(said)

    def _answer(self, said: SlaveHandshake) -> EpochStep:
        refusal = Refusal.SAME_BROKER if said.slave_id == self._local_broker_id else \
            Refusal.NO_MASTER if not self._is_master() else None
        if refusal is not None:
            self.is_over = True
            return EpochStep(said, refusal=refusal)
        self._is_introduced = True
        log_end = self._log_end()
        return EpochStep(said, encode_master_handshake(*log_end), log_end)


class SlaveEpochGreeting:
    """The slave's part."""

    def __init__(self, introduction: SlaveHandshake) -> None:
        self.handshake: MasterHandshake | None = None  # what the master has said, once it is there whole
        self.wanted = decode_master_handshake(b"")[1]  # bytes to read at most: nothing of what comes behind
        self._introduction = introduction
        self._rest = b""

    def begin(self) -> bytes:
        """What to send."""
        return encode_slave_handshake(self._introduction)

    def receive(self, data: bytes) -> None:
        """Hear the master, up to `wanted` bytes. TransferError when it is not a handshake."""
        self._rest += data
        self.handshake, size = decode_master_handshake(self._rest)
        self.wanted = size - len(self._rest)


class EpochsDifferError(Exception):
    """Why a slave may not follow a master, by the epochs of both."""


def consistent_point(handshake: MasterHandshake, log_end: LogEnd, expected_epoch: int | None) -> int:
    """Up to where the slave's log, which ends at `log_end`, is the same as the master's. EpochsDifferError when the
    slave may not follow.

    `expected_epoch` is what the slave was told of the master's, None for nothing.
    """
    max_offset, local = log_end
    if not local:
        if max_offset > 0:
            # Differs: 5.1.4 goes on at its end without comparing anything
            raise EpochsDifferError(f"this log ends at {max_offset}, and knows no epochs: whether it is the master's"
                                    " can't be found out. Set the slave up anew")
        return 0
    # Differs: 5.1.4 relies on its controller; without one a stale master would cut off what a newer one wrote
    newest = max((entry.epoch for entry in local if entry.start_offset < max_offset), default=-1)
    if handshake.last_epoch < newest and (expected_epoch is None or expected_epoch <= newest):
        raise EpochsDifferError(f"the master's last epoch is {handshake.last_epoch}, and this log has messages of "
                                f"epoch {newest}: it is no longer the master")
    caches = []
    for entries, end_offset in ((local, max_offset), (handshake.entries, handshake.max_offset)):
        cache = EpochFileCache()
        cache.init_cache_from_entries(entries)
        cache.set_last_epoch_entry_end_offset(end_offset)
        caches.append(cache)
    point = min(caches[0].find_consistent_point(caches[1]), max_offset)
    if point < 0:
        raise EpochsDifferError(f"the logs have no epoch in common: MASTER: {epochs_text(handshake.entries)} SLAVE: "
                                f"{epochs_text(local)}. Set the slave up anew")
    return point


def epochs_text(entries: Iterable[EpochEntry]) -> str:
    """The epochs, for the log."""
    return ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in entries) or "none"
