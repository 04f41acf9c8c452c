"""mqshutdown: which processes it takes for servers, what it says, and what it ends with."""
import subprocess
import sys
import threading

import psutil
import pytest

from rmqha.tools import mqshutdown
from tests.support.processes import ServerProcess
from tests.support.sources import ROOT

BROKER = ("mqbroker", "rmqha.broker.broker_startup")


@pytest.mark.parametrize("command, is_one", [
    (["/v/bin/python", "/v/bin/mqbroker", "-c", "f"], True),
    (["python3", "-m", "rmqha.broker.broker_startup"], True),
    (["python3", "-m", "rmqha.launch", "mqbroker", "-n", "a:1"], True),
    (["python3", "-m", "rmqha.launch", "mqnamesrv"], False),
    (["python3", "-m", "rmqha.namesrv.namesrv_startup"], False),
    (["vi", "/v/bin/mqbroker"], False),
    (["python3", "notmqbroker"], False),
    (["python3", "-m", "rmqha.launch", "mqshutdown", "broker"], False),
    (["python3", "-m"], False),
    ([], False),
])
def test_servers_are_known_by_their_command_lines(command, is_one):
    assert mqshutdown.is_server(command, *BROKER) is is_one


@pytest.mark.parametrize("arguments, code", [
    ([], 1), (["all"], 1), (["-h"], 0), (["--help"], 0), (["--wait"], 1), (["broker", "--wiat"], 1),
    (["broker", "--wait=soon"], 1), (["--wait=-1", "namesrv"], 1)])
def test_usage(arguments, code, capsys, monkeypatch):
    monkeypatch.setattr(mqshutdown, "running", lambda *_: pytest.fail("nothing may be stopped"))
    assert mqshutdown.main(arguments) == code
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "Useage: mqshutdown broker | namesrv | controller"
    assert ("--wait" in printed) == (code == 0)


@pytest.mark.parametrize("arguments, wait_s", [
    (["broker"], None), (["broker", "--wait"], 120), (["--wait=7", "broker"], 7), (["broker", "--wait=0.5"], 0.5)])
def test_wait_is_read_wherever_it_stands(arguments, wait_s, monkeypatch):
    asked = []
    monkeypatch.setattr(mqshutdown, "running", lambda *_: ["a process"])
    monkeypatch.setattr(mqshutdown, "stop", lambda *given: asked.append(given) or 0)
    assert mqshutdown.main(arguments) == 0
    assert asked == [("mqbroker", ["a process"], wait_s)]


@pytest.fixture
def stubborn():
    """A process that ends only when its standard input does."""
    code = ("import os, signal, sys; signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'asked\\n')); "
            "print('ready', flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_wait_ends_with_1_while_a_server_runs_and_with_0_when_it_has_ended(stubborn, capsys):
    server = psutil.Process(stubborn.pid)
    assert mqshutdown.stop("mqbroker", [server], 0.2) == 1
    assert stubborn.stdout.readline() == "asked\n" and stubborn.poll() is None
    assert f"mqbroker({stubborn.pid}) still runs after 0.2 s" in capsys.readouterr().err
    ending = threading.Timer(0.3, stubborn.stdin.close)
    ending.start()
    assert mqshutdown.stop("mqbroker", [server], 300) == 0
    ending.join()
    assert stubborn.wait(300) == 0  # it had ended, though this process, its parent, did not know yet
    assert f"mqbroker({stubborn.pid}) has ended" in capsys.readouterr().out


def test_nothing_that_runs_is_255(capsys):
    assert mqshutdown.stop("mqbroker", []) == 255
    assert capsys.readouterr().out == "No mqbroker running.\n"


def test_server_is_found_and_ends_cleanly(tmp_path, capsys):
    """The one of this test alone: others may run on this host."""
    command = [sys.executable, "-m", "rmqha.launch", "mqnamesrv", "-c", str(tmp_path / "namesrv.conf")]
    (tmp_path / "namesrv.conf").write_text("listenPort=0\n")
    server = ServerProcess("namesrv", command, tmp_path, "boot success",
                           {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}).start()
    try:
        found = {process.pid: process for process in mqshutdown.running("mqnamesrv", "rmqha.namesrv.namesrv_startup")}
        assert server.pid in found
        assert mqshutdown.stop("mqnamesrv", [found[server.pid]]) == 0
        assert server.process.wait(240) == 0
    finally:
        server.kill()
    assert capsys.readouterr().out == (f"The mqnamesrv({server.pid}) is running...\n"
                                       f"Send shutdown request to mqnamesrv({server.pid}) OK\n")


class Process:
    """Somebody's process."""

    pid = 42

    def __init__(self, failure):
        self.failure = failure

    def terminate(self):
        raise self.failure


@pytest.mark.parametrize("failure, code, text", [
    (psutil.AccessDenied(42), 1, "belongs to somebody else"), (psutil.NoSuchProcess(42), 0, "ended by itself")])
def test_what_cannot_be_stopped_is_told(failure, code, text, capsys):
    assert mqshutdown.stop("mqbroker", [Process(failure)]) == code
    printed = capsys.readouterr()
    assert text in printed.err and "OK" not in printed.out
