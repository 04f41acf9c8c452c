"""Configs, ports and processes of a cluster on this host."""
import socket
import subprocess
import sys

import pytest

from rmqha.common.configuration import read_config_file
from rmqha.tools.local_cluster.layout import (
    PORTS,
    PORTS_PER_BROKER,
    SMALL_FILES,
    ClusterError,
    Node,
    free_port_block,
    ports_needed,
)
from rmqha.tools.local_cluster.start import LocalCluster
from rmqha.tools.quickstart import find_conf
from tests.support.sources import ROOT

CONF = ROOT / "conf" / "2m-2s-sync"


@pytest.fixture
def cluster(tmp_path):
    with LocalCluster(CONF, tmp_path, 21_000) as made:
        yield made


def test_each_broker_has_its_ports_its_store_and_small_files(cluster, tmp_path):
    assert [broker.name for broker in cluster.brokers] == ["broker-a-s", "broker-a", "broker-b-s", "broker-b"]
    ports = [cluster.name_server.port, *(broker.port for broker in cluster.brokers)]
    assert ports == [21_000 + number * PORTS_PER_BROKER for number in range(5)]
    assert ports_needed(CONF) == 5 * PORTS_PER_BROKER
    for broker in cluster.brokers:
        written = read_config_file(str(broker.config_file))
        assert written["listenPort"] == str(broker.port) and written["namesrvAddr"] == "127.0.0.1:21000"
        assert written["storePathRootDir"] == str(tmp_path / "store" / broker.name) == str(broker.store)
        assert written["brokerRole"] == read_config_file(str(CONF / f"{broker.name}.properties"))["brokerRole"]
        assert {key: written[key] for key in SMALL_FILES} == {key: str(value) for key, value in SMALL_FILES.items()}


def test_slaves_are_paired_with_their_masters(cluster):
    assert [(master.name, slave.name) for master, slave in cluster.pairs()] == [
        ("broker-a", "broker-a-s"), ("broker-b", "broker-b-s")]
    assert [broker.role for broker in cluster.masters] == ["SYNC_MASTER"] * 2


def run_instead(monkeypatch, programs):
    """Let servers, by their names, run these programs."""
    monkeypatch.setattr(Node, "start_command", lambda node: [sys.executable, "-c", programs[node.name]])


def test_server_that_ends_by_itself_is_told_with_what_it_printed(cluster, monkeypatch):
    run_instead(monkeypatch, {"namesrv": "import sys; print('no luck'); sys.exit(7)"})
    cluster.start(cluster.name_server)
    with pytest.raises(ClusterError, match=r"(?s)namesrv ended with code 7.*no luck"):
        cluster.wait_until(lambda: False, 60, "never")


def test_waiting_in_vain_names_what_was_waited_for(cluster):
    with pytest.raises(ClusterError, match="in vain for: a miracle"):
        cluster.wait_until(lambda: False, 0.1, "a miracle")


def test_leaving_ends_every_process_even_a_stubborn_one(tmp_path, monkeypatch):
    monkeypatch.setattr("rmqha.tools.local_cluster.start.STOP_TIMEOUT_S", 0.5)
    ready = tmp_path / "ready"
    stubborn = ("import signal, time; signal.signal(15, signal.SIG_IGN); "
                f"open({str(ready)!r}, 'w').close(); time.sleep(99)")
    with LocalCluster(CONF, tmp_path, 21_000) as cluster:
        servers = [cluster.name_server, cluster.masters[0]]
        run_instead(monkeypatch, dict(zip([each.name for each in servers], (stubborn, "import time; time.sleep(99)"))))
        for server in servers:
            cluster.start(server)
        cluster.wait_until(ready.exists, 60, "the stubborn one")
        processes = [*cluster.started.processes.values()]
    assert len(processes) == 2 and all(process.poll() is not None for process in processes)
    cluster.stop()


def test_folder_without_files_is_refused(tmp_path):
    with pytest.raises(ClusterError, match="no .properties files"):
        LocalCluster(tmp_path, tmp_path, 21_000)


def test_port_block_is_free_and_in_the_range():
    first = free_port_block(20)
    assert PORTS[0] <= first and first + 20 <= PORTS[1]
    for port in range(first, first + 20):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))


def test_taken_port_is_not_in_the_block(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr("rmqha.tools.local_cluster.layout.random.randrange", lambda low, high: port - 1)
        with pytest.raises(ClusterError, match="free ports"):
            free_port_block(3)


def test_conf_folder_is_found():
    assert find_conf() == CONF


def test_script_says_what_it_wants_of_python(tmp_path):
    """With a Python that is too old and no .venv, bin/quickstart ends with a clear text."""
    (tmp_path / "bin").mkdir()
    for name in ("quickstart", "ensure-venv"):
        (tmp_path / "bin" / name).write_bytes((ROOT / "bin" / name).read_bytes())
        (tmp_path / "bin" / name).chmod(0o755)
    old = tmp_path / "old"
    old.mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        (old / name).write_text("#!/bin/sh\nexit 1\n")
        (old / name).chmod(0o755)
    result = subprocess.run([tmp_path / "bin" / "quickstart"], env={"PATH": f"{old}:/usr/bin:/bin"}, text=True,
                            capture_output=True, timeout=600)
    assert result.returncode != 0 and "Python 3.11" in result.stderr
