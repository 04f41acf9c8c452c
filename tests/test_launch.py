"""The programs: Ctrl-C while they start, and what each answers to --version, --help and nonsense."""
import os
import signal
import subprocess
import sys

import pytest

from rmqha import __version__, launch
from rmqha.common.program import INTERRUPTED, Interruptible, Terminated, exit_code, leave_when_interrupted
from tests.support import start_as
from tests.support.sources import ROOT


def start(tmp_path, *arguments, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "NAMESRV_ADDR": "127.0.0.1:1"}
    return subprocess.Popen(
        start_as.command([sys.executable, *arguments], ctrl_c=True), env=env, cwd=tmp_path, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("program", launch.PROGRAMS)
def test_ctrl_c_while_a_program_is_imported_ends_it_with_130_and_no_word(program, tmp_path):
    # -v tells on standard error which file is imported now
    file = f"/{launch.PROGRAMS[program].rpartition('.')[2]}."
    process = start(tmp_path, "-v", "-m", "rmqha.launch", program, "--version")
    told = []
    for line in process.stderr:
        told.append(line)
        if file in line:
            process.send_signal(signal.SIGINT)
            break
    told += process.communicate(timeout=600)[1].splitlines(keepends=True)
    assert process.returncode == INTERRUPTED, "".join(told)[-2000:]
    assert not any("Traceback" in line or "KeyboardInterrupt" in line for line in told)


@pytest.mark.parametrize("program", launch.PROGRAMS)
def test_each_tells_its_version_and_explains_itself(program, tmp_path):
    for option, text in (("--version", __version__), ("--help", program)):
        process = start(tmp_path, "-m", "rmqha.launch", program, option)
        out, err = process.communicate(timeout=600)
        assert (process.returncode, err) == (0, "") and text in out


@pytest.mark.parametrize("arguments", [[], ["mqnothing"]])
def test_other_names_are_refused(arguments, tmp_path):
    process = start(tmp_path, "-m", "rmqha.launch", *arguments)
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 1 and err.startswith("usage: python -m rmqha.launch mqnamesrv|mqbroker|")


def test_ctrl_c_is_an_exception_in_the_block_alone():
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        leave_when_interrupted()
        leaves = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), Interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is leaves is not signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_program_that_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        leave_when_interrupted()
        with Interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


OTHERS = (signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", OTHERS)
def test_sigterm_and_sighup_are_an_exception_in_the_block_once(number):
    before = {each: signal.signal(each, signal.SIG_DFL) for each in OTHERS}
    try:
        steps = []
        with pytest.raises(Terminated) as told, Interruptible():
            try:
                signal.raise_signal(number)
            finally:
                for each in OTHERS:
                    signal.raise_signal(each)
                steps.append("cleaned up")
        assert steps == ["cleaned up"] and exit_code(told.value) == 128 + number and number.name in str(told.value)
        assert [signal.getsignal(each) for each in OTHERS] == [signal.SIG_DFL] * 2
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.parametrize("number", OTHERS)
@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_what_ignores_or_handles_a_signal_itself_keeps_that(number, handler):
    before = signal.signal(number, handler)
    try:
        with Interruptible():
            signal.raise_signal(number)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", OTHERS)
def test_a_command_of_rmqha_ends_in_order(number, tmp_path):
    code = ("import signal, sys; sys.argv[1:] = ['config', 'path']\n"
            f"[signal.signal(number, signal.SIG_DFL) for number in {tuple(map(int, OTHERS))}]\n"
            "from rmqha import launch\nfrom rmqha.tools.config import config_command\n"
            f"config_command.filesystem.rocketmq_home = lambda: signal.raise_signal({int(number)})\n"
            "sys.exit(launch.rmqha())")
    process = start(tmp_path, "-c", code)
    assert process.communicate(timeout=600) == ("", f"ended by {number.name}\n") and process.returncode == 128 + number


def test_ctrl_c_in_a_command_of_rmqha_ends_with_130(tmp_path):
    code = ("import signal, sys; sys.argv[1:] = ['config', 'path']\n"
            "from rmqha import launch\nfrom rmqha.tools.config import config_command\n"
            "config_command.filesystem.rocketmq_home = lambda: signal.raise_signal(signal.SIGINT)\n"
            "sys.exit(launch.rmqha())")
    process = start(tmp_path, "-c", code)
    assert process.communicate(timeout=600) == ("", "interrupted\n") and process.returncode == INTERRUPTED
