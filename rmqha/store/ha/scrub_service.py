"""Comparing a slave's log with its master's while both run, to find bytes that have gone bad.

    ScrubService --offset, blocks--> LogOfMaster --> the master
        | CRC32 of the same blocks of this log (read_tail)
        v
    ScrubState: position, age, differences --> ha_service, metrics

A disk can return other bytes than it was given, years after it accepted them, and nothing notices until a consumer
reads the message or the slave becomes the master. By then the good copy may have expired. Scrubbing reads both copies
while both still exist: the slave asks for the CRC32 of blocks of its master's log, and compares them with its own.

- A block that differs is narrowed down, by smaller blocks, to the first differing byte and the record that contains it.
  A short wait comes first: bytes that are being written or truncated look like a difference once, and only once.
- The records' own checks decide which copy is damaged. Topic, properties and times have no check, so a difference
  there is reported with an unknown culprit. Nothing is repaired: overwriting the wrong copy would make it worse.
- The rate is limited, since a comparison reads the disks of both sides. A new round begins when half of haScrubPromise
  has passed since the last one began, so that every byte is compared again within the promised time.
- The slave does the work, so a master of RocketMQ 4.9 can be scrubbed too: its log is then read over its HA port.
"""
from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from rmqha.common.message.message_layout import HEAD
from rmqha.common.service_thread import ServiceThread
from rmqha.store.bulk import bulk
from rmqha.store.ha import scrub_state
from rmqha.store.ha.ha_client import HAClient, parse_address
from rmqha.store.ha.log_comparison import is_blank, read_tail, record_start
from rmqha.store.ha.master_connection import AskChecksums, LogOfMaster, MasterLogError
from rmqha.store.ha.peers import HAConnectionState
from rmqha.store.ha.scrub_state import CANT, OFF, RUNNING, WAITING, Difference, ScrubState
from rmqha.store.record_check import block_checksums
from rmqha.store.replicated_log import LogReader
from rmqha.store.role import Role
from rmqha.store.store_path_config_helper import get_scrub_file

log = logging.getLogger("RocketmqStore")

_BLOCK = 64 * 1024
# sizes of the smaller blocks into which a differing block is divided, down to the byte
_FINE_BLOCKS = (1024, 16, 1)
_MAX_STEP = 16 * 1024 * 1024  # bytes of one comparison
_STEP_MS = 250
# After _IDLE_MS without an append the rate is _IDLE_TIMES as high.
_IDLE_MS, _IDLE_TIMES = 1000, 16
_LOOK_MS = 1000  # with nothing to compare
_RETRY_MS = 5000
_SAVE_MS = 10_000
_FOUND_AGAIN_MS = 60_000
# A log is streamed once per _STREAM_AGAIN_MS, or earlier if _STREAM_MIN bytes are due.
_STREAM_AGAIN_MS, _STREAM_MIN = 60_000, 4 * 1024 * 1024
_SURE_MS = 200  # before a differing block is compared again
_MAX_OF_A_BLOCK = 64


class ScrubService(ServiceThread):
    """The thread that compares a slave's log with its master's, block by block. Idle on a broker that has no master.

    The first good frame from a master starts it. The rate is haScrubBytesPerSecond, and 16 times that while nothing is
    appended. Rounds begin early enough for each byte to be compared within haScrubPromise.

    The original has no such service.
    """

    def __init__(self, log_reader: LogReader, role: Role, client: HAClient) -> None:
        super().__init__()
        self.daemon = True
        self.config = client.config
        self._role = role
        self.state = ScrubState(get_scrub_file(self.config.storePathRootDir))
        self.ask_checksums: AskChecksums | None = None  # set by the broker before the start
        self._log = log_reader
        self.client = client  # its master is queried
        self._is_loaded = False
        self._master: LogOfMaster | None = None
        # (end of the log as last seen, monotonic ms at which it was first seen)
        self._grown = (-1, 0)
        self._saved_ms = 0
        self._streamed_ms = -_STREAM_AGAIN_MS  # when the last stream was closed
        self._looked_ms = -_FOUND_AGAIN_MS  # when the first difference was last rechecked

    def load(self) -> None:
        """Read the findings of this broker's last run, so that they are shown before the master responds."""
        if self._is_loaded:
            return
        self.state.load()
        self._is_loaded = True
        if self.config.haScrubEnable:
            self.state.state = WAITING

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        self.load()
        try:
            while not self.stopped:
                self.wait_for_running(self._step())
        finally:
            self._leave_master()
            self.state.save()
        log.info("%s service end", self.get_service_name())

    def _step(self) -> float:
        """Compare some bytes; return the time in ms until the next step."""
        begin_ms = _now_ms()
        if not self.config.haScrubEnable or not self._role.is_slave:
            return self._rest(OFF, _RETRY_MS)
        address, client = self.client.master_address, self.client
        if self.ask_checksums is None or address is None or client.state is not HAConnectionState.TRANSFER:
            return self._rest(WAITING, _LOOK_MS)
        begin, end = max(0, self._log.get_min_phy_offset()), self._log.get_max_phy_offset()
        rate = self._rate(end)
        self.state.log_is(begin, end)
        try:
            master = self._log_of(address)
            self._look_again_when_due(master, begin, end)
            if self.state.is_round_due(self.config.haScrubPromise):
                master = self._begin_round(address, begin, end)
            if self.state.position >= end or self._may_gather(master, end):
                return self._rest(WAITING, _LOOK_MS)
            size = self._compare(master, min(_MAX_STEP, max(1, rate * _STEP_MS // 1000), end - self.state.position))
        except MasterLogError as error:
            self.state.last_error = str(error)
            return self._rest(CANT, _RETRY_MS)
        self.state.state, self.state.last_error = RUNNING, ""
        self._save_when_due()
        return max(0.0, size * 1000 / rate - (_now_ms() - begin_ms))

    def _rest(self, state: str, pause_ms: int) -> int:
        if self._master is not None and self._master.close():
            self._streamed_ms = _now_ms()
        if state != CANT:
            self.state.last_error = ""
        self.state.state = state
        self._save_when_due()
        return pause_ms

    def _rate(self, end: int) -> int:
        """Return the rate in bytes per second: higher if the log has not grown lately."""
        if end != self._grown[0]:
            self._grown = end, _now_ms()
        is_idle = _now_ms() - self._grown[1] >= _IDLE_MS
        return self.config.haScrubBytesPerSecond * (_IDLE_TIMES if is_idle else 1)

    def _look_again_when_due(self, master: LogOfMaster, begin: int, end: int) -> None:
        """Forget repaired differences: recheck the first one every minute, and all of them when that one is gone."""
        found = self.state.found
        if not found or _now_ms() - self._looked_ms < _FOUND_AGAIN_MS:
            return
        self._looked_ms = _now_ms()
        if not self._still_differs(master, min(found), begin, end):
            self.state.keep([each for each in found if self._still_differs(master, each, begin, end)])

    def _may_gather(self, master: LogOfMaster, end: int) -> bool:
        """Return whether to wait for more new bytes, rather than open a stream for a few.

        Applies to a master that provides no checksums, whose log is read over a separate connection.
        """
        return master.is_streamed and not master.is_open and end - self.state.position < _STREAM_MIN \
            and _now_ms() - self._streamed_ms < min(_STREAM_AGAIN_MS, self.config.haScrubPromise // 4)

    def _begin_round(self, address: str, begin: int, end: int) -> LogOfMaster:
        """Begin another round, knowing nothing about the master: another version may run at its address by now."""
        self._leave_master()
        master, state = self._log_of(address), self.state
        state.keep([each for each in state.found if self._still_differs(master, each, begin, end)])
        state.begin_round(begin)
        return master

    def _still_differs(self, master: LogOfMaster, difference: Difference, begin: int, end: int) -> bool:
        if not begin <= difference.offset <= end - difference.size:
            return False
        return any(self._differing(master, difference.offset, difference.size, _BLOCK))

    def _log_of(self, address: str) -> LogOfMaster:
        if self._master is None or self._master.address != address:
            self._leave_master()
            place, ask = parse_address(address), self.ask_checksums
            assert place is not None and ask is not None  # HAClient and `_step` have checked
            self._master = LogOfMaster(address, place, ask, not self.config.enableAutoSwitchHA,
                                       self.config.mappedFileSizeCommitLog, lambda: self.stopped)
        return self._master

    def _leave_master(self) -> None:
        master, self._master = self._master, None
        if master is not None:
            master.close()

    def _save_when_due(self) -> None:
        if _now_ms() - self._saved_ms >= _SAVE_MS:
            self._saved_ms = _now_ms()
            self.state.save()

    # Comparing.

    def _compare(self, master: LogOfMaster, size: int) -> int:
        """Compare about `size` bytes from the state's position on; return how many were compared."""
        state, position = self.state, self.state.position
        block = min(size, _BLOCK)
        count = size // block
        found = master.checksums(position, block, count)
        if not found.crcs:
            # the master has deleted these bytes
            if found.min_offset > position:
                state.compared(min(found.min_offset, state.round_end), 0)
            return block
        mine = block_checksums(self._log, position, block, len(found.crcs))
        # `mine` is shorter if the log was truncated meanwhile.
        for number, (crc, own) in enumerate(zip(found.crcs, mine)):
            at = position + number * block
            if own != crc and not self.stopped:
                self._find_differences(master, at, block)
        state.compared(position + len(found.crcs) * block, len(found.crcs) * block)
        return len(found.crcs) * block

    def _differing(self, master: LogOfMaster, offset: int, size: int, block: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of the blocks that both logs hold and that differ."""
        while size > 0:
            block = min(block, size)
            count = min(size // block, _MAX_STEP // block)
            crcs = master.checksums(offset, block, count).crcs
            for number, crc in enumerate(crcs):
                mine = read_tail(self._log, offset + number * block, block)
                if mine is not None and mine != crc:
                    yield offset + number * block, block
            if len(crcs) < count:
                return
            offset, size = offset + count * block, size - count * block

    def _find_differences(self, master: LogOfMaster, offset: int, size: int) -> None:
        """Find and report the differing records of a block; none if it does not differ any more."""
        # Bytes that were truncated or are just being written look like a difference, but only once.
        self.wait_for_running(_SURE_MS)
        end, known_to, segment_size = offset + size, offset, self.config.mappedFileSizeCommitLog
        for _ in range(_MAX_OF_A_BLOCK):
            if known_to >= end or self.stopped:
                return
            at = self._first_differing(master, known_to, end - known_to)
            if at is None:
                return
            difference = self._difference_at(master, *at)
            if difference is None:
                known_to = at[0] - at[0] % segment_size + segment_size
                continue
            if self.state.differs(difference):
                log.error("scrubbing: this slave's log differs from its master's: %s", difference.reason)
            known_to = max(difference.offset + difference.size, at[0] + at[1])

    def _first_differing(self, master: LogOfMaster, offset: int, size: int) -> tuple[int, int] | None:
        place: tuple[int, int] | None = (offset, size)
        for block in _FINE_BLOCKS:
            place = next(self._differing(master, *place, block), None) if place is not None else None
        return place

    def _difference_at(self, master: LogOfMaster, at: int, size: int) -> Difference | None:
        """Return the record that contains the bytes at `at`, and which copy of it is damaged.

        None for bytes that are never read: those of a file's blank after its head.
        """
        start = record_start(self._log, at)
        if 0 <= start <= at - HEAD.size and is_blank(self._log, start):
            return None
        mine = _record_at(self._log, start) if start >= 0 else b""
        if not mine or start + len(mine) <= at:
            return Difference(at, size, f"{size} bytes at {at} differ; no readable record contains them",
                              scrub_state.SLAVE)
        ask = self.client.ask_record
        theirs = ask(master.address, start) if ask is not None else None
        good, good_there = bulk.is_record(mine, start), bulk.is_record(theirs or b"", start)
        where, whose = scrub_state.UNKNOWN, "the record's own checks do not show which copy is damaged"
        if good_there and not good:
            where, whose = scrub_state.SLAVE, "the slave's copy fails its checks, the master's is good"
        elif good and theirs and not good_there:
            where, whose = scrub_state.MASTER, "the MASTER's copy fails its checks, the slave's is good"
        reason = f"the record of {len(mine)} bytes at {start} differs at {at}: {whose}"
        return Difference(start, len(mine), reason, where)


def _record_at(log_reader: LogReader, start: int) -> bytes:
    result = log_reader.get_commit_log_data(start)
    if result is None:
        return b""
    with result:
        if result.size < HEAD.size:
            return b""
        size = HEAD.unpack_from(result.buffer)[0]
        return bytes(result.buffer[:size]) if HEAD.size < size <= result.size else b""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
