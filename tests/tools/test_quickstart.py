"""The quickstart as users run it, clusters on this host, and their table."""
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.configuration import read_config_file
from rmqha.tools import quickstart
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
from rmqha.tools.quickstart import BrokerRow, CommitLogFiles, Quickstart, find_conf, first_difference, render, shares
from rmqha.tools.terminal import WorkFailedError
from tests.support.sources import ROOT


def run(tmp_path, *arguments):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "rmqha.tools.quickstart", *arguments], env=environment, text=True,
                          capture_output=True, timeout=600, cwd=tmp_path)


def servers_below(folder):
    return [process for process in psutil.process_iter(["cmdline"])
            if any(str(folder) in argument for argument in process.info["cmdline"] or ())]


def test_complete_run_shows_everything_and_leaves_nothing(tmp_path):
    result = run(tmp_path, "--messages", "200")
    assert result.returncode == 0, result.stdout + result.stderr
    steps = re.findall(r"^(.*) \.\.\. \d+\.\d s", result.stdout, re.MULTILINE)
    assert [step.split(" ")[0] for step in steps] == [
        "start", "start", "create", "start", "send", "compare", "kill", "consume", "stop"]
    rows = [line.split() for line in result.stdout.splitlines() if "127.0.0.1:" in line]
    assert [(row[0], row[1]) for row in rows] == [
        ("broker-a", "SYNC_MASTER"), ("broker-a-s", "SLAVE"), ("broker-b", "SYNC_MASTER"), ("broker-b-s", "SLAVE")]
    assert [row[3:] for row in rows if row[1] == "SLAVE"] == [[rows[0][3], "0", "yes"], [rows[2][3], "0", "yes"]]
    assert re.search(r"all 200, none twice; broker-a's 100 came from its slave", result.stdout)
    assert "What to try next" in result.stdout and result.stderr == ""
    assert list(tmp_path.iterdir()) == [] and servers_below(tmp_path) == []


def test_failed_step_ends_with_1_prints_the_reason_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(quickstart.tempfile, "tempdir", None)
    monkeypatch.setattr(quickstart, "find_conf", lambda: tmp_path / "nowhere")
    result = CliRunner().invoke(quickstart.main, [])
    assert result.exit_code == 1 and "no .properties files" in result.output and "--keep" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def sent_two(tmp_path):
    made = Quickstart(LocalCluster(quickstart.find_conf(), tmp_path, 21_000), 2)
    made._sent = {"order-0": "broker-a", "order-1": "broker-b"}
    return made


def test_receiving_each_message_once_passes(sent_two):
    text = sent_two._check_received(Counter(["order-0", "order-1"]), {"order-0": "broker-a", "order-1": "broker-b"})
    assert text == "all 2, none twice; broker-a's 1 came from its slave"


@pytest.mark.parametrize("keys, says", [
    (["order-0"], "0 messages arrived twice, 1 never"), (["order-0", "order-0", "order-1"], "1 messages arrived twice"),
    (["order-0", "order-1", "x"], "1 were not sent by this run")])
def test_lost_duplicate_or_foreign_message_is_a_failure(sent_two, keys, says):
    with pytest.raises(WorkFailedError, match=says):
        sent_two._check_received(Counter(keys), {})


def test_differing_log_is_a_failure(sent_two, monkeypatch):
    for master, slave in sent_two._cluster.pairs():
        for server, byte in ((master, b"m"), (slave, b"s")):
            server.commit_log.mkdir(parents=True)
            (server.commit_log / f"{0:020}").write_bytes(byte * 10)
    monkeypatch.setattr(Quickstart, "_max_offset", lambda self, broker: 10)
    with pytest.raises(WorkFailedError, match="differs from its master's"):
        sent_two._table()


def test_message_without_a_copy_is_a_failure(sent_two):
    result = SimpleNamespace(send_status=quickstart.SendStatus.SLAVE_NOT_AVAILABLE,
                             message_queue=SimpleNamespace(brokerName="broker-a"))
    sent_two._producer.send = lambda message, timeout_ms: result
    with pytest.raises(WorkFailedError, match="message 0 is SLAVE_NOT_AVAILABLE"):
        sent_two._send()


def test_message_that_reaches_its_slave_late_is_waited_for(sent_two, monkeypatch):
    statuses = iter([quickstart.SendStatus.FLUSH_SLAVE_TIMEOUT, quickstart.SendStatus.SEND_OK])
    sent_two._producer.send = lambda message, timeout_ms: SimpleNamespace(
        send_status=next(statuses), message_queue=SimpleNamespace(brokerName="broker-b"))
    lags, asked = iter([700, 700, 0]), []

    def lag(_self, master, slave):
        asked.append((master.broker_name, slave.broker_name))
        return next(lags)
    monkeypatch.setattr(Quickstart, "_lag", lag)
    assert sent_two._send().endswith("; 2 to broker-b; 1 FLUSH_SLAVE_TIMEOUT, replicated a moment later")
    assert asked == [("broker-b", "broker-b")] * 3


def test_message_that_never_reaches_its_slave_is_a_failure(sent_two, monkeypatch):
    sent_two._producer.send = lambda message, timeout_ms: SimpleNamespace(
        send_status=quickstart.SendStatus.FLUSH_SLAVE_TIMEOUT, message_queue=SimpleNamespace(brokerName="broker-b"))
    monkeypatch.setattr(Quickstart, "_lag", lambda _self, _master, _slave: 700)
    monkeypatch.setattr(quickstart, "WAIT_S", 0)
    with pytest.raises(ClusterError, match="timed out after 0 s waiting for: broker-b's slave to catch up"):
        sent_two._send()


def test_messages_are_counted_by_broker():
    assert shares(["b", "a", "b"]) == "1 to a, 2 to b"


def test_sigterm_during_a_run_leaves_nothing(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, "-m", "rmqha.tools.quickstart"], env=environment, cwd=tmp_path,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if line.startswith("start 2 masters"):
            process.terminate()
            break
    process.stdout.read()
    assert process.wait(240) == 143
    assert list(tmp_path.iterdir()) == [] and servers_below(tmp_path) == []


# Configs, ports and processes of a cluster on this host.

CONF = ROOT / "conf" / "2m-2s-sync"


@pytest.fixture
def cluster(tmp_path):
    with LocalCluster(CONF, tmp_path, 21_000) as made:
        yield made


def test_each_broker_has_its_own_ports_and_store_and_small_files(cluster, tmp_path):
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
    """Replace servers, given by name, with these programs."""
    monkeypatch.setattr(Node, "start_command", lambda node: [sys.executable, "-c", programs[node.name]])


def test_server_that_ends_unexpectedly_is_reported_with_its_output(cluster, monkeypatch):
    run_instead(monkeypatch, {"namesrv": "import sys; print('no luck'); sys.exit(7)"})
    cluster.start(cluster.name_server)
    with pytest.raises(ClusterError, match=r"(?s)namesrv ended with exit code 7.*no luck"):
        cluster.wait_until(lambda: False, 60, "never")


def test_timeout_names_the_awaited_event(cluster):
    with pytest.raises(ClusterError, match="waiting for: a miracle"):
        cluster.wait_until(lambda: False, 0.1, "a miracle")


def test_closing_ends_every_process_even_an_unresponsive_one(tmp_path, monkeypatch):
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


def test_port_block_is_free_and_within_the_range():
    first = free_port_block(20)
    assert PORTS[0] <= first and first + 20 <= PORTS[1]
    for port in range(first, first + 20):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))


def test_block_excludes_a_taken_port(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr("rmqha.tools.local_cluster.layout.random.randrange", lambda low, high: port - 1)
        with pytest.raises(ClusterError, match="free consecutive ports"):
            free_port_block(3)


def test_conf_folder_is_found():
    assert find_conf() == CONF


def test_script_names_the_required_python_version(tmp_path):
    """Run bin/quickstart with a Python that is too old and without .venv: it ends with a clear message."""
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


# The table of brokers, and the comparison of commit logs.


def write_log(folder, data, size, first=0):
    """Write `data` (which starts at offset `first`) as commit log files of `size` bytes; the last one is padded."""
    folder.mkdir(parents=True)
    for start in range(0, max(len(data), 1), size):
        (folder / f"{first + start:020}").write_bytes(data[start:start + size].ljust(size, b"\0"))
    return folder


def test_table_is_aligned_and_has_yes_or_no():
    text = render([
        BrokerRow("broker-a", "SYNC_MASTER", "127.0.0.1:10911", 1234567),
        BrokerRow("broker-a-s", "SLAVE", "127.0.0.1:10921", 1234000, 567, True),
        BrokerRow("b", "SLAVE", "127.0.0.1:1", 7, 0, False)])
    head, line, master, slave, other = text.splitlines()
    assert head.split() == ["name", "role", "address", "max", "offset", "lag", "bytes", "identical"]
    assert set(line) == {"-", " "}
    assert master.split() == ["broker-a", "SYNC_MASTER", "127.0.0.1:10911", "1,234,567"]
    assert slave.endswith("  567  yes") and other.endswith("    0  NO")
    assert slave.index("567  yes") + 5 == head.index("bytes identical")


def test_files_are_read_across_their_boundaries(tmp_path):
    files = CommitLogFiles(write_log(tmp_path / "log", bytes(range(25)), 10, first=20))
    assert files.min_offset == 20
    assert files.read(28, 5) == bytes(range(8, 13))
    assert files.read(0, 21) == b"\0"
    assert files.read(48, 99) == b"\0\0"


def test_foreign_files_are_skipped(tmp_path):
    folder = write_log(tmp_path / "log", b"abc", 3)
    (folder / "lock").write_text("x")
    (folder / "00000000000000000003.tmp").write_text("x")
    assert CommitLogFiles(folder).read(0, 10) == b"abc"


def test_empty_folder_has_no_data(tmp_path):
    assert CommitLogFiles(tmp_path).min_offset == 0 and CommitLogFiles(tmp_path).read(0, 5) == b""
    assert first_difference(tmp_path, tmp_path, 0) is None


def test_missing_bytes_are_a_difference(tmp_path):
    master = write_log(tmp_path / "m", b"x" * 30, 10)
    slave = write_log(tmp_path / "s", b"x" * 20, 10)
    assert first_difference(master, slave, 20) is None
    assert first_difference(master, slave, 30) == 20


def test_compared_range_starts_where_both_have_files(tmp_path):
    data = bytes(range(40))
    master = write_log(tmp_path / "m", b"?" * 10 + data[10:], 10)
    slave = write_log(tmp_path / "s", data[20:], 10, first=20)
    assert first_difference(master, slave, 40) is None


@given(data=st.binary(min_size=1, max_size=300), place=st.integers(0, 299), sizes=st.tuples(
    st.integers(1, 50), st.integers(1, 50)), chunk=st.integers(1, 64))
def test_first_flipped_byte_is_found_with_any_file_sizes(tmp_path_factory, data, place, sizes, chunk):
    folder, place = tmp_path_factory.mktemp("logs"), place % len(data)
    flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1:]
    master = write_log(folder / "m", data, sizes[0])
    same, other = write_log(folder / "s", data, sizes[1]), write_log(folder / "o", flipped, sizes[1])
    before, quickstart.CHUNK = quickstart.CHUNK, chunk
    try:
        assert first_difference(master, same, len(data)) is None
        assert first_difference(master, other, len(data)) == place
        assert first_difference(master, other, place) is None
    finally:
        quickstart.CHUNK = before
