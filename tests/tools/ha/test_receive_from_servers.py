"""`ha receive` from a running master, Java's and rmqha's: the same bytes, and what it reports."""
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import store_compare
from tests.support.java_driver import Workload
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until

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
    wait_until(lambda: log_end(folder) >= end, 30_000, f"the received log at {end}")
    assert store_compare.compare_commit_logs(master.commit_log, folder) == (0, end)
    for start, file in store_compare.segments(folder).items():
        assert file.name == f"{start:020d}" and file.stat().st_size == master.segment_size


def produced(job_or_sent):
    return Counter(one.status for one in job_or_sent)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", KINDS)
def test_received_files_are_the_masters_and_only_acknowledge_makes_a_slave(kind, make_namesrv, make_broker, receive,
                                                                           java_driver, tmp_path):
    namesrv = make_namesrv("rmqha").address
    master = make_broker(kind, namesrv, "master", brokerRole="SYNC_MASTER", slaveTimeout=1000)
    java_driver.create_topic(namesrv, master.address, TOPIC)
    folder = tmp_path / "received"
    load = Workload(TOPIC, 4000, [700, 1500])

    assert set(produced(java_driver.produce(namesrv, load.part(0, 1500)))) <= UNACKNOWLEDGED
    receiver = receive(master)
    assert_same_files(master, folder)
    assert len(list(folder.iterdir())) > 1

    # Sends wait for a slave while the receiver has their bytes, also while it goes and comes again.
    job = java_driver.start_produce(namesrv, load.part(1500, 60), timeoutMs=10_000)
    for _ in range(2):
        assert receiver.stop() == 0
        receiver = receive(master)
        before = log_end(folder)
        wait_until(lambda: log_end(folder) > before or job.done.is_set(), 30_000, "more is received")
    statuses = produced(java_driver.sent(job))
    assert set(statuses) <= UNACKNOWLEDGED and statuses["FLUSH_SLAVE_TIMEOUT"], statuses
    assert_same_files(master, folder)
    assert receiver.stop() == 0

    receiver = receive(master, "--acknowledge")
    master.wait_for_slave()
    last = load.part(1560, 1)
    wait_until(lambda: java_driver.produce(namesrv, last)[0].status == "SEND_OK", 30_000, "a send is acknowledged")
    assert produced(java_driver.produce(namesrv, load.part(1561, 1000))) == {"SEND_OK": 1000}
    assert_same_files(master, folder)
    receiver.process.send_signal(signal.SIGKILL)
    receiver.process.wait(30)
    assert_same_files(master, folder)  # acknowledged is on disk


@pytest.mark.java
@pytest.mark.timeout(240)
def test_folder_of_another_log_is_refused(make_namesrv, make_broker, receive, java_driver, tmp_path):
    namesrv = make_namesrv("rmqha").address
    load = Workload(TOPIC, 100, [700])
    for name in ("one", "other"):
        master = make_broker("rmqha", namesrv, name, brokerName=name)
        java_driver.create_topic(namesrv, master.address, TOPIC)
        wait_until(lambda: all(one.ok for one in java_driver.produce(namesrv, load)), 30_000, "all are sent")
        if name == "one":
            assert receive(master, "--once").process.wait(60) == 0
            files = {file.name: file.read_bytes() for file in (tmp_path / "received").iterdir()}
            master.kill()
            continue
        refused = receive(master)
        assert refused.process.wait(60) == 1
        assert "differ at" in refused.output() or "ends at" in refused.output()
        assert "Receive into another folder" in refused.output()
        assert {file.name: file.read_bytes() for file in (tmp_path / "received").iterdir()} == files
        assert os.listdir(master.commit_log)
