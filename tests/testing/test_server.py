"""`python -m rmqha.testing.server`: what it prints, when it ends, and what it says of a wrong call."""
import signal
import subprocess
import sys

import pytest

from rmqha.testing import RemoteRocketMQ
from tests.support import start_as
from tests.support.sources import ROOT

COMMAND = [sys.executable, "-m", "rmqha.testing.server"]


def start(*arguments, stdin=subprocess.PIPE):
    """The process, and the name server that it names."""
    process = subprocess.Popen(start_as.command([*COMMAND, *arguments], ctrl_c=True), stdin=stdin,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    line = process.stdout.readline()
    assert line.startswith("NAMESRV_ADDR="), process.communicate()
    return process, RemoteRocketMQ(line.removeprefix("NAMESRV_ADDR=").strip())


def test_it_serves_until_its_standard_input_ends():
    process, remote = start("--topology", "1m-1s", "--sync")
    assert {name: sorted(ids) for name, ids in remote.brokers().items()} == {"broker-a": [0, 1]}
    assert process.poll() is None
    assert process.communicate(timeout=600) == ("", "") and process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_until_a_signal_when_nobody_holds_its_input(number):
    process, remote = start("--forever", stdin=subprocess.DEVNULL)
    assert remote.brokers()
    process.send_signal(number)
    assert process.communicate(timeout=600) == ("", "") and process.returncode == 0


@pytest.mark.parametrize("arguments, why", [
    (["--topology", "9"], "topology '9' is none; it is masters and slaves"),
    (["--config", "maxMessageSize=much"], "config: maxMessageSize=much: "),
    (["--port", "70000"], "the name server can't start: 70000 (listenPort) is no port: 0 to 65535")])
def test_wrong_call_is_a_line_and_an_exit_code(arguments, why):
    done = subprocess.run([*COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT,
                          timeout=600, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(why) and done.stderr.count("\n") == 1
