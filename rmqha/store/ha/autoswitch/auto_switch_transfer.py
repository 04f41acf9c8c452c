"""The protocol between a master and its slaves when roles can change. Pure: no socket, no thread, no file, no clock.

All numbers are big-endian. Slave to master:

| frame | fields |
|---|---|
| HANDSHAKE, 16 bytes | state int32 (1), isSyncFromLastFile int16, isAsyncLearner int16, slave's broker id int64 |
| TRANSFER, 12 bytes | state int32 (2), the slave's max commit log offset int64 |

Master to slave:

| frame | fields |
|---|---|
| HANDSHAKE, 20 bytes | state int32 (1), body size int32, master's max offset int64, last epoch int32 (-1: none) |
| its body | the master's epochs, 12 bytes each: epoch int32, startOffset int64 |
| TRANSFER, 36 bytes | the same four (state 2, commit log offset, its epoch), epochStartOffset, confirmOffset int64 |
| its body | commit log bytes of one epoch and one file; none: a heartbeat |

The exchange before the slave's first report:

    SlaveEpochGreeting.begin    --SlaveHandshake-->   MasterEpochGreeting.receive
    SlaveEpochGreeting.receive  <--MasterHandshake--  at once; the slave may ask again, until it reports
    consistent_point: up to where the slave's log is the master's, by their epochs
"""
import struct
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry, EpochFileCache
from rmqha.store.ha.ha_transfer import READ_MAX_BUFFER_SIZE, RunDecoder, TransferError

# HAConnectionState's ordinals in 5.x
STATE_HANDSHAKE = 1
STATE_TRANSFER = 2

SLAVE_HANDSHAKE = struct.Struct(">ihhq")
assert SLAVE_HANDSHAKE.size == 16
SLAVE_TRANSFER = struct.Struct(">iq")
assert SLAVE_TRANSFER.size == 12
HANDSHAKE_HEADER = struct.Struct(">iiqi")
assert HANDSHAKE_HEADER.size == 20
TRANSFER_HEADER = struct.Struct(">iiqiqq")
assert TRANSFER_HEADER.size == 36
EPOCH_ENTRY = struct.Struct(">iq")
assert EPOCH_ENTRY.size == 12
# A 5.1.4 master has room for so many in its answer.
MAX_EPOCH_ENTRIES = 1000
MAX_BODY_SIZE = READ_MAX_BUFFER_SIZE - TRANSFER_HEADER.size
_STATE = struct.Struct(">i")


class SlaveHandshake(NamedTuple):
    """Who the slave is."""

    is_sync_from_last_file: bool
    is_async_learner: bool
    slave_id: int


class MasterHandshake(NamedTuple):
    """How the master's log came to be."""

    max_offset: int
    last_epoch: int  # -1: none
    entries: list[EpochEntry]


class TransferRun(NamedTuple):
    """Contiguous bytes of one epoch: `length` of them at `start` of the decoder's view; 0 is a heartbeat."""

    offset: int
    epoch: int
    epoch_start_offset: int
    confirm_offset: int
    start: int
    length: int


def encode_slave_handshake(handshake: SlaveHandshake) -> bytes:
    """The slave's first frame."""
    return SLAVE_HANDSHAKE.pack(STATE_HANDSHAKE, *handshake)


def encode_report(max_offset: int) -> bytes:
    """The frame that says "my commit log ends at `max_offset`"."""
    return SLAVE_TRANSFER.pack(STATE_TRANSFER, max_offset)


def encode_master_handshake(max_offset: int, entries: Iterable[EpochEntry]) -> bytes:
    """The master's answer to a handshake: all its epochs, the newest MAX_EPOCH_ENTRIES when there are more."""
    entries = tuple(entries)[-MAX_EPOCH_ENTRIES:]
    last_epoch = entries[-1].epoch if entries else -1
    header = HANDSHAKE_HEADER.pack(STATE_HANDSHAKE, len(entries) * EPOCH_ENTRY.size, max_offset, last_epoch)
    return header + b"".join(EPOCH_ENTRY.pack(entry.epoch, entry.start_offset) for entry in entries)


def encode_header(offset: int, size: int, entry: EpochEntry, confirm_offset: int) -> bytes:
    """The 36 bytes before `size` bytes of the log, all of them of the epoch `entry`."""
    return TRANSFER_HEADER.pack(STATE_TRANSFER, size, offset, entry.epoch, entry.start_offset, confirm_offset)


def decode_slave_frame(data: bytes, position: int = 0) -> tuple[SlaveHandshake | int, int] | None:
    """(what a slave says, bytes used), an int for a report; None when there are too few bytes. TransferError: none."""
    if len(data) - position < _STATE.size:
        return None
    state = _STATE.unpack_from(data, position)[0]
    if state not in (STATE_HANDSHAKE, STATE_TRANSFER):
        raise TransferError(f"a frame of a slave has state {state}, neither handshake nor transfer")
    layout = SLAVE_TRANSFER if state == STATE_TRANSFER else SLAVE_HANDSHAKE
    if len(data) - position < layout.size:
        return None
    fields = layout.unpack_from(data, position)
    said = fields[1] if state == STATE_TRANSFER else SlaveHandshake(fields[1] == 1, fields[2] == 1, fields[3])
    return said, layout.size


class SlaveFrameDecoder:
    """Cuts the bytes of a slave into handshakes and reports. One per connection; owned by the reading thread."""

    def __init__(self) -> None:
        self._rest = b""  # of an incomplete frame, 0 to 15 bytes

    def feed(self, data: bytes | memoryview) -> list[SlaveHandshake | int]:
        """What `data` completes, in order. TransferError when it is not a frame."""
        if len(data) == SLAVE_TRANSFER.size and not self._rest:  # as almost always
            state, offset = SLAVE_TRANSFER.unpack(data)
            if state == STATE_TRANSFER:
                return [offset]
        data = self._rest + data
        position = 0
        found: list[SlaveHandshake | int] = []
        while (frame := decode_slave_frame(data, position)) is not None:
            found.append(frame[0])
            position += frame[1]
        self._rest = data[position:]
        return found


def decode_master_handshake(data: bytes) -> tuple[MasterHandshake | None, int]:
    """(the master's answer, how many bytes it has), or (None, how many bytes are known to belong to it) when there are
    too few. TransferError when it is not an answer."""
    if len(data) < HANDSHAKE_HEADER.size:
        return None, HANDSHAKE_HEADER.size
    state, size, max_offset, last_epoch = HANDSHAKE_HEADER.unpack_from(data)
    _check_state(state, STATE_HANDSHAKE)
    if not 0 <= size <= READ_MAX_BUFFER_SIZE - HANDSHAKE_HEADER.size or size % EPOCH_ENTRY.size or max_offset < 0:
        raise TransferError(f"the master's handshake has {size} bytes of epochs, and ends at {max_offset}")
    end = HANDSHAKE_HEADER.size + size
    if len(data) < end:
        return None, end
    entries = [EpochEntry(*fields) for fields in EPOCH_ENTRY.iter_unpack(data[HANDSHAKE_HEADER.size:end])]
    _check_entries(entries, last_epoch)
    return MasterHandshake(max_offset, last_epoch, entries), end


def _check_entries(entries: list[EpochEntry], last_epoch: int) -> None:
    before = EpochEntry(-1, 0)
    for entry in entries:
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            raise TransferError(f"the master's epochs do not rise: {entry.epoch} at {entry.start_offset} follows "
                                f"{before.epoch} at {before.start_offset}")
        before = entry
    if last_epoch != before.epoch:
        raise TransferError(f"the master's last epoch is {last_epoch}, and the last one that it names is "
                            f"{before.epoch}")


class MasterFrameDecoder(RunDecoder[TransferRun]):
    """Cuts the bytes of a master behind its handshake.

    A frame of another state than the slave's own is a TransferError; so is one whose size, offset or epoch can't be.
    """

    header_size = TRANSFER_HEADER.size
    size_at = 4

    def __init__(self, capacity: int = READ_MAX_BUFFER_SIZE) -> None:
        super().__init__(capacity)
        self._epoch = -1  # of the last transfer frame
        self._epoch_start = -1

    def _foreseen_run(self, whole: int) -> tuple[int, TransferRun | None]:
        size, offset = self._foreseen, self._behind
        if not whole or TRANSFER_HEADER.unpack_from(self.view)[:3] != (STATE_TRANSFER, size, offset):
            return 0, None
        run = self._frame(0, TRANSFER_HEADER.size)
        if run.epoch_start_offset > offset:
            return 0, None
        frames, epoch, confirm_offset = 1, run[1:3], run.confirm_offset
        for header in TRANSFER_HEADER.iter_unpack(self._heads[:(whole - 1) * TRANSFER_HEADER.size]):
            if header[:3] != (STATE_TRANSFER, size, offset + frames * size) or header[3:5] != epoch:
                break
            confirm_offset = header[5]
            frames += 1
        return frames, run._replace(length=frames * size, confirm_offset=confirm_offset)

    def _runs_in_view(self, segment_size: int) -> Iterator[TransferRun]:
        """A run ends also with its epoch."""
        view, end, position, last = self.view, self._end, 0, 0
        run: TransferRun | None = None
        while end - position >= HANDSHAKE_HEADER.size:
            state, size = HANDSHAKE_HEADER.unpack_from(view, position)[:2]
            _check_state(state, STATE_TRANSFER)
            if not 0 <= size <= len(view) - TRANSFER_HEADER.size:
                raise TransferError(f"a frame has an impossible size: {size}")
            body = position + TRANSFER_HEADER.size
            if end - body < size:
                break
            frame = self._frame(position, body)
            position, last = body + size, size
            if run is not None and run.length and size and frame.epoch == run.epoch \
                    and frame.offset == run.offset + run.length and frame.offset % segment_size:
                run = self._joined(run, frame)
                continue
            if run is not None:
                yield run
            run = frame
        if run is not None:
            yield run
            self._taken(run, last, position, end)

    def _frame(self, position: int, body: int) -> TransferRun:
        _state, size, offset, epoch, start, confirm = TRANSFER_HEADER.unpack_from(self.view, position)
        # an empty 5.1.4 master sends its heartbeats with offset -1
        # the last frame of an epoch carries the next one's number, when 5.1.4 sends it
        if start < 0 or offset < (0 if size else -1) or offset < start < offset + size:
            raise TransferError(f"{size} bytes at commit log offset {offset} can't be of epoch {epoch} from {start} on")
        other_start = start < self._epoch_start or epoch == self._epoch and start != self._epoch_start
        if epoch < max(self._epoch, 0) or other_start:
            raise TransferError(f"epoch {epoch} at {start} follows epoch {self._epoch} at {self._epoch_start}")
        self._epoch, self._epoch_start = epoch, start
        return TransferRun(offset, epoch, start, confirm, body, size)

    def _joined(self, run: TransferRun, frame: TransferRun) -> TransferRun:
        after = run.start + run.length
        self.view[after:after + frame.length] = self.view[frame.start:frame.start + frame.length]
        return run._replace(length=run.length + frame.length, confirm_offset=frame.confirm_offset)


def _check_state(state: int, expected: int) -> None:
    if state != expected:
        raise TransferError(f"the master's frame has state {state}, the slave is in state {expected}")


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
