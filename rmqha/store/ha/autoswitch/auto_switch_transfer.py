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
    SlaveEpochGreeting.receive  <--MasterHandshake--  at once; the slave may ask again until it reports
    consistent_point: the offset up to which the slave's log equals the master's, according to their epochs
"""
import struct
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry, EpochFileCache
from rmqha.store.ha.ha_transfer import READ_MAX_BUFFER_SIZE, RunDecoder, TransferError

# ordinals of HAConnectionState in 5.x
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
# A 5.1.4 master's response has space for this many.
MAX_EPOCH_ENTRIES = 1000
MAX_BODY_SIZE = READ_MAX_BUFFER_SIZE - TRANSFER_HEADER.size
_STATE = struct.Struct(">i")


class SlaveHandshake(NamedTuple):
    """A slave's introduction."""

    is_sync_from_last_file: bool
    is_async_learner: bool
    slave_id: int


class MasterHandshake(NamedTuple):
    """The master's response: the end of its log, and its epochs."""

    max_offset: int
    last_epoch: int  # -1: none
    entries: list[EpochEntry]


class TransferRun(NamedTuple):
    """Contiguous bytes of one epoch: `length` bytes at `start` of the decoder's view; 0 is a heartbeat."""

    offset: int
    epoch: int
    epoch_start_offset: int
    confirm_offset: int
    start: int
    length: int


def encode_slave_handshake(handshake: SlaveHandshake) -> bytes:
    """Encode the slave's first frame."""
    return SLAVE_HANDSHAKE.pack(STATE_HANDSHAKE, *handshake)


def encode_report(max_offset: int) -> bytes:
    """Encode the frame that says "my commit log ends at `max_offset`"."""
    return SLAVE_TRANSFER.pack(STATE_TRANSFER, max_offset)


def encode_master_handshake(max_offset: int, entries: Iterable[EpochEntry]) -> bytes:
    """Encode the master's response to a handshake: all its epochs, or the newest MAX_EPOCH_ENTRIES of them."""
    entries = tuple(entries)[-MAX_EPOCH_ENTRIES:]
    last_epoch = entries[-1].epoch if entries else -1
    header = HANDSHAKE_HEADER.pack(STATE_HANDSHAKE, len(entries) * EPOCH_ENTRY.size, max_offset, last_epoch)
    return header + b"".join(EPOCH_ENTRY.pack(entry.epoch, entry.start_offset) for entry in entries)


def encode_header(offset: int, size: int, entry: EpochEntry, confirm_offset: int) -> bytes:
    """Encode the 36 bytes before `size` bytes of the log, all of which are of the epoch `entry`."""
    return TRANSFER_HEADER.pack(STATE_TRANSFER, size, offset, entry.epoch, entry.start_offset, confirm_offset)


def decode_slave_frame(data: bytes, position: int = 0) -> tuple[SlaveHandshake | int, int] | None:
    """Return (a slave's message, bytes used), an int for a report; None when there are too few bytes.

    TransferError when the bytes are not a valid frame.
    """
    if len(data) - position < _STATE.size:
        return None
    state = _STATE.unpack_from(data, position)[0]
    if state not in (STATE_HANDSHAKE, STATE_TRANSFER):
        raise TransferError(f"a slave's frame has state {state}, neither handshake nor transfer")
    layout = SLAVE_TRANSFER if state == STATE_TRANSFER else SLAVE_HANDSHAKE
    if len(data) - position < layout.size:
        return None
    fields = layout.unpack_from(data, position)
    said = fields[1] if state == STATE_TRANSFER else SlaveHandshake(fields[1] == 1, fields[2] == 1, fields[3])
    return said, layout.size


class SlaveFrameDecoder:
    """A decoder for a slave's handshakes and reports. One per connection; owned by the reading thread."""

    def __init__(self) -> None:
        self._rest = b""  # of an incomplete frame, 0 to 15 bytes

    def feed(self, data: bytes | memoryview) -> list[SlaveHandshake | int]:
        """Return the messages that `data` completes, in order. TransferError for an invalid frame."""
        # the usual case
        if len(data) == SLAVE_TRANSFER.size and not self._rest:
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
    """Return (the master's response, its size in bytes).

    When there are too few bytes, return (None, number of bytes known to belong to it). TransferError when they are not
    a valid response.
    """
    if len(data) < HANDSHAKE_HEADER.size:
        return None, HANDSHAKE_HEADER.size
    state, size, max_offset, last_epoch = HANDSHAKE_HEADER.unpack_from(data)
    _check_state(state, STATE_HANDSHAKE)
    if not 0 <= size <= READ_MAX_BUFFER_SIZE - HANDSHAKE_HEADER.size or size % EPOCH_ENTRY.size or max_offset < 0:
        raise TransferError(f"invalid handshake of the master: {size} bytes of epochs, log end {max_offset}")
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
            raise TransferError(f"the master's epochs are not in ascending order: {entry.epoch} at "
                                f"{entry.start_offset} follows {before.epoch} at {before.start_offset}")
        before = entry
    if last_epoch != before.epoch:
        raise TransferError(f"the master's last epoch is {last_epoch}, but the last one in its list is "
                            f"{before.epoch}")


class MasterFrameDecoder(RunDecoder[TransferRun]):
    """A decoder for a master's bytes after its handshake.

    TransferError for a frame whose state differs from the slave's, or whose size, offset or epoch is impossible.
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
        """Yield runs of the frames in `view`; a run also ends with its epoch."""
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
        # An empty 5.1.4 master sends its heartbeats with offset -1. 5.1.4 puts the number of the next epoch into the
        # last frame of an epoch.
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
        raise TransferError(f"the master's frame has state {state}, but the slave is in state {expected}")


LogEnd = tuple[int, tuple[EpochEntry, ...]]  # a log's max offset, and its epochs


class Refusal(Enum):
    """The reason why a slave can't be served."""

    SAME_BROKER = "it claims to be the broker that it connects to"
    NO_MASTER = "this broker is not a master now"
    REPORTS_FIRST = "it sends a report before its handshake"


class EpochStep(NamedTuple):
    """A slave's message, and the master's reaction: either a `reply` or a refusal."""

    said: SlaveHandshake | None  # None: a report
    reply: bytes = b""
    log_end: LogEnd = (0, ())  # as in the reply
    refusal: Refusal | None = None


class MasterEpochGreeting:
    """The master's part of the handshake.

    `receive` yields a step for each handshake. After the first report `is_over` is set, and `rest` begins with it.
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
        """Yield the steps that result from `data`. Raise TransferError at an invalid frame, after the steps of the
        frames before it."""
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
    """The slave's part of the handshake."""

    def __init__(self, introduction: SlaveHandshake) -> None:
        # the master's response, once it is complete
        self.handshake: MasterHandshake | None = None
        # maximum number of bytes to read, so that nothing after the handshake is read
        self.wanted = decode_master_handshake(b"")[1]
        self._introduction = introduction
        self._rest = b""

    def begin(self) -> bytes:
        """Return the bytes to send."""
        return encode_slave_handshake(self._introduction)

    def receive(self, data: bytes) -> None:
        """Process up to `wanted` bytes of the master. TransferError when they are not a handshake."""
        self._rest += data
        self.handshake, size = decode_master_handshake(self._rest)
        self.wanted = size - len(self._rest)


class EpochsDifferError(Exception):
    """The reason, found by comparing their epochs, why a slave may not follow a master."""


def consistent_point(handshake: MasterHandshake, log_end: LogEnd, expected_epoch: int | None) -> int:
    """Return the offset up to which the slave's log, described by `log_end`, equals the master's.

    EpochsDifferError when the slave may not follow. `expected_epoch` is the master's epoch as given to the slave; None
    if it was not given.
    """
    max_offset, local = log_end
    if not local:
        if max_offset > 0:
            # Differs: a slave with messages but no epochs can't be compared, and does not follow; 5.1.4 continues at
            # its end without comparing anything.
            raise EpochsDifferError(f"this log ends at {max_offset}, but has no epochs, so it can't be compared with "
                                    "the master's. Set the slave up from scratch")
        return 0
    # Differs: a slave refuses a master with an older last epoch than its own. 5.1.4 relies on its controller; without
    # one, a stale master would truncate what a newer one wrote.
    newest = max((entry.epoch for entry in local if entry.start_offset < max_offset), default=-1)
    if handshake.last_epoch < newest and (expected_epoch is None or expected_epoch <= newest):
        raise EpochsDifferError(f"the master's last epoch is {handshake.last_epoch}, but this log has messages of "
                                f"epoch {newest}: that broker is no longer the master")
    caches = []
    for entries, end_offset in ((local, max_offset), (handshake.entries, handshake.max_offset)):
        cache = EpochFileCache()
        cache.init_cache_from_entries(entries)
        cache.set_last_epoch_entry_end_offset(end_offset)
        caches.append(cache)
    point = min(caches[0].find_consistent_point(caches[1]), max_offset)
    if point < 0:
        raise EpochsDifferError(f"the logs have no epoch in common: MASTER: {epochs_text(handshake.entries)} SLAVE: "
                                f"{epochs_text(local)}. Set the slave up from scratch")
    return point


def epochs_text(entries: Iterable[EpochEntry]) -> str:
    """Return the epochs as text, for the log."""
    return ", ".join(f"{entry.epoch} from {entry.start_offset}" for entry in entries) or "none"
