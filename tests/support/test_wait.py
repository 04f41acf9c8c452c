"""Waiting for facts, and requests that wait for a busy machine."""
import ast
import os
import subprocess

import pytest

from rmqha.remoting.remoting_client import RemotingClient
from tests.support import wait
from tests.support.patience import DEADLINES, _waiting, be_patient, command, patient
from tests.support.sources import ROOT, modules

# Waiting for facts: which time counts.


class Clock:
    """Replaces the module time: each sleep takes the next given time, the last one repeatedly."""

    def __init__(self, *sleeps_s):
        self.now_s, self.looks, self._sleeps_s = 50.0, 0, list(sleeps_s)

    def monotonic(self):
        return self.now_s

    def sleep(self, _seconds):
        self.looks += 1
        self.now_s += self._sleeps_s.pop(0) if len(self._sleeps_s) > 1 else self._sleeps_s[0]


@pytest.mark.parametrize("sleeps_s, looks", [
    ([1.0], 61), ([5.0], 13), ([300.0, 1.0], 62), ([1.0, 6.0, 700.0, 1.0], 63)])
def test_pauses_of_the_process_do_not_count(monkeypatch, sleeps_s, looks):
    clock = Clock(*sleeps_s)
    monkeypatch.setattr(wait, "time", clock)
    monkeypatch.setattr(wait, "_stolen_s", lambda: 0.0)
    with pytest.raises(AssertionError, match="not within 60000 ms: it rains"):
        wait.wait_until(lambda: False, 60_000, "it rains")
    assert clock.looks == looks


def test_stolen_time_counts_four_times(monkeypatch):
    clock = Clock(1.0)
    monkeypatch.setattr(wait, "time", clock)
    monkeypatch.setattr(wait, "_stolen_s", lambda: min(10.0, clock.looks / 2))
    with pytest.raises(AssertionError):
        wait.wait_until(lambda: False, 60_000)
    assert clock.looks == 101
    assert wait.wait_until(lambda: "its value") == "its value"


def test_lasting_fails_if_the_block_ends_too_soon(monkeypatch):
    clock = Clock(0.4)
    monkeypatch.setattr(wait, "time", clock)
    with pytest.raises(AssertionError, match="over after 0.400 s, not after 0.5 s at least"), wait.lasting(0.5):
        clock.sleep(1)
    with wait.lasting(0.5):
        clock.sleep(1)
        clock.sleep(1)


# Requests of tests and their servers wait; those of a test about times do not.


@pytest.mark.parametrize("is_patient, asked_ms, waited_ms", [
    (True, 3000, 120_000), (True, 1000, 120_000), (True, 999, 999), (True, 600_000, 600_000), (False, 3000, 3000)])
def test_timeout_that_no_test_has_set_is_long(is_patient, asked_ms, waited_ms):
    be_patient(is_patient)
    assert _waiting(lambda *given: given)("client", "address", "request", asked_ms, "more") == (
        "client", "address", "request", waited_ms, "more")


def test_requests_of_clients_wait():
    be_patient()
    be_patient()
    assert RemotingClient.invoke_sync.waits and RemotingClient.invoke_async.waits
    assert not hasattr(RemotingClient.invoke_sync.__wrapped__, "waits")


@pytest.mark.parametrize("name, constant", DEADLINES)
def test_deadlines_are_long_unless_a_test_is_about_times(name, constant):
    module = pytest.importorskip(name, exc_type=ImportError)
    be_patient(False)
    own = getattr(module, constant)
    assert 0 < own < patient(constant)
    be_patient()
    assert getattr(module, constant) == patient(constant)


def test_two_minutes_in_each_unit():
    assert [patient(name) for name in ("A_S", "A_MS", "A_MILLIS", "A_NS")] == [120, 120_000, 120_000, 120 * 10 ** 9]


@pytest.mark.parametrize("name, constant", DEADLINES)
def test_deadline_is_read_each_time(name, constant):
    functions = [node for node in ast.walk(modules()[name.replace(".", "/") + ".py"])
                 if isinstance(node, ast.FunctionDef)]
    inside = [each for node in functions for part in node.body for each in ast.walk(part)]
    defaults = [each for node in functions for default in (*node.args.defaults, *node.args.kw_defaults) if default
                for each in ast.walk(default)]
    assert constant in {each.id for each in inside if isinstance(each, ast.Name)}
    assert constant not in {each.id for each in defaults if isinstance(each, ast.Name)}


CODE = """
import sys
from rmqha.remoting.remoting_client import RemotingClient
print(__name__, sys.argv[1:], RemotingClient.invoke_sync.waits)
"""


@pytest.mark.parametrize("how", ["code", "file", "module"])
def test_requests_of_a_client_in_a_separate_process_wait(how, tmp_path):
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "program.py").write_text(CODE + ("import beside" if how == "file" else ""))
    words = {"code": ["-c", CODE], "file": [tmp_path / "program.py"], "module": ["-m", "program"]}[how]
    path = os.pathsep.join([str(ROOT), *([str(tmp_path)] if how == "module" else [])])
    done = subprocess.run(command([*words, "-c", 1]), env={**os.environ, "PYTHONPATH": path}, capture_output=True,
                          text=True, timeout=600)
    assert (done.stdout, done.stderr, done.returncode) == ("__main__ ['-c', '1'] True\n", "", 0)


def test_process_ends_with_the_exit_code_of_its_client():
    done = subprocess.run(command(["-c", "raise SystemExit(7)"]), cwd=ROOT, timeout=600)
    assert done.returncode == 7
