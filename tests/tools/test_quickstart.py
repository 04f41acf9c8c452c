"""The quickstart as people run it."""
import os
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from rmqha.tools import quickstart
from rmqha.tools.local_cluster.layout import ClusterError
from rmqha.tools.local_cluster.start import LocalCluster
from rmqha.tools.quickstart import Quickstart, shares
from rmqha.tools.terminal import WorkFailedError
from tests.support.sources import ROOT


def run(tmp_path, *arguments):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "rmqha.tools.quickstart", *arguments], env=environment, text=True,
                          capture_output=True, timeout=600, cwd=tmp_path)


def servers_below(folder):
    return [process for process in psutil.process_iter(["cmdline"])
            if any(str(folder) in argument for argument in process.info["cmdline"] or ())]


def test_everything_is_shown_and_nothing_is_left(tmp_path):
    result = run(tmp_path, "--messages", "200")
    assert result.returncode == 0, result.stdout + result.stderr
    steps = re.findall(r"^(.*) \.\.\. \d+\.\d s", result.stdout, re.MULTILINE)
    assert [step.split(" ")[0] for step in steps] == [
        "start", "start", "create", "start", "send", "compare", "kill", "consume", "stop"]
    rows = [line.split() for line in result.stdout.splitlines() if "127.0.0.1:" in line]
    assert [(row[0], row[1]) for row in rows] == [
        ("broker-a", "SYNC_MASTER"), ("broker-a-s", "SLAVE"), ("broker-b", "SYNC_MASTER"), ("broker-b-s", "SLAVE")]
    assert [row[3:] for row in rows if row[1] == "SLAVE"] == [[rows[0][3], "0", "yes"], [rows[2][3], "0", "yes"]]
    assert re.search(r"all 200, none twice; 100 of broker-a's came from its slave", result.stdout)
    assert "What to try next" in result.stdout and result.stderr == ""
    assert list(tmp_path.iterdir()) == [] and servers_below(tmp_path) == []


def test_failed_step_ends_with_one_and_a_text_and_leaves_nothing(tmp_path, monkeypatch):
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


def test_each_message_once_is_right(sent_two):
    text = sent_two._check_received(Counter(["order-0", "order-1"]), {"order-0": "broker-a", "order-1": "broker-b"})
    assert text == "all 2, none twice; 1 of broker-a's came from its slave"


@pytest.mark.parametrize("keys, says", [
    (["order-0"], "0 messages came twice, 1 never"), (["order-0", "order-0", "order-1"], "1 messages came twice"),
    (["order-0", "order-1", "x"], "1 were not sent here")])
def test_message_lost_doubled_or_foreign_is_a_failure(sent_two, keys, says):
    with pytest.raises(WorkFailedError, match=says):
        sent_two._check_received(Counter(keys), {})


def test_log_that_differs_is_a_failure(sent_two, monkeypatch):
    for master, slave in sent_two._cluster.pairs():
        for server, byte in ((master, b"m"), (slave, b"s")):
            server.commit_log.mkdir(parents=True)
            (server.commit_log / f"{0:020}").write_bytes(byte * 10)
    monkeypatch.setattr(Quickstart, "_max_offset", lambda self, broker: 10)
    with pytest.raises(WorkFailedError, match="differs from its master's"):
        sent_two._table()


def test_message_that_is_not_safe_is_a_failure(sent_two):
    result = SimpleNamespace(send_status=quickstart.SendStatus.SLAVE_NOT_AVAILABLE,
                             message_queue=SimpleNamespace(brokerName="broker-a"))
    sent_two._producer.send = lambda message, timeout_ms: result
    with pytest.raises(WorkFailedError, match="message 0 is SLAVE_NOT_AVAILABLE"):
        sent_two._send()


def test_message_that_its_slave_has_late_is_waited_for(sent_two, monkeypatch):
    statuses = iter([quickstart.SendStatus.FLUSH_SLAVE_TIMEOUT, quickstart.SendStatus.SEND_OK])
    sent_two._producer.send = lambda message, timeout_ms: SimpleNamespace(
        send_status=next(statuses), message_queue=SimpleNamespace(brokerName="broker-b"))
    lags, asked = iter([700, 700, 0]), []

    def lag(_self, master, slave):
        asked.append((master.broker_name, slave.broker_name))
        return next(lags)
    monkeypatch.setattr(Quickstart, "_lag", lag)
    assert sent_two._send().endswith("; 2 to broker-b; 1 FLUSH_SLAVE_TIMEOUT, on the slave a moment later")
    assert asked == [("broker-b", "broker-b")] * 3


def test_message_that_its_slave_never_has_is_a_failure(sent_two, monkeypatch):
    sent_two._producer.send = lambda message, timeout_ms: SimpleNamespace(
        send_status=quickstart.SendStatus.FLUSH_SLAVE_TIMEOUT, message_queue=SimpleNamespace(brokerName="broker-b"))
    monkeypatch.setattr(Quickstart, "_lag", lambda _self, _master, _slave: 700)
    monkeypatch.setattr(quickstart, "WAIT_S", 0)
    with pytest.raises(ClusterError, match="waited 0 s in vain for: broker-b's slave to have it"):
        sent_two._send()


def test_shares_are_counted_by_broker():
    assert shares(["b", "a", "b"]) == "1 to a, 2 to b"


def test_sigterm_in_the_middle_leaves_nothing(tmp_path):
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
