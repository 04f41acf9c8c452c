"""Fast paths of replication: a slave's reading and checking, and a master's sending."""
from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from unittest import mock

from rmqha.common.message.message_layout import BLANK, BLANK_MAGIC_CODE, HEADS, MESSAGE_MAGIC_CODE, SHORT, body_crc32
from rmqha.store.ha import ha_connection, ha_transfer, record_verifier
from rmqha.store.ha.autoswitch import auto_switch_transfer
from rmqha.store.ha.autoswitch.auto_switch_transfer import MasterFrameDecoder
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.ha.ha_connection import WriteSocketService
from rmqha.store.ha.ha_transfer import FrameDecoder, RecordChain, RecordChainError, RunDecoder, follow_records
from rmqha.store.ha.record_verifier import RecordFlawError, RecordVerifier
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.store.ha.support import FakeStore, Peer, running
from tests.support.wait import wait_until

# Fast paths of a slave's reading: a lone record, places foreseen for frames, runs, and checking records in pieces.

_NOISE = random.Random(7).randbytes(6 << 20)
_V6 = 0x10 | 0x20


def noise(rng: random.Random, size: int) -> bytes:
    """Return `size` bytes without a pattern."""
    at = rng.randrange(len(_NOISE) - size + 1)
    return _NOISE[at:at + size]


def record(rng: random.Random, offset: int, size: int) -> bytes:
    """Return a good record of `size` bytes (or of the minimum size) for commit log offset `offset`."""
    flag = rng.choice((0, 0, 0, 0x10, 0x20, _V6))
    head = HEADS[flag >> 4 & 3]
    topic = b"T" * rng.choice((1, 5, 127))
    properties = noise(rng, min(max(0, size - head.size - 3 - len(topic)), rng.choice((0, 40, 32767))))
    body = noise(rng, max(0, size - head.size - 3 - len(topic) - len(properties)))
    total = head.size + len(body) + 3 + len(topic) + len(properties)
    hosts = [bytes(8) if each == "8s" else bytes(20) for each in ("20s" if flag & 0x10 else "8s",
                                                                   "20s" if flag & 0x20 else "8s")]
    return head.pack(total, MESSAGE_MAGIC_CODE, body_crc32(body) if body else 0, rng.randrange(4), 0,
                     rng.randrange(1 << 40), offset, flag, 1, hosts[0], 2, hosts[1], 0, 0, len(body)) + body + bytes(
                         (len(topic),)) + topic + SHORT.pack(len(properties)) + properties


def log_of_records(rng: random.Random, size: int, segment: int, largest: int) -> bytes:
    """Return about `size` bytes of a log from offset 0 on, whose files end with blanks."""
    log = bytearray()
    while len(log) < size:
        room = segment - len(log) % segment
        made = record(rng, len(log), some_size(rng, (4096, 4108, 32768, 65536, 262144), largest))
        if len(made) + 8 > room:
            made = BLANK.pack(room, BLANK_MAGIC_CODE) + noise(rng, room - 8)
        log += made
    return bytes(log)


def cut_into_frames(rng: random.Random, log: bytes, segment: int, batch: int) -> list[tuple[int, bytes]]:
    """Return (offset, body) of each frame: whole records, batches of one size, odd ones and heartbeats. No frame
    crosses a file's end."""
    frames: list[tuple[int, bytes]] = []
    at, ends = 0, sorted(record_ends(log))
    while at < len(log):
        room = min(segment - at % segment, len(log) - at)
        kind = rng.random()
        if kind < 0.05:
            frames.append((at, b""))
            continue
        if kind < 0.5:
            size = next((end for end in ends if end > at), len(log)) - at
        elif kind < 0.9:
            size = batch
        else:
            size = rng.randint(1, 2 * batch)
        for _ in range(rng.choice((1, 1, 1, 8))):
            size = min(size, room, ha_transfer.MAX_BODY_SIZE - 64)
            if size:
                frames.append((at, log[at:at + size]))
                at += size
                room -= size
    return frames


def record_ends(log: bytes) -> Iterator[int]:
    """Yield where the records of a log end, and its blanks."""
    at = 0
    while at + 8 <= len(log):
        at += struct.unpack_from(">i", log, at)[0]
        yield at


def fill(buffers: list[memoryview], data: memoryview) -> int:
    """Put bytes into buffers as a socket does; return how many fitted."""
    at = 0
    for buffer in buffers:
        part = data[at:at + len(buffer)]
        buffer[:len(part)] = part
        at += len(part)
    return at


def spend(data: memoryview, size: int) -> None:
    """Overwrite the last bytes, because nothing may read them any more."""
    size = min(size, len(data))
    data[len(data) - size:] = b"\xa5" * size


def read_stream(rng: random.Random, decoder: RunDecoder, stream: bytes, segment: int, pieces: list[int],
                takes: bool) -> tuple[bytearray, Counter[str]]:
    """Return what a slave makes of a stream that arrives in `pieces`, with any legal order of the decoder's calls.

    A short read may still be followed by `places`, and a long one by `writable`.
    """
    got, taken, at, rest = bytearray(), Counter(), 0, memoryview(stream)
    while rest:
        arrived, limit = pieces[at % len(pieces)], rng.choice((1 << 20, 1 << 20, 5000))
        at += 1
        places = decoder.places(limit, segment) if rng.random() < 0.7 else []
        count = fill(places or [decoder.writable(limit)], rest[:arrived])
        rest = rest[count:]
        decoder.received(count)
        taken[FAST if places else PLAIN] += 1
        end = len(got)
        size = decoder.take_record(end, segment - end % segment) if takes and rng.random() < 0.8 else 0
        if size:
            got += decoder.view[decoder.header_size:decoder.header_size + size]
            taken["lone"] += 1
            continue
        for run in decoder.runs(segment):
            if run.length:
                assert run.offset == len(got), f"a run at {run.offset} after {len(got)} bytes"
                assert run.length <= segment - run.offset % segment
                got += decoder.view[run.start:run.start + run.length]
                spent = decoder.buffer[:ha_transfer.ROOM_IN_FRONT + run.start + run.length]
                spend(spent, rng.choice((1, 100, 5000)))
    return got, taken


def draw_pieces(rng: random.Random, frames: list[bytes], is_small: bool) -> list[int]:
    """Return sizes of reads: exact frames, so that a lone record arrives alone; a few frames, single bytes, or much
    at once."""
    if rng.random() < 0.5:
        return [len(frame) for frame in frames]
    most = 2000 if is_small else 1 << 20
    return [rng.choice((1, 11, 12, 13, 36, 400, 4108, most, most, most, rng.randint(1, most))) for _ in range(30)]


@contextlib.contextmanager
def drawn_thresholds(rng: random.Random) -> Iterator[bool]:
    """Set the real thresholds, or small ones; yield whether they are small."""
    if rng.random() < 0.15:
        yield False
        return
    with lowered(ha_transfer, _MIN_FORESEEN=rng.choice((8, 100))), lowered(ha_transfer, _BULK_BYTES=64):
        yield True


def drawn_log(rng: random.Random, is_small: bool) -> tuple[bytes, int, int]:
    """Return a log, the size of its files, and how much of it most frames have."""
    segment = rng.choice((4096, 20_000)) if is_small else 8 << 20
    log = log_of_records(rng, rng.choice((3000, 30_000)) if is_small else 5 << 20, segment,
                         segment // 2 if is_small else 3 << 20)
    return log, segment, rng.choice((64, 300, 1000)) if is_small else rng.choice((4096, 32768))


def compare_frames(rng: random.Random) -> Counter[str]:
    """Check that a stream of 4.9's frames, cut anywhere and read in any legal order of calls, is the log."""
    with drawn_thresholds(rng) as is_small:
        log, segment, batch = drawn_log(rng, is_small)
        frames = [ha_transfer.encode_header(at, len(body)) + body
                  for at, body in cut_into_frames(rng, log, segment, batch)]
        got, taken = read_stream(rng, FrameDecoder(), b"".join(frames), segment, draw_pieces(rng, frames, is_small),
                                 True)
        assert got == log, first_difference(got, log)
    return taken


def compare_epoch_frames(rng: random.Random) -> Counter[str]:
    """Check the same for frames that name epochs."""
    with drawn_thresholds(rng) as is_small:
        log, segment, batch = drawn_log(rng, is_small)
        epochs, frames = [EpochEntry(1, 0)], []
        for at, body in cut_into_frames(rng, log, segment, batch):
            if rng.random() < 0.05:
                epochs.append(EpochEntry(epochs[-1].epoch + 1, at))
            frames.append(auto_switch_transfer.encode_header(at, len(body), epochs[-1], rng.randrange(at + 1)) + body)
        got, taken = read_stream(rng, MasterFrameDecoder(), b"".join(frames), segment,
                                 draw_pieces(rng, frames, is_small), False)
        assert got == log, first_difference(got, log)
    return taken


def first_difference(got: bytes | bytearray, log: bytes) -> str:
    """Return a text that says where two logs differ."""
    at = next((at for at, (one, other) in enumerate(zip(got, log)) if one != other), min(len(got), len(log)))
    return f"{len(got)} bytes of {len(log)}, the first other one at {at}"


# Checking records.

def compare_checks(rng: random.Random) -> Counter[str]:
    """Check that RecordVerifier passes the same parts, flaws included, as a check of each whole record."""
    segment = rng.choice((4096, 20_000, 300_000))
    log = bytearray(log_of_records(rng, rng.choice((2000, 30_000, 400_000)), segment, segment // 2))
    ends = sorted(record_ends(bytes(log)))
    for _ in range(rng.choice((0, 0, 1, 3))):
        log[rng.choice((rng.randrange(len(log)), max(0, rng.choice(ends) - rng.randrange(1, 200)),
                        min(len(log) - 1, rng.choice((0, *ends)) + rng.randrange(90))))] ^= 1 << rng.randrange(8)
    good = good_up_to(bytes(log), segment)
    got, taken, verifier = bytearray(), Counter(), RecordVerifier(segment)
    room, overwrites = rng.choice((0, 12, 2000)), rng.random() < 0.7
    view, at, flaw = memoryview(bytearray(room) + log), 0, -1
    try:
        while at < len(log):
            size = min(rng.choice((1, 7, 8, 9, 87, 88, 100, 1000, 4096, 100_000, rng.randint(1, 5000))), len(log) - at,
                       segment - at % segment)
            for piece in verifier.take(at, view, room + at, size, overwrites):
                assert piece.offset == len(got), f"a piece at {piece.offset} after {len(got)} bytes"
                got += piece.data[piece.start:piece.start + piece.length]
                taken[PLAIN if piece.data is not view else FAST] += 1
            at += size
            spend(view[:room + at], rng.choice((1, 2000)))
    except RecordFlawError as error:
        flaw = error.offset
    assert got == log[:len(got)]
    if good == len(log):
        assert flaw < 0 and len(got) == good, f"a good log of {good} bytes: {len(got)} passed, flaw {flaw}"
    else:
        assert flaw in (-1, good) and len(got) == good, f"good up to {good}: {len(got)} passed, flaw {flaw}"
    return taken


def good_up_to(log: bytes, segment: int) -> int:
    """Return where the first record begins that is incomplete or bad. Of a blank only the head has to be good."""
    at = 0
    while at < len(log):
        room = segment - at % segment
        if len(log) - at < 8:
            return at
        size, magic = struct.unpack_from(">ii", log, at)
        if magic == BLANK_MAGIC_CODE and size == room:
            at += min(room, len(log) - at)
            continue
        if not is_good(log, at, size, magic, min(room, len(log) - at)):
            return at
        at += size
    return at


def is_good(log: bytes, at: int, size: int, magic: int, room: int) -> bool:
    """Check one record by its fields."""
    if magic != MESSAGE_MAGIC_CODE or not 91 <= size <= room:
        return False
    flag = struct.unpack_from(">i", log, at + 36)[0]
    head = HEADS[flag >> 4 & 3]
    if size < head.size + 3:
        return False
    fields = head.unpack_from(log, at)
    crc, queue_offset, place, length = fields[2], fields[5], fields[6], fields[14]
    topic_at = at + head.size + length
    if length < 0 or topic_at + 3 > at + size or place != at or queue_offset < 0:
        return False
    topic = log[topic_at]
    if topic > 127 or topic_at + 3 + topic > at + size:
        return False
    properties = struct.unpack_from(">h", log, topic_at + 1 + topic)[0]
    if properties < 0 or topic_at + 3 + topic + properties != at + size:
        return False
    return not length or body_crc32(log[at + head.size:topic_at]) == crc


def compare_following(rng: random.Random) -> Counter[str]:
    """Check that `follow_records` over a log in pieces ends where a walk from head to head does."""
    segment = rng.choice((4096, 20_000))
    log = bytearray(log_of_records(rng, rng.choice((2000, 30_000)), segment, segment // 2))
    if rng.random() < 0.3:
        log[rng.choice((0, *sorted(record_ends(bytes(log)))[:-1])) + rng.randrange(8)] ^= 1 << rng.randrange(8)
    chains = []
    for bulk_bytes in (1 << 60, rng.choice((8, 64, 1000))):
        with lowered(ha_transfer, _BULK_BYTES=bulk_bytes):
            chains.append(follow(random.Random(rng.random() if not chains else 0), bytes(log), segment))
    assert chains[0] == chains[1], chains
    return Counter({FAST: 1, PLAIN: 1})


def follow(rng: random.Random, log: bytes, segment: int) -> object:
    """Return where the next record begins after all pieces, or why the bytes are not a log."""
    chain, at, view = RecordChain(0), 0, memoryview(log)
    while at < len(log):
        size = min(rng.choice((1, 7, 100, 3000, 20_000)), len(log) - at, segment - at % segment)
        try:
            chain = follow_records(chain, at, view, at, size, segment)
        except RecordChainError as error:
            return str(error)
        at += size
    return chain


def _lone_record_from_places(decoder: FrameDecoder, offset: int, room: int) -> int:
    """Ignore the places: a fault that the code once had."""
    foreseen, decoder._foreseen = decoder._foreseen, 0
    try:
        return _take_record(decoder, offset, room)
    finally:
        decoder._foreseen = foreseen


_take_record = FrameDecoder.take_record
_put_together = RunDecoder._put_together
_foreseen_run, _foreseen_epoch_run = FrameDecoder._foreseen_run, MasterFrameDecoder._foreseen_run
_look_at, _take = RecordVerifier._look_at, RecordVerifier.take


def _stale_tail(decoder: RunDecoder, frames: int) -> None:
    _put_together(decoder, frames)
    decoder._end = max(0, decoder._end - (decoder._end > 100))


def _trusting(real: object, decoder: RunDecoder, whole: int) -> object:
    """Accept all frames as if they had the expected size."""
    frames, run = real(decoder, whole)
    if run is None or frames == whole:
        return frames, run
    return whole, run._replace(length=whole * decoder._foreseen)


class _Unchecked:
    """The module `bulk` without CRC checks."""

    def __init__(self, real: object) -> None:
        self._real = real

    def walk(self, buffer: object, start: int, end: int, _crc: bool, offset: int, **_options: bool) -> object:
        return self._real.walk(buffer, start, end, False, offset)

    def is_record(self, record: object, offset: int) -> bool:
        return self._real.walk(record, 0, len(record), False, offset)[:2] == (1, len(record))


def _patient(verifier: RecordVerifier, begin: int, head: memoryview) -> int:
    """Wait for one byte less than a record has."""
    wanted = _look_at(verifier, begin, head)
    return wanted - 1 if wanted > 112 else wanted


def _left_where_it_is(verifier: RecordVerifier, offset: int, data: memoryview, start: int, length: int,
                      overwrites: bool) -> object:
    """Take the bytes that precede the piece for the held bytes."""
    if overwrites and len(verifier._held) <= min(start, length):
        verifier._held = bytearray(data[start - len(verifier._held):start])
    return _take(verifier, offset, data, start, length, overwrites)


WAYS = [
    Way("lone record, places and runs of 4.9's frames", "rmqha/store/ha/ha_transfer.py::FrameDecoder",
        "a read has one frame with one record, received into `writable` (`take_record`); or the last frame had 4 KiB "
        "or more, and the last read 256 KiB or more (`places`)",
        "the bodies of the frames in `view` are moved together into runs", compare_frames, (
            Plant("a lone record is taken although it was received at places",
                  replaced(FrameDecoder, "take_record", _lone_record_from_places)),
            Plant("the last byte of a joined run is lost", replaced(RunDecoder, "_put_together", _stale_tail)),
            Plant("a frame of another size is accepted among frames of the predicted size", replaced(
                FrameDecoder, "_foreseen_run", lambda *args: _trusting(_foreseen_run, *args)))), 60),
    Way("places and runs of frames with epochs",
        "rmqha/store/ha/autoswitch/auto_switch_transfer.py::MasterFrameDecoder", "the last frame had 4 KiB or more, "
        "and the last read 256 KiB or more (`places`)",
        "the bodies of the frames in `view` are moved together into runs", compare_epoch_frames, (
            Plant("the last byte of a joined run is lost", replaced(RunDecoder, "_put_together", _stale_tail)),
            Plant("a frame of another size is accepted among frames of the predicted size", replaced(
                MasterFrameDecoder, "_foreseen_run", lambda *args: _trusting(_foreseen_epoch_run, *args)))), 60),
    Way("checking whole records where they lie", "rmqha/store/ha/record_verifier.py::RecordVerifier",
        "the rest of a record has arrived: the held bytes are put directly before it, and the record is checked there",
        "the part of a record that has arrived is held until the rest follows",
        compare_checks, (
            Plant("CRCs are not checked", replaced(record_verifier, "bulk", _Unchecked(record_verifier.bulk))),
            Plant("a record is checked before its last byte has arrived",
                  replaced(RecordVerifier, "_look_at", _patient)),
            Plant("held bytes are not put in front", replaced(RecordVerifier, "take", _left_where_it_is))), 150),
    Way("following records in one call", "rmqha/store/ha/ha_transfer.py::follow_records",
        "haVerifyRecords=false, more than 4 KiB at once, the bulk kernel compiled",
        "from one record's head to the next", compare_following, (
            Plant("the next record begins one byte late", replaced(
                ha_transfer, "RecordChain", lambda next_record, head=b"": RecordChain(
                    next_record + (ha_transfer._BULK_BYTES < 1 << 60), head))),), 60),
]


# Fast paths of a master's sending: by the putting thread, from the bytes in memory, and gathered for a while.

_HEADER = struct.Struct(">qi")


class _Follower(threading.Thread):
    """A raw slave that reads what it is sent, sometimes slowly, and acknowledges it."""

    def __init__(self, store: FakeStore, begin: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.begin, self.log, self.failure = begin, bytearray(), ""
        self._reads = [rng.choice((50, 5000, 1 << 20)) for _ in range(20)]
        self._peer = Peer(socket.socket())
        if rng.random() < 0.5:
            self._peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._peer.sock.connect(("127.0.0.1", store.ha_service.ha_listen_port))
        self._peer.report(begin)
        self.start()

    @property
    def end(self) -> int:
        """The end of the part of the log that it holds."""
        return self.begin + len(self.log)

    def run(self) -> None:
        rest, number = bytearray(), 0
        while data := self._receive(number):
            number += 1
            rest += data
            while len(rest) >= _HEADER.size:
                offset, size = _HEADER.unpack_from(rest)
                if len(rest) < _HEADER.size + size:
                    break
                if offset != self.end:
                    self.failure = f"a frame at {offset} follows {self.end}"
                    return
                self.log += rest[_HEADER.size:_HEADER.size + size]
                del rest[:_HEADER.size + size]
            # The other end may have closed the connection.
            with contextlib.suppress(OSError):
                self._peer.report(self.end)

    def _receive(self, number: int) -> bytes:
        try:
            return self._peer.sock.recv(self._reads[number % len(self._reads)])
        except OSError:
            return b""

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._peer.sock.shutdown(socket.SHUT_RDWR)
        self.join(240)
        self._peer.close()


def _append(store: FakeStore, rng: random.Random, size: int) -> None:
    """Append one record, which one of the ways sends."""
    end = store.get_max_phy_offset()
    way = rng.random()
    with mock.patch.object(store.ha_service, "on_appended", lambda: None):
        store.put(size, rng.randrange(100))
    appended = store.log(end)
    begin = store.get_max_phy_offset() - size
    if way < 0.5 and begin == end:
        store.ha_service.send_appended(end, appended)
    elif way < 0.8:
        store.ha_service.on_appended()
    else:
        store.ha_service.wait_notify_object.wakeup_all()


@contextlib.contextmanager
def _counting(taken: Counter[str]) -> Iterator[None]:
    """Count the calls of each way that send something."""
    reals = {name: getattr(WriteSocketService, name) for name in ("transfer_appended", "transfer_now",
                                                                   "_transfer_once")}

    def counted(name: str, kind: str) -> object:
        def call(service: WriteSocketService, *args: object) -> object:
            before = service.next_transfer_from_where
            result = reals[name](service, *args)
            taken[kind] += service.next_transfer_from_where > before >= 0
            return result
        return call
    with contextlib.ExitStack() as stack:
        for name, kind in (("transfer_appended", FAST), ("transfer_now", FAST), ("_transfer_once", PLAIN)):
            stack.enter_context(mock.patch.object(WriteSocketService, name, counted(name, kind)))
        yield


def compare_sending(rng: random.Random) -> Counter[str]:
    """Check that each of one to four slaves, of which one may lead, gets the log from its start on, whichever way
    sends it."""
    taken: Counter[str] = Counter()
    largest = rng.choice((1000, 100_000))
    store = FakeStore(mappedFileSizeCommitLog=rng.choice((3 * largest, 8 << 20)), haHousekeepingInterval=120_000,
                      haTransferBatchSize=rng.choice((100, 4096, 32768)))
    for _ in range(rng.randrange(5)):
        store.put(max(16, some_size(rng, largest=largest)))
    starts = [0, *(at for at in (1, 16) if at < store.get_max_phy_offset())]
    with lowered(ha_connection, _FRAMES_PER_WRITE=rng.choice((1, 2, 16)), _FIRST_TIMES=rng.choice((1, 3)),
                 _GATHER_MS=rng.choice((1, 5))), _counting(taken), running(store):
        begin = store.get_max_phy_offset()
        followers = [_Follower(store, rng.choice((begin, *starts[1:])) if begin else 0, rng)
                     for _ in range(rng.randint(1, 4))]
        try:
            wait_until(lambda: sum(each.is_serving for each in store.ha_service.connection_list) == len(followers))
            # So that the sockets do not accept all bytes of a put.
            if rng.random() < 0.7:
                for connection in store.ha_service.connection_list:
                    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            for _ in range(rng.choice((5, 60))):
                size = max(16, some_size(rng, (rng.choice((100, 4096, 32768)),), largest))
                _append(store, rng, size)
                if rng.random() < 0.1:
                    followers.append(_Follower(store, store.get_max_phy_offset(), rng))
            end = store.get_max_phy_offset()
            store.ha_service.wait_notify_object.wakeup_all()
            wait_until(lambda: all(each.end >= end or each.failure for each in followers), 60_000,
                       lambda: f"{[each.end for each in followers]} of {end}")
            for each in followers:
                assert not each.failure, each.failure
                assert each.log == store.log(each.begin), f"a slave of {len(followers)} differs from {each.begin} on"
        finally:
            for each in followers:
                each.close()
    return taken


def compare_encoding(rng: random.Random) -> Counter[str]:
    """Check that the frames of a body of any size hold its bytes, however many frames go into one write and however
    much of it the socket accepts."""
    size, batch = some_size(rng, (100, 4096, 32768), 300_000), rng.choice((1, 100, 4096, 32768))
    size = min(size, 2000) if batch == 1 else size
    body, offset = rng.randbytes(size), rng.randrange(1 << 40)
    buffers: list[bytes | memoryview] = ha_transfer.encode_frames(offset, memoryview(body), batch)
    sent = bytearray()
    while buffers:
        whole = b"".join(buffers)
        count = min(len(whole), rng.choice((0, 1, 11, 12, 13, 5000, rng.randint(0, len(whole)))))
        sent += whole[:count]
        buffers = ha_transfer.unsent(buffers, count)
    got, at = bytearray(), 0
    while at < len(sent):
        place, length = _HEADER.unpack_from(sent, at)
        assert place == offset + len(got) and length <= batch
        got += sent[at + _HEADER.size:at + _HEADER.size + length]
        at += _HEADER.size + length
    assert got == body
    return Counter({FAST if size <= batch else PLAIN: 1})


_transfer_appended, _transfer_now = WriteSocketService.transfer_appended, WriteSocketService.transfer_now
_unsent, _encode_frames = ha_transfer.unsent, ha_transfer.encode_frames


def _appends_wherever(service: WriteSocketService, offset: int, appended: bytes) -> bool:
    """Assume that the slave's next missing bytes are those of the put."""
    return _transfer_appended(service, service.next_transfer_from_where if service._ready else offset, appended)


def _forgets_the_rest(service: WriteSocketService) -> bool:
    """Assume that everything was sent."""
    done = _transfer_now(service)
    service._unsent = []
    return done


def _one_byte_more(buffers: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    return _unsent(buffers, sent + (3 < sent < len(b"".join(buffers))))


def _unbounded(offset: int, body: bytes | memoryview, batch_size: int) -> list[bytes | memoryview]:
    """Make frames of one byte more than allowed."""
    return _encode_frames(offset, body, batch_size + 1)


WAYS += [
    Way("sending by the putting thread", "rmqha/store/ha/ha_connection.py::WriteSocketService",
        "the slave lacks only the bytes of this put, and they fit into one frame (`transfer_appended`); or the socket "
        "can take bytes and the writer waits (`transfer_now`). While one slave leads, the others' bytes gather",
        "WriteSocketService's own thread, from the log", compare_sending, (
            Plant("bytes of a put are sent at another offset", replaced(
                WriteSocketService, "transfer_appended", _appends_wherever)),
            Plant("the rest of a partial write is lost", replaced(
                WriteSocketService, "transfer_now", _forgets_the_rest))), 25),
    Way("frames of one write", "rmqha/store/ha/ha_transfer.py::encode_frames", "the body fits into one frame",
        "a header before each slice", compare_encoding, (
            Plant("one byte too many counts as sent", replaced(ha_transfer, "unsent", _one_byte_more)),
            Plant("a frame has one byte more than haTransferBatchSize", replaced(
                ha_transfer, "encode_frames", _unbounded))), 150),
]
