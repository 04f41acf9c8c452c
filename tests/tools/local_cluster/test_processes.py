"""Which process a server is, and how it is ended."""
import json
import signal
import subprocess
import sys

import psutil
import pytest

from rmqha.tools.local_cluster import processes
from rmqha.tools.local_cluster.layout import NAMESRV, Node
from tests.support.wait import wait_until


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path, "namesrv", NAMESRV, 21_000)


@pytest.fixture
def started(node, monkeypatch):
    """started(program) -> the process of a "server" that runs a program, and names its config file as servers do."""
    made = []

    def start(program: str) -> subprocess.Popen:
        monkeypatch.setattr(Node, "start_command",
                            lambda self: [sys.executable, "-c", program, str(self.config_file)])
        made.append(processes.start(node))
        return made[-1]
    yield start
    for process in made:
        process.kill()
        process.wait()


SLEEP = "import time; time.sleep(99)"


def test_server_is_found_until_it_has_ended(node, started):
    assert processes.find(node) is None
    process = started(SLEEP)
    assert processes.find(node).pid == process.pid
    process.kill()
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert processes.find(node) is None  # though nobody has waited for it yet
    process.wait()
    assert processes.find(node) is None


def test_server_is_found_when_it_has_its_command_line(node, started, monkeypatch):
    process = started(SLEEP)
    cmdline, looks = psutil.Process.cmdline, []

    def from_the_third_look_on(self: psutil.Process) -> list[str]:
        looks.append(self.pid)
        return cmdline(self) if len(looks) > 2 else []
    monkeypatch.setattr(psutil.Process, "cmdline", from_the_third_look_on)
    assert processes.find(node).pid == process.pid and len(looks) > 2


def test_process_without_a_command_line_is_not_the_server(node, started, monkeypatch):
    process = started(SLEEP)
    monkeypatch.setattr(processes, "_EXEC_WAIT_S", 0.1)
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _self: [])
    assert processes.find(node) is None  # as a thread of the kernel
    monkeypatch.setattr(processes, "_EXEC_WAIT_S", 1e9)
    process.kill()
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert processes.find(node) is None


def test_pid_that_another_process_has_by_now_is_not_the_server(node, started):
    process = started(SLEEP)
    data = json.loads(node.pid_file.read_text())
    assert data["pid"] == process.pid
    node.pid_file.write_text(json.dumps(data | {"began": data["began"] - 60}))
    assert processes.find(node) is None
    assert processes.stop([node], 1) == {"namesrv": "did not run"} and process.poll() is None
    assert not node.pid_file.exists()


def test_process_that_began_at_that_time_but_runs_something_else_is_not_the_server(node, tmp_path):
    other = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        node.pid_file.parent.mkdir()
        node.pid_file.write_text(json.dumps({"pid": other.pid, "began": processes._began(psutil.Process(other.pid))}))
        assert processes.find(node) is None
    finally:
        other.kill()
        other.wait()


def test_server_is_known_after_the_clock_was_set(node, started, monkeypatch):
    process = started(SLEEP)
    boot, create = psutil.boot_time(), psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: boot + 3600)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create(self) + 3600)
    assert processes.find(node).pid == process.pid


@pytest.mark.parametrize("text", ["", "17", "{}", '{"pid": "x", "began": 1}', '{"pid": -5, "began": 1}', "\xff"])
def test_damaged_pid_file_means_that_no_server_is_known(node, text):
    node.pid_file.parent.mkdir()
    node.pid_file.write_text(text, encoding="latin-1")
    assert processes.find(node) is None


def test_servers_are_asked_to_end_before_they_are_killed(node, started, tmp_path):
    process = started(SLEEP)
    assert processes.stop([node], 30) == {"namesrv": "stopped"} and process.wait() == -signal.SIGTERM
    ready = tmp_path / "ready"
    process = started(f"import signal; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w').close(); {SLEEP}")
    wait_until(ready.exists)
    assert processes.stop([node], 0.2) == {"namesrv": "killed"} and process.wait() == -signal.SIGKILL


def test_server_gets_its_folder_and_no_name_server_or_notify_socket_of_somebody_else(node, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    found = node.environment()
    assert found["HOME"] == found["ROCKETMQ_HOME"] == str(node.folder)
    assert found["ROCKETMQ_LOG_DIR"] == str(node.folder / "logs" / "namesrv")
    assert not {"NAMESRV_ADDR", "NOTIFY_SOCKET"} & found.keys()
