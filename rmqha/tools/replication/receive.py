"""`ha receive`: stream a master's log into a folder, as pg_receivewal does for PostgreSQL.

The folder holds the files, names and sizes of a commit log folder; received bytes are appended.

    master --frames--> FrameDecoder --runs--> RecordVerifier --records--> compare what the folder holds, write, fsync
    master <--8-byte reports: the position where this connection began; with `acknowledge` what is on disk

A report is an acknowledgement to a master: everything below it counts as stored by a slave. So without `acknowledge` a
receiver reports only the position where it began. It begins so early that no send can be waiting for earlier bytes:
their records are older than the newest by more than the master's slaveTimeout. Bytes received twice are compared with
those in the folder.
"""
import fcntl
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import click

from rmqha.common.filesystem import NAME_LENGTH, open_regular, pread
from rmqha.common.program import StopSignal, ending_signals, examples
from rmqha.common.units import size_text
from rmqha.common.util_all import LONG_AGO
from rmqha.remoting.frame_decoder import ByteStream, StreamError
from rmqha.store import store_path_config_helper as paths
from rmqha.store.ha import ha_transfer
from rmqha.store.ha.record_verifier import RecordFlawError, RecordVerifier
from rmqha.tools.admin.cluster_admin import DEFAULT_TIMEOUT_MS, ClusterAdmin, NoAnswerError, number, parsed_address
from rmqha.tools.connection import connected
from rmqha.tools.store_files import reading
from rmqha.tools.store_files.reading import CommitLogReader, Folder, list_folder
from rmqha.tools.terminal import CannotAnswerError, duration_type


class ReceivedLog:
    """The log in `folder`; a context manager that allows only one receiver. Offsets are those of the commit log.

    `begin` and `end` bound what the folder certainly holds (both None while it is empty); up to `synced` it is on disk.
    After a restart `end` is the start of the last record: that one is present, but may be incomplete.
    A file has its full size from the start, with zeros after `end`.
    """

    def __init__(self, folder: str, file_size: int) -> None:
        self.folder = folder
        self.file_size = file_size
        self.begin: int | None = None
        self.end: int | None = None
        self.synced: int | None = None
        self._folder_fd = -1
        # The file that holds `end`; -1: none yet.
        self._fd = -1
        self._fd_start = 0  # offset of its first byte
        self._dirty = False

    def __enter__(self) -> "ReceivedLog":
        os.makedirs(self.folder, exist_ok=True)
        self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock()
            self._find_end()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            # After a failed write the result of an fsync means nothing.
            if not isinstance(error, OSError):
                self.sync()
        finally:
            self._close()

    def settled(self, settle_ms: float) -> int | None:
        """Return the start of a record such that all earlier records are at least `settle_ms` older than the newest.

        At most the start of the last record; None while the folder is empty. Reads the last file, and earlier ones
        while all records of a file are too young.
        """
        begin, end = self.begin, self.end
        if begin is None or end is None or end == begin:
            return begin
        newest: int | None = None
        found, at = begin, (end - 1) // self.file_size * self.file_size
        while at >= begin:
            begins = self._records_of(at, end)
            if begins:
                if newest is None:
                    newest, found = max(stored for _offset, stored in begins), begins[-1][0]
                young = next((offset for offset, stored in begins if stored > newest - settle_ms), None)
                if young is not None:
                    found = min(found, young)
                if young != begins[0][0]:
                    break
            at -= self.file_size
        return found

    def write(self, offset: int, data: memoryview | bytes) -> None:
        """Append bytes of one file at `end`; they are on disk after the next `sync`."""
        assert self.end in (None, offset), f"{offset} does not follow {self.end}"
        if self.begin is None:
            self.begin = self.end = offset
            self.synced = offset
        start = offset - offset % self.file_size
        if self._fd < 0 or self._fd_start != start:
            self._open_file(start)
        position = offset - start
        while data:
            written = os.pwrite(self._fd, data, position)
            data, position = data[written:], position + written
        self._dirty = True
        self.end = start + position
        if position == self.file_size:
            self.sync()

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes of the folder from `offset` on, within one file."""
        start = offset - offset % self.file_size
        fd = open_regular(self._path(start))
        try:
            return pread(fd, size, offset - start)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Force all written bytes to disk. OSError: they may not be on disk, and must not be acknowledged."""
        if self._dirty:
            os.fdatasync(self._fd)
            self._dirty = False
        self.synced = self.end

    def _lock(self) -> None:
        store_lock = paths.get_lock_file(os.path.dirname(os.path.abspath(self.folder)))
        if reading.is_held(store_lock):
            raise CannotAnswerError(f"{self.folder} belongs to a running broker ({store_lock} is held); "
                                    "receive into another folder")
        try:
            fcntl.flock(self._folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotAnswerError(f"{self.folder}: another receiver is writing here; use one folder per receiver"
                                    ) from None

    def _find_end(self) -> None:
        folder = list_folder([self.folder])
        self._check(folder)
        if not folder.segments:
            return
        first, last = folder.segments[0], folder.segments[-1]
        if last.size not in (0, self.file_size) or any(each.size != self.file_size for each in folder.segments[:-1]):
            wrong = next(each for each in folder.segments if each.size != self.file_size)
            raise CannotAnswerError(f"{wrong.path} has {wrong.size} bytes, but the master's files have "
                                    f"{self.file_size} (mappedFileSizeCommitLog): use another folder")
        last_record, records_end = self._last_record(last.start)
        if records_end == first.start:  # nothing was received
            os.unlink(last.path)
            return
        self.begin, self.end = first.start, last_record
        self._open_file(last.start, exists=True)
        # Remove what a crash left after the last record.
        os.ftruncate(self._fd, records_end - last.start)
        os.ftruncate(self._fd, self.file_size)
        os.fsync(self._fd)
        self.synced = self.end

    def _check(self, folder: Folder) -> None:
        if folder.foreign:
            raise CannotAnswerError(f"{folder.foreign[0]} is not a commit log file: the folder must be empty, or hold "
                                    "only the files of an earlier receiver")
        for before, each in zip(folder.segments, folder.segments[1:]):
            if each.start != before.start + self.file_size:
                raise CannotAnswerError(f"{self.folder}: there is a gap between {before.name} and {each.name}, or the "
                                        f"master's files do not have {self.file_size} bytes")
        if folder.segments and folder.segments[0].start % self.file_size:
            raise CannotAnswerError(f"{folder.segments[0].path} does not belong to a log with files of "
                                    f"{self.file_size} bytes")

    def _last_record(self, start: int) -> tuple[int, int]:
        """Return (start, end) of the last record of a file; the blank of a full file counts as one.

        A record with a wrong CRC, or with another offset than its own, does not count. The last record stays on disk
        and is received again: if it was cut off within its properties, nothing in it shows that.
        """
        walk, last, end = self._log().walk(start, check_crc=True), start, start
        for records in walk:
            for each in records:
                if not each.crc_ok or each.physical_offset != each.offset:
                    return last, each.offset
                last, end = each.offset, each.offset + each.size
        full = start + self.file_size
        return (end, full) if walk.end.offset >= full else (last, end)

    def _records_of(self, start: int, log_end: int) -> list[tuple[int, int]]:
        """Return (offset, store time) of each record of one file that begins before `log_end`."""
        begins: list[tuple[int, int]] = []
        end = min(start + self.file_size, log_end)
        for records in self._log().walk(start):
            begins += [(record.offset, record.store_timestamp) for record in records if record.offset < end]
            if records[-1].offset >= end:
                break
        return begins

    def _log(self) -> CommitLogReader:
        return CommitLogReader(list_folder([self.folder]), self.file_size)

    def _path(self, start: int) -> str:
        return os.path.join(self.folder, f"{start:0{NAME_LENGTH}d}")

    def _open_file(self, start: int, exists: bool = False) -> None:
        if self._fd >= 0:
            self.sync()
            os.close(self._fd)
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if exists else os.O_CREAT)
        self._fd, self._fd_start = open_regular(self._path(start), flags, 0o644), start
        if not exists:
            os.ftruncate(self._fd, self.file_size)
            os.fsync(self._fd)
            os.fsync(self._folder_fd)

    def _close(self) -> None:
        for fd in (self._fd, self._folder_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._folder_fd = -1


_RECEIVE_SIZE = 1024 * 1024  # bytes of one read
_READ_WAIT_S = 0.25  # the time until a stop is noticed
_CONNECT_TIMEOUT_S = 5.0
# A 4.9 master checks its waiting sends once a second.
_SETTLE_MARGIN_MS = 5000
_SAMPLE_S = 0.5
_LOOK_AGAIN_S = 30.0  # without data, then the master's range is checked
_MAX_SAMPLES = 1000


class DivergedError(CannotAnswerError):
    """The master's log is not the one received so far."""

    exit_code = 1


@dataclass(frozen=True)
class Master:
    """Facts about a master, read at its broker port before its log is followed. Sizes are in bytes, times in ms."""

    name: str
    address: tuple[str, int]  # of the HA port
    file_size: int
    min_offset: int
    max_offset: int
    slave_timeout_ms: int
    housekeeping_ms: int


class Receiver:
    """Receives into `log` until `stop()` is true or the connection ends; with `once`, until it reaches the end that the
    master had at the start of the connection."""

    def __init__(self, log: ReceivedLog, acknowledge: bool, from_first: bool, once: bool,
                 stop: Callable[[], bool], sync_interval_s: float = 1.0) -> None:
        self._log = log
        self._acknowledge = acknowledge
        self._from_first = from_first
        self._once = once
        self._stop = stop
        self._sync_interval_s = sync_interval_s
        # Replaced for each connection, which begins with a record.
        self._verifier = RecordVerifier(0)
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=_MAX_SAMPLES)  # (monotonic s, end of the log)
        self._flawed_at = -1  # commit log offset of the last record that failed its checks
        # The next offset on this connection; None: the master chooses.
        self._position: int | None = None
        # The end of the folder's log when this connection began.
        self._compared_to = 0
        self._decoder = ha_transfer.FrameDecoder()
        self._reported = 0
        self._last_report: float = LONG_AGO  # monotonic s, as the next
        self._last_sync = self._last_read = self._last_data = 0.0
        self.received = 0  # bytes written

    def follow(self, ask: Callable[[], Master], on_progress: Callable[[int], None]) -> None:
        """Follow the master that `ask` returns over one connection. StreamError when the connection fails,
        DivergedError when retrying would not help."""
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
        """Return the first report: the offset from which the master sends; 0 means its last file."""
        log = self._log
        if master.min_offset % master.file_size:
            raise DivergedError(f"{master.name} begins at {master.min_offset}, which is not the start of a file of "
                                f"{master.file_size} bytes")
        if log.end is None:
            # The first byte of a record is always 0, the highest byte of its size. So the log can be requested from
            # offset 1: that asks for the first file, and acknowledges nothing.
            return master.min_offset or int(master.max_offset > 1) if self._from_first else 0
        if log.end > master.max_offset:
            raise DivergedError(f"{log.folder} ends at {log.end}, the log of {master.name} at {master.max_offset}: it "
                                "is another log, or has lost its end. Use another folder")
        begin = self._settled(0 if self._acknowledge else master.slave_timeout_ms + _SETTLE_MARGIN_MS)
        if begin < master.min_offset:
            if log.end < master.min_offset:
                raise DivergedError(f"{log.folder} ends at {log.end}, the log of {master.name} begins at "
                                    f"{master.min_offset}: the part between was deleted. Use another folder")
            begin = master.min_offset
        return begin or 1

    def _settled(self, settle_ms: float) -> int:
        """Return the highest position that no send can wait for: by arrival times, or else by the records' times."""
        before = time.monotonic() - settle_ms / 1000
        settled = None
        while self._arrivals and self._arrivals[0][0] <= before:
            settled = self._arrivals.popleft()
        if settled is None:
            place = self._log.settled(settle_ms)
            # `_begin` calls this only for a log that is not empty.
            assert place is not None
            return place
        self._arrivals.appendleft(settled)
        return settled[1]

    def _receive(self, stream: ByteStream, master: Master, on_progress: Callable[[int], None]) -> None:
        """Read once; sync and report when due."""
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
        """Process all received frames."""
        try:
            for run in self._decoder.runs(master.file_size):
                if self._position is None:
                    self._position = self._first_offset(run.offset, master)
                if run.offset != self._position:
                    raise DivergedError(f"{master.name} was asked to continue at {self._position} but answers with "
                                        f"{run.offset}: it does not hold what this folder needs. Its log was deleted "
                                        "up to there, has lost its end, or is another log")
                if run.length:
                    self._take(run.offset, self._decoder.view[run.start:run.start + run.length], master)
                    self._position, self._last_data = run.offset + run.length, self._last_read
        except ha_transfer.TransferError as error:
            raise StreamError(f"{master.name}: {error}; is this its HA port?") from error

    def _check_range(self, master: Master) -> None:
        """Check the master's range: a 4.9 master that has deleted the next bytes only sends heartbeats, forever."""
        if self._position is not None and not master.min_offset <= self._position <= master.max_offset:
            raise DivergedError(f"{master.name} holds {master.min_offset} to {master.max_offset}, but this folder "
                                f"continues at {self._position}: the master has deleted what it needs")

    def _first_offset(self, offset: int, master: Master) -> int:
        """Return the first offset of a log whose start the master chose; check it."""
        if offset % master.file_size or offset < 0:
            raise DivergedError(f"{master.name} begins at {offset}, which is not the start of a file of "
                                f"{master.file_size} bytes")
        if self._from_first and offset > 0:
            raise StreamError(f"{master.name} has just begun another file; retrying")
        return offset

    def _take(self, offset: int, data: memoryview, master: Master) -> None:
        if offset % master.file_size + len(data) > master.file_size:
            raise DivergedError(f"{master.name} sends {len(data)} bytes at {offset}, beyond the end of a file of "
                                f"{master.file_size} bytes: its files have another size")
        # `_begin` has asked for offset 1; the byte before it is 0.
        if offset == 1:
            self._store_pieces(0, memoryview(b"\0"), master)
        self._store_pieces(offset, data, master)

    def _store_pieces(self, offset: int, data: memoryview, master: Master) -> None:
        """Store the bytes of verified records; an incomplete record is held back."""
        try:
            for at, checked, start, length in self._verifier.take(offset, data, 0, len(data)):
                self._store(at, checked[start:start + length], master)
        except RecordFlawError as flaw:
            is_known, self._flawed_at = flaw.offset == self._flawed_at, flaw.offset
            reason = f"{master.name} sends damaged bytes, or not a commit log: {flaw}; none of it is stored"
            if is_known:
                raise DivergedError(f"{reason}. It arrived damaged twice: check the master's store with rmqha store "
                                    "verify") from flaw
            raise StreamError(reason) from flaw

    def _store(self, offset: int, data: memoryview, master: Master) -> None:
        log = self._log
        held = (log.end if log.end is not None else offset) - offset
        if held > 0:
            mine = log.read(offset, min(held, len(data)))
            if mine != data[:held]:
                at = next(place for place in range(held) if mine[place:place + 1] != data[place:place + 1])
                raise DivergedError(f"{log.folder} and the log of {master.name} differ at {offset + at}: it is another "
                                    "log, or one of them is damaged. Use another folder, and compare them with rmqha "
                                    "store diff")
            offset, data = offset + min(held, len(data)), data[held:]
        if not data:
            return
        log.write(offset, data)
        self.received += len(data)
        now, end = time.monotonic(), offset + len(data)
        # Not within the blank of a file.
        is_whole = self._verifier.next_record(end) == end
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


_RETRY_S = 5.0
_PROGRESS_S = 0.5


def ask_master(admin: ClusterAdmin, broker: str, ha_address: tuple[str, int], acknowledge: bool) -> Master:
    """Ask a broker about its log. CannotAnswerError when its HA port is another one, or when a peer that never
    acknowledges would delay its sends."""
    config, table = admin.get_broker_config(broker), admin.runtime_info(broker)
    if not acknowledge:
        _check_harmless(config, broker)
    ha_port = number(config, "haListenPort", broker)
    if ha_port and ha_port != ha_address[1]:
        raise CannotAnswerError(f"broker {broker} serves its slaves on port {ha_port}, not {ha_address[1]}: correct "
                                "--master, or give the right broker with --broker")
    return Master(name=f"{config.get('brokerName', '')} ({ha_address[0]}:{ha_address[1]})", address=ha_address,
                  file_size=number(config, "mappedFileSizeCommitLog", broker, 1 << 30),
                  min_offset=max(0, number(table, "commitLogMinOffset", broker)),
                  max_offset=max(0, number(table, "commitLogMaxOffset", broker)),
                  slave_timeout_ms=number(config, "slaveTimeout", broker, 5000),
                  housekeeping_ms=number(config, "haHousekeepingInterval", broker, 20_000))


def _check_harmless(config: dict[str, str], broker: str) -> None:
    """Refuse a master that waits for several or all of its peers: this receiver would never acknowledge."""
    waits = [key for key in ("allAckInSyncStateSet", "enableAutoInSyncReplicas") if config.get(key) == "true"]
    if number(config, "inSyncReplicas", broker, 1) > 2:
        waits.append("inSyncReplicas above 2")
    if waits:
        raise CannotAnswerError(f"broker {broker} has {' and '.join(waits)}: it would wait for this receiver, which "
                                "never acknowledges, and its sends would time out. Use --acknowledge, or receive from "
                                "one of its slaves")


class _Progress:
    """Shows the end of the received log, if standard error is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._at, self._from = 0.0, 0

    def __call__(self, end: int) -> None:
        now = time.monotonic()
        if self._shown and now - self._at > _PROGRESS_S:
            rate = (end - self._from) / (now - self._at) if self._at else 0
            click.echo(f"\rreceived up to {end:,}, {size_text(round(rate))}/s      ", nl=False, err=True)
            self._at, self._from = now, end

    def close(self) -> None:
        """End the line of the progress."""
        if self._at:
            click.echo(err=True)


def _receive(receiver: Receiver, ask: Callable[[], Master], stop: StopSignal, once: bool) -> None:
    """Follow the master, reconnecting after failures, until stopped."""
    progress, said = _Progress(), ""
    while not stop.is_set():
        try:
            receiver.follow(ask, progress)
            break
        except (StreamError, NoAnswerError) as error:
            text = str(error)
            if once:
                raise CannotAnswerError(text) from error
            if text != said:
                click.echo(f"{text}; retrying every {_RETRY_S:g} s", err=True)
                said = text
            stop.wait(_RETRY_S)
    progress.close()


@click.command("receive", short_help="Copy a master's commit log into a folder, and keep it current.", epilog=examples(
    "rmqha ha receive --master 10.0.0.1:10912 --folder /backup/a/commitlog",
    "rmqha ha receive --master 10.0.0.1:10912 --folder /backup/a/commitlog --once"))
@click.option("--master", required=True, metavar="HOST:HAPORT", help="The master's HA port: its listenPort + 1.")
@click.option("-b", "--broker", metavar="HOST:PORT", help="The master's listenPort; by default its HA port - 1.")
@click.option("--folder", required=True, type=click.Path(file_okay=False), help="The folder for the received files.")
@click.option("--from", "begin", type=click.Choice(["first", "last"]), default="first", show_default=True,
              help="The master's file with which an empty folder begins.")
@click.option("--acknowledge", is_flag=True,
              help="Acknowledge what is on disk: a SYNC_MASTER counts this folder as a slave.")
@click.option("--once", is_flag=True, help="Exit when everything that the master holds now is received.")
@click.option("--sync-interval", "sync_interval_s", default="1s", show_default=True, type=duration_type(0),
              help="The time between syncs to disk; with --acknowledge each batch is synced at once.")
@click.option("--timeout", "timeout_s", default=f"{DEFAULT_TIMEOUT_MS // 1000}s", show_default=True,
              type=duration_type(0.1, 600), help="How long to wait for each answer of the broker.")
def receive_command(master: str, broker: str | None, folder: str, begin: str, acknowledge: bool, once: bool,
                    sync_interval_s: float, timeout_s: float) -> None:
    """Stream a master's commit log into a folder, with the same files, names and sizes; resume where the folder ends.

    `rmqha store rebuild` can build a store on the folder. SIGTERM, SIGHUP and Ctrl-C end the command. Exit code 1 when
    the master's log is not the one received so far.
    """
    ha_address = parsed_address(master, "--master")
    broker = broker or f"{ha_address[0]}:{ha_address[1] - 1}"
    parsed_address(broker, "--broker")
    stop = StopSignal()
    before = {number: signal.signal(number, stop.handler) for number in ending_signals()}
    try:
        with connected(None, timeout_s) as admin:
            def ask() -> Master:
                return ask_master(admin, broker, ha_address, acknowledge)
            file_size = _first_answer(ask, stop, once)
            if file_size is None:
                return
            with ReceivedLog(folder, file_size) as log:
                receiver = Receiver(log, acknowledge, begin == "first", once, stop.is_set, sync_interval_s)
                click.echo(f"{folder}: {_held(log)}", err=True)
                _receive(receiver, ask, stop, once)
            click.echo(f"{folder}: {_held(log)}, {receiver.received:,} bytes of it now", err=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first_answer(ask: Callable[[], Master], stop: StopSignal, once: bool) -> int | None:
    """Return the size of the master's files from its first answer; None if stopped before."""
    said = False
    while not stop.is_set():
        try:
            return ask().file_size
        except NoAnswerError as error:
            if once:
                raise
            if not said:
                click.echo(f"{error.message}; retrying every {_RETRY_S:g} s", err=True)
                said = True
            stop.wait(_RETRY_S)
    return None


def _held(log: ReceivedLog) -> str:
    if log.end is None:
        return "holds nothing"
    return f"holds {log.begin:,} to {log.end:,}, on disk to {log.synced or 0:,}"
