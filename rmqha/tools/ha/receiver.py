"""Following a master's log into a folder.

    master --frames--> FrameDecoder --runs--> RecordVerifier --records--> compare what the folder holds, write, fsync
    master <--8-byte reports: the position where this connection began; with `acknowledge` what is on disk

A report is an acknowledgement to a master: all below it counts as stored by a slave. Without `acknowledge` a receiver
therefore reports nothing but the position where it began, and begins so far back that no send can be waiting for what
lies before it: its records are older than the newest by more than the master's slaveTimeout. What it gets twice it
compares with what it holds.
"""
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rmqha.common.util_all import LONG_AGO
from rmqha.remoting.frame_decoder import ByteStream, StreamError
from rmqha.store.ha import ha_transfer
from rmqha.store.ha.record_verifier import RecordFlawError, RecordVerifier
from rmqha.tools.ha.broker_admin import ReplicationToolError
from rmqha.tools.ha.received_log import ReceivedLog

_RECEIVE_SIZE = 1024 * 1024  # bytes of one read
_READ_WAIT_S = 0.25  # how soon a stop is seen
_CONNECT_TIMEOUT_S = 5.0
_SETTLE_MARGIN_MS = 5000  # a 4.9 master looks at its waiting sends once a second
_SAMPLE_S = 0.5
_LOOK_AGAIN_S = 30.0  # without data
_MAX_SAMPLES = 1000


class DivergedError(ReplicationToolError):
    """The master's log is not the one that was received so far."""

    exit_code = 1


@dataclass(frozen=True)
class Master:
    """What a master's broker port tells before its log is followed. Sizes and offsets are bytes, times ms."""

    name: str
    address: tuple[str, int]  # of the HA port
    file_size: int
    min_offset: int
    max_offset: int
    slave_timeout_ms: int
    housekeeping_ms: int


class Receiver:
    """Receives into `log` until `stop()` is true, or a connection ends, or with `once` until the master's end as of the
    connecting is reached."""

    def __init__(self, log: ReceivedLog, acknowledge: bool, from_first: bool, once: bool,
                 stop: Callable[[], bool], sync_interval_s: float = 1.0) -> None:
        self._log = log
        self._acknowledge = acknowledge
        self._from_first = from_first
        self._once = once
        self._stop = stop
        self._sync_interval_s = sync_interval_s
        self._verifier = RecordVerifier(0)  # made with each connection, which begins with a record
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=_MAX_SAMPLES)  # (monotonic s, end of the log)
        self._flawed_at = -1  # commit log offset of the last record that failed its checks
        self._position: int | None = None  # what comes next on this connection; None: the master chooses
        self._compared_to = 0  # what the folder held when this connection began
        self._decoder = ha_transfer.FrameDecoder()
        self._reported = 0
        self._last_report: float = LONG_AGO  # monotonic s, as the next
        self._last_sync = self._last_read = self._last_data = 0.0
        self.received = 0  # bytes written

    def follow(self, ask: Callable[[], Master], on_progress: Callable[[int], None]) -> None:
        """One connection to the master that `ask` tells of. StreamError when it ends by itself, DivergedError when it
        must not be tried again."""
        master = ask()
        begin = self._begin(master)
        stream = ByteStream(master.address, _CONNECT_TIMEOUT_S)
        try:
            self._decoder = ha_transfer.FrameDecoder()
            self._position, self._compared_to = begin or None, self._log.end or 0
            self._verifier = RecordVerifier(master.file_size)
            self._report(stream, begin)
            self._last_read = self._last_data = time.monotonic()
            while not self._stop() and not (self._once and (self._position or 0) >= master.max_offset):
                self._receive(stream, master, on_progress)
                if time.monotonic() - self._last_data > _LOOK_AGAIN_S:
                    self._check_range(ask())
                    self._last_data = time.monotonic()
        finally:
            stream.close()

    def _begin(self, master: Master) -> int:
        """The first report: where the master goes on from; 0 means its last file."""
        log = self._log
        if master.min_offset % master.file_size:
            raise DivergedError(f"{master.name} begins at {master.min_offset}, where none of its files of "
                                f"{master.file_size} bytes begins")
        if log.end is None:
            # The first byte of a record is always 0 (the top of its size), so a log can be asked for from 1 on,
            # which asks for the first file, and acknowledges nothing.
            return master.min_offset or int(master.max_offset > 1) if self._from_first else 0
        if log.end > master.max_offset:
            raise DivergedError(f"{log.folder} ends at {log.end}, the log of {master.name} at {master.max_offset}: it "
                                "is another log, or has lost its end. Receive into another folder")
        begin = self._settled(0 if self._acknowledge else master.slave_timeout_ms + _SETTLE_MARGIN_MS)
        if begin < master.min_offset:
            if log.end < master.min_offset:
                raise DivergedError(f"{log.folder} ends at {log.end}, the log of {master.name} begins at "
                                    f"{master.min_offset}: what is between was deleted. Receive into another folder")
            begin = master.min_offset
        return begin or 1

    def _settled(self, settle_ms: float) -> int:
        """The highest position that is surely waited for by nobody: by what arrived, else by the records' times."""
        before = time.monotonic() - settle_ms / 1000
        settled = None
        while self._arrivals and self._arrivals[0][0] <= before:
            settled = self._arrivals.popleft()
        if settled is None:
            place = self._log.settled(settle_ms)
            assert place is not None  # `_begin` asks for it of a log that holds something
            return place
        self._arrivals.appendleft(settled)
        return settled[1]

    def _receive(self, stream: ByteStream, master: Master, on_progress: Callable[[int], None]) -> None:
        """Read once, and do what is due."""
        count = stream.receive_into(self._decoder.writable(_RECEIVE_SIZE), _READ_WAIT_S)
        if count:
            self._last_read = time.monotonic()
            self._decoder.received(count)
            self._take_runs(master)
            on_progress(self._log.end or 0)
        elif (time.monotonic() - self._last_read) * 1000 > master.housekeeping_ms:
            raise StreamError(f"{stream.name} has been silent for {master.housekeeping_ms} ms")
        self._sync_and_report(stream, idle=not count, master=master)

    def _take_runs(self, master: Master) -> None:
        """Take all that has come."""
        try:
            for run in self._decoder.runs(master.file_size):
                if self._position is None:
                    self._position = self._first_offset(run.offset, master)
                if run.offset != self._position:
                    raise DivergedError(f"{master.name} was asked to go on at {self._position} and answers with "
                                        f"{run.offset}: it does not hold what this folder needs. Its log was deleted "
                                        "up to there, has lost its end, or is another one")
                if run.length:
                    self._take(run.offset, self._decoder.view[run.start:run.start + run.length], master)
                    self._position, self._last_data = run.offset + run.length, self._last_read
        except ha_transfer.TransferError as error:
            raise StreamError(f"{master.name}: {error}; is this its HA port?") from error

    def _check_range(self, master: Master) -> None:
        """A 4.9 master that has deleted what comes next sends heartbeats for ever."""
        if self._position is not None and not master.min_offset <= self._position <= master.max_offset:
            raise DivergedError(f"{master.name} holds {master.min_offset} to {master.max_offset}, and this folder goes "
                                f"on at {self._position}: what it needs was deleted meanwhile")

    def _first_offset(self, offset: int, master: Master) -> int:
        """Where a log that was asked for by 0 begins."""
        if offset % master.file_size or offset < 0:
            raise DivergedError(f"{master.name} begins at {offset}, where none of its files of {master.file_size} "
                                "bytes begins")
        if self._from_first and offset > 0:
            raise StreamError(f"{master.name} has just begun another file; asked again")
        return offset

    def _take(self, offset: int, data: memoryview, master: Master) -> None:
        if offset % master.file_size + len(data) > master.file_size:
            raise DivergedError(f"{master.name} sends {len(data)} bytes at {offset}, beyond the end of a file of "
                                f"{master.file_size} bytes: its files are of another size")
        if offset == 1:  # as `_begin` has asked; the byte in front of it is 0
            self._store_pieces(0, memoryview(b"\0"), master)
        self._store_pieces(offset, data, master)

    def _store_pieces(self, offset: int, data: memoryview, master: Master) -> None:
        """Store what is checked by now; the beginning of a record is held back."""
        try:
            for at, checked, start, length in self._verifier.take(offset, data, 0, len(data)):
                self._store(at, checked[start:start + length], master)
        except RecordFlawError as flaw:
            is_known, self._flawed_at = flaw.offset == self._flawed_at, flaw.offset
            reason = f"{master.name} sends damaged bytes, or what is no commit log: {flaw}; nothing of it is stored"
            if is_known:
                raise DivergedError(f"{reason}. It came so twice: check the master's store with rmqha store verify"
                                    ) from flaw
            raise StreamError(reason) from flaw

    def _store(self, offset: int, data: memoryview, master: Master) -> None:
        log = self._log
        held = (log.end if log.end is not None else offset) - offset
        if held > 0:
            mine = log.read(offset, min(held, len(data)))
            if mine != data[:held]:
                at = next(place for place in range(held) if mine[place:place + 1] != data[place:place + 1])
                raise DivergedError(f"{log.folder} and the log of {master.name} differ at {offset + at}: it is another "
                                    "log, or one of them is damaged. Receive into another folder, and compare them "
                                    "with rmqha store diff")
            offset, data = offset + min(held, len(data)), data[held:]
        if not data:
            return
        log.write(offset, data)
        self.received += len(data)
        now, end = time.monotonic(), offset + len(data)
        is_whole = self._verifier.next_record(end) == end  # not within the blank of a file
        if is_whole and (not self._arrivals or now - self._arrivals[-1][0] > _SAMPLE_S):
            self._arrivals.append((now, end))

    def _sync_and_report(self, stream: ByteStream, idle: bool, master: Master) -> None:
        log, now = self._log, time.monotonic()
        if self._acknowledge or idle or now - self._last_sync > self._sync_interval_s:
            if log.synced != log.end:
                log.sync()
            self._last_sync = now
        synced = log.synced or 0
        if self._acknowledge and (self._position or 0) >= self._compared_to and synced > self._reported:
            self._report(stream, synced)
        elif (now - self._last_report) * 4000 > master.housekeeping_ms:
            self._report(stream, self._reported)

    def _report(self, stream: ByteStream, offset: int) -> None:
        stream.send_all(ha_transfer.encode_report(offset), _CONNECT_TIMEOUT_S)
        self._reported, self._last_report = offset, time.monotonic()
