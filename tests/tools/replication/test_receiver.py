"""A receiver and masters that say what a test wants: what it reports, what it writes, what it refuses."""
import threading
from contextlib import contextmanager

import pytest

from rmqha.remoting.frame_decoder import StreamError
from rmqha.tools.replication.receive import DivergedError, ReceivedLog, Receiver, ask_master
from rmqha.tools.store_files.reading import scan_block
from rmqha.tools.terminal import CannotAnswerError
from tests.store.ha.support import FakeMaster
from tests.support.wait import wait_until
from tests.tools.replication import logs
from tests.tools.replication.logs import SEGMENT, content, log_of


class Following:
    """A receiver that runs in a thread; `result` is what ended it."""

    def __init__(self, folder, master, **options):
        self.stop = threading.Event()
        self.result: BaseException | None = None
        self.end = 0
        settings = {"acknowledge": False, "from_first": True, "once": False, "sync_interval_s": 0.0, **options}
        self._times = settings.pop("times", 1)  # connections
        self._folder, self._master, self._settings = str(folder), master, settings
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            with ReceivedLog(self._folder, self._master.file_size) as log:
                receiver = Receiver(log, stop=self.stop.is_set, **self._settings)
                for _ in range(self._times):
                    try:
                        receiver.follow(lambda: self._master, lambda end: setattr(self, "end", end))
                    except StreamError as error:
                        self.result = error
        except Exception as error:
            self.result = error

    def join(self):
        """Wait for its end."""
        self._thread.join(240)
        assert not self._thread.is_alive()
        return self.result


@contextmanager
def following(folder, data, **options):
    """(fake master's end of the connection, receiver) for a master that holds `data`."""
    told = {key: options.pop(key) for key in list(options) if key in logs.master(b"").__dataclass_fields__}
    with FakeMaster() as server:
        host, port = server.address.split(":")
        receiver = Following(folder, logs.master(data, (host, int(port)), **told), **options)
        with server.accept() as peer:
            try:
                yield peer, receiver
            finally:
                receiver.stop.set()
                receiver.join()


def serve(peer, data, begin, size=1000):
    """Frames of `data` from `begin` on, none across a file."""
    while begin < len(data):
        piece = data[begin:begin + min(size, SEGMENT - begin % SEGMENT)]
        peer.send_frame(begin, piece)
        begin += len(piece)


def serve_until_refused(peer, data, begin):
    """The same to a receiver that closes the connection at some frame, maybe before the last is sent."""
    try:
        serve(peer, data, begin)
    except ConnectionError:
        assert peer.is_closed()


def test_empty_folder_asks_for_byte_one_and_gets_the_whole_log(tmp_path):
    data = log_of(40)
    with following(tmp_path, data) as (peer, receiver):
        assert peer.read_report() == 1
        serve(peer, data, 1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert receiver.result is None and content(tmp_path, len(data)) == data


def test_empty_folder_may_begin_with_the_last_file(tmp_path):
    data = log_of(40)
    last = len(data) // SEGMENT * SEGMENT
    with following(tmp_path, data, from_first=False) as (peer, receiver):
        assert peer.read_report() == 0
        serve(peer, data, last)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert content(tmp_path, len(data)) == data[last:]


def test_log_whose_first_files_are_deleted_begins_with_the_first_that_is_there(tmp_path):
    data = log_of(40)
    with following(tmp_path, data, min_offset=SEGMENT) as (peer, receiver):
        assert peer.read_report() == SEGMENT
        serve(peer, data, SEGMENT)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert content(tmp_path, len(data)) == data[SEGMENT:]


def test_frames_may_come_byte_by_byte(tmp_path):
    data = log_of(3)
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1, size=1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert content(tmp_path, len(data)) == data


def test_reports_are_all_the_position_where_it_began(tmp_path):
    data = log_of(10)
    with following(tmp_path, data, housekeeping_ms=2000) as (peer, receiver):
        assert peer.read_report() == 1
        serve(peer, data, 1)
        for _ in range(5):
            peer.send_frame(len(data))
            assert peer.read_report() == 1
    assert content(tmp_path, len(data)) == data


def test_begins_again_before_what_sends_may_wait_for(tmp_path):
    data = log_of(20)  # one record a second
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    with following(tmp_path, data, slave_timeout_ms=1000) as (peer, receiver):
        begin = peer.read_report()
        assert 0 < begin < len(data)
        before = [record for record in scan_block(data[:begin], 0).records if record.offset + record.size <= begin]
        newest_held = 1_700_000_000_000 + 18_000  # the last record is received again
        assert newest_held - before[-1].store_timestamp >= 1000 + 5000, "by slaveTimeout and a margin"
        serve(peer, data, begin)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert receiver.result is None and content(tmp_path, len(data)) == data


def test_acknowledges_what_is_on_disk_once_the_overlap_was_compared(tmp_path):
    data = log_of(10)
    with following(tmp_path, data[:1500], acknowledge=True) as (peer, receiver):
        assert peer.read_report() == 1
        serve(peer, data[:1500], 1, size=5000)
        assert peer.next_report() == 1500
    with following(tmp_path, data, acknowledge=True) as (peer, receiver):
        assert peer.read_report() == 900  # the last record may have been cut, the one before is compared
        serve(peer, data, 900, size=5000)
        assert peer.next_report() == 3000


def test_failed_fsync_is_never_acknowledged(tmp_path, monkeypatch):
    data = log_of(3)

    def fails(_self):
        raise OSError(5, "Input/output error")
    monkeypatch.setattr(ReceivedLog, "sync", fails)
    with following(tmp_path, data, acknowledge=True) as (peer, receiver):
        assert peer.read_report() == 1
        serve_until_refused(peer, data, 1)
        assert peer.is_closed()
    assert isinstance(receiver.result, OSError)


def test_other_bytes_where_the_folder_has_some_are_refused_by_offset(tmp_path):
    data = log_of(20)
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    before = logs.files(tmp_path)
    with following(tmp_path, data) as (peer, receiver):
        begin = peer.read_report()
        wrong = bytearray(data)
        wrong[begin + 45] ^= 1  # of the time, which no check of a record covers
        serve_until_refused(peer, bytes(wrong), begin)
        error = receiver.join()
    assert isinstance(error, DivergedError) and f"differ at {begin + 45}" in str(error)
    assert logs.files(tmp_path) == before


@pytest.mark.parametrize(("held", "master", "text"), [
    (20, {"max_offset": 3000}, "the log of broker-a at 3000"),
    (20, {"min_offset": 2 * SEGMENT, "max_offset": 9 * SEGMENT}, "begins at 8192"),
])
def test_master_that_does_not_hold_what_the_folder_needs_is_not_even_asked(tmp_path, held, master, text):
    data = log_of(held)
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    refused = Following(tmp_path, logs.master(data, **master))
    error = refused.join()
    assert isinstance(error, DivergedError) and text in str(error)


def test_heartbeat_of_another_offset_is_a_refusal(tmp_path):
    with following(tmp_path, log_of(20)) as (peer, receiver):
        peer.read_report()
        peer.send_frame(4096)
        error = receiver.join()
    assert isinstance(error, DivergedError) and "asked to go on at 1 and answers with 4096" in str(error)


@pytest.mark.parametrize("damage", ["no log", "body"])
def test_damaged_bytes_are_not_written_and_fetched_again_once(tmp_path, damage):
    data = log_of(20)
    wrong = bytearray(data)
    wrong[150] ^= 1
    bad = b"\0HTTP/1.1 400 Bad Request and more of it".ljust(200) if damage == "no log" else bytes(wrong)
    with FakeMaster() as server:
        host, port = server.address.split(":")
        receiver = Following(tmp_path, logs.master(data, (host, int(port))), times=3)
        for stream in (bad, bad):
            with server.accept() as peer:
                assert peer.read_report() == 1
                serve_until_refused(peer, stream, 1)
                assert peer.is_closed()
        error = receiver.join()
    assert isinstance(error, DivergedError) and "no commit log" in str(error) and "twice" in str(error)
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end is None


def test_what_came_damaged_once_is_received_the_second_time(tmp_path):
    data = log_of(20)
    wrong = bytearray(data)
    wrong[len(data) - 150] ^= 1
    with FakeMaster() as server:
        host, port = server.address.split(":")
        receiver = Following(tmp_path, logs.master(data, (host, int(port))), times=2)
        with server.accept() as peer:
            serve_until_refused(peer, bytes(wrong), peer.read_report())
            assert peer.is_closed()
        with server.accept() as peer:
            serve(peer, data, peer.read_report())
            wait_until(lambda: receiver.end == len(data), 60_000)
            receiver.stop.set()
            receiver.join()
    assert b"".join(logs.files(tmp_path).values())[:len(data)] == data



def test_frame_beyond_the_end_of_a_file_is_refused(tmp_path):
    data = log_of(40)
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        peer.send_frame(1, data[1:SEGMENT + 100])
        error = receiver.join()
    assert isinstance(error, DivergedError) and "its files are of another size" in str(error)
    error = Following(tmp_path, logs.master(data, min_offset=77)).join()
    assert isinstance(error, DivergedError) and "begins at 77, where none of its files" in str(error)


@pytest.mark.parametrize("size", [-1, -13, 2**31 - 1, 4 * 1024 * 1024])
def test_frame_of_an_impossible_size_ends_the_connection(tmp_path, size):
    with following(tmp_path, log_of(20)) as (peer, receiver):
        peer.read_report()
        peer.send_frame(1, b"x", size=size)
        error = receiver.join()
    assert isinstance(error, StreamError) and "impossible size" in str(error)


def test_closed_and_silent_masters_end_the_connection(tmp_path):
    with following(tmp_path, log_of(20)) as (peer, receiver):
        peer.read_report()
        peer.close()
        assert "closed" in str(receiver.join())
    with following(tmp_path, log_of(20), housekeeping_ms=100) as (peer, receiver):
        assert "silent" in str(receiver.join())
    assert "can't be reached" in str(Following(tmp_path, logs.master(b"", ("127.0.0.1", 1))).join())


def test_once_ends_where_the_master_ended(tmp_path):
    data = log_of(20)
    with following(tmp_path, data, once=True) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1)
        assert receiver.join() is None
    assert content(tmp_path, len(data)) == data


@pytest.mark.parametrize(("config", "named"), [
    ({"allAckInSyncStateSet": "true"}, "allAckInSyncStateSet"), ({"inSyncReplicas": "3"}, "inSyncReplicas above 2"),
    ({"enableAutoInSyncReplicas": "true"}, "enableAutoInSyncReplicas"),
])
def test_master_that_would_wait_for_a_silent_receiver_is_left_alone(config, named):
    class Admin:
        def get_broker_config(self, _address):
            return {"haListenPort": "10912", **config}

        def runtime_info(self, _address):
            return {"commitLogMaxOffset": "77", "commitLogMinOffset": "-1"}
    with pytest.raises(CannotAnswerError, match=named):
        ask_master(Admin(), "h:10911", ("h", 10912), acknowledge=False)
    told = ask_master(Admin(), "h:10911", ("h", 10912), acknowledge=True)
    assert (told.max_offset, told.min_offset, told.file_size) == (77, 0, 1 << 30)
    with pytest.raises(CannotAnswerError, match="on port 10912, not 10999"):
        ask_master(Admin(), "h:10911", ("h", 10999), acknowledge=True)
