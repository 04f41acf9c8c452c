"""Processes of tests: how they become commands, their CPU, threads and ports."""
import os
import signal
import socket
import subprocess
import sys
import threading

import psutil
import pytest

from tests.support import ports, start_as, warm
from tests.support.nodes import NamesrvNode
from tests.support.sources import ROOT
from tests.support.wait import Laps, begin_test, own_threads, wait_until

# Commands forked from the warm process end, print and handle signals like other commands.

RMQHA = [sys.executable, "-m", "rmqha.tools.rmqha_command"]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_command_prints_and_ends_as_in_a_separate_process(tmp_path):
    for arguments in (["--help"], ["no-such-command"], ["ps", "-o", "json"], ["config", "explain", "--help"]):
        env = {**ENV, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
        own = subprocess.run([*RMQHA, *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        forked = warm.run([*RMQHA, *arguments], env, tmp_path)
        assert (forked.returncode, forked.stdout, forked.stderr) == (own.returncode, own.stdout, own.stderr)


def test_server_runs_in_its_folder_with_its_environment_until_it_is_terminated(tmp_path, nodes):
    node = NamesrvNode("rmqha", tmp_path / "home")
    nodes.append(node)
    node.start()
    assert isinstance(node.process, warm.WarmProcess)
    process = psutil.Process(node.pid)
    assert process.cwd() == str(tmp_path / "home") and os.getsid(node.pid) == node.pid
    assert psutil.Process(process.ppid()).ppid() == os.getpid()
    assert node.process.poll() is None and node.is_alive
    with pytest.raises(subprocess.TimeoutExpired):
        node.process.wait(0)
    assert node.stop() == 0 and not node.is_alive and not psutil.pid_exists(node.pid)
    assert (tmp_path / "home" / "logs" / "rocketmqlogs" / "namesrv.log").exists()  # HOME is its folder
    node.start()
    node.kill()
    assert node.process.returncode == -signal.SIGKILL == node.process.wait(0)


def test_several_threads_start_commands_in_parallel(tmp_path):
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(warm.run([*RMQHA, "--version"], ENV, tmp_path).stdout))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(codes) == 8 and len(set(codes)) == 1 and codes[0]


def test_commands_end_with_the_process_that_started_them(tmp_path):
    code = f"""
import os, sys
from pathlib import Path
from tests.support.nodes import NamesrvNode
node = NamesrvNode("rmqha", Path({str(tmp_path)!r})).start()
print(node.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], env=ENV, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)), 120_000, "the server ends")


@pytest.mark.parametrize("command, env", [
    ([sys.executable, "-X", "dev", "-m", "rmqha.tools.rmqha_command"], {}),
    (["python3", "-m", "rmqha.tools.rmqha_command"], {}), ([sys.executable, "-m", "json.tool"], {}),
    (RMQHA, {"PYTHONPATH": "/elsewhere"}), (RMQHA, {"PYTHONDEVMODE": "1"}), (RMQHA, {"MALLOC_ARENA_MAX": "1"}),
    (RMQHA, {"LD_PRELOAD": "/x.so"}), (RMQHA, {"rocketmq_broker_multiPathSplitter": ";"}),
    (RMQHA, {"JAVA_OPT": "-Drocketmq.serialize.type=ROCKETMQ"})])
def test_commands_about_starting_are_not_forked(command, env):
    assert not warm.can_be_warm(command, {**ENV, **env})
    assert warm.can_be_warm(RMQHA, {**ENV, "HOME": "/x", "ROCKETMQ_HOME": "/y", "TZ": "Asia/Kolkata"})


# Setup of processes of tests before they become their commands.


def test_command_ends_with_the_thread_that_started_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(subprocess.Popen(start_as.killed_with_parent(
        ["sh", "-c", "echo begun; exec sleep 600"]), stdout=subprocess.PIPE, text=True)) or made[0].stdout.readline())
    thread.start()
    thread.join()
    with made[0] as process:
        assert process.wait(240) == -signal.SIGKILL


def test_interrupts_are_handled_even_if_they_were_ignored():
    show = [sys.executable, "-c", "import signal; print([signal.getsignal(one) == default for one, default in ("
            "(signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL))])"]
    ignored = ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh"]
    plain, with_ctrl_c = (
        subprocess.run([*ignored, *words], capture_output=True, text=True, check=True).stdout
        for words in (show, start_as.command(show, ctrl_c=True)))
    assert (plain, with_ctrl_c) == ("[False, False]\n", "[True, True]\n")


def test_missing_command_is_named():
    done = subprocess.run(start_as.command(["no-such-command", "x"]), capture_output=True, text=True, check=False,
                          # A folder that may not be read causes another error.
                          env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (1, "no-such-command: No such file or directory\n")


# The CPU of a process with all that it starts.

BUSY_S = 0.5
BUSY = f"import time\nwhile time.process_time() < {BUSY_S}: pass\nprint('done', flush=True)\ninput()"


def test_running_and_ended_children_are_counted_once():
    laps = Laps()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"done\n"
        running = laps.lap()
        child.communicate(b"\n")
    ended = laps.lap()
    assert running > BUSY_S - 0.1
    assert ended < running  # earlier time is not counted again


def test_own_work_is_counted():
    laps, spent = Laps(), []

    def has_worked() -> bool:
        spent.append(laps.lap())
        return sum(spent) > 0.1
    wait_until(has_worked, 120_000, "a tenth of a second of CPU")


# The threads that count as a test's own.


def _started(body, name):
    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def _starter(may_start, may_end):
    """Return a thread that starts another when it may: (it, what it has started)."""
    born = []

    def body():
        may_start.wait(240)
        born.append(_started(lambda: may_end.wait(240), "child"))
    return _started(body, "parent"), born


def test_threads_of_the_test_and_their_threads_are_its_own():
    may_start, may_end = threading.Event(), threading.Event()
    parent, born = _starter(may_start, may_end)
    assert own_threads() == {parent}
    may_start.set()
    parent.join(240)
    assert own_threads() == set(born) and len(born) == 1  # although their starter has ended
    may_end.set()
    born[0].join(240)
    assert not own_threads()


def test_threads_of_an_earlier_test_are_not_its_own():
    may_start, may_end = threading.Event(), threading.Event()
    parent, born = _starter(may_start, may_end)
    begin_test()
    may_start.set()
    parent.join(240)
    assert born[0].is_alive() and not own_threads()
    may_end.set()
    born[0].join(240)


# Ports for servers of tests: none is promised twice within a short time.


@pytest.fixture
def few(monkeypatch):
    """Give this process 40 ports, none of which is taken yet."""
    lowest = ports.free_block(above=39)
    monkeypatch.setattr(ports, "_range", [lowest, lowest + 40])
    monkeypatch.setattr(ports, "_taken", {})
    return range(lowest, lowest + 40)


@pytest.mark.usefixtures("few")
def test_oldest_ports_are_taken_again_when_there_are_no_others(few):
    given = [ports.free_port() for _ in range(30)]
    assert len(set(given)) == 30 and set(given) <= set(few)
    for _ in range(200):
        given.append(ports.free_port())
        assert given[-1] in few and given[-1] not in given[-6:-1]


@pytest.mark.usefixtures("few")
def test_port_in_use_is_not_taken(few):
    with socket.create_server(("127.0.0.1", few[7])):
        assert few[7] not in {ports.free_port() for _ in range(120)}


@pytest.mark.usefixtures("few")
def test_block_has_free_ports_around_its_port(few):
    blocks = [ports.free_broker_port() for _ in range(4)]
    assert len({port + step for port in blocks for step in (-2, -1, 0, 1)}) == 16


@pytest.mark.usefixtures("few")
def test_full_range_is_named_in_the_error(few):
    with pytest.raises(AssertionError, match=f"no free ports from {few[0]} to {few[-1] + 1}"):
        listening = []
        try:
            for port in few:
                listening.append(socket.create_server(("0.0.0.0", port)))
            ports.free_port()
        finally:
            for each in listening:
                each.close()
