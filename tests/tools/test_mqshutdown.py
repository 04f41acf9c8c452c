"""mqshutdown: which processes it takes for servers, what it says, and what it ends with."""
import sys

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


@pytest.mark.parametrize("arguments, code", [([], 1), (["all"], 1), (["-h"], 0), (["--help"], 0)])
def test_usage(arguments, code, capsys):
    assert mqshutdown.main(arguments) == code
    assert capsys.readouterr().out == "Useage: mqshutdown broker | namesrv | controller\n"


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
        assert server.process.wait(30) == 0
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
