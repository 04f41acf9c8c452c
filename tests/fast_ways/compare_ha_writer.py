"""Fast ways of a master's sending: by the putting thread, from the bytes at hand, and gathered for a while."""
from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from unittest import mock

from rmqha.store.ha import ha_connection, ha_transfer
from rmqha.store.ha.ha_connection import WriteSocketService
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.store.ha.support import FakeStore, Peer, running
from tests.support.wait import wait_until

_HEADER = struct.Struct(">qi")


class _Follower(threading.Thread):
    """A raw slave that takes what comes, slowly now and then, and acknowledges it."""

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
        """Up to where it holds the log."""
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
            with contextlib.suppress(OSError):  # the connection ends by its other end
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
    """One record, sent by one of the ways."""
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
    """Count the ways that send something."""
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
    """Each of one to four slaves, of which one may lead, gets the log from where it begins, whatever way sends it."""
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
            if rng.random() < 0.7:  # so that sockets do not take all that is put
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
                assert each.log == store.log(each.begin), f"of {len(followers)} slaves one from {each.begin} on differs"
        finally:
            for each in followers:
                each.close()
    return taken


def compare_encoding(rng: random.Random) -> Counter[str]:
    """Frames of a body of any size are its bytes, however many go into one write and however much of it is taken."""
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
    """Takes what a put names for what the slave lacks next."""
    return _transfer_appended(service, service.next_transfer_from_where if service._ready else offset, appended)


def _forgets_the_rest(service: WriteSocketService) -> bool:
    """Believes that all was sent."""
    done = _transfer_now(service)
    service._unsent = []
    return done


def _one_byte_more(buffers: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    return _unsent(buffers, sent + (3 < sent < len(b"".join(buffers))))


def _unbounded(offset: int, body: bytes | memoryview, batch_size: int) -> list[bytes | memoryview]:
    """Frames of one byte more than allowed."""
    return _encode_frames(offset, body, batch_size + 1)


WAYS = [
    Way("sending by the putting thread", "rmqha/store/ha/ha_connection.py::WriteSocketService",
        "transfer_appended: the bytes of this put are all that the slave lacks, in one frame; transfer_now: the socket "
        "has room and the writer waits; one slave leads: the others' bytes gather",
        "WriteSocketService's own thread, from the log", compare_sending, (
            Plant("bytes of a put are sent at another offset", replaced(
                WriteSocketService, "transfer_appended", _appends_wherever)),
            Plant("the rest of a write that the socket did not take is lost", replaced(
                WriteSocketService, "transfer_now", _forgets_the_rest))), 25),
    Way("frames of one write", "rmqha/store/ha/ha_transfer.py::encode_frames", "the body fits into one frame",
        "a header in front of each slice", compare_encoding, (
            Plant("a byte too much is taken for sent", replaced(ha_transfer, "unsent", _one_byte_more)),
            Plant("a frame has a byte more than haTransferBatchSize", replaced(
                ha_transfer, "encode_frames", _unbounded))), 150),
]
