"""Programs that are stopped by a signal, have an unread output, or lack a library."""
import ast
import configparser
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading

import pytest

from rmqha.common import filesystem, program
from rmqha.common.program import ENDED_BY_PIPE, StopSignal, interrupted_later, nobody_reads, run_while_read
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool
from tests.support.nodes import NamesrvNode
from tests.support.sources import ROOT, modules, nodes
from tests.support.tiers import of_sources
from tests.support.wait import own_threads, wait_until

# Stopping by a signal, at any moment.


@pytest.fixture
def alarm():
    """Restore the handler of SIGALRM."""
    before = signal.getsignal(signal.SIGALRM)
    yield signal.SIGALRM
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_signal_just_before_the_wait_is_never_lost(alarm, monkeypatch):
    monkeypatch.setattr(program, "_LOOK_S", 0.05)
    rng = random.Random(1)
    # A threading.Event hangs, usually within a thousand rounds.
    for _ in range(1000):
        stop = StopSignal()
        signal.signal(alarm, stop.handler)
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 60e-6))
        assert stop.wait(240) and stop.is_set()


def test_all_current_and_later_waiters_continue():
    stop, seen = StopSignal(), []
    waiting = [threading.Thread(target=lambda: seen.append(stop.wait(240))) for _ in range(4)]
    for thread in waiting:
        thread.start()
    stop.set()
    stop.set()
    for thread in waiting:
        thread.join(240)
    assert seen == [True] * 4 and stop.wait() and stop.wait(0) and stop.is_set()


def test_wait_times_out_without_a_signal():
    stop = StopSignal()
    assert not stop.wait(0.01) and not stop.is_set() and not stop.wait(0)


ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def test_program_started_by_nohup_ignores_the_end_of_its_terminal():
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop = StopSignal.of_process()
        signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set() and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_each_signal_stops_the_process():
    before = {number: signal.getsignal(number) for number in ENDING}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        for number in before:
            stop = StopSignal.of_process()
            signal.raise_signal(number)
            assert stop.wait(240)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_handled_signals_are_delayed_too(number):
    before, steps = signal.getsignal(number), []

    def end(_number, _frame):
        steps.append("ended")
    try:
        signal.signal(number, end)
        with interrupted_later():
            signal.raise_signal(number)
            steps.append("went on")
        assert steps == ["went on", "ended"] and signal.getsignal(number) is end
        signal.signal(number, signal.SIG_DFL)
        with interrupted_later():
            assert signal.getsignal(number) is signal.SIG_DFL, "the default action should stay"
    finally:
        signal.signal(number, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_inside_takes_effect_at_the_end():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with interrupted_later():
            signal.raise_signal(signal.SIGINT)
            steps.append("went on")
    assert steps == ["went on"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with interrupted_later():
        steps.append("nothing came")
    other = threading.Thread(target=lambda: interrupted_later().__enter__())
    other.start()
    other.join(240)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class _Service(ServiceThread):
    def run(self):
        while not self.stopped:
            self.wait_for_running(60_000)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_during_a_thread_start_leaves_a_thread_that_can_be_stopped(monkeypatch):
    service, pool, before = _Service(), NamedThreadPool("pool_", 1, 10), len(own_threads())
    real = threading.Thread.start

    def start(thread):
        signal.raise_signal(signal.SIGINT)
        real(thread)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for begin in (service.start, lambda: pool.submit(str)):
            with pytest.raises(KeyboardInterrupt):
                begin()
    assert service.is_alive() and len(own_threads()) == before + 2
    service.shutdown()
    pool.shutdown()
    assert len(own_threads()) == before


@of_sources
def test_no_code_waits_in_a_way_that_can_miss_a_signal():
    """If the signal arrives between a check and the call of signal.pause(), that call waits forever for another one."""
    found = [f"{path}:{node.lineno}" for path, tree in modules().items() for node in ast.walk(tree)
             if isinstance(node, ast.Call) and ast.unparse(node.func) in ("signal.pause", "signal.sigwait", "pause")]
    assert not found


# A program with an unread output ends silently.

# The reader has gone whether or not Python buffers the output until its end, but the failure appears in different
# places.
BUFFERED = [False, True]
PRINT = [(program, option) for program in ("mqnamesrv", "mqbroker", "mqcontroller", "mqadmin", "mqshutdown", "rmqha")
         for option in ("--help", "--version")]
PRINT += [("mqnamesrv", "-p"), ("mqbroker", "-p"), ("mqbroker", "-m"), ("mqcontroller", "-p"),
          ("mqadmin", "topicList -h")]


def run_unread(*arguments, is_buffered=True):
    """Run Python with a standard output whose reading end is closed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env |= {"PYTHONPATH": str(ROOT)} | ({} if is_buffered else {"PYTHONUNBUFFERED": "1"})
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        return subprocess.run([sys.executable, *arguments], env=env, cwd=ROOT, stdout=out, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, timeout=600, check=False)


@pytest.mark.parametrize("is_buffered", BUFFERED, ids=["at once", "buffered"])
@pytest.mark.parametrize("program, options", PRINT)
def test_programs_end_silently(program, options, is_buffered):
    ended = run_unread("-m", "rmqha.launch", program, *options.split(), is_buffered=is_buffered)
    assert ended.stderr == ""
    assert ended.returncode in ({1} if program == "rmqha" else {0, ENDED_BY_PIPE})  # click ends with 1


def test_modules_end_silently():
    for module in ("broker.broker_startup", "namesrv.namesrv_startup", "controller.controller_startup",
                   "tools.command.mq_admin_startup", "tools.mqshutdown"):
        ended = run_unread("-m", f"rmqha.{module}", "--help")
        assert (ended.returncode, ended.stderr) == (ENDED_BY_PIPE, ""), module


def test_all_servers_are_stopped_even_if_the_list_of_them_is_unread(tmp_path, nodes):
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


def test_exit_code_is_kept():
    assert [run_while_read(lambda code=code: code) for code in (None, 0, 3)] == [0, 0, 3]
    with pytest.raises(SystemExit, match="4"):
        run_while_read(lambda: sys.exit(4))


# Hints at libraries that are not installed: they name existing extras, and no package index.

# The arguments of pip: from "pip install", over its options, to the requirement.
REQUIREMENT = re.compile(r"pip install(?: +-+[\w-]+)* +['\"]?([^\s'\"`)]+)")
TEXTS = ("*.md", "rmqha/**/*.py", "tests/**/*.py", "docs/**/*.md", "conf/**/*", "bin/*")


def declared_extras():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    return set(config["options.extras_require"])


PIP = f"{shlex.quote(sys.executable)} -m pip install "


def test_hint_in_a_checkout_names_it_and_the_extra():
    assert filesystem.how_to_install("acl") == f"{PIP}'{ROOT}[acl]'"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder that pip installed into; write(direct_url) records the source of the installation."""
    info = tmp_path / "site-packages" / "rmqha-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: rmqha\nRequires-Dist: click>=8.1\n"
                                   "Requires-Dist: pyyaml>=6; extra == \"acl\"\n"
                                   "Requires-Dist: a>=1; extra == 'two'\nRequires-Dist: b; extra == 'two'\n")
    monkeypatch.setattr(filesystem, "_PACKAGE", info.parent / "rmqha")
    filesystem._dist_info.cache_clear()
    yield lambda origin: (info / "direct_url.json").write_text(json.dumps(origin))
    filesystem._dist_info.cache_clear()


def test_hint_of_an_installed_package_can_be_pasted(installed, tmp_path):
    # Installed from an index, for which pip records nothing.
    assert filesystem.how_to_install("acl") == f"{PIP}'rmqha[acl]'"
    wheel = tmp_path / "my wheels" / "rmqha.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"")
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert filesystem.how_to_install("acl") == f"{PIP}'{wheel}[acl]'"
    # As in the image, whose wheel was built elsewhere.
    wheel.unlink()
    assert filesystem.how_to_install("acl") == f"{PIP}'pyyaml>=6'"
    assert filesystem.how_to_install("two") == f"{PIP}'a>=1' b"
    installed({"url": "https://example.org/rmqha.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}})
    assert filesystem.how_to_install("acl") == f"{PIP}'rmqha[acl] @ git+https://example.org/rmqha.git'"
    installed({"url": "https://example.org/rmqha.whl", "archive_info": {}})
    assert filesystem.how_to_install("acl") == f"{PIP}'rmqha[acl] @ https://example.org/rmqha.whl'"


def test_no_code_prints_the_placeholder_of_the_pages():
    assert [str(file) for file in (ROOT / "rmqha").rglob("*.py") if "PATH-OR-URL" in file.read_text("utf-8")] == []


def test_no_text_says_that_an_index_has_rmqha():
    files = [file for pattern in TEXTS for file in ROOT.glob(pattern) if file.is_file() and file.suffix != ".pyc"
             and file.name != "test_program.py"]
    wanted = [(str(file.relative_to(ROOT)), name) for file in files
              for name in REQUIREMENT.findall(file.read_text("utf-8", "replace"))]
    assert ("docs/acl.md", "PATH-OR-URL[acl]") in wanted
    assert [found for found in wanted if found[1].startswith("rmqha")] == []


@pytest.mark.parametrize("text, name", [
    ("pip install rmqha[fast]", "rmqha[fast]"), ("`pip install --quiet 'rmqha[x]'`", "rmqha[x]"),
    ("pip install -e \"/a[b]\"", "/a[b]")])
def test_requirement_is_found_in_a_hint(text, name):
    assert REQUIREMENT.findall(text) == [name]


def test_extras_named_in_hints_exist():
    asked = {ast.literal_eval(node.args[0]) for found in nodes().values() for node in found
             if isinstance(node, ast.Call) and ast.unparse(node.func) == "how_to_install"
             and isinstance(node.args[0], ast.Constant)}
    assert {"acl", "lz4", "zstd"} <= asked <= declared_extras()


def test_version_is_defined_in_one_place():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    assert config["metadata"]["version"] == "attr: rmqha.__version__"
