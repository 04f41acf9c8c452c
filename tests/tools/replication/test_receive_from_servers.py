"""`ha receive` from a running master, Java's and rmqha's: the same bytes, and what it reports."""
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import store_compare
from tests.support.java_driver import Workload
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

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
    """The folder holds the master's files: their names, their sizes, their bytes."""
    end = store_compare.log_end(master.commit_log)
    wait_until(lambda: log_end(folder) >= end, 60_000, f"the received log at {end}")
    assert store_compare.compare_commit_logs(master.commit_log, folder) == (0, end)
    for start, file in store_compare.segments(folder).items():
        assert file.name == f"{start:020d}" and file.stat().st_size == master.segment_size


def produced(job_or_sent):
    return Counter(one.status for one in job_or_sent)


@pytest.mark.parametrize("kind", KINDS)
def test_received_files_are_the_masters_and_only_acknowledge_makes_a_slave(kind, make_namesrv, make_broker, receive,
                                                                           java_driver, tmp_path):
    namesrv = make_namesrv("rmqha").address
    # a busy machine is no reason to refuse sends
    master = make_broker(kind, namesrv, "master", brokerRole="SYNC_MASTER", slaveTimeout=1000,
                         brokerFastFailureEnable="false", osPageCacheBusyTimeOutMills=60_000)
    java_driver.create_topic(namesrv, master.address, TOPIC)
    folder = tmp_path / "received"
    load = Workload(TOPIC, 4000, [700, 1500])

    assert set(produced(java_driver.produce(namesrv, load.part(0, 1500)))) <= UNACKNOWLEDGED
    receiver = receive(master)
    assert_same_files(master, folder)
    assert len(list(folder.iterdir())) > 1

    # Sends wait for a slave while the receiver has their bytes, also while it goes and comes again.
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
    assert_same_files(master, folder)  # acknowledged is on disk


def test_folder_of_another_log_is_refused_and_left_as_it_is(cluster, run, tmp_path):
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
            assert refused.exit_code == 1 and "Receive into another folder" in refused.output
            assert ("differ at" if count == 200 else "ends at") in refused.output
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_receiver_ends_well_at_a_signal_and_goes_on(cluster, nodes, tmp_path):
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
    (["--master", "nonsense"], 2, "--master: 'nonsense' is no host:port"),
    (["--master", "127.0.0.1:2", "--broker", "x"], 2, "--broker: 'x' is no host:port"),
])
def test_what_can_not_be_received_is_said(run, tmp_path, arguments, code, text):
    result = run("ha", "receive", *arguments, "--folder", tmp_path / "new", "--once")
    assert result.exit_code == code and text in result.output
    assert not (tmp_path / "new").exists()
