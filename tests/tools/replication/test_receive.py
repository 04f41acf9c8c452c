"""`ha receive`: masters with arbitrary answers, the folder that receives the log, and logs compared from either
side."""
import os
import random
import signal
import socket
import sys
import threading
import zlib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.common.protocol import request_code
from rmqha.remoting.frame_decoder import StreamError
from rmqha.store.ha import ha_transfer
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.replication import log_match
from rmqha.tools.replication.log_match import BrokerSide, RangeGoneError, StreamSide, log_side, place_of
from rmqha.tools.replication.receive import DivergedError, Master, ReceivedLog, Receiver, ask_master
from rmqha.tools.store_files.reading import scan_block
from rmqha.tools.terminal import CannotAnswerError
from tests.store.ha.support import FakeMaster
from tests.support import store_compare
from tests.support.java_driver import Workload
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until
from tests.tools.check.test_check_ha import FILE, KEPT, WAIT_MS, records
from tests.tools.conftest import broker_at
from tests.tools.replication import logs
from tests.tools.replication.logs import SEGMENT, content, files, log_of

# A receiver and masters scripted by the tests: what it reports, writes and refuses.


class Following:
    """A receiver that runs in a thread; `result` is the error that ended it."""

    def __init__(self, folder, master, **options):
        self.stop = threading.Event()
        self.result: BaseException | None = None
        self.end = 0
        settings = {"acknowledge": False, "from_first": True, "once": False, "sync_interval_s": 0.0, **options}
        self._times = settings.pop("times", 1)  # number of connections
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
        """Wait for the end of the receiver."""
        self._thread.join(240)
        assert not self._thread.is_alive()
        return self.result


@contextmanager
def following(folder, data, **options):
    """Yield (the fake master's end of the connection, receiver) for a master that holds `data`."""
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
    """Send frames of `data` from `begin` on, none of them across the end of a file."""
    while begin < len(data):
        piece = data[begin:begin + min(size, SEGMENT - begin % SEGMENT)]
        peer.send_frame(begin, piece)
        begin += len(piece)


def serve_until_refused(peer, data, begin):
    """Send the same frames to a receiver that closes the connection at some frame, perhaps before the last is sent."""
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


def test_empty_folder_may_start_with_the_last_file(tmp_path):
    data = log_of(40)
    last = len(data) // SEGMENT * SEGMENT
    with following(tmp_path, data, from_first=False) as (peer, receiver):
        assert peer.read_report() == 0
        serve(peer, data, last)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert content(tmp_path, len(data)) == data[last:]


def test_log_whose_first_files_are_deleted_starts_with_the_first_existing_one(tmp_path):
    data = log_of(40)
    with following(tmp_path, data, min_offset=SEGMENT) as (peer, receiver):
        assert peer.read_report() == SEGMENT
        serve(peer, data, SEGMENT)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert content(tmp_path, len(data)) == data[SEGMENT:]


def test_frames_may_arrive_byte_by_byte(tmp_path):
    data = log_of(3)
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1, size=1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert content(tmp_path, len(data)) == data


def test_all_reports_repeat_the_start_position(tmp_path):
    data = log_of(10)
    with following(tmp_path, data, housekeeping_ms=2000) as (peer, receiver):
        assert peer.read_report() == 1
        serve(peer, data, 1)
        for _ in range(5):
            peer.send_frame(len(data))
            assert peer.read_report() == 1
    assert content(tmp_path, len(data)) == data


def test_receiver_resumes_before_records_that_sends_may_wait_for(tmp_path):
    data = log_of(20)  # one record per second
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    with following(tmp_path, data, slave_timeout_ms=1000) as (peer, receiver):
        begin = peer.read_report()
        assert 0 < begin < len(data)
        before = [record for record in scan_block(data[:begin], 0).records if record.offset + record.size <= begin]
        newest_held = 1_700_000_000_000 + 18_000  # the last record is received again
        assert newest_held - before[-1].store_timestamp >= 1000 + 5000, "earlier by slaveTimeout and a margin"
        serve(peer, data, begin)
        wait_until(lambda: receiver.end == len(data), 60_000)
    assert receiver.result is None and content(tmp_path, len(data)) == data


def test_acknowledges_bytes_on_disk_after_the_overlap_was_compared(tmp_path):
    data = log_of(10)
    with following(tmp_path, data[:1500], acknowledge=True) as (peer, receiver):
        assert peer.read_report() == 1
        serve(peer, data[:1500], 1, size=5000)
        assert peer.next_report() == 1500
    with following(tmp_path, data, acknowledge=True) as (peer, receiver):
        # The last record may have been cut off; the one before it is compared.
        assert peer.read_report() == 900
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


def test_bytes_that_differ_from_the_folders_are_refused_with_their_offset(tmp_path):
    data = log_of(20)
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    before = logs.files(tmp_path)
    with following(tmp_path, data) as (peer, receiver):
        begin = peer.read_report()
        wrong = bytearray(data)
        # A byte of the time, which no checksum of a record covers.
        wrong[begin + 45] ^= 1
        serve_until_refused(peer, bytes(wrong), begin)
        error = receiver.join()
    assert isinstance(error, DivergedError) and f"differ at {begin + 45}" in str(error)
    assert logs.files(tmp_path) == before


@pytest.mark.parametrize(("held", "master", "text"), [
    (20, {"max_offset": 3000}, "the log of broker-a at 3000"),
    (20, {"min_offset": 2 * SEGMENT, "max_offset": 9 * SEGMENT}, "begins at 8192"),
])
def test_master_without_the_offsets_that_the_folder_needs_is_not_even_asked(tmp_path, held, master, text):
    data = log_of(held)
    with following(tmp_path, data) as (peer, receiver):
        peer.read_report()
        serve(peer, data, 1)
        wait_until(lambda: receiver.end == len(data), 60_000)
    refused = Following(tmp_path, logs.master(data, **master))
    error = refused.join()
    assert isinstance(error, DivergedError) and text in str(error)


def test_heartbeat_with_another_offset_is_a_refusal(tmp_path):
    with following(tmp_path, log_of(20)) as (peer, receiver):
        peer.read_report()
        peer.send_frame(4096)
        error = receiver.join()
    assert isinstance(error, DivergedError) and "asked to continue at 1 but answers with 4096" in str(error)


@pytest.mark.parametrize("damage", ["no log", "body"])
def test_damaged_bytes_are_not_written_and_requested_again_once(tmp_path, damage):
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
    assert isinstance(error, DivergedError) and "not a commit log" in str(error) and "twice" in str(error)
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end is None


def test_bytes_damaged_once_are_received_the_second_time(tmp_path):
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
    assert isinstance(error, DivergedError) and "its files have another size" in str(error)
    error = Following(tmp_path, logs.master(data, min_offset=77)).join()
    assert isinstance(error, DivergedError) and "begins at 77, which is not the start of a file" in str(error)


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


def test_once_ends_at_the_end_of_the_master(tmp_path):
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
def test_master_that_would_wait_for_a_silent_receiver_is_not_used(config, named):
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


# The folder that receives a log: its content after any end of its receiver.


def write(folder, data, begin=0):
    """Write `data` in pieces that end where files end."""
    with ReceivedLog(str(folder), SEGMENT) as log:
        offset = begin
        while offset < begin + len(data):
            size = min(SEGMENT - offset % SEGMENT, 777, begin + len(data) - offset)
            log.write(offset, data[offset - begin:offset - begin + size])
            offset += size


def test_new_folder_is_empty(tmp_path):
    with ReceivedLog(str(tmp_path / "new"), SEGMENT) as log:
        assert (log.begin, log.end, log.synced, log.settled(1000)) == (None, None, None, None)
    assert os.listdir(tmp_path / "new") == []


def test_files_have_names_and_sizes_of_a_commit_log(tmp_path):
    data = log_of(40)
    write(tmp_path, data)
    assert sorted(os.listdir(tmp_path)) == [f"{start:020d}" for start in range(0, len(data), SEGMENT)]
    assert content(tmp_path, len(data)) == data


def test_log_may_start_at_any_file(tmp_path):
    data = log_of(20, begin=3 * SEGMENT)
    write(tmp_path, data, 3 * SEGMENT)
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        end = 3 * SEGMENT + len(data) - 300  # before the last record
        assert (log.begin, log.end, log.synced) == (3 * SEGMENT, end, end)


def test_writing_resumes_at_the_end(tmp_path):
    data = log_of(40)
    for begin in range(0, len(data), 300 * 7):
        with ReceivedLog(str(tmp_path), SEGMENT) as log:
            for offset in range(log.end or 0, min(begin + 2100, len(data))):
                log.write(offset, data[offset:offset + 1])
    assert content(tmp_path, len(data)) == data


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20 * 300 + 600), st.binary(max_size=40))
@example(4095, b"\0\0")  # the same bytes as in the log
def test_cut_or_torn_end_is_truncated_to_certainly_complete_records(tmp_path_factory, cut, garbage):
    folder = tmp_path_factory.mktemp("torn")
    data = log_of(20)
    cut = min(cut, len(data))
    write(folder, data[:cut] + garbage)
    cut += len(os.path.commonprefix([data[cut:], garbage]))
    with ReceivedLog(str(folder), SEGMENT) as log:
        end = log.end or 0
        assert end <= cut
        assert cut - end <= 2 * 300 or cut - end <= 300 + SEGMENT % 300 + 8
        if end < len(data):
            log.write(end, data[end:min(len(data), end - end % SEGMENT + SEGMENT)])
    end = min(len(data), end - end % SEGMENT + SEGMENT)
    assert b"".join(files(folder).values())[:end] == data[:end]


def test_last_record_remains_on_disk_over_a_restart(tmp_path):
    data = log_of(3)
    write(tmp_path, data)
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end == 600
    assert content(tmp_path, 900) == data


def test_record_with_a_wrong_crc_and_everything_after_it_is_dropped(tmp_path):
    data = log_of(10)
    write(tmp_path, data)
    with open(tmp_path / f"{0:020d}", "r+b") as file:
        file.seek(5 * 300 + 150)
        file.write(b"\xff")
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end == 4 * 300
    assert content(tmp_path, 1500) == data[:1500]


def test_settled_record_is_older_than_the_newest_by_the_given_time(tmp_path):
    write(tmp_path, log_of(10))  # one record per second
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end == 9 * 300
        assert log.settled(0) == 8 * 300  # the last one is always compared
        assert log.settled(3500) == 5 * 300
        assert log.settled(3000) == 6 * 300
        assert log.settled(60_000) == 0


def test_settled_goes_back_across_files(tmp_path):
    data = log_of(40, step_ms=10)
    write(tmp_path, data)
    assert len(data) > 2 * SEGMENT
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.settled(60_000) == 0
        assert log.settled(200) == next(offset for offset in range(len(data)) if data[offset + 56:offset + 64] ==
                                        (1_700_000_000_000 + 19 * 10).to_bytes(8, "big")
                                        and data[offset + 4:offset + 8] == b"\xda\xa3\x20\xa7")


@pytest.mark.parametrize(("make", "text"), [
    (lambda folder: (folder / "notes.txt").write_text("x"), "is not a commit log file"),
    (lambda folder: (folder / f"{0:020d}").write_bytes(bytes(100)), "has 100 bytes"),
    (lambda folder: [(folder / f"{start:020d}").write_bytes(bytes(SEGMENT)) for start in (0, 2 * SEGMENT)],
     "is a gap"),
    (lambda folder: (folder / f"{5:020d}").write_bytes(bytes(SEGMENT)), "does not belong to a log with files of"),
])
def test_folder_with_other_content_is_refused_and_left_unchanged(tmp_path, make, text):
    make(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(CannotAnswerError, match=text), ReceivedLog(str(tmp_path), SEGMENT):
        pass
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_second_receiver_of_a_folder_is_refused(tmp_path):
    with ReceivedLog(str(tmp_path), SEGMENT):
        with pytest.raises(CannotAnswerError, match="another receiver"), ReceivedLog(str(tmp_path), SEGMENT):
            pass
    with ReceivedLog(str(tmp_path), SEGMENT):
        pass


def test_nothing_is_synced_after_a_failed_fsync(tmp_path, monkeypatch):
    data = log_of(3)

    def fails(_fd):
        raise OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output"), ReceivedLog(str(tmp_path), SEGMENT) as log:
        log.write(0, data)
        assert log.synced == 0
        monkeypatch.setattr(os, "fdatasync", fails)
        try:
            log.sync()
        finally:
            assert log.synced == 0


# `ha receive` from a running master, Java's or rmqha's: identical bytes, and its reports.

TOPIC = "Received"
ROOT = Path(__file__).resolve().parents[3]
KINDS = [pytest.param("java", marks=pytest.mark.java), pytest.param("rmqha", marks=pytest.mark.java)]  # Java's client
UNACKNOWLEDGED = {"FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}


@pytest.fixture
def receive(nodes, tmp_path):
    """receive(master, *options) -> the process of a receiver into tmp_path/received."""
    def start(master, *options):
        command = [sys.executable, "-m", "rmqha.tools.rmqha_command", "ha", "receive", "--master", master.ha_address,
                   "--folder", str(tmp_path / "received"), *options]
        process = ServerProcess(f"receiver-{len(nodes)}", command, tmp_path, "holds", {"PYTHONPATH": str(ROOT)})
        nodes.append(process)
        return process.start()
    return start


def log_end(folder):
    return store_compare.log_end(folder) if folder.is_dir() and any(folder.iterdir()) else 0


def assert_same_files(master, folder):
    """Assert that the folder has the master's files: their names, sizes and bytes."""
    end = store_compare.log_end(master.commit_log)
    wait_until(lambda: log_end(folder) >= end, 60_000, f"the received log at {end}")
    assert store_compare.compare_commit_logs(master.commit_log, folder) == (0, end)
    for start, file in store_compare.segments(folder).items():
        assert file.name == f"{start:020d}" and file.stat().st_size == master.segment_size


def produced(job_or_sent):
    return Counter(one.status for one in job_or_sent)


@pytest.mark.parametrize("kind", KINDS)
def test_received_files_equal_the_masters_and_only_acknowledge_makes_a_slave(kind, make_namesrv, make_broker, receive,
                                                                             java_driver, tmp_path):
    namesrv = make_namesrv("rmqha").address
    # A busy machine must not cause refused sends.
    master = make_broker(kind, namesrv, "master", brokerRole="SYNC_MASTER", slaveTimeout=1000,
                         brokerFastFailureEnable="false", osPageCacheBusyTimeOutMills=60_000)
    java_driver.create_topic(namesrv, master.address, TOPIC)
    folder = tmp_path / "received"
    load = Workload(TOPIC, 4000, [700, 1500])

    assert set(produced(java_driver.produce(namesrv, load.part(0, 1500)))) <= UNACKNOWLEDGED
    receiver = receive(master)
    assert_same_files(master, folder)
    assert len(list(folder.iterdir())) > 1

    # Sends wait for a slave while the receiver has their bytes, also while it disconnects and reconnects.
    before = log_end(folder)
    job = java_driver.start_produce(namesrv, load.part(1500, 60), timeoutMs=10_000)
    for _ in range(2):
        wait_until(lambda: log_end(folder) > before or job.done.is_set(), 60_000, "more is received")
        assert receiver.stop() == 0
        before = log_end(folder)
        receiver = receive(master)
    statuses = produced(java_driver.sent(job))
    assert set(statuses) <= UNACKNOWLEDGED and statuses["FLUSH_SLAVE_TIMEOUT"], statuses
    assert_same_files(master, folder)
    assert receiver.stop() == 0

    receiver = receive(master, "--acknowledge")
    master.wait_for_slave()
    last = load.part(1560, 1)
    wait_until(lambda: java_driver.produce(namesrv, last)[0].status == "SEND_OK", 60_000, "a send is acknowledged")
    statuses = produced(java_driver.produce(namesrv, load.part(1561, 1000)))
    assert set(statuses) <= {"SEND_OK", "FLUSH_SLAVE_TIMEOUT"} and statuses["SEND_OK"], statuses
    assert_same_files(master, folder)
    receiver.process.send_signal(signal.SIGKILL)
    receiver.process.wait(240)
    assert_same_files(master, folder)  # acknowledged bytes are on disk


def test_folder_of_another_log_is_refused_and_left_unchanged(cluster, run, tmp_path):
    folder = tmp_path / "received"

    def receive_once(broker):
        ha_port = broker.store.ha_service.ha_listen_port
        return run("ha", "receive", "--master", f"127.0.0.1:{ha_port}", "--folder", folder, "--once")
    assert receive_once(cluster.master).exit_code == 0
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    end = cluster.master.store.get_max_phy_offset()
    assert b"".join(before.values())[:end] == cluster.log()
    with broker_at(tmp_path / "other", None) as other:
        for count in (1, 200):
            for _ in range(count):
                assert other.send("T", b"o" * 1000).code == 0
            refused = receive_once(other)
            assert refused.exit_code == 1 and "Use another folder" in refused.output
            assert ("differ at" if count == 200 else "ends at") in refused.output
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_receiver_ends_cleanly_on_a_signal_and_resumes(cluster, nodes, tmp_path):
    def start():
        command = [sys.executable, "-m", "rmqha.tools.rmqha_command", "ha", "receive", "--master", cluster.ha_address,
                   "--folder", str(tmp_path / "received")]
        process = ServerProcess(f"receiver-{len(nodes)}", command, tmp_path, "holds", {"PYTHONPATH": str(ROOT)})
        nodes.append(process)
        return process.start()
    for _ in range(2):
        cluster.master.send("T", b"more")
        receiver, end = start(), cluster.master.store.get_max_phy_offset()
        wait_until(lambda: log_end(tmp_path / "received") >= end, 60_000, f"all up to {end} is received")
        assert receiver.stop() == 0
        assert f"holds 0 to {end:,}, on disk to {end:,}" in receiver.output()


@pytest.mark.parametrize(("arguments", "code", "text"), [
    (["--master", "127.0.0.1:2"], 2, "the broker 127.0.0.1:1 can't be reached"),
    (["--master", "nonsense"], 2, "--master: 'nonsense' is not a valid host:port"),
    (["--master", "127.0.0.1:2", "--broker", "x"], 2, "--broker: 'x' is not a valid host:port"),
])
def test_impossible_request_is_reported(run, tmp_path, arguments, code, text):
    result = run("ha", "receive", *arguments, "--folder", tmp_path / "new", "--once")
    assert result.exit_code == code and text in result.output
    assert not (tmp_path / "new").exists()


# The log of a broker for comparing: by its checksums, and through its HA port without acknowledging anything.


class Alone:
    """A master without slaves."""

    def __init__(self, broker):
        self.master = broker
        self.end = broker.store.get_max_phy_offset()
        self.log = b"".join(self._files())

    def _files(self):
        offset, store = 0, self.master.store
        while offset < self.end:
            with store.get_commit_log_data(offset) as result:
                yield bytes(result.buffer)
                offset += result.size

    def forget_checksums(self, monkeypatch):
        handlers = self.master.controller.remoting_server.default_request_processor.processor._handlers
        monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    with broker_at(tmp_path_factory.mktemp("alone"), None, mappedFileSizeCommitLog=FILE, maxMessageSize=FILE,
                   **KEPT) as broker:
        for number in range(60):
            assert broker.send("T", bytes([number]) * (10 + number * 700 % 30_000)).code == 0
        yield Alone(broker)


@pytest.fixture
def admin():
    with ClusterAdmin(timeout_millis=WAIT_MS) as one:
        yield one


@pytest.fixture(params=[BrokerSide, StreamSide])
def side(request, alone, admin, monkeypatch):
    if request.param is StreamSide:
        alone.forget_checksums(monkeypatch)
    one = log_side(admin, alone.master.address, "master")
    assert type(one) is request.param and (one.begin, one.end, one.file_size) == (0, alone.end, FILE)
    yield one
    one.close()


def test_random_ranges_match_the_log(side, alone, monkeypatch):
    monkeypatch.setattr(log_match, "_KEPT", 1000)
    draw = random.Random(1)
    for _ in range(150):
        offset = draw.choice((0, FILE, 2 * FILE, draw.randrange(alone.end))) + draw.choice((0, 1, 77))
        size = min(draw.choice((1, 1000, FILE, 2 * FILE)), alone.end - offset)
        assert side.read(offset, size) == alone.log[offset:offset + size]
        count = max(size // 9, 1)
        if count <= 4096 and offset + 9 * count <= alone.end:
            assert side.checksums(offset, 9, count) == tuple(
                zlib.crc32(alone.log[at:at + 9]) for at in range(offset, offset + 9 * count, 9))


def test_record_around_each_random_byte_is_found(side, alone):
    known = records(alone)
    draw = random.Random(2)
    for offset, size in draw.sample(known, 12) + [known[0], known[-1]]:
        for at in (offset, offset + 3, offset + size // 2, offset + size - 1):
            place = place_of(side, at)
            assert (place.start, place.end, place.is_blank, place.reason) == (offset, offset + size, False, "")
    blank = max(offset + size for offset, size in known if offset < FILE)
    for at in (blank, blank + 7, FILE - 1):
        place = place_of(side, at)
        assert (place.start, place.end, place.is_blank) == (blank, FILE, True)


def test_range_outside_of_the_log_is_an_error_that_names_it(side, alone):
    for offset, size in ((alone.end - 1, 2), (alone.end, 1), (1 << 40, 1)):
        with pytest.raises(RangeGoneError, match=f"no longer holds {size} bytes at offset {offset}"):
            side.read(offset, size)
        with pytest.raises(RangeGoneError, match=f"no longer holds {size} bytes at offset {offset}"):
            side.checksums(offset, size, 1)


def test_reader_reports_only_its_start_position(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    reports = []
    encode = ha_transfer.encode_report
    monkeypatch.setattr(log_match.ha_transfer, "encode_report", lambda offset: reports.append(offset) or encode(offset))
    monkeypatch.setattr(log_match, "_RECEIVE_SIZE", 4096)
    side = log_side(admin, alone.master.address, "master")
    for offset in range(0, alone.end - 5000, 5000):
        side._last_report = 0.0  # a report is due
        assert side.read(offset, 5000) == alone.log[offset:offset + 5000]
    assert len(reports) > 20 and set(reports) == {1}
    side.close()
    another = log_side(admin, alone.master.address, "master")
    assert another.read(70_000, 10) == alone.log[70_000:70_010] and set(reports) == {1, 70_000}
    another.close()


def test_sync_master_gets_time_so_that_no_send_waits_for_reported_bytes(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    waits = []
    for role in ("ASYNC_MASTER", "SYNC_MASTER"):
        config = {**admin.get_broker_config(alone.master.address), "brokerRole": role, "slaveTimeout": "1500"}
        monkeypatch.setattr(ClusterAdmin, "get_broker_config", lambda _self, _address, config=config: config)
        log_side(admin, alone.master.address, "master", waits.append).close()
    assert waits == [6.5]


def test_connection_that_ends_is_made_again(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    side = log_side(admin, alone.master.address, "master")
    assert side.read(0, 100) == alone.log[:100]
    side._stream._socket.shutdown(socket.SHUT_RDWR)
    assert side.read(90, alone.end - 90) == alone.log[90:]
    side.close()


def test_port_without_replication_is_named(alone):
    port = int(alone.master.address.rpartition(":")[2])
    side = StreamSide("the master", Master("m", ("127.0.0.1", port), FILE, 0, alone.end, 1000, 1000))
    with pytest.raises(CannotAnswerError, match="can't read the master through its HA port: 127.0.0.1:"):
        side.read(5, 10)


def test_broker_that_waits_for_all_its_peers_is_not_read(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    config = {**admin.get_broker_config(alone.master.address), "inSyncReplicas": "3"}
    monkeypatch.setattr(ClusterAdmin, "get_broker_config", lambda _self, _address: config)
    with pytest.raises(CannotAnswerError, match="inSyncReplicas above 2"):
        log_side(admin, alone.master.address, "master")
