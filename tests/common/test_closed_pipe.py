"""A program whose output nobody reads ends without a word."""
import os
import subprocess
import sys

import pytest

from rmqha.common.program import ENDED_BY_PIPE, nobody_reads, run_while_read
from tests.support.nodes import NamesrvNode
from tests.support.sources import ROOT
from tests.support.wait import wait_until

# Whether Python keeps what it prints until its end or not, the reader has gone: the place of the fault differs.
BUFFERED = [False, True]
PRINT = [(program, option) for program in ("mqnamesrv", "mqbroker", "mqcontroller", "mqadmin", "mqshutdown", "rmqha")
         for option in ("--help", "--version")]
PRINT += [("mqnamesrv", "-p"), ("mqbroker", "-p"), ("mqbroker", "-m"), ("mqcontroller", "-p"),
          ("mqadmin", "topicList -h")]


def run_unread(*arguments, is_buffered=True):
    """Run Python with a standard output that is closed at its other end."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env |= {"PYTHONPATH": str(ROOT)} | ({} if is_buffered else {"PYTHONUNBUFFERED": "1"})
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        return subprocess.run([sys.executable, *arguments], env=env, cwd=ROOT, stdout=out, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, timeout=600, check=False)


@pytest.mark.parametrize("is_buffered", BUFFERED, ids=["at once", "buffered"])
@pytest.mark.parametrize("program, options", PRINT)
def test_programs_end_without_a_word(program, options, is_buffered):
    ended = run_unread("-m", "rmqha.launch", program, *options.split(), is_buffered=is_buffered)
    assert ended.stderr == ""
    assert ended.returncode in ({1} if program == "rmqha" else {0, ENDED_BY_PIPE})  # click ends with 1


def test_modules_do_too():
    for module in ("broker.broker_startup", "namesrv.namesrv_startup", "controller.controller_startup",
                   "tools.command.mq_admin_startup", "tools.mqshutdown"):
        ended = run_unread("-m", f"rmqha.{module}", "--help")
        assert (ended.returncode, ended.stderr) == (ENDED_BY_PIPE, ""), module


def test_all_servers_are_stopped_also_where_nobody_reads_who_they_are(tmp_path, nodes):
    for name in ("one", "two"):
        node = NamesrvNode("rmqha", tmp_path / name, name)
        nodes.append(node)
        node.start()
    ended = run_unread("-c", f"""
import psutil, sys
from rmqha.tools import mqshutdown
sys.exit(mqshutdown.stop("mqnamesrv", map(psutil.Process, {[node.pid for node in nodes]})))""")
    assert (ended.returncode, ended.stderr) == (0, "")
    wait_until(lambda: not any(node.is_alive for node in nodes), what="the end of both")


def test_other_broken_pipes_are_errors():
    def main():
        raise BrokenPipeError("of a connection")
    assert not nobody_reads()
    with pytest.raises(BrokenPipeError, match="of a connection"):
        run_while_read(main)


def test_the_code_is_kept():
    assert [run_while_read(lambda code=code: code) for code in (None, 0, 3)] == [0, 0, 3]
    with pytest.raises(SystemExit, match="4"):
        run_while_read(lambda: sys.exit(4))
