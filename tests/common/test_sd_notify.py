"""What systemd is told, over a socket that stands for its own."""
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from rmqha.common import process as sd_notify
from rmqha.common.program import StopSignal
from tests.broker.support import running_broker
from tests.support import ports
from tests.support.sources import ROOT
from tests.support.wait import wait_until


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """The socket; `systemd.told()` is the next datagram, as lines."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        path = str(tmp_path / "notify")
        receiver.bind(path)
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield receiver


def told(receiver: socket.socket) -> list[str]:
    return receiver.recv(4096).decode().split("\n")


def is_silent(receiver: socket.socket) -> bool:
    receiver.settimeout(0.2)
    try:
        receiver.recv(4096)
    except TimeoutError:
        return True
    return False


def test_ready_and_stopping_are_sent(systemd):
    sd_notify.ready("serves at port 1")
    assert told(systemd) == ["READY=1", "STATUS=serves at port 1"]
    sd_notify.stopping()
    assert told(systemd) == ["STOPPING=1", "STATUS=stopping"]


def test_socket_may_be_an_abstract_one(monkeypatch):
    name = f"rmqha-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        assert sd_notify.notify("READY=1") and told(receiver) == ["READY=1"]


def test_without_systemd_nothing_is_sent_and_a_dead_socket_is_a_line_of_the_log(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not sd_notify.notify("READY=1") and caplog.text == ""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    assert not sd_notify.notify("READY=1") and "systemd can't be told READY=1" in caplog.text


@pytest.mark.parametrize(("text", "pid", "seconds"), [
    ("3000000", None, 3.0), ("3000000", "own", 3.0), ("3000000", "1", None), ("", None, None),
    ("0", None, None), ("soon", None, None)])
def test_watchdog_is_for_the_process_that_is_meant(monkeypatch, text, pid, seconds):
    monkeypatch.setenv("WATCHDOG_USEC", text)
    if pid is None:
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
    else:
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    assert sd_notify.watchdog_s() == seconds


def test_watchdog_hears_of_a_service_only_while_that_lives(systemd, monkeypatch, caplog):
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    lives, stop, given = threading.Event(), StopSignal(), []
    lives.set()

    def looks(timeout_s: float) -> bool:
        given.append(timeout_s)
        return lives.is_set()

    waiter = threading.Thread(target=sd_notify.wait, args=(stop, looks))
    waiter.start()
    try:
        assert told(systemd) == told(systemd) == ["WATCHDOG=1"]
        lives.clear()
        count = len(given)
        wait_until(lambda: len(given) > count + 1)
        systemd.setblocking(False)
        try:
            while True:  # those of before
                systemd.recv(4096)
        except BlockingIOError:
            assert is_silent(systemd)
        assert "its threads don't answer within 0.0 s" in caplog.text
        lives.set()
        systemd.settimeout(60)
        assert told(systemd) == ["WATCHDOG=1"] and set(given) == {0.01}
    finally:
        stop.set()
        waiter.join(240)


def test_without_a_watchdog_nothing_is_looked_at(systemd):
    stop = StopSignal()
    stop.set()
    sd_notify.wait(stop, lambda timeout_s: pytest.fail("nobody asks"))
    assert is_silent(systemd)


def test_broker_lives_while_its_threads_answer(tmp_path, monkeypatch):
    with running_broker(tmp_path) as broker:
        controller = broker.controller
        assert controller.lives(60)
        held, go_on = threading.Event(), threading.Event()
        controller.remoting_server.io.post(lambda: (held.set(), go_on.wait(240)))
        assert held.wait(240)
        assert not controller.lives(0.2)
        go_on.set()
        assert controller.lives(60)
        controller.message_store.reput_message_service.shutdown()
        assert not controller.lives(60)


@pytest.mark.parametrize("server", ["namesrv", "broker"])
def test_servers_say_when_they_serve_that_they_live_and_when_they_stop(systemd, tmp_path, server):
    port = ports.free_broker_port()
    config = tmp_path / "server.properties"
    config.write_text(f"listenPort={port}\nkvConfigPath={tmp_path}/kv.json\n" if server == "namesrv" else
                      f"listenPort={port}\nbrokerIP1=127.0.0.1\nbrokerName=b\nstorePathRootDir={tmp_path}/store\n"
                      "mappedFileSizeCommitLog=1000000\n")
    environment = {**os.environ, "HOME": str(tmp_path), "WATCHDOG_USEC": "400000", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", f"rmqha.{server}.{server}_startup", "-c", str(config)],
                               env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        at = f"serves at port {port}" if server == "namesrv" else f"b 0 serves at 127.0.0.1:{port}"
        assert told(systemd) == ["READY=1", f"STATUS={at}"]
        with socket.create_connection(("127.0.0.1", port), 60):
            assert told(systemd) == ["WATCHDOG=1"]
        process.send_signal(signal.SIGTERM)
        while (message := told(systemd)) == ["WATCHDOG=1"]:
            continue
        assert message == ["STOPPING=1", "STATUS=stopping"] and process.wait(240) == 0
    finally:
        process.kill()
        process.wait()
