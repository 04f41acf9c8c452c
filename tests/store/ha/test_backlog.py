"""A slave receives a backlog: frames of one size, placed side by side and written to the file in one piece."""
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

from rmqha.common.message import message_layout
from rmqha.store import mapped_file
from rmqha.store.ha import ha_client, ha_transfer, master_connection
from rmqha.store.ha.autoswitch.auto_switch_transfer import MasterFrameDecoder, encode_header
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.ha.ha_transfer import FrameDecoder
from rmqha.store.message_store_config import BrokerRole
from tests.store.ha.autoswitch.support import MasterPeer, open_replica
from tests.store.ha.support import FakeMaster, Peer
from tests.store.ha.test_ha_service import log_of, make_store, put
from tests.support.sources import ROOT
from tests.support.wait import wait_until

SEGMENT = 1 << 20
FRAME = 32 * 1024
KEYS = {"mappedFileSizeCommitLog": SEGMENT, "haHandshakeEnable": "false"}


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> bytes:
    """Make a log of three and a half files."""
    store = make_store(tmp_path_factory.mktemp("made"), BrokerRole.ASYNC_MASTER, **KEYS)
    assert store.load()
    store.start()
    try:
        rng = random.Random(7)
        while store.get_max_phy_offset() < 3.5 * SEGMENT:
            put(store, rng.randbytes(rng.choice((100, 1000, 9000))))
        return log_of(store)
    finally:
        store.shutdown()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let the slave stream a backlog of any size."""
    monkeypatch.setattr(ha_client, "_RETRY_MS", 100)
    monkeypatch.setattr(master_connection, "_STREAM_SIZE", 2 * FRAME)


@pytest.fixture
def writes(monkeypatch) -> list[tuple[int, int]]:
    """Record position and length of each write to a file."""
    real, seen = os.pwrite, []

    def pwrite(fd, data, position):
        seen.append((position, len(data)))
        return real(fd, data, position)
    monkeypatch.setattr(os, "pwrite", pwrite)
    return seen


@pytest.fixture
def start(tmp_path):
    """start(name, address) returns a slave that follows the master there; all are shut down at the end."""
    running = []

    def run(name: str, address: str | None = None, **keys):
        store = make_store(tmp_path / name, BrokerRole.SLAVE, **KEYS, **keys)
        assert store.load()
        store.update_ha_master_address(address)
        store.start()
        running.append(store)
        return store
    yield run
    for store in reversed(running):
        store.shutdown()


def stream_of(log: bytes, begin: int = 0, frame: int = FRAME) -> bytes:
    """Make the frames of a log from `begin` on."""
    files = [(at, log[max(at, begin):at + SEGMENT]) for at in range(begin - begin % SEGMENT, len(log), SEGMENT)]
    return b"".join(bytes(part) for at, body in files
                    for part in ha_transfer.encode_frames(max(at, begin), memoryview(body), frame))


def serve(master: FakeMaster, stream: bytes) -> tuple[Peer, int]:
    """Accept a slave, and send it a whole stream unless it disconnects; return the peer and its first report."""
    peer = master.accept()
    report = peer.read_report()

    def send() -> None:
        try:
            peer.send(stream)
        except OSError:
            return  # the slave has closed
    threading.Thread(target=send, daemon=True).start()
    return peer, report


def bytes_behind_the_end(store) -> list[tuple[str, int]]:
    """Return the files that hold anything after the log's end, and its position."""
    found = []
    for file in store.commit_log.mapped_file_queue.mapped_files:
        at = file.first_byte_behind(file.wrote_position)
        if at >= 0:
            found.append((file.file_name, at))
    return found


@pytest.mark.parametrize("frame", [FRAME, 4096, 50_000, 700_000])
@pytest.mark.parametrize("decoder", ["as it is", "nothing is foreseen"])
def test_backlog_equals_the_masters_log_and_is_written_in_large_pieces(start, log, writes, monkeypatch, frame, decoder):
    if decoder != "as it is":
        monkeypatch.setattr(FrameDecoder, "places", lambda *_: [])
    with FakeMaster() as master:
        slave = start("slave", master.address)
        peer, report = serve(master, stream_of(log, frame=frame))
        assert report == 0
        with peer:
            wait_until(lambda: slave.get_max_phy_offset() == len(log), 60_000)
            assert log_of(slave) == log and not bytes_behind_the_end(slave)
            wait_until(lambda: slave.dispatch_behind_bytes() == 0, 60_000)
            assert slave.ha_service.ha_client.last_error == ""
    assert sum(length for _position, length in writes) > len(log) // 2


def test_backlog_with_epochs_is_received_too(tmp_path, log, monkeypatch):
    """The epoch changes within the backlog, and the confirm offset of every frame is learnt."""
    places, foreseen = MasterFrameDecoder.places, []

    def count(self, *arguments):
        foreseen.append(len(found := places(self, *arguments)))
        return found
    monkeypatch.setattr(MasterFrameDecoder, "places", count)
    change = 2 * SEGMENT + 5 * FRAME
    with FakeMaster() as master, open_replica(tmp_path / "slave", 2, mappedFileSizeCommitLog=SEGMENT) as slave:
        assert slave.ha_service.change_to_slave(master.address, 2)
        with MasterPeer(master.server.accept()[0]) as peer:
            peer.greeted()
            peer.answer(len(log), (1, 0), (2, change))
            assert peer.reported() == 0
            stream = b"".join(
                encode_header(at, len(body), EpochEntry(1, 0) if at < change else EpochEntry(2, change), at) + body
                for at in range(0, len(log), FRAME) for body in [log[at:at + FRAME]])
            threading.Thread(target=peer.send, args=(stream,), daemon=True).start()
            wait_until(lambda: slave.get_max_phy_offset() == len(log), 60_000)
            assert log_of(slave) == log and not bytes_behind_the_end(slave)
            epochs = [entry[:2] for entry in slave.ha_service.epoch_cache.get_all_entries()]
            assert epochs == [(1, 0), (2, change)]
            assert slave.ha_service.confirm_offset() == len(log) - len(log) % FRAME
    assert any(foreseen)


def last_record_before(log: bytes, limit: int) -> int:
    """Return the end of the last record that ends at or before `limit`: a slave appends up to there."""
    at = 0
    while (end := at + int.from_bytes(log[at:at + 4], "big")) <= limit:
        at = end
    return at


def test_backlog_goes_through_the_write_buffer_of_a_file_that_has_one(start, log, writes):
    """A slave borrows no buffer; a file that still has one from its time as a master is not written directly."""
    with FakeMaster() as master:
        slave = start("slave", master.address)
        part = log[:last_record_before(log, SEGMENT // 2)]
        peer, _report = serve(master, stream_of(part))
        with peer:
            wait_until(lambda: slave.get_max_phy_offset() == len(part), 60_000)
            file = slave.commit_log.mapped_file_queue.get_last_mapped_file()
            file.committed_position, file.write_buffer = file.wrote_position, memoryview(bytearray(SEGMENT))
            peer.send(stream_of(log[:SEGMENT], len(part)))
            wait_until(lambda: slave.get_max_phy_offset() == SEGMENT, 60_000)
            file.write_buffer = None
    assert log_of(slave) == log[:SEGMENT]


def test_full_disk_is_an_error_and_the_slave_resumes_later(start, log, monkeypatch):
    real, full = mapped_file.MappedFile.allocate, threading.Event()

    def allocate(self, begin, end):
        if full.is_set() and "commitlog" in self.file_name:
            raise OSError(28, "no space")
        real(self, begin, end)
    monkeypatch.setattr(mapped_file.MappedFile, "allocate", allocate)
    full.set()
    with FakeMaster() as master:
        slave = start("slave", master.address)
        peer, _report = serve(master, stream_of(log))
        with peer:
            assert peer.is_closed()
        assert "not acknowledged" in slave.ha_service.ha_client.last_error and slave.get_max_phy_offset() == 0
        full.clear()
        peer, report = serve(master, stream_of(log))
        with peer:
            wait_until(lambda: slave.get_max_phy_offset() == len(log), 60_000)
    assert report == 0 and log_of(slave) == log


def places_that_are_looked_at(log: bytes) -> list[int]:
    """Return the stream positions of the frames' headers, and of the records' magic codes."""
    found, at = [], 0
    for offset in range(0, len(log), FRAME):
        found += range(at, at + ha_transfer.HEADER.size)
        at += ha_transfer.HEADER.size + len(log[offset:offset + FRAME])
    at = 0
    while at < len(log):
        magic = at + message_layout.MESSAGE_MAGIC_CODE_POSITION
        found.append(magic + (magic // FRAME + 1) * ha_transfer.HEADER.size)
        at += int.from_bytes(log[at:at + 4], "big")
    return found


@pytest.mark.parametrize("seed", range(12))
def test_wrong_bytes_in_the_stream_leave_nothing_after_the_good_records(start, log, seed):
    """The connection is closed, and the next one completes the log."""
    rng = random.Random(seed)
    flaw = rng.choice(places_that_are_looked_at(log))
    stream = bytearray(stream_of(log))
    stream[flaw] ^= 1 << rng.randrange(8)
    with FakeMaster() as master:
        # A flipped size may make a frame seem endless.
        slave = start("slave", master.address, haHousekeepingInterval=1000)
        peer, _report = serve(master, bytes(stream))
        with peer:
            assert peer.is_closed()
        end = slave.get_max_phy_offset()
        assert log_of(slave) == log[:end] and end <= flaw and not bytes_behind_the_end(slave)
        peer, report = serve(master, stream_of(log, end))
        with peer:
            wait_until(lambda: slave.get_max_phy_offset() == len(log), 60_000)
        assert report == end and log_of(slave) == log


def test_a_partly_failed_write_leaves_nothing_after_the_end(start, log, monkeypatch):
    """Another master may send fewer bytes there."""
    real, big = os.pwrite, []

    def pwrite(fd, data, position):
        # The other large writes put zeros over the first half.
        if len(data) > FRAME // 2 and any(data):
            big.append(position)
            if len(big) == 2:
                return real(fd, data[:len(data) // 2], position)
            if len(big) == 3:
                raise OSError(5, "no more")
        return real(fd, data, position)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with FakeMaster() as master:
        slave = start("slave", master.address)
        peer, _report = serve(master, stream_of(log))
        with peer:
            assert peer.is_closed()
        end = slave.get_max_phy_offset()
        assert len(big) == 3 and big[2] > big[1] == end % SEGMENT
        assert log_of(slave) == log[:end] and not bytes_behind_the_end(slave)
        peer, report = serve(master, stream_of(log, end))
        with peer:
            wait_until(lambda: slave.get_max_phy_offset() == len(log), 60_000)
        assert report == end and log_of(slave) == log


@pytest.mark.parametrize("nth, part", [(1, slice(0, 1)), (1, slice(1, 2)), (3, slice(0, 1)), (4, slice(1, 2))])
def test_slave_killed_within_a_large_write_truncates_it_and_resumes(start, tmp_path, log, nth, part):
    """Either the first or the second half of the write is in the file when the slave is killed."""
    root = tmp_path / "killed"
    with FakeMaster() as master:
        slave = subprocess.Popen([sys.executable, "-m", "tests.store.ha.test_backlog", str(root), master.address,
                                  str(nth), str(part.start)], cwd=ROOT)
        try:
            peer, _report = serve(master, stream_of(log))
            with peer:
                assert slave.wait(240) == -signal.SIGKILL
        finally:
            slave.kill()
            slave.wait()
        again = start("killed")
        end = again.get_max_phy_offset()
        assert log_of(again) == log[:end] and not bytes_behind_the_end(again)
        again.update_ha_master_address(master.address)
        peer, report = serve(master, stream_of(log, end))
        with peer:
            wait_until(lambda: again.get_max_phy_offset() == len(log), 60_000)
        assert report == end and log_of(again) == log


def be_killed(root: str, address: str, nth: int, half: int) -> None:
    """Run a slave that dies within its nth large write."""
    real, seen = os.pwrite, []

    def pwrite(fd, data, position):
        if len(data) >= FRAME:
            seen.append(position)
        if len(data) < FRAME or len(seen) < nth:
            return real(fd, data, position)
        middle = len(data) // 2
        real(fd, data[middle:] if half else data[:middle], position + half * middle)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process survived SIGKILL")
    os.pwrite = pwrite
    master_connection._STREAM_SIZE = 2 * FRAME
    store = make_store(root, BrokerRole.SLAVE, **KEYS)
    assert store.load()
    store.update_ha_master_address(address)
    store.start()
    threading.Event().wait(240)


if __name__ == "__main__":
    be_killed(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
