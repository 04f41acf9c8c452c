"""Persistent clusters of `rmqha up`, switches under load, and `rmqha drill failover`, with real processes."""
import json
import os
import pty
import shutil
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from rmqha.acl.common import AclClientRPCHook, SessionCredentials
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from rmqha.tools import drill, quickstart
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.drill import Drill, Sent, write_conf
from rmqha.tools.errors import one_line
from rmqha.tools.local_cluster.layout import ClusterError, free_port_block, load, ports_needed
from rmqha.tools.local_cluster.processes import find
from rmqha.tools.local_cluster.start import LocalCluster
from rmqha.tools.messages.consume import EARLIEST, Position, QueueFeed
from rmqha.tools.messages.produce import new_consumer, read_queues
from rmqha.tools.quickstart import find_conf
from rmqha.tools.replication.switch import switch
from rmqha.tools.rmqha_command import rmqha as drill_rmqha
from tests.support import start_as, tiers
from tests.support.processes import has_ended
from tests.support.tiers import in_all
from tests.support.wait import wait_until
from tests.tools.local_cluster.support import command, environment, nodes, rmqha

# A cluster of a name server, a master and a slave made by `rmqha up`: real processes, stopped at the end.

NAMES = ["namesrv", "broker-a", "broker-a-s"]
SHAPE = ("--masters", 1, "--slaves", 1)


@pytest.fixture
def home(tmp_path):
    """A home folder whose clusters are stopped in any case."""
    yield tmp_path
    for described in tmp_path.rglob("cluster.json"):
        for node in load(described.parent).nodes:
            if (process := find(node)) is not None:
                process.kill()


def send(address: str, text: str) -> SendStatus:
    with DefaultMQProducer("group", address) as producer:
        return producer.send(Message("T", text.encode()), 10_000).send_status


def pids(home: Path, code: int = 0) -> dict[str, int | None]:
    return {name: node["pid"] for name, node in nodes(home, code=code).items()}


def texts(folder: Path) -> bytes:
    """Return the contents of the commit logs of the cluster's brokers."""
    return b"".join(file.read_bytes() for file in sorted(folder.glob("store/*/commitlog/*")))


def test_cluster_keeps_running_restarts_with_its_data_and_is_deleted(home):
    printed = rmqha(home, "up", "--wait", "--print-env", *SHAPE).stdout.splitlines()
    folder = home / "rmqha" / "default"
    address = printed[0].removeprefix("export NAMESRV_ADDR=")
    assert printed == [f"export NAMESRV_ADDR={address}", f"export RMQHA_DIR={folder}"]
    assert address.startswith("127.0.0.1:")
    first = nodes(home)
    assert list(first) == NAMES and {node["state"] for node in first.values()} == {"running"}
    for name, node in first.items():
        process = psutil.Process(node["pid"])
        assert os.getsid(process.pid) == process.pid and process.terminal() is None
        assert node["rss"] < 150 << 20
        assert Path(node["logs"]) == folder / "logs" / name
    # With a sync master, its slave has the message too.
    assert send(address, "before") is SendStatus.SEND_OK
    # Space is allocated only when it is needed.
    def sizes() -> list[os.stat_result]:
        return [file.stat() for file in (folder / "store" / "broker-a" / "commitlog").iterdir()]
    wait_until(lambda: {size.st_size for size in sizes()} == {8 << 20}, what="the next file")
    assert sum(size.st_blocks * 512 for size in sizes()) < 1 << 20

    os.kill(first["broker-a"]["pid"], signal.SIGKILL)
    wait_until(lambda: nodes(home, code=1)["broker-a"]["state"] == "ended")
    result = rmqha(home, "up", "--wait")
    assert result.stderr.count("started") == 1 and "started broker-a," in result.stderr
    assert f"\nexport NAMESRV_ADDR={address}\n" in result.stdout
    again = pids(home)
    assert {name for name in NAMES if again[name] != first[name]["pid"]} == {"broker-a"}
    assert send(address, "after") is SendStatus.SEND_OK

    assert rmqha(home, "down").stdout.splitlines() == ["broker-a-s stopped", "broker-a stopped", "namesrv stopped"]
    assert {node["state"] for node in nodes(home, code=1).values()} == {"stopped"}
    assert all(map(has_ended, again.values()))
    moved = home / "elsewhere"
    shutil.move(folder, moved)
    rmqha(home, "up", "--dir", moved, "--wait")
    there = nodes(home, "--dir", moved)
    assert [node["address"] for node in there.values()] == [node["address"] for node in first.values()]
    assert there["broker-a"]["store"] == str(moved / "store" / "broker-a")
    assert texts(moved).count(b"before") == texts(moved).count(b"after") == 2 and not folder.exists()
    result = rmqha(home, "down", "--purge", "--dir", moved)
    assert result.stdout.endswith(f"deleted {moved}\n") and not moved.exists()
    assert "no cluster in" in rmqha(home, "ps", "--dir", moved, code=1).stderr


def test_closing_a_terminal_ends_no_server(home):
    leader, terminal = pty.openpty()
    script = f"{' '.join(command('up', '--wait', '--masters', 1, '--slaves', 0))}; sleep 99"
    shell = subprocess.Popen(start_as.command(["setsid", "--ctty", "sh", "-c", script], ctrl_c=True), stdin=terminal,
                             stdout=terminal, stderr=terminal, env=environment(home), cwd=home)
    os.close(terminal)
    seen = b""
    while b"export NAMESRV_ADDR" not in seen:
        seen += os.read(leader, 4096)
    # Closing the terminal sends SIGHUP to its session.
    os.close(leader)
    assert shell.wait(240) == -signal.SIGHUP
    assert {node["state"] for node in nodes(home).values()} == {"running"}
    log = home / "rmqha" / "default" / "logs" / "broker-a" / "broker.log"
    follower = subprocess.Popen(start_as.command(command("logs", "broker-a", "-f", "--file", "broker"), ctrl_c=True),
                                stdout=subprocess.PIPE, text=True, env=environment(home), cwd=home)
    assert "boot success" in next(line for line in follower.stdout if "boot" in line)
    with open(log, "a") as opened:
        opened.write("2026-01-01 00:00:00 WARN main - something new\n")
    assert next(line for line in follower.stdout if "something" in line).endswith("WARN main - something new\n")
    follower.send_signal(signal.SIGINT)
    assert follower.wait(240) == 0
    told = rmqha(home, "logs", "--level", "warn", "--lines", 1).stdout
    assert told.startswith(("broker-a |", "namesrv  |"))
    assert "no server 'broker-z'; the servers are namesrv, broker-a" in rmqha(home, "logs", "broker-z", code=1).stderr
    assert "--file nothing: no such log; available logs are broker" in rmqha(home, "logs", "--file", "nothing",
                                                                            code=1).stderr


def test_server_that_cannot_start_is_reported_with_the_end_of_its_log(home):
    rmqha(home, "up", "--masters", 1, "--slaves", 0)
    rmqha(home, "down")
    config = home / "rmqha" / "default" / "conf" / "broker-a.properties"
    config.write_text(config.read_text() + "flushDiskType=SOMETIMES\n")
    error = rmqha(home, "up", "--wait", code=1).stderr
    assert "broker-a ended with exit code 2; the other servers keep running" in error and "flushDiskType" in error
    states = {name: node["state"] for name, node in nodes(home, code=1).items()}
    assert states == {"namesrv": "running", "broker-a": "ended"}
    error = rmqha(home, "up", "--wait", "--timeout", 0.1, code=1).stderr
    assert "broker-a" in error and "flushDiskType" in error


@pytest.mark.own_timeouts
def test_frozen_server_is_waited_for_and_finally_killed(home):
    rmqha(home, "up", "--masters", 1, "--slaves", 0, "--wait")
    stuck = psutil.Process(pids(home)["broker-a"])
    stuck.suspend()
    assert nodes(home, code=1)["broker-a"]["state"] == "starting"
    assert "timed out waiting for broker-a" in rmqha(home, "up", "--wait", "--timeout", 0.5, code=1).stderr
    result = rmqha(home, "down", "--timeout", 0.5)
    # Half a second may be too short for the other server, too.
    late = {"broker-a killed\nnamesrv stopped\n": "broker-a", "broker-a killed\nnamesrv killed\n": "broker-a, namesrv"}
    assert f"{late[result.stdout]} did not stop within 0.5 s and had to be killed" in result.stderr


def test_folder_kept_by_the_quickstart_can_be_started_again(home):
    conf, folder = home / "conf", home / "kept"
    conf.mkdir()
    shutil.copy(find_conf() / "broker-a.properties", conf)
    with LocalCluster(conf, folder, free_port_block(ports_needed(conf))) as cluster:
        # A broker that starts first registers only after 10 s.
        for node in (cluster.name_server, cluster.brokers[0]):
            cluster.start(node)
            cluster.wait_until(lambda: b"boot success" in node.output_file.read_bytes(), 60, node.name)
        send(cluster.name_server.address, "of the quickstart")
    told = json.loads(rmqha(home, "up", "--wait", "--dir", folder, "-o", "json").stdout)
    assert [node["state"] for node in told["nodes"]] == ["running"] * 2
    assert told["NAMESRV_ADDR"] == cluster.name_server.address and texts(folder).count(b"of the quickstart") == 1
    rmqha(home, "down", "--purge", "--dir", told["dir"])
    assert not folder.exists()


def test_quickstart_prints_how_to_start_its_folder_again(tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "_run", lambda home, messages: None)
    monkeypatch.setattr(quickstart.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    printed = CliRunner().invoke(quickstart.main, ["--keep"]).output
    assert f"kept: {tmp_path}; start it again with: rmqha up --wait --dir {tmp_path}\n" in printed


# Repeated `ha switch` while 16 producers send: nothing is lost, and all continue.
#
# Five times; 100 times in the tier `long`.

TOPIC, PRODUCERS = "Switched", 16
SWITCHES = tiers.pick(5, long=100)


class Load:
    """Producers, each of which retries a message until it is acknowledged."""

    def __init__(self, namesrv):
        self.producer = DefaultMQProducer("makers", namesrv)
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(PRODUCERS)]

    def __enter__(self):
        self.producer.start()
        self.producer.admin.create_topic("TBW102", TOPIC, 4)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.producer.shutdown()

    def wait_for_all(self):
        """Wait until each producer has had ten more acknowledgements."""
        begin = len(self.acknowledged)

        def has_each_ten():
            counts = Counter(key.partition("-")[0] for key in self.acknowledged[begin:])
            return len(counts) == PRODUCERS and min(counts.values()) >= 10
        wait_until(has_each_ten, 240_000, "every producer goes on")

    def _run(self, number):
        count = 0
        while not self._stop.is_set():
            key = f"{number}-{count}"
            try:
                sent = self.producer.send(Message(TOPIC, b"x" * 100, keys=key), 3_000).send_status is SendStatus.SEND_OK
            except CLIENT_ERRORS:
                sent = False
            if sent:
                self.acknowledged.append(key)
                count += 1


@pytest.fixture
def layout(tmp_path):
    """A cluster of one broker name with three replicas."""
    rmqha(tmp_path, "up", "--wait", "--masters", 1, "--slaves", 2, "--auto-failover")
    yield load(tmp_path / "rmqha" / "default")
    for node in load(tmp_path / "rmqha" / "default").nodes:
        if (process := find(node)) is not None:
            process.kill()


def stored(namesrv):
    keys = []
    with new_consumer(namesrv) as consumer:
        feed = QueueFeed(consumer, MessageSelector.by_tag("*"))
        for queue in read_queues(consumer, TOPIC):
            feed.open(queue, Position(word=EARLIEST).offset_of(consumer, queue))
        for batch in feed.batches(1.0):
            keys += [message.keys for message in batch.messages]
    return keys


@pytest.mark.timeout(60 + 3 * SWITCHES)
def test_planned_switches_lose_nothing_and_producers_continue(layout):
    namesrv, replicas = layout.namesrv.address, [node.address for node in layout.replicas]
    with Load(namesrv) as sending, ClusterAdmin(namesrv) as admin:
        for number in range(SWITCHES):
            sending.wait_for_all()
            switch(admin, replicas[(number + 1) % len(replicas)], [], 30, lambda _line: None)
        sending.wait_for_all()
    keys = stored(namesrv)
    assert set(sending.acknowledged) <= set(keys)
    # Some were sent again because their acknowledgement did not arrive.
    assert len(keys) - len(set(keys)) <= PRODUCERS * SWITCHES


# `rmqha drill failover`: its counts on a real cluster, and its verdict about losses.


def test_slave_is_promoted_under_load_and_nothing_is_lost(monkeypatch):
    act = Drill._act

    def act_after_a_failed_send(self):
        # On a busy machine the process may need longer to die than the delay, so that nothing was sent meanwhile.
        self._send()
        act(self)

    monkeypatch.setattr(Drill, "_act", act_after_a_failed_send)
    result = CliRunner().invoke(drill_rmqha, ["drill", "failover", "--seconds", "0.5", "--delay", "0.3", "-o", "json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["acknowledged"] > 0 and told["lost"] == 0 and told["failed"] > 0
    assert 0.3 <= told["secondsUntilStored"] <= told["secondsUntilAcknowledged"]
    assert told["secondsToRejoin"] > 0


@in_all
@pytest.mark.parametrize("mode", ["auto", "switch"])
def test_controller_acts_automatically_and_nothing_is_lost(mode):
    result = CliRunner().invoke(drill_rmqha, ["drill", "failover", "--mode", mode, "--seconds", "0.5", "-o", "json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["acknowledged"] > 0 and told["lost"] == 0 and told["secondsUntilActed"] is None
    assert told["secondsUntilAcknowledged"] > 0
    assert (told["secondsToRejoin"] is not None) == (mode == "auto")


def test_lost_and_duplicate_messages_are_counted(tmp_path):
    made = Drill(LocalCluster(write_conf(tmp_path / "conf", "restart"), tmp_path, 21_000), "restart", 1, 1, 1)
    made.sent = Sent({"1", "2", "3"}, last_before=10.0, first_stored=11.0, first_after=12.5)
    figures = made._figures(Counter({"1": 1, "2": 2, "4": 1}), None)
    assert (figures["lost"], figures["doubled"]) == (1, 1)
    assert (figures["secondsUntilStored"], figures["secondsUntilAcknowledged"]) == (1.0, 2.5)


def test_loss_is_a_failure(monkeypatch):
    monkeypatch.setattr(drill, "failover", lambda *_arguments: {"lost": 2, "acknowledged": 10})
    result = CliRunner().invoke(drill_rmqha, ["drill", "failover"])
    assert result.exit_code == 1 and "lost          2" in result.stdout


def test_cluster_that_does_not_start_is_reported(monkeypatch):
    def fail(*_arguments):
        raise ClusterError("broker-a ended with exit code 2; its output:\nno")
    monkeypatch.setattr(drill, "failover", fail)
    result = CliRunner().invoke(drill_rmqha, ["drill", "failover"])
    assert result.exit_code == 1 and "ended with exit code 2" in result.stderr and "--keep" in result.stderr


# Access control: a broker that refuses to tell its state has answered, and an admin's account of the folder asks it.

ADMIN = "accounts:\n- accessKey: ops-admin\n  secretKey: a-secret-of-its-own\n  admin: true\n"
WHITE = "globalWhiteRemoteAddresses:\n- 127.0.0.1\n"


@pytest.mark.parametrize("accounts", [
    "accounts:\n- accessKey: shop-service\n  secretKey: another-secret\n", ADMIN, ADMIN + WHITE],
    ids=["no admin", "an admin", "slaves on the white list"])
def test_cluster_with_access_control_comes_up(home, accounts):
    pytest.importorskip("yaml", reason="needs PyYAML, the extra acl")
    rmqha(home, "up", *SHAPE)
    rmqha(home, "down")
    folder = home / "rmqha" / "default"
    for name in NAMES[1:]:
        with open(folder / "conf" / f"{name}.properties", "a") as file:
            file.write("aclEnable=true\n")
    (folder / "conf" / "plain_acl.yml").write_text(accounts)
    printed = rmqha(home, "up", "--wait", "--timeout", 60, "--print-env").stdout
    assert {node["state"] for node in nodes(home).values()} == {"running"}
    address = printed.splitlines()[0].removeprefix("export NAMESRV_ADDR=")
    with DefaultMQProducer("group", address) as producer:
        if WHITE in accounts:
            assert producer.send(Message("T", b"x"), 10_000).send_status is SendStatus.SEND_OK
            slave = folder / "store" / "broker-a-s" / "config" / "topics.json"
            wait_until(lambda: slave.exists() and '"T"' in slave.read_text(), 120_000, "the slave has the topic, too")
        else:
            with pytest.raises(CLIENT_ERRORS) as refused:
                producer.send(Message("T", b"x"), 10_000)
            assert "No accessKey is configured" in one_line(refused.value)
            checked = rmqha(home, "check", "server", "-b", nodes(home)["broker-a"]["address"]).stdout
            assert checked.startswith("SERVER OK") and "answers, but refuses the request (access control)" in checked
    signed = AclClientRPCHook(SessionCredentials("ops-admin", "a-secret-of-its-own"))
    if ADMIN in accounts:
        with DefaultMQProducer("group", address, signed) as producer:
            assert producer.send(Message("T", b"x"), 10_000).send_status is SendStatus.SEND_OK
        # With the account it is known that the slave is not connected, not only that it answers.
        os.kill(nodes(home)["broker-a"]["pid"], signal.SIGKILL)
        wait_until(lambda: nodes(home, code=1)["broker-a-s"]["state"] == "not connected", 120_000, "its master is gone")
