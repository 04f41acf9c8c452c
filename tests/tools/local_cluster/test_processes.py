"""Identifying a server's process, stopping it (also by mqshutdown), and reading the lines of its log files."""
import json
import logging
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from rmqha.common.logs import JavaLevelFormatter, OtherDaysFileHandler
from rmqha.tools import mqshutdown
from rmqha.tools.local_cluster import processes
from rmqha.tools.local_cluster.layout import NAMESRV, Node
from rmqha.tools.local_cluster.log_lines import EntryReader, Follower, end_of_logs, last_entries, log_files
from tests.support.processes import ServerProcess
from tests.support.sources import ROOT
from tests.support.wait import wait_until

# Identifying a server's process, and stopping it.


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path, "namesrv", NAMESRV, 21_000)


@pytest.fixture
def started(node, monkeypatch):
    """started(program) -> the process of a "server" that runs a program, and whose command line has the config file."""
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
    # It is a zombie: the parent has not waited for it yet.
    assert processes.find(node) is None
    process.wait()
    assert processes.find(node) is None


def test_server_is_found_once_it_has_its_command_line(node, started, monkeypatch):
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
    assert processes.find(node) is None  # like a kernel thread
    monkeypatch.setattr(processes, "_EXEC_WAIT_S", 1e9)
    process.kill()
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert processes.find(node) is None


def test_reused_pid_is_not_the_server(node, started):
    process = started(SLEEP)
    data = json.loads(node.pid_file.read_text())
    assert data["pid"] == process.pid
    node.pid_file.write_text(json.dumps(data | {"began": data["began"] - 60}))
    assert processes.find(node) is None
    assert processes.stop([node], 1) == {"namesrv": "did not run"} and process.poll() is None
    assert not node.pid_file.exists()


def test_other_program_with_the_same_pid_and_start_time_is_not_the_server(node, tmp_path):
    other = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        node.pid_file.parent.mkdir()
        node.pid_file.write_text(json.dumps({"pid": other.pid, "began": processes._began(psutil.Process(other.pid))}))
        assert processes.find(node) is None
    finally:
        other.kill()
        other.wait()


def test_server_is_recognized_after_the_clock_was_set(node, started, monkeypatch):
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


def test_servers_get_a_signal_before_they_are_killed(node, started, tmp_path):
    process = started(SLEEP)
    assert processes.stop([node], 30) == {"namesrv": "stopped"} and process.wait() == -signal.SIGTERM
    ready = tmp_path / "ready"
    process = started(f"import signal; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w').close(); {SLEEP}")
    wait_until(ready.exists)
    assert processes.stop([node], 0.2) == {"namesrv": "killed"} and process.wait() == -signal.SIGKILL


def test_server_gets_its_folder_but_no_inherited_name_server_or_notify_socket(node, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    found = node.environment()
    assert found["HOME"] == found["ROCKETMQ_HOME"] == str(node.folder)
    assert found["ROCKETMQ_LOG_DIR"] == str(node.folder / "logs" / "namesrv")
    assert not {"NAMESRV_ADDR", "NOTIFY_SOCKET"} & found.keys()


# Log files: entries, levels, the last entries, and new ones.


@pytest.fixture
def lines_node(tmp_path):
    made = Node(tmp_path, "broker-a", "SYNC_MASTER", 21_000)
    made.log_folder.mkdir(parents=True)
    return made


def lines(entries):
    return [line for entry in entries for line in entry.lines]


def write(node, name, *texts):
    (node.log_folder / f"{name}.log").write_text("".join(text + "\n" for text in texts))


def test_traceback_belongs_to_the_line_before_it():
    reader = EntryReader("n")
    text = ["rest of a line", "2026-01-01 10:00:00 ERROR t - bad", "Traceback", "  File", "2026-01-01 10:00:01 - bare"]
    entries = [*reader.feed(text), *reader.flush()]
    assert [entry.level for entry in entries] == [None, "ERROR", None]
    assert entries[1].lines == text[1:4] and entries[1].time == "2026-01-01 10:00:00"


def test_json_lines_have_a_level_too():
    reader = EntryReader("n")
    entries = [*reader.feed(['{"time": "2026-01-01T10:00:00.5", "level": "WARN", "message": "m"}', "{no json"]),
               *reader.flush()]
    assert [(entry.level, entry.time) for entry in entries] == [("WARN", "2026-01-01T10:00:00.5")]


def test_last_entries_are_selected_by_level_and_sorted_across_files(lines_node):
    write(lines_node, "broker", "2026-01-01 10:00:00 INFO t - a", "2026-01-01 10:00:03 WARN t - d",
          "2026-01-01 10:00:04 - e")
    write(lines_node, "store", "2026-01-01 10:00:01 ERROR t - b", "2026-01-01 10:00:02 INFO t - c")
    write(lines_node, "stats", "2026-01-01 10:00:09 INFO - counts")
    assert [line[-1] for line in lines(last_entries(lines_node, (), None, 4))] == list("bcde")
    assert [line[-1] for line in lines(last_entries(lines_node, (), "WARN", 9))] == list("bd")
    assert [line[-1] for line in lines(last_entries(lines_node, ("store",), "INFO", 1))] == ["c"]
    assert [file.stem for file in log_files(lines_node, ())] == ["broker", "store"]
    assert lines(last_entries(lines_node, ("stats",), None, 9)) == ["2026-01-01 10:00:09 INFO - counts"]
    lines_node.output_file.write_text("oops\n")
    assert lines(last_entries(lines_node, ("out",), None, 9)) == ["oops"]
    assert last_entries(lines_node, ("none",), None, 9) == []
    assert end_of_logs(lines_node).splitlines()[:2] == [f"--- {lines_node.output_file}", "oops"]


def test_server_without_output_has_an_empty_end(tmp_path):
    node = Node(tmp_path, "namesrv", NAMESRV, 21_000)
    assert end_of_logs(node) == f"--- {node.output_file}"


def test_no_line_is_lost_when_a_file_appears_grows_and_is_rolled(lines_node):
    path = lines_node.log_folder / "broker.log"
    follower = Follower(lines_node, path)
    assert follower.poll() == []
    handler = OtherDaysFileHandler(str(path), max_bytes=100, max_index=3)
    handler.setFormatter(JavaLevelFormatter())
    logger = logging.Logger("followed")
    logger.addHandler(handler)
    seen = []
    for number in range(10):
        logger.warning("line %d", number)
        if number % 2:
            seen += follower.poll()
    handler.close()
    assert [line.rpartition(" ")[2] for line in lines(seen)] == [str(number) for number in range(10)]
    assert {entry.level for entry in seen} == {"WARN"}
    with open(path, "ab") as opened:
        opened.write(b"half a l")
        opened.flush()
        assert follower.poll() == []
        opened.write(b"ine\n")
    assert lines(follower.poll()) == ["half a line"]
    follower.close()


def test_follower_begins_at_the_end(lines_node):
    write(lines_node, "broker", "2026-01-01 10:00:00 INFO t - old")
    follower = Follower(lines_node, lines_node.log_folder / "broker.log")
    assert follower.poll() == []
    follower.close()


# mqshutdown: the processes that it considers servers, its output, and its exit code.

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
def test_servers_are_recognized_by_their_command_lines(command, is_one):
    assert mqshutdown.is_server(command, *BROKER) is is_one


@pytest.mark.parametrize("arguments, code", [
    ([], 1), (["all"], 1), (["-h"], 0), (["--help"], 0), (["--wait"], 1), (["broker", "--wiat"], 1),
    (["broker", "--wait=soon"], 1), (["--wait=-1", "namesrv"], 1)])
def test_usage(arguments, code, capsys, monkeypatch):
    monkeypatch.setattr(mqshutdown, "running", lambda *_: pytest.fail("no process may be stopped"))
    assert mqshutdown.main(arguments) == code
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "Useage: mqshutdown broker | namesrv | controller"
    assert ("--wait" in printed) == (code == 0)


@pytest.mark.parametrize("arguments, wait_s", [
    (["broker"], None), (["broker", "--wait"], 120), (["--wait=7", "broker"], 7), (["broker", "--wait=0.5"], 0.5)])
def test_wait_option_is_read_at_any_position(arguments, wait_s, monkeypatch):
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


def test_exit_code_after_waiting_is_1_while_a_server_runs_and_0_when_it_has_ended(stubborn, capsys):
    server = psutil.Process(stubborn.pid)
    assert mqshutdown.stop("mqbroker", [server], 0.2) == 1
    assert stubborn.stdout.readline() == "asked\n" and stubborn.poll() is None
    assert f"mqbroker({stubborn.pid}) is still running after 0.2 s" in capsys.readouterr().err
    ending = threading.Timer(0.3, stubborn.stdin.close)
    ending.start()
    assert mqshutdown.stop("mqbroker", [server], 300) == 0
    ending.join()
    # It had ended, but this process, its parent, had not noticed yet.
    assert stubborn.wait(300) == 0
    assert f"mqbroker({stubborn.pid}) has exited" in capsys.readouterr().out


def test_exit_code_is_255_when_nothing_runs(capsys):
    assert mqshutdown.stop("mqbroker", []) == 255
    assert capsys.readouterr().out == "No mqbroker running.\n"


def test_server_is_found_and_ends_cleanly(tmp_path, capsys):
    """Find only this test's server: others may run on this host."""
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
    """A process that can't be stopped."""

    pid = 42

    def __init__(self, failure):
        self.failure = failure

    def terminate(self):
        raise self.failure


@pytest.mark.parametrize("failure, code, text", [
    (psutil.AccessDenied(42), 1, "belongs to another user"), (psutil.NoSuchProcess(42), 0, "already exited")])
def test_process_that_cannot_be_stopped_is_reported(failure, code, text, capsys):
    assert mqshutdown.stop("mqbroker", [Process(failure)]) == code
    printed = capsys.readouterr()
    assert text in printed.err and "OK" not in printed.out
