"""Commands forked from the warm process end, print and are signalled as others do."""
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from tests.support import warm
from tests.support.nodes import NamesrvNode
from tests.support.sources import ROOT
from tests.support.wait import wait_until

RMQHA = [sys.executable, "-m", "rmqha.tools.rmqha_command"]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_command_prints_and_ends_as_in_a_process_of_its_own(tmp_path):
    for arguments in (["--help"], ["no-such-command"], ["ps", "-o", "json"], ["config", "explain", "--help"]):
        env = {**ENV, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
        own = subprocess.run([*RMQHA, *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        forked = warm.run([*RMQHA, *arguments], env, tmp_path)
        assert (forked.returncode, forked.stdout, forked.stderr) == (own.returncode, own.stdout, own.stderr)


def test_a_server_runs_in_its_folder_with_its_environment_until_it_is_told_to_end(tmp_path, nodes):
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


def test_several_threads_start_commands_side_by_side(tmp_path):
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(warm.run([*RMQHA, "--version"], ENV, tmp_path).stdout))
               for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(codes) == 8 and len(set(codes)) == 1 and codes[0]


def test_they_end_with_the_process_that_started_them(tmp_path):
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
def test_what_is_about_starting_is_started(command, env):
    assert not warm.can_be_warm(command, {**ENV, **env})
    assert warm.can_be_warm(RMQHA, {**ENV, "HOME": "/x", "ROCKETMQ_HOME": "/y", "TZ": "Asia/Kolkata"})
